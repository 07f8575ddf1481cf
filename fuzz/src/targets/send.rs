//! A whole SEND: header, frames, and the body of each.

use rpc_core::wire::{
    FRAME_HEADER_BYTES, Frame, FrameFlags, FrameType, SEND_HEADER_BYTES, SendFlags, SendHeader,
    SendWriter,
};

use super::body::{self, Body};
use super::make::says_what;
use crate::heap;
use crate::recipe::Recipe;

pub(crate) fn run(input: &[u8]) {
    check(input);
    let mut r = Recipe::new(input);
    let mut bytes = make(&mut r);
    r.spoil(&mut bytes);
    if r.flag() {
        set_len(&mut bytes);
    }
    check(&bytes);
}

/// A SEND whose frames have bodies of their type, or any.
fn make(r: &mut Recipe<'_>) -> Vec<u8> {
    let mut buf = vec![0xaa; 9216];
    let mut send = SendWriter::new(&mut buf).expect("there is room for a header");
    for _ in 0..r.below(8) {
        let kind = FrameType::from_u8(r.u8() % 20).unwrap_or_else(|| FrameType::Skippable(r.u8()));
        let flags = FrameFlags::from_bits(r.u8() & 7).expect("bits that have a meaning");
        let call = r.number();
        let room = send.room();
        let written = if r.one_in(4) {
            let any = r.some_bytes(room);
            send.frame(kind, flags, call, |w| w.bytes(any))
        } else {
            let len = body::make(r, kind).filter(|bytes| bytes.len() <= room);
            let Some(bytes) = len else { break };
            send.frame(kind, flags, call, |w| w.bytes(&bytes))
        };
        assert!(written.is_ok(), "a frame fits into the room that there is");
    }
    let header = SendHeader {
        flags: if r.flag() { SendFlags::CREDIT_ONLY } else { SendFlags::WANTS_CREDIT },
        epoch: r.number32(),
        sequence: r.number32(),
        limit: r.number32(),
        received: r.number32(),
    };
    let frames = send.frames();
    let len = send.finish(&header).expect("a header fits");
    buf.truncate(len);
    let (decoded, walked) = SendHeader::decode(&buf).expect("what was written can be decoded");
    assert_eq!((decoded, walked.left()), (header, frames));
    buf
}

fn set_len(bytes: &mut [u8]) {
    let len = (bytes.len() as u32).to_le_bytes();
    if let Some(field) = bytes.get_mut(8..12) {
        field.copy_from_slice(&len);
    }
}

/// The frames of a SEND, all of them allowed that a later agreement may allow.
fn frames(bytes: &[u8]) -> Option<(SendHeader, Vec<Frame<'_>>)> {
    let decoded = heap::nothing("decoding a SEND header", || SendHeader::decode(bytes));
    let (header, walk) = match decoded {
        Ok(decoded) => decoded,
        Err(error) => {
            says_what(&error);
            return None;
        }
    };
    let stated = walk.left();
    let mut walk = walk.allowing(FrameFlags::MORE.and(FrameFlags::CHECKSUM));
    let mut frames = Vec::new();
    loop {
        match heap::nothing("decoding a frame", || walk.next()) {
            Some(Ok(frame)) => frames.push(frame),
            Some(Err(error)) => {
                says_what(&error);
                assert!(walk.next().is_none(), "the walk goes on after an error");
                return None;
            }
            None => break,
        }
    }
    assert_eq!(frames.len(), usize::from(stated));
    let bodies: usize = frames.iter().map(|frame| frame.body.len() + FRAME_HEADER_BYTES).sum();
    assert!(SEND_HEADER_BYTES + bodies <= bytes.len(), "more was found than there is");
    Some((header, frames))
}

fn check(bytes: &[u8]) {
    let Some((header, frames)) = frames(bytes) else { return };
    let mut buf = vec![0; bytes.len()];
    let mut send = SendWriter::new(&mut buf).expect("there is room for a header");
    for frame in &frames {
        if let Some(body) = body::check(frame.kind, frame.body) {
            // What is written for it is what is written for the whole frame.
            assert!(!matches!(body, Body::Opaque(bytes) if bytes != frame.body));
        }
        send.frame(frame.kind, frame.flags, frame.call, |w| w.bytes(frame.body))
            .expect("frames that were decoded are no longer when they are written");
    }
    let len = send.finish(&header).expect("a header fits");
    let (again, walk) = SendHeader::decode(&buf[..len]).expect("what was written can be decoded");
    let walk = walk.allowing(FrameFlags::MORE.and(FrameFlags::CHECKSUM));
    assert_eq!(again, header);
    assert!(walk.map(Result::ok).eq(frames.iter().map(|frame| Some(*frame))));
}
