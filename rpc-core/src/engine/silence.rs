//! Queue pairs that neither complete nor fail what they were given.

use std::time::Duration;

use super::drive::Turn;
use super::engine::Engine;
use super::teardown::Loss;
use crate::Time;
use crate::verbs::Device;

/// Connections are looked at this often. A core with requests outstanding sleeps for less.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// When a connection's send queue last moved: something completed, or was posted to one that waited for
/// nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moved(Time);

impl Moved {
    pub(super) fn at(now: Time) -> Self {
        Self(now)
    }

    /// Requests were posted. What was outstanding before does not become younger by that.
    pub(super) fn posted(&mut self, now: Time, awaited: bool) {
        if !awaited {
            self.0 = now;
        }
    }

    pub(super) fn completed(&mut self, now: Time) {
        self.0 = now;
    }

    fn is_silent(self, now: Time, limit: Duration) -> bool {
        now.since(self.0) > limit
    }
}

impl<D: Device> Engine<D> {
    /// Closes connections whose device has said nothing of their requests for longer than it may take
    /// to give them up. A queue with a signaled request has a completion to come; without this, a device
    /// that loses it would keep calls without a deadline for ever.
    pub(super) fn end_silent(&mut self, turn: &Turn<'_>) {
        let Some(limit) = self.silence_max else { return };
        if turn.now.since(self.silence_seen) < LOOK_EVERY {
            return;
        }
        self.silence_seen = turn.now;
        for slot in self.connections.in_use() {
            let Some(connection) = self.connections.at(slot) else { continue };
            let waits = connection.is_alive() && connection.send_queue.awaits();
            if waits && connection.moved.is_silent(turn.now, limit) {
                self.lose(turn, slot, Loss::Silent(limit));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_counts_from_the_last_completion_or_the_first_request() {
        let second = Duration::from_secs(1);
        let at = |seconds: u32| Time::ZERO + second * seconds;
        let mut moved = Moved::at(at(1));
        moved.posted(at(10), false);
        moved.posted(at(14), true);
        assert!(!moved.is_silent(at(15), 5 * second));
        assert!(moved.is_silent(at(16), 5 * second), "what was posted later is no sign of life");
        moved.completed(at(16));
        assert!(!moved.is_silent(at(20), 5 * second));
    }
}
