use std::cmp::Reverse;
use std::time::Duration;

use super::drive::Turn;
use super::engine::Engine;
use crate::Time;
use crate::verbs::Device;

/// Entries that may be left behind in the queue of timers, whatever the number of connections.
const TIMERS_SLACK: usize = 64;

/// Messages that wait for a lease are looked at this often for deadlines that have passed.
const WAITING_CHECK: Duration = Duration::from_millis(5);

impl<D: Device> Engine<D> {
    /// Queues the connection's next timer, if it is earlier than the one that is queued.
    /// Once for each flush, which follows whatever may have changed it.
    pub(super) fn schedule_timer(&mut self, slot: u32) {
        let next = self.connections.at(slot).and_then(|c| c.protocol.poll_timeout());
        if let Some(at) = next {
            self.schedule_at(slot, at);
        }
    }

    pub(super) fn schedule_waiting_check(&mut self, now: Time, slot: u32) {
        self.schedule_at(slot, now + WAITING_CHECK);
    }

    pub(super) fn schedule_at(&mut self, slot: u32, at: Time) {
        if let Some(connection) = self.connections.at(slot)
            && connection.timer.is_none_or(|queued| at < queued)
        {
            connection.timer = Some(at);
            self.timers.push(Reverse((at, slot)));
            self.sweep_timers();
        }
    }

    /// Each connection has one timer; the entries that earlier ones overtook go before they are as
    /// many again. A peer whose every call has a nearer deadline than the last leaves one with each.
    fn sweep_timers(&mut self) {
        if self.timers.len() <= 2 * self.by_qp.len() + TIMERS_SLACK {
            return;
        }
        let connections = &mut self.connections;
        let current = |at: Time, slot: u32| connections.at(slot).and_then(|c| c.timer) == Some(at);
        let mut current = current;
        self.timers.retain(|Reverse((at, slot))| current(*at, *slot));
    }

    /// Tells connections whose time has come. An entry that is not its connection's timer any more
    /// was overtaken by an earlier one and is dropped.
    pub(super) fn fire_due(&mut self, turn: &Turn<'_>) -> usize {
        let mut work = 0;
        while let Some(&Reverse((at, slot))) = self.timers.peek() {
            if at > turn.now {
                break;
            }
            self.timers.pop();
            let Some(connection) = self.connections.at(slot) else { continue };
            if connection.timer != Some(at) {
                continue;
            }
            connection.timer = None;
            work += 1;
            if connection.is_open() {
                if connection.is_moving() {
                    connection.protocol.on_moving(turn.now);
                }
                connection.protocol.on_timer(turn.now, self.caught_up);
                self.retry_waiting(turn, slot);
                self.pump(turn, slot);
            }
            self.mark_dirty(slot);
        }
        work
    }
}
