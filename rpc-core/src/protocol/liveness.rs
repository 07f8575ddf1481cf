//! Whether the peer still lives: what was heard of it, and the PING that asks.

use std::time::Duration;

use crate::{Pings, Time};

/// Checks fall on whole ticks of this many nanoseconds, 2^28, about 0.27 s: an idle core that has many
/// connections wakes once for all whose time is near.
const TICK: u64 = 1 << 28;

/// A look that comes later than this after its time is not the peer's fault: two ticks.
const LATE: Duration = Duration::from_nanos(2 * TICK);

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Nothing yet.
    Nothing,
    /// Ask the peer for a sign of life.
    Ask,
    /// It has given none for too long.
    Dead {
        /// When it was last heard of, or should have been.
        since: Time,
    },
}

/// One connection's signs of life.
#[derive(Debug)]
pub(super) struct Liveness {
    pings: Pings,
    accepting: bool,
    /// When the peer's last SEND came.
    heard: Time,
    /// Since when we wait for something that was first asked for after that.
    waits: Option<Time>,
    /// When a PING was asked for, or its wait begun anew, with nothing heard since.
    asked: Option<Time>,
    /// The number of the last PING that was put into a SEND.
    sent: u64,
    /// The last number that a PONG repeated.
    answered: u64,
    /// Whether the peer was given up.
    over: bool,
}

impl Liveness {
    pub(super) fn new(now: Time, pings: Pings, accepting: bool) -> Self {
        let over = !pings.is_on();
        Self { pings, accepting, heard: now, waits: None, asked: None, sent: 0, answered: 0, over }
    }

    /// A SEND of the peer came.
    pub(super) fn heard(&mut self, now: Time) {
        self.heard = now;
        self.waits = None;
        self.asked = None;
    }

    /// How long the peer may be silent with something to do for us; `None`: for ever.
    pub(super) fn bound(&self) -> Option<Duration> {
        let silence = self.pings.after(true, self.accepting) + self.pings.answer_within();
        self.pings.is_on().then_some(silence)
    }

    /// When the last sign of life came.
    pub(super) fn last_heard(&self) -> Time {
        self.heard
    }

    /// Whether nothing was asked for since the peer was last heard: then [`waits`](Self::waits) is worth
    /// calling.
    pub(super) fn is_even(&self) -> bool {
        self.waits.is_none()
    }

    /// Something is asked of the peer from now on. That it was silent on an idle connection says nothing
    /// of how long it takes to answer.
    pub(super) fn waits(&mut self, now: Time) {
        if self.waits.is_none() {
            self.waits = Some(now);
        }
    }

    /// The number of the next PING.
    pub(super) fn number(&self) -> u64 {
        self.sent + 1
    }

    /// It was put into a SEND. The peer has its whole time from now on, not from when it was asked for:
    /// what this side did in between is not the peer's.
    pub(super) fn sent(&mut self, now: Time) {
        self.sent += 1;
        if self.asked.is_some() {
            self.asked = Some(now);
        }
    }

    /// Whether a PONG repeats the number of a PING that has no answer yet. Answers may be left out, for
    /// that of a later one, and do not come twice.
    pub(super) fn takes(&mut self, number: u64) -> bool {
        let taken = number > self.answered && number <= self.sent;
        if taken {
            self.answered = number;
        }
        taken
    }

    /// When to look again. `busy`: the peer has something to do for us.
    pub(super) fn next(&self, busy: bool) -> Option<Time> {
        let at = match self.asked {
            _ if self.over => return None,
            Some(asked) => asked + self.pings.answer_within(),
            None => {
                let since = self.waits.filter(|_| busy).unwrap_or(self.heard);
                since + self.pings.after(busy, self.accepting)
            }
        };
        Some(Time::from_nanos(at.as_nanos().saturating_add(TICK - 1) & !(TICK - 1)))
    }

