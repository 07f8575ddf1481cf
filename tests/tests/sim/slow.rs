use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use rpc_core::sim::{self, Faults, Sim};
use rpc_core::{Channel, Runtime};

use crate::ledger::Ledger;
use crate::service::{Ask, WorkClient, pattern};
use crate::verbs::serve;

/// What the slow handler takes: longer than any bound on silence.
const SLOW: Duration = Duration::from_secs(10);
/// Bytes of its request and of its answer, and of every other one's.
const LEN: usize = 300_000;
/// A call of the other client, the answer included.
const FAST: Duration = Duration::from_millis(20);

async fn call(work: &WorkClient, ledger: &Ledger, takes: Duration) -> Duration {
    let (begun, pending) = (sim::now(), ledger.begin());
    let data = pattern(pending.id, LEN);
    let micros = takes.as_micros() as u64;
    let ask = Ask { id: pending.id, answer_bytes: LEN as u32, micros, data };
    let got = work.ask(ask.clone()).await;
    assert!(got.is_ok(), "{got:?}");
    pending.end(&ask, got, Duration::ZERO);
    sim::now() - begun
}

/// Its call is answered, as nothing asks it to end; meanwhile it holds its own message and nothing else.
#[test]
fn a_handler_that_takes_ten_seconds_delays_nobody_and_is_answered() {
    sim::seeds(5, |seed| {
        let mut sim = Sim::new(seed, Faults::none());
        let (ledger, over) = (Ledger::default(), Rc::new(Cell::new(false)));
        let of_server = (ledger.clone(), Rc::clone(&over));
        sim.node_with("server", Runtime::builder().budget_bytes(4 << 20), move |node| {
            node.spawn(serve(of_server.0.clone(), Rc::clone(&of_server.1)));
        });
        let slow = Rc::new(Cell::new(None));
        let of_slow = (ledger.clone(), Rc::clone(&slow));
        sim.node("slow", move |node| {
            let (ledger, took) = of_slow.clone();
            node.spawn(async move {
                sim::sleep(Duration::from_millis(1)).await;
                let work = WorkClient::new(Channel::connect("soft://server:7400").await.unwrap());
                took.set(Some(call(&work, &ledger, SLOW).await));
            });
        });
        let served = Rc::new(Cell::new(0));
        let of_fast = (ledger.clone(), Rc::clone(&served), Rc::clone(&slow));
        sim.node("fast", move |node| {
            let (ledger, served, slow) = of_fast.clone();
            node.spawn(async move {
                sim::sleep(Duration::from_millis(5)).await;
                let work = WorkClient::new(Channel::connect("soft://server:7400").await.unwrap());
                while slow.get().is_none() {
                    let took = call(&work, &ledger, Duration::ZERO).await;
                    assert!(took < FAST, "a fast call took {took:?}");
                    served.set(served.get() + 1);
                    sim::sleep(FAST).await;
                }
            });
        });
        let mut held = 0;
        let ended = sim.run_until(2 * SLOW, |sim| {
            held = held.max(sim.stats("server").map_or(0, |stats| stats.memory.inbound));
            slow.get().is_some()
        });
        assert!(ended, "the slow call is not answered");
        assert!(slow.get().unwrap() < SLOW + FAST);
        assert!(served.get() > 200, "{} fast calls in its time", served.get());
        assert!(held < 4 * LEN as u64, "{held} bytes for two calls at a time");
        over.set(true);
        sim.run_for(Duration::from_secs(1));
        ledger.check();
    });
}
