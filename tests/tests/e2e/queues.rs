//! What calls cost the device's queues.

use std::time::Duration;

use rpc_core::{Runtime, block_on};
use rpc_tests::devices::counters;
use rpc_tests::{Quiescence, eventually, local_ops_stand_alone};

use crate::fixture::{PAYLOADS, Served, blob};

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
