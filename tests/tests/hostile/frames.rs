//! Attacks by SENDs that break the protocol's rules.

use rpc_core::wire::{
    Count, FrameFlags, FrameType, Full, Nonce, Release, ReleaseOutcome, Releases, SendFlags,
    SendHeader, SendWriter, Writer,
};
use rpc_tests::Payloads;
use rpc_tests::hostile::{Attacker, Call, Heard, World};

use super::{RESOURCE_EXHAUSTED, world};

/// A connection that does one thing, and must be closed for it.
fn is_closed_for(world: &World, what: &str, attack: impl FnOnce(&mut Attacker)) {
    let mut attacker = world.attacker();
    attack(&mut attacker);
    let end = attacker.ends_for(what);
    if let Some(text) = &end.error {
        assert!(!text.is_empty() && !text.contains("0x"), "{what}: {text}");
    }
}

fn empty(_: &mut SendWriter<'_>) -> Result<(), Full> {
    Ok(())
}

fn ping(w: &mut SendWriter<'_>) -> Result<(), Full> {
    w.frame(FrameType::Ping, FrameFlags::NONE, 0, |w| Nonce { nonce: 5 }.encode(w))
}

#[test]
fn sends_of_noise_of_any_length_end_their_connection_only() {
    let world = world();
    let noise = Payloads::new(3);
    for (index, len) in [1, 7, 31, 32, 33, 48, 500, 9_216].into_iter().enumerate() {
        let bytes = noise.bytes(index as u64, len);
        is_closed_for(&world, "noise", |attacker| attacker.post(&bytes));
    }
    for len in [1, 8, 16, 31, 40, 47] {
        is_closed_for(&world, "a cut SEND", |attacker| {
            let whole = attacker.compose(ping, |_| ());
            attacker.post(&whole[..len.min(whole.len() - 1)]);
        });
    }
    world.end();
}

#[test]
fn every_field_of_a_send_that_is_wrong_ends_its_connection() {
    let world = world();
    // Positions in a SEND with one PING: header length, flags, frame count, total length, epoch,
    // frame type, frame flags, body length. What is reserved is ignored.
    for (at, value) in [
        (0, 24),
        (0, 33),
        (1, 1),
        (2, 0x80),
        (4, 2),
        (4, 0),
        (5, 9),
        (8, 1),
        (12, 1),
        (32, 100),
        (33, 8),
        (36, 9),
        (38, 1),
        (39, 0xff),
    ] {
        is_closed_for(&world, &format!("byte {at} is {value}"), |attacker| {
            let mut bytes = attacker.compose(ping, |_| ());
            bytes[at] = value;
            attacker.post(&bytes);
        });
    }
    world.end();
}

#[test]
fn headers_that_cannot_be_true_end_their_connection() {
    let world = world();
    let lies: [(&str, fn(&mut SendHeader)); 7] = [
        ("another epoch", |h| h.epoch ^= 1),
        ("a SEND left out", |h| h.sequence += 1),
        ("a SEND repeated", |h| h.sequence -= 1),
        ("more credits than exist", |h| h.limit += 1 << 20),
        ("more credits than exist", |h| h.limit = h.limit.wrapping_add(i32::MAX as u32 - 200)),
        ("what was not sent", |h| h.received += 100),
        ("a credit-only SEND that speaks", |h| h.flags = SendFlags::CREDIT_ONLY),
    ];
    for (what, lie) in lies {
        is_closed_for(&world, what, |attacker| attacker.send(ping, lie));
    }
    world.end();
}

