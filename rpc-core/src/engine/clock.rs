use std::time::{Duration, Instant};

use crate::{Time, world};

#[cfg(all(loom, test))]
loom::thread_local! {
    static LOOKS: std::cell::Cell<u64> = std::cell::Cell::new(1);
}

/// A runtime's clock: it turns the monotonic clock into [`Time`] and back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    origin: Instant,
}

impl Clock {
    pub(crate) fn new() -> Self {
        // A second in the past, so that no point a program may name lies before the start.
        let now = world::now();
        Self { origin: now.checked_sub(Duration::from_secs(1)).unwrap_or(now) }
    }

    #[cfg(not(all(loom, test)))]
    pub(crate) fn now(&self) -> Time {
        self.at(world::now())
    }

    /// In a model every look takes a millisecond, whatever else it takes: no order of steps depends
    /// on the machine.
    #[cfg(all(loom, test))]
    pub(crate) fn now(&self) -> Time {
        LOOKS.with(|looks| Time::from_nanos(1_000_000 * looks.replace(looks.get() + 1)))
    }

    pub(crate) fn at(&self, instant: Instant) -> Time {
        Time::ZERO + instant.saturating_duration_since(self.origin)
    }

    /// The point of the monotonic clock; `None` if it cannot express one so far away.
    pub(crate) fn instant(&self, time: Time) -> Option<Instant> {
        self.origin.checked_add(time.since(Time::ZERO))
    }
}
