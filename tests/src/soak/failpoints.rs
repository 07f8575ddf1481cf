use std::time::{Duration, Instant};

use rpc_core::failpoint::Point;

use super::args::Args;
use super::child::Process;
use super::kernel::Kernel;
use super::log::Log;
use super::{PATIENCE, pattern, rider, say};

/// Calls of a peer that killed itself have ended after this.
const ENDED_WITHIN: Duration = Duration::from_secs(1);

/// A point is passed at most so often before: contexts differ, and even the rare ones come.
const TIMES_MAX: u64 = 12;

/// Where a server can die.
const OF_SERVERS: [Point; 11] = [
    Point::HelloSent,
    Point::QpReady,
    Point::Installed,
    Point::HandlerRunning,
    Point::ReplySent,
    Point::ReadPosted,
    Point::ReadDone,
    Point::ReleaseSent,
    Point::NoCredits,
    Point::Idle,
    Point::Draining,
];

/// Where a client can die.
const OF_CLIENTS: [Point; 11] = [
    Point::HelloSent,
    Point::QpReady,
    Point::Installed,
    Point::RequestSent,
    Point::ReadPosted,
    Point::ReadDone,
    Point::ReleaseSent,
    Point::CancelSent,
    Point::NoCredits,
    Point::Idle,
    Point::Draining,
];

/// `soak failpoints`: servers under one client and clients under one server, each dying at its point.
pub(super) fn run(args: &Args) -> Result<(), String> {
    let path = std::env::temp_dir().join(format!("soak-failpoints-{}", std::process::id()));
    let args = Args { log: Some(path.clone()), cancels: true, ..args.clone() };
    let done = Log::append(&path)
        .map_err(|error| error.to_string())
        .and_then(|_| servers(&args))
        .and_then(|()| clients(&args))
        .and_then(|()| Log::read(&path).map(drop));
    let _ = std::fs::remove_file(path); // in the folder for such files
    done
}

/// The point of a round, and how often it is passed before.
fn draw(args: &Args, points: &[Point], round: u32) -> (Point, u64) {
    let point = points[round as usize % points.len()];
    let times_max = match point {
        // Once in the life of a connection.
        Point::HelloSent | Point::QpReady | Point::Installed | Point::Draining => 1,
        // Until it was lent what it needs.
        Point::NoCredits => 2,
        _ => TIMES_MAX,
    };
    (point, 1 + pattern::mix(args.seed ^ u64::from(round)) % times_max)
}

fn servers(args: &Args) -> Result<(), String> {
    let (mut server, client, address) = Process::server_and_rider(args)?;
    client.line(rider::ROUND, PATIENCE)?;
    server.kill()?;
    client.line(rider::CLEAR, PATIENCE)?;
    let (baseline, of_client) = (Kernel::read(), client.outside()?);
    for round in 0..args.rounds {
        let (point, times) = draw(args, &OF_SERVERS, round);
        let told = kill_server(args, &address, &client, point, times)
            .and_then(|told| baseline.is_back().map(|()| told))
            .and_then(|told| client.is_back_to(of_client).map(|()| told))
            .map_err(|wrong| format!("server at {} ({times}): {wrong}", point.name()))?;
        say(&format!("server died at {} ({times}): {told}", point.name()));
    }
    let (mut server, _) = Process::server(args, &address)?;
    client.line(rider::BACK, PATIENCE)?;
    client.line(rider::ROUND, PATIENCE)?;
    client.end()?;
    server.at_rest()?;
    server.end()
}

/// Starts a server that dies, and judges what its client says of it.
fn kill_server(
    args: &Args,
    address: &str,
    client: &Process,
    point: Point,
    times: u64,
) -> Result<String, String> {
    client.skip();
    let (mut server, _) = Process::server_that(args, address, Some((point.name(), times)))?;
    let drains = point == Point::Draining;
    if drains {
        client.line(rider::ROUND, PATIENCE)?;
        server.ask_to_end();
    }
    server.has_killed_itself(PATIENCE)?;
    let died = Instant::now();
    // The second, as the first may tell of a call that had failed before.
    let mut said = client.all_until(rider::PROBE, died, PATIENCE)?;
    said.extend(client.all_until(rider::PROBE, died, PATIENCE)?);
    let said_of = |begins: &str| said.iter().find(|(_, line)| line.starts_with(begins));
    if said_of(rider::BACK).is_none() && !drains {
        return Ok("before its first answer".into());
    }
    let Some((at, ended)) = said_of(rider::ENDED) else {
        return Err(format!("its client lost nothing: {said:?}"));
    };
    let took = at.saturating_duration_since(died);
    if took > ENDED_WITHIN {
        return Err(format!("calls ended only after {took:?}: {ended}"));
    }
    if said_of(rider::CLEAR).is_none() {
        return Err(format!("something of it is left: {said:?}"));
    }
    Ok(format!("calls ended in {} ms: {ended}", took.as_millis()))
}

fn clients(args: &Args) -> Result<(), String> {
    let (mut server, port) = Process::server(args, &args.address)?;
    // With its first client the server begins to listen for links of devices, and goes on with that.
    let mut client = Process::rider(args, port, args.seed + 1 + u64::from(args.rounds))?;
    client.line(rider::ROUND, PATIENCE)?;
    client.kill()?;
    server.at_rest()?;
    let (baseline, of_server) = (Kernel::read(), server.outside()?);
    for round in 0..args.rounds {
        let (point, times) = draw(args, &OF_CLIENTS, round);
        let seed = args.seed + 1 + u64::from(round);
        let mut client = Process::rider_that(args, port, seed, Some((point.name(), times)))?;
        let of = |wrong| format!("client at {} ({times}): {wrong}", point.name());
        if point == Point::Draining {
            client.line(rider::ROUND, PATIENCE).map_err(of)?;
            client.ask_to_end();
        }
        client.has_killed_itself(PATIENCE).map_err(of)?;
        let died = Instant::now();
        server.at_rest().map_err(of)?;
        let took = died.elapsed();
        if took > ENDED_WITHIN {
            return Err(of(format!("the server was rid of it only after {took:?}")));
        }
        say(&format!(
            "client died at {} ({times}): the server is at rest in {} ms",
            point.name(),
            took.as_millis()
        ));
        baseline.is_back().and_then(|()| server.is_back_to(of_server)).map_err(of)?;
    }
    server.end()
}
