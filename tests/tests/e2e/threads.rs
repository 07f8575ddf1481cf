//! Threads, and what an idle process costs.

use std::fs;
use std::time::Duration;

use rpc_core::{Channel, Runtime, block_on};
use rpc_tests::{Place, ProcSelf, Quiescence, eventually};

use crate::fixture::{ProbeClient, Served, blob};

/// The framework's threads in this process, by name.
fn framework_threads() -> Vec<(String, usize)> {
    let threads = ProcSelf::read().unwrap().threads;
    threads.into_iter().filter(|(name, _)| name.starts_with("rpc-")).collect()
}

fn expected(names: &[(&str, usize)]) -> Vec<(String, usize)> {
    names.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

#[test]
fn a_process_has_a_thread_for_each_core_and_one_more_with_1_and_with_500_connections() {
    let mut quiescence = Quiescence::within(Duration::from_secs(120));
    let server = quiescence.runtime(Runtime::builder().cores(2));
    let client = quiescence.runtime(Runtime::builder());
    let served = Served::start(&server);
    // Two runtimes: their first cores and their control threads share names.
    let threads = expected(&[("rpc-control", 2), ("rpc-core-0", 2), ("rpc-core-1", 1)]);
    let mut channels = vec![served.channel(&client)];
    let named = || framework_threads() == threads;
    assert!(eventually(Duration::from_secs(10), named), "{:?}", framework_threads());
    // A queue pair takes a guest long to make.
    let (rounds, each) = if Place::here().is_soft() { (8, 64) } else { (2, 8) };
    for _ in 0..rounds {
        let channel =
            Channel::builder(&served.address).runtime(&client).connections_per_core(each).connect();
        channels.push(block_on(channel).unwrap());
    }
    let connections: u32 = server.stats().cores.iter().map(|core| core.connections).sum();
    assert_eq!(connections as usize, 1 + rounds * each);
    assert_eq!(framework_threads(), threads);
    for channel in &channels {
        block_on(ProbeClient::new(channel.clone()).echo(blob(0, 17))).unwrap();
    }
    assert_eq!(framework_threads(), threads);
    drop((channels, served, server, client));
    quiescence.end();
}

/// CPU time of this process in the kernel's ticks, of which there are 100 in a second.
fn cpu_ticks() -> u64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    // Fields 14 and 15; the second may hold spaces, and ends with the last bracket.
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

/// How often the framework's threads went to sleep so far.
fn sleeps() -> u64 {
    let threads = fs::read_dir("/proc/self/task").unwrap();
    let sleeps = threads.filter_map(|thread| {
        let status = fs::read_to_string(thread.ok()?.path().join("status")).ok()?;
        status.starts_with("Name:\trpc-").then_some(())?;
        let line = status.lines().find_map(|l| l.strip_prefix("voluntary_ctxt_switches:"))?;
        line.trim().parse::<u64>().ok()
    });
    sleeps.sum()
}

#[test]
fn idle_cores_sleep_and_use_next_to_no_cpu_time() {
    /// Less than 20 ms in a second.
    const TICKS_MAX: u64 = 2;
    /// Wakes of four threads in a second: a ping now and then, not a poll.
    const SLEEPS_MAX: u64 = 40;
    if Place::here().skips("CPU time of an emulated machine is no measure") {
        return;
    }
    let mut quiescence = Quiescence::begin();
    let server = quiescence.runtime(Runtime::builder());
    let client = quiescence.runtime(Runtime::builder());
    let served = Served::start(&server);
    let probe = served.client(&client);
    block_on(probe.echo(blob(0, 300))).unwrap();
    let mut windows = Vec::new();
    let idle = (0..5).any(|_| {
        let before = (cpu_ticks(), sleeps());
        // The second that is measured; nothing is waited for.
        std::thread::sleep(Duration::from_secs(1));
        let used = (cpu_ticks() - before.0, sleeps() - before.1);
        windows.push(used);
        used.0 < TICKS_MAX && used.1 < SLEEPS_MAX
    });
    assert!(idle, "(CPU ticks, sleeps) in each of five idle seconds: {windows:?}");
    for runtime in [&server, &client] {
        assert_eq!(runtime.stats().cores[0].lost_wakeups, 0);
    }
    drop((probe, served, server, client));
    quiescence.end();
}
