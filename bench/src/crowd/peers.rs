use std::time::Duration;

use rpc_core::{Channel, Runtime, block_on};

use super::child::{Process, resident};
use super::service::CrowdClient;
use super::{judge, measure, micros, row, spread};
use crate::compare::machine;
use crate::failure::Failure;

/// Receives that each peer would have in a queue of its own.
const WINDOW: u64 = 32;
/// Bytes of a receive.
const RECEIVE_BYTES: u64 = 9_216;
/// Connections that the many are compared with.
const FEW: usize = 10;
/// Least part of memory that sharing must save.
const SAVED: f64 = 0.8;
/// The p99 with many connections is this many times that with few, at most.
const AIM: f64 = 2.0;
/// Connections that one core of the client holds.
const PER_CORE: usize = 512;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Connections.
    #[arg(long, default_value_t = 1_000)]
    connections: usize,
    /// Rounds, each over few of them and over all.
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Time for each half, in milliseconds.
    #[arg(long, default_value_t = 1_000)]
    millis: u64,
}

/// Many connections to a server of two cores.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let many = options.connections.max(FEW + 1);
    let time = Duration::from_millis(options.millis.max(1));
    let (mut server, address) = Process::server(2, "soft://127.0.0.1:0")?;
    // A runtime of one core each, so that a channel is one connection.
    let runtimes: Result<Vec<Runtime>, _> = (0..many.div_ceil(PER_CORE))
        .map(|_| Runtime::builder().spin(Duration::ZERO).build())
        .collect();
    let runtimes = runtimes?;
    let connect = |index: usize| {
        let channel = Channel::builder(&address).runtime(&runtimes[index / PER_CORE]);
        block_on(channel.connect()).map(CrowdClient::new)
    };
    let mut clients = (0..FEW).map(connect).collect::<Result<Vec<_>, _>>()?;
    block_on(measure(&clients, time))?;
    let (few_here, few_there) = (resident()?, number(&server.held()?["resident"]));
    for index in FEW..many {
        clients.push(connect(index)?);
    }
    let (here, there) = (resident()?, number(&server.held()?["resident"]));
    let (mut few, mut all, mut ratios) = (vec![], vec![], vec![]);
    for round in 0..options.rounds.max(1) {
        let of_few = micros(&block_on(measure(&clients[..FEW], time))?, 0.99);
        let of_all = micros(&block_on(measure(&clients, time))?, 0.99);
        few.push(of_few);
        all.push(of_all);
        ratios.push(of_all / of_few);
        eprintln!("round {} of {}, load {}", round + 1, options.rounds, machine::load());
    }
    let held = server.held()?;
    let qps: Vec<u64> = held["qps"].as_array().into_iter().flatten().map(number).collect();
    let apart =
        qps.iter().max().zip(qps.iter().min()).map_or(u64::MAX, |(most, least)| most - least);
    let receives = number(&held["receives"]) * RECEIVE_BYTES;
    let separate = many as u64 * WINDOW * RECEIVE_BYTES;
    let saved = 1.0 - receives as f64 / separate as f64;
    println!("{:<44} {:>10}  [least .. most]", "", "median");
    row(&format!("p99 over {FEW} connections, µs"), &few, 1);
    row(&format!("p99 over {many}, µs"), &all, 1);
    row(&format!("of those: times the p99 over {FEW}"), &ratios, 2);
    let each = |now: u64, before: u64| now.saturating_sub(before) / (many - FEW) as u64;
    println!(
        "\nreceives posted at the server: {:.1} MB; in queues of their own, {WINDOW} each: {:.1} MB; saved: {:.0} %\n\
         queue pairs by core: {qps:?}; SENDs without a receive: {}\n\
         memory of an idle connection: {} bytes at the server, {} at its client (resident, before calls)\n\
         {}, {} CPUs.",
        receives as f64 / 1e6,
        separate as f64 / 1e6,
        saved * 100.0,
        held["rnr"],
        each(there, few_there),
        each(here, few_here),
        machine::processor(),
        machine::cpus()?.len(),
    );
    judge(&[
        (saved >= SAVED, "less than 80 % of the receives' memory is saved"),
        (apart <= 1, "queue pairs are not even over cores"),
        (spread(ratios).0 <= AIM, "the p99 over all is more than twice that over few"),
        (number(&held["rnr"]) == 0, "SENDs found no receive"),
    ])
}

fn number(value: &serde_json::Value) -> u64 {
    value.as_u64().unwrap_or(u64::MAX)
}
