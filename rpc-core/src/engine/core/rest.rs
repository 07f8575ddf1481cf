//! A core that has nothing to do: it looks again, gives way, or sleeps.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Core;
use crate::Time;
use crate::failpoint::{self, Point};

/// Looks at a device whose work is done by this machine's CPUs, before others may run: its kernel threads, if
/// they have taken over. As long as they have not, each pause is a system call for nothing.
pub(super) const LOOKS_PER_YIELD: u32 = 8;

/// A core with calls outstanding sleeps no longer than this: a lost notification is rescued then.
const SAFETY_SLEEP: Duration = Duration::from_millis(100);

impl Core {
    /// Arms every source of work and looks at each once more. True: nothing to do, and whatever
    /// comes from now on makes [`fd`](Self::fd) readable.
    pub(crate) fn prepare_to_sleep(&mut self) -> bool {
        self.shared.sleeper.announce();
        let mut armed = true;
        for engine in &mut self.engines {
            armed &= engine.arm();
        }
        // Not a whole turn: a look at descriptors takes notifications off them and ends the
        // announcement, and nothing would be left to end the sleep that follows.
        self.announced = true;
        let idle = armed && self.work().0.is_idle() && !self.has_work();
        self.announced = false;
        if idle {
            self.attention.rest(None);
            let looks = cfg!(feature = "failpoints") && !self.has_outstanding();
            if looks && self.shared.counters.connections.load(Ordering::Relaxed) > 0 {
                failpoint::pass(Point::Idle);
            }
            self.publish(self.clock.now(), Duration::ZERO);
        } else {
            // What was pushed a moment ago may not have been said yet.
            self.shared.keep_given();
            self.shared.sleeper.retract();
        }
        idle
    }

    /// Whether anything waits to be taken, said or not.
    fn has_work(&self) -> bool {
        self.shared.has_work() || self.local.has_work()
    }

    /// How long a sleep that begins at `now` may last: until the next timer, and while a lost
    /// notification could keep someone waiting, not long at all.
    pub(crate) fn next_wake(&self, now: Time) -> Option<Duration> {
        let timer = self.next_timer().map(|at| at.since(now));
        timer.into_iter().chain(self.has_outstanding().then_some(SAFETY_SLEEP)).min()
    }

    /// Whether a lost notification could keep someone waiting.
    pub(crate) fn has_outstanding(&self) -> bool {
        self.engines.iter().any(|engine| engine.has_outstanding())
    }

    /// Sleeps until there is something to do, or until the next timer. Returns at once if there is
    /// work, or if `woken` says so once the core has announced its sleep.
    fn sleep(&mut self, woken: impl Fn() -> bool) {
        if !self.prepare_to_sleep() {
            return;
        }
        if woken() {
            self.shared.sleeper.retract();
            return;
        }
        let now = self.clock.now();
        let timeout = self.next_wake(now);
        self.attention.rest(timeout.map(|timeout| now + timeout));
        self.wait_for_events(timeout);
        self.rescued_by_timeout = timeout == Some(SAFETY_SLEEP) && self.ready.timed_out();
        self.idle_since = None;
    }

    /// Between two looks of a core that spins.
    fn pause(&mut self) {
        self.looks = self.looks.wrapping_add(1);
        if self.yields && self.looks.is_multiple_of(LOOKS_PER_YIELD) {
            self.shared.counters.yields.fetch_add(1, Ordering::Relaxed);
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }

    /// There was nothing to do: spins on, or sleeps when that has lasted for the spinning time.
    pub(crate) fn idle(&mut self, woken: impl Fn() -> bool) {
        let idle_since = self.idle_since.unwrap_or(Time::ZERO);
        if self.clock.now().since(idle_since) >= self.spin {
            self.sleep(woken);
        } else {
            self.pause();
        }
    }
}
