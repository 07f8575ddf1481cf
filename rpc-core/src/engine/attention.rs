use std::time::Duration;

use super::drive::Turn;
use crate::Time;

/// A turn that begins so long after the one before it came late: a handler or task held the core, or its
/// thread had no processor, or was stopped.
const LATE: Duration = Duration::from_millis(10);

/// What a core has missed: time in which it looked at nothing, though it did not sleep.
///
/// Whatever peers did in that time is still unseen when the next turn begins, so it counts against none
/// of them.
#[derive(Debug, Default)]
pub(super) struct Attention {
    missed: Duration,
    turned: Option<Time>,
}

impl Attention {
    pub(super) fn missed(&self) -> Duration {
        self.missed
    }

    /// A turn begins. Returns all that was missed so far.
    pub(super) fn turn(&mut self, now: Time) -> Duration {
        if let Some(turned) = self.turned.replace(now) {
            let late = now.since(turned);
            if late > LATE {
                self.missed += late;
            }
        }
        self.missed
    }

    /// The core sleeps until something happens, or until `until`: what comes wakes it.
    pub(super) fn rest(&mut self, until: Option<Time>) {
        // Without a time, nobody can say of the next turn that it is late.
        self.turned = until;
    }
}

/// When something was seen, by a core that had missed so much by then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    at: Time,
    missed: Duration,
}

impl Seen {
    pub(super) fn now(turn: &Turn<'_>) -> Self {
        Self { at: turn.now, missed: turn.missed }
    }

    /// When `span` will have passed since, of which the core missed nothing: `missed` is all that it has
    /// missed by now.
    pub(super) fn plus(self, span: Duration, missed: Duration) -> Time {
        self.at + span + missed.saturating_sub(self.missed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn turns_that_come_late_are_missed_time_and_sleep_is_not() {
        let mut attention = Attention::default();
        assert_eq!(attention.turn(at(5_000)), Duration::ZERO);
        assert_eq!(attention.turn(at(5_010)), Duration::ZERO);
        assert_eq!(attention.turn(at(5_310)), Duration::from_millis(300), "kept from its work");
        attention.rest(None);
        assert_eq!(attention.turn(at(9_000)), Duration::from_millis(300), "asleep");
        attention.rest(Some(at(9_100)));
        assert_eq!(attention.turn(at(9_050)), Duration::from_millis(300), "woken early");
        attention.rest(Some(at(9_100)));
        assert_eq!(attention.turn(at(9_600)), Duration::from_millis(800), "woken late");
        assert_eq!(attention.turn(at(9_601)), Duration::from_millis(800));
    }
}