#[test]
fn frames_that_nobody_asked_for_end_their_connection_and_unknown_ones_that_may_be_skipped_do_not() {
    let world = world();
    let unasked = [FrameType::Item, FrameType::StreamCredit, FrameType::Return, FrameType::Pong];
    for kind in unasked {
        is_closed_for(&world, "an unasked frame", |attacker| {
            attacker.frame(kind, 0, |w| Nonce { nonce: 1 }.encode(w));
        });
    }
    is_closed_for(&world, "a second CONFIRM", |attacker| {
        let mac = attacker.mac();
        attacker.say_confirm(mac);
    });
    for kind in [FrameType::Request, FrameType::Response, FrameType::Cancel, FrameType::Refused] {
        for call in [1, 1 << 63 | 1] {
            is_closed_for(&world, "an empty body", |attacker| {
                attacker.frame(kind, call, |_| Ok(()));
            });
        }
    }
    let mut attacker = world.attacker();
    attacker.frame(FrameType::Skippable(200), 77, |w| w.zeros(100));
    attacker.send(ping, |_| ());
    attacker.until("PONG", |heard| *heard == Heard::Pong(5));
    drop(attacker);
    world.end();
}

#[test]
fn frames_that_bring_nothing_forward_are_borne_for_a_while_only() {
    let world = world();
    is_closed_for(&world, "frames to skip", |attacker| {
        for _ in 0..20 {
            let skipped = |w: &mut SendWriter<'_>| {
                (0..100).try_for_each(|_| {
                    w.frame(FrameType::Skippable(201), FrameFlags::NONE, 0, |_| Ok(()))
                })
            };
            attacker.send(skipped, |_| ());
        }
    });
    is_closed_for(&world, "PINGs", |attacker| {
        for _ in 0..20 {
            attacker.send(|w| (0..200).try_for_each(|_| ping(w)), |_| ());
        }
    });
    is_closed_for(&world, "RECALLs", |attacker| {
        for _ in 0..20 {
            let recall = |w: &mut SendWriter<'_>| {
                (0..100).try_for_each(|_| {
                    w.frame(FrameType::Recall, FrameFlags::NONE, 0, |w| {
                        Count { count: 0 }.encode(w)
                    })
                })
            };
            attacker.send(recall, |_| ());
        }
    });
    is_closed_for(&world, "SENDs without frames", |attacker| {
        (0..2_000).for_each(|_| {
            if attacker.is_open() {
                attacker.send(empty, |_| ());
            }
        });
    });
    world.end();
}

#[test]
fn nothing_is_taken_before_confirm_and_confirm_must_be_right() {
    let world = world();
    let mut early = Attacker::connect(world.port());
    early.send(ping, |_| ());
    early.ends();
    drop(early);
    let mut call = Attacker::connect(world.port());
    call.call(&Call { method: 1, name: Some("hostile.Target/Echo"), ..Call::default() });
    call.ends();
    drop(call);
    for bit in [0, 100, 255] {
        let mut liar = Attacker::connect(world.port());
        let mut mac = liar.mac();
        mac[bit / 8] ^= 1 << (bit % 8);
        liar.say_confirm(mac);
        assert!(liar.ends().error.is_none(), "who is not confirmed is told nothing");
    }
    world.end();
}

#[test]
fn sends_without_credit_end_their_connection_and_take_no_receive_of_others() {
    let world = world();
    for _ in 0..4 {
        is_closed_for(&world, "an overdraft", |attacker| {
            attacker.overdraw(200, ping);
        });
        world.honest.goes_on();
    }
    world.end();
}

#[test]
fn a_send_longer_than_a_receive_ends_its_connection_only() {
    let world = world();
    for len in [9_217, 9_224, 16_384, 32_000] {
        is_closed_for(&world, "an oversize SEND", |attacker| attacker.post(&vec![0; len]));
    }
    world.end();
}

/// A REQUEST for `echo` with these descriptors, whatever they say.
fn descriptors(w: &mut Writer<'_>, stated: u8, list: &[(u64, u32, u64)]) -> Result<(), Full> {
    w.u32(1)?;
    w.u16(0)?;
    w.u8(0)?;
    w.u8(stated)?;
    w.u64(0)?;
    w.u16(0)?;
    let name = b"hostile.Target/Echo";
    w.u16(name.len() as u16)?;
    w.u32(0)?;
    for (addr, len, lease) in list {
        w.u8(1)?;
        w.zeros(7)?;
        w.u64(*addr)?;
        w.u32(*len)?;
        w.u32(3)?;
        w.u64(*lease)?;
    }
    w.bytes_padded(name)
}

