//! Measures this framework.
//!
//! `cargo run --release -p bench -- instructions` counts the instructions of a call, which do not
//! depend on how busy the machine is. `cargo run --release -p bench -- compare` measures it beside tonic
//! and raw sockets.

#![forbid(unsafe_code)]

#[cfg(feature = "compare")]
mod compare;
mod echo;
mod failure;
mod instructions;

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
    /// One process of a comparison.
    #[cfg(feature = "compare")]
    #[command(hide = true)]
    Peer(compare::child::Options),
    /// The calls that `instructions` counts.
    #[command(hide = true)]
    Step(instructions::step::Options),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Instructions(options) => instructions::run(&options),
        #[cfg(feature = "compare")]
        Command::Compare(options) => compare::run(&options),
        #[cfg(feature = "compare")]
        Command::Peer(options) => compare::child::run(&options),
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
