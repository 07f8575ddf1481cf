//! This framework beside tonic and raw sockets: two processes for each, in alternating rounds.

pub(crate) mod cells;
pub(crate) mod child;
pub(crate) mod client;
pub(crate) mod machine;
mod peer;
mod raw;
pub(crate) mod report;
pub(crate) mod service;
mod svg;
#[cfg_attr(not(feature = "tonic"), path = "tonic_absent.rs")]
mod tonic_peer;

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use clap::ValueEnum;

use self::peer::Peer;
use self::report::Report;
use crate::failure::Failure;

/// Rounds at least, for a median and a range that mean something.
const ROUNDS: usize = 7;

/// Peers of a short look.
const QUICK: [Peer; 5] =
    [Peer::RawSpin, Peer::RawBlocking, Peer::OursSpin, Peer::OursSleep, Peer::TonicTcp];

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Rounds in which every peer has its turn.
    #[arg(long, default_value_t = ROUNDS)]
    rounds: usize,
    /// Time for each cell, in milliseconds.
    #[arg(long, default_value_t = 250)]
    millis: u64,
    /// One short round of some peers: a look, not a measurement.
    #[arg(long)]
    quick: bool,
    /// Only these peers.
    #[arg(long, value_delimiter = ',')]
    peers: Vec<Peer>,
    /// Writes every value of every round here.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Draws the most important cells here.
    #[arg(long)]
    svg: Option<PathBuf>,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let (rounds, millis) =
        if options.quick { (1, 50) } else { (options.rounds.max(1), options.millis.max(1)) };
    let all = if options.quick { &QUICK } else { Peer::value_variants() };
    let chosen = if options.peers.is_empty() { all } else { &options.peers };
    let peers: Vec<Peer> = chosen.iter().copied().filter(|peer| peer.is_built_in()).collect();
    if peers.len() < chosen.len() {
        eprintln!("built without the feature `tonic`: its rows are left out");
    }
    let peers = &peers;
    let cpus = machine::cpus()?;
    let load = machine::load();
    let mut report = Report::new(peers);
    for round in 0..rounds {
        for &peer in peers {
            let values = measure(peer, &cpus, millis)
                .map_err(|failure| Failure::new(format!("{}: {failure}", peer.label())))?;
            report.add(peer, values);
        }
        eprintln!("round {} of {rounds}, load {}", round + 1, machine::load());
    }
    print!("{}", report.table());
    println!("{}", conditions(&cpus, rounds, millis, &load));
    if let Some(path) = &options.json {
        std::fs::write(path, report.json().to_string())?;
    }
    if let Some(path) = &options.svg {
        std::fs::write(path, svg::draw(&report))?;
    }
    Ok(())
}

/// What the figures were measured with.
fn conditions(cpus: &[usize], rounds: usize, millis: u64, load: &str) -> String {
    let cache = machine::cache_bytes();
    format!(
        "\n{}, {} CPUs, cache {} MiB; load average {load} at the beginning, {} at the end: on a machine \
         that does other things, tails and ratios of CPU time mean little.\n\
         {rounds} rounds, {millis} ms a cell, peers in turn; median [least .. most]. Server and client \
         are processes, each kept to a CPU of its own (multi-thread: to all of them).\n\
         Payloads: 1 MiB with 8 calls at once, 16 MiB with 2 (raw: one stream, two messages ahead); they cycle through {} MiB, `cached` \
         through one buffer. This crate's clients take them from `channel.alloc`.\n\
         Each call in flight is a task of the client's core or of tokio; `block_on` polls them all itself.\n\
         tonic: {}; same compiler, options and allocator.",
        machine::processor(),
        cpus.len(),
        cache >> 20,
        machine::load(),
        (3 * cache) >> 20,
        tonic_peer::settings(),
    )
}

/// A server that ends with this value.
struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // It ends at the end of its input; whatever it says does not matter any more.
        let _ = self.0.wait();
        let _ = std::fs::remove_file(child::socket_path(self.0.id()));
    }
}

/// One round of one peer: a server, a client, and what the client reports.
fn measure(peer: Peer, cpus: &[usize], millis: u64) -> Result<Vec<cells::Value>, Failure> {
    let list = |cpus: &[usize]| cpus.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
    let (first, last) = match cpus {
        [] => return Err(Failure::new("this process may use no CPU")),
        all if peer.is_multi() => (list(all), list(all)),
        [first, .., last] => (list(&[*first]), list(&[*last])),
        [only] => (list(&[*only]), list(&[*only])),
    };
    let command = || {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["peer", &peer.name()]).stdout(Stdio::piped());
        Ok::<_, Failure>(command)
    };
    let server = command()?.args(["--cpus", &last]).stdin(Stdio::piped()).spawn()?;
    let mut serving = Serving(server);
    let mut address = String::new();
    let output = serving.0.stdout.take().ok_or_else(|| Failure::new("the server has no output"))?;
    BufReader::new(output).read_line(&mut address)?;
    let client = command()?
        .args(["--cpus", &first, "--address", address.trim()])
        .args(["--server", &serving.0.id().to_string(), "--millis", &millis.to_string()])
        .stdin(Stdio::null())
        .output()?;
    if !client.status.success() {
        return Err(Failure::new(format!("its client failed: {}", client.status)));
    }
    let text = String::from_utf8_lossy(&client.stdout).into_owned();
    let value = |line: &str| {
        let (name, value) = line.split_once(" = ")?;
        Some((name.to_owned(), value.parse().ok()?))
    };
    Ok(text.lines().filter_map(value).collect())
}
