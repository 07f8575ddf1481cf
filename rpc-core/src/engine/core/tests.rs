//! How often a core looks at its engines, and when it gives way. Its time stands until a test moves it.

use std::any::Any;
use std::cell::Cell;
use std::io;
use std::sync::atomic::AtomicUsize;
use std::task::Wake;

use bytes::Bytes;

use super::rest::LOOKS_PER_YIELD;
use super::*;
use crate::engine::sleep::Sleeper;
use crate::engine::submission::HandlerEnd;
use crate::world::{self, World};

/// An engine that never has anything to do, and counts how often it was looked at.
#[derive(Default)]
struct Looked {
    polls: Cell<u32>,
    submitted: Cell<usize>,
    flushes: Cell<u32>,
    /// A timer is due, or there is something to post.
    due: Cell<bool>,
    used: Cell<bool>,
    needs_cpu: bool,
}

/// The core owns its engines; a test looks at this one too.
struct Idle(Rc<Looked>);

impl Drive for Idle {
    fn watch(&self, _: usize, _: &Sleeper) -> io::Result<()> {
        Ok(())
    }

    fn poll(&mut self, _: &Turn<'_>) -> usize {
        self.0.polls.set(self.0.polls.get() + 1);
        0
    }

    fn submit(&mut self, _: &Turn<'_>, call: Arc<CallCell>) {
        assert!(call.take_call().is_some());
        self.0.submitted.set(self.0.submitted.get() + 1);
    }

