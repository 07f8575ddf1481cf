use std::future::Future;
use std::panic::resume_unwind;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::clock::{SharedOutside, replace_outside};
use super::dice::Dice;
use super::faults::{FaultCounts, Faults};
use super::host::{Host, Life, State, VerbFaults};
use super::net::SharedNet;
use super::node::{Node, Panicked};
use super::plan::Plan;
use super::trace::{Trace, TraceSum};
use crate::runtime::{SimulatedRuntime, Surroundings};
use crate::verbs::soft::{Fabric, Verb};
use crate::world::{self, World};
use crate::{Runtime, RuntimeBuilder, RuntimeStats};

/// What a turn takes of virtual time.
const TURN: std::ops::Range<Duration> = Duration::from_micros(1)..Duration::from_micros(3);
/// From what ends a sleep to the turn that follows.
const WAKING: std::ops::Range<Duration> = Duration::from_micros(1)..Duration::from_micros(20);
/// The same for one that comes late.
const WAKING_LATE: std::ops::Range<Duration> = Duration::from_micros(20)..Duration::from_millis(5);
/// A core that has nothing to do looks again instead of sleeping, so often in a million: it spins.
const SPINS_PER_MILLION: u32 = 200_000;
/// When a spinning core looks again.
const SPIN: std::ops::Range<Duration> = Duration::from_micros(1)..Duration::from_micros(20);
/// Payload memory of a node that asks for nothing else.
const BUDGET_BYTES: u64 = 64 << 20;
/// Steps without an end are a loop.
const STEPS_MAX: u64 = 50_000_000;

/// A simulation: nodes, what is between them, and their time.
///
/// It does nothing by itself: [`block_on`](Self::block_on), [`run_for`](Self::run_for) and
/// [`run_until`](Self::run_until) let time pass. It stays on its thread.
pub struct Sim {
    world: Rc<World>,
    start: Instant,
    pub(super) dice: Dice,
    pub(super) faults: Faults,
    pub(super) plan: Plan,
    net: SharedNet,
    fabric: Arc<Fabric>,
    pub(super) hosts: Vec<Host>,
    outside: SharedOutside,
    panicked: Panicked,
    trace: Trace,
    pub(super) counts: FaultCounts,
}

/// What is done next.
enum Next {
    Turn(usize),
    Deliver,
    Fault,
    Outside,
    Restart(usize),
}

impl Sim {
    /// A simulation without nodes. Everything in it follows from the seed and the plan.
    ///
    /// # Panics
    /// If the system has no more descriptors.
    pub fn new(seed: u64, faults: Faults) -> Self {
        let mut dice = Dice::new(seed);
        let world = World::new(dice.next());
        let start = {
            let _entered = world::enter(&world);
            world::now()
        };
        // Not at the start of the clock: a runtime's own begins a second before.
        let plan = Plan::new(&faults, &mut dice);
        let net = SharedNet::new(faults.clone(), Dice::new(dice.next()));
        Self {
            world,
            start,
            dice,
            plan,
            faults,
            net,
            fabric: Fabric::relayed().expect("descriptors are left"),
            hosts: Vec::new(),
            outside: SharedOutside::default(),
            panicked: Rc::default(),
            trace: Trace::new(),
            counts: FaultCounts::default(),
        }
    }

    /// Adds a node and starts it: `make` gives it its tasks, now and after each time it was killed.
    /// Addresses name it by `name`; a new life has a new runtime, and nothing of the one before but what
    /// `make` keeps.
    ///
    /// # Panics
    /// If there is a node of this name.
    pub fn node(&mut self, name: &str, make: impl FnMut(&Node) + 'static) {
        self.node_with(name, Runtime::builder(), make);
    }

    /// The same with settings for the node's runtime. It has one core whatever they say, and 64 MiB of
    /// payload memory if they say nothing.
    ///
    /// # Panics
    /// As [`node`](Self::node).
    pub fn node_with(
        &mut self,
        name: &str,
        settings: RuntimeBuilder,
        make: impl FnMut(&Node) + 'static,
    ) {
        self.net.lock().add_name(name);
        let verbs = VerbFaults::new(Dice::new(self.dice.next()));
        self.hosts.push(Host {
            name: name.into(),
            settings: settings.name(name).default_budget_bytes(BUDGET_BYTES),
            make: Box::new(make),
            life: None,
            lives: 0,
            restart_at: None,
            verbs,
        });
        self.within(|sim| sim.start_node(sim.hosts.len() - 1));
    }

