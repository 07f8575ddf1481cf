//! A key-value service: `kv serve`, the commands that call it, and `kv demo`, which shows it at work.

mod cli;
mod demo;
mod failure;
mod files;
mod limits;
mod ops;
mod serve;
mod service;
mod stats;
mod stop;
mod store;
mod tree;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};

/// The messages and stubs that the build makes from the `.proto`.
#[allow(missing_docs)]
pub mod kv {
    rpc_core::include_proto!("kv.v1");
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Serve(args) => serve::run(&args),
        Command::Get(args) => ops::get(&args),
        Command::Put(args) => ops::put(&args),
        Command::Delete(args) => ops::delete(&args),
        Command::Stats(args) => stats::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::MakeTree(args) => tree::run(&args),
    };
    match done {
        Ok(exit) => exit.into(),
        Err(failure) => failure.report(),
    }
}
