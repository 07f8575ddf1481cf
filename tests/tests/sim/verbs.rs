use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use rpc_core::sim::{self, Faults, Sim, Verb};
use rpc_core::{Channel, Code, Request, Runtime, Server};

use crate::ledger::Ledger;
use crate::service::{Ask, WorkClient, WorkServer, Worker, pattern};
use crate::workload::{Call, all, held};

/// Rounds of calls after which a verb has been used often enough.
const ROUNDS: u64 = 8;
/// Calls of a round, which share a connection.
const AT_ONCE: u64 = 8;
/// The verb that fails is one of its first so many…
const FIRST: u64 = 8;
/// …or so many of those that every turn needs…
const FIRST_OF_POSTS: u64 = 40;
/// …and one that comes so many later.
const APART: u64 = 4;

pub(crate) async fn serve(ledger: Ledger, over: Rc<Cell<bool>>) {
    let server = Server::builder().add_service(WorkServer::new(Worker(ledger)));
    let bound = server.bind("soft://server:7400").await.unwrap();
    let closed = async {
        while !over.get() {
            sim::sleep(Duration::from_millis(10)).await;
        }
    };
    bound.serve_with_shutdown(closed).await.unwrap();
}

async fn call(work: WorkClient, ledger: Ledger, number: u64, failed: Rc<Cell<u64>>) {
    let pending = ledger.begin();
    // Every other round is a burst of SENDs, which are taken, and posted anew, together.
    let burst = (number / AT_ONCE).is_multiple_of(2);
    let len = if burst { 7_000 } else { [10, 70_000, 9_000, 200_000][number as usize % 4] };
    let data = pattern(number, len);
    let ask = Ask { id: pending.id, answer_bytes: len as u32, data, ..Ask::default() };
    let mut request = Request::new(ask.clone());
    request.set_timeout(Duration::from_secs(10));
    request.set_wait_for_ready(true);
    let got = work.ask(request).await;
    if let Err(status) = &got {
        let code = status.code();
        assert!(matches!(code, Code::Unavailable | Code::ResourceExhausted), "{status:?}");
        failed.set(failed.get() + 1);
    }
    pending.end(&ask, got, Duration::ZERO);
}

/// Calls while a verb fails twice on a node, and what holds afterwards. How many verbs failed.
fn run(node: &str, verb: Verb, k: u64) -> u64 {
    let mut sim = Sim::new(k, Faults::none());
    let (ledger, over) = (Ledger::default(), Rc::new(Cell::new(false)));
    let of_server = (ledger.clone(), Rc::clone(&over));
    // With nothing lent, one receive that is counted and not there is one too few.
    let lent = if k.is_multiple_of(2) { u32::MAX } else { 0 };
    let settings = || Runtime::builder().rnr_retry(0).receives_lent_max(lent);
    sim.node_with("server", settings(), move |node| {
        node.spawn(serve(of_server.0.clone(), Rc::clone(&of_server.1)));
    });
    let (done, failed) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let of_client = (ledger.clone(), Rc::clone(&done), Rc::clone(&failed));
    sim.node_with("client", settings(), move |node| {
        let (ledger, done, failed) = of_client.clone();
        let channel = Channel::builder("soft://server:7400").runtime(node.runtime());
        let work = WorkClient::new(channel.connect_lazy().unwrap());
        node.spawn(async move {
            sim::sleep(Duration::from_millis(1)).await;
            for round in 0..ROUNDS {
                let one = |number| {
                    let number = AT_ONCE * round + number;
                    let call = call(work.clone(), ledger.clone(), number, Rc::clone(&failed));
                    Box::pin(call) as Call
                };
                all((0..AT_ONCE).map(one).collect()).await;
                done.set(done.get() + 1);
            }
        });
    });
    sim.fail_verb(node, verb, k);
    sim.fail_verb(node, verb, k + APART);
    let what = format!("{verb:?} {k} of {node}");
    assert!(sim.run_until(Duration::from_secs(60), |_| done.get() == ROUNDS), "{what}: stuck");
    let hit = sim.faults().verbs;
    assert!(failed.get() <= AT_ONCE * hit, "{what}: {} calls failed", failed.get());
    over.set(true);
    let rests = |sim: &Sim| ["server", "client"].map(|name| held(sim, name)).concat();
    for _ in 0..1_000 {
        if rests(&sim).is_empty() {
            break;
        }
        sim.run_for(Duration::from_millis(20));
    }
    assert!(rests(&sim).is_empty(), "{what}: {:?}", rests(&sim));
    ledger.check();
    // Those of the connection's end too.
    sim.faults().verbs
}

/// With a typed error, and nothing that comes after.
#[test]
fn a_verb_that_fails_ends_no_more_than_the_connection_that_needed_it() {
    use Verb::{AllocMw, Arm, CreateQp, PostRecv, PostSend, Register, ToErr, ToRtr, ToRts};
    for verb in [Register, AllocMw, CreateQp, ToRtr, ToRts, PostSend, PostRecv, Arm, ToErr] {
        let posts = matches!(verb, PostSend | PostRecv);
        let first = if posts { FIRST_OF_POSTS } else { FIRST };
        let runs = (0..first).flat_map(|k| [run("server", verb, k), run("client", verb, k)]);
        assert!(runs.sum::<u64>() > 0, "{verb:?} never failed");
    }
}
