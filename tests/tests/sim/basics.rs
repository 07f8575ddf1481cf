use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use rpc_core::sim::{self, Faults, Sim};
use rpc_core::{Channel, Server};

use crate::ledger::Ledger;
use crate::service::{Ask, WorkClient, WorkServer, Worker, answer_to, pattern};

async fn serve(ledger: Ledger) {
    let bound =
        Server::builder().add_service(WorkServer::new(Worker(ledger))).bind("soft://server:7400");
    bound.await.unwrap().serve().await.unwrap();
}

/// A client that calls `calls` times; what came of the run.
fn run(seed: u64, calls: u64) -> sim::TraceSum {
    let mut sim = Sim::new(seed, Faults::none());
    sim.node("server", |node| node.spawn(serve(Ledger::default())));
    let done = Rc::new(Cell::new(0));
    let count = Rc::clone(&done);
    sim.node("client", move |node| {
        let done = Rc::clone(&count);
        node.spawn(async move {
            sim::sleep(Duration::from_millis(1)).await;
            let work = WorkClient::new(Channel::connect("soft://server:7400").await.unwrap());
            for id in 0..calls {
                let len = 1 << (id % 19);
                let data = pattern(!id, len);
                let ask = Ask { id, answer_bytes: len as u32, micros: id, data };
                let answer = work.ask(ask.clone()).await.unwrap().into_inner();
                assert!(answer == answer_to(&ask));
                done.set(done.get() + 1);
            }
        });
    });
    assert!(sim.run_until(Duration::from_secs(10), |_| done.get() == calls), "{}", done.get());
    sim.trace()
}

#[test]
fn calls_of_all_sizes_are_answered_and_a_seed_repeats_its_run() {
    let traces: Vec<_> = (0..20).map(|seed| run(seed, 40)).collect();
    let again: Vec<_> = (0..20).map(|seed| run(seed, 40)).collect();
    assert_eq!(traces, again);
    assert_ne!(traces[0], traces[1]);
}
