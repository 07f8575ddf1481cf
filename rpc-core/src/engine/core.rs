mod rest;

use std::future::Future;
use std::os::fd::BorrowedFd;
use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::time::Duration;

use async_task::Runnable;

use super::alarms::{AlarmId, Alarms};
use super::attention::Attention;
use super::capacity::{CALLS_PER_FLUSH, SUBMISSIONS_PER_TURN, TASKS_PER_TURN, TASKS_PER_TURN_TIME};
use super::cell::CallCell;
use super::clock::Clock;
use super::drive::{Drive, Turn};
use super::engine::{Engine, SOURCE_COMPLETIONS};
use super::executor::Joining;
use super::local::Local;
use super::shared::{CoreShared, Totals};
use super::sleep::Ready;
use super::submission::ConnectionKey;
use crate::Time;
use crate::verbs::Device;

/// Engines that nobody uses are polled this often.
const UNUSED_EVERY: Duration = Duration::from_millis(1);

/// Idle turns look at control sockets this often even while the core spins.
const SOCKETS_EVERY: Duration = Duration::from_millis(1);
/// Counters that other threads may read are copied this often, and before the core sleeps.
const PUBLISH_EVERY: Duration = Duration::from_millis(1);
/// Turns at most in which a core that was left alone learns what became of its connections; what is left
/// then is left to the turns that follow.
const CATCH_UP_TURNS: u32 = 64;
/// A thread's event loop: mailbox, timers, tasks, and one engine for each device in use.
///
/// It lives on one thread. A runtime gives each core a thread of its own, or a program turns it from
/// its own loop.
pub(crate) struct Core {
    pub(crate) shared: Arc<CoreShared>,
    pub(crate) local: Rc<Local>,
    pub(crate) clock: Clock,
    pub(crate) engines: Vec<Box<dyn Drive>>,
    alarms: Alarms,
    spin: Duration,
    /// A device works on the CPU that this core polls on.
    yields: bool,
    /// Looks that found nothing, counted around.
    looks: u32,
    /// When engines that nobody uses were last polled.
    all_polled: Time,
    /// A sleep was announced: what no look finds now does not end it.
    announced: bool,
    ready: Ready,
    taken: Vec<Arc<CallCell>>,
    sockets_seen: Time,
    published: Time,
    idle_since: Option<Time>,
    attention: Attention,
    rescued_by_timeout: bool,
}

/// What a turn did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Progress {
    /// Completions, submissions and tasks handled, and requests posted.
    pub work: usize,
}

impl Progress {
    /// Whether there was nothing to do.
    pub fn is_idle(self) -> bool {
        self.work == 0
    }
}

impl Core {
    pub(crate) fn new(
        shared: Arc<CoreShared>,
        clock: Clock,
        engines: Vec<Box<dyn Drive>>,
        spin: Duration,
    ) -> std::io::Result<Self> {
        for (index, engine) in engines.iter().enumerate() {
            engine.watch(index, &shared.sleeper)?;
        }
        Ok(Self {
            local: Local::new(Arc::clone(&shared)),
            shared,
            clock,
            looks: 0,
            all_polled: Time::ZERO,
            announced: false,
            yields: engines.iter().any(|engine| engine.needs_cpu()),
            engines,
            alarms: Alarms::default(),
            spin,
            ready: Ready::new(),
            taken: Vec::with_capacity(SUBMISSIONS_PER_TURN),
            sockets_seen: Time::ZERO,
            published: Time::ZERO,
            idle_since: None,
            attention: Attention::default(),
            rescued_by_timeout: false,
        })
    }

    /// One turn: completions, submissions, timers, tasks, then everything there is to say goes out;
    /// and now and then a look at the control sockets.
    pub(crate) fn turn(&mut self) -> Progress {
        self.turn_with(|| {})
    }

    /// A turn in which `with_tasks` runs after the ready tasks, as one of them.
    pub(crate) fn turn_with(&mut self, with_tasks: impl FnOnce()) -> Progress {
        let (progress, now) = self.work_with(with_tasks);
        self.look_at_sockets(now);
        progress
    }

    /// After a time without turns: learns what became of its connections before anything uses them.
    pub(crate) fn catch_up(&mut self) {
        if self.clock.now().since(self.sockets_seen) < SOCKETS_EVERY {
            return;
        }
        // The first turn looks at the sockets after its completions: what a peer said before it went
        // away is taken before it is noticed that it went.
        for _ in 0..CATCH_UP_TURNS {
            if self.turn().is_idle() {
                return;
            }
        }
    }

    /// A turn without a look at descriptors, and when it began.
    fn work(&mut self) -> (Progress, Time) {
        self.work_with(|| {})
    }

