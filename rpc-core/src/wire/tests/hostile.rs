use proptest::collection::vec;
use proptest::prelude::*;

use super::corpus::{controls, sends};
use super::*;

/// Decodes bytes as everything they could be. That it returns is what is tested.
fn decode_as_everything(bytes: &[u8]) {
    let _ = walk(bytes);
    let _ = hello::frame_len(bytes);
    let _ = ControlMessage::decode(bytes);
    let _ = metadata::decode(&Bytes::copy_from_slice(bytes));
    for &kind in FrameType::KNOWN {
        let frame = Frame { kind, flags: FrameFlags::NONE, call: 1, body: bytes };
        if let Ok(body) = Body::decode(&frame) {
            // What was decoded can be printed and encoded again, and says the same then.
            let _ = format!("{body:?}");
            let mut buf = vec![0; bytes.len() + 8];
            let mut w = Writer::new(&mut buf);
            body.encode(&mut w).unwrap();
            let len = w.len();
            assert_eq!(Body::decode(&Frame { body: &buf[..len], ..frame }).unwrap(), body);
        }
    }
}

#[test]
fn a_corpus_cut_at_any_byte_is_refused_and_never_panics() {
    for (name, bytes) in sends() {
        for cut in 0..bytes.len() {
            let mut bytes = bytes[..cut].to_vec();
            assert!(walk(&bytes).is_err(), "{name} cut at {cut}");
            set_total_len(&mut bytes);
            let whole = walk(&bytes).is_ok();
            assert!(!whole, "{name} cut at {cut} and made consistent lacks frames");
        }
    }
    for (name, bytes) in controls() {
        for cut in 0..bytes.len() {
            let mut bytes = bytes[..cut].to_vec();
            assert!(ControlMessage::decode(&bytes).is_err(), "{name} cut at {cut}");
            let len = hello::frame_len(&bytes).unwrap();
            assert_eq!(len.is_some(), cut >= handshake::PREFIX_BYTES, "{name} cut at {cut}");
            // Values may be missing that are optional, so this may decode; it must only return.
            set_control_len(&mut bytes);
            decode_as_everything(&bytes);
        }
    }
}

#[test]
fn a_corpus_with_any_bit_turned_never_panics() {
    for (name, bytes) in sends().into_iter().chain(controls()) {
        for bit in 0..bytes.len() * 8 {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            decode_as_everything(&bytes);
            if let Ok(walked) = walk(&bytes) {
                let again = unwalk(&walked);
                assert_eq!(walk(&again).unwrap(), walked, "{name} with bit {bit} turned");
            }
        }
    }
}

#[test]
fn every_body_of_the_corpus_cut_anywhere_is_refused() {
    for (name, bytes) in sends() {
        let (_, frames) = SendHeader::decode(&bytes).unwrap();
        for frame in frames.map(|frame| frame.unwrap()) {
            if matches!(Body::decode(&frame), Ok(Body::Opaque(_))) {
                continue;
            }
            for cut in 0..frame.body.len() {
                let cut = Frame { body: &frame.body[..cut], ..frame };
                assert!(Body::decode(&cut).is_err(), "{name}: {frame:?} cut");
            }
            let longer = [frame.body, &[0; 8]].concat();
            let longer = Frame { body: &longer, ..frame };
            let extra = matches!(Body::decode(&longer), Err(DecodeError::Trailing { .. }));
            assert!(extra, "{name}: {frame:?} with bytes after it");
        }
    }
}

proptest! {
    #[test]
    fn no_bytes_make_a_decoder_panic(bytes in vec(any::<u8>(), 0..600)) {
        decode_as_everything(&bytes);
    }

    #[test]
    fn no_small_numbers_make_a_decoder_panic(bytes in vec(0..3_u8, 0..200)) {
        decode_as_everything(&bytes);
    }

    #[test]
    fn a_corpus_with_bytes_changed_never_panics(
        pick: prop::sample::Index,
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let all: Vec<_> = sends().into_iter().chain(controls()).collect();
        let mut bytes = pick.get(&all).1.clone();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        decode_as_everything(&bytes);
        bytes.truncate(cut.index(bytes.len()) / 8 * 8);
        set_total_len(&mut bytes);
        decode_as_everything(&bytes);
        if bytes.starts_with(&handshake::MAGIC) {
            set_control_len(&mut bytes);
            decode_as_everything(&bytes);
        }
    }
}

fn payload(addr: u64, len: u32, lease: u64) -> Segment {
    Segment::Payload(PayloadDescriptor { addr, len, rkey: 1, lease })
}

