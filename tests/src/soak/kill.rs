use std::time::{Duration, Instant};

use super::args::Args;
use super::child::Process;
use super::kernel::Kernel;
use super::{PATIENCE, rider, say};

/// Calls in flight have ended this long after their server was killed. Its kernel closes the control
/// connection at once; the rest is for an emulated machine that does other things too.
const ENDED_WITHIN: Duration = Duration::from_secs(20);

/// `soak kill`: the server killed so many times under one client, then clients under one server.
pub(super) fn run(args: &Args) -> Result<(), String> {
    let before = Kernel::read();
    kill_servers(args)?;
    before.is_back()?;
    kill_clients(args)?;
    before.is_back()
}

fn kill_servers(args: &Args) -> Result<(), String> {
    let (mut server, client, address) = Process::server_and_rider(args)?;
    let mut first = None;
    for round in 1..=args.rounds {
        server = kill_server(args, server, &address, &client, &mut first, round)
            .map_err(|wrong| format!("server {round} killed: {wrong}"))?;
    }
    client.line(rider::ROUND, PATIENCE)?;
    client.end()?;
    server.at_rest()?;
    server.end()
}

/// Kills a server under load; the one that takes its place.
fn kill_server(
    args: &Args,
    mut server: Process,
    address: &str,
    client: &Process,
    first: &mut Option<Kernel>,
    round: u32,
) -> Result<Process, String> {
    client.skip();
    client.line(rider::ROUND, PATIENCE)?;
    let killed = Instant::now();
    server.kill()?;
    let ended = client.line(rider::ENDED, ENDED_WITHIN)?;
    say(&format!("server {round} killed: calls ended in {} ms: {ended}", ms_since(killed)));
    client.line(rider::CLEAR, PATIENCE)?;
    // Only the client is there, and it holds nothing: as after the first round.
    first.get_or_insert_with(Kernel::read).is_back()?;
    let (server, _) = Process::server(args, address)?;
    let back = client.line(rider::BACK, PATIENCE)?;
    say(&format!("server {round} is back: {back}"));
    Ok(server)
}

fn kill_clients(args: &Args) -> Result<(), String> {
    let (mut server, port) = Process::server(args, &args.address)?;
    let mut first = None;
    for round in 1..=args.rounds {
        kill_client(args, &mut server, port, &mut first, round)
            .map_err(|wrong| format!("client {round} killed: {wrong}"))?;
    }
    server.end()
}

/// Kills a client in the middle of its calls, and waits until the server is rid of it.
fn kill_client(
    args: &Args,
    server: &mut Process,
    port: u16,
    first: &mut Option<Kernel>,
    round: u32,
) -> Result<(), String> {
    let mut client = Process::rider(args, port, args.seed + u64::from(round))?;
    client.line(rider::ROUND, PATIENCE)?;
    let killed = Instant::now();
    client.kill()?;
    server.at_rest()?;
    say(&format!("client {round} killed: the server is at rest in {} ms", ms_since(killed)));
    first.get_or_insert_with(Kernel::read).is_back()
}

fn ms_since(began: Instant) -> u128 {
    began.elapsed().as_millis()
}
