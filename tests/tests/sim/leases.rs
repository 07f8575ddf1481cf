use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use rpc_core::sim::{self, Faults, Sim};
use rpc_core::{Channel, Request};

use crate::ledger::Ledger;
use crate::service::{Ask, WorkClient, pattern};
use crate::verbs::serve;
use crate::workload::held;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A call whose request must be READ, with a short deadline.
async fn call(work: &WorkClient, ledger: &Ledger) -> bool {
    let pending = ledger.begin();
    let ask = Ask { id: pending.id, data: pattern(7, 100_000), ..Ask::default() };
    let mut request = Request::new(ask.clone());
    request.set_timeout(ms(100));
    let got = work.ask(request).await;
    let answered = got.is_ok();
    pending.end(&ask, got, Duration::ZERO);
    answered
}

/// The server stands still for longer than its peer's lease lasts, and not so long that the connection ends:
/// the lease expires, its windows are closed, and the memory is used again before the server goes on.
#[test]
fn a_lease_that_expired_under_a_stopped_peer_leaves_no_window_open() {
    sim::seeds(5, |seed| {
        let mut sim = Sim::new(seed, Faults::none());
        let (ledger, over) = (Ledger::default(), Rc::new(Cell::new(false)));
        let of_server = (ledger.clone(), Rc::clone(&over));
        sim.node("server", move |node| {
            node.spawn(serve(of_server.0.clone(), Rc::clone(&of_server.1)));
        });
        let answered = Rc::new(Cell::new((0, 0)));
        let of_client = (ledger.clone(), Rc::clone(&answered));
        sim.node("client", move |node| {
            let (ledger, answered) = of_client.clone();
            let channel = Channel::builder("soft://server:7400").runtime(node.runtime());
            let work = WorkClient::new(channel.connect_lazy().unwrap());
            node.spawn(async move {
                sim::sleep(ms(1)).await;
                // Before the server stands still, while it does, after the lease expired, and afterwards.
                for at in [10, 1_000, 3_500, 6_000] {
                    let (mut yes, mut no) = answered.get();
                    *if call(&work, &ledger).await { &mut yes } else { &mut no } += 1;
                    answered.set((yes, no));
                    sim::sleep(ms(at)).await;
                }
            });
        });
        sim.run_for(ms(9));
        sim.stop("server", ms(4_500));
        sim.run_for(ms(12_000));
        assert_eq!(answered.get(), (2, 2), "calls answered, and not");
        over.set(true);
        sim.run_for(ms(12_000));
        let left = ["server", "client"].map(|name| held(&sim, name)).concat();
        assert!(left.is_empty(), "{left:?}");
        ledger.check();
    });
}
