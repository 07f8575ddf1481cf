//! Servers that take on so many calls and no more.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use rpc_core::{Channel, Code, Execution, Request, Response, Runtime, Server, Status, block_on};
use rpc_tests::{Place, Quiescence, devices, eventually};

use crate::fixture::{
    Event, Number, ProbeClient, Served, begin, blob, let_connections_end, links, together,
};

#[track_caller]
fn assert_refused(failed: &Status, words: &str) {
    assert_eq!(failed.code(), Code::ResourceExhausted, "{failed}");
    assert_eq!(failed.execution(), Execution::NotExecuted, "{failed}");
    assert!(failed.message().contains(words), "{failed}");
}

#[test]
fn calls_beyond_a_servers_limit_wait_their_turn_and_those_beyond_its_queue_are_refused_by_length_of_line()
 {
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
        // On the same connection: it arrives after those that wait.
        assert_refused(&block_on(probes[0].gated(blob(5, 17))).unwrap_err(), "calls_max");
        // The first of another takes the place of the newest of those that wait, and the second would make
        // that one's line the longest.
        let mut other = Box::pin(probes[1].gated(blob(6, 17)));
        begin(other.as_mut());
        assert_refused(&block_on(calls.pop().unwrap()).unwrap_err(), "calls_max");
        assert_refused(&block_on(probes[1].gated(blob(7, 17))).unwrap_err(), "calls_max");
        served.gate.open();
        block_on(other).unwrap();
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

/// Counts the calls that began; those of 0 never end. An answer also says whether the call was urgent.
#[rpc_core::service(name = "e2e.Count")]
trait Count {
    async fn begin(&self, request: Request<Number>) -> Result<Response<Number>, Status>;
}

/// Set in the answer to an urgent call.
const URGENT: u64 = 1 << 32;

#[derive(Clone, Default)]
struct Counting(Arc<AtomicU64>);

impl Count for Counting {
    async fn begin(&self, request: Request<Number>) -> Result<Response<Number>, Status> {
        let before = self.0.fetch_add(1, Ordering::Relaxed);
        if request.get_ref().value == 0 {
            std::future::pending::<()>().await;
        }
        let urgent = if request.is_urgent() { URGENT } else { 0 };
        Ok(Response::new(Number { value: before | urgent }))
    }
}

#[test]
fn urgent_calls_wait_before_others_for_a_place() {
    let mut quiescence = Quiescence::begin();
    let server = quiescence.runtime(Runtime::builder());
    let client = quiescence.runtime(Runtime::builder());
    let counting = Counting::default();
    let builder = Server::builder().runtime(&server).calls_max(1).calls_queued_max(7);
    let builder = builder.add_service(CountServer::new(counting.clone()));
    let bound = block_on(builder.bind(&Place::here().address(0))).unwrap();
    let address = Place::here().address(bound.local_addr().port());
    let count =
        CountClient::new(block_on(Channel::builder(&address).runtime(&client).connect()).unwrap());
    let call = |value, urgent| {
        let mut request = Request::new(Number { value });
        request.set_urgent(urgent);
        Box::pin(count.begin(request))
    };
    let mut running = call(0, false);
    begin(running.as_mut());
    // Otherwise the urgent ones would pass it too.
    while counting.0.load(Ordering::Relaxed) == 0 {
        thread::yield_now();
    }
    let mut waiting: Vec<_> = (0..7).map(|index| call(1, index > 4)).collect();
    waiting.iter_mut().for_each(|call| begin(call.as_mut()));
    // All of them wait when this one is refused.
    assert_refused(&block_on(call(1, false)).unwrap_err(), "calls_queued_max");
    drop(running);
    let begun: Vec<_> = block_on(together(waiting))
        .into_iter()
        .map(|answer| answer.unwrap().into_inner().value)
        .collect();
    assert_eq!(begun, [3, 4, 5, 6, 7, 1 | URGENT, 2 | URGENT]);
    drop((count, bound, server, client));
    quiescence.end();
}

#[test]
fn calls_that_wait_begin_in_order_and_not_all_in_one_turn() {
    const WAITING: u64 = 300;
    /// Handlers that are begun in one turn of those that waited.
    const TURN_MAX: u64 = 64;
    let mut quiescence = Quiescence::begin();
    let mut server = Runtime::builder().rnr_retry(0).on_this_thread().unwrap();
    quiescence.watch(server.runtime());
    let client = quiescence.runtime(Runtime::builder());
    let counting = Counting::default();
    let builder = Server::builder().runtime(server.runtime());
    let builder = builder.calls_max(1).calls_queued_max(WAITING as u32);
    let builder = builder.add_service(CountServer::new(counting.clone()));
    let bound = server.block_on(builder.bind(&Place::here().address(0))).unwrap();
    let address = Place::here().address(bound.local_addr().port());
    let runtime = client.clone();
    let calling = thread::spawn(move || {
        let channel = Channel::builder(&address).runtime(&runtime);
        let count = CountClient::new(block_on(channel.connect()).unwrap());
        let call = |value| Box::pin(count.begin(Number { value }));
        let mut running = call(0);
        begin(running.as_mut());
        let mut waiting: Vec<_> = (1..=WAITING).map(call).collect();
        waiting.iter_mut().for_each(|call| begin(call.as_mut()));
        // All of them wait when this one is refused.
        assert_refused(&block_on(call(1)).unwrap_err(), "calls_queued_max");
        drop(running);
        let begun = block_on(together(waiting));
        begun.into_iter().map(|answer| answer.unwrap().into_inner().value).collect::<Vec<_>>()
    });
    let mut most = 0;
    while !calling.is_finished() {
        let before = counting.0.load(Ordering::Relaxed);
        let _ = server.turn();
        most = most.max(counting.0.load(Ordering::Relaxed) - before);
    }
    assert_eq!(calling.join().unwrap(), (1..=WAITING).collect::<Vec<_>>());
    assert!(most <= TURN_MAX, "{most} in one turn");
    drop((bound, client));
    let_connections_end(&mut server);
    drop(server);
    quiescence.end();
}

#[test]
fn connections_made_at_once_wait_for_all_the_chunks_of_buffers_they_need() {
    const CHANNELS: usize = 4;
    const EACH: usize = 50;
    if Place::here().skips("a queue pair takes a guest long to make") {
        return;
    }
    let mut quiescence = Quiescence::begin();
    let server = quiescence.runtime(Runtime::builder().verbs_on_control_thread(true));
    let client = quiescence.runtime(Runtime::builder());
    // Chunks are registered elsewhere, and the server's core hears of all connections in one turn: those that
    // the first chunk has no room for wait for the second, which has no room for all of them either.
    let served = Served::start(&server);
    let (go, wait) = mpsc::channel::<()>();
    let busy = server.spawn_on(0, move || async move { wait.recv().is_ok() });
    let connect = {
        let (address, client) = (served.address.clone(), client.clone());
        move || Channel::builder(&address).runtime(&client).connections_per_core(EACH).connect()
    };
    let connecting = thread::spawn(move || block_on(together((0..CHANNELS).map(|_| connect()))));
    let made = || devices::usage(&server).qps as usize;
    let all = eventually(Duration::from_secs(20), || made() == CHANNELS * EACH);
    go.send(()).unwrap();
    assert!(block_on(busy).unwrap());
    assert!(all, "{} queue pairs", made());
    let channels: Vec<_> = connecting.join().unwrap().into_iter().map(Result::unwrap).collect();
    let channel = &channels[CHANNELS - 1];
    block_on(ProbeClient::new(channel.clone()).echo(blob(0, 17))).unwrap();
    drop((channels, served, server, client));
    quiescence.end();
}
