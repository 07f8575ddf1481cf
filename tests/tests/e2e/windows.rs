//! Connections that hold no more than the receives which are their own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

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

/// As many SENDs as calls: no two of them fit into one.
const ALONE: usize = 6_000;

/// Calls until something is true of the server.
fn call_until(probe: &ProbeClient, what: &str, done: impl Fn() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < SETTLE, "{what}");
        for answer in block_on(together((0..64).map(|index| probe.echo(blob(index, ALONE))))) {
            answer.unwrap();
        }
    }
}

/// A server that has four receives to lend, and two clients.
fn short(quiescence: &mut Quiescence, tcp: bool) -> [Runtime; 3] {
    let builder = |few| match few {
        true => Runtime::builder().tcp_links(tcp).receives_surplus_max(4),
        false => Runtime::builder().tcp_links(tcp),
    };
    [true, false, false].map(|few| quiescence.runtime(builder(few)))
}

#[test]
fn what_one_peer_was_lent_and_does_not_use_another_gets() {
    for &tcp in links() {
        let mut quiescence = Quiescence::begin();
        let [server, first, second] = short(&mut quiescence, tcp);
        let served = Served::start(&server);
        let probe = served.client(&first);
        let lent = |connections| {
            move |server: &Runtime| usage(server).srq_wrs == connections * GUARANTEED + 4
        };
        call_until(&probe, "the first takes all there is", || lent(1)(&server));
        let returned = || server.stats().cores[0].credits_returned;
        assert_eq!(returned(), 0, "nobody was short");
        let other = served.client(&second);
        call_until(&other, "the second gets what the first does not use", || returned() > 0);
        assert!(server.stats().cores[0].credits_recalled > 0);
        // Both go on, and nothing was lost on the way.
        call_until(&other, "all is lent again", || lent(2)(&server));
        block_on(probe.echo(blob(1, ALONE))).unwrap();
        let backed = || credits_are_backed(&server.stats());
        assert!(eventually(SETTLE, backed), "{:?}", server.stats().cores[0]);
        assert_eq!(counters(&server).rnr_naks_sent, 0, "every SEND found its receive");
        drop((probe, other, served, server, first, second));
        quiescence.end();
    }
}

#[test]
fn a_peer_that_is_never_idle_does_not_keep_all_that_there_is_to_lend() {
    let mut quiescence = Quiescence::begin();
    let [server, first, second] = short(&mut quiescence, false);
    let served = Served::start(&server);
    let (probe, other) = (served.client(&first), served.client(&second));
    let full = || usage(&server).srq_wrs >= GUARANTEED + 4;
    call_until(&probe, "the first takes all there is", full);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| call_until(&probe, "the first goes on", || over.load(Ordering::Relaxed)));
        let returned = || server.stats().cores[0].credits_returned > 0;
        call_until(&other, "the second gets some of it", returned);
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(counters(&server).rnr_naks_sent, 0, "every SEND found its receive");
    drop((probe, other, served, server, first, second));
    quiescence.end();
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
