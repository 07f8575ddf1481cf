//! Servers and clients that go away, and come back.

use std::future::Future;
use std::net::TcpStream;
use std::sync::mpsc;
use std::task::Poll;
use std::thread;

use rpc_core::{Channel, ChannelState, Code, Execution, Request, Runtime, block_on};
use rpc_tests::{Place, Quiescence, eventually};

use crate::fixture::{
    Event, PAYLOADS, ProbeClient, SETTLE, Served, begin, blob, expect_served, links, together,
};

/// A future that is ready once something was sent.
fn sent(receiver: mpsc::Receiver<()>) -> impl Future<Output = ()> {
    // One thread waits for it, as for a signal.
    let (told, tell) = async_pair();
    thread::spawn(move || {
        let _ = receiver.recv();
        tell();
    });
    told
}

fn async_pair() -> (impl Future<Output = ()>, impl FnOnce()) {
    let gate = std::sync::Arc::new(std::sync::Mutex::new((false, None::<std::task::Waker>)));
    let other = std::sync::Arc::clone(&gate);
    let told = std::future::poll_fn(move |context| {
        let mut gate = gate.lock().unwrap();
        if gate.0 {
            return Poll::Ready(());
        }
        gate.1 = Some(context.waker().clone());
        Poll::Pending
    });
    let tell = move || {
        let mut gate = other.lock().unwrap();
        gate.0 = true;
        if let Some(waker) = gate.1.take() {
            waker.wake();
        }
    };
    (told, tell)
}

#[test]
fn a_graceful_shutdown_lets_calls_in_progress_end_and_takes_no_new_ones() {
    for &tcp in links() {
        let mut quiescence = Quiescence::begin();
        let server = quiescence.runtime(Runtime::builder().tcp_links(tcp));
        let client = quiescence.runtime(Runtime::builder().tcp_links(tcp));
        let Served { bound, address, events, gate, .. } = Served::start(&server);
        let channel = block_on(Channel::builder(&address).runtime(&client).connect()).unwrap();
        let probe = ProbeClient::new(channel);
        let (shut_down, asked) = mpsc::channel();
        let serving = thread::spawn(move || block_on(bound.serve_with_shutdown(sent(asked))));
        let mut calls: Vec<_> =
            (0..8).map(|index| Box::pin(probe.gated(blob(index, 40_000)))).collect();
        for call in &mut calls {
            begin(call.as_mut());
        }
        for _ in 0..8 {
            assert_eq!(events.recv(), Ok(Event::Started));
        }
        shut_down.send(()).unwrap();
        // New calls are refused as soon as the client has heard of it.
        let mut refused = None;
        assert!(eventually(SETTLE, || {
            refused = block_on(probe.echo(blob(0, 17))).err();
            refused.is_some()
        }));
        let refused = refused.unwrap();
        assert_eq!(refused.code(), Code::Unavailable, "{refused}");
        assert_eq!(refused.execution(), Execution::NotExecuted, "{refused}");
        gate.open();
        for (index, answer) in (0..).zip(block_on(together(calls))) {
            let got = answer.unwrap().into_inner().data;
            assert_eq!(PAYLOADS.check(index, 40_000, &got), Ok(()), "tcp {tcp}");
        }
        serving.join().unwrap().unwrap();
        drop((probe, events, server, client));
        quiescence.end();
    }
}

