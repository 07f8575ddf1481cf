use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use rpc_core::sim::{self, Faults, Sim};
use rpc_core::{Channel, Code, Execution, Runtime, Status};

use crate::ledger::Ledger;
use crate::service::{Ask, WorkClient, pattern};
use crate::verbs::serve;

/// Of the server: a few of the calls below fill what requests may have of it.
const BUDGET: u64 = 4 << 20;
/// Bytes of a call.
const LEN: usize = 400_000;
/// Calls of the client that stands still.
const CALLS: usize = 16;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

type Failures = Rc<RefCell<Vec<Status>>>;

/// A client that makes so many calls at once, `after` a while.
fn client(
    sim: &mut Sim,
    name: &str,
    calls: usize,
    after: Duration,
    ledger: &Ledger,
) -> (Rc<Cell<usize>>, Failures) {
    let (answered, failures) = (Rc::new(Cell::new(0)), Failures::default());
    let (ledger, of_node) = (ledger.clone(), (Rc::clone(&answered), Rc::clone(&failures)));
    sim.node(name, move |node| {
        let channel = Channel::builder("soft://server:7400").runtime(node.runtime());
        let work = WorkClient::new(channel.connect_lazy().unwrap());
        for _ in 0..calls {
            let (work, ledger, (answered, failures)) =
                (work.clone(), ledger.clone(), of_node.clone());
            node.spawn(async move {
                sim::sleep(ms(1) + after).await;
                let pending = ledger.begin();
                let data = pattern(pending.id, LEN);
                let ask = Ask { id: pending.id, data, ..Ask::default() };
                let got = work.ask(ask.clone()).await;
                match &got {
                    Ok(_) => answered.set(answered.get() + 1),
                    Err(status) => failures.borrow_mut().push(status.clone()),
                }
                pending.end(&ask, got, Duration::ZERO);
            });
        }
    });
    (answered, failures)
}

/// A client, "stopped", stands still for `span` while the server reads from it, and holds most of the
/// server's memory; another needs some of it. The server itself stands still for `span_of_server`. Returns how many calls of the first were answered, how the others failed, and
/// how long the other client had to wait.
fn stop(seed: u64, span: Duration, span_of_server: Duration) -> (usize, Vec<Status>, Duration) {
    let mut sim = Sim::new(seed, Faults::none());
    let (ledger, over) = (Ledger::default(), Rc::new(Cell::new(false)));
    let of_server = (ledger.clone(), Rc::clone(&over));
    sim.node_with("server", Runtime::builder().budget_bytes(BUDGET), move |node| {
        node.spawn(serve(of_server.0.clone(), Rc::clone(&of_server.1)));
    });
    let (answered, failures) = client(&mut sim, "stopped", CALLS, Duration::ZERO, &ledger);
    let (answered_other, failures_other) = client(&mut sim, "other", 1, ms(20), &ledger);
    let reads = |sim: &Sim| sim.stats("server").is_some_and(|stats| stats.memory.inbound > 0);
    assert!(sim.run_until(ms(20), reads), "nothing is read");
    let stopped = sim.passed();
    sim.stop("stopped", span);
    sim.stop("server", span_of_server);
    let ended = |_: &Sim| answered_other.get() + failures_other.borrow().len() == 1;
    assert!(sim.run_until(ms(20_000), ended));
    let waited = sim.passed() - stopped;
    assert!(failures_other.borrow().is_empty(), "{:?}", failures_other.borrow());
    let ended = |_: &Sim| answered.get() + failures.borrow().len() == CALLS;
    assert!(sim.run_until(ms(20_000), ended));
    over.set(true);
    sim.run_for(ms(1_000));
    ledger.check();
    (answered.get(), failures.take(), waited)
}

#[test]
fn a_client_that_pauses_keeps_its_connection_though_others_wait_for_its_memory() {
    sim::seeds(5, |seed| {
        let (answered, failures, waited) = stop(seed, ms(1_500), ms(0));
        assert!(failures.is_empty(), "{failures:?}");
        assert_eq!(answered, CALLS);
        assert!(waited > ms(1_400), "the other did not wait for memory, but {waited:?}");
    });
}

#[test]
fn a_client_that_stands_still_loses_its_connection_to_others_and_is_told_why() {
    sim::seeds(5, |seed| {
        let (answered, failures, waited) = stop(seed, ms(4_000), ms(0));
        assert!(answered < CALLS && answered + failures.len() == CALLS);
        assert!(waited > ms(1_900) && waited < ms(3_000), "the other waited for {waited:?}");
        for status in &failures {
            assert_eq!(status.code(), Code::Unavailable);
            assert_ne!(status.execution(), Execution::Executed);
            assert!(status.message().contains("nothing could be read from you"), "{status:?}");
        }
    });
}

/// As when the machine under both is suspended: the server wakes first, and has seen nothing of the client for
/// a long time.
#[test]
fn a_server_that_stood_still_itself_blames_no_client_for_it() {
    sim::seeds(5, |seed| {
        let (answered, failures, waited) = stop(seed, ms(3_010), ms(3_000));
        assert!(failures.is_empty(), "{failures:?}");
        assert_eq!(answered, CALLS);
        assert!(waited > ms(3_000), "nobody stood still, the other waited for {waited:?}");
    });
}
