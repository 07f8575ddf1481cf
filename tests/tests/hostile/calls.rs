//! Attacks by calls.

use std::time::Duration;

use rpc_core::wire::{
    Cancel, CancelReason, FrameFlags, FrameType, PayloadDescriptor, Segment, SendWriter,
};
use rpc_core::{Channel, Code, Execution, Request, Response, Runtime, Status, block_on};
use rpc_tests::Place;
use rpc_tests::hostile::{Attacker, Blob, Call, Heard, PATIENCE, World};

use super::{INVALID_ARGUMENT, RESOURCE_EXHAUSTED, UNIMPLEMENTED, world};

const ECHO: Call<'_> = Call {
    method: 1,
    name: Some("hostile.Target/Echo"),
    timeout: None,
    metadata: &[],
    segments: &[],
    inline: &[],
};

/// The same method, once it has its number.
const AGAIN: Call<'_> = Call { name: None, ..ECHO };

fn status_of(heard: Heard) -> (u32, String) {
    match heard {
        Heard::Answer { status: Some(status), .. } => status,
        Heard::Refused { code, text, .. } => (code, text),
        other => panic!("a failure was due, and not {other:?}"),
    }
}

fn succeeds(attacker: &mut Attacker, call: &Call<'_>) {
    let id = attacker.call(call);
    let answer = attacker.answer(id);
    assert!(matches!(answer, Heard::Answer { status: None, .. }), "{answer:?}");
}

fn piece(len: u32, lease: u64) -> Segment {
    Segment::Payload(PayloadDescriptor { addr: 0x7000_0000, len, rkey: 0x1234_5678, lease })
}

#[test]
fn a_call_id_that_was_used_ends_the_connection_and_runs_nothing() {
    let world = world();
    for (first, second) in [(5, 5), (5, 4), (5, 0)] {
        let mut attacker = world.attacker();
        attacker.call_as(first, &ECHO);
        attacker.answer(first);
        attacker.call_as(second, &AGAIN);
        attacker.ends();
    }
    let mut wrong_side = world.attacker();
    wrong_side.call_as(1 << 63 | 1, &ECHO);
    wrong_side.ends();
    drop(wrong_side);
    world.end();
}

#[test]
fn unknown_methods_fail_by_themselves_and_names_without_end_are_cut_off() {
    let world = world();
    let mut attacker = world.attacker();
    for (method, name) in [(1, "hostile.Target/None"), (2, "\u{0}/\n"), (3, "x")] {
        let id = attacker.call(&Call { method, name: Some(name), ..Call::default() });
        assert_eq!(status_of(attacker.answer(id)).0, UNIMPLEMENTED);
    }
    succeeds(&mut attacker, &Call { method: 4, ..ECHO });
    // The numbers are given in order; a number that was not is the end.
    attacker.call(&Call { method: 9, name: Some("y"), ..Call::default() });
    attacker.ends();

    let mut flood = world.attacker();
    let names = |flood: &mut Attacker, first: u32, count: u32| {
        let calls = |w: &mut SendWriter<'_>| {
            (first..first + count).try_for_each(|n| {
                let name = format!("f/{n}");
                let call = Call { method: n, name: Some(&name), ..Call::default() };
                w.frame(FrameType::Request, FrameFlags::NONE, n.into(), |w| call.frame().encode(w))
            })
        };
        flood.send(calls, |_| ());
    };
    (0..64).for_each(|n| names(&mut flood, n * 64 + 1, 64));
    assert_eq!(status_of(flood.answer(4_096)).0, UNIMPLEMENTED);
    names(&mut flood, 4_097, 1);
    flood.ends();
    drop((attacker, flood));
    world.end();
}

