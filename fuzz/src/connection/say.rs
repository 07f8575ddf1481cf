//! What a hostile peer says: SENDs from recipes, many of them nearly right.

use rpc_core::wire::{
    Cancel, CancelReason, Confirm, Count, FrameFlags, FrameType, Full, GoAway, Nonce, Notice,
    PayloadDescriptor, Release, ReleaseOutcome, Releases, RequestFrame, ResponseFrame, Segment,
    Segments, SendFlags, SendHeader, SendWriter, StatusBlock, Writer,
};

use super::peer::Peer;
use crate::recipe::Recipe;
use crate::targets::body;

/// Names of methods, the first of them long.
const NAMES: [&str; 4] = [
    "a.very.long.package.name.that.takes.many.bytes.of.memory.wherever.it.is.kept/Method",
    "a.B/c",
    "a.B/d",
    "x",
];

/// The longest SEND that a peer may issue.
const SEND_BYTES_MAX: usize = 9216;

/// A frame of the same kind, so often in one SEND.
const BURST_MAX: usize = 120;

/// One SEND.
pub(super) fn send(r: &mut Recipe<'_>, peer: &mut Peer) -> Vec<u8> {
    let mut buf = vec![0; SEND_BYTES_MAX + if r.one_in(64) { 64 } else { 0 }];
    let mut writer = SendWriter::new(&mut buf).expect("there is room for a header");
    let header = header(r, peer);
    if header.flags.has(SendFlags::CREDIT_ONLY) && !r.one_in(8) {
        let _ = writer.frame(FrameType::Credit, FrameFlags::NONE, 0, |_| Ok(()));
    } else if r.one_in(8) {
        let (kind, times) = (r.u8(), r.below(BURST_MAX));
        let begin = r.clone();
        for _ in 0..times {
            *r = begin.clone();
            if frame(r, peer, kind, &mut writer).is_err() {
                break;
            }
        }
    } else {
        for _ in 0..r.below(6) {
            let kind = r.u8();
            if frame(r, peer, kind, &mut writer).is_err() {
                break;
            }
        }
    }
    let len = writer.finish(&header).expect("a header fits");
    buf.truncate(len);
    if r.one_in(16) {
        r.spoil(&mut buf);
    }
    buf
}

/// The CONFIRM that begins a connection.
pub(super) fn confirm(peer: &Peer, mac: [u8; 32]) -> Vec<u8> {
    let mut buf = vec![0; 256];
    let mut writer = SendWriter::new(&mut buf).expect("there is room for a header");
    let confirm = Confirm { mac, padding: 64 };
    let put = writer.frame(FrameType::Confirm, FrameFlags::NONE, 0, |w| confirm.encode(w));
    put.expect("a CONFIRM fits");
    let len = writer.finish(&peer.next_header(3)).expect("a header fits");
    buf.truncate(len);
    buf
}

/// A header that goes on where the last one was, or nearly.
fn header(r: &mut Recipe<'_>, peer: &Peer) -> SendHeader {
    // Half of the time it grants nothing: that costs it nothing, and the connection much.
    let grants = if r.flag() { 1 + u32::from(r.u8() % 4) } else { 0 };
    let mut header = peer.next_header(grants);
    match r.u8() {
        0..=180 => {}
        181..=200 => header.flags = SendFlags::CREDIT_ONLY,
        201..=220 => header.flags = SendFlags::WANTS_CREDIT,
        221..=230 => header.received = header.received.wrapping_sub(u32::from(r.u8() % 4)),
        231..=238 => header.limit = r.number32(),
        239..=242 => header.received = r.number32(),
        243..=246 => header.sequence = r.number32(),
        247..=249 => header.epoch = r.number32(),
        _ => header.limit = header.limit.wrapping_add(r.number32() % 0x1_0000),
    }
    header
}

