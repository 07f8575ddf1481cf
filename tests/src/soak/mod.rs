//! Load that runs anywhere: over the software device in the ordinary tests, over libibverbs in the
//! guest.
//!
//! Every call carries a payload one way or the other, of a size drawn from a seed, and both ends
//! compare every byte. A failed call is counted by its verdict. Children of this program end when
//! their standard input closes, so nothing is left of a run that was killed.

mod args;
mod call;
mod child;
#[cfg(feature = "failpoints")]
mod failpoints;
mod kernel;
mod kill;
mod load;
mod log;
mod outage;
mod pattern;
mod rider;
mod server;
mod service;
mod stop;
mod tally;

use std::process::ExitCode;
use std::time::Duration;

use rpc_core::{Channel, Pings, Runtime, block_on};

use args::{Args, Command};

/// Payload memory of each process: what a dozen of the longest calls take, twice.
const BUDGET_BYTES: u64 = 192 << 20;

/// What must happen in any case may take so long on an emulated machine that does other things too.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs what the arguments ask for.
pub fn main(args: Vec<String>) -> ExitCode {
    let args = match Args::parse(&args) {
        Ok(args) => args,
        Err(wrong) => {
            eprintln!("soak: {wrong}\n{}", args::USAGE);
            return ExitCode::from(2);
        }
    };
    tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::WARN)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
    let done = match args.command {
        Command::Serve => server::run(&args),
        Command::Call => call::run(&args),
        Command::Ride => rider::run(&args),
        Command::Kill => kill::run(&args),
        Command::Outage => outage::run(&args),
        Command::Stop => stop::run(&args),
        #[cfg(feature = "failpoints")]
        Command::Failpoints => failpoints::run(&args),
        #[cfg(not(feature = "failpoints"))]
        Command::Failpoints => Err("this build is without the feature failpoints".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("soak: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn runtime(args: &Args) -> Result<Runtime, String> {
    let pings = match args.found {
        None => Pings::new(),
        Some(found) => {
            let pings = Pings::new().busy_after(found / 4).timeout(found - found / 4);
            // A client may just then have nothing in flight.
            pings.idle_after(found)
        }
    };
    let runtime = Runtime::builder().budget_bytes(BUDGET_BYTES).pings(pings).build();
    runtime.map_err(|status| format!("no runtime: {status}"))
}

/// A client that is connected.
fn connect(runtime: &Runtime, args: &Args) -> Result<Channel, String> {
    let channel = Channel::builder(&args.address).runtime(runtime).connect_timeout(PATIENCE);
    block_on(channel.connect()).map_err(|status| format!("no connection: {status}"))
}

/// Prints a line for whoever reads this process.
fn say(line: &str) {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    // A reader that is gone closes this process's input too.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
