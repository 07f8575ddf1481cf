use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use super::args::Args;
use super::child::Process;
use super::{PATIENCE, rider, say};

/// Calls in flight have ended this long after the network was cut: soft-RoCE's retries take about
/// fifteen seconds as it is used here, and the control connection gives its peer up after twenty.
const ENDED_WITHIN: Duration = Duration::from_secs(40);

/// `soak outage`: the network between a server and a client goes away and comes back.
pub(super) fn run(args: &Args) -> Result<(), String> {
    let (mut server, port) = Process::server(args, &args.address)?;
    let client = Process::rider(args, port, args.seed)?;
    for round in 1..=args.rounds {
        let (took, ended, back) = cut_once(args, &client)
            .inspect_err(|_| drop(shell(&args.mend)))
            .map_err(|wrong| format!("outage {round}: {wrong}"))?;
        say(&format!("outage {round}: calls ended in {} ms: {ended}", took.as_millis()));
        say(&format!("outage {round}: over: {back}"));
    }
    client.line(rider::ROUND, PATIENCE)?;
    client.end()?;
    server.at_rest()?;
    server.end()
}

fn cut_once(args: &Args, client: &Process) -> Result<(Duration, String, String), String> {
    client.skip();
    client.line(rider::ROUND, PATIENCE)?;
    let began = Instant::now();
    shell(&args.cut)?;
    let ended = client.line(rider::ENDED, ENDED_WITHIN)?;
    let took = began.elapsed();
    client.line(rider::CLEAR, PATIENCE)?;
    thread::sleep(args.down); // The length of the outage, as asked for.
    shell(&args.mend)?;
    let back = client.line(rider::BACK, PATIENCE)?;
    Ok((took, ended, back))
}

fn shell(command: &str) -> Result<(), String> {
    match Command::new("sh").args(["-c", command]).status() {
        Ok(status) if status.success() => Ok(()),
        ended => Err(format!("{command:?} failed: {ended:?}")),
    }
}