#[test]
fn a_request_that_is_no_message_fails_by_itself() {
    let world = world();
    let mut attacker = world.attacker();
    succeeds(&mut attacker, &ECHO);
    let noise: [&[u8]; 7] = [
        &[0xff; 300],
        // A field of 2^63 bytes, of more than there are, a varint without end.
        &[10, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
        &[10, 100, 1],
        &[10, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1],
        // Field 0, an end of no group, and a number where bytes should be.
        &[0, 0],
        &[12],
        &[8, 1],
    ];
    for inline in noise {
        let id = attacker.call(&Call { inline, ..AGAIN });
        let (code, text) = status_of(attacker.answer(id));
        assert_eq!(code, INVALID_ARGUMENT, "{text}");
    }
    // Groups in groups, as many as fit, known and unknown.
    let nest = Some("hostile.Target/Nest");
    for (start, name) in [(0x0b, nest), (0x13, None)] {
        let inline = vec![start; 8_000];
        let id = attacker.call(&Call { method: 2, name, inline: &inline, ..Call::default() });
        assert_eq!(status_of(attacker.answer(id)).0, INVALID_ARGUMENT);
    }
    succeeds(&mut attacker, &AGAIN);
    drop(attacker);
    world.end();
}

/// A stub whose message is a tree's bytes: field 1 of [`Blob`] lies where a tree has its child.
#[rpc_core::service(name = "hostile.Target")]
trait Deep {
    async fn nest(&self, request: Request<Blob>) -> Result<Response<Blob>, Status>;
}

/// A tree of so many levels, but for the first.
fn tree(levels: usize) -> Vec<u8> {
    let mut lens = Vec::new();
    let mut len = 0_usize;
    for _ in 0..levels {
        lens.push(len);
        len += 1 + varint_len(len);
    }
    let mut bytes = Vec::with_capacity(len);
    for len in lens.into_iter().rev() {
        bytes.push(10);
        let mut rest = len;
        while rest >= 128 {
            bytes.push(rest as u8 | 128);
            rest >>= 7;
        }
        bytes.push(rest as u8);
    }
    bytes
}

fn varint_len(value: usize) -> usize {
    (usize::BITS - (value | 1).leading_zeros()).div_ceil(7) as usize
}

#[test]
fn messages_nested_a_hundred_thousand_deep_are_refused_on_known_and_unknown_fields() {
    let world = world();
    let runtime = Runtime::builder().build().unwrap();
    let address = Place::here().address(world.port());
    let channel = block_on(Channel::builder(&address).runtime(&runtime).connect()).unwrap();
    let client = DeepClient::new(channel);
    let nest = |bytes: Vec<u8>| {
        let mut request = Request::new(Blob { data: bytes.into() });
        request.set_timeout(PATIENCE);
        block_on(client.nest(request))
    };
    nest(tree(50)).unwrap();
    for bytes in [tree(100_000), vec![0x13; 100_000], vec![0x0b; 100_000]] {
        let failed = nest(bytes).unwrap_err();
        assert_eq!(failed.code(), Code::InvalidArgument, "{failed}");
        assert_eq!(failed.execution(), Execution::Executed);
    }
    nest(tree(50)).unwrap();
    drop((client, runtime));
    world.end();
}

#[test]
fn metadata_that_is_damaged_fails_its_call_and_metadata_beyond_the_limit_its_connection() {
    let world = world();
    let mut attacker = world.attacker();
    succeeds(&mut attacker, &ECHO);
    let damaged: [&[u8]; 4] =
        [&[1], &[9, 0, 0, 0, b'a'], &[1, 0, 0xff, 0xff, b'a'], &[1, 0, 0, 0, b'\n']];
    for metadata in damaged {
        let id = attacker.call(&Call { metadata, ..AGAIN });
        assert_eq!(status_of(attacker.answer(id)).0, INVALID_ARGUMENT);
    }
    // A thousand entries of nothing.
    let entries: Vec<u8> = (0..300).flat_map(|_| [1, 0, 0, 0, b'a']).collect();
    let id = attacker.call(&Call { metadata: &entries, ..AGAIN });
    attacker.answer(id);
    attacker.frame(FrameType::Request, 1_000, |w| {
        w.u32(1)?;
        w.zeros(12)?;
        w.u16(8_000)?;
        w.u16(0)?;
        w.u32(0)?;
        w.zeros(8_000)
    });
    attacker.ends();
    drop(attacker);
    world.end();
}

#[test]
fn a_payload_that_cannot_be_read_ends_its_call_and_its_connection() {
    let mut world = world();
    let handled = |world: &mut World| world.server.stats().get("handled");
    // A guest pins memory more slowly than a message waits for it.
    let large = if Place::here().is_soft() { 32 << 20 } else { 2 << 20 };
    for segments in [vec![piece(100_000, 1)], vec![piece(1, 1); 16], vec![piece(large, 1)]] {
        let mut attacker = world.attacker();
        attacker.call(&Call { segments: &segments, ..ECHO });
        attacker.ends();
    }
    world.honest.goes_on();
    let mut attacker = world.attacker();
    succeeds(&mut attacker, &ECHO);
    assert!(handled(&mut world) > 0);
    drop(attacker);
    world.end();
}

#[test]
fn a_method_keeps_its_number_though_the_call_that_named_it_was_refused() {
    let world = world();
    let mut attacker = world.attacker();
    let huge = [piece(u32::MAX, 1)];
    let id = attacker.call(&Call { segments: &huge, ..ECHO });
    assert_eq!(status_of(attacker.answer(id)).0, RESOURCE_EXHAUSTED);
    succeeds(&mut attacker, &AGAIN);
    drop(attacker);
    world.end();
}

#[test]
fn a_method_has_its_number_though_the_call_that_named_it_is_still_being_read() {
    let world = world();
    let mut attacker = world.attacker();
    // Both in one SEND, so the payload of the first cannot have been read, or failed, before.
    let segments = [piece(100_000, 1)];
    let calls = [Call { segments: &segments, ..ECHO }, AGAIN];
    let both = |w: &mut SendWriter<'_>| {
        (1..).zip(&calls).try_for_each(|(id, call)| {
            w.frame(FrameType::Request, FrameFlags::NONE, id, |w| call.frame().encode(w))
        })
    };
    attacker.send(both, |_| ());
    let answer = attacker.answer(2);
    assert!(matches!(answer, Heard::Answer { status: None, .. }), "{answer:?}");
    drop(attacker);
    world.end();
}

