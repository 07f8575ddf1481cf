use std::time::Instant;

use rustix::process::Signal;

use super::args::Args;
use super::child::Process;
use super::{PATIENCE, rider, say, server};

/// Clients that stand still at the same time: as many as could hold half of what a server may answer
/// with.
const CLIENTS: u64 = 4;

/// `soak stop`: the server stopped under a client, then clients under the server. Each is found by the
/// others while it stands still, and the connections that it comes back to are dead.
pub(super) fn run(args: &Args) -> Result<(), String> {
    let (mut server, port) = Process::server(args, &args.address)?;
    let client = Process::rider(args, port, args.seed)?;
    for round in 1..=args.rounds {
        stop_server(&server, &client, round)
            .map_err(|wrong| format!("server stopped, round {round}: {wrong}"))?;
    }
    client.end()?;
    server.at_rest()?;
    for round in 1..=args.rounds {
        stop_clients(args, &mut server, port)
            .map_err(|wrong| format!("clients stopped, round {round}: {wrong}"))?;
    }
    server.end()
}

fn stop_server(server: &Process, client: &Process, round: u32) -> Result<(), String> {
    client.skip();
    client.line(rider::ROUND, PATIENCE)?;
    let stopped = Instant::now();
    server.signal(Signal::STOP)?;
    let ended = client.line(rider::ENDED, PATIENCE)?;
    let found = stopped.elapsed().as_millis();
    say(&format!("server stopped {round}: calls ended in {found} ms: {ended}"));
    client.line(rider::CLEAR, PATIENCE)?;
    server.signal(Signal::CONT)?;
    let back = client.line(rider::BACK, PATIENCE)?;
    say(&format!("server resumed {round}: {back}"));
    client.line(rider::ROUND, PATIENCE).map(drop)
}

/// Stops clients in the middle of their calls; the server is rid of them while they stand still, and they
/// find that out for themselves when they go on.
fn stop_clients(args: &Args, server: &mut Process, port: u16) -> Result<(), String> {
    let riders = (1..=CLIENTS).map(|n| Process::rider(args, port, args.seed + n));
    let clients = riders.collect::<Result<Vec<_>, _>>()?;
    for client in &clients {
        client.line(rider::ROUND, PATIENCE)?;
    }
    let stopped = Instant::now();
    for client in &clients {
        client.signal(Signal::STOP)?;
    }
    let held = server.holds()?;
    if held == server::REST {
        return Err("the server holds nothing of clients that just called".into());
    }
    server.at_rest()?;
    let found = stopped.elapsed().as_millis();
    say(&format!("clients stopped: the server is at rest in {found} ms; before: {held}"));
    for client in &clients {
        client.skip();
        client.signal(Signal::CONT)?;
    }
    for client in clients {
        // Whatever it had in flight has failed; a whole round after that succeeds.
        client.line(rider::ROUND, PATIENCE)?;
        client.end()?;
    }
    server.at_rest()
}