    /// The same; `with_tasks` runs after the ready tasks, as one of them.
    fn work_with(&mut self, with_tasks: impl FnOnce()) -> (Progress, Time) {
        let local = Rc::clone(&self.local);
        let _current = local.enter();
        let shared = Arc::clone(&self.shared);
        let turn = self.begin_turn(&shared, &local);
        let missed = self.attention.turn(turn.now);
        let turn = Turn { missed, ..turn };

        let mut work = self.poll(&turn);
        if std::mem::take(&mut self.rescued_by_timeout) && work > 0 && !self.was_notified() {
            shared.counters.lost_wakeups.fetch_add(1, Ordering::Relaxed);
        }
        let given = shared.take_given();
        // Most turns of a core that spins end here, and what comes meanwhile waits for this one to end.
        let quiet = work == 0 && !given && self.is_quiet(turn.now);
        if !quiet {
            work += self.take_asked(&turn, given);
        }
        with_tasks();
        if !quiet || local.has_work() {
            // What they ask for goes out with this turn, and credits and acknowledgements ride with it.
            work += self.take_local_submissions(&turn);
            work += self.take_handler_ends(&turn);
            work += self.flush(&turn);
        }
        self.publish(turn.now, PUBLISH_EVERY);
        self.idle_since = if work > 0 { None } else { self.idle_since.or(Some(turn.now)) };
        (Progress { work }, turn.now)
    }

    /// Takes what the devices have completed.
    fn poll(&mut self, turn: &Turn<'_>) -> usize {
        // A core that may use RDMA has the software device as well: where nobody uses one, a look now and
        // then is enough.
        let all = self.announced || turn.now.since(self.all_polled) >= UNUSED_EVERY;
        if all {
            self.all_polled = turn.now;
        }
        let mut work = 0;
        for engine in &mut self.engines {
            if all || !engine.is_unused() {
                work += engine.poll(turn);
            }
        }
        work
    }

    /// What programs, timers and tasks want of the core.
    fn take_asked(&mut self, turn: &Turn<'_>, given: bool) -> usize {
        let mut work = if given { self.empty_mailbox(turn) } else { 0 };
        work += self.take_local_submissions(turn);
        for engine in &mut self.engines {
            work += engine.fire_timers(turn);
        }
        work += self.alarms.fire(turn.now);
        work + self.run_tasks(turn)
    }

    /// Whether nothing is to be done, if no device has completed anything and no other thread has given
    /// anything.
    fn is_quiet(&self, now: Time) -> bool {
        !self.local.has_work()
            && self.alarms.next().is_none_or(|at| at > now)
            && self.engines.iter().all(|engine| engine.is_quiet(now))
    }

    fn begin_turn<'a>(&self, shared: &'a Arc<CoreShared>, local: &'a Rc<Local>) -> Turn<'a> {
        let (now, missed) = (self.clock.now(), self.attention.missed());
        Turn { now, missed, clock: self.clock, shared, local }
    }

    /// Copies the engines' counters to where other threads read them.
    fn publish(&mut self, now: Time, every: Duration) {
        if now.since(self.published) >= every {
            self.published = now;
            let mut totals = Totals::default();
            for engine in &self.engines {
                engine.count(&mut totals);
            }
            self.shared.counters.publish(&totals);
        }
    }

    /// Calls made on this core itself.
    fn take_local_submissions(&mut self, turn: &Turn<'_>) -> usize {
        let mut work = 0;
        loop {
            let Some(submission) = self.local.submissions.borrow_mut().pop_front() else {
                return work;
            };
            self.submit(turn, submission);
            work += 1;
            if work.is_multiple_of(CALLS_PER_FLUSH) {
                self.flush(turn);
            }
        }
    }

    /// Sends what there is to say. Returns how many requests were posted.
    fn flush(&mut self, turn: &Turn<'_>) -> usize {
        self.engines.iter_mut().map(|engine| engine.flush(turn)).sum()
    }

    fn submit(&mut self, turn: &Turn<'_>, call: Arc<CallCell>) {
        match self.engines.get_mut(usize::from(call.connection.engine)) {
            Some(engine) => engine.submit(turn, call),
            // No key names an engine that never was; if one did, its caller would hear of it.
            None => call.fail("the connection's device is gone; the call was not sent"),
        }
    }

