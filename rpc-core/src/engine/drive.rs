use std::any::Any;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::attention::Missed;
use super::cell::CallCell;
use super::clock::Clock;
use super::executor::Joining;
use super::local::Local;
use super::shared::{CoreShared, Totals};
use super::sleep::Sleeper;
use super::submission::{ConnectionKey, HandlerEnd};
use crate::Time;

/// What one turn of a core gives its engines: the time, read once, and the core's own queues.
pub(crate) struct Turn<'a> {
    pub(crate) now: Time,
    /// What the core has missed so far.
    pub(crate) missed: Missed,
    pub(crate) clock: Clock,
    pub(crate) shared: &'a Arc<CoreShared>,
    pub(crate) local: &'a Rc<Local>,
}

/// Descriptors of one engine in its core's epoll; connection slots stay below this.
const SOURCES_MAX: u64 = 1 << 32;

/// One poll of a task or handler beyond this is a stall: while it lasts the core serves nobody.
const STALL: Duration = Duration::from_millis(10);
/// Stalls are logged this often at most; all are counted.
const STALL_LOG_EVERY: Duration = Duration::from_secs(60);

impl Turn<'_> {
    /// Counts a stall, and names its method in the log now and then.
    pub(crate) fn report_stall(&self, method: &'static str, took: Duration) {
        if took <= STALL {
            return;
        }
        let counters = &self.shared.counters;
        counters.stalls.fetch_add(1, Ordering::Relaxed);
        let now = self.clock.now().as_nanos();
        let next = counters.stall_log_next.load(Ordering::Relaxed);
        if now >= next {
            let after = now.saturating_add(STALL_LOG_EVERY.as_nanos() as u64);
            counters.stall_log_next.store(after, Ordering::Relaxed);
            tracing::warn!(
                core = self.shared.index,
                method,
                took_ms = took.as_millis() as u64,
                "a handler or task kept its core busy; while it did, the core served nobody"
            );
        }
    }

    /// The epoll key of a source of an engine.
    pub(crate) fn key(engine: u16, source: u32) -> u64 {
        u64::from(engine) * SOURCES_MAX + u64::from(source)
    }

    /// The engine and source of an epoll key.
    pub(crate) fn split_key(key: u64) -> (usize, u32) {
        ((key / SOURCES_MAX) as usize, (key % SOURCES_MAX) as u32)
    }
}

/// An engine as its core sees it: whatever its device is.
///
/// One dynamic call for each step of a turn, never for each message.
pub(crate) trait Drive: Any {
    /// Adds the engine's completion channel to the core's epoll; remembers its index there.
    fn watch(&self, index: usize, sleeper: &Sleeper) -> std::io::Result<()>;
    /// Completions into the state machines, receives reposted, arrived calls begun.
    fn poll(&mut self, turn: &Turn<'_>) -> usize;
    /// A call to make.
    fn submit(&mut self, turn: &Turn<'_>, call: Arc<CallCell>);
    /// A call whose future was dropped.
    fn abandon(&mut self, turn: &Turn<'_>, cell: &Arc<CallCell>);
    /// A handler that ran as a task has ended.
    fn handler_ended(&mut self, turn: &Turn<'_>, end: HandlerEnd);
    /// Deadlines that have passed.
    fn fire_timers(&mut self, turn: &Turn<'_>) -> usize;
    /// Everything that connections have to say, one chain of requests for each.
    fn flush(&mut self, turn: &Turn<'_>) -> usize;
    /// Whether neither a timer is due nor anything to be posted.
    fn is_quiet(&self, now: Time) -> bool;
    /// Adds its counters to those of its core.
    fn count(&self, totals: &mut Totals);
    /// The next deadline.
    fn next_timer(&self) -> Option<Time>;
    /// Whether nobody uses it: it has no connection, is making none and is taking none down.
    fn is_unused(&self) -> bool;
    /// Whether its device's work waits for this machine's CPUs, so that a core must not poll without a pause.
    fn needs_cpu(&self) -> bool;
    /// Asks for a notification of the next completion. False: it could not, so do not sleep.
    fn arm(&mut self) -> bool;
    /// Whether a lost notification could keep someone waiting.
    fn has_outstanding(&self) -> bool;
    /// A descriptor has news.
    fn socket_ready(&mut self, turn: &Turn<'_>, source: u32);
    /// Closes a connection in order.
    fn close(&mut self, turn: &Turn<'_>, key: ConnectionKey);
    /// Closes a server's connections in order; the last clone of `closed` goes with the last one.
    fn close_server(&mut self, turn: &Turn<'_>, server: u64, closed: Arc<Joining<()>>);
    /// Ends every connection at once.
    fn shut_down(&mut self, turn: &Turn<'_>);
    /// For jobs that know which device they are for.
    fn as_any(&mut self) -> &mut dyn Any;
}
