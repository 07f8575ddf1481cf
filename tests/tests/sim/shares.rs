use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use rpc_core::sim::{self, Faults, Sim};
use rpc_core::{Channel, Code, Execution, Server};

use crate::ledger::Ledger;
use crate::service::{Ask, WorkClient, WorkServer, Worker};

/// Handlers of the server at once.
const CALLS_MAX: u32 = 4;
/// Calls of the flood.
const FLOOD: u64 = 256;
/// Of these so many may wait: the others are refused.
const WAITING_MAX: u32 = 100;
/// What each of them takes.
const SLOW: Duration = Duration::from_millis(10);

async fn connect() -> WorkClient {
    // Its server listens by then.
    sim::sleep(Duration::from_millis(1)).await;
    WorkClient::new(Channel::connect("soft://server:7400").await.unwrap())
}

/// The flood takes 640 ms in all; a call of another client that comes after it is answered when the handlers
/// that run have ended, and not after those that wait.
#[test]
fn a_fast_call_is_served_before_the_floods_backlog() {
    sim::seeds(10, |seed| assert_eq!(flood(seed, FLOOD as u32), 0, "calls were refused"));
}

/// The flood has every place to wait in; the other's call gets one of them.
#[test]
fn a_flood_that_fills_the_queue_is_refused_and_not_who_comes_later() {
    let at_once = u64::from(WAITING_MAX + CALLS_MAX);
    sim::seeds(10, |seed| {
        let refused = flood(seed, WAITING_MAX) as u64;
        // Some handlers end while the flood still comes.
        assert!(refused > (FLOOD - at_once) / 2 && refused <= FLOOD - at_once + 1, "{refused}");
    });
}

/// A fast call beside a flood to a server where so many calls may wait. Returns how many of the flood were
/// refused.
fn flood(seed: u64, queued_max: u32) -> usize {
    let mut sim = Sim::new(seed, Faults::none());
    let ledger = Ledger::default();
    let of_server = ledger.clone();
    sim.node("server", move |node| {
        let worker = WorkServer::new(Worker(of_server.clone()));
        node.spawn(async move {
            let server = Server::builder().calls_max(CALLS_MAX).calls_queued_max(queued_max);
            let server = server.add_service(worker);
            server.bind("soft://server:7400").await.unwrap().serve().await.unwrap();
        });
    });
    let flooded = Rc::new(Cell::new(0));
    let (counted, of_flood) = (Rc::clone(&flooded), ledger.clone());
    sim.node("flood", move |node| {
        let (flooded, ledger, of_node) = (Rc::clone(&counted), of_flood.clone(), node.clone());
        node.spawn(async move {
            let work = connect().await;
            for _ in 0..FLOOD {
                let (work, flooded, pending) = (work.clone(), Rc::clone(&flooded), ledger.begin());
                of_node.spawn(async move {
                    let micros = SLOW.as_micros() as u64;
                    let ask = Ask { id: pending.id, micros, ..Ask::default() };
                    pending.end(&ask, work.ask(ask.clone()).await, Duration::ZERO);
                    flooded.set(flooded.get() + 1);
                });
            }
        });
    });
    let (fast, ledger_of_fast) = (Rc::new(Cell::new(None)), ledger.clone());
    let (took, seen) = (Rc::clone(&fast), Rc::clone(&flooded));
    sim.node("fast", move |node| {
        let (took, seen) = (Rc::clone(&took), Rc::clone(&seen));
        let ledger = ledger_of_fast.clone();
        node.spawn(async move {
            let work = connect().await;
            // Until the first of the flood has ended or was refused.
            while seen.get() == 0 {
                sim::sleep(Duration::from_micros(100)).await;
            }
            let (begun, pending) = (sim::now(), ledger.begin());
            let ask = Ask { id: pending.id, ..Ask::default() };
            let got = work.ask(ask.clone()).await;
            assert!(got.is_ok(), "{got:?}");
            pending.end(&ask, got, Duration::ZERO);
            took.set(Some(sim::now() - begun));
        });
    });
    assert!(sim.run_until(Duration::from_secs(1), |_| fast.get().is_some()));
    let waiting = FLOOD - flooded.get();
    assert!(waiting > u64::from(queued_max) / 2, "{waiting} calls of the flood wait");
    let took = fast.get().unwrap();
    assert!(took <= SLOW + SLOW / 2, "the fast call took {took:?}");
    assert!(sim.run_until(Duration::from_secs(5), |_| flooded.get() == FLOOD));
    ledger.check();
    let failures = ledger.failures();
    let refused = failures.iter().map(|(.., count)| count).sum();
    let full = |(code, execution, _): &_| {
        (*code, *execution) == (Code::ResourceExhausted, Execution::NotExecuted)
    };
    assert!(failures.iter().all(full), "{failures:?}");
    assert_eq!(ledger.counts(), (257, 257 - refused));
    refused
}
