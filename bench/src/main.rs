//! Measures this framework.
//!
//! `cargo run --release -p bench -- instructions` counts the instructions of a call, which do not
//! depend on how busy the machine is.

#![forbid(unsafe_code)]

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
    /// The calls that `instructions` counts.
    #[command(hide = true)]
    Step(instructions::step::Options),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Instructions(options) => instructions::run(&options),
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
