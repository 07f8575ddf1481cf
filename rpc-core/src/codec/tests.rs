//! Encoding, placing and decoding, over hand-written messages of every shape that holds `bytes`.

use std::collections::BTreeMap;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use proptest::prelude::*;
use prost::Message;

use super::*;
use crate::mem::{BLOCK_BYTES_MAX, MemError, Pool, PoolConfig, Share, Use};

const KIB: usize = 1 << 10;
/// Less under Miri, where every byte costs a microsecond.
const MIB: usize = if cfg!(miri) { 64 << 10 } else { 1 << 20 };

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
    vec_map: BTreeMap<String, Vec<u8>>,
    #[prost(btree_map = "uint32, message", tag = "6")]
    map: BTreeMap<u32, Leaf>,
    #[prost(oneof = "Choice", tags = "7, 8")]
    choice: Option<Choice>,
    #[prost(string, tag = "9")]
    text: String,
    #[prost(bytes = "vec", tag = "10")]
    vec: Vec<u8>,
    #[prost(uint64, tag = "11")]
    number: u64,
}

#[derive(Clone, PartialEq, Message)]
struct Leaf {
    #[prost(bytes = "bytes", tag = "1")]
    value: Bytes,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Choice {
    #[prost(bytes = "bytes", tag = "7")]
    Value(Bytes),
    #[prost(uint32, tag = "8")]
    Number(u32),
}

fn pool(budget_bytes: usize) -> Pool {
    Pool::new(PoolConfig::new(budget_bytes as u64)).unwrap()
}

fn filled(len: usize, seed: u8) -> Bytes {
    let pattern: Vec<u8> = (0..=250u8).map(|n| n.wrapping_mul(31).wrapping_add(seed)).collect();
    let mut bytes = pattern.repeat(len / pattern.len() + 1);
    bytes.truncate(len);
    bytes.into()
}

/// The same bytes in payload memory.
fn placed(pool: &Pool, bytes: &[u8]) -> Bytes {
    let mut payload = pool.alloc(Share::Outbound, Use::Request, bytes.len()).unwrap();
    payload.copy_from_slice(bytes);
    payload.freeze()
}

/// Runs a future that only ever waits for itself; answers how often it let others run.
fn run<T>(future: impl Future<Output = T> + Send) -> (T, usize) {
    let mut future = pin!(future);
    let mut cx = Context::from_waker(Waker::noop());
    for yields in 0.. {
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return (output, yields);
        }
    }
    unreachable!()
}

fn prepare(message: &Shapes, pool: &Pool, limits: &OutboundLimits) -> Result<Outbound, CodecError> {
    run(Encoded::new(message, limits)?.prepare(pool, Use::Request, limits)).0
}

/// What the receiver of this message has: every piece in a buffer of its own.
fn received(outbound: &Outbound, pool: &Pool) -> Vec<InSegment> {
    if outbound.segments.is_empty() {
        return vec![InSegment::Inline(outbound.inline.clone())];
    }
    let mut inline = outbound.inline.clone();
    let part = |segment: &OutSegment| match segment {
        OutSegment::Inline(len) => InSegment::Inline(inline.split_to(*len as usize)),
        OutSegment::Piece(bytes) => {
            let mut payload = pool.alloc(Share::Inbound, Use::Request, bytes.len()).unwrap();
            payload.copy_from_slice(bytes);
            InSegment::deliver(pool, payload)
        }
    };
    outbound.segments.iter().map(part).collect()
}

fn pieces(outbound: &Outbound) -> Vec<&Bytes> {
    let mut pieces = Vec::new();
    for segment in &outbound.segments {
        if let OutSegment::Piece(bytes) = segment {
            pieces.push(bytes);
        }
    }
    pieces
}

/// The message's bytes in order.
fn flat(outbound: &Outbound) -> Vec<u8> {
    if outbound.segments.is_empty() {
        return outbound.inline.to_vec();
    }
    let mut inline = &outbound.inline[..];
    let mut all = Vec::new();
    for segment in &outbound.segments {
        match segment {
            OutSegment::Inline(len) => {
                let (run, rest) = inline.split_at(*len as usize);
                all.extend_from_slice(run);
                inline = rest;
            }
            OutSegment::Piece(bytes) => all.extend_from_slice(bytes),
        }
    }
    assert!(inline.is_empty(), "segments name all inline bytes");
    all
}

