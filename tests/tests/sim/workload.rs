//! Nodes that call each other in every way, with faults, and what holds afterwards.

use std::cell::Cell;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use rpc_core::sim::{self, Faults, Node, Sim};
use rpc_core::{
    Channel, Code, Execution, Request, Runtime, RuntimeBuilder, RuntimeStats, Server, ServerBuilder,
};

use crate::draw::Draw;
use crate::ledger::Ledger;
use crate::service::{Ask, WorkClient, WorkServer, Worker, pattern};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Faults come for so long.
const FAULTS: Duration = ms(2_000);
/// After them every server can be reached within this: what notices a dead peer, and some attempts.
const BACK_WITHIN: Duration = ms(30_000);
/// Everything is given back within this of the end: the longest is a lease that nobody releases.
const REST_WITHIN: Duration = ms(60_000);
/// A node that is awake looks at the time this often.
const HEARTBEAT: Duration = ms(50);

/// What a run is like, drawn from its seed.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) seed: u64,
    pub(crate) faults: Faults,
    pub(crate) servers: usize,
    pub(crate) clients: usize,
    /// Loops of calls on each client.
    pub(crate) loops: u64,
    /// Limits that are small, or the usual ones.
    pub(crate) tight: bool,
    /// Whether callers set short deadlines and give calls up.
    pub(crate) impatient: bool,
    /// Whether servers close in order and begin anew.
    pub(crate) closing: bool,
}

/// What the tasks of all nodes do now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Calling,
    /// No new calls.
    Ending,
    /// A call to each server.
    Greeting,
    /// Channels and servers go.
    Leaving,
}

#[derive(Clone)]
struct Common {
    shape: Shape,
    phase: Rc<Cell<Phase>>,
    ledger: Ledger,
    greeted: Rc<Cell<u64>>,
}

impl Shape {
    pub(crate) fn of(seed: u64) -> Self {
        let mut draw = Draw::new(seed);
        let faults = match seed % 4 {
            0 => Faults::none(),
            1 => Faults::all(FAULTS).verbs(0).no_kills(),
            2 => Faults::all(FAULTS),
            _ => Faults::none().verbs(3_000).slow(20_000).until(FAULTS),
        };
        Self {
            seed,
            faults,
            servers: 1 + draw.below(2) as usize,
            clients: 2 + draw.below(2) as usize,
            loops: 1 + draw.below(2),
            tight: draw.chance(30),
            impatient: draw.chance(60),
            closing: draw.chance(30),
        }
    }

    fn runtime(&self) -> RuntimeBuilder {
        let usual = Runtime::builder().rnr_retry(0);
        if !self.tight {
            return usual;
        }
        usual.budget_bytes(4 << 20).receives_lent_max(1).read_bytes_max(64 << 10)
    }

    fn server(&self) -> ServerBuilder {
        let usual = Server::builder();
        if self.tight { usual.calls_max(2).calls_queued_max(2) } else { usual }
    }

    /// Whether anything may end a call before its answer.
    fn is_strict(&self) -> bool {
        self.seed.is_multiple_of(4) && !self.tight && !self.impatient && !self.closing
    }
}

/// Runs the workload of a seed, and checks what must hold.
pub(crate) fn run(seed: u64) -> sim::TraceSum {
    let shape = Shape::of(seed);
    let mut sim = Sim::new(seed, shape.faults.clone());
    let common = Common {
        shape: shape.clone(),
        phase: Rc::new(Cell::new(Phase::Calling)),
        ledger: Ledger::default(),
        greeted: Rc::default(),
    };
    let mut names = Vec::new();
    for number in 0..shape.servers {
        let common = common.clone();
        names.push(format!("server{number}"));
        sim.node_with(&names[number], shape.runtime(), move |node| {
            node.spawn(serve(node.clone(), common.clone()));
        });
    }
    for number in 0..shape.clients {
        let common = common.clone();
        names.push(format!("client{number}"));
        sim.node_with(&names[shape.servers + number], shape.runtime(), move |node| {
            begin_client(node, &common, number as u64);
        });
    }
    sim.run_for(FAULTS);
    common.phase.set(Phase::Ending);
    sim.calm();
    sim.run_for(ms(50));
    common.phase.set(Phase::Greeting);
    let wanted = (shape.servers * shape.clients) as u64;
    let met = sim.run_until(BACK_WITHIN, |_| common.greeted.get() == wanted);
    assert!(
        met,
        "{} of {wanted} clients reached their servers again; {shape:?}",
        common.greeted.get()
    );
    check_errors(&sim, &common, &names);
    common.phase.set(Phase::Leaving);
    let rests = |sim: &Sim| names.iter().all(|name| held(sim, name).is_empty());
    let end = sim.passed() + REST_WITHIN;
    while !rests(&sim) && sim.passed() < end {
        sim.run_for(ms(10));
    }
    if !rests(&sim) {
        let held: Vec<_> = names.iter().map(|name| (name, held(&sim, name))).collect();
        panic!("left at the end: {held:#?}; {shape:?}");
    }
    common.ledger.check();
    let (made, answered) = common.ledger.counts();
    assert!(answered as u64 >= wanted, "the greetings at least were answered");
    if shape.is_strict() {
        assert_eq!(made, answered, "{:?}", common.ledger.failures());
    }
    if crate::is_shown() {
        let (faults, failures) = (sim.faults(), common.ledger.failures());
        eprintln!(
            "{seed}: {answered} of {made} answered, {failures:?}, {faults:?}, {:?}",
            sim.trace()
        );
    }
    sim.trace()
}