    /// Takes what other threads have given, within the turn's budget.
    fn empty_mailbox(&mut self, turn: &Turn<'_>) -> usize {
        let mut work = 0;
        while let Some(job) = self.shared.take_job() {
            job(self);
            work += 1;
        }
        let mut taken = std::mem::take(&mut self.taken);
        self.shared.take_submissions(&mut taken, SUBMISSIONS_PER_TURN);
        work += taken.len();
        for (index, submission) in taken.drain(..).enumerate() {
            if index > 0 && index.is_multiple_of(CALLS_PER_FLUSH) {
                self.flush(turn);
            }
            self.submit(turn, submission);
        }
        self.taken = taken;
        while let Some(cell) = self.shared.take_abandoned() {
            work += 1;
            if let Some(engine) = self.engines.get_mut(usize::from(cell.connection.engine)) {
                engine.abandon(turn, &cell);
            }
        }
        // Tasks woken by other threads take their place in the line, so that those which only yield cannot
        // keep them waiting.
        for _ in 0..TASKS_PER_TURN {
            let Some(runnable) = self.shared.take_runnable() else { break };
            self.local.ready.borrow_mut().push_back(runnable);
        }
        if self.shared.has_work() {
            self.shared.keep_given(); // more than a turn takes
        }
        work
    }

    /// Runs ready tasks, within the turn's budget, and now and then sends what they asked for.
    fn run_tasks(&mut self, turn: &Turn<'_>) -> usize {
        let (mut first, mut before) = (None, Time::ZERO);
        for done in 0..TASKS_PER_TURN {
            if done > 0 && done.is_multiple_of(CALLS_PER_FLUSH) {
                self.take_local_submissions(turn);
            }
            let next = self.local.ready.borrow_mut().pop_front();
            let Some(runnable) = next else { return done };
            let first = *first.get_or_insert_with(|| {
                before = self.clock.now();
                before
            });
            run_task(runnable);
            let after = self.clock.now();
            turn.report_stall("a task", after.since(before));
            before = after;
            if after.since(first) > TASKS_PER_TURN_TIME {
                return done + 1;
            }
        }
        TASKS_PER_TURN
    }

    fn take_handler_ends(&mut self, turn: &Turn<'_>) -> usize {
        let mut work = 0;
        loop {
            // Taken one by one: ending a handler may drop a future, which may end another.
            let Some(end) = self.local.ended.borrow_mut().pop_front() else { return work };
            work += 1;
            if let Some(engine) = self.engines.get_mut(usize::from(end.connection.engine)) {
                engine.handler_ended(turn, end);
            }
            if work.is_multiple_of(CALLS_PER_FLUSH) {
                self.flush(turn);
            }
        }
    }

    fn look_at_sockets(&mut self, now: Time) {
        if now.since(self.sockets_seen) < SOCKETS_EVERY {
            return;
        }
        self.sockets_seen = now;
        self.wait_for_events(Some(Duration::ZERO));
    }

    /// The end of a sleep in somebody else's wait, that of a simulation: looks at what ended it.
    #[cfg(any(test, feature = "test-util"))]
    pub(crate) fn look(&mut self) {
        self.wait_for_events(Some(Duration::ZERO));
    }

    /// Whether nothing but a notification of completions would end a sleep now.
    #[cfg(any(test, feature = "test-util"))]
    pub(crate) fn is_notified_only(&self) -> bool {
        self.shared.sleeper.peek().is_ok_and(|keys| {
            let mut sources = keys.iter().map(|key| Turn::split_key(*key).1);
            !keys.is_empty() && sources.all(|source| source == SOURCE_COMPLETIONS)
        })
    }

    /// Waits in epoll and tells the engines which control sockets have news.
    fn wait_for_events(&mut self, timeout: Option<Duration>) {
        if let Err(error) = self.shared.sleeper.wait(&mut self.ready, timeout) {
            tracing::error!(core = self.shared.index, %error, "waiting for events failed");
            return;
        }
        let shared = Arc::clone(&self.shared);
        let local = Rc::clone(&self.local);
        let turn = self.begin_turn(&shared, &local);
        for key in self.ready.sources() {
            let (engine, source) = Turn::split_key(key);
            if let Some(engine) = self.engines.get_mut(engine) {
                engine.socket_ready(&turn, source);
            }
        }
    }

    /// Whether a notification of completions stands for the work that was found after a sleep had ended
    /// without one: it came between the end of the sleep and the look, and would have ended the next
    /// sleep. That another descriptor is ready says nothing of these.
    fn was_notified(&mut self) -> bool {
        self.wait_for_events(Some(Duration::ZERO));
        self.ready.sources().any(|key| Turn::split_key(key).1 == SOURCE_COMPLETIONS)
    }

    /// When this core must turn again though nothing happens.
    pub(crate) fn next_timer(&self) -> Option<Time> {
        let engines = self.engines.iter().filter_map(|engine| engine.next_timer());
        engines.chain(self.alarms.next()).min()
    }

