//! Attacks by taking and not giving back.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use rpc_core::wire::{FrameFlags, FrameType, PayloadDescriptor, Segment, SendWriter};
use rpc_core::{Channel, Code, Execution, Request, Runtime, block_on};
use rpc_tests::Place;
use rpc_tests::hostile::{Attacker, Blob, Call, Honest, TargetClient, World, raw};

use super::{SERVER, world};

const MIB: u64 = 1 << 20;

/// So many of something, or in the guest, where each takes long, so few.
fn rounds(many: usize, few: usize) -> usize {
    if Place::here().is_soft() { many } else { few }
}

#[test]
fn a_peer_that_never_releases_holds_its_own_share_only() {
    let mut world = world();
    let mut attacker = world.attacker();
    // produce(1 MiB), as often as the server lets it.
    let inline = [8, 0x80, 0x80, 0x40];
    let mut name = Some("hostile.Target/Produce");
    for _ in 0..rounds(300, 50) {
        attacker.call(&Call { method: 1, name: name.take(), inline: &inline, ..Call::default() });
    }
    world.reaches("answers wait to be read", |stats| stats.get("outbound") >= 8 * MIB);
    world.honest.goes_on();
    // A sixteenth of the server's budget, and what the honest client needs.
    let held = world.server.stats().get("outbound");
    assert!(held <= 18 * MIB, "{held} bytes");
    drop(attacker);
    world.end();
}

#[test]
fn a_peer_that_never_takes_its_answers_holds_a_bounded_number_of_them() {
    let world = world();
    let mut attacker = world.attacker();
    attacker.grant(0);
    let mut message = vec![10, 0xc0, 0x3e];
    message.extend([5; 8_000]);
    let mut name = Some("hostile.Target/Echo");
    for _ in 0..rounds(5_000, 500) {
        if !attacker.is_open() {
            break;
        }
        attacker.call(&Call { method: 1, name: name.take(), inline: &message, ..Call::default() });
    }
    world.honest.goes_on();
    drop(attacker);
    world.end();
}

#[test]
fn peers_that_announce_what_they_never_let_be_read_leave_memory_for_others() {
    let mut world = world();
    let mut attackers = Vec::new();
    for _ in 0..4 {
        let mut attacker = world.attacker();
        // All at once: what comes later would let its device work, and refuse READs.
        let calls = |w: &mut SendWriter<'_>| {
            (1..=8).try_for_each(|id| {
                let (addr, len, rkey) = (1 << 20, 8 << 20, 9);
                let piece = PayloadDescriptor { addr, len, rkey, lease: id };
                let call = Call {
                    method: 1,
                    name: (id == 1).then_some("hostile.Target/Echo"),
                    segments: &[Segment::Payload(piece)],
                    ..Call::default()
                };
                w.frame(FrameType::Request, FrameFlags::NONE, id, |w| call.frame().encode(w))
            })
        };
        attacker.send(calls, |_| ());
        // From here on its device does nothing: READs of its memory are not even refused.
        attackers.push(attacker);
    }
    world.honest.goes_on();
    world.honest.goes_on();
    drop(attackers);
    world.reaches("memory is back", |stats| stats.get("inbound") < 2 * MIB);
    world.end();
}

/// A client process that makes large calls until it is killed.
fn victim(port: u16) -> std::process::Child {
    let mut child = Command::new(SERVER)
        .arg(port.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // It says so when its first call has succeeded.
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line.trim(), "calling");
    child
}

#[test]
fn a_client_killed_in_the_middle_of_large_calls_leaves_nothing_behind() {
    let mut world = world();
    for _ in 0..rounds(5, 2) {
        let mut child = victim(world.port());
        let before = world.server.stats().get("read_bytes");
        world.reaches("it is read from", |stats| stats.get("read_bytes") > before + 8 * MIB);
        child.kill().unwrap();
        child.wait().unwrap();
    }
    world.end();
}

#[test]
fn calls_to_a_server_that_is_killed_end_and_may_have_been_executed() {
    let world = world();
    let World { mut server, honest, .. } = world;
    let runtime = Runtime::builder().build().unwrap();
    let address = Place::here().address(server.port());
    let channel = block_on(Channel::builder(&address).runtime(&runtime).connect()).unwrap();
    let client = TargetClient::new(channel);
    honest.end();
    let calls: Vec<_> = (0..8)
        .map(|index| {
            let client = client.clone();
            let len = if index % 2 == 0 { 100 } else { 4 << 20 };
            std::thread::spawn(move || {
                block_on(client.hang(Request::new(Blob { data: vec![1; len].into() })))
            })
        })
        .collect();
    while server.stats().get("hanging") < 8 {}
    server.kill();
    for call in calls {
        let failed = call.join().unwrap().unwrap_err();
        assert_eq!(failed.code(), Code::Unavailable, "{failed}");
        assert_eq!(failed.execution(), Execution::MaybeExecuted, "{failed}");
    }
}

#[test]
fn a_server_out_of_descriptors_serves_whom_it_has_and_recovers() {
    let mut world = World::with_descriptors(SERVER, Some(64));
    let attacker = world.attacker();
    let mut crowd: Vec<TcpStream> = (0..40).map(|_| raw::connect(world.port())).collect();
    let more = || match Place::here().is_soft() {
        true => raw::connect_at(attacker.link_port()),
        false => raw::connect(world.port()),
    };
    crowd.extend((0..40).map(|_| more()));
    let full = |world: &World| world.server.kernel().descriptor_count() >= 63;
    assert!(rpc_tests::eventually(rpc_tests::hostile::PATIENCE, || full(&world)));
    world.honest.goes_on();
    drop((crowd, attacker));
    world.is_at_rest();
    let newcomer = Honest::start(world.port());
    newcomer.goes_on();
    newcomer.end();
    world.end();
}

#[test]
fn connections_that_come_and_go_without_end_leave_nothing() {
    let world = world();
    for round in 0..rounds(100, 12) {
        match round % 3 {
            0 => drop(Attacker::connect(world.port())),
            1 => drop(world.attacker()),
            _ => {
                let mut attacker = world.attacker();
                let name = Some("hostile.Target/Hang");
                attacker.call(&Call { method: 1, name, ..Call::default() });
            }
        }
    }
    world.end();
}
