//! Peers that do not get as far as a queue pair.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use rpc_core::wire::handshake::frame_len;
use rpc_core::wire::{AddressBlob, ControlMessage, Hello, Role};

use super::attacker::PATIENCE;
use crate::Place;

/// A TCP connection to a port of the server's host, whose reads and writes end in time.
///
/// # Panics
/// If nobody listens.
pub fn connect(port: u16) -> TcpStream {
    connect_at(SocketAddr::from((Place::here().host(), port)))
}

/// The same, for any address.
///
/// # Panics
/// If nobody listens.
pub fn connect_at(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the server listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
    stream.set_write_timeout(Some(PATIENCE)).expect("a timeout can be set");
    stream
}

/// The bytes of a hello, changed.
///
/// # Panics
/// If it cannot be encoded any more.
pub fn hello(change: impl FnOnce(&mut Hello)) -> Vec<u8> {
    let mut hello = Hello::new(Role::Connecting, 7, [7; 32]);
    hello.epoch = 7;
    change(&mut hello);
    ControlMessage::Hello(hello).encode().expect("a hello can be encoded")
}

/// Says this much. A server that has closed already need not hear it.
pub fn say(stream: &mut TcpStream, bytes: &[u8]) {
    let _ = stream.write_all(bytes);
}

/// The next message of the control connection; `None` if it is closed.
///
/// # Panics
/// If the server neither speaks nor closes, or says what cannot be decoded.
pub fn hear(stream: &mut TcpStream) -> Option<ControlMessage> {
    let mut bytes = Vec::new();
    let mut more = [0; 512];
    loop {
        if let Some(len) = frame_len(&bytes).expect("the server speaks the protocol")
            && bytes.len() >= len
        {
            return Some(ControlMessage::decode(&bytes[..len]).expect("it can be decoded"));
        }
        match stream.read(&mut more) {
            Ok(0) => return None,
            Ok(count) => bytes.extend_from_slice(&more[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
            Err(error) => panic!("the server neither speaks nor closes: {error}"),
        }
    }
}

/// The text of the refusal that must come next.
///
/// # Panics
/// If anything else comes.
pub fn refusal(stream: &mut TcpStream) -> String {
    match hear(stream) {
        Some(ControlMessage::Refused(refusal)) => refusal.text,
        other => panic!("a refusal was due, and not {other:?}"),
    }
}

/// Shakes hands as far as the device's address, which `blob` makes of the server's hello. The
/// server's answer comes next.
///
/// # Panics
/// If the server does not answer the hello.
pub fn shake(port: u16, blob: impl FnOnce(&Hello) -> AddressBlob) -> TcpStream {
    let mut stream = connect(port);
    say(&mut stream, &hello(|_| ()));
    let Some(ControlMessage::Hello(hello)) = hear(&mut stream) else {
        panic!("the server answers a hello");
    };
    let blob = ControlMessage::Blob(blob(&hello)).encode().expect("a blob can be encoded");
    say(&mut stream, &blob);
    stream
}

/// Whether the connection ends, whatever comes before.
///
/// # Panics
/// If it stays open.
pub fn ends(stream: &mut TcpStream) {
    let mut bytes = [0; 512];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return,
            Err(error) => panic!("the connection stays open: {error}"),
        }
    }
}