/// No SEND found its peer without a receive; and without faults no call failed by itself: a connection ends by
/// a fault, or because its peer closes.
fn check_errors(sim: &Sim, common: &Common, names: &[String]) {
    for name in names {
        let Some(stats) = sim.stats(name) else { panic!("{name} is down") };
        let core = &stats.cores[0];
        assert_eq!(core.device.rnr_naks_sent, 0, "{name}: {core:?}");
    }
    let (shape, failures) = (&common.shape, common.ledger.failures());
    if sim.faults().that_end_connections() == 0 && !shape.closing {
        let own = |(code, ..): &(Code, Execution, usize)| match code {
            Code::DeadlineExceeded | Code::Cancelled => shape.impatient,
            Code::ResourceExhausted => shape.tight,
            _ => false,
        };
        assert!(failures.iter().all(own), "{failures:?} without any fault; {shape:?}");
    }
}

/// What a node holds that it should not when nothing goes on.
pub(crate) fn held(sim: &Sim, name: &str) -> Vec<String> {
    let Some(stats) = sim.stats(name) else { return vec!["it is down".to_owned()] };
    let RuntimeStats { memory, cores, .. } = &stats;
    let core = &cores[0];
    let counts = [
        ("bytes of inbound payload memory", memory.inbound),
        ("bytes of outbound payload memory", memory.outbound),
        ("bytes held by users", memory.held_by_users),
        ("queue pairs", core.usage.qps.into()),
        ("windows that are bound", core.usage.mws_bound.into()),
        ("connections", core.connections.into()),
        ("leases", core.leases.into()),
        ("credits", core.credits_granted.into()),
    ];
    let left = counts.into_iter().filter(|(_, count)| *count > 0);
    left.map(|(what, count)| format!("{count} {what}")).collect()
}

/// Serves until the end; now and then closes in order, and begins anew.
async fn serve(node: Node, common: Common) {
    let mut draw = Draw::new(common.shape.seed ^ u64::from(node.lives()) << 32);
    while common.phase.get() != Phase::Leaving {
        let worker = WorkServer::new(Worker(common.ledger.clone()));
        let address = format!("soft://{}:7400", node.name());
        let bound = common.shape.server().add_service(worker).bind(&address).await.unwrap();
        let until = sim::now() + ms(500 + draw.below(3_000));
        let closes = common.shape.closing;
        let phase = Rc::clone(&common.phase);
        let over = async move {
            loop {
                let leaves = phase.get() == Phase::Leaving;
                if leaves || closes && phase.get() == Phase::Calling && sim::now() >= until {
                    return;
                }
                sim::sleep(ms(100)).await;
            }
        };
        bound.serve_with_shutdown(over).await.unwrap();
    }
}

fn begin_client(node: &Node, common: &Common, number: u64) {
    let awake = Rc::new(Cell::new(Duration::ZERO));
    node.spawn(beat(Rc::clone(&awake), common.clone()));
    let channels: Vec<WorkClient> = (0..common.shape.servers)
        .map(|server| {
            let address = format!("soft://server{server}:7400");
            let channel = Channel::builder(&address).runtime(node.runtime()).connect_lazy();
            WorkClient::new(channel.unwrap())
        })
        .collect();
    for number_of_loop in 0..common.shape.loops {
        let seed = common.shape.seed << 16 | u64::from(node.lives()) << 8 | number << 4;
        let caller = Caller {
            draw: Draw::new(seed | number_of_loop),
            channels: channels.clone(),
            awake: Rc::clone(&awake),
            common: common.clone(),
        };
        node.spawn(caller.call_on());
    }
    node.spawn(greet(channels, common.clone()));
}

