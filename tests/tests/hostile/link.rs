//! Attacks on the port where the server's device takes links.

use std::net::TcpStream;

use rpc_core::verbs::Link;
use rpc_tests::Place;
use rpc_tests::hostile::{Attacker, Call, raw};

use super::{ABOUT_LINKS, world};

const MAGIC: [u8; 8] = *b"softlnk\x01";

fn hello(from: u64, to: u64) -> Vec<u8> {
    [&MAGIC[..], &from.to_le_bytes(), &to.to_le_bytes(), &[0; 8]].concat()
}

fn guid(attacker: &Attacker) -> u64 {
    let Link::Soft { guid, .. } = attacker.peer.link else { panic!("a software device") };
    guid
}

#[test]
fn what_is_no_hello_or_for_another_device_is_closed() {
    if Place::here().skips(ABOUT_LINKS) {
        return;
    }
    let world = world();
    let attacker = world.attacker();
    let (at, guid) = (attacker.link_port(), guid(&attacker));
    let mut padded = hello(4, guid);
    padded[31] = 1;
    let wrong = [vec![0; 32], b"GET / HTTP/1.1\r\nHost: x\r\nAccept: *\r\n\r\n".to_vec(), padded];
    for bytes in wrong.into_iter().chain([hello(4, guid ^ 1), hello(guid, guid)]) {
        let mut stream = raw::connect_at(at);
        raw::say(&mut stream, &bytes);
        raw::ends(&mut stream);
    }
    drop(attacker);
    world.end();
}

#[test]
fn packets_that_are_none_end_their_link_and_packets_of_a_stranger_reach_no_queue_pair() {
    if Place::here().skips(ABOUT_LINKS) {
        return;
    }
    let mut world = world();
    let mut attacker = world.attacker();
    let (at, guid) = (attacker.link_port(), guid(&attacker));
    for garbage in [vec![0; 32], vec![0xff; 4096], vec![9; 31 * 7]] {
        let mut stream = raw::connect_at(at);
        raw::say(&mut stream, &hello(4, guid));
        raw::say(&mut stream, &garbage);
        raw::ends(&mut stream);
    }
    // Well-formed packets of every kind for the attacker's and for every other queue pair number,
    // from a device that none of them is connected to.
    let mut stranger = raw::connect_at(at);
    raw::say(&mut stranger, &hello(6, guid));
    for op in 1..=5_u8 {
        for qp in [attacker.peer.qp_num.0, 0, 0x00ff_ffff] {
            let mut packet = [0; 32];
            packet[0] = op;
            packet[1] = if op == 1 { 3 } else { 0 };
            packet[2] = if op == 5 { 3 } else { 0 };
            packet[4..8].copy_from_slice(&qp.to_le_bytes());
            packet[8..12].copy_from_slice(&78_u32.to_le_bytes());
            raw::say(&mut stranger, &packet);
        }
    }
    let call = Call { method: 1, name: Some("hostile.Target/Echo"), ..Call::default() };
    let id = attacker.call(&call);
    attacker.answer(id);
    world.honest.goes_on();
    let links = world.server.stats().get("links");
    drop(stranger);
    world.reaches("the stranger's link is gone", |stats| stats.get("links") < links);
    drop(attacker);
    world.end();
}

#[test]
fn links_without_end_disturb_nobody_and_go_with_their_sockets() {
    if Place::here().skips(ABOUT_LINKS) {
        return;
    }
    rpc_core::cm::raise_nofile_limit();
    let mut world = world();
    let attacker = world.attacker();
    let (at, guid) = (attacker.link_port(), guid(&attacker));
    let before = world.server.stats().get("links");
    let links: Vec<TcpStream> = (0..300)
        .map(|from| {
            let mut stream = raw::connect_at(at);
            raw::say(&mut stream, &hello(1000 + from, guid));
            stream
        })
        .collect();
    world.reaches("they are links", |stats| stats.get("links") >= before + 250);
    world.honest.goes_on();
    drop((links, attacker));
    world.end();
}

#[test]
fn sockets_that_never_say_who_they_are_make_room_for_one_that_does() {
    if Place::here().skips(ABOUT_LINKS) {
        return;
    }
    rpc_core::cm::raise_nofile_limit();
    let world = world();
    let first = world.attacker();
    let silent: Vec<TcpStream> = (0..300).map(|_| raw::connect_at(first.link_port())).collect();
    let second = world.attacker();
    drop((silent, first, second));
    world.end();
}