fn frame(
    r: &mut Recipe<'_>,
    peer: &mut Peer,
    kind: u8,
    writer: &mut SendWriter<'_>,
) -> Result<(), Full> {
    let mut put = |kind, call, write: &dyn Fn(&mut Writer<'_>) -> Result<(), Full>| {
        writer.frame(kind, FrameFlags::NONE, call, write)
    };
    match kind % 20 {
        0..=2 => {
            let frame = request(r, peer, &[]);
            let call = peer.call(r);
            put(FrameType::Request, call, &|w| frame.encode(w))
        }
        3..=6 => {
            let segments = pieces(r);
            let frame = request(r, peer, &segments);
            let call = peer.call(r);
            put(FrameType::Request, call, &|w| frame.encode(w))
        }
        7 | 8 => {
            let segments = if r.flag() { pieces(r) } else { Vec::new() };
            let inline = inline(r, &segments);
            let code = r.flag().then(|| r.number32());
            let status = code.map(|code| StatusBlock { code, message: "no", details: &[] });
            let segments = Segments::new(&segments);
            let frame = ResponseFrame { status, metadata: &[], segments, inline };
            put(FrameType::Response, peer.asked(r), &|w| frame.encode(w))
        }
        9 => put(FrameType::Refused, peer.asked(r), &|w| Notice { code: 8, text: "no" }.encode(w)),
        10 | 11 => {
            let body = Cancel { reason: CancelReason::Dropped };
            put(FrameType::Cancel, peer.own(r), &|w| body.encode(w))
        }
        12 | 13 => {
            let outcome = if r.flag() { ReleaseOutcome::Read } else { ReleaseOutcome::Failed };
            let list = [Release { lease: peer.lease(r), outcome }];
            put(FrameType::Release, 0, &|w| Releases::encode(&list, w))
        }
        14 => put(FrameType::Ping, 0, &|w| Nonce { nonce: 5 }.encode(w)),
        15 => {
            let count = r.number32();
            put(FrameType::Recall, 0, &|w| Count { count }.encode(w))
        }
        16 => {
            let last_id = peer.asked(r);
            put(FrameType::GoAway, 0, &|w| {
                GoAway { last_id, notice: Notice { code: 1, text: "away" } }.encode(w)
            })
        }
        17 => put(FrameType::Credit, 0, &|_| Ok(())),
        18 => put(FrameType::Skippable(r.u8()), 0, &|_| Ok(())),
        _ => {
            let kind = FrameType::from_u8(r.u8() % 20).unwrap_or(FrameType::Ping);
            let call = r.number();
            let body = body::make(r, kind).unwrap_or_else(|| r.some_bytes(100).to_vec());
            put(kind, call, &|w| w.bytes(&body))
        }
    }
}

fn request<'a: 's, 's>(
    r: &mut Recipe<'a>,
    peer: &mut Peer,
    segments: &'s [Segment],
) -> RequestFrame<'s> {
    let (method, name) = peer.method(r);
    let timeout = match r.u8() % 4 {
        0 => Some(std::time::Duration::from_nanos(r.number())),
        _ => None,
    };
    RequestFrame {
        method,
        name: name.map(|name| NAMES[name % NAMES.len()]),
        timeout,
        segments: Segments::new(segments),
        inline: inline(r, segments),
        ..RequestFrame::default()
    }
}

/// Pieces of one lease: few, and short enough for the bound of a message or far beyond it.
fn pieces(r: &mut Recipe<'_>) -> Vec<Segment> {
    let (count, lease) = (1 + r.below(3), u64::from(r.u8()));
    let piece = |r: &mut Recipe<'_>| {
        let len = if r.one_in(16) { u32::MAX } else { 1 + u32::from(r.u16() % 20_000) };
        Segment::Payload(PayloadDescriptor { addr: 1 << 20, len, rkey: 3, lease })
    };
    (0..count).map(|_| piece(r)).collect()
}

/// Inline bytes that go with the segments: with pieces alone there are none.
fn inline<'a>(r: &mut Recipe<'a>, segments: &[Segment]) -> &'a [u8] {
    if segments.is_empty() { r.some_bytes(300) } else { &[] }
}
