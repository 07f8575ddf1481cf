use super::super::deadlines::Timer;
use super::Connection;
use crate::Time;

impl Connection {
    /// Time has come to what [`poll_timeout`](Self::poll_timeout) said. Early calls do no harm.
    pub fn on_timer(&mut self, now: Time) {
        let _ = now;
    }

    pub(super) fn arm(&mut self, at: Time, timer: Timer) {
        self.deadlines.add(at, timer, |_| true);
    }

    pub(super) fn tidy(&mut self) {}
}
