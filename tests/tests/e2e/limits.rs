//! Servers that take on so many calls and no more.

use std::time::Duration;

use rpc_core::{Code, Execution, Request, Runtime, Status, block_on};
use rpc_tests::Quiescence;

use crate::fixture::{Event, Served, begin, blob, links, together};

#[track_caller]
fn assert_refused(failed: &Status, words: &str) {
    assert_eq!(failed.code(), Code::ResourceExhausted, "{failed}");
    assert_eq!(failed.execution(), Execution::NotExecuted, "{failed}");
    assert!(failed.message().contains(words), "{failed}");
}

#[test]
fn calls_beyond_a_servers_limit_wait_their_turn_and_those_beyond_its_queue_are_refused() {
    for &tcp in links() {
        let mut quiescence = Quiescence::begin();
        let server = quiescence.runtime(Runtime::builder().tcp_links(tcp));
        let client = quiescence.runtime(Runtime::builder().tcp_links(tcp));
        let served =
            Served::start_with(&server, 0, |server| server.calls_max(2).calls_queued_max(3));
        // On two connections, which share the limit.
        let probes = [served.client(&client), served.client(&client)];
        let mut calls: Vec<_> =
            (0..5).map(|index| Box::pin(probes[0].gated(blob(index, 17)))).collect();
        calls.iter_mut().for_each(|call| begin(call.as_mut()));
        served.expect(Event::Started, 2);
        for index in 5..8 {
            let refused = block_on(probes[1].gated(blob(index, 17))).unwrap_err();
            assert_refused(&refused, "calls_max");
        }
        served.gate.open();
        for answer in block_on(together(calls)) {
            answer.unwrap();
        }
        // There is room again.
        block_on(probes[1].gated(blob(0, 17))).unwrap();
        drop((probes, served, server, client));
        quiescence.end();
    }
}

#[test]
fn a_call_that_waits_ends_with_its_deadline_or_its_caller_and_never_runs() {
    let mut quiescence = Quiescence::begin();
    let server = quiescence.runtime(Runtime::builder());
    let client = quiescence.runtime(Runtime::builder());
    let served = Served::start_with(&server, 0, |server| server.calls_max(1).calls_queued_max(2));
    let probe = served.client(&client);
    let mut running = Box::pin(async { probe.gated(blob(0, 17)).await });
    begin(running.as_mut());
    served.expect(Event::Started, 1);
    let mut given_up = Box::pin(async { probe.gated(blob(1, 17)).await });
    begin(given_up.as_mut());
    let mut short = Request::new(blob(2, 17));
    short.set_timeout(Duration::from_millis(100));
    let late = block_on(probe.gated(short)).unwrap_err();
    assert_eq!(late.code(), Code::DeadlineExceeded, "{late}");
    drop(given_up);
    // Both places in the queue are free again, and the two did not run.
    let mut waiting: Vec<_> = (3..5).map(|index| Box::pin(probe.gated(blob(index, 17)))).collect();
    waiting.iter_mut().for_each(|call| begin(call.as_mut()));
    // This one is refused after the server has heard of all that came before it.
    assert_refused(&block_on(probe.gated(blob(5, 17))).unwrap_err(), "calls_queued_max");
    served.gate.open();
    block_on(running).unwrap();
    for answer in block_on(together(waiting)) {
        answer.unwrap();
    }
    let events: Vec<Event> = served.events.try_iter().collect();
    assert_eq!(events.iter().filter(|event| **event == Event::Started).count(), 2, "{events:?}");
    drop((probe, served, server, client));
    quiescence.end();
}

#[test]
fn one_connection_has_no_more_calls_in_progress_than_the_server_says() {
    let mut quiescence = Quiescence::begin();
    let server = quiescence.runtime(Runtime::builder());
    let client = quiescence.runtime(Runtime::builder());
    let served = Served::start_with(&server, 0, |server| server.calls_max_per_connection(2));
    let (probe, other) = (served.client(&client), served.client(&client));
    let mut calls: Vec<_> = (0..2).map(|index| Box::pin(probe.gated(blob(index, 17)))).collect();
    calls.iter_mut().for_each(|call| begin(call.as_mut()));
    served.expect(Event::Started, 2);
    assert_refused(&block_on(probe.gated(blob(2, 17))).unwrap_err(), "2 calls of this connection");
    block_on(other.echo(blob(3, 17))).unwrap();
    served.gate.open();
    for answer in block_on(together(calls)) {
        answer.unwrap();
    }
    drop((probe, other, served, server, client));
    quiescence.end();
}
