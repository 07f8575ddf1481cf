//! Attacks on the control port.

use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use rpc_core::wire::{AddressBlob, ControlMessage, Features, Hello, Role, SoftLink};
use rpc_tests::Place;
use rpc_tests::hostile::{Honest, raw};

use super::{ABOUT_LINKS, world};

/// Why some are left out over libibverbs, where a test takes longer.
const ABOUT_CONTROL: &str = "it is about the control port, and no device has a part in it";

#[test]
fn what_is_no_hello_is_closed_and_a_hello_that_does_not_fit_is_told_why() {
    if Place::here().skips(ABOUT_CONTROL) {
        return;
    }
    let world = world();
    let garbage: [&[u8]; 4] =
        [b"GET / HTTP/1.1\r\n\r\n", &[0; 64], &[0xff; 5000], b"\x89rpcq\r\n\x1a\0\0\0\0\0\0\0\0"];
    for bytes in garbage {
        let mut stream = raw::connect(world.port());
        raw::say(&mut stream, bytes);
        raw::ends(&mut stream);
    }
    let lies: [(fn(&mut Hello), &str); 4] = [
        (|h| (h.version_min, h.version_max) = (2, 9), "upgrade this side"),
        (
            |h| (h.offered, h.required) = (Features(1 << 60), Features(1 << 60)),
            "features you require",
        ),
        (|h| h.role = Role::Accepting, "two servers"),
        (|h| (h.offered, h.required) = (Features(!0), Features(!0)), "features"),
    ];
    for (lie, words) in lies {
        let mut stream = raw::connect(world.port());
        raw::say(&mut stream, &raw::hello(lie));
        let text = raw::refusal(&mut stream);
        assert!(text.contains(words), "{text}");
        raw::ends(&mut stream);
    }
    let mut trailing = raw::connect(world.port());
    let mut bytes = raw::hello(|_| ());
    bytes.extend_from_slice(&[0; 8]);
    raw::say(&mut trailing, &bytes);
    raw::ends(&mut trailing);
    world.end();
}

fn lie(hello: &Hello) -> AddressBlob {
    let link = SoftLink { guid: 5, dial: None };
    let mut blob = AddressBlob::soft(9, 9, 4096, link);
    blob.boot_id = 7;
    blob.epoch = hello.epoch;
    blob.max_rd_atomic = 16;
    blob.max_dest_rd_atomic = 16;
    blob.message_bytes_max = 1 << 20;
    blob
}

#[test]
fn a_device_address_that_lies_is_refused_in_words() {
    let world = world();
    let lies: [(fn(&mut AddressBlob), &str); 4] = [
        (|b| b.boot_id = 8, "another runtime"),
        (|b| b.epoch += 1, "another connection"),
        (|b| b.max_dest_rd_atomic = 0, "no RDMA READ"),
        (|b| b.message_bytes_max = 100, "as long as an eager buffer"),
    ];
    for (change, words) in lies {
        let mut stream = raw::shake(world.port(), |hello| {
            let mut blob = lie(hello);
            change(&mut blob);
            blob
        });
        let text = raw::refusal(&mut stream);
        assert!(text.contains(words), "{text}");
        raw::ends(&mut stream);
    }
    world.end();
}

#[test]
fn a_hello_and_then_silence_ends_at_the_deadline() {
    if Place::here().skips(ABOUT_CONTROL) {
        return;
    }
    let world = world();
    let mut silent = raw::connect(world.port());
    raw::say(&mut silent, &raw::hello(|_| ()));
    assert!(matches!(raw::hear(&mut silent), Some(ControlMessage::Hello(_))));
    let text = raw::refusal(&mut silent);
    assert!(text.contains("timed out"), "{text}");
    raw::ends(&mut silent);
    world.end();
}

#[test]
fn a_peer_that_never_comes_to_its_queue_pair_is_closed() {
    if Place::here().skips(ABOUT_LINKS) {
        return;
    }
    let world = world();
    let mut stream = raw::shake(world.port(), lie);
    assert!(matches!(raw::hear(&mut stream), Some(ControlMessage::Blob(_))));
    raw::ends(&mut stream);
    world.end();
}

#[test]
fn a_thousand_half_hellos_keep_nobody_waiting() {
    if Place::here().skips(ABOUT_CONTROL) {
        return;
    }
    rpc_core::cm::raise_nofile_limit();
    let world = world();
    let half = &raw::hello(|_| ())[..40];
    let mut silent: Vec<TcpStream> = (0..1000)
        .map(|_| {
            let mut stream = raw::connect(world.port());
            raw::say(&mut stream, half);
            stream
        })
        .collect();
    let began = std::time::Instant::now();
    let newcomer = Honest::start(world.port());
    newcomer.goes_on();
    // It did not have to wait for the others' deadline.
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    let last = silent.last_mut().unwrap();
    last.set_nonblocking(true).unwrap();
    assert_eq!(last.read(&mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock);
    newcomer.end();
    drop(silent);
    world.end();
}

/// A port of this host that answers no further connection, as one behind a firewall does.
fn black_hole() -> (TcpListener, Vec<TcpStream>, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let mut waiting = Vec::new();
    // Until the queue of those that nobody accepts is full.
    while let Ok(stream) = TcpStream::connect_timeout(&at, Duration::from_millis(200)) {
        waiting.push(stream);
    }
    (listener, waiting, at)
}

#[test]
fn a_peer_cannot_have_the_server_dial_into_the_void() {
    if Place::here().skips(ABOUT_LINKS) {
        return;
    }
    rpc_core::cm::raise_nofile_limit();
    let world = world();
    let (_listener, _waiting, at) = black_hole();
    let mut streams: Vec<_> = (0..8)
        .map(|_| {
            raw::shake(world.port(), |hello| {
                let mut blob = lie(hello);
                blob.soft = Some(SoftLink { guid: 5, dial: Some(at) });
                blob
            })
        })
        .collect();
    // Dialled, each would keep the control thread, and with it every other handshake, for seconds,
    // and be refused then.
    for stream in &mut streams {
        assert!(matches!(raw::hear(stream), Some(ControlMessage::Blob(_))));
    }
    drop(streams);
    world.end();
}
