//! The committed corpus: messages of each released version, which must keep decoding to the same.
//!
//! Lines of `corpus/v1.hex` are `name: hex`. New samples are added; none is ever changed, since
//! programs that send them are out there. A sample that this version encodes otherwise than the
//! corpus has it needs a new version.

use std::time::Duration;

use super::*;

const V1: &str = include_str!("../corpus/v1.hex");

/// The lines of the corpus.
pub(super) fn v1() -> Vec<(&'static str, Vec<u8>)> {
    let lines = V1.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines
        .map(|line| {
            let (name, hex) = line.split_once(": ").expect("a name and its bytes");
            let digits: Vec<u8> =
                hex.chars().map(|c| c.to_digit(16).expect("a hex digit") as u8).collect();
            (name, digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
        })
        .collect()
}

pub(super) fn sends() -> Vec<(&'static str, Vec<u8>)> {
    v1().into_iter().filter(|(name, _)| name.starts_with("send-")).collect()
}

pub(super) fn controls() -> Vec<(&'static str, Vec<u8>)> {
    v1().into_iter().filter(|(name, _)| name.starts_with("control-")).collect()
}

fn hello() -> Hello {
    Hello {
        offered: Features(0b101),
        required: Features(0b100),
        epoch: 7,
        name: "kv-1".into(),
        window: WindowType::Type2,
        ..Hello::new(Role::Accepting, 0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10, [0x5a; 32])
    }
}

fn soft_blob(dial: Option<&str>) -> AddressBlob {
    let link = SoftLink { guid: 0x1122_3344_5566_7788, dial: dial.map(|at| at.parse().unwrap()) };
    AddressBlob {
        max_rd_atomic: 16,
        max_dest_rd_atomic: 8,
        boot_id: 1 << 100,
        epoch: 7,
        ..AddressBlob::soft(0x1234, 0x00ab_cdef, 4096, link)
    }
}

fn ibv_blob() -> AddressBlob {
    AddressBlob {
        kind: DeviceKind::Ibv,
        link_layer: LinkLayer::Ethernet,
        gid: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1],
        gid_type: GidType::RoceV2,
        lid: 3,
        pkey: 0xffff,
        message_bytes_max: 1 << 31,
        remote_invalidate: true,
        soft: None,
        ..soft_blob(None)
    }
}

fn hello_with_candidates() -> Hello {
    let over_roce = Candidate {
        number: 1,
        kind: DeviceKind::Ibv,
        link_layer: LinkLayer::Ethernet,
        gid_type: GidType::RoceV2,
        gid: ibv_blob().gid,
    };
    Hello { candidates: vec![over_roce, Candidate::soft(2)], ..hello() }
}

