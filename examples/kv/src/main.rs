//! A key-value service: `kv serve`, the commands that call it, and `kv demo`, which shows it at work.

mod bench;
mod cli;
mod demo;
mod failure;
mod files;
mod limits;
mod log;
mod ops;
mod patience;
mod random;
mod serve;
mod service;
mod stats;
mod stop;
mod store;
mod text;
mod token;
mod transfer;
mod tree;
mod watch;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::cli::{Cli, Command, CompletionsArgs};
use crate::failure::{Exit, Failure, out};

/// The messages and stubs that the build makes from the `.proto`.
#[allow(missing_docs)]
pub mod kv {
    rpc_core::include_proto!("kv.v1");
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    log::to_stderr(cli.verbose);
    let done = match cli.command {
        Command::Serve(args) => serve::run(&args),
        Command::Get(args) => ops::get(&args),
        Command::Put(args) => ops::put(&args),
        Command::Delete(args) => ops::delete(&args),
        Command::Mget(args) => ops::mget(&args),
        Command::Mput(args) => ops::mput(&args),
        Command::List(args) => ops::list(&args),
        Command::Load(args) => transfer::command::load(&args),
        Command::Verify(args) => transfer::command::verify(&args),
        Command::Stats(args) => stats::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Completions(args) => completions(&args),
        Command::MakeTree(args) => tree::run(&args),
    };
    match done {
        Ok(exit) => exit.into(),
        Err(failure) => failure.report(),
    }
}

/// `kv completions`
fn completions(args: &CompletionsArgs) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "kv", &mut script);
    out(&script)?;
    Ok(Exit::Done)
}