/// Writes a REQUEST as a hostile peer would: without asking whether it keeps the rules.
fn hostile_request(segments: &[Segment], inline: &[u8]) -> Vec<u8> {
    let mut buf = vec![0; 16_384];
    let mut w = Writer::new(&mut buf);
    w.u32(1).unwrap();
    w.u16(0).unwrap();
    w.u8(0).unwrap();
    w.u8(segments.len() as u8).unwrap();
    w.u64(0).unwrap();
    w.u32(0).unwrap();
    w.len_u32(inline.len()).unwrap();
    Segments::new(segments).encode(&mut w).unwrap();
    w.bytes(inline).unwrap();
    let len = w.len();
    buf.truncate(len);
    buf
}

fn refused(segments: &[Segment], inline: &[u8]) -> DecodeError {
    // The encoder refuses the same.
    let request = RequestFrame { segments: Segments::new(segments), inline, ..Default::default() };
    assert!(request.check().is_err());
    let mut buf = [0; 16_384];
    let mut w = Writer::new(&mut buf);
    assert_eq!((request.encode(&mut w), w.len()), (Err(Full), 0));
    RequestFrame::decode(&hostile_request(segments, inline)).unwrap_err()
}

#[test]
fn a_descriptor_that_wraps_is_refused_and_one_that_just_ends_in_time_is_not() {
    let wraps = refused(&[payload(u64::MAX - 4095, 4096, 1)], b"");
    let rule = "wraps around the address space";
    assert_eq!(wraps, DecodeError::Invalid { field: "payload descriptor", rule });
    let ends = hostile_request(&[payload(u64::MAX - 4096, 4096, 1)], b"");
    assert!(RequestFrame::decode(&ends).is_ok());
}

#[test]
fn segments_of_no_bytes_are_refused() {
    for segments in [[payload(4096, 0, 1)], [Segment::Inline(0)]] {
        let error = refused(&segments, b"");
        assert!(matches!(error, DecodeError::Invalid { rule: "names no bytes", .. }), "{error}");
    }
}

#[test]
fn inline_counts_that_do_not_sum_to_the_inline_bytes_are_refused() {
    let field = "sum of the inline segments";
    for (counts, stated) in [(&[1, 1][..], 2), (&[4], 4), (&[1, 1, 2], 4)] {
        let segments: Vec<_> = counts.iter().map(|count| Segment::Inline(*count)).collect();
        let error = refused(&segments, b"abc");
        assert_eq!(error, DecodeError::Mismatch { field, stated, found: 3 });
    }
    // Sums that would be right modulo 2³² are not.
    let error = refused(&[Segment::Inline(u32::MAX), Segment::Inline(4)], b"abc");
    assert_eq!(error, DecodeError::Mismatch { field, stated: (1 << 32) + 3, found: 3 });
    // A message of payloads alone has no inline bytes.
    let error = refused(&[payload(4096, 1, 1)], b"abc");
    assert_eq!(error, DecodeError::Mismatch { field, stated: 0, found: 3 });
}

#[test]
fn descriptors_of_two_leases_in_one_message_are_refused() {
    let error = refused(&[payload(4096, 1, 1), payload(8192, 1, 2)], b"");
    let rule = "names another lease than those before it in the message";
    assert_eq!(error, DecodeError::Invalid { field: "payload descriptor", rule });
}

#[test]
fn more_segments_or_descriptors_than_their_bounds_are_refused() {
    let error = refused(&vec![Segment::Inline(1); SEGMENTS_MAX + 1], &[0; SEGMENTS_MAX + 1]);
    assert_eq!(error, DecodeError::TooLarge { field: "segment count", value: 65, max: 64 });
    let error = refused(&vec![payload(4096, 1, 1); PIECES_MAX + 1], b"");
    let field = "payload descriptor count";
    assert_eq!(error, DecodeError::TooLarge { field, value: 17, max: 16 });
    let most = hostile_request(&vec![payload(4096, u32::MAX, 1); PIECES_MAX], b"");
    let bytes = RequestFrame::decode(&most).unwrap().segments.payload_bytes();
    assert_eq!(bytes, PIECES_MAX as u64 * u64::from(u32::MAX), "the sum does not overflow");
}

