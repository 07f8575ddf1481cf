//! Every parser of a peer's bytes, and the connection's state machine, under arbitrary input.
//!
//! ```text
//! rpc-fuzz [TARGET ..]                   the corpus and a fixed number of inputs of a fixed seed
//! rpc-fuzz --seconds N [TARGET ..]       the corpus and inputs of a new seed, so long for each
//! rpc-fuzz --replay TARGET FILE ..       these inputs
//! rpc-fuzz --list                        the targets
//! ```
//!
//! Built with `--cfg fuzzing_libfuzzer` it is a libFuzzer program for the target that the variable
//! `RPC_FUZZ_TARGET` names; `tests/fuzz` builds and runs that.
//!
//! A target is a function of bytes that panics when a property does not hold. It takes its input
//! twice: as what a peer sent, and as a recipe of a message that is well-formed at first and then
//! spoilt. So a captured message and a generator's output are the same kind of thing, and one corpus
//! serves every engine.

#![forbid(unsafe_code)]

mod connection;
mod engine;
mod heap;
mod input;
mod random;
mod recipe;
mod run;
mod targets;

use std::process::ExitCode;
use std::time::Duration;

use run::Run;
use targets::{TARGETS, Target};

/// The seed of the fixed run. Any would do; it must not change without a reason, so that two runs
/// of one commit try the same.
const SEED: u64 = 0x7270_6366_757a_7a01;

const USE: &str = "use: rpc-fuzz [--seconds N] [TARGET ..] | --replay TARGET FILE .. | --list";

fn main() -> ExitCode {
    #[cfg(fuzzing_libfuzzer)]
    if let Ok(name) = std::env::var("RPC_FUZZ_TARGET") {
        return run::libfuzzer(&name);
    }
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match args[..] {
        ["--list"] => {
            TARGETS.iter().for_each(|target| println!("{}", target.name));
            Ok(true)
        }
        ["--replay", name, ref files @ ..] => run::replay(name, files),
        ["--seconds", seconds, ref names @ ..] => for_a_time(seconds, names),
        ref names if names.iter().all(|name| !name.starts_with('-')) => fixed(names),
        _ => Err(USE.to_owned()),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("rpc-fuzz: {message}");
            ExitCode::FAILURE
        }
    }
}

fn fixed(names: &[&str]) -> Result<bool, String> {
    all(names, &Run { seed: SEED, each: None })
}

fn for_a_time(seconds: &str, names: &[&str]) -> Result<bool, String> {
    let seconds = seconds.parse().map_err(|_| format!("'{seconds}' is no number of seconds"))?;
    let seed = run::new_seed();
    println!("seed {seed}");
    all(names, &Run { seed, each: Some(Duration::from_secs(seconds)) })
}

fn all(names: &[&str], run: &Run) -> Result<bool, String> {
    let chosen = match names {
        [] => TARGETS.iter().collect(),
        names => names.iter().map(|name| Target::named(name)).collect::<Result<Vec<_>, _>>()?,
    };
    Ok(run.all(&chosen))
}