    /// What time has brought about. `caught_up`: all that the peer's device has delivered was looked at.
    pub(super) fn look(&mut self, now: Time, busy: bool, caught_up: bool) -> Due {
        let Some(due) = self.next(busy).filter(|due| *due <= now) else { return Due::Nothing };
        if self.asked.is_none() {
            self.asked = Some(now);
            // The PING is no new beginning.
            self.waits.get_or_insert(self.heard);
            return Due::Ask;
        }
        // Late by so much, this side stood still itself, and what the peer said meanwhile may still be on its
        // way to here.
        if now.since(due) > LATE {
            self.asked = Some(now);
            return Due::Nothing;
        }
        if !caught_up {
            return Due::Nothing;
        }
        self.over = true;
        Due::Dead { since: self.waits.unwrap_or(self.heard) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn liveness() -> Liveness {
        let pings = Pings::new().busy_after(2 * SECOND).idle_after(30 * SECOND);
        Liveness::new(Time::ZERO, pings.timeout(5 * SECOND), false)
    }

    fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn a_silent_peer_is_asked_and_then_given_up_each_within_a_tick_of_its_time() {
        let mut alive = liveness();
        let tick = Duration::from_nanos(TICK);
        let ask = alive.next(true).unwrap();
        assert!(ask >= at(2000) && ask <= at(2000) + tick);
        assert_eq!(alive.look(at(1999), true, true), Due::Nothing);
        assert_eq!(alive.look(ask, true, true), Due::Ask);
        let judge = alive.next(true).unwrap();
        assert!(judge >= ask + 5 * SECOND && judge <= ask + 5 * SECOND + tick);
        assert_eq!(alive.look(judge, true, true), Due::Dead { since: Time::ZERO });
        assert_eq!(alive.next(true), None, "it is given up once");
    }

    #[test]
    fn whatever_is_heard_begins_the_wait_anew() {
        let mut alive = liveness();
        assert_eq!(alive.look(at(3000), true, true), Due::Ask);
        alive.heard(at(7000));
        assert_eq!(alive.look(at(8400), true, true), Due::Nothing);
        assert!(alive.next(true).unwrap() >= at(9000));
        assert!(alive.next(false).unwrap() >= at(37_000));
    }

    #[test]
    fn silence_on_an_idle_connection_is_not_held_against_its_next_call() {
        let mut alive = liveness();
        alive.waits(at(20_000));
        alive.waits(at(21_000));
        assert!(alive.next(true).unwrap() >= at(22_000));
        assert!(alive.next(true).unwrap() < at(23_000), "what is asked later makes it no younger");
    }

    #[test]
    fn a_side_that_stood_still_gives_its_peer_the_whole_wait_again() {
        let mut alive = liveness();
        assert_eq!(alive.look(at(3000), true, true), Due::Ask);
        assert_eq!(alive.look(at(60_000), true, true), Due::Nothing);
        assert_eq!(alive.look(at(64_900), true, true), Due::Nothing);
        assert!(matches!(alive.look(at(65_400), true, true), Due::Dead { .. }));
    }

    #[test]
    fn the_peers_time_begins_when_the_ping_is_sent() {
        let mut alive = liveness();
        assert_eq!(alive.look(at(3000), true, true), Due::Ask);
        alive.sent(at(7900));
        assert_eq!(alive.look(at(8400), true, true), Due::Nothing);
        assert!(alive.next(true).unwrap() >= at(12_900));
    }

    #[test]
    fn nobody_is_given_up_while_what_arrived_has_not_been_looked_at() {
        let mut alive = liveness();
        let ask = alive.next(true).unwrap();
        assert_eq!(alive.look(ask, true, true), Due::Ask);
        let judge = alive.next(true).unwrap();
        assert_eq!(alive.look(judge, true, false), Due::Nothing);
        assert_eq!(alive.next(true), Some(judge), "it is looked at again at once");
        assert!(matches!(alive.look(judge, true, true), Due::Dead { .. }));
    }

    #[test]
    fn the_accepting_side_of_an_idle_connection_asks_later_than_the_other() {
        let pings = Pings::new();
        let next = |accepting| Liveness::new(Time::ZERO, pings, accepting).next(false).unwrap();
        assert!(next(false) + 10 * SECOND < next(true));
    }

    #[test]
    fn switched_off_it_never_looks() {
        let mut alive = Liveness::new(Time::ZERO, Pings::off(), false);
        assert_eq!(
            (alive.next(true), alive.look(at(u64::MAX >> 20), true, true)),
            (None, Due::Nothing)
        );
    }

    #[test]
    fn a_pong_counts_once_and_only_for_a_ping_that_was_sent() {
        let mut alive = liveness();
        assert!(!alive.takes(0) && !alive.takes(1));
        let first = alive.number();
        alive.sent(Time::ZERO);
        alive.sent(Time::ZERO);
        assert!(alive.takes(first + 1) && !alive.takes(first + 1) && !alive.takes(first));
    }
}