/// A message with a value of `len` bytes in every kind of field, and the values in wire order.
fn every_shape(value: impl Fn(u8) -> Bytes) -> (Shapes, Vec<Bytes>) {
    let values: Vec<_> = (0..7).map(value).collect();
    let nested = Shapes { plain: values[4].clone(), number: 5, ..Shapes::default() };
    let message = Shapes {
        plain: values[0].clone(),
        repeated: vec![values[1].clone(), Bytes::from_static(b"tiny"), values[2].clone()],
        optional: Some(values[3].clone()),
        nested: Some(Box::new(nested)),
        map: BTreeMap::from([(3, Leaf { value: values[5].clone() })]),
        choice: Some(Choice::Value(values[6].clone())),
        text: "between".to_owned(),
        ..Shapes::default()
    };
    (message, values)
}

#[test]
fn a_block_is_used_again_when_its_messages_have_gone_and_not_before() {
    let small = || {
        let message = Shapes { vec: vec![7; 500], ..Shapes::default() };
        match Encoded::new(&message, &OutboundLimits::default()).unwrap() {
            Encoded::Eager(outbound) => outbound.inline,
            Encoded::Large(_) => panic!("a small message travels in a frame"),
        }
    };
    let addresses = |keep: &mut Vec<Bytes>| -> Vec<usize> {
        let encoded: Vec<Bytes> = (0..64).map(|_| small()).collect();
        let addresses = encoded.iter().map(|bytes| bytes.as_ptr().addr()).collect();
        keep.extend(encoded);
        addresses
    };
    // One after the other: all of them take turns in one block of 4 KiB, which eight fit into.
    let places: std::collections::BTreeSet<usize> =
        (0..64).map(|_| small().as_ptr().addr()).collect();
    assert!(places.len() <= 8, "{places:x?}");
    // Those that are kept are never written over.
    let mut kept = Vec::new();
    let (mut all, more) = (addresses(&mut kept), addresses(&mut kept));
    all.extend(more);
    all.sort_unstable();
    assert!(all.windows(2).all(|pair| pair[1] - pair[0] >= 500));
}

#[test]
fn large_fields_of_every_shape_are_taken_by_reference() {
    let (message, values) = every_shape(|seed| filled(MIB, seed));
    let rope = Rope::encode(&message, 16 * KIB);
    assert_eq!(rope.len(), message.encoded_len());
    let (mut inline, segments) = rope.into_parts();
    assert!(inline.len() < 200);
    let mut found = Vec::new();
    let mut all = Vec::new();
    for segment in segments {
        match segment {
            RopeSegment::Inline(len) => all.extend_from_slice(&inline.split_to(len)),
            RopeSegment::Piece(bytes) => {
                all.extend_from_slice(&bytes);
                found.push((bytes.as_ptr(), bytes.len()));
            }
        }
    }
    assert_eq!(all, message.encode_to_vec());
    let wanted: Vec<_> = values.iter().map(|value| (value.as_ptr(), value.len())).collect();
    assert_eq!(found, wanted);
}

#[test]
fn what_lies_in_payload_memory_is_advertised_as_it_lies() {
    let pool = pool(64 * MIB);
    let (message, values) = every_shape(|seed| placed(&pool, &filled(MIB, seed)));
    let before = pool.usage();
    let outbound = prepare(&message, &pool, &OutboundLimits::default()).unwrap();
    assert_eq!(pool.usage(), before, "nothing was copied");
    let found: Vec<_> = pieces(&outbound).iter().map(|piece| piece.as_ptr()).collect();
    assert_eq!(found, values.iter().map(|value| value.as_ptr()).collect::<Vec<_>>());
    assert_eq!(flat(&outbound), message.encode_to_vec());
}

#[test]
fn large_fields_arrive_as_the_very_buffers_they_were_read_into() {
    let (near, far) = (pool(64 * MIB), pool(128 * MIB));
    let (message, values) = every_shape(|seed| placed(&near, &filled(MIB, seed)));
    let outbound = prepare(&message, &near, &OutboundLimits::default()).unwrap();
    let parts = received(&outbound, &far);
    let buffers: Vec<_> = parts
        .iter()
        .filter_map(|part| match part {
            InSegment::Piece(bytes) => Some(bytes.as_ptr()),
            InSegment::Inline(_) | InSegment::Transient(_) => None,
        })
        .collect();
    let got: Shapes = decode(Segments::new(parts)).unwrap();
    assert_eq!(got, message);
    let nested = got.nested.as_ref().unwrap();
    let Some(Choice::Value(choice)) = &got.choice else { panic!("the choice is a value") };
    let fields = [
        &got.plain,
        &got.repeated[0],
        &got.repeated[2],
        got.optional.as_ref().unwrap(),
        &nested.plain,
        &got.map[&3].value,
        choice,
    ];
    assert_eq!(fields.map(|field| field.as_ptr()).to_vec(), buffers);
    assert!(fields.iter().all(|field| field.as_ptr().addr() % 4096 == 0), "page aligned");

    let held = far.usage().inbound;
    assert_eq!(held, values.len() as u64 * MIB as u64);
    let kept = got.map[&3].value.clone();
    drop(got);
    assert_eq!(far.usage().inbound, MIB as u64, "each field pins only its own buffer");
    drop(kept);
    assert_eq!(far.usage().inbound, 0);
}