    fn abandon(&mut self, _: &Turn<'_>, _: &Arc<CallCell>) {}

    fn handler_ended(&mut self, _: &Turn<'_>, _: HandlerEnd) {}

    fn fire_timers(&mut self, _: &Turn<'_>) -> usize {
        0
    }

    fn flush(&mut self, _: &Turn<'_>) -> usize {
        self.0.flushes.set(self.0.flushes.get() + 1);
        0
    }

    fn is_quiet(&self, _: Time) -> bool {
        !self.0.due.get()
    }

    fn count(&self, _: &mut Totals) {}

    fn next_timer(&self) -> Option<Time> {
        None
    }

    fn is_unused(&self) -> bool {
        !self.0.used.get()
    }

    fn needs_cpu(&self) -> bool {
        self.0.needs_cpu
    }

    fn arm(&mut self) -> bool {
        true
    }

    fn has_outstanding(&self) -> bool {
        false
    }

    fn socket_ready(&mut self, _: &Turn<'_>, _: u32) {}

    fn close(&mut self, _: &Turn<'_>, _: ConnectionKey) {}

    fn close_server(&mut self, _: &Turn<'_>, _: u64, _: Arc<Joining<()>>) {}

    fn shut_down(&mut self, _: &Turn<'_>) {}

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

/// Counts how often it was woken.
struct Woken(Arc<AtomicUsize>);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A core that spins for as long as its time stands.
fn core_of(engines: &[&Rc<Looked>]) -> Core {
    let engines =
        engines.iter().map(|looked| -> Box<dyn Drive> { Box::new(Idle(Rc::clone(looked))) });
    let shared = CoreShared::new(0).unwrap();
    Core::new(shared, Clock::new(), engines.collect(), Duration::from_secs(1)).unwrap()
}

/// So many turns of a core that finds nothing to do, as its thread takes them.
fn turns(core: &mut Core, count: u32) {
    for _ in 0..count {
        assert!(core.turn().is_idle());
        core.idle(|| false);
    }
}

fn yields(core: &Core) -> u64 {
    core.shared.counters.yields.load(Ordering::Relaxed)
}

#[test]
fn a_spinning_core_gives_way_only_where_a_devices_work_waits_for_its_cpu() {
    let _entered = world::enter(&World::new(1));
    let (nic, soft) = (Rc::default(), Rc::new(Looked { needs_cpu: true, ..Looked::default() }));
    let mut core = core_of(&[&nic]);
    turns(&mut core, 10 * LOOKS_PER_YIELD);
    assert_eq!(yields(&core), 0, "a NIC works by itself");
    let mut core = core_of(&[&nic, &soft]);
    turns(&mut core, LOOKS_PER_YIELD - 1);
    assert_eq!(yields(&core), 0, "each is a system call, so not after every look");
    turns(&mut core, 9 * LOOKS_PER_YIELD + 1);
    assert_eq!(yields(&core), 10);
}

#[test]
fn what_other_threads_give_beyond_a_turns_budget_is_taken_by_the_turns_that_follow() {
    let _entered = world::enter(&World::new(1));
    let engine = Rc::<Looked>::default();
    let mut core = core_of(&[&engine]);
    let calls = 2 * SUBMISSIONS_PER_TURN + 1;
    for _ in 0..calls {
        assert!(core.shared.submit(&CallCell::of(&core.shared, Bytes::new())));
    }
    let (shared, ran) = (Arc::clone(&core.shared), Arc::new(AtomicUsize::new(0)));
    let tasks = 2 * TASKS_PER_TURN + 1;
    for _ in 0..tasks {
        let ran = Arc::clone(&ran);
        let ends = async move { _ = ran.fetch_add(1, Ordering::Relaxed) };
        crate::engine::executor::spawn(&shared, ends).detach();
    }
    // Never put to sleep, as a core that spins.
    while !core.turn().is_idle() {}
    assert_eq!((engine.submitted.get(), ran.load(Ordering::Relaxed)), (calls, tasks));
}

#[test]
fn a_turn_in_which_nothing_comes_does_what_is_due() {
    let world = World::new(1);
    let _entered = world::enter(&world);
    let engine = Rc::<Looked>::default();
    let mut core = core_of(&[&engine]);
    turns(&mut core, 3);
    assert_eq!(engine.flushes.get(), 0, "all was quiet");
    engine.due.set(true);
    turns(&mut core, 2);
    assert_eq!(engine.flushes.get(), 2);
    engine.due.set(false);
    let woken = Arc::new(AtomicUsize::new(0));
    let at = core.clock.now() + UNUSED_EVERY;
    core.add_alarm(AlarmId { at, number: 1 }, Waker::from(Arc::new(Woken(Arc::clone(&woken)))));
    turns(&mut core, 2);
    assert_eq!(woken.load(Ordering::Relaxed), 0, "it is not time yet");
    world.advance_to(UNUSED_EVERY);
    assert!(!core.turn().is_idle());
    assert_eq!(woken.load(Ordering::Relaxed), 1);
}

#[test]
fn a_call_that_a_stopped_core_never_takes_keeps_nothing() {
    let shared = CoreShared::new(0).unwrap();
    let core = Arc::downgrade(&shared);
    let body = Bytes::from(vec![7; 100]);
    let cell = CallCell::of(&shared, body.clone());
    shared.stop();
    assert!(shared.submit(&cell));
    assert!(body.is_unique(), "it has ended");
    let late = CallCell::of(&shared, body.clone());
    late.abandon();
    drop((cell, late, shared));
    assert!(body.is_unique() && core.upgrade().is_none());
}

#[cfg(feature = "verbs")]
#[test]
fn a_core_gives_way_as_well_for_a_device_that_came_later() {
    let _entered = world::enter(&World::new(1));
    let mut core = core_of(&[&Rc::default()]);
    core.add_engine(Box::new(Idle(Rc::new(Looked { needs_cpu: true, ..Looked::default() }))));
    turns(&mut core, LOOKS_PER_YIELD);
    assert_eq!(yields(&core), 1);
}

#[test]
fn an_engine_that_nobody_uses_is_polled_once_a_millisecond_and_not_every_turn() {
    let world = World::new(1);
    let _entered = world::enter(&world);
    let (unused, used) = (Rc::<Looked>::default(), Rc::new(Looked::default()));
    used.used.set(true);
    let mut core = core_of(&[&unused, &used]);
    turns(&mut core, 100);
    assert_eq!((unused.polls.get(), used.polls.get()), (1, 100));
    for passed in 1..=10 {
        world.advance_to(UNUSED_EVERY * passed);
        turns(&mut core, 100);
    }
    assert_eq!((unused.polls.get(), used.polls.get()), (11, 1_100));
}

#[test]
fn an_engine_is_polled_in_the_turn_after_someone_connects() {
    let _entered = world::enter(&World::new(1));
    let engine = Rc::<Looked>::default();
    let mut core = core_of(&[&engine]);
    turns(&mut core, 2);
    let before = engine.polls.get();
    engine.used.set(true);
    turns(&mut core, 3);
    assert_eq!(engine.polls.get(), before + 3, "no time has passed");
}

#[test]
fn the_last_look_before_a_sleep_is_at_engines_that_nobody_uses_too() {
    let _entered = world::enter(&World::new(1));
    let engine = Rc::<Looked>::default();
    let mut core = core_of(&[&engine]);
    turns(&mut core, 2);
    let before = engine.polls.get();
    // What came before its queue was armed is announced by nothing.
    assert!(core.prepare_to_sleep());
    assert_eq!(engine.polls.get(), before + 1);
    turns(&mut core, 2);
    assert_eq!(engine.polls.get(), before + 1, "the sleep is over, and no time has passed");
}
