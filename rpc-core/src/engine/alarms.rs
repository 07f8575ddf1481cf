use std::collections::BTreeMap;
use std::task::Waker;

use crate::Time;

/// Names an alarm; whoever sets it draws the number, so that it can be taken back without asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AlarmId {
    pub(crate) at: Time,
    pub(crate) number: u64,
}

/// Wakers to be woken at a time: for futures of callers that wait for something without a deadline
/// of its own, such as a connection that others are making. Each is taken back when its future ends.
#[derive(Default)]
pub(super) struct Alarms {
    queue: BTreeMap<AlarmId, Waker>,
}

impl Alarms {
    pub(super) fn add(&mut self, alarm: AlarmId, waker: Waker) {
        self.queue.insert(alarm, waker);
    }

    /// Nobody waits for it any more; nothing if it has fired.
    pub(super) fn remove(&mut self, alarm: AlarmId) {
        self.queue.remove(&alarm);
    }

    pub(super) fn next(&self) -> Option<Time> {
        self.queue.first_key_value().map(|(alarm, _)| alarm.at)
    }

    /// Wakes those whose time has come; returns how many.
    pub(super) fn fire(&mut self, now: Time) -> usize {
        let mut fired = 0;
        while self.next().is_some_and(|at| at <= now) {
            if let Some((_, waker)) = self.queue.pop_first() {
                waker.wake();
                fired += 1;
            }
        }
        fired
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alarm(nanos: u64, number: u64) -> AlarmId {
        AlarmId { at: Time::from_nanos(nanos), number }
    }

    #[test]
    fn alarms_fire_in_order_of_their_time_and_once() {
        let mut alarms = Alarms::default();
        for (nanos, number) in [(30, 1), (10, 2), (20, 3), (20, 4)] {
            alarms.add(alarm(nanos, number), Waker::noop().clone());
        }
        assert_eq!(alarms.next(), Some(Time::from_nanos(10)));
        assert_eq!(alarms.fire(Time::from_nanos(9)), 0);
        assert_eq!(alarms.fire(Time::from_nanos(20)), 3);
        assert_eq!(alarms.fire(Time::from_nanos(100)), 1);
        assert_eq!(alarms.next(), None);
    }

    #[test]
    fn one_that_is_taken_back_leaves_nothing_behind() {
        let mut alarms = Alarms::default();
        alarms.add(alarm(10, 1), Waker::noop().clone());
        alarms.add(alarm(10, 2), Waker::noop().clone());
        alarms.remove(alarm(10, 1));
        alarms.remove(alarm(10, 1));
        assert_eq!(alarms.fire(Time::from_nanos(10)), 1);
        alarms.remove(alarm(10, 2));
        assert_eq!(alarms.next(), None);
    }
}
