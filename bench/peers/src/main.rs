//! Other RPC crates over RDMA verbs, to measure this framework beside.
//!
//! Each peer is two processes. `bench-peers --peer rrppcc --device rxe0 --address 10.77.0.1 --server` prints
//! the address it listens at, and ends with its standard input. `bench-peers --peer rrppcc --device rxe0
//! --address 10.77.0.1:18515 --millis 500` calls it, and prints lines `name = value`.
//!
//! `cargo build --profile release-lto --manifest-path bench/peers/Cargo.toml --target-dir target`, with the environment that
//! `tests/rxe/setup --env` prints, builds it beside the workspace's programs.

#![forbid(unsafe_code)]

#[path = "../../src/failure.rs"]
mod failure;
mod measure;
mod rrppcc;
mod ruapc;

use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::panic::{self, AssertUnwindSafe};
use std::process::{self, ExitCode};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::failure::Failure;
use crate::measure::Value;

/// A client's time beside that of its cells: to connect, and to give up calls that are not answered.
const CLIENT_BASE_MAX: Duration = Duration::from_secs(60);
/// A client's time for each that a cell gets: three cells, their warming up, and what is in flight at their ends.
const CELLS_MAX: u32 = 10;

/// One process of a peer.
#[derive(Parser)]
#[command(name = "bench-peers")]
struct Options {
    #[arg(long)]
    peer: Peer,
    /// The RDMA device.
    #[arg(long)]
    device: String,
    /// For a server, the device's IP address; for a client, what its server printed.
    #[arg(long)]
    address: String,
    /// Time for each cell, in milliseconds.
    #[arg(long, default_value_t = 500)]
    millis: u64,
    /// Serves, until standard input ends.
    #[arg(long)]
    server: bool,
    /// CPUs to keep to; without it, all.
    #[arg(long, value_delimiter = ',')]
    cpus: Vec<usize>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Peer {
    Rrppcc,
    Ruapc,
}

impl Peer {
    fn name(self) -> &'static str {
        match self {
            Self::Rrppcc => "rrppcc",
            Self::Ruapc => "ruapc",
        }
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    let name = options.peer.name();
    // rrppcc panics where others return an error.
    let done = panic::catch_unwind(AssertUnwindSafe(|| run(&options))).unwrap_or_else(|_| {
        Err(Failure::new(format!(
            "it panicked, as said above; is {} a device with an active port and an MTU of 4096 (`ibv_devinfo`)?",
            options.device
        )))
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("bench-peers: {name}: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), Failure> {
    pin(&options.cpus)?;
    if options.server {
        end_with_standard_input();
        let ip = parse::<IpAddr>(&options.address, "an IP address of the device")?;
        return match options.peer {
            Peer::Rrppcc => rrppcc::serve(&options.device, ip),
            Peer::Ruapc => ruapc::serve(&options.device, ip),
        };
    }
    let server = parse::<SocketAddr>(&options.address, "the address that its server printed")?;
    let time = Duration::from_millis(options.millis.max(1));
    let _running = end_after(CLIENT_BASE_MAX + time * CELLS_MAX, options.peer);
    for (name, value) in drive(options, server, time)? {
        println!("{name} = {value}");
    }
    Ok(())
}

fn drive(options: &Options, server: SocketAddr, time: Duration) -> Result<Vec<Value>, Failure> {
    match options.peer {
        Peer::Rrppcc => rrppcc::drive(&options.device, server, time),
        Peer::Ruapc => ruapc::drive(&options.device, server, time),
    }
}

fn parse<T: std::str::FromStr>(text: &str, what: &str) -> Result<T, Failure> {
    text.parse().map_err(|_| Failure::new(format!("--address {text} is not {what}")))
}

/// Keeps this process, and the threads it will start, to these CPUs.
fn pin(cpus: &[usize]) -> Result<(), Failure> {
    if cpus.is_empty() {
        return Ok(());
    }
    let mut set = CpuSet::new();
    for cpu in cpus {
        set.set(*cpu);
    }
    sched_setaffinity(None, &set)
        .map_err(|error| Failure::new(format!("cannot keep to CPUs {cpus:?}: {error}")))
}

/// A server lives as long as the process that started it keeps the pipe open.
fn end_with_standard_input() {
    thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        process::exit(0);
    });
}

/// Ends this process if what is returned still lives after `limit`: the crates have waits without a bound,
/// such as rrppcc's for the completion of a SEND.
fn end_after(limit: Duration, peer: Peer) -> Sender<()> {
    let (running, ended) = mpsc::channel();
    thread::spawn(move || {
        if ended.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
            eprintln!(
                "bench-peers: {}: not done after {} s; is its server still there?",
                peer.name(),
                limit.as_secs()
            );
            process::exit(1);
        }
    });
    running
}
