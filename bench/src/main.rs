//! Measures this framework.
//!
//! `cargo run --release -p bench -- instructions` counts the instructions of a call, which do not
//! depend on how busy the machine is. `cargo run --release -p bench -- compare` measures it beside tonic
//! and raw sockets; `share`, `peers` and `restarts` show what many clients do to a server and to each other.

#![forbid(unsafe_code)]

#[cfg(feature = "compare")]
mod compare;
#[cfg(feature = "compare")]
mod crowd;
mod echo;
mod failure;
mod instructions;
#[cfg(feature = "verbs")]
mod verbs;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Measures this framework.
#[derive(Parser)]
#[command(name = "bench")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Instructions per unary call of 64 bytes, by callgrind; fails if they grew by more than 5 %.
    Instructions(instructions::Options),
    /// This framework beside tonic and raw sockets, in alternating rounds.
    #[cfg(feature = "compare")]
    Compare(compare::Options),
    /// The p99 of a fast call beside a flood of slow ones; fails if it is more than 3 times that alone.
    #[cfg(feature = "compare")]
    Share(crowd::ShareOptions),
    /// A thousand connections to one server: memory, evenness over cores, latency.
    #[cfg(feature = "compare")]
    Peers(crowd::PeersOptions),
    /// A server that is killed and started again under many clients.
    #[cfg(feature = "compare")]
    Restarts(crowd::RestartsOptions),
    /// A process beside one of those three.
    #[cfg(feature = "compare")]
    #[command(hide = true)]
    CrowdChild(crowd::child::Options),
    /// This framework over libibverbs beside raw verbs, UCX and others, in alternating rounds.
    #[cfg(feature = "verbs")]
    Verbs(verbs::Options),
    /// The same, which takes a build with the feature `verbs`.
    #[cfg(not(feature = "verbs"))]
    Verbs(Absent),
    /// One process of that.
    #[cfg(feature = "verbs")]
    #[command(hide = true)]
    VerbsChild(verbs::child::Options),
    /// One process of a comparison.
    #[cfg(feature = "compare")]
    #[command(hide = true)]
    Peer(compare::child::Options),
    /// The calls that `instructions` counts.
    #[command(hide = true)]
    Step(instructions::step::Options),
}

/// Whatever is asked of what was not built.
#[cfg(not(feature = "verbs"))]
#[derive(clap::Args)]
struct Absent {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _options: Vec<String>,
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Instructions(options) => instructions::run(&options),
        #[cfg(feature = "compare")]
        Command::Compare(options) => compare::run(&options),
        #[cfg(feature = "compare")]
        Command::Share(options) => crowd::share(&options),
        #[cfg(feature = "compare")]
        Command::Peers(options) => crowd::peers(&options),
        #[cfg(feature = "compare")]
        Command::Restarts(options) => crowd::restarts(&options),
        #[cfg(feature = "compare")]
        Command::CrowdChild(options) => crowd::child::run(&options),
        #[cfg(feature = "compare")]
        Command::Peer(options) => compare::child::run(&options),
        #[cfg(feature = "verbs")]
        Command::Verbs(options) => verbs::run(&options),
        #[cfg(not(feature = "verbs"))]
        Command::Verbs(_) => Err(failure::Failure::new(
            "this program is built without the feature `verbs`: cargo run --profile release-lto -p bench \
             --no-default-features --features verbs -- verbs",
        )),
        #[cfg(feature = "verbs")]
        Command::VerbsChild(options) => verbs::child::run(&options),
        Command::Step(options) => instructions::step::run(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("bench: {failure}");
            ExitCode::FAILURE
        }
    }
}
