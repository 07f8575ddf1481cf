use std::time::Duration;

use rpc_core::{Channel, Runtime, block_on};

use super::child::Process;
use super::service::{CrowdClient, SLOW};
use super::{judge, measure, micros, row, spread};
use crate::compare::machine;
use crate::failure::Failure;

/// The p99 beside a flood is this many times that without, at most.
const AIM: f64 = 3.0;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Rounds, each without the flood and with it.
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Time for each half, in milliseconds.
    #[arg(long, default_value_t = 1_000)]
    millis: u64,
}

/// One process floods a core with slow calls, this one calls its fast method.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let time = Duration::from_millis(options.millis.max(1));
    let (mut server, address) = Process::server(1, "soft://127.0.0.1:0")?;
    let runtime = Runtime::builder().spin(Duration::ZERO).build()?;
    let channel = block_on(Channel::builder(&address).runtime(&runtime).connect())?;
    let client = [CrowdClient::new(channel)];
    let (mut alone, mut beside, mut ratios, mut flooded) = (vec![], vec![], vec![], vec![]);
    let mut refused = 0;
    for round in 0..options.rounds.max(1) {
        let without = block_on(measure(&client, time))?;
        let mut flood = Process::flood(&address)?;
        let with = block_on(measure(&client, time))?;
        let ended = flood.end()?;
        refused += ended["failed"].as_u64().unwrap_or(0);
        flooded.push(ended["rate"].as_f64().unwrap_or(f64::NAN));
        alone.push(micros(&without, 0.99));
        beside.push(micros(&with, 0.99));
        ratios.push(micros(&with, 0.99) / micros(&without, 0.99));
        eprintln!("round {} of {}, load {}", round + 1, options.rounds, machine::load());
    }
    let rnr = server.held()?["rnr"].as_u64().unwrap_or(u64::MAX);
    println!("{:<44} {:>10}  [least .. most]", "", "median");
    row("p99 of a fast call alone, µs", &alone, 1);
    row("p99 beside 256 slow calls outstanding, µs", &beside, 1);
    row("of those: times the p99 alone", &ratios, 2);
    row("slow calls a second", &flooded, 0);
    println!(
        "\nslow: {} ms of waiting each; {refused} of them failed; SENDs without a receive: {rnr}. All processes \
         sleep when they have nothing to do. {}, {} CPUs.",
        SLOW.as_millis(),
        machine::processor(),
        machine::cpus()?.len(),
    );
    judge(&[
        (spread(ratios).0 <= AIM, "the p99 beside the flood is more than 3 times that alone"),
        (refused == 0, "slow calls failed"),
        (rnr == 0, "SENDs found no receive"),
    ])
}