    /// Lets time pass until `future` is ready, which is on no node.
    ///
    /// # Panics
    /// When a task of a node panicked, and when nothing could happen any more.
    pub fn block_on<F: Future>(&mut self, future: F) -> F::Output {
        let flag = Arc::new(Flag(AtomicBool::new(true)));
        let waker = Waker::from(Arc::clone(&flag));
        let mut future = pin!(future);
        self.within(|sim| {
            loop {
                if flag.0.swap(false, Ordering::SeqCst)
                    && let Poll::Ready(output) =
                        future.as_mut().poll(&mut Context::from_waker(&waker))
                {
                    return output;
                }
                if !flag.0.load(Ordering::SeqCst) {
                    assert!(sim.step(None), "nothing can happen any more, and it is not ready");
                }
            }
        })
    }

    /// Lets time pass until `done` says so, or for no longer than `within`. Whether it did.
    ///
    /// # Panics
    /// When a task of a node panicked.
    pub fn run_until(&mut self, within: Duration, mut done: impl FnMut(&Self) -> bool) -> bool {
        let end = self.passed() + within;
        self.within(|sim| {
            while !done(sim) {
                if sim.passed() >= end || !sim.step(Some(end)) {
                    return false;
                }
            }
            true
        })
    }

    /// Lets so much time pass.
    ///
    /// # Panics
    /// When a task of a node panicked.
    pub fn run_for(&mut self, span: Duration) {
        self.run_until(span, |_| false);
    }

    /// Time since the start.
    pub fn passed(&self) -> Duration {
        self.world.passed()
    }

    /// What happened so far, as a number: the same for the same seed and the same nodes.
    pub fn trace(&self) -> TraceSum {
        self.trace.sum()
    }

    /// What went wrong so far.
    pub fn faults(&self) -> FaultCounts {
        let verbs = self.hosts.iter().map(Host::verbs_failed).sum();
        FaultCounts { verbs, ..self.counts }
    }

    /// Whether a node runs now: it is not down.
    ///
    /// # Panics
    /// If there is no node of this name, as all that follow here.
    pub fn is_up(&self, name: &str) -> bool {
        self.hosts[self.find(name)].life.is_some()
    }

    /// What a node that runs has done and holds; `None` if it is down.
    pub fn stats(&self, name: &str) -> Option<RuntimeStats> {
        let life = self.hosts[self.find(name)].life.as_ref()?;
        Some(life.runtime.runtime().stats())
    }

    /// Kills a node: everything it had is gone at once, and it says nothing more.
    pub fn kill(&mut self, name: &str) {
        let node = self.find(name);
        self.within(|sim| sim.kill_node(node));
    }

    /// Starts a node that is down.
    pub fn restart(&mut self, name: &str) {
        let node = self.find(name);
        self.within(|sim| {
            if sim.hosts[node].life.is_none() {
                sim.start_node(node);
            }
        });
    }

    /// Stops a node for a while, as by SIGSTOP and SIGCONT.
    pub fn stop(&mut self, name: &str, span: Duration) {
        let (node, until) = (self.find(name), self.passed() + span);
        self.stop_node(node, until);
    }

    /// Cuts everything that is between two nodes now.
    pub fn cut(&mut self, one: &str, other: &str) {
        let (one, other) = (self.find(one), self.find(other));
        self.cut_nodes(one, other);
    }

    /// Lets nothing pass between two nodes for a while.
    pub fn part(&mut self, one: &str, other: &str, span: Duration) {
        let (one, other, until) = (self.find(one), self.find(other), self.passed() + span);
        self.part_nodes(one, other, until);
    }

    /// Lets a node's `k`-th verb of this kind from now on fail, counted from 0.
    pub fn fail_verb(&self, name: &str, verb: Verb, k: u64) {
        self.hosts[self.find(name)].fail_verb(verb, k);
    }

    /// Ends all faults: nodes that are down or stopped come back now, partitions end, and nothing more
    /// goes wrong.
    pub fn calm(&mut self) {
        self.plan.end();
        self.faults = Faults { delay: self.faults.delay.clone(), ..Faults::none() };
        self.net.lock().calm(&self.faults);
        self.within(|sim| {
            for node in 0..sim.hosts.len() {
                sim.hosts[node].arm_verbs(true, 0);
                match &mut sim.hosts[node].life {
                    Some(life) => life.stopped_until = None,
                    None => sim.start_node(node),
                }
            }
        });
    }

    fn find(&self, name: &str) -> usize {
        let found = self.hosts.iter().position(|host| &*host.name == name);
        found.unwrap_or_else(|| panic!("no node is named {name}"))
    }