    /// A descriptor that is readable when [`turn`](Self::turn) has something to do.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.shared.sleeper.fd()
    }

    /// Runs `f` as part of this core: calls made in it take no hop.
    pub(crate) fn enter<R>(&self, f: impl FnOnce() -> R) -> R {
        let _current = self.local.enter();
        f()
    }

    /// Places a future of this thread on the core.
    pub(crate) fn spawn_local(&self, future: impl Future<Output = ()> + 'static) {
        let number = self.local.tasks.borrow_mut().insert(None);
        let local = Rc::downgrade(&self.local);
        let ending = async move {
            future.await;
            let ended = local.upgrade().and_then(|l| l.tasks.borrow_mut().try_remove(number));
            if let Some(task) = ended.flatten() {
                task.detach();
            }
        };
        let task = self.enter(|| super::executor::spawn_local(&self.shared, ending));
        if let Some(place) = self.local.tasks.borrow_mut().get_mut(number) {
            *place = Some(task);
        }
    }

    /// Runs `f` with the engine of this index, if it is one for `D`.
    pub(crate) fn with_engine<D: Device>(
        &mut self,
        index: usize,
        f: impl FnOnce(&mut Engine<D>, &Turn<'_>),
    ) {
        let local = Rc::clone(&self.local);
        let _current = local.enter();
        let shared = Arc::clone(&self.shared);
        let turn = self.begin_turn(&shared, &local);
        let engine = self.engines.get_mut(index).and_then(|engine| engine.as_any().downcast_mut());
        if let Some(engine) = engine {
            f(engine, &turn);
        }
    }

    /// Takes over an engine for a further device. Its index is the number of engines before it.
    #[cfg(feature = "verbs")]
    pub(crate) fn add_engine(&mut self, engine: Box<dyn Drive>) {
        let index = self.engines.len();
        if let Err(error) = engine.watch(index, &self.shared.sleeper) {
            // It works, but only for as long as the core does not sleep.
            tracing::error!(core = self.shared.index, %error, "a device cannot end this core's sleep");
        }
        self.yields |= engine.needs_cpu();
        self.engines.push(engine);
    }

    /// Wakes `waker` at the alarm's time.
    pub(crate) fn add_alarm(&mut self, alarm: AlarmId, waker: Waker) {
        self.alarms.add(alarm, waker);
    }

    /// Forgets an alarm.
    pub(crate) fn remove_alarm(&mut self, alarm: AlarmId) {
        self.alarms.remove(alarm);
    }

    /// Closes a connection in order: calls in progress may end first.
    pub(crate) fn close(&mut self, key: ConnectionKey) {
        self.with_drive(usize::from(key.engine), |engine, turn| engine.close(turn, key));
    }

    /// Closes every connection that a server accepted; `closed` is told when they are gone.
    pub(crate) fn close_server(&mut self, server: u64, closed: Joining<()>) {
        let closed = Arc::new(closed);
        for index in 0..self.engines.len() {
            let closed = Arc::clone(&closed);
            self.with_drive(index, |engine, turn| engine.close_server(turn, server, closed));
        }
    }

    fn with_drive(&mut self, index: usize, f: impl FnOnce(&mut dyn Drive, &Turn<'_>)) {
        let local = Rc::clone(&self.local);
        let _current = local.enter();
        let shared = Arc::clone(&self.shared);
        let turn = self.begin_turn(&shared, &local);
        if let Some(engine) = self.engines.get_mut(index) {
            f(engine.as_mut(), &turn);
        }
    }

    /// The loop of a core that has a thread to itself.
    pub(crate) fn run(&mut self) {
        while !self.shared.is_stopped() {
            if self.turn().is_idle() {
                let shared = Arc::clone(&self.shared);
                self.idle(|| shared.is_stopped());
            }
        }
        self.shut_down();
    }

    /// Ends every connection and task, and whatever is still given to this core.
    pub(crate) fn shut_down(&mut self) {
        self.shared.stop();
        // Queue pairs come back from the control thread by jobs: they go before their memory does.
        while let Some(job) = self.shared.take_job() {
            job(self);
        }
        let local = Rc::clone(&self.local);
        let _current = local.enter();
        let shared = Arc::clone(&self.shared);
        let turn = self.begin_turn(&shared, &local);
        for engine in &mut self.engines {
            engine.shut_down(&turn);
        }
        // Dropping a task's runnable drops its future; waking it again would queue it for nobody.
        // Cancelling a task queues it once more, to be dropped here.
        drop(self.local.tasks.take());
        loop {
            // One by one: dropping a future may wake another task of this core.
            let next = self.local.ready.borrow_mut().pop_front();
            let Some(runnable) = next.or_else(|| self.shared.take_runnable()) else { break };
            drop(runnable);
        }
        for submission in self.local.submissions.take() {
            submission.fail("the runtime was shut down; the call was not sent");
        }
        self.shared.end_pushed();
    }
}

/// Runs a task once. One that panics ends alone: whoever joins it learns of it, and the core goes on.
fn run_task(runnable: Runnable) {
    if std::panic::catch_unwind(AssertUnwindSafe(|| runnable.run())).is_err() {
        tracing::error!("a task panicked; it has ended and its core goes on");
    }
}

#[cfg(test)]
mod tests;