/// Counts the time in which the node is awake: one that is stopped is late for everything.
async fn beat(awake: Rc<Cell<Duration>>, common: Common) {
    let mut last = sim::now();
    while common.phase.get() != Phase::Leaving {
        sim::sleep(HEARTBEAT).await;
        let now = sim::now();
        awake.set(awake.get() + (now - last).min(2 * HEARTBEAT));
        last = now;
    }
}

struct Caller {
    draw: Draw,
    channels: Vec<WorkClient>,
    awake: Rc<Cell<Duration>>,
    common: Common,
}

impl Caller {
    async fn call_on(mut self) {
        sim::sleep(ms(1)).await; // servers listen by then, if nothing goes wrong
        while self.common.phase.get() == Phase::Calling {
            // Often one at a time, sometimes more than a window or a limit holds.
            let at_once = if self.draw.chance(20) { 2 + self.draw.below(10) } else { 1 };
            let calls = (0..at_once).map(|_| Box::pin(self.call()) as Call).collect();
            all(calls).await;
            sim::sleep(Duration::from_micros(self.draw.below(400_000))).await;
        }
    }

    /// One call, of any kind.
    fn call(&mut self) -> impl Future<Output = ()> + use<> {
        let draw = &mut self.draw;
        let pending = self.common.ledger.begin();
        let ask = Ask {
            id: pending.id,
            answer_bytes: size(draw) as u32,
            micros: if draw.chance(20) { draw.below(50_000) } else { 0 },
            data: pattern(!pending.id, size(draw)),
        };
        let short = self.common.shape.impatient && draw.chance(20);
        let timeout = if short { Duration::from_micros(draw.below(30_000)) } else { ms(5_000) };
        let give_up = (self.common.shape.impatient && draw.chance(10))
            .then(|| Duration::from_micros(draw.below(10_000)));
        let mut request = Request::new(ask.clone());
        request.set_timeout(timeout);
        request.set_urgent(draw.chance(20));
        request.set_wait_for_ready(draw.chance(50));
        let awake = Rc::clone(&self.awake);
        let deadline = awake.get() + timeout + HEARTBEAT;
        let channel = self.channels[draw.below(self.channels.len() as u64) as usize].clone();
        async move {
            let call = channel.ask(request);
            let got = match give_up {
                None => Some(call.await),
                Some(after) => within(after, call).await,
            };
            if let Some(got) = got {
                pending.end(&ask, got, awake.get().saturating_sub(deadline));
            }
        }
    }
}

pub(crate) type Call = Pin<Box<dyn Future<Output = ()>>>;

/// Waits for all of them.
pub(crate) async fn all(mut calls: Vec<Call>) {
    std::future::poll_fn(|context| {
        calls.retain_mut(|call| call.as_mut().poll(context).is_pending());
        if calls.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Sizes on both sides of every border: one SEND, one piece, one READ.
fn size(draw: &mut Draw) -> usize {
    const BORDERS: [u64; 8] = [1, 100, 1_000, 8_000, 9_200, 20_000, 70_000, 262_144];
    let border = BORDERS[draw.below(BORDERS.len() as u64) as usize];
    draw.below(border + 1) as usize
}

/// What `future` gives, unless that takes longer; then it is dropped.
async fn within<F: Future>(after: Duration, future: F) -> Option<F::Output> {
    let (mut future, mut over) = (pin!(future), pin!(sim::sleep(after)));
    std::future::poll_fn(|context| {
        if let Poll::Ready(output) = future.as_mut().poll(context) {
            return Poll::Ready(Some(output));
        }
        over.as_mut().poll(context).map(|()| None)
    })
    .await
}

/// Once faults are over: a call to each server that must succeed.
async fn greet(channels: Vec<WorkClient>, common: Common) {
    while common.phase.get() != Phase::Greeting {
        sim::sleep(ms(50)).await;
    }
    for channel in &channels {
        loop {
            let pending = common.ledger.begin();
            let ask = Ask { id: pending.id, ..Ask::default() };
            let mut request = Request::new(ask.clone());
            request.set_timeout(BACK_WITHIN);
            request.set_wait_for_ready(true);
            let got = channel.ask(request).await;
            let answered = got.is_ok();
            pending.end(&ask, got, Duration::ZERO);
            if answered {
                break;
            }
            sim::sleep(ms(10)).await;
        }
        common.greeted.set(common.greeted.get() + 1);
    }
    while common.phase.get() != Phase::Leaving {
        sim::sleep(ms(10)).await;
    }
}