    /// Runs `f` in this simulation's world.
    fn within<R>(&mut self, f: impl FnOnce(&mut Self) -> R) -> R {
        let world = Rc::clone(&self.world);
        let _inside = Inside::enter(&world, &self.outside);
        f(self)
    }

    fn start_node(&mut self, node: usize) {
        let now = self.passed();
        let host = &mut self.hosts[node];
        host.restart_at = None;
        host.arm_verbs(false, 0);
        let around = Surroundings {
            fabric: Arc::clone(&self.fabric),
            network: self.net.seen_by(node),
            fails: host.fails(),
        };
        let runtime = SimulatedRuntime::start(host.settings.clone(), around)
            .unwrap_or_else(|error| panic!("the node {} cannot start: {error}", host.name));
        let made = Node::new(
            Rc::clone(&host.name),
            host.lives,
            runtime.runtime().clone(),
            Rc::clone(&self.panicked),
        );
        host.lives += 1;
        self.net.lock().started(node, runtime.guid());
        runtime.enter(|| (host.make)(&made));
        host.life =
            Some(Life { node: made, runtime, state: State::Awake(now), stopped_until: None });
        host.arm_verbs(true, self.faults.verbs_per_million);
        self.spawn(node);
        self.trace.add(now, "start", node, 0);
    }

    /// Places what a node has spawned on its core.
    fn spawn(&mut self, node: usize) {
        let now = self.passed();
        let Some(life) = &mut self.hosts[node].life else { return };
        let spawned = std::mem::take(&mut *life.node.spawned.borrow_mut());
        if !spawned.is_empty() && matches!(life.state, State::Asleep { .. }) {
            life.state = State::Awake(now);
        }
        for task in spawned {
            life.runtime.spawn(task);
        }
    }

    pub(super) fn kill_node(&mut self, node: usize) {
        let now = self.passed();
        let Some(life) = self.hosts[node].life.take() else { return };
        self.trace.add(now, "kill", node, 0);
        self.counts.kills += 1;
        let device = life.runtime.guid();
        self.fabric.remove(device);
        let mut net = self.net.lock();
        net.set_now(now);
        // What it wrote before is on its way, whole or in part.
        net.collect(node, self.fabric.cables());
        net.kill(node, device);
        drop(net);
        // Futures of other nodes do not hear of this; its own may.
        drop(life);
    }

    pub(super) fn stop_node(&mut self, node: usize, until: Duration) {
        let now = self.passed();
        if let Some(life) = &mut self.hosts[node].life {
            life.stopped_until = Some(until.max(life.stopped_until.unwrap_or_default()));
            self.counts.stops += 1;
            self.trace.add(now, "stop", node, until.as_nanos() as usize);
        }
    }

    pub(super) fn cut_nodes(&mut self, one: usize, other: usize) {
        self.trace.add(self.passed(), "cut", one, other);
        self.counts.cuts += 1;
        self.net.lock().cut(one, other);
    }

    pub(super) fn part_nodes(&mut self, one: usize, other: usize, until: Duration) {
        self.trace.add(self.passed(), "part", one, other);
        self.counts.partitions += 1;
        self.net.lock().part(one, other, until);
    }

    /// Does what comes next, and returns whether anything did before `end`; time is then at `end`.
    fn step(&mut self, end: Option<Duration>) -> bool {
        self.wake_sleepers();
        let now = self.passed();
        let Some((at, next)) = self.next() else {
            if let Some(end) = end {
                self.world.advance_to(end);
            }
            return false;
        };
        if let Some(end) = end.filter(|end| at > *end) {
            self.world.advance_to(end);
            return false;
        }
        self.world.advance_to(at.max(now));
        let now = self.passed();
        self.net.lock().set_now(now);
        match next {
            Next::Turn(node) => self.turn(node),
            Next::Deliver => self.deliver(),
            Next::Fault => self.next_fault(),
            Next::Outside => {
                let due = self.outside.take_due(world::now());
                due.into_iter().for_each(Waker::wake);
            }
            Next::Restart(node) => self.start_node(node),
        }
        assert!(self.trace.sum().steps() < STEPS_MAX, "the simulation does not come to an end");
        if let Some(panic) = self.panicked.borrow_mut().take() {
            resume_unwind(panic);
        }
        true
    }

