//! Connections that hold no more than the receives which are their own.

use std::thread;
use std::time::Duration;

use rpc_core::{Runtime, RuntimeBuilder, block_on};
use rpc_tests::devices::{counters, usage, usage_of};
use rpc_tests::{Place, Quiescence, credits_are_backed, eventually};

use crate::fixture::{Number, PAYLOADS, ProbeClient, SETTLE, Served, blob, links, together};

/// Peers may have one SEND under way, and one that only brings credits.
fn narrow(tcp: bool) -> RuntimeBuilder {
    Runtime::builder().tcp_links(tcp).receives_lent_max(0)
}

/// Receives of a connection that is lent none.
const GUARANTEED: u32 = 2;

#[test]
fn a_first_call_of_any_size_passes_on_a_connection_that_holds_only_its_guaranteed_receives() {
    for &tcp in links() {
        for len in [17, 9_216, 40_000, 1 << 20] {
            let mut quiescence = Quiescence::begin();
            let server = quiescence.runtime(narrow(tcp));
            let client = quiescence.runtime(narrow(tcp));
            let served = Served::start(&server);
            let probe = served.client(&client);
            let got = block_on(probe.echo(blob(1, len))).unwrap().into_inner().data;
            assert_eq!(PAYLOADS.check(1, len, &got), Ok(()), "tcp {tcp}, {len} bytes");
            for runtime in [&server, &client] {
                let posted = || usage(runtime).srq_wrs == GUARANTEED;
                assert!(eventually(SETTLE, posted), "{:?}", runtime.stats().cores[0]);
            }
            drop((got, probe, served, server, client));
            quiescence.end();
        }
    }
}

/// Calls with a few in flight at once, checked; every hundredth is large.
fn call_again_and_again(probe: &ProbeClient, calls: u64) {
    const TOGETHER: u64 = 50;
    for round in 0..calls / TOGETHER {
        let len = |index: u64| if (round + index).is_multiple_of(100) { 40_000 } else { 17 };
        let answers =
            block_on(together((0..TOGETHER).map(|index| probe.echo(blob(index, len(index))))));
        for (index, answer) in (0..).zip(answers) {
            let got = answer.unwrap().into_inner().data;
            assert_eq!(PAYLOADS.check(index, len(index), &got), Ok(()));
        }
    }
}

/// Two runtimes that call each other, `calls` times each way.
fn both_ways(quiescence: &mut Quiescence, tcp: bool, calls: u64) {
    let runtimes = [0, 1].map(|_| quiescence.runtime(narrow(tcp)));
    let served = [0, 1].map(|side: usize| Served::start(&runtimes[side]));
    let probes = [0, 1].map(|side: usize| served[1 - side].client(&runtimes[side]));
    thread::scope(|scope| {
        for probe in &probes {
            scope.spawn(|| call_again_and_again(probe, calls));
        }
    });
    for runtime in &runtimes {
        let at_rest = || {
            let stats = runtime.stats();
            usage_of(&stats).srq_wrs == 2 * GUARANTEED && credits_are_backed(&stats)
        };
        assert!(eventually(SETTLE, at_rest), "{:?}", runtime.stats().cores[0]);
        assert_eq!(counters(runtime).rnr_naks_sent, 0, "every SEND found its receive");
    }
}

#[test]
fn two_runtimes_that_call_each_other_with_windows_of_one_finish_100_000_calls_each_way() {
    let mut quiescence = Quiescence::within(Duration::from_secs(220));
    both_ways(&mut quiescence, false, Place::here().calls(100_000));
    quiescence.end();
}

#[test]
fn windows_of_one_pass_over_tcp_links_too() {
    let mut quiescence = Quiescence::within(Duration::from_secs(120));
    both_ways(&mut quiescence, true, Place::here().calls(10_000));
    quiescence.end();
}

#[test]
fn a_connection_that_needs_more_receives_is_lent_them() {
    let mut quiescence = Quiescence::begin();
    let server = quiescence.runtime(Runtime::builder());
    let client = quiescence.runtime(Runtime::builder());
    let served = Served::start(&server);
    let probe = served.client(&client);
    // Each fills a SEND, so they cannot share one credit.
    let calls = (0..64).map(|index| probe.sink(blob(index, 8_000)));
    for answer in block_on(together(calls)) {
        assert_eq!(answer.unwrap().into_inner(), Number { value: 8_000 });
    }
    let lent = || usage(&server).srq_wrs > GUARANTEED;
    assert!(eventually(SETTLE, lent), "{:?}", server.stats().cores[0]);
    drop((probe, served, server, client));
    quiescence.end();
}
