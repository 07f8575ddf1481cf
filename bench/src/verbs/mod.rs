//! This framework beside what the device itself can do: raw verbs by perftest, UCX's transports, and other
//! frameworks, in turn within one run. Boots of a machine differ by more than any of them do, so only ratios of
//! one run mean something.

pub(crate) mod child;
mod model;
mod peers;
mod place;
mod report;
mod service;
mod tool;
mod trace;

use std::io::{BufRead, BufReader, Read};
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use self::peers::PEERS;
use self::place::{Place, Wanted};
use self::report::Report;
use self::tool::{Ends, TOOLS, Tool};
use self::trace::Traces;
use crate::compare::cells::Value;
use crate::compare::machine;
use crate::failure::Failure;

/// Rounds at least, for a median and a range that mean something.
const ROUNDS: usize = 5;
/// A server that is told to end has ended by then.
const ENDED_WITHIN: Duration = Duration::from_secs(30);

#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    wanted: Wanted,
    /// Rounds in which each has its turn.
    #[arg(long, default_value_t = ROUNDS)]
    rounds: usize,
    /// Time for each of this framework's cells, in milliseconds.
    #[arg(long, default_value_t = 500)]
    millis: u64,
    /// Only this framework: no ratios.
    #[arg(long)]
    alone: bool,
    /// Ends with an error if an aim is missed.
    #[arg(long)]
    strict: bool,
    /// Writes every value of every round here.
    #[arg(long)]
    json: Option<PathBuf>,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let place = Place::find(&options.wanted)?;
    let cpus = two_cpus()?;
    let (tools, others) =
        if options.alone { (Vec::new(), None) } else { (tools(), other_frameworks(&place)) };
    let (rounds, millis) = (options.rounds.max(1), options.millis.max(1));
    let load = machine::load();
    let mut report = Report::default();
    for round in 0..rounds {
        for tool in &tools {
            report.add(round, tool.run(&place, cpus)?);
        }
        for ((program, address), peer) in
            others.iter().flat_map(|other| PEERS.map(|peer| (other, peer)))
        {
            match peers::run(program, peer, (&place.device, *address), cpus, millis) {
                Ok(values) => report.add(round, values),
                // What another's program does is not this framework's failure.
                Err(failure) => eprintln!("{peer}: {failure}"),
            }
        }
        report.add(round, software(cpus)?);
        report.add(round, ours(&place, cpus, millis, None)?);
        eprintln!("round {} of {rounds}, load {}", round + 1, machine::load());
    }
    report.add(rounds, system_calls(&place, cpus, millis)?);
    print!("{}", report.table());
    println!(
        "\n{}, CPUs {} and {}, {}, {rounds} rounds in turn, {millis} ms a cell; load average \
         {load} before, {} after. Server and client are processes, each kept to a CPU, polling.",
        machine::processor(),
        cpus[0],
        cpus[1],
        place.show(),
        machine::load(),
    );
    if let Some(path) = &options.json {
        std::fs::write(path, report.json().to_string())?;
    }
    let missed = report.missed();
    if options.strict && !missed.is_empty() {
        return Err(Failure::new(missed.join("; ")));
    }
    Ok(())
}

/// Those of the raw figures that are on this machine.
fn tools() -> Vec<&'static Tool> {
    let (there, absent): (Vec<&Tool>, Vec<&Tool>) = TOOLS.iter().partition(|tool| tool.is_there());
    for tool in absent {
        eprintln!(
            "{} is not on this machine: its rows are left out; apt-get install {}",
            tool.program, tool.package
        );
    }
    there
}

/// The program that other frameworks are in, and their address.
fn other_frameworks(place: &Place) -> Option<(PathBuf, IpAddr)> {
    let (program, address) = (peers::program(), peers::address(place));
    if program.is_none() {
        eprintln!(
            "bench-peers is not beside this program: the rows of other frameworks are left out; \
             cargo build --profile release-lto --manifest-path bench/peers/Cargo.toml --target-dir target"
        );
    } else if address.is_none() {
        eprintln!(
            "the rows of other frameworks are left out: they take a device's first port alone, and an IPv4 address \
             over RoCE v2"
        );
    }
    program.zip(address)
}

/// A CPU for the client and one for the server.
fn two_cpus() -> Result<[usize; 2], Failure> {
    match machine::cpus()?[..] {
        [first, .., last] => Ok([first, last]),
        [only] => Ok([only, only]),
        [] => Err(Failure::new("this process may use no CPU")),
    }
}

/// What of a call is CPU time alone.
fn software([_, cpu]: [usize; 2]) -> Result<Vec<Value>, Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["verbs-child", "--software", "--cpus", &cpu.to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    values_of(tool::spawn(&mut command, cpu)?)
}

/// System calls of each call, in a run that nothing else is measured in.
fn system_calls(place: &Place, cpus: [usize; 2], millis: u64) -> Result<Vec<Value>, Failure> {
    let Some(traces) = Traces::begin()? else {
        eprintln!(
            "strace is not on this machine: no system calls are counted; apt-get install strace"
        );
        return Ok(Vec::new());
    };
    // Whether a process may be traced is the machine's to say.
    let counted =
        ours(place, cpus, millis, Some(&traces)).and_then(|values| traces.per_call(&values));
    Ok(counted.unwrap_or_else(|failure| {
        eprintln!(
            "no system calls are counted: {failure}; does `strace true` work here? In a container it takes \
             --cap-add SYS_PTRACE"
        );
        Vec::new()
    }))
}

/// A round of this framework, its processes traced or not.
fn ours(
    place: &Place,
    [client, server]: [usize; 2],
    millis: u64,
    traces: Option<&Traces>,
) -> Result<Vec<Value>, Failure> {
    let command = |side: &str, cpu: usize| {
        let program = std::env::current_exe()?;
        let mut command =
            traces.map_or_else(|| Command::new(&program), |traces| traces.command(side, &program));
        command.args(["verbs-child", "--cpus", &cpu.to_string()]).stdout(Stdio::piped());
        Ok::<_, Failure>(command)
    };
    let mut serve = command("server", server)?;
    serve.args(["--serve", &place.url(0)]).stdin(Stdio::piped());
    let mut serving = tool::spawn(&mut serve, server)?;
    let output = serving.0.stdout.take().ok_or_else(|| Failure::new("the server has no output"))?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    let port: u16 = line.trim().parse().map_err(|_| Failure::new("the server said no port"))?;
    let mut call = command("client", client)?;
    call.args(["--call", &place.url(port), "--millis", &millis.to_string()]);
    call.args(["--server", &serving.0.id().to_string()]).stdin(Stdio::null());
    let values = values_of(tool::spawn(&mut call, client)?)?;
    if traces.is_some() {
        // It serves until its input ends; only then is all of its trace written.
        drop(serving.0.stdin.take());
        serving.wait_within(ENDED_WITHIN)?;
    }
    Ok(values)
}

/// What a child prints until it ends well.
fn values_of(mut child: Ends) -> Result<Vec<Value>, Failure> {
    let mut text = String::new();
    if let Some(mut output) = child.0.stdout.take() {
        output.read_to_string(&mut text)?;
    }
    let status = child.0.wait()?;
    if !status.success() {
        return Err(Failure::new(format!("a process of this framework failed: {status}")));
    }
    Ok(text.lines().filter_map(value).collect())
}

/// A line of a child: `name = value`.
fn value(line: &str) -> Option<Value> {
    let (name, value) = line.split_once(" = ")?;
    Some((name.to_owned(), value.parse().ok()?))
}