#[test]
fn a_message_that_fits_the_frame_is_all_inline() {
    let pool = pool(8 * MIB);
    let limits = OutboundLimits::default();
    let mut message = Shapes { plain: filled(8000, 1), number: 9, ..Shapes::default() };
    let encoded = Encoded::new(&message, &limits).unwrap();
    let Encoded::Eager(outbound) = encoded else { panic!("{encoded:?}") };
    assert_eq!((&outbound.inline[..], outbound.segments.len()), (&message.encode_to_vec()[..], 0));

    message.plain = filled(limits.eager_space, 1);
    let outbound = prepare(&message, &pool, &limits).unwrap();
    assert_eq!(flat(&outbound), message.encode_to_vec());
    assert_eq!(pieces(&outbound).len(), 1, "below piece_min, but no space in the frame");
}

#[test]
fn vectors_and_strings_are_copied_once_into_payload_memory() {
    let pool = pool(64 * MIB);
    let message = Shapes {
        vec: filled(MIB, 1).to_vec(),
        text: "x".repeat(MIB),
        plain: filled(20 * KIB, 2),
        ..Shapes::default()
    };
    let outbound = prepare(&message, &pool, &OutboundLimits::default()).unwrap();
    assert_eq!(flat(&outbound), message.encode_to_vec());
    assert!(pieces(&outbound).iter().all(|piece| pool.locate(piece).is_some()));
}

#[test]
#[cfg_attr(miri, ignore = "about real lengths")]
fn the_longest_value_is_copied_once_and_only_if_it_lies_elsewhere() {
    let pool = pool(512 * MIB);
    let value = Bytes::from(vec![7; BLOCK_BYTES_MAX]);
    let message = Shapes { plain: value, ..Shapes::default() };
    let limits = OutboundLimits::default();
    let encoded = Encoded::new(&message, &limits).unwrap();
    let Encoded::Large(rope) = encoded else { panic!("{encoded:?}") };
    let (inline, segments) = rope.into_parts();
    assert!(inline.len() < 16);
    let RopeSegment::Piece(piece) = &segments[1] else { panic!("{segments:?}") };
    assert_eq!(piece.as_ptr(), message.plain.as_ptr(), "encoding copies nothing");

    let outbound = prepare(&message, &pool, &limits).unwrap();
    assert_eq!(pool.usage().outbound, BLOCK_BYTES_MAX as u64);
    let [piece] = pieces(&outbound)[..] else { panic!("one piece") };
    assert!(piece.iter().all(|byte| *byte == 7));

    let again = Shapes { plain: piece.clone(), ..Shapes::default() };
    let outbound = prepare(&again, &pool, &limits).unwrap();
    assert_eq!(pieces(&outbound)[0].as_ptr(), again.plain.as_ptr());
    assert_eq!(pool.usage().peak, BLOCK_BYTES_MAX as u64);
}

#[test]
#[cfg_attr(miri, ignore = "about real lengths")]
fn more_pieces_than_allowed_are_merged_at_the_end() {
    let pool = pool(64 * MIB);
    let repeated: Vec<_> = (0..40).map(|seed| placed(&pool, &filled(16 * KIB, seed))).collect();
    let message = Shapes { repeated, number: 3, ..Shapes::default() };
    let before = pool.usage().outbound;
    let outbound = prepare(&message, &pool, &OutboundLimits::default()).unwrap();
    let found = pieces(&outbound);
    assert_eq!(found.len(), 16);
    for (piece, value) in found[..15].iter().zip(&message.repeated) {
        assert_eq!(piece.as_ptr(), value.as_ptr());
    }
    assert_eq!(pool.usage().outbound - before, 512 * KIB as u64, "one buffer for the rest");
    assert_eq!(flat(&outbound), message.encode_to_vec());
}