#[test]
fn lengths_over_their_bounds_are_refused_before_what_they_count() {
    let at = |offset: usize, value: u16| {
        let mut body = hostile_request(&[], b"");
        body[offset..offset + 2].copy_from_slice(&value.to_le_bytes());
        RequestFrame::decode(&body).unwrap_err()
    };
    assert!(matches!(at(16, 4097), DecodeError::TooLarge { field: "metadata length", .. }));
    let name = at(18, 256);
    assert!(matches!(name, DecodeError::TooLarge { field: "REQUEST method name length", .. }));
    assert!(matches!(at(4, 4), DecodeError::Unknown { field: "REQUEST flags", value: 4 }));
    let mut status = vec![1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    status.extend([0, 0, 0, 0, 1, 4, 0, 0]);
    let error = ResponseFrame::decode(&status).unwrap_err();
    assert!(matches!(error, DecodeError::TooLarge { field: "status message length", .. }));
}

#[test]
fn a_method_without_a_name_is_refused_before_it_is_sent() {
    // It would travel as a number that no name goes with, over which the peer closes.
    let request = RequestFrame { name: Some(""), ..RequestFrame::default() };
    let rule = "is empty";
    let error = DecodeError::Invalid { field: "REQUEST method name", rule };
    assert_eq!(request.check(), Err(error));
}

#[test]
fn text_that_is_not_utf8_is_refused() {
    let mut body = hostile_request(&[], b"");
    body[18] = 1;
    body.extend([0xff, 0, 0, 0, 0, 0, 0, 0]);
    let field = "REQUEST method name";
    assert_eq!(RequestFrame::decode(&body), Err(DecodeError::NotUtf8 { field }));
    let notice = [1, 0, 0, 0, 1, 0, 0, 0, 0xc3];
    let error = Notice::decode("REFUSED", &notice).unwrap_err();
    assert_eq!(error, DecodeError::NotUtf8 { field: "REFUSED" });
}

#[test]
fn a_release_of_none_of_too_many_or_of_unknown_outcome_is_refused() {
    let mut body = vec![0; 8 + 300 * 16];
    assert!(matches!(Releases::decode(&body), Err(DecodeError::TooSmall { .. })));
    body[..4].copy_from_slice(&300_u32.to_le_bytes());
    assert!(matches!(Releases::decode(&body), Err(DecodeError::TooLarge { max: 256, .. })));
    body[..4].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(matches!(Releases::decode(&body), Err(DecodeError::TooLarge { max: 256, .. })));
    body.truncate(8 + 16);
    body[..4].copy_from_slice(&1_u32.to_le_bytes());
    let error = Releases::decode(&body).unwrap_err();
    assert_eq!(error, DecodeError::Unknown { field: "RELEASE outcome", value: 0 });
    let room = Releases::HEAD_BYTES + 3 * Release::BYTES;
    assert_eq!(
        [room - 1, room, 0, usize::MAX].map(Releases::fit),
        [2, 3, 0, control::RELEASES_MAX]
    );
}

fn send_of(frames: &[&[u8]], count: u16) -> Vec<u8> {
    let mut send = vec![0; SEND_HEADER_BYTES];
    send[0] = SEND_HEADER_BYTES as u8;
    send[4..6].copy_from_slice(&count.to_le_bytes());
    send.extend(frames.concat());
    set_total_len(&mut send);
    send
}

const PING: [u8; 24] = [10, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0];

#[test]
fn a_send_whose_counts_are_wrong_is_refused() {
    assert_eq!(walk(&send_of(&[&PING, &PING], 2)).unwrap().1.len(), 2);
    let error = walk(&send_of(&[&PING, &PING], 1)).unwrap_err();
    assert_eq!(error, DecodeError::Trailing { field: "last frame", extra: 24 });
    let error = walk(&send_of(&[&PING, &PING], 3)).unwrap_err();
    assert!(matches!(error, DecodeError::Truncated { field: "frame type", .. }), "{error}");
    let error = walk(&send_of(&[&PING], 9)).unwrap_err();
    assert_eq!(error, DecodeError::TooLarge { field: "SEND frame count", value: 9, max: 1 });
    let mut short = send_of(&[&PING], 1);
    short.push(0);
    let error = walk(&short).unwrap_err();
    assert_eq!(error, DecodeError::Mismatch { field: "SEND total length", stated: 56, found: 57 });
}

#[test]
fn a_send_header_that_is_short_long_or_odd_is_refused() {
    let with = |len: u16| {
        let mut send = send_of(&[&PING], 0);
        send[..2].copy_from_slice(&len.to_le_bytes());
        SendHeader::decode(&send).map(|_| ())
    };
    assert!(matches!(with(24), Err(DecodeError::TooSmall { .. })));
    assert!(matches!(with(36), Err(DecodeError::Unaligned { .. })));
    assert!(matches!(with(64), Err(DecodeError::Truncated { .. })));
    assert_eq!(with(56), Ok(()), "all of it is a longer header");
    let mut flags = send_of(&[], 0);
    flags[3] = 0x80;
    assert_eq!(SendHeader::decode(&flags).unwrap().0.flags, SendFlags::NONE, "may be ignored");
    flags[2] = 4;
    assert!(matches!(SendHeader::decode(&flags), Err(DecodeError::Unknown { .. })));
}

#[test]
fn an_unknown_frame_that_may_be_skipped_is_and_another_ends_the_walk() {
    let mut skippable = PING;
    skippable[..2].copy_from_slice(&[0x80, 0xff]);
    let send = send_of(&[&skippable, &PING], 2);
    let kinds: Vec<_> = walk(&send).unwrap().1.into_iter().map(|frame| frame.0).collect();
    assert_eq!(kinds, [FrameType::Skippable(0x80), FrameType::Ping]);
    for number in [0, 16, 127] {
        let mut unknown = PING;
        unknown[0] = number;
        let send = send_of(&[&PING, &unknown, &PING], 3);
        let mut frames = SendHeader::decode(&send).unwrap().1;
        assert!(frames.next().unwrap().is_ok());
        let value = u64::from(number);
        let error = DecodeError::Unknown { field: "frame type", value };
        assert_eq!(frames.next(), Some(Err(error)));
        assert_eq!(frames.next(), None, "nothing after an error is believed");
    }
}

#[test]
fn more_and_checksum_are_refused_until_they_are_agreed() {
    let with = |flags: FrameFlags| {
        let mut frame = PING;
        frame[1] = flags.bits();
        send_of(&[&frame], 1)
    };
    for flags in [FrameFlags::MORE, FrameFlags::CHECKSUM, FrameFlags::MORE.and(FrameFlags::END)] {
        let send = with(flags);
        let frames = SendHeader::decode(&send).unwrap().1;
        let error = frames.clone().next().unwrap().unwrap_err();
        assert!(matches!(error, DecodeError::Unknown { field: "frame flags", .. }));
        assert_eq!(frames.allowing(flags).next().unwrap().unwrap().flags, flags);
    }
    assert!(walk(&with(FrameFlags::END)).is_ok());
    let mut unknown = PING;
    unknown[1] = 8;
    let send = send_of(&[&unknown], 1);
    let mut frames = SendHeader::decode(&send).unwrap().1.allowing(FrameFlags::MORE);
    assert!(frames.next().unwrap().is_err(), "a flag without a meaning is never allowed");
}

fn hello_with(change: impl FnOnce(&mut Vec<u8>)) -> Result<ControlMessage, DecodeError> {
    let hello = Hello::new(Role::Connecting, 1, [2; 32]);
    let mut bytes = ControlMessage::Hello(hello).encode().unwrap();
    change(&mut bytes);
    set_control_len(&mut bytes);
    ControlMessage::decode(&bytes)
}

#[test]
fn a_hello_that_breaks_a_rule_is_refused_by_name() {
    assert!(hello_with(|_| ()).is_ok());
    let twice = hello_with(|hello| hello.extend([3, 0, 4, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0]));
    assert_eq!(twice, Err(DecodeError::Duplicate { field: "hello epoch" }));
    let missing = hello_with(|hello| hello.truncate(40));
    assert_eq!(missing, Err(DecodeError::Missing { field: "hello boot id" }));
    let size =
        hello_with(|hello| hello.extend([6, 0, 65, 0, 0, 0, 0, 0].iter().chain(&[b'x'; 72])));
    assert!(matches!(size, Err(DecodeError::TooLarge { field: "hello peer name length", .. })));
    let cut = hello_with(|hello| hello.extend([99, 0, 9, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]));
    assert!(matches!(cut, Err(DecodeError::Truncated { field: "hello value", .. })));
    let window = hello_with(|hello| {
        let at = hello.windows(4).position(|tag_and_len| tag_and_len == [7, 0, 1, 0]).unwrap();
        hello[at + 2] = 2;
    });
    assert_eq!(window, Err(DecodeError::Trailing { field: "hello window type", extra: 1 }));
    let version = hello_with(|hello| hello[18] = 0);
    assert!(matches!(version, Err(DecodeError::TooSmall { field: "hello newest version", .. })));
    let required = hello_with(|hello| hello[32] = 1);
    let found =
        matches!(required, Err(DecodeError::Invalid { field: "hello required features", .. }));
    assert!(found, "what is required is offered");
}

#[test]
fn sides_that_do_not_go_together_learn_what_to_do() {
    let own = Hello::new(Role::Connecting, 1, [0; 32]);
    let peer = Hello::new(Role::Accepting, 2, [0; 32]);
    assert!(own.negotiate(&peer).is_ok());
    let newer = Hello { version_min: 2, version_max: 3, ..peer.clone() };
    let text = own.negotiate(&newer).unwrap_err().to_string();
    assert!(text.contains("this side speaks 1 to 1 and the peer 2 to 3"), "{text}");
    assert!(text.ends_with("upgrade this side"), "{text}");
    assert!(newer.negotiate(&own).unwrap_err().to_string().ends_with("upgrade the peer"));
    let bit = Features(1 << 40);
    let needy = Hello { offered: bit, required: bit, ..peer };
    assert_eq!(own.negotiate(&needy), Err(HelloError::PeerRequires(bit)));
    assert_eq!(needy.negotiate(&own), Err(HelloError::OwnRequires(bit)));
    let text = HelloError::PeerRequires(Features::STREAMS.and(bit)).to_string();
    assert!(text.contains("streams, unknown bits 0x10000000000"), "{text}");
    assert_eq!(own.negotiate(&own), Err(HelloError::Role(Role::Connecting)));
}

#[test]
fn another_protocol_is_noticed_at_its_first_byte_and_a_length_before_it_is_kept() {
    assert_eq!(hello::frame_len(b""), Ok(None));
    assert_eq!(hello::frame_len(b"GET / HTTP/1.1"), Err(DecodeError::Magic));
    assert_eq!(hello::frame_len(b"G"), Err(DecodeError::Magic));
    let mut prefix = [&handshake::MAGIC[..], &[1, 0, 0, 0]].concat();
    assert_eq!(hello::frame_len(&prefix), Ok(None));
    prefix.extend(4104_u32.to_le_bytes());
    assert!(matches!(hello::frame_len(&prefix), Err(DecodeError::TooLarge { max: 4096, .. })));
    for (len, ok) in [(8_u32, false), (16, true), (20, false), (4096, true)] {
        prefix[12..].copy_from_slice(&len.to_le_bytes());
        assert_eq!(hello::frame_len(&prefix).is_ok(), ok, "{len}");
    }
    prefix[8] = 9;
    prefix[12..].copy_from_slice(&16_u32.to_le_bytes());
    let error = ControlMessage::decode(&prefix).unwrap_err();
    assert_eq!(error, DecodeError::Unknown { field: "control message kind", value: 9 });
}

#[test]
fn a_blob_that_no_device_could_mean_is_refused() {
    let link = SoftLink { guid: 1, dial: None };
    let good = AddressBlob::soft(1, 1, 4096, link);
    for bad in [
        AddressBlob { qp_num: 1 << 24, ..good },
        AddressBlob { psn: 1 << 24, ..good },
        AddressBlob { mtu: 0, ..good },
        AddressBlob { mtu: blob::MTU_BYTES_MAX + 1, ..good },
        AddressBlob { message_bytes_max: 0, ..good },
        AddressBlob { kind: DeviceKind::Ibv, ..good },
        AddressBlob { soft: None, ..good },
    ] {
        assert!(bad.check().is_err(), "{bad:?}");
        assert_eq!(ControlMessage::Blob(bad).encode(), Err(Full));
    }
    let bytes = ControlMessage::Blob(good).encode().unwrap();
    for (at, value) in [(16, 3), (17, 3), (18, 4), (19, 1), (21, 5), (21, 4), (27, 1), (31, 1)] {
        let mut bytes = bytes.clone();
        bytes[at] = value;
        assert!(ControlMessage::decode(&bytes).is_err(), "byte {at} as {value}");
    }
}

#[test]
fn no_debug_output_shows_what_opens_memory_or_proves_a_connection() {
    let secret = 0x5ec2_e700_u32;
    let segments = [Segment::Payload(PayloadDescriptor {
        addr: u64::from(secret),
        len: 1,
        rkey: secret,
        lease: 5,
    })];
    let request = RequestFrame { segments: Segments::new(&segments), ..Default::default() };
    let hello = Hello::new(Role::Connecting, 1, [0xd7; 32]);
    let blob = AddressBlob::soft(0x00c0_ffee, 0x00c0_ffee, 4096, SoftLink { guid: 1, dial: None });
    let shown = format!(
        "{request:?} {:?} {hello:?} {:?} {blob:?}",
        request.segments,
        Confirm { mac: [0xd7; 32], padding: 0 },
    );
    for hidden in [secret.to_string(), 0x00c0_ffee.to_string(), 0xd7.to_string()] {
        assert!(!shown.contains(&hidden), "{shown}");
    }
}
