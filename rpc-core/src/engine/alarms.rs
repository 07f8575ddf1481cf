use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::task::Waker;

use crate::Time;

/// Wakers to be woken at a time: for futures of callers that wait for something without a deadline
/// of its own, such as a connection that others are making.
///
/// An alarm is not taken back when its future ends earlier; it wakes nobody then. There is one for
/// each call that waited at most.
#[derive(Default)]
pub(super) struct Alarms {
    queue: BinaryHeap<Reverse<Alarm>>,
}

struct Alarm {
    at: Time,
    waker: Waker,
}

impl Alarms {
    pub(super) fn add(&mut self, at: Time, waker: Waker) {
        self.queue.push(Reverse(Alarm { at, waker }));
    }

    pub(super) fn next(&self) -> Option<Time> {
        self.queue.peek().map(|Reverse(alarm)| alarm.at)
    }

    /// Wakes those whose time has come; returns how many.
    pub(super) fn fire(&mut self, now: Time) -> usize {
        let mut fired = 0;
        while self.next().is_some_and(|at| at <= now) {
            if let Some(Reverse(alarm)) = self.queue.pop() {
                alarm.waker.wake();
                fired += 1;
            }
        }
        fired
    }
}

impl Ord for Alarm {
    fn cmp(&self, other: &Self) -> Ordering {
        self.at.cmp(&other.at)
    }
}

impl PartialOrd for Alarm {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Alarm {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl Eq for Alarm {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alarms_fire_in_order_of_their_time_and_once() {
        let mut alarms = Alarms::default();
        for nanos in [30, 10, 20] {
            alarms.add(Time::from_nanos(nanos), Waker::noop().clone());
        }
        assert_eq!(alarms.next(), Some(Time::from_nanos(10)));
        assert_eq!(alarms.fire(Time::from_nanos(9)), 0);
        assert_eq!(alarms.fire(Time::from_nanos(20)), 2);
        assert_eq!(alarms.fire(Time::from_nanos(100)), 1);
        assert_eq!(alarms.next(), None);
    }
}
