use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::engine::{AlarmId, CoreShared, local};
use crate::runtime::current_node;
use crate::world;

/// Numbers of alarms that tasks set by sleeping: apart from those of channels, which count from 0.
const ALARMS_FROM: u64 = 1 << 63;

/// Timers of futures that run on no node: those that [`Sim::block_on`](super::Sim::block_on) waits for.
#[derive(Clone, Default)]
pub(super) struct SharedOutside(Arc<Mutex<Outside>>);

#[derive(Default)]
struct Outside {
    timers: BTreeMap<(Instant, u64), Waker>,
    next: u64,
}

thread_local! {
    static OUTSIDE: RefCell<Option<SharedOutside>> = const { RefCell::new(None) };
    static NEXT_ALARM: RefCell<u64> = const { RefCell::new(ALARMS_FROM) };
}

/// Makes these the timers of this thread's futures outside nodes; returns those before.
pub(super) fn replace_outside(outside: Option<SharedOutside>) -> Option<SharedOutside> {
    OUTSIDE.with(|current| current.replace(outside))
}

impl SharedOutside {
    /// When the next is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.lock().timers.first_key_value().map(|((at, _), _)| *at)
    }

    /// Those that are due, in their order.
    pub(super) fn take_due(&self, now: Instant) -> Vec<Waker> {
        let later = self.lock().timers.split_off(&(now, u64::MAX));
        let due = std::mem::replace(&mut self.lock().timers, later);
        due.into_values().collect()
    }

    fn add(&self, until: Instant, waker: Waker) -> (Instant, u64) {
        let mut outside = self.lock();
        outside.next += 1;
        let key = (until, outside.next);
        outside.timers.insert(key, waker);
        key
    }

    fn lock(&self) -> MutexGuard<'_, Outside> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The time in the simulation that this thread is in; elsewhere the system's.
///
/// Tasks of a simulation ask here, and not `Instant::now`.
pub fn now() -> Instant {
    world::now()
}

/// Waits for a span of virtual time: on a node, where a stopped one waits longer, or in what
/// [`Sim::block_on`](super::Sim::block_on) waits for.
///
/// # Panics
/// When polled anywhere else.
pub fn sleep(span: Duration) -> Sleep {
    Sleep { until: world::now() + span, set: None }
}

/// What [`sleep`] returns.
#[must_use = "a sleep does nothing unless it is awaited"]
pub struct Sleep {
    until: Instant,
    set: Option<Set>,
}

enum Set {
    OnCore(Arc<CoreShared>, AlarmId),
    Outside(SharedOutside, (Instant, u64)),
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if world::now() >= self.until {
            return Poll::Ready(());
        }
        self.forget();
        self.set = Some(Set::new(self.until, context.waker().clone()));
        Poll::Pending
    }
}

impl Set {
    fn new(until: Instant, waker: Waker) -> Self {
        if let (Some(local), Some(runtime)) = (local::current(), current_node()) {
            let number = NEXT_ALARM.with(|next| next.replace_with(|number| *number + 1));
            let id = AlarmId { at: runtime.clock().at(until), number };
            local.shared.run_on_core(Box::new(move |core| core.add_alarm(id, waker)));
            return Self::OnCore(Arc::clone(&local.shared), id);
        }
        let outside = OUTSIDE.with(|current| current.borrow().clone());
        let outside = outside.expect("sim::sleep is for tasks of a simulation");
        let key = outside.add(until, waker);
        Self::Outside(outside, key)
    }
}

impl Sleep {
    fn forget(&mut self) {
        match self.set.take() {
            None => {}
            Some(Set::OnCore(core, id)) => {
                core.run_on_core(Box::new(move |core| core.remove_alarm(id)));
            }
            Some(Set::Outside(outside, key)) => drop(outside.lock().timers.remove(&key)),
        }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.forget();
    }
}