#[test]
#[cfg_attr(miri, ignore = "about real lengths")]
fn a_field_longer_than_the_longest_buffer_travels_in_several() {
    let pool = pool(1024 * MIB);
    let message = Shapes { plain: filled(BLOCK_BYTES_MAX + 5000, 1), ..Shapes::default() };
    let outbound = prepare(&message, &pool, &OutboundLimits::default()).unwrap();
    let lens: Vec<_> = pieces(&outbound).iter().map(|piece| piece.len()).collect();
    assert_eq!(lens, [BLOCK_BYTES_MAX, 5000]);
    let got: Shapes = decode(Segments::new(received(&outbound, &pool))).unwrap();
    assert!(got == message, "a field that spans buffers is gathered");
}

#[test]
#[cfg_attr(miri, ignore = "about real lengths")]
fn a_message_that_cannot_be_sent_is_refused_before_anything_is_taken() {
    let pool = pool(8 * MIB);
    let mut limits = OutboundLimits { message_bytes_max: 5 << 20, ..OutboundLimits::default() };
    let message = |len| Shapes { plain: Bytes::from(vec![1; len]), ..Shapes::default() };
    let refused = prepare(&message(6 * MIB), &pool, &limits).unwrap_err();
    assert!(matches!(refused, CodecError::TooLarge { max: 5_242_880, .. }), "{refused}");
    let refused = prepare(&message(4 * MIB), &pool, &limits).unwrap_err();
    assert!(matches!(refused, CodecError::Memory(MemError::LargerThanShare { .. })), "{refused}");

    let full = pool.alloc(Share::Outbound, Use::Request, 2 * MIB).unwrap();
    let refused = prepare(&message(2 * MIB), &pool, &limits).unwrap_err();
    assert!(matches!(refused, CodecError::Memory(MemError::Full(_))), "{refused}");
    drop(full);
    assert_eq!(pool.usage().outbound, 0);

    limits.pieces_max = 0;
    let refused = prepare(&message(20 * KIB), &pool, &limits).unwrap_err();
    assert!(matches!(refused, CodecError::TooLarge { max: 0, .. }), "{refused}");
}

#[test]
#[cfg_attr(miri, ignore = "about real lengths")]
fn long_copies_let_other_tasks_run() {
    let pool = pool(64 * MIB);
    let limits = OutboundLimits::default();
    let yields = |message: &Shapes| {
        let encoded = Encoded::new(message, &limits).unwrap();
        let (outbound, yields) = run(encoded.prepare(&pool, Use::Response, &limits));
        assert_eq!(flat(&outbound.unwrap()), message.encode_to_vec());
        yields
    };
    assert_eq!(yields(&Shapes { plain: filled(256 * KIB, 1), ..Shapes::default() }), 0);
    assert_eq!(yields(&Shapes { plain: filled(MIB, 1), ..Shapes::default() }), 3);
    let many = (0..10).map(|seed| filled(100 * KIB, seed)).collect();
    assert_eq!(yields(&Shapes { repeated: many, ..Shapes::default() }), 4);
}

#[test]
fn a_small_field_pins_nothing() {
    let pool = pool(8 * MIB);
    let message = Shapes {
        plain: filled(SLICE_MIN - 1, 1),
        repeated: vec![filled(100, 2); 200],
        ..Shapes::default()
    };
    let buffer = placed(&pool, &message.encode_to_vec());
    let got: Shapes = decode(Segments::new(vec![InSegment::Piece(buffer)])).unwrap();
    assert_eq!(pool.usage().outbound, 0, "the buffer is free while the message lives");
    assert_eq!(got, message);

    let inline = Bytes::from(message.encode_to_vec());
    let got: Shapes = decode(Segments::inline(inline.clone())).unwrap();
    assert_eq!(got, message);
    assert!(inline.is_unique(), "nor does it keep the frame's bytes");
    assert_eq!(decode_slice::<Shapes>(&inline).unwrap(), message);
}

#[test]
fn a_field_that_is_most_of_its_frame_keeps_the_frames_bytes_and_a_shorter_one_is_copied() {
    let of = |len| Shapes { text: "x".repeat(60), plain: filled(len, 1), ..Shapes::default() };
    for (len, kept) in [(200, true), (20, false)] {
        // In the frame the text comes first, so that the field is the end of it.
        let mut frame = Shapes { plain: Bytes::new(), ..of(len) }.encode_to_vec();
        frame.extend(Shapes { text: String::new(), ..of(len) }.encode_to_vec());
        let frame = Bytes::from(frame);
        let end = frame.as_ptr_range().end;
        let got: Shapes = decode(Segments::inline(frame)).unwrap();
        assert_eq!(got, of(len));
        assert_eq!(got.plain.as_ptr_range().end == end, kept, "{len} bytes");
    }
}

