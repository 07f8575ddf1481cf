use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::mock::*;
use crate::cm::*;
use crate::wire::{ControlMessage, Hello};

fn server(timeout: Duration) -> (Arc<MockHost>, Control, SocketAddr) {
    let host = MockHost::new(2, "server");
    let control = ControlThread::start_with(host.clone(), timeout).unwrap();
    let port = listen(&control, 9);
    (host, control, port)
}

fn hello() -> Vec<u8> {
    ControlMessage::Hello(Hello::new(Role::Connecting, 1, [1; 32])).encode().unwrap()
}

#[test]
fn a_peer_of_another_version_is_told_what_to_do() {
    let (_host, _control, port) = server(PATIENCE);
    let newer =
        Hello { version_min: 2, version_max: 2, ..Hello::new(Role::Connecting, 1, [1; 32]) };
    let mut socket = raw(port);
    socket.write_all(&ControlMessage::Hello(newer).encode().unwrap()).unwrap();
    let text = refusal(&mut socket).expect("a refusal");
    assert!(text.contains("you speak 2 to 2, this side 1 to 1; upgrade this side"), "{text}");
}

#[test]
fn garbage_ends_its_own_connection_and_no_other() {
    let (_host, control, port) = server(PATIENCE);
    let (mut garbage, mut waiting) = (raw(port), raw(port));
    garbage.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = garbage.read_to_end(&mut answer);
    assert!(answer.is_empty(), "what does not speak this protocol is not answered in it");

    waiting.write_all(&hello()).unwrap();
    let mut prefix = [0; 16];
    waiting.read_exact(&mut prefix).unwrap();
    succeeded(&connect(&control, at(port)));
}

#[test]
fn half_a_hello_is_waited_for_until_the_deadline_and_then_refused() {
    let (host, control, port) = server(Duration::from_millis(50));
    let mut socket = raw(port);
    socket.write_all(&hello()[..40]).unwrap();
    let text = refusal(&mut socket).expect("a refusal");
    assert!(text.contains("timed out while waiting for the peer's hello"), "{text}");
    assert!(host.opened.try_recv().is_err());
    succeeded(&connect(&control, Target::InProcess { server: 9 }));
}

#[test]
fn a_blob_that_lies_makes_no_connection_and_leaves_no_qp() {
    let (host, _control, port) = server(PATIENCE);
    let mut socket = raw(port);
    socket.write_all(&hello()).unwrap();
    let mut prefix = [0; 16];
    socket.read_exact(&mut prefix).unwrap();
    let mut rest = vec![0; u32::from_le_bytes(prefix[12..].try_into().unwrap()) as usize - 16];
    socket.read_exact(&mut rest).unwrap();
    let blob = convert::to_blob(&address(5), 77, 0);
    socket.write_all(&ControlMessage::Blob(blob).encode().unwrap()).unwrap();
    let text = refusal(&mut socket).expect("a refusal");
    assert!(text.contains("another runtime than its hello"), "{text}");
    assert!(host.installed.try_recv().is_err());
    assert_eq!(host.pending.load(std::sync::atomic::Ordering::SeqCst), 0);
}

#[test]
fn a_thousand_half_hellos_do_not_keep_a_good_peer_waiting() {
    raise_nofile_limit();
    let (_host, _control, port) = server(PATIENCE);
    let client = ControlThread::start(MockHost::new(1, "client")).unwrap();
    let half = &hello()[..40];
    let mut silent = Vec::new();
    for _ in 0..1000 {
        let mut socket = raw(port);
        socket.write_all(half).unwrap();
        silent.push(socket);
    }
    let began = Instant::now();
    succeeded(&connect(&client, at(port)));
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
}

#[test]
fn peers_that_say_nothing_make_room_for_others_at_the_limit() {
    raise_nofile_limit();
    let (_host, control, port) = server(PATIENCE);
    let mut oldest = raw(port);
    let silent: Vec<_> = (0..HANDSHAKES_MAX).map(|_| raw(port)).collect();
    let text = refusal(&mut oldest).expect("a refusal");
    assert!(text.contains("too many handshakes"), "{text}");
    succeeded(&connect(&control, at(port)));
    drop(silent);
}
