//! What calls cost the device's queues.

use std::time::{Duration, Instant};

use rpc_core::{LocalRuntime, Runtime, block_on};
use rpc_tests::devices::counters;
use rpc_tests::{Quiescence, eventually, local_ops_stand_alone};

use crate::fixture::{PAYLOADS, SETTLE, Served, blob, let_connections_end, together};

#[test]
fn of_small_sends_only_every_sixteenth_has_a_completion() {
    /// What is long, as the first SEND of a connection, or waited for.
    const OTHERS: u64 = 4;
    if local_ops_stand_alone() {
        println!("skipped of_small_sends: the last SEND of each flush is signaled here");
        return;
    }
    let mut quiescence = Quiescence::begin();
    let server = quiescence.runtime(Runtime::builder());
    let client = quiescence.runtime(Runtime::builder());
    let served = Served::start(&server);
    let probe = served.client(&client);
    for _ in 0..320 {
        block_on(probe.echo(blob(0, 17))).unwrap();
    }
    let queues = || client.stats().cores[0].queues;
    // The core shows its numbers once a millisecond, and before it sleeps.
    let shown = || queues().requests >= 320 && queues().completions >= counters(&client).recvs;
    assert!(eventually(Duration::from_secs(10), shown), "{:?}", queues());
    let own = queues().completions - counters(&client).recvs;
    assert!(own <= queues().requests / 16 + OTHERS, "{own} of its own: {:?}", queues());
    assert!(queues().send_doorbells <= queues().requests, "{:?}", queues());
    drop((probe, served, server, client));
    quiescence.end();
}

#[test]
fn a_large_message_goes_out_behind_any_number_of_small_ones() {
    let mut quiescence = Quiescence::begin();
    let server = quiescence.runtime(Runtime::builder());
    let client = quiescence.runtime(Runtime::builder());
    let served = Served::start(&server);
    let probe = served.client(&client);
    for small in 0..18 {
        for _ in 0..small {
            block_on(probe.echo(blob(0, 17))).unwrap();
        }
        let echoed = block_on(probe.echo(blob(1, 200_000))).unwrap();
        assert_eq!(PAYLOADS.check(1, 200_000, &echoed.get_ref().data), Ok(()));
    }
    drop((probe, served, server, client));
    quiescence.end();
}

/// Turns the core until no SEND of it holds a buffer.
fn rest(local: &mut LocalRuntime) -> bool {
    let end = Instant::now() + SETTLE;
    while Instant::now() < end {
        let _ = local.turn();
        if local.prepare_to_sleep() && local.runtime().stats().cores[0].send_buffers == 0 {
            return true;
        }
    }
    false
}

#[test]
fn connections_at_rest_hold_no_buffers_of_sends_however_many_they_are() {
    /// More than are served at once by one core's buffers, were each to keep what a window holds.
    const CONNECTIONS: usize = 48;
    /// One of them nearly fills a SEND, and is not posted inline.
    const LONG_BYTES: usize = 8_700;
    const SHORT_BYTES: usize = 100;
    let mut quiescence = Quiescence::begin();
    let server = quiescence.runtime(Runtime::builder());
    let served = Served::start(&server);
    let mut client = Runtime::builder().rnr_retry(0).on_this_thread().unwrap();
    quiescence.watch(client.runtime());
    let runtime = client.runtime().clone();
    let connecting = (0..CONNECTIONS)
        .map(|_| rpc_core::Channel::builder(&served.address).runtime(&runtime).connect());
    let channels = client.block_on(together(connecting));
    let probes: Vec<_> = channels
        .into_iter()
        .map(|channel| crate::fixture::ProbeClient::new(channel.unwrap()))
        .collect();
    // Calls that begin in one turn leave in one chain. With one more short call behind the long ones, sooner or
    // later the last SEND of a chain is inline and those before it are not, and nothing follows.
    for (long, short) in (1..=3).flat_map(|long| (0..=6).map(move |short| (long, short))) {
        let calls = probes.iter().flat_map(|probe| {
            let lens = std::iter::repeat_n(LONG_BYTES, long)
                .chain(std::iter::repeat_n(SHORT_BYTES, short));
            lens.map(move |len| probe.echo(blob(0, len)))
        });
        for answer in client.block_on(together(calls)) {
            answer.unwrap();
        }
        let held = |runtime: &Runtime| runtime.stats().cores[0].send_buffers;
        assert!(rest(&mut client), "{} behind {long} and {short}", held(&runtime));
        assert!(
            eventually(SETTLE, || held(&server) == 0),
            "{} of the server's behind {long} and {short}",
            held(&server)
        );
    }
    drop((probes, served, server, runtime));
    let_connections_end(&mut client);
    drop(client);
    quiescence.end();
}