#[test]
fn descriptors_that_cannot_be_are_refused_before_anything_is_taken_for_them() {
    let mut world = world();
    let many: Vec<(u64, u32, u64)> = (0..250).map(|n| (n << 12, 4096, 1)).collect();
    let two_leases = [(4096, 10, 1), (8192, 10, 2)];
    let cases: [(&str, u8, &[(u64, u32, u64)]); 6] = [
        ("it wraps", 1, &[(u64::MAX - 10, 100, 1)]),
        ("it is empty", 1, &[(4096, 0, 1)]),
        ("more than are there", 200, &[(4096, 10, 1)]),
        ("as many as fit", 250, &many),
        ("seventeen", 17, &many[..17]),
        ("of two leases", 2, &two_leases),
    ];
    for (what, stated, list) in cases {
        is_closed_for(&world, what, |attacker| {
            attacker.frame(FrameType::Request, 1, |w| descriptors(w, stated, list));
        });
    }
    // All of the address space, well formed: refused in words, and the connection goes on.
    let mut attacker = world.attacker();
    let huge = [(4096, u32::MAX, 9); 16];
    attacker.frame(FrameType::Request, 1, |w| descriptors(w, 16, &huge));
    let Heard::Refused { code: RESOURCE_EXHAUSTED, text, .. } = attacker.answer(1) else {
        panic!("it is refused");
    };
    assert!(text.contains("at most"), "{text}");
    attacker.until("RELEASE", |heard| *heard == Heard::Released(vec![9]));
    attacker.send(ping, |_| ());
    attacker.until("PONG", |heard| *heard == Heard::Pong(5));
    drop(attacker);
    let bound = 16 << 20;
    world.reaches("nothing was taken", |stats| stats.get("peak") < bound);
    world.end();
}

fn release(attacker: &mut Attacker, leases: &[u64]) {
    let list: Vec<Release> = leases
        .iter()
        .map(|lease| Release { lease: *lease, outcome: ReleaseOutcome::Read })
        .collect();
    attacker.frame(FrameType::Release, 0, |w| Releases::encode(&list, w));
}

/// An answer that is to be read, and its lease.
fn lease(attacker: &mut Attacker) -> u64 {
    // produce(300000): field 1, varint.
    let inline = [8, 0xe0, 0xa7, 0x12];
    let name = Some("hostile.Target/Produce");
    let id = attacker.call(&Call { method: 1, name, inline: &inline, ..Call::default() });
    match attacker.answer(id) {
        Heard::Answer { lease: Some(lease), status: None, .. } => lease,
        other => panic!("an answer with a lease was due, and not {other:?}"),
    }
}

#[test]
fn releases_that_are_repeated_foreign_or_guessed_touch_no_lease_of_another() {
    let mut world = world();
    let (mut one, mut two) = (world.attacker(), world.attacker());
    let (of_one, of_two) = (lease(&mut one), lease(&mut two));
    release(&mut one, &[of_two]);
    release(&mut one, &[of_one, of_one]);
    release(&mut one, &[of_one]);
    one.send(ping, |_| ());
    one.until("PONG", |heard| *heard == Heard::Pong(5));
    world.reaches("one lease is over, the other is not", |stats| {
        (1..=2).contains(&stats.get("leases"))
    });
    let guessed: Vec<u64> = (0..200).map(|n| of_one ^ (n << 40) ^ 1).collect();
    release(&mut one, &guessed);
    one.ends();
    release(&mut two, &[of_two]);
    two.send(ping, |_| ());
    two.until("PONG", |heard| *heard == Heard::Pong(5));
    drop((one, two));
    world.end();
}