fn control_samples() -> [(&'static str, ControlMessage); 8] {
    let text = "versions 1 to 1 and 2 to 3".to_owned();
    [
        ("control-hello", ControlMessage::Hello(hello())),
        ("control-hello-candidates", ControlMessage::Hello(hello_with_candidates())),
        ("control-blob-soft-v4", ControlMessage::Blob(soft_blob(Some("10.0.0.1:7471")))),
        ("control-blob-soft-v6", ControlMessage::Blob(soft_blob(Some("[2001:db8::1]:7471")))),
        ("control-blob-soft-silent", ControlMessage::Blob(soft_blob(None))),
        ("control-blob-ibv", ControlMessage::Blob(ibv_blob())),
        (
            "control-blob-ibv-candidate",
            ControlMessage::Blob(AddressBlob { candidate: 1, ..ibv_blob() }),
        ),
        ("control-refused", ControlMessage::Refused(Refusal { code: 9, text })),
    ]
}

const LEASE: u64 = 0x0102_0304_0506_0708;

const SEGMENTS: [Segment; 3] = [
    Segment::Inline(3),
    Segment::Payload(PayloadDescriptor {
        addr: 0x7f00_0000_1000,
        len: 65_536,
        rkey: 9,
        lease: LEASE,
    }),
    Segment::Inline(2),
];

// name "k" with value "v"
const METADATA: &[u8] = &[1, 0, 1, 0, b'k', b'v'];

fn requests() -> Vec<(FrameType, FrameFlags, u64, Body<'static>)> {
    let trace = TraceContext { trace_id: [0x11; 16], span_id: [0x22; 8], flags: 1 };
    let request =
        |call, request| (FrameType::Request, FrameFlags::NONE, call, Body::Request(request));
    vec![
        request(1, RequestFrame { method: 5, inline: b"hello", ..RequestFrame::default() }),
        request(
            CALL_FROM_ACCEPTING | 2,
            RequestFrame {
                method: 6,
                name: Some("kv.v1.Kv/Put"),
                timeout: Some(Duration::from_millis(250)),
                priority: 1,
                trace: Some(trace),
                token: Some(42),
                metadata: METADATA,
                segments: Segments::new(&SEGMENTS),
                inline: b"abcde",
            },
        ),
    ]
}

fn responses() -> Vec<(FrameType, FrameFlags, u64, Body<'static>)> {
    let status = StatusBlock { code: 5, message: "no such key", details: &[1, 2, 3] };
    let response =
        |call, response| (FrameType::Response, FrameFlags::END, call, Body::Response(response));
    vec![
        response(1, ResponseFrame { inline: b"world", ..ResponseFrame::default() }),
        response(
            2,
            ResponseFrame {
                segments: Segments::new(&SEGMENTS[1..]),
                inline: b"xy",
                metadata: METADATA,
                status: None,
            },
        ),
        response(3, ResponseFrame { status: Some(status), ..ResponseFrame::default() }),
    ]
}

fn rest() -> Vec<(FrameType, FrameFlags, u64, Body<'static>)> {
    let none = FrameFlags::NONE;
    let notice = Notice { code: 8, text: "too many calls" };
    let cancel = Cancel { reason: CancelReason::Deadline };
    let releases = vec![
        Release { lease: LEASE, outcome: ReleaseOutcome::Read },
        Release { lease: LEASE + 1, outcome: ReleaseOutcome::Skipped },
        Release { lease: LEASE + 2, outcome: ReleaseOutcome::Failed },
    ];
    vec![
        (FrameType::Confirm, none, 0, Body::Confirm(Confirm { mac: [0x33; 32], padding: 16 })),
        (FrameType::Cancel, none, 2, Body::Cancel(cancel)),
        (FrameType::Release, none, 0, Body::Release(releases)),
        (FrameType::Credit, none, 0, Body::Opaque(&[])),
        (FrameType::Recall, none, 0, Body::Count(Count { count: 4 })),
        (FrameType::Return, none, 0, Body::Count(Count { count: 3 })),
        (FrameType::Ping, none, 0, Body::Nonce(Nonce { nonce: 77 })),
        (FrameType::Pong, none, 0, Body::Nonce(Nonce { nonce: 77 })),
        (FrameType::Refused, none, 9, Body::Notice(notice)),
        (FrameType::GoAway, none, 0, Body::GoAway(GoAway { last_id: 8, notice })),
        (FrameType::Error, none, 0, Body::Notice(notice)),
        (FrameType::Skippable(0xc1), FrameFlags::MORE, 3, Body::Opaque(&[1, 2, 3])),
    ]
}

fn send_samples() -> [(&'static str, Walked<'static>); 4] {
    let header = SendHeader {
        flags: SendFlags::NONE,
        epoch: 7,
        sequence: u32::MAX,
        limit: 0x8000_0001,
        received: 12,
    };
    let credit_only = SendHeader { flags: SendFlags::CREDIT_ONLY, ..header };
    let wanting = SendHeader { flags: SendFlags::WANTS_CREDIT, ..header };
    [
        ("send-empty-credit-only", (credit_only, vec![])),
        ("send-requests", (wanting, requests())),
        ("send-responses", (header, responses())),
        ("send-rest", (header, rest())),
    ]
}

#[test]
fn every_sample_of_version_1_decodes_to_what_it_meant_and_is_encoded_the_same() {
    let corpus = v1();
    let mut wrong = String::new();
    let mut compare = |wanted: &str, encoded: &[u8]| {
        let found = corpus.iter().find(|(name, _)| *name == wanted).map(|(_, bytes)| bytes);
        if found.is_none_or(|bytes| bytes != encoded) {
            let hex: String = encoded.iter().map(|byte| format!("{byte:02x}")).collect();
            wrong += &format!("{wanted}: {hex}\n");
        }
        found.cloned().unwrap_or_default()
    };
    let controls = control_samples().map(|(name, message)| {
        let bytes = compare(name, &message.encode().unwrap());
        (name, message, bytes)
    });
    let sends = send_samples().map(|(name, walked)| {
        let bytes = compare(name, &unwalk(&walked));
        (name, walked, bytes)
    });
    assert!(wrong.is_empty(), "these are encoded otherwise than in the corpus:\n{wrong}");
    for (name, message, bytes) in &controls {
        assert_eq!(&ControlMessage::decode(bytes).unwrap(), message, "{name}");
        assert_eq!(hello::frame_len(bytes), Ok(Some(bytes.len())), "{name}");
    }
    for (name, walked, bytes) in &sends {
        assert_eq!(&walk(bytes).unwrap(), walked, "{name}");
    }
    let known = controls.len() + sends.len();
    let future = corpus.iter().filter(|(name, _)| name.ends_with("-future")).count();
    assert_eq!(corpus.len(), known + future, "a sample of the corpus is tested by nothing");
}

#[test]
fn what_a_later_version_adds_is_skipped() {
    let corpus = v1();
    let bytes = |wanted: &str| {
        corpus.iter().find(|(name, _)| *name == wanted).expect("in the corpus").1.clone()
    };
    let hello = ControlMessage::Hello(hello());
    assert_eq!(ControlMessage::decode(&bytes("control-hello-future")), Ok(hello));
    // Of the bytes that were reserved when the sample was made, one is the candidate's number now.
    let blob = ControlMessage::Blob(AddressBlob { candidate: 255, ..ibv_blob() });
    assert_eq!(ControlMessage::decode(&bytes("control-blob-ibv-future")), Ok(blob));
    let send = bytes("send-longer-header-future");
    let (header, frames) = walk(&send).unwrap();
    assert_eq!((header.epoch, header.received), (7, 12));
    assert_eq!(frames[0].3, Body::Nonce(Nonce { nonce: 77 }));
}

#[test]
fn the_corpus_shows_every_frame_type_that_has_a_layout() {
    let mut seen = Vec::new();
    for (_, bytes) in &sends() {
        let (_, frames) = walk(bytes).unwrap();
        seen.extend(frames.iter().map(|frame| frame.0));
    }
    for kind in FrameType::KNOWN {
        let later = matches!(kind, FrameType::Item | FrameType::StreamCredit);
        assert_ne!(seen.contains(kind), later, "{kind:?}");
    }
}

/// Written by hand from the tables of docs/wire-format.md, so that the corpus cannot agree with the
/// code by being made by it.
#[test]
fn a_send_by_hand_is_what_the_document_says() {
    #[rustfmt::skip]
    let by_hand: Vec<u8> = [
        // section 5: SEND header
        &[32, 0][..],              // header length
        &[2, 0],                   // flags: WANTS_CREDIT
        &[1, 0],                   // frames
        &[0, 0],                   // reserved
        &[136, 0, 0, 0],           // total length
        &[7, 0, 0, 0],             // epoch
        &[1, 0, 0, 0],             // sequence
        &[2, 0, 0, 0],             // limit
        &[3, 0, 0, 0],             // received
        &[0, 0, 0, 0],             // reserved
        // section 6: frame header
        &[1], &[2],                // REQUEST, END
        &[0, 0],                   // reserved
        &[85, 0, 0, 0],            // body length
        &[9, 0, 0, 0, 0, 0, 0, 0], // call id
        // section 9: REQUEST
        &[4, 0, 0, 0],             // method id
        &[0, 0],                   // flags
        &[1],                      // priority
        &[2],                      // segments
        &[0x40, 0x42, 0x0f, 0, 0, 0, 0, 0], // 1,000,000 ns
        &[6, 0],                   // metadata length
        &[3, 0],                   // name length
        &[5, 0, 0, 0],             // inline length
        // section 8: segments
        &[0, 0, 0, 0], &[5, 0, 0, 0],
        &[1, 0, 0, 0], &[0, 0, 0, 0],
        &[0, 0x10, 0, 0, 0, 0, 0, 0], &[0, 0, 1, 0], &[9, 0, 0, 0], &[8, 0, 0, 0, 0, 0, 0, 0],
        b"a/b", &[0; 5],           // name
        METADATA, &[0; 2],         // section 11
        b"hello", &[0; 3],         // inline bytes, and the frame's padding
    ]
    .concat();
    // 24 fixed + 8 + 32 segments + 8 name + 8 metadata + 5 inline bytes.
    let (header, frames) = walk(&by_hand).unwrap();
    let flags = SendFlags::WANTS_CREDIT;
    let expected = SendHeader { flags, epoch: 7, sequence: 1, limit: 2, received: 3 };
    assert_eq!(header, expected);
    let segments = [
        Segment::Inline(5),
        Segment::Payload(PayloadDescriptor { addr: 4096, len: 65_536, rkey: 9, lease: 8 }),
    ];
    let request = RequestFrame {
        method: 4,
        name: Some("a/b"),
        timeout: Some(Duration::from_millis(1)),
        priority: 1,
        trace: None,
        token: None,
        metadata: METADATA,
        segments: Segments::new(&segments),
        inline: b"hello",
    };
    let expected = (FrameType::Request, FrameFlags::END, 9, Body::Request(request));
    assert_eq!(frames, [expected]);
    assert_eq!(unwalk(&(header, frames)), by_hand);
}
