use std::time::Duration;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;

/// What a request or response frame borrows.
#[derive(Debug, Clone)]
struct Parts {
    metadata: Vec<u8>,
    segments: Vec<Segment>,
    inline: Vec<u8>,
}

fn segment(lease: u64) -> impl Strategy<Value = Segment> {
    prop_oneof![
        (1..60_u32).prop_map(Segment::Inline),
        (any::<u32>(), 1..u32::MAX, any::<u32>()).prop_map(move |(addr, len, rkey)| {
            Segment::Payload(PayloadDescriptor { addr: u64::from(addr) << 20, len, rkey, lease })
        }),
    ]
}

fn parts() -> impl Strategy<Value = Parts> {
    let segments = any::<u64>().prop_flat_map(|lease| vec(segment(lease), 0..17));
    (vec(any::<u8>(), 0..40), segments, vec(any::<u8>(), 0..300)).prop_map(
        |(metadata, segments, mut inline)| {
            if !segments.is_empty() {
                let len = segments.iter().map(|segment| match segment {
                    Segment::Inline(len) => *len as usize,
                    Segment::Payload(_) => 0,
                });
                inline = vec![7; len.sum()];
            }
            Parts { metadata, segments, inline }
        },
    )
}

fn trace() -> impl Strategy<Value = TraceContext> {
    any::<([u8; 16], [u8; 8], u8)>().prop_map(|(trace_id, span_id, flags)| TraceContext {
        trace_id,
        span_id,
        flags,
    })
}

