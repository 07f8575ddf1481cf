//! Calls that end otherwise than by an answer.

use std::time::{Duration, Instant};

use rpc_core::{Channel, Code, Execution, Request, Runtime, block_on};
use rpc_tests::devices::usage;
use rpc_tests::{Place, Quiescence};

use crate::fixture::{Event, Number, ProbeClient, Served, begin, blob, expect_served, links};

/// A deadline that passes while a call waits, and not before the call is there.
fn soon() -> Duration {
    Place::here().within(Duration::from_millis(50))
}

#[test]
fn a_deadline_ends_the_call_at_the_caller_and_drops_the_handler() {
    for &tcp in links() {
        let mut quiescence = Quiescence::begin();
        let server = quiescence.runtime(Runtime::builder().tcp_links(tcp));
        let client = quiescence.runtime(Runtime::builder().tcp_links(tcp));
        let served = Served::start(&server);
        let probe = served.client(&client);
        let mut request = Request::new(blob(0, 17));
        let begun = Instant::now();
        request.set_timeout(soon());
        let late = block_on(probe.never(request)).unwrap_err();
        assert!(begun.elapsed() >= soon(), "it is never early");
        assert_eq!(late.code(), Code::DeadlineExceeded, "{late}");
        assert_eq!(late.execution(), Execution::MaybeExecuted, "{late}");
        served.expect(Event::Started, 1);
        served.expect(Event::Dropped, 1);
        block_on(probe.echo(blob(0, 17))).unwrap();
        drop((probe, served, server, client));
        quiescence.end();
    }
}

#[test]
fn the_channels_timeout_holds_for_calls_without_a_deadline_of_their_own() {
    let mut quiescence = Quiescence::begin();
    let server = quiescence.runtime(Runtime::builder());
    let client = quiescence.runtime(Runtime::builder());
    let served = Served::start(&server);
    let channel = Channel::builder(&served.address).runtime(&client).timeout(soon()).connect();
    let probe = ProbeClient::new(block_on(channel).unwrap());
    let late = block_on(probe.never(blob(0, 17))).unwrap_err();
    assert_eq!(late.code(), Code::DeadlineExceeded, "{late}");
    served.expect(Event::Started, 1);
    served.expect(Event::Dropped, 1);
    drop((probe, served, server, client));
    quiescence.end();
}

#[test]
fn a_deadline_that_has_passed_ends_the_call_before_it_is_sent() {
    let mut quiescence = Quiescence::begin();
    let server = quiescence.runtime(Runtime::builder());
    let client = quiescence.runtime(Runtime::builder());
    let served = Served::start(&server);
    let probe = served.client(&client);
    let mut request = Request::new(blob(0, 17));
    request.set_deadline(Instant::now().checked_sub(soon()));
    let late = block_on(probe.echo(request)).unwrap_err();
    assert_eq!(late.code(), Code::DeadlineExceeded, "{late}");
    assert_eq!(late.execution(), Execution::NotExecuted, "{late}");
    block_on(probe.echo(blob(0, 17))).unwrap();
    expect_served(&server, 1);
    drop((probe, served, server, client));
    quiescence.end();
}

#[test]
fn a_handler_learns_the_callers_deadline() {
    let mut quiescence = Quiescence::begin();
    let server = quiescence.runtime(Runtime::builder());
    let client = quiescence.runtime(Runtime::builder());
    let (front, back) = (Served::start(&server), Served::start(&server));
    front.relay_to(back.client(&server));
    let probe = front.client(&client);
    // The relay passes its deadline on; with one that has passed there is no nested call.
    let mut request = Request::new(blob(0, 17));
    request.set_timeout(Duration::from_secs(30));
    block_on(probe.relay(request)).unwrap();
    expect_served(&server, 2);
    drop((probe, front, back, server, client));
    quiescence.end();
}

