use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::ids::{CallId, LeaseId, TransferId};
use crate::Time;

/// What a deadline is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// A call of ours must have ended.
    Outgoing(CallId),
    /// A call of the peer must have ended.
    Incoming(CallId),
    /// The peer must have released a lease.
    Lease(LeaseId),
    /// There must be memory for a transfer.
    Memory(TransferId),
    /// The peer's CONFIRM must have come.
    Confirm,
    /// An orderly close must be done.
    Close,
    /// The peer must have answered a RECALL.
    Recall,
}

/// Deadlines, soonest first.
///
/// What ends before its time leaves its deadline behind, to be dropped when it comes up, or with all
/// the others like it when there are more than as many again as there were live ones the last time:
/// so the heap is at most twice the live deadlines and [`SLACK`](Self::SLACK).
#[derive(Debug)]
pub(crate) struct Deadlines {
    heap: BinaryHeap<Reverse<(Time, Timer)>>,
    sweep_at: usize,
}

impl Deadlines {
    /// What may be left behind whatever the number of live ones: makes sweeping a small heap rare.
    const SLACK: usize = 64;

    pub(crate) const fn new() -> Self {
        Self { heap: BinaryHeap::new(), sweep_at: Self::SLACK }
    }

    /// Adds a deadline; `live` says which of the others still matter.
    pub(crate) fn add(&mut self, at: Time, timer: Timer, live: impl Fn(Timer) -> bool) {
        if self.heap.len() >= self.sweep_at {
            self.heap.retain(|Reverse((_, timer))| live(*timer));
            self.sweep_at = self.heap.len() * 2 + Self::SLACK;
        }
        self.heap.push(Reverse((at, timer)));
    }

    /// The next deadline that has come by `now` and still matters.
    pub(crate) fn due(&mut self, now: Time, live: impl Fn(Timer) -> bool) -> Option<Timer> {
        while let Some(Reverse((at, timer))) = self.heap.peek().copied() {
            let matters = live(timer);
            if matters && at > now {
                return None;
            }
            self.heap.pop();
            if matters {
                return Some(timer);
            }
        }
        None
    }

    /// Drops what no longer matters from the front, so that [`next`](Self::next) is right.
    pub(crate) fn tidy(&mut self, live: impl Fn(Timer) -> bool) {
        while self.heap.peek().is_some_and(|Reverse((_, timer))| !live(*timer)) {
            self.heap.pop();
        }
    }

    /// When the soonest comes.
    pub(crate) fn next(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(n: u64) -> Time {
        Time::from_nanos(n)
    }

    #[test]
    fn deadlines_come_in_order_and_dead_ones_not_at_all() {
        let mut deadlines = Deadlines::new();
        for n in [5, 1, 3] {
            deadlines.add(at(n), Timer::Outgoing(CallId(n)), |_| true);
        }
        let live = |timer| timer != Timer::Outgoing(CallId(1));
        deadlines.tidy(live);
        assert_eq!(deadlines.next(), Some(at(3)));
        assert_eq!(deadlines.due(at(2), live), None);
        assert_eq!(deadlines.due(at(9), live), Some(Timer::Outgoing(CallId(3))));
        assert_eq!(deadlines.due(at(9), live), Some(Timer::Outgoing(CallId(5))));
        assert_eq!(deadlines.due(at(9), live), None);
    }

    #[test]
    fn what_is_left_behind_is_bounded() {
        let mut deadlines = Deadlines::new();
        for n in 0..100_000 {
            // Ten are alive at any time.
            let live = |timer| matches!(timer, Timer::Outgoing(CallId(id)) if id + 10 > n);
            deadlines.add(at(1_000_000 + n), Timer::Outgoing(CallId(n)), live);
            assert!(deadlines.heap.len() <= 2 * 10 + Deadlines::SLACK + 1);
        }
    }
}
