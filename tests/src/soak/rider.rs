use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rpc_core::{Channel, ChannelState, CoreStats, Runtime, RuntimeStats};

use super::args::Args;
use super::service::SoakClient;
use super::tally::Tally;
use super::{PATIENCE, connect, load, runtime, say};
use crate::eventually;
use crate::quiescence::left_of;

/// What a rider says: a round of calls has succeeded…
pub(super) const ROUND: &str = "round ";
/// …a call failed, and those in flight have ended…
pub(super) const ENDED: &str = "ended ";
/// …nothing of the lost connection is left…
pub(super) const CLEAR: &str = "clear";
/// …the same channel carries calls again.
pub(super) const BACK: &str = "back ";

/// …a call to find the server again has failed.
pub(super) const PROBE: &str = "probe ";

/// Calls of a round: some of each size.
const ROUND_CALLS: u64 = 60;

/// Between two attempts to reach a server that was lost.
const PROBE_PAUSE: Duration = Duration::from_millis(50);

/// `soak ride`: one channel for as long as it goes, whatever becomes of the server.
pub(super) fn run(args: &Args) -> Result<(), String> {
    let stop = Arc::new(AtomicBool::new(false));
    let of_reader = Arc::clone(&stop);
    thread::spawn(move || {
        // Whatever comes is dropped; the end of it is the sign.
        let _ = std::io::stdin().lock().read_to_end(&mut Vec::new());
        of_reader.store(true, Ordering::Relaxed);
        // Calls have no deadline here, so a call that hangs would keep the process.
        thread::sleep(PATIENCE); // The time limit itself.
        eprintln!("soak: calls hang; ending without them");
        std::process::exit(1);
    });
    let runtime = runtime(args)?;
    let channel = connect(&runtime, args)?;
    let client = SoakClient::new(channel.clone());
    let mut first = 0;
    while !stop.load(Ordering::Relaxed) {
        let tally = load::run(&client, args, first, ROUND_CALLS);
        first += ROUND_CALLS;
        if tally.failures() == 0 {
            tally.all_right()?;
            is_true(args, &tally)?;
            say(&format!("{ROUND}{tally}"));
            continue;
        }
        lost(&runtime, &channel, args, &tally)?;
        if !back(&client, args, first, &stop)? {
            break;
        }
        first += PROBES_MAX;
    }
    drop((client, channel));
    at_rest(&runtime, || false)
}

/// Judges how the calls ended, and waits until nothing of the connection is left.
fn lost(runtime: &Runtime, channel: &Channel, args: &Args, tally: &Tally) -> Result<(), String> {
    tally.lost_only()?;
    is_true(args, tally)?;
    say(&format!("{ENDED}{tally}"));
    // A call that began after the loss may have found the server again, if that lives.
    at_rest(runtime, || channel.state() == ChannelState::Ready && has_one_idle(&runtime.stats()))?;
    say(CLEAR);
    Ok(())
}

/// Compares verdicts with what the servers have carried out, if they write that down.
fn is_true(args: &Args, tally: &Tally) -> Result<(), String> {
    args.log.as_ref().map_or(Ok(()), |log| tally.is_true(args.seed, log))
}

/// Whether nothing is left but one connection that does nothing.
fn has_one_idle(stats: &RuntimeStats) -> bool {
    let sum = |count: fn(&CoreStats) -> u32| stats.cores.iter().map(count).sum::<u32>();
    let memory = &stats.memory;
    sum(|core| core.connections) == 1
        && sum(|core| core.leases) == 0
        && (memory.inbound, memory.outbound, memory.held_by_users) == (0, 0, 0)
}

fn at_rest(runtime: &Runtime, or: impl Fn() -> bool) -> Result<(), String> {
    let left = || left_of(&runtime.stats());
    if eventually(PATIENCE, || left().is_empty() || or()) {
        return Ok(());
    }
    Err(format!("left of a lost connection: {}", left().join("; ")))
}

/// Indices that attempts to reach the server may use.
const PROBES_MAX: u64 = 1 << 20;

/// Calls until one succeeds; false if it was told to stop before.
fn back(client: &SoakClient, args: &Args, first: u64, stop: &AtomicBool) -> Result<bool, String> {
    let began = Instant::now();
    let mut failures = Tally::default();
    for index in first..first + PROBES_MAX {
        let mut tally = Tally::default();
        load::call(client, args, index, &mut tally);
        failures.add(&tally);
        failures.lost_only()?;
        is_true(args, &tally)?;
        if tally.right > 0 {
            say(&format!("{BACK}{failures} ms={}", began.elapsed().as_millis()));
            return Ok(true);
        }
        if stop.load(Ordering::Relaxed) {
            return Ok(false);
        }
        say(&format!("{PROBE}{tally}"));
        thread::sleep(PROBE_PAUSE); // Paces the attempts; how long it is decides nothing.
    }
    Err(format!("the server does not come back: {failures}"))
}
