//! What a socket carries without any framework.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::cells::{SMALL_BYTES, Span, Value, WARM_UP_DIVISOR, summary};
use super::machine::{cache_bytes, cpu_nanos};
use crate::failure::Failure;

/// The first byte of a connection: what follows it.
const PING_PONG: u8 = 1;
const STREAM: u8 = 2;

/// Answers each connection in turn, for ever.
pub(super) fn serve(spins: bool) -> Result<(), Failure> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?);
    let mut stage = vec![0; 1 << 20];
    loop {
        let (mut stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        let mut kind = [0];
        stream.read_exact(&mut kind)?;
        stream.set_nonblocking(spins)?;
        // A client that leaves ends its connection alone.
        let _ = match kind[0] {
            PING_PONG => answer(&mut stream),
            _ => swallow(&mut stream, &mut stage),
        };
    }
}

fn answer(stream: &mut TcpStream) -> Result<(), Failure> {
    let mut message = [0; SMALL_BYTES];
    loop {
        read(stream, &mut message)?;
        write(stream, &message)?;
    }
}

/// Reads lengths and so many bytes after each; says when it has them.
fn swallow(stream: &mut TcpStream, stage: &mut [u8]) -> Result<(), Failure> {
    loop {
        let mut len = [0; 8];
        read(stream, &mut len)?;
        let mut left = u64::from_le_bytes(len) as usize;
        while left > 0 {
            let part = left.min(stage.len());
            read(stream, &mut stage[..part])?;
            left -= part;
        }
        write(stream, &[1])?;
    }
}

/// Reads all of `bytes`; a socket that does not block is asked again and again.
fn read(stream: &mut TcpStream, bytes: &mut [u8]) -> Result<(), Failure> {
    let mut have = 0;
    while have < bytes.len() {
        match stream.read(&mut bytes[have..]) {
            Ok(0) => return Err(Failure::new("the peer closed the socket")),
            Ok(count) => have += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn write(stream: &mut TcpStream, mut bytes: &[u8]) -> Result<(), Failure> {
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(0) => return Err(Failure::new("the socket takes nothing more")),
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn connect(address: &str, kind: u8, spins: bool) -> Result<TcpStream, Failure> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.write_all(&[kind])?;
    stream.set_nonblocking(spins)?;
    Ok(stream)
}

/// Both cells: ping-pong, and a stream of large messages.
pub(super) fn drive(address: &str, spins: bool, span: Span) -> Result<Vec<Value>, Failure> {
    let mut values = ping_pong(address, spins, span)?;
    for (len, name) in [(1 << 20, "1 MiB"), (16 << 20, "16 MiB")] {
        for (count, memory) in [(3 * cache_bytes() / len, ""), (1, " cached")] {
            let rate = stream(address, spins, span.time, len, count)?;
            values.push((format!("{name}{memory} requests GB/s"), rate));
        }
    }
    Ok(values)
}

fn ping_pong(address: &str, spins: bool, span: Span) -> Result<Vec<Value>, Failure> {
    let mut stream = connect(address, PING_PONG, spins)?;
    let mut message = [7; SMALL_BYTES];
    let mut nanos = Histogram::new(3)?;
    let warm = Instant::now() + span.time / WARM_UP_DIVISOR;
    while Instant::now() < warm {
        write(&mut stream, &message)?;
        read(&mut stream, &mut message)?;
    }
    let cpu = [cpu_nanos(std::process::id())?, cpu_nanos(span.server)?];
    let began = Instant::now();
    let mut last = began;
    while last - began < span.time {
        write(&mut stream, &message)?;
        read(&mut stream, &mut message)?;
        let now = Instant::now();
        nanos.record((now - last).as_nanos() as u64)?;
        last = now;
    }
    let mut values = summary("1 outstanding", &nanos, last - began);
    let now = [cpu_nanos(std::process::id())?, cpu_nanos(span.server)?];
    for (side, name) in ["client", "server"].into_iter().enumerate() {
        let micros = now[side].saturating_sub(cpu[side]) as f64 / nanos.len() as f64 / 1e3;
        values.push((format!("1 outstanding {name} CPU us"), micros));
    }
    Ok(values)
}

fn stream(
    address: &str,
    spins: bool,
    time: Duration,
    len: usize,
    count: usize,
) -> Result<f64, Failure> {
    let mut stream = connect(address, STREAM, spins)?;
    let sources = vec![vec![7_u8; len]; count.max(1)];
    let began = Instant::now();
    let (mut sent, mut answered) = (0_usize, 0);
    let mut word = [0];
    while began.elapsed() < time {
        write(&mut stream, &(len as u64).to_le_bytes())?;
        write(&mut stream, &sources[sent % sources.len()])?;
        sent += 1;
        // Two messages are under way, as calls are.
        if sent - answered > 1 {
            read(&mut stream, &mut word)?;
            answered += 1;
        }
    }
    while answered < sent {
        read(&mut stream, &mut word)?;
        answered += 1;
    }
    Ok((sent * len) as f64 / began.elapsed().as_secs_f64() / 1e9)
}