#[test]
fn calls_beyond_the_limit_are_refused_and_cancelled_ones_count_until_they_end() {
    let mut world = world();
    let mut attacker = world.attacker();
    let hang = Call { name: Some("hostile.Target/Hang"), ..ECHO };
    let first = attacker.call(&hang);
    assert_eq!(first, 1);
    let mut next = 2;
    for _ in 0..50 {
        let calls = |w: &mut SendWriter<'_>| {
            (next..next + 100).try_for_each(|id| {
                w.frame(FrameType::Request, FrameFlags::NONE, id, |w| AGAIN.frame().encode(w))
            })
        };
        attacker.send(calls, |_| ());
        next += 100;
    }
    let (code, _) = status_of(attacker.answer(next - 1));
    assert_eq!(code, RESOURCE_EXHAUSTED);
    world.reaches("as many as may hang, hang", |stats| stats.get("hanging") == 4_096);
    world.honest.goes_on();
    let mut id = 1;
    while id < next {
        let cancels = |w: &mut SendWriter<'_>| {
            (id..next.min(id + 200)).try_for_each(|id| {
                w.frame(FrameType::Cancel, FrameFlags::NONE, id, |w| {
                    Cancel { reason: CancelReason::Dropped }.encode(w)
                })
            })
        };
        attacker.send(cancels, |_| ());
        id += 200;
    }
    world.reaches("none hangs", |stats| stats.get("hanging") == 0);
    drop(attacker);
    world.end();
}

#[test]
fn calls_cancelled_in_the_same_breath_leave_nothing() {
    let mut world = world();
    let mut attacker = world.attacker();
    let hang = Call { name: Some("hostile.Target/Hang"), ..ECHO };
    attacker.call(&hang);
    let mut id = 2_u64;
    for _ in 0..100 {
        let storm = |w: &mut SendWriter<'_>| {
            (id..id + 50).try_for_each(|id| {
                let far = Duration::from_secs(1_000_000) - Duration::from_nanos(id);
                let call = Call { timeout: Some(far), ..AGAIN };
                w.frame(FrameType::Request, FrameFlags::NONE, id, |w| call.frame().encode(w))?;
                w.frame(FrameType::Cancel, FrameFlags::NONE, id, |w| {
                    Cancel { reason: CancelReason::Dropped }.encode(w)
                })
            })
        };
        attacker.send(storm, |_| ());
        id += 50;
    }
    world.reaches("only the first hangs", |stats| stats.get("hanging") == 1);
    drop(attacker);
    world.end();
}

#[test]
fn a_deadline_at_the_end_of_time_or_long_past_is_a_deadline() {
    let mut world = world();
    let mut attacker = world.attacker();
    succeeds(&mut attacker, &Call { timeout: Some(Duration::MAX), ..ECHO });
    let id = attacker.call(&Call {
        method: 2,
        name: Some("hostile.Target/Hang"),
        timeout: Some(Duration::from_nanos(1)),
        ..Call::default()
    });
    attacker.frame(FrameType::Cancel, id, |w| Cancel { reason: CancelReason::Deadline }.encode(w));
    world.reaches("none hangs", |stats| stats.get("hanging") == 0);
    succeeds(&mut attacker, &AGAIN);
    drop(attacker);
    world.end();
}
