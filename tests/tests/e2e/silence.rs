//! Peers whose program stands still.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rpc_core::{Bound, Channel, Code, Execution, LocalRuntime, Pings, Request, Runtime, Server};
use rpc_core::{Status, block_on};
use rpc_tests::{Place, Quiescence, eventually};

use crate::fixture::{
    Number, ProbeClient, ProbeServer, SETTLE, Served, blob, idle_probing, let_connections_end,
    links,
};

/// Sooner than by default, so that tests are short.
fn pings() -> Pings {
    Pings::new().busy_after(Duration::from_millis(200)).timeout(Duration::from_millis(800))
}

/// A runtime whose core stands still unless it is driven.
fn still(quiescence: &mut Quiescence, tcp: bool) -> LocalRuntime {
    let builder = Runtime::builder().tcp_links(tcp).name("sleepy").rnr_retry(0);
    let local = builder.on_this_thread().unwrap();
    quiescence.watch(local.runtime());
    local
}

/// Drives the core while another thread does something.
fn beside<T: Send>(local: &mut LocalRuntime, other: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let other = scope.spawn(other);
        while !other.is_finished() {
            let _ = local.turn();
        }
        other.join().unwrap()
    })
}

fn bind(server: &mut LocalRuntime) -> Bound {
    let service = ProbeServer::from_arc(Arc::new(idle_probing()));
    let builder = Server::builder().runtime(server.runtime()).add_service(service);
    server.block_on(builder.bind(&Place::here().address(0))).unwrap()
}

fn connect(bound: &Bound, runtime: &Runtime) -> Result<ProbeClient, Status> {
    let address = Place::here().address(bound.local_addr().port());
    let channel = block_on(Channel::builder(&address).runtime(runtime).connect())?;
    let probe = ProbeClient::new(channel);
    block_on(probe.echo(blob(0, 17)))?;
    Ok(probe)
}

#[test]
fn a_server_that_stands_still_is_found_and_when_it_goes_on_its_old_connection_is_dead() {
    for &tcp in links() {
        let mut quiescence = Quiescence::begin();
        let client = quiescence.runtime(Runtime::builder().tcp_links(tcp).pings(pings()));
        let mut server = still(&mut quiescence, tcp);
        let bound = bind(&mut server);
        let probe = beside(&mut server, || connect(&bound, &client).unwrap());
        // One that is only sent, and one whose payload the server would have to read.
        for len in [17, 200_000] {
            let lost = block_on(probe.echo(blob(1, len))).unwrap_err();
            assert_eq!(lost.code(), Code::Unavailable, "tcp {tcp}: {lost}");
            assert_eq!(lost.execution(), Execution::MaybeExecuted, "tcp {tcp}: {lost}");
            for word in ["'sleepy'", "a sign of life", "is stopped", "pings()"] {
                assert!(lost.message().contains(word), "tcp {tcp}: {lost}");
            }
            assert!(eventually(SETTLE, || client.stats().cores[0].connections == 0));
            // It reads nothing of what was taken back, and serves the same channel again.
            let read = server.runtime().stats().memory.inbound;
            beside(&mut server, || block_on(probe.echo(blob(0, 17))).unwrap());
            assert_eq!(server.runtime().stats().memory.inbound, read);
        }
        drop((probe, bound, client));
        beside(&mut server, || ());
        let runtime = server.runtime().clone();
        beside(&mut server, || {
            assert!(eventually(SETTLE, || runtime.stats().cores[0].connections == 0));
        });
        drop((runtime, server));
        quiescence.end();
    }
}

#[test]
fn a_client_that_stands_still_with_an_answer_to_read_gives_its_memory_back() {
    for &tcp in links() {
        let mut quiescence = Quiescence::begin();
        let server = quiescence.runtime(Runtime::builder().tcp_links(tcp).pings(pings()));
        let served = Served::start(&server);
        let mut client = still(&mut quiescence, tcp);
        let runtime = client.runtime().clone();
        let channel = Channel::builder(&served.address).runtime(&runtime).connect();
        let probe = ProbeClient::new(client.block_on(channel).unwrap());
        let asking = probe.clone();
        let call = client.spawn_local(async move {
            let mut request = Request::new(Number { value: 2_000_000 });
            request.set_timeout(Duration::from_secs(3600));
            asking.source(request).await.map(drop).map_err(|lost| lost.code())
        });
        // It turns until its request has left, and then no more.
        while server.stats().cores[0].calls_served == 0 {
            let _ = client.turn();
        }
        // The answer would be kept for it for an hour.
        let held = || (server.stats().memory.outbound, server.stats().cores[0].connections);
        assert!(eventually(SETTLE, || held().0 > 0), "tcp {tcp}");
        assert!(eventually(SETTLE, || held() == (0, 0)), "tcp {tcp}: {:?}", held());
        assert_eq!(client.block_on(call).unwrap(), Err(Code::Unavailable), "tcp {tcp}");
        // The same channel goes on.
        client.block_on(probe.echo(blob(0, 17))).unwrap();
        drop((probe, runtime));
        let_connections_end(&mut client);
        drop((client, served, server));
        quiescence.end();
    }
}

#[test]
fn a_server_that_is_slow_to_answer_is_not_taken_for_one_that_stands_still() {
    let mut quiescence = Quiescence::begin();
    let server = quiescence.runtime(Runtime::builder());
    let client = quiescence.runtime(Runtime::builder().pings(pings()));
    let served = Served::start(&server);
    let probe = served.client(&client);
    let mut request = Request::new(blob(0, 17));
    // Several times what a peer that stands still would have.
    request.set_timeout(Duration::from_secs(4));
    let late = block_on(probe.never(request)).unwrap_err();
    assert_eq!(late.code(), Code::DeadlineExceeded, "{late}");
    drop((probe, served, server, client));
    quiescence.end();
}

#[test]
fn a_core_that_was_left_alone_for_too_long_connects_anew_before_its_next_call() {
    for &tcp in links() {
        let mut quiescence = Quiescence::begin();
        let soon = pings().idle_after(Duration::from_millis(200));
        let server = quiescence.runtime(Runtime::builder().tcp_links(tcp).pings(soon));
        let served = Served::start(&server);
        let mut client = still(&mut quiescence, tcp);
        let runtime = client.runtime().clone();
        let channel = Channel::builder(&served.address).runtime(&runtime).connect();
        let probe = ProbeClient::new(client.block_on(channel).unwrap());
        for _ in 0..3 {
            client.block_on(probe.echo(blob(0, 17))).unwrap();
            // Nobody turns it until its server has given it up.
            assert!(eventually(SETTLE, || server.stats().cores[0].connections == 0));
        }
        client.block_on(probe.echo(blob(0, 17))).unwrap();
        drop((probe, runtime));
        let_connections_end(&mut client);
        drop((client, served, server));
        quiescence.end();
    }
}