#[test]
fn dropping_a_calls_future_drops_its_handler() {
    for &tcp in links() {
        let mut quiescence = Quiescence::begin();
        let server = quiescence.runtime(Runtime::builder().tcp_links(tcp));
        let client = quiescence.runtime(Runtime::builder().tcp_links(tcp));
        let served = Served::start(&server);
        let probe = served.client(&client);
        for len in [17, 40_000] {
            let mut call = Box::pin(probe.never(blob(0, len)));
            begin(call.as_mut());
            served.expect(Event::Started, 1);
            drop(call);
            served.expect(Event::Dropped, 1);
        }
        block_on(probe.echo(blob(0, 17))).unwrap();
        expect_served(&server, 3);
        drop((probe, served, server, client));
        quiescence.end();
    }
}

#[test]
fn a_call_that_is_dropped_before_it_was_polled_is_never_made() {
    let mut quiescence = Quiescence::begin();
    let server = quiescence.runtime(Runtime::builder());
    let client = quiescence.runtime(Runtime::builder());
    let served = Served::start(&server);
    let probe = served.client(&client);
    drop(probe.never(blob(0, 17)));
    block_on(probe.echo(blob(0, 17))).unwrap();
    expect_served(&server, 1);
    drop((probe, served, server, client));
    quiescence.end();
}

#[test]
fn many_calls_dropped_at_any_moment_leave_nothing() {
    for &tcp in links() {
        let mut quiescence = Quiescence::begin();
        let server = quiescence.runtime(Runtime::builder().tcp_links(tcp));
        let client = quiescence.runtime(Runtime::builder().tcp_links(tcp));
        let served = Served::start(&server);
        let probe = served.client(&client);
        for round in 0..50_u64 {
            let calls: Vec<_> = (0..16)
                .map(|index| {
                    let len = [17, 9_216, 40_000, 300_000][(round + index) as usize % 4];
                    let mut call = Box::pin(probe.echo(blob(index, len)));
                    begin(call.as_mut());
                    call
                })
                .collect();
            if round % 3 == 0 {
                // Something has surely passed before they are dropped.
                block_on(probe.echo(blob(0, 17))).unwrap();
            }
            drop(calls);
        }
        block_on(probe.echo(blob(0, 300_000))).unwrap();
        drop((probe, served, server, client));
        quiescence.end();
    }
}

#[test]
fn a_handler_that_panics_is_an_internal_error_and_its_core_lives() {
    let mut quiescence = Quiescence::begin();
    let server = quiescence.runtime(Runtime::builder());
    let client = quiescence.runtime(Runtime::builder());
    let served = Served::start(&server);
    let probe = served.client(&client);
    served.gate.open();
    // At its first poll, in place; and, behind a gate that is open, no later.
    for value in [0, 1] {
        let failed = block_on(probe.panic(Number { value })).unwrap_err();
        assert_eq!(failed.code(), Code::Internal, "{failed}");
        assert_eq!(failed.execution(), Execution::Executed, "{failed}");
        assert!(failed.message().contains("panicked"), "{failed}");
        block_on(probe.echo(blob(0, 17))).unwrap();
    }
    assert_eq!(usage(&server).qps, 1, "the connection stayed");
    drop((probe, served, server, client));
    quiescence.end();
}

#[test]
fn a_handler_that_panics_as_a_task_is_an_internal_error_and_its_core_lives() {
    let mut quiescence = Quiescence::begin();
    let server = quiescence.runtime(Runtime::builder());
    let client = quiescence.runtime(Runtime::builder());
    let served = Served::start(&server);
    let probe = served.client(&client);
    let mut call = Box::pin(probe.panic(Number { value: 1 }));
    begin(call.as_mut());
    served.expect(Event::Started, 1);
    served.gate.open();
    let failed = block_on(call).unwrap_err();
    assert_eq!(failed.code(), Code::Internal, "{failed}");
    assert_eq!(failed.execution(), Execution::Executed, "{failed}");
    block_on(probe.echo(blob(0, 17))).unwrap();
    drop((probe, served, server, client));
    quiescence.end();
}