#[test]
fn new_calls_reach_the_next_server_while_the_last_one_ends_its_own() {
    for &tcp in links() {
        let mut quiescence = Quiescence::begin();
        let first = quiescence.runtime(Runtime::builder().tcp_links(tcp));
        let second = quiescence.runtime(Runtime::builder().tcp_links(tcp));
        let client = quiescence.runtime(Runtime::builder().tcp_links(tcp));
        let Served { bound, address, events, gate, .. } = Served::start(&first);
        let port = bound.local_addr().port();
        let channel = block_on(Channel::builder(&address).runtime(&client).connect()).unwrap();
        let probe = ProbeClient::new(channel.clone());
        let mut call = Box::pin(async { probe.gated(blob(3, 40_000)).await });
        begin(call.as_mut());
        assert_eq!(events.recv(), Ok(Event::Started));
        let (shut_down, asked) = mpsc::channel();
        let serving = thread::spawn(move || block_on(bound.serve_with_shutdown(sent(asked))));
        shut_down.send(()).unwrap();
        assert!(eventually(SETTLE, || channel.state() != ChannelState::Ready));
        // The port is free, the first server's call still runs, and the channel goes on.
        let refused = || TcpStream::connect((Place::here().host(), port)).is_err();
        assert!(eventually(SETTLE, refused));
        let next = Served::start_at(&second, port);
        block_on(probe.echo(blob(0, 17))).unwrap();
        expect_served(&second, 1);
        assert!(eventually(SETTLE, || client.stats().cores[0].connections == 2), "tcp {tcp}");
        gate.open();
        let got = block_on(call).unwrap().into_inner().data;
        assert_eq!(PAYLOADS.check(3, 40_000, &got), Ok(()), "tcp {tcp}");
        serving.join().unwrap().unwrap();
        assert!(eventually(SETTLE, || client.stats().cores[0].connections == 1));
        block_on(probe.echo(blob(0, 17))).unwrap();
        drop((got, probe, channel, events, next, first, second, client));
        quiescence.end();
    }
}

#[test]
fn a_shutdown_without_calls_ends_at_once() {
    let mut quiescence = Quiescence::begin();
    let server = quiescence.runtime(Runtime::builder().cores(2));
    let client = quiescence.runtime(Runtime::builder());
    let served = Served::start(&server);
    let probe = served.client(&client);
    block_on(probe.echo(blob(0, 17))).unwrap();
    block_on(served.bound.serve_with_shutdown(std::future::ready(()))).unwrap();
    drop((probe, server, client));
    quiescence.end();
}

#[test]
fn a_channel_connects_again_by_itself_after_its_server_was_restarted() {
    for &tcp in links() {
        let mut quiescence = Quiescence::begin();
        let server = quiescence.runtime(Runtime::builder().tcp_links(tcp));
        let client = quiescence.runtime(Runtime::builder().tcp_links(tcp));
        let served = Served::start(&server);
        let channel = served.channel(&client);
        let probe = ProbeClient::new(channel.clone());
        let port = served.bound.local_addr().port();
        block_on(probe.echo(blob(0, 17))).unwrap();
        assert_eq!(channel.state(), ChannelState::Ready);
        drop(served);
        // The client hears of it without making a call.
        assert!(eventually(SETTLE, || channel.state() != ChannelState::Ready));
        let nobody = block_on(probe.echo(blob(0, 17))).unwrap_err();
        assert_eq!(nobody.code(), Code::Unavailable, "{nobody}");
        assert_eq!(nobody.execution(), Execution::NotExecuted, "{nobody}");
        assert_eq!(channel.state(), ChannelState::Failed);
        let served = Served::start_at(&server, port);
        let mut request = Request::new(blob(1, 40_000));
        request.set_wait_for_ready(true);
        let got = block_on(probe.echo(request)).unwrap().into_inner().data;
        assert_eq!(PAYLOADS.check(1, 40_000, &got), Ok(()));
        assert_eq!(channel.state(), ChannelState::Ready);
        drop((got, probe, channel, served, server, client));
        quiescence.end();
    }
}

