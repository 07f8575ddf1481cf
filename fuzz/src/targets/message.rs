//! A protobuf message that arrives in parts: what a user's service decodes.

use std::collections::BTreeMap;

use bytes::Bytes;
use prost::Message;
use rpc_core::codec::{InSegment, Segments, decode, decode_slice};

use crate::heap;
use crate::recipe::Recipe;

/// Every shape that holds bytes, and itself.
#[derive(Clone, PartialEq, Message)]
struct Shapes {
    #[prost(bytes = "bytes", tag = "1")]
    plain: Bytes,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    repeated: Vec<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "3")]
    optional: Option<Bytes>,
    #[prost(message, optional, boxed, tag = "4")]
    nested: Option<Box<Self>>,
    #[prost(btree_map = "string, bytes", tag = "5")]
    map: BTreeMap<String, Vec<u8>>,
    #[prost(message, repeated, tag = "6")]
    list: Vec<Self>,
    #[prost(oneof = "Choice", tags = "7, 8")]
    choice: Option<Choice>,
    #[prost(string, tag = "9")]
    text: String,
    #[prost(bytes = "vec", tag = "10")]
    vec: Vec<u8>,
    #[prost(uint64, repeated, tag = "11")]
    numbers: Vec<u64>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Choice {
    #[prost(bytes = "bytes", tag = "7")]
    Value(Bytes),
    #[prost(uint32, tag = "8")]
    Number(u32),
}

/// What a byte of a message may take when it is decoded. The worst is the shortest element of a list
/// of messages, two bytes, for which the list may grow by doubling, old and new at once.
const HEAP_PER_BYTE: u64 = 3 * size_of::<Shapes>() as u64 / 2;

/// What is taken for a message however short: the smallest list, the smallest node of a map, the
/// parts that the bytes came in.
const HEAP_BYTES_MIN: u64 = 4096 + 4 * size_of::<Shapes>() as u64;

pub(crate) fn run(input: &[u8]) {
    check(&mut Recipe::new(input.get(..8).unwrap_or_default()), input);
    let mut r = Recipe::new(input);
    let mut bytes = if r.one_in(16) { bomb(&mut r) } else { make(&mut r, 0).encode_to_vec() };
    check(&mut r, &bytes);
    r.spoil(&mut bytes);
    check(&mut r, &bytes);
}

fn make(r: &mut Recipe<'_>, depth: u32) -> Shapes {
    let mut shapes = Shapes::default();
    let deeper = |r: &Recipe<'_>| depth < 8 && !r.is_done();
    for _ in 0..r.below(6) {
        match r.below(10) {
            0 => shapes.plain = large(r),
            1 => shapes.repeated.push(large(r)),
            2 => shapes.optional = Some(large(r)),
            3 if deeper(r) => shapes.nested = Some(Box::new(make(r, depth + 1))),
            4 => drop(shapes.map.insert(r.text(20).into(), r.some_bytes(40).to_vec())),
            5 if deeper(r) => shapes.list.push(make(r, depth + 1)),
            6 => shapes.choice = Some(Choice::Value(large(r))),
            7 => shapes.choice = Some(Choice::Number(r.number32())),
            8 => shapes.text = r.text(100).into(),
            _ => shapes.numbers.push(r.number()),
        }
    }
    shapes
}

/// Bytes, now and then as many as are handed out by reference.
fn large(r: &mut Recipe<'_>) -> Bytes {
    if r.one_in(4) {
        let len = 4000 + r.below(2000);
        vec![r.u8(); len].into()
    } else {
        Bytes::copy_from_slice(r.some_bytes(200))
    }
}

/// Nesting without end, of a known field, of an unknown one, or of unknown groups.
fn bomb(r: &mut Recipe<'_>) -> Vec<u8> {
    let depth = r.below(20_000);
    match r.below(3) {
        0 => [0xa3, 0x01].repeat(depth),
        kind => {
            let tag = if kind == 1 { 0x22 } else { 0xa2 };
            let mut bytes = Vec::new();
            for _ in 0..depth.min(2000) {
                let mut outer = vec![tag];
                outer.extend((kind == 2).then_some(0x01));
                prost::encoding::encode_varint(bytes.len() as u64, &mut outer);
                outer.append(&mut bytes);
                bytes = outer;
            }
            bytes
        }
    }
}

/// Cuts a message into parts, some of them empty.
fn parts(r: &mut Recipe<'_>, bytes: &[u8]) -> Vec<InSegment> {
    let mut rest = Bytes::copy_from_slice(bytes);
    let mut parts = Vec::new();
    for last in [false, false, false, true] {
        let len = if last { rest.len() } else { r.below(rest.len() + 1) };
        let part = rest.split_to(len);
        parts.push(match r.below(3) {
            0 => InSegment::Inline(part),
            1 => InSegment::Piece(part),
            _ => InSegment::Transient(part),
        });
    }
    parts
}

/// A message decodes to the same however it is cut.
fn check(r: &mut Recipe<'_>, bytes: &[u8]) {
    let parts = parts(r, bytes);
    let heap_max = HEAP_PER_BYTE * bytes.len() as u64 + HEAP_BYTES_MIN;
    let cut =
        heap::at_most("decoding a message", heap_max, || decode::<Shapes>(Segments::new(parts)));
    let whole = heap::at_most("decoding a message", heap_max, || decode_slice::<Shapes>(bytes));
    let inline = decode::<Shapes>(Segments::inline(Bytes::copy_from_slice(bytes)));
    assert_eq!(cut, whole);
    assert_eq!(inline, whole);
    match whole {
        Ok(message) => {
            let again = decode_slice::<Shapes>(&message.encode_to_vec());
            assert_eq!(again, Ok(message));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
