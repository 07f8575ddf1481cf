use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::cli::{Cli, Command, CompletionsArgs};
use crate::failure::{Exit, Failure, out};
use crate::{bench, check, demo, doctor, log, ops, serve, stats, transfer, tree};

/// The program `kv`: reads the command line, does what it says, and tells how that ended.
pub fn main() -> ExitCode {
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
        Command::Check(args) => check::run(&args),
        Command::Stats(args) => stats::run(&args),
        Command::Doctor(args) => doctor::run(&args),
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