#[test]
fn a_channel_connects_again_to_another_runtime_at_the_same_port() {
    for &tcp in links() {
        let mut quiescence = Quiescence::begin();
        let client = quiescence.runtime(Runtime::builder().tcp_links(tcp));
        let first = quiescence.stopping(Runtime::builder().tcp_links(tcp));
        let served = Served::start(&first);
        let port = served.bound.local_addr().port();
        let channel = served.channel(&client);
        let probe = ProbeClient::new(channel.clone());
        block_on(probe.echo(blob(0, 40_000))).unwrap();
        drop((served, first));
        assert!(eventually(SETTLE, || channel.state() != ChannelState::Ready));
        let second = quiescence.runtime(Runtime::builder().tcp_links(tcp));
        let served = Served::start_at(&second, port);
        let got = block_on(probe.echo(blob(1, 40_000))).unwrap().into_inner().data;
        assert_eq!(PAYLOADS.check(1, 40_000, &got), Ok(()));
        drop((got, probe, channel, served, second, client));
        quiescence.end();
    }
}

#[test]
fn calls_in_flight_when_the_servers_runtime_goes_away_may_have_been_executed() {
    for &tcp in links() {
        let mut quiescence = Quiescence::begin();
        let client = quiescence.runtime(Runtime::builder().tcp_links(tcp));
        let server = quiescence.stopping(Runtime::builder().tcp_links(tcp));
        let served = Served::start(&server);
        let probe = served.client(&client);
        let mut calls: Vec<_> =
            (0..8).map(|index| Box::pin(probe.never(blob(index, 40_000)))).collect();
        for call in &mut calls {
            begin(call.as_mut());
        }
        served.expect(Event::Started, 8);
        // The server's handle goes first, so that nothing is closed in order.
        drop(server);
        let Served { bound, events, .. } = served;
        drop(bound);
        for answer in block_on(together(calls)) {
            let failed = answer.unwrap_err();
            assert_eq!(failed.code(), Code::Unavailable, "tcp {tcp}: {failed}");
            assert_eq!(failed.execution(), Execution::MaybeExecuted, "tcp {tcp}: {failed}");
        }
        for _ in 0..8 {
            assert_eq!(events.recv(), Ok(Event::Dropped), "handlers end with their runtime");
        }
        drop((probe, events, client));
        quiescence.end();
    }
}

#[test]
fn calls_of_a_runtime_that_goes_away_end_and_their_handlers_are_dropped() {
    for &tcp in links() {
        let mut quiescence = Quiescence::begin();
        let server = quiescence.runtime(Runtime::builder().tcp_links(tcp));
        let client = quiescence.stopping(Runtime::builder().tcp_links(tcp));
        let served = Served::start(&server);
        let probe = served.client(&client);
        let mut call = Box::pin(async move { probe.never(blob(0, 40_000)).await });
        begin(call.as_mut());
        served.expect(Event::Started, 1);
        drop((call, client));
        served.expect(Event::Dropped, 1);
        drop((served, server));
        quiescence.end();
    }
}

#[test]
fn a_server_is_gone_when_its_bound_handle_is_dropped() {
    let mut quiescence = Quiescence::begin();
    let runtime = quiescence.runtime(Runtime::builder());
    let served = Served::start(&runtime);
    let address = served.address.clone();
    drop(served);
    let closed = || {
        let connect = Channel::builder(&address).runtime(&runtime).connect();
        block_on(connect).is_err_and(|failed| failed.message().contains("nothing listens"))
    };
    assert!(eventually(SETTLE, closed));
    drop(runtime);
    quiescence.end();
}

/// Is ready again each time it is polled, for ever.
async fn restless() {
    std::future::poll_fn::<(), _>(|context| {
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[test]
fn tasks_end_with_their_runtime_and_whoever_joins_them_learns_of_it() {
    let quiescence = Quiescence::begin();
    // Not the fixture's, which keeps a handle: this one stops with its last handle.
    let runtime = Runtime::builder().build().unwrap();
    // One is ready when the core stops, one waits for it, and one waits for nothing that comes.
    let ready = runtime.spawn_on(0, restless);
    let joins = runtime.spawn_on(0, move || async move { ready.await.is_err() });
    let waits = runtime.spawn_on(0, std::future::pending::<()>);
    let begun = runtime.spawn_on(0, || async {});
    block_on(begun).unwrap();
    drop(runtime);
    assert!(block_on(joins).is_err() && block_on(waits).is_err());
    quiescence.end();
}