fn encoded(encode: impl FnOnce(&mut Writer<'_>) -> Result<(), Full>) -> Vec<u8> {
    let mut buf = vec![0xaa; 32_768];
    let mut w = Writer::new(&mut buf);
    encode(&mut w).unwrap();
    let len = w.len();
    buf.truncate(len);
    buf
}

/// No shorter memory takes it, and nothing is left in memory that is too short.
fn fits_exactly(len: usize, encode: impl Fn(&mut Writer<'_>) -> Result<(), Full>) {
    let mut buf = vec![0; len];
    assert_eq!(encode(&mut Writer::new(&mut buf)), Ok(()));
    for short in [0, len / 2, len.saturating_sub(1)].into_iter().filter(|short| *short < len) {
        let mut w = Writer::new(&mut buf[..short]);
        assert_eq!((encode(&mut w), w.len()), (Err(Full), 0));
    }
}

proptest! {
    #[test]
    fn a_request_comes_back_as_it_went(
        (method, priority) in any::<(u32, u8)>(),
        name in option::of("[a-zA-Z0-9./_]{1,255}"),
        timeout in option::of(1..u64::MAX),
        trace in option::of(trace()),
        token in any::<Option<u128>>(),
        parts in parts(),
    ) {
        let request = RequestFrame {
            method,
            name: name.as_deref(),
            timeout: timeout.map(Duration::from_nanos),
            priority,
            trace,
            token,
            metadata: &parts.metadata,
            segments: Segments::new(&parts.segments),
            inline: &parts.inline,
        };
        let bytes = encoded(|w| request.encode(w));
        prop_assert_eq!(bytes.len(), request.encoded_len());
        let decoded = RequestFrame::decode(&bytes).unwrap();
        prop_assert_eq!(decoded, request);
        prop_assert_eq!(encoded(|w| decoded.encode(w)), bytes.clone());
        fits_exactly(bytes.len(), |w| request.encode(w));
        for cut in 0..bytes.len() {
            prop_assert!(RequestFrame::decode(&bytes[..cut]).is_err());
        }
    }

    #[test]
    fn a_response_comes_back_as_it_went(
        status in option::of((any::<u32>(), ".{0,200}", vec(any::<u8>(), 0..200))),
        parts in parts(),
    ) {
        let status = status.as_ref().map(|(code, message, details)| {
            StatusBlock { code: *code, message, details }
        });
        let response = ResponseFrame {
            status,
            metadata: &parts.metadata,
            segments: Segments::new(&parts.segments),
            inline: &parts.inline,
        };
        let bytes = encoded(|w| response.encode(w));
        prop_assert_eq!(bytes.len(), response.encoded_len());
        let decoded = ResponseFrame::decode(&bytes).unwrap();
        prop_assert_eq!(decoded, response);
        prop_assert_eq!(encoded(|w| decoded.encode(w)), bytes.clone());
        fits_exactly(bytes.len(), |w| response.encode(w));
        for cut in 0..bytes.len() {
            prop_assert!(ResponseFrame::decode(&bytes[..cut]).is_err());
        }
    }

    #[test]
    fn segments_say_the_same_from_the_wire_as_from_a_list(parts in parts()) {
        let list = Segments::new(&parts.segments);
        let bytes = encoded(|w| list.encode(w));
        prop_assert_eq!(bytes.len(), list.encoded_len());
        let mut reader = Reader::new(&bytes);
        let wire = Segments::decode(&mut reader, list.len(), parts.inline.len()).unwrap();
        prop_assert!(reader.is_empty());
        prop_assert_eq!(wire, list);
        prop_assert_eq!(&wire.iter().collect::<Vec<_>>(), &parts.segments);
        prop_assert_eq!(wire.payload_bytes(), list.payload_bytes());
        prop_assert_eq!(wire.lease(), list.lease());
        prop_assert_eq!(wire.encoded_len(), list.encoded_len());
    }

    #[test]
    fn small_bodies_come_back_as_they_went(
        (nonce, last_id, count, code, reason) in any::<(u64, u64, u32, u32, u32)>(),
        text in ".{0,64}",
        leases in vec((any::<u64>(), 0..3_u8), 1..RELEASES_MAX_TESTED),
        (mac, padding) in (any::<[u8; 32]>(), 0..200_u32),
    ) {
        let reason = match reason % 4 {
            1 => CancelReason::Dropped,
            2 => CancelReason::Deadline,
            other => CancelReason::Other(other),
        };
        let leases = leases.into_iter().map(|(lease, outcome)| {
            let outcome = match outcome {
                0 => ReleaseOutcome::Read,
                1 => ReleaseOutcome::Skipped,
                _ => ReleaseOutcome::Failed,
            };
            Release { lease, outcome }
        });
        let notice = Notice { code, text: &text };
        let frames = vec![
            (FrameType::Cancel, Body::Cancel(Cancel { reason })),
            (FrameType::Release, Body::Release(leases.collect())),
            (FrameType::Credit, Body::Opaque(&[])),
            (FrameType::Recall, Body::Count(Count { count })),
            (FrameType::Return, Body::Count(Count { count })),
            (FrameType::Ping, Body::Nonce(Nonce { nonce })),
            (FrameType::Pong, Body::Nonce(Nonce { nonce })),
            (FrameType::GoAway, Body::GoAway(GoAway { last_id, notice })),
            (FrameType::Refused, Body::Notice(notice)),
            (FrameType::Error, Body::Notice(notice)),
            (FrameType::Confirm, Body::Confirm(Confirm { mac, padding })),
        ];
        for (kind, body) in &frames {
            let bytes = encoded(|w| body.encode(w));
            fits_exactly(bytes.len(), |w| w.all_or_nothing(|w| body.encode(w)));
            let head = Frame { kind: *kind, flags: FrameFlags::NONE, call: 0, body: &bytes };
            prop_assert_eq!(&Body::decode(&head).unwrap(), body);
            let opaque = matches!(body, Body::Opaque(_));
            for cut in 0..bytes.len() {
                let cut = Frame { body: &bytes[..cut], ..head };
                prop_assert!(opaque || Body::decode(&cut).is_err());
            }
        }
    }

    #[test]
    fn a_send_comes_back_as_it_went(
        (epoch, sequence, limit, received) in any::<(u32, u32, u32, u32)>(),
        flags in 0..4_u8,
        frames in vec((1..=255_u8, any::<bool>(), any::<u64>(), vec(any::<u8>(), 0..40)), 0..20),
    ) {
        let pick = |bit: u8, flag: SendFlags| if flags & bit == 0 { SendFlags::NONE } else { flag };
        let flags = pick(1, SendFlags::CREDIT_ONLY).and(pick(2, SendFlags::WANTS_CREDIT));
        let header = SendHeader { flags, epoch, sequence, limit, received };
        let mut buf = vec![0xaa; 4096];
        let mut send = SendWriter::new(&mut buf).unwrap();
        let mut sent = Vec::new();
        for (number, end, call, body) in &frames {
            let Some(kind) = FrameType::from_u8(*number) else { continue };
            let flags = if *end { FrameFlags::END } else { FrameFlags::NONE };
            send.frame(kind, flags, *call, |w| w.bytes(body)).unwrap();
            sent.push(Frame { kind, flags, call: *call, body });
        }
        prop_assert_eq!(send.frames() as usize, sent.len());
        let len = send.finish(&header).unwrap();
        prop_assert_eq!(len % ALIGN, 0);
        let (decoded, frames) = SendHeader::decode(&buf[..len]).unwrap();
        prop_assert_eq!(decoded, header);
        prop_assert_eq!(frames.collect::<Result<Vec<_>, _>>().unwrap(), sent);
    }

    #[test]
    fn a_frame_of_the_length_that_room_gives_fits_and_a_longer_one_does_not(
        len in 0..400_usize, body in vec(any::<u8>(), 0..100),
    ) {
        let mut buf = vec![0; SEND_HEADER_BYTES + len];
        let mut send = SendWriter::new(&mut buf).unwrap();
        let put = |send: &mut SendWriter<'_>, body: &[u8]| {
            send.frame(FrameType::Ping, FrameFlags::NONE, 1, |w| w.bytes(body))
        };
        let before = put(&mut send, &body).map(|()| send.len());
        let (len, room) = (send.len(), send.room());
        prop_assert_eq!(put(&mut send, &vec![0; room + 1]), Err(Full));
        prop_assert_eq!(send.len(), len, "the SEND is as it was");
        if room > 0 {
            prop_assert_eq!(put(&mut send, &vec![0; room]), Ok(()));
        }
        if let Ok(before) = before {
            prop_assert_eq!(len, before);
        }
    }

    #[test]
    fn a_hello_comes_back_as_it_went(
        (version_min, more) in (1..1000_u16, 0..1000_u16),
        accepting: bool,
        (offered, mask) in any::<(u64, u64)>(),
        (boot_id, nonce, epoch) in any::<(u128, [u8; 32], u32)>(),
        eager in hello::EAGER_BYTES_MIN / 8..=hello::EAGER_BYTES_MAX / 8,
        message_bytes_max in 1..u64::MAX,
        name in "[ -~]{0,64}",
        windows: bool,
        candidates in vec((1..=255_u8, 0..2_usize, 0..3_usize, 0..4_usize, any::<[u8; 16]>()), 0..8),
    ) {
        let candidate = |(number, kind, link_layer, gid_type, gid): (u8, usize, usize, usize, _)| {
            let (kind, link_layer) = (DeviceKind::ALL[kind], LinkLayer::ALL[link_layer]);
            Candidate { number, kind, link_layer, gid_type: GidType::ALL[gid_type], gid }
        };
        let message = ControlMessage::Hello(Hello {
            version_min,
            version_max: version_min + more,
            role: if accepting { Role::Accepting } else { Role::Connecting },
            offered: Features(offered),
            required: Features(offered & mask),
            boot_id,
            nonce,
            epoch,
            eager_bytes: eager * 8,
            message_bytes_max,
            name,
            window: if windows { WindowType::Type2 } else { WindowType::None },
            candidates: candidates.into_iter().map(candidate).collect(),
        });
        let bytes = message.encode().unwrap();
        prop_assert_eq!(hello::frame_len(&bytes), Ok(Some(bytes.len())));
        prop_assert_eq!(ControlMessage::decode(&bytes).unwrap(), message);
    }

    #[test]
    fn a_blob_comes_back_as_it_went(
        (link_layer, gid_type, window) in (0..3_usize, 0..4_usize, 0..2_usize),
        (qp_num, psn) in (0..1_u32 << 24, 0..1_u32 << 24),
        (gid, lid, pkey) in any::<([u8; 16], u16, u16)>(),
        mtu in blob::MTU_BYTES_MIN..=blob::MTU_BYTES_MAX,
        (max_rd_atomic, max_dest_rd_atomic) in any::<(u8, u8)>(),
        message_bytes_max in 1..u32::MAX,
        (remote_invalidate, boot_id, epoch, candidate) in any::<(bool, u128, u32, u8)>(),
        soft in option::of((any::<u64>(), option::of((any::<core::net::IpAddr>(), 1..u16::MAX)))),
    ) {
        let soft = soft.map(|(guid, dial)| SoftLink { guid, dial: dial.map(|at| at.into()) });
        let message = ControlMessage::Blob(AddressBlob {
            kind: if soft.is_some() { DeviceKind::Soft } else { DeviceKind::Ibv },
            link_layer: LinkLayer::ALL[link_layer],
            qp_num,
            psn,
            gid,
            gid_type: GidType::ALL[gid_type],
            lid,
            pkey,
            mtu,
            max_rd_atomic,
            max_dest_rd_atomic,
            message_bytes_max,
            window: WindowType::ALL[window],
            remote_invalidate,
            boot_id,
            epoch,
            candidate,
            soft,
        });
        let bytes = message.encode().unwrap();
        prop_assert_eq!(ControlMessage::decode(&bytes).unwrap(), message);
    }

    #[test]
    fn a_refusal_comes_back_as_it_went(code: u32, text in ".{0,64}") {
        let message = ControlMessage::Refused(Refusal { code, text });
        let bytes = message.encode().unwrap();
        prop_assert_eq!(ControlMessage::decode(&bytes).unwrap(), message);
    }

    #[test]
    fn both_sides_of_a_hello_agree_on_the_same(
        versions in [(1..6_u16, 0..6_u16), (1..6_u16, 0..6_u16)],
        offered in any::<[u64; 2]>(),
        required in [0..4_u64, 0..4_u64],
        eager in [1024..8192_u32, 1024..8192_u32],
    ) {
        let side = |i: usize, role| {
            let mut hello = Hello::new(role, 1, [0; 32]);
            (hello.version_min, hello.version_max) = (versions[i].0, versions[i].0 + versions[i].1);
            hello.offered = Features(offered[i] | required[i]);
            hello.required = Features(required[i]);
            hello.eager_bytes = eager[i] * 8;
            hello.epoch = i as u32;
            hello
        };
        let (a, b) = (side(0, Role::Connecting), side(1, Role::Accepting));
        match (a.negotiate(&b), b.negotiate(&a)) {
            (Ok(ours), Ok(theirs)) => {
                prop_assert_eq!(ours, theirs);
                prop_assert_eq!(ours.epoch, 1, "the accepting side chooses it");
                let speaks = |h: &Hello, v| (h.version_min..=h.version_max).contains(&v);
                prop_assert!(speaks(&a, ours.version) && speaks(&b, ours.version));
                prop_assert!(!(speaks(&a, ours.version + 1) && speaks(&b, ours.version + 1)));
                prop_assert!(ours.features.has(a.required) && ours.features.has(b.required));
            }
            (ours, theirs) => prop_assert!(ours.is_err() && theirs.is_err()),
        }
    }
}

/// Enough to see every shape; the bound itself is tested by name.
const RELEASES_MAX_TESTED: usize = 20;

#[test]
fn the_longest_heads_of_each_kind_are_as_long_as_the_bounds_say() {
    let lease = 1;
    let descriptor = PayloadDescriptor { addr: 1, len: 1, rkey: 1, lease };
    let mut segments = vec![Segment::Payload(descriptor); PIECES_MAX];
    segments.resize(SEGMENTS_MAX, Segment::Inline(1));
    let inline = vec![0; SEGMENTS_MAX - PIECES_MAX];
    let name = "n".repeat(NAME_BYTES_MAX);
    let metadata = vec![0; metadata::BLOCK_BYTES_MAX];
    let request = RequestFrame {
        name: Some(&name),
        trace: Some(TraceContext::default()),
        token: Some(1),
        metadata: &metadata,
        segments: Segments::new(&segments),
        inline: &inline,
        ..RequestFrame::default()
    };
    assert_eq!(request.check(), Ok(()));
    assert_eq!(request.encoded_len() - inline.len(), request::HEAD_BYTES_MAX);
    let message = "m".repeat(status::MESSAGE_BYTES_MAX);
    let details = vec![0; status::DETAILS_BYTES_MAX];
    let response = ResponseFrame {
        status: Some(StatusBlock { code: 1, message: &message, details: &details }),
        metadata: &metadata,
        segments: Segments::new(&segments),
        inline: &inline,
    };
    assert_eq!(response.check(), Ok(()));
    assert_eq!(response.encoded_len() - inline.len(), response::HEAD_BYTES_MAX);
}

#[test]
fn no_time_left_is_not_no_deadline_and_a_century_is_a_deadline() {
    let after = |timeout| {
        let request = RequestFrame { timeout: Some(timeout), ..RequestFrame::default() };
        let bytes = encoded(|w| request.encode(w));
        RequestFrame::decode(&bytes).unwrap().timeout
    };
    assert_eq!(after(Duration::ZERO), Some(Duration::from_nanos(1)));
    assert_eq!(after(Duration::MAX), Some(Duration::from_nanos(u64::MAX)));
}

#[test]
fn a_confirm_makes_its_send_as_long_as_was_asked_for() {
    for bytes in [0, 88, 89, 4097, 4200, 6000] {
        let confirm = Confirm { mac: [1; 32], padding: Confirm::padding_for(bytes) };
        let mut buf = [0; 8192];
        let mut send = SendWriter::new(&mut buf).unwrap();
        send.frame(FrameType::Confirm, FrameFlags::NONE, 0, |w| confirm.encode(w)).unwrap();
        let len = send.finish(&SendHeader::default()).unwrap() as u32;
        assert!(len >= bytes && len < bytes.max(88) + 8, "{len} for {bytes}");
    }
    let longest = Confirm::padding_for(u32::MAX);
    assert_eq!(longest, control::CONFIRM_PADDING_MAX);
}

#[test]
fn texts_that_are_too_long_are_cut_and_not_refused() {
    let long = "ß".repeat(4096);
    let bytes = encoded(|w| Notice { code: 5, text: &long }.encode(w));
    let notice = Notice::decode("ERROR", &bytes).unwrap();
    assert_eq!(notice.text.len(), control::TEXT_BYTES_MAX);
    let status = Some(StatusBlock { code: 2, message: &long, details: &[] });
    let response = ResponseFrame { status, ..ResponseFrame::default() };
    let bytes = encoded(|w| response.encode(w));
    assert_eq!(bytes.len(), response.encoded_len());
    let message = ResponseFrame::decode(&bytes).unwrap().status.unwrap().message;
    assert_eq!(message.len(), status::MESSAGE_BYTES_MAX);
    let refusal = ControlMessage::Refused(Refusal { code: 1, text: long });
    assert!(ControlMessage::decode(&refusal.encode().unwrap()).is_ok());
}
