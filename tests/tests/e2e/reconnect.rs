//! How channels come to a server that is not there yet, or not any more.

use std::future::Future;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::task::{Context, Waker};
use std::thread;
use std::time::{Duration, Instant};

use rpc_core::{Channel, ChannelState, Code, Execution, Request, Runtime, block_on};
use rpc_tests::devices::counters;
use rpc_tests::{Place, Quiescence, eventually};

use crate::fixture::{ProbeClient, SETTLE, Served, begin, blob, let_connections_end};

const HOUR: Duration = Duration::from_secs(3600);

/// Accepts connections only to close them, and counts them.
struct Door {
    listener: TcpListener,
    opened: u64,
}

impl Door {
    fn new() -> Self {
        let listener = TcpListener::bind((Place::here().host(), 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        Self { listener, opened: 0 }
    }

    fn port(&self) -> u16 {
        self.listener.local_addr().unwrap().port()
    }

    /// How many came so far.
    fn opened(&mut self) -> u64 {
        loop {
            match self.listener.accept() {
                Ok(_) => self.opened += 1,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return self.opened,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Closes what comes until a thread has ended.
    fn until<T>(&mut self, thread: &thread::JoinHandle<T>) {
        while !thread.is_finished() {
            self.opened();
            thread::yield_now();
        }
    }
}

fn waiting(timeout: Duration) -> Request<crate::fixture::Blob> {
    let mut request = Request::new(blob(0, 17));
    request.set_wait_for_ready(true);
    request.set_timeout(timeout);
    request
}

#[test]
fn a_call_that_waits_reaches_a_server_that_starts_after_it() {
    let mut quiescence = Quiescence::begin();
    let client = quiescence.runtime(Runtime::builder());
    let server = quiescence.runtime(Runtime::builder());
    let port = Door::new().port();
    let channel = Channel::builder(&Place::here().address(port)).runtime(&client);
    let backoff = (Duration::from_millis(10), Duration::from_millis(100));
    let channel = channel.reconnect_backoff(backoff.0, backoff.1).wait_for_ready(true);
    let channel = channel.connect_lazy().unwrap();
    assert_eq!(channel.state(), ChannelState::Idle);
    let probe = ProbeClient::new(channel.clone());
    let calling = thread::spawn(move || block_on(probe.echo(blob(0, 17))));
    let mut state = ChannelState::Idle;
    while state != ChannelState::Failed {
        state = block_on(channel.state_change(state));
    }
    let served = Served::start_at(&server, port);
    calling.join().unwrap().unwrap();
    assert_eq!(channel.state(), ChannelState::Ready);
    let watching = thread::spawn({
        let channel = channel.clone();
        move || block_on(channel.state_change(ChannelState::Ready))
    });
    drop(served);
    assert_eq!(watching.join().unwrap(), ChannelState::Failed);
    drop((channel, client, server));
    quiescence.end();
}

#[test]
fn a_call_that_waits_is_made_anew_when_its_server_goes_away_before_it_has_it() {
    let mut quiescence = Quiescence::begin();
    let server = quiescence.runtime(Runtime::builder());
    let mut client = Runtime::builder().rnr_retry(0).on_this_thread().unwrap();
    quiescence.watch(client.runtime());
    let served = Served::start(&server);
    let channel = Channel::builder(&served.address).runtime(client.runtime());
    let channel = client.block_on(channel.connect()).unwrap();
    let probe = ProbeClient::new(channel.clone());
    client.block_on(probe.echo(blob(0, 17))).unwrap();
    // Two calls for a core that does not turn, each polled once; then the server says that it goes.
    let mut context = Context::from_waker(Waker::noop());
    let mut waits = Box::pin(probe.echo(waiting(HOUR)));
    let mut does_not = Box::pin(probe.echo(blob(0, 17)));
    assert!(waits.as_mut().poll(&mut context).is_pending());
    assert!(does_not.as_mut().poll(&mut context).is_pending());
    let port = served.bound.local_addr().port();
    let said = counters(&server).sends;
    drop(served);
    assert!(eventually(SETTLE, || counters(&server).sends > said), "it does not say that it goes");
    let again = Served::start_at(&server, port);
    let failed = client.block_on(does_not).unwrap_err();
    assert_eq!((failed.code(), failed.execution()), (Code::Unavailable, Execution::NotExecuted));
    client.block_on(waits).unwrap();
    drop((again, probe, channel));
    let_connections_end(&mut client);
    drop((client, server));
    quiescence.end();
}

#[test]
fn calls_that_do_not_wait_fail_at_once_until_the_next_attempt_is_due() {
    let mut quiescence = Quiescence::begin();
    let client = quiescence.runtime(Runtime::builder());
    let mut door = Door::new();
    let channel = Channel::builder(&Place::here().address(door.port())).runtime(&client);
    let channel = channel.reconnect_backoff(HOUR, HOUR).connect_lazy().unwrap();
    let probe = ProbeClient::new(channel.clone());
    let calling = thread::spawn(move || {
        for _ in 0..10 {
            let failed = block_on(probe.echo(blob(0, 17))).unwrap_err();
            assert_eq!(failed.code(), Code::Unavailable, "{failed}");
            assert_eq!(failed.execution(), Execution::NotExecuted, "{failed}");
        }
        // One that waits does so to its deadline.
        block_on(probe.echo(waiting(Duration::from_millis(50)))).unwrap_err()
    });
    door.until(&calling);
    let late = calling.join().unwrap();
    assert_eq!((late.code(), late.execution()), (Code::DeadlineExceeded, Execution::NotExecuted));
    assert_eq!(door.opened(), 1, "one attempt for all of them");
    assert_eq!(channel.state(), ChannelState::Failed);
    drop((channel, client, door));
    quiescence.end();
}

#[test]
fn a_call_that_waits_makes_no_more_attempts_than_the_backoff_allows() {
    let mut quiescence = Quiescence::begin();
    let client = quiescence.runtime(Runtime::builder());
    let mut door = Door::new();
    let channel = Channel::builder(&Place::here().address(door.port())).runtime(&client);
    let pause = Duration::from_millis(40);
    let channel = channel.reconnect_backoff(pause, pause).connect_lazy().unwrap();
    let probe = ProbeClient::new(channel);
    let began = Instant::now();
    let calling = thread::spawn(move || {
        block_on(probe.echo(waiting(Duration::from_millis(600)))).unwrap_err()
    });
    door.until(&calling);
    assert_eq!(calling.join().unwrap().code(), Code::DeadlineExceeded);
    let most = began.elapsed().as_millis() as u64 / 20 + 1;
    let opened = door.opened();
    assert!((2..=most).contains(&opened), "{opened} attempts, and {most} are allowed");
    drop((client, door));
    quiescence.end();
}

#[test]
fn a_call_that_is_given_up_while_it_waits_leaves_no_alarm_behind() {
    let mut quiescence = Quiescence::begin();
    let mut local = Runtime::builder().on_this_thread().unwrap();
    quiescence.watch(local.runtime());
    // Nobody accepts, so the attempt goes on.
    let silent = TcpListener::bind((Place::here().host(), 0)).unwrap();
    let address = Place::here().address(silent.local_addr().unwrap().port());
    let channel = Channel::builder(&address).runtime(local.runtime()).connect_lazy().unwrap();
    let probe = ProbeClient::new(channel.clone());
    let mut calls: Vec<_> = (0..100).map(|_| Box::pin(probe.echo(waiting(HOUR)))).collect();
    for call in &mut calls {
        begin(call.as_mut());
    }
    let _ = local.turn();
    assert!(local.next_timer().is_some(), "they wait for their deadlines");
    drop(calls);
    let _ = local.turn();
    assert_eq!(local.next_timer(), None);
    drop((probe, channel, silent));
    // The attempt ends with its socket's peer.
    assert!(eventually(SETTLE, || local.turn().is_idle()));
    drop(local);
    quiescence.end();
}