    /// What comes next, and when; of several at one time, one that is drawn.
    fn next(&mut self) -> Option<(Duration, Next)> {
        let now = self.passed();
        let mut all: Vec<(Duration, Next)> = Vec::new();
        for (node, host) in self.hosts.iter().enumerate() {
            if let Some(at) = host.life.as_ref().and_then(Life::next) {
                all.push((at.max(now), Next::Turn(node)));
            }
            if let Some(at) = host.restart_at {
                all.push((at.max(now), Next::Restart(node)));
            }
        }
        all.extend(self.net.lock().next().map(|at| (at.max(now), Next::Deliver)));
        all.extend(self.plan.next().map(|at| (at.max(now), Next::Fault)));
        let outside = self.outside.next();
        all.extend(
            outside.map(|at| (at.saturating_duration_since(self.start).max(now), Next::Outside)),
        );
        let first = all.iter().map(|(at, _)| *at).min()?;
        all.retain(|(at, _)| *at == first);
        let drawn = if all.len() == 1 { 0 } else { self.dice.below(all.len() as u64) };
        Some(all.swap_remove(drawn as usize))
    }

    fn turn(&mut self, node: usize) {
        let now = self.passed();
        let Some(life) = &mut self.hosts[node].life else { return };
        if matches!(life.state, State::Asleep { .. }) {
            life.runtime.wake();
        }
        let work = life.runtime.turn().work;
        let spins = work == 0 && self.dice.chance(SPINS_PER_MILLION);
        life.state = if work > 0 || !spins && !life.runtime.prepare_to_sleep() {
            State::Awake(now + self.dice.span(&TURN))
        } else if spins {
            State::Awake(now + self.dice.span(&SPIN))
        } else {
            let until = life.runtime.next_wake().map(|wake| now + wake);
            State::Asleep { until, deaf: false }
        };
        self.spawn(node);
        let bytes = self.net.lock().collect(node, self.fabric.cables());
        self.trace.add(now, "turn", node, work);
        if bytes > 0 {
            self.trace.add(now, "sent", node, bytes);
        }
    }

    fn deliver(&mut self) {
        let now = self.passed();
        let given = self.net.lock().deliver();
        for (node, bytes) in given.into_iter().enumerate().filter(|(_, bytes)| *bytes > 0) {
            self.trace.add(now, "came", node, bytes);
        }
    }

    /// Finds sleeping nodes that something has come for.
    fn wake_sleepers(&mut self) {
        let ready = self.readable();
        let (now, faults) = (self.passed(), self.faults.clone());
        for node in ready {
            let Some(life) = &mut self.hosts[node].life else { continue };
            let State::Asleep { until, deaf } = &mut life.state else { continue };
            if *deaf && life.runtime.may_miss() {
                continue;
            }
            let lost = faults.lost_per_million > 0
                && self.dice.chance(faults.lost_per_million)
                && !*deaf
                && until.is_some()
                && life.runtime.may_miss();
            if lost {
                *deaf = true;
                self.counts.lost += 1;
                continue;
            }
            let late = faults.late_per_million > 0 && self.dice.chance(faults.late_per_million);
            self.counts.late += u64::from(late);
            let waking = self.dice.span(if late { &WAKING_LATE } else { &WAKING });
            let at = (now + waking).min(until.unwrap_or(Duration::MAX));
            life.runtime.wake();
            life.state = State::Awake(at);
        }
    }

    /// Sleeping nodes whose descriptors are readable.
    fn readable(&self) -> Vec<usize> {
        let mut owners = Vec::new();
        let mut fds = Vec::new();
        for (node, host) in self.hosts.iter().enumerate() {
            let Some(life) = &host.life else { continue };
            if matches!(life.state, State::Asleep { .. }) {
                for fd in life.runtime.fds() {
                    owners.push(node);
                    fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
                }
            }
        }
        if fds.is_empty() || poll(&mut fds, Some(&Timespec::default())).is_err() {
            return Vec::new();
        }
        let ready = owners.into_iter().zip(&fds).filter(|(_, fd)| !fd.revents().is_empty());
        let mut nodes: Vec<usize> = ready.map(|(node, _)| node).collect();
        nodes.dedup();
        nodes
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        let world = Rc::clone(&self.world);
        let _inside = Inside::enter(&world, &self.outside);
        self.hosts.clear();
    }
}

/// While it lives, this thread is in a simulation.
struct Inside {
    before: Option<SharedOutside>,
    _world: world::Entered,
}

impl Inside {
    fn enter(world: &Rc<World>, outside: &SharedOutside) -> Self {
        let _world = world::enter(world);
        Self { before: replace_outside(Some(outside.clone())), _world }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        replace_outside(self.before.take());
    }
}

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}
