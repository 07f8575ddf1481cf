use std::time::Duration;

use super::drive::Turn;
use crate::Time;

/// A turn that begins so long after the one before it came late: its thread had no processor, or a handler held
/// it. A core whose turns are shorter looks often enough.
const LATE: Duration = Duration::from_millis(100);

/// A core that did not turn for so long was stopped, or its whole machine was.
const STOPPED: Duration = Duration::from_secs(1);

/// What a core has missed: time in which it looked at nothing, though it did not sleep.
///
/// Whatever peers did in that time is still unseen when the next turn begins, so it is not counted against
/// them at once. It does not excuse them for ever: see [`Seen::plus`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Missed {
    /// All late turns together.
    total: Duration,
    /// When it last went on after it had been stopped.
    resumed: Time,
}

/// Notices what a core misses.
#[derive(Debug, Default)]
pub(super) struct Attention {
    missed: Missed,
    turned: Option<Time>,
}

impl Attention {
    pub(super) fn missed(&self) -> Missed {
        self.missed
    }

    /// A turn begins. Returns all that was missed so far.
    pub(super) fn turn(&mut self, now: Time) -> Missed {
        if let Some(turned) = self.turned.replace(now) {
            let late = now.since(turned);
            if late > STOPPED {
                self.missed.resumed = now;
            } else if late > LATE {
                self.missed.total += late;
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
    missed: Missed,
}

impl Seen {
    pub(super) fn now(turn: &Turn<'_>) -> Self {
        Self { at: turn.now, missed: turn.missed }
    }

    /// When `span` will have passed since, for a core that has missed so much by now. It begins anew when the core
    /// was stopped, and late turns make it at most twice as long: a core that is always late must come to an end
    /// too.
    pub(super) fn plus(self, span: Duration, missed: Missed) -> Time {
        let late = missed.total.saturating_sub(self.missed.total);
        self.at.max(missed.resumed) + span + late.min(span)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + ms(millis)
    }

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn turns_that_come_late_are_missed_time_and_sleep_is_not() {
        let mut attention = Attention::default();
        let turn = |attention: &mut Attention, millis| attention.turn(at(millis)).total;
        assert_eq!(turn(&mut attention, 5_000), Duration::ZERO);
        assert_eq!(turn(&mut attention, 5_090), Duration::ZERO);
        assert_eq!(turn(&mut attention, 5_390), ms(300), "kept from its work");
        attention.rest(None);
        assert_eq!(turn(&mut attention, 9_000), ms(300), "asleep");
        attention.rest(Some(at(9_100)));
        assert_eq!(turn(&mut attention, 9_050), ms(300), "woken early");
        attention.rest(Some(at(9_100)));
        assert_eq!(turn(&mut attention, 9_600), ms(800), "woken late");
    }

    #[test]
    fn a_core_that_is_always_late_excuses_nobody_for_ever() {
        let mut attention = Attention::default();
        let seen = Seen { at: at(0), missed: attention.missed() };
        for turn in 1..100 {
            attention.turn(at(turn * 110));
        }
        assert_eq!(seen.plus(ms(2_000), attention.missed()), at(4_000));
    }

    #[test]
    fn a_core_that_was_stopped_begins_anew() {
        let mut attention = Attention::default();
        let seen = Seen { at: at(0), missed: attention.missed() };
        attention.turn(at(1));
        attention.turn(at(60_000));
        assert_eq!(seen.plus(ms(2_000), attention.missed()), at(62_000));
        // What is seen afterwards has nothing of it.
        let later = Seen { at: at(61_000), missed: attention.missed() };
        assert_eq!(later.plus(ms(2_000), attention.missed()), at(63_000));
    }
}