#[test]
#[cfg_attr(miri, ignore = "about real lengths")]
fn who_hoards_gets_copies_and_the_buffer_is_free_after_decoding() {
    let pool = pool(8 * MIB);
    let value = filled(MIB, 1);
    let message = Shapes { plain: value.clone(), ..Shapes::default() };
    let receive = || {
        let mut payload = pool.alloc(Share::Inbound, Use::Response, MIB).unwrap();
        payload.copy_from_slice(&value);
        let head = Bytes::from(message.encode_to_vec()).split_to(message.encoded_len() - MIB);
        Segments::new(vec![InSegment::Inline(head), InSegment::deliver(&pool, payload)])
    };
    let hoard: Vec<Shapes> = (0..3).map(|_| decode(receive()).unwrap()).collect();
    assert!(hoard.iter().all(|message| message.plain == value));
    let on_heap = hoard.iter().filter(|message| pool.locate(&message.plain).is_none()).count();
    assert_eq!(on_heap, 1, "half of the inbound share holds two");
    assert_eq!((pool.usage().inbound, pool.usage().delivered_as_copies), (2 << 20, 1));
}

#[test]
fn bytes_that_are_no_message_are_an_error() {
    let part = InSegment::Inline(Bytes::from_static(&[0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f, 1]));
    assert!(decode::<Shapes>(Segments::new(vec![part])).is_err());
    assert!(decode::<Shapes>(Segments::new(vec![])).is_ok(), "the empty message");
    assert!(decode_slice::<Shapes>(&[0x0a]).is_err());
}

fn value() -> impl Strategy<Value = Bytes> {
    let len = prop_oneof![
        4 => 0..200usize,
        2 => 3000..6000usize,
        2 => 15_000..40_000usize,
        1 => 250_000..400_000usize,
    ];
    (len, any::<u8>()).prop_map(|(len, seed)| filled(len, seed))
}

fn shapes() -> impl Strategy<Value = Shapes> {
    let values = proptest::collection::vec(value(), 0..30);
    let texts = proptest::collection::btree_map("[a-z]{0,9}", value().prop_map(Vec::from), 0..3);
    let leaf = value().prop_map(|value| Leaf { value });
    let leaves = proptest::collection::btree_map(any::<u32>(), leaf, 0..3);
    (value(), values, proptest::option::of(value()), texts, leaves, value(), any::<u64>()).prop_map(
        |(plain, repeated, optional, vec_map, map, vec, number)| {
            let nested = Shapes { plain: vec.clone(), number, ..Shapes::default() };
            Shapes {
                choice: optional.clone().map(Choice::Value),
                plain,
                repeated,
                optional,
                nested: Some(Box::new(nested)),
                vec_map,
                map,
                text: "text".repeat(vec.len() / 7),
                vec: vec.into(),
                number,
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 48,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_message_travels_within_the_limits_and_arrives_equal(
        message in shapes(),
        some_placed in any::<bool>(),
    ) {
        let (near, far) = (pool(256 * MIB), pool(256 * MIB));
        let mut message = message;
        if some_placed {
            for value in message.repeated.iter_mut().step_by(2) {
                *value = placed(&near, value);
            }
        }
        let limits = OutboundLimits::default();
        let outbound = prepare(&message, &near, &limits).unwrap();
        prop_assert_eq!(flat(&outbound), message.encode_to_vec());
        let listed = outbound.segments.len() * limits.segment_bytes;
        prop_assert!(outbound.inline.len() + listed <= limits.eager_space);
        prop_assert!(pieces(&outbound).len() <= limits.pieces_max);
        prop_assert!(pieces(&outbound).iter().all(|piece| near.locate(piece).is_some()));
        let got: Shapes = decode(Segments::new(received(&outbound, &far))).unwrap();
        prop_assert_eq!(&got, &message);
        drop((got, outbound, message));
        prop_assert_eq!((near.usage().outbound, far.usage().inbound), (0, 0));
    }

    #[test]
    fn a_message_decodes_alike_however_it_is_cut(
        message in shapes(),
        cuts in proptest::collection::vec((1..60_000usize, any::<bool>()), 0..40),
    ) {
        let mut rest = Bytes::from(message.encode_to_vec());
        let mut parts = Vec::new();
        for (len, piece) in cuts {
            let part = rest.split_to(len.min(rest.len()));
            parts.push(if piece { InSegment::Piece(part) } else { InSegment::Inline(part) });
        }
        parts.push(InSegment::Piece(rest));
        prop_assert_eq!(decode::<Shapes>(Segments::new(parts)).unwrap(), message);
    }
}
