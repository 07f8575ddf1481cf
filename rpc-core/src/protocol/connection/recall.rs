//! Credits asked back from a peer that does not use them.

use std::time::Duration;

use super::super::deadlines::Timer;
use super::super::event::{CloseReason, Event};
use super::super::violation::Violation;
use super::{Connection, State};
use crate::Time;
use crate::wire::Count;

/// How long a peer may take to answer a RECALL at least, and longer where its silence may last longer. Its engine
/// answers by itself, whatever its handlers do.
const RETURN_WITHIN: Duration = Duration::from_secs(10);

impl Connection {
    /// Asks the peer to give back up to `count` credits that it does not use; how many were asked for. 0: it
    /// has too few, was asked already, or goes away. What it gives comes as [`Event::Returned`]. A peer that
    /// does not answer within 10 s, or what its silence may last if that is more, is closed, unless silence is not
    /// judged at all.
    ///
    /// The peer's last credit is never asked for, so it can always speak.
    pub fn recall(&mut self, now: Time, count: u32) -> u32 {
        let count = count.min(self.credits.counts().granted.saturating_sub(1));
        if count == 0 || self.state != State::Open || self.recalled.is_some() {
            return 0;
        }
        self.begin_to_wait(now);
        self.outbox.recall = Some(count);
        self.recalled = Some(count);
        self.counters.credits_recalled += u64::from(count);
        count
    }

    /// Credits that were asked for and have not come yet.
    pub fn recalling(&self) -> u32 {
        self.recalled.unwrap_or(0)
    }

    /// Takes back up to `most` receives that the peer was not told of; how many. They are the caller's to grant
    /// to others.
    pub fn withdraw(&mut self, most: u32) -> u32 {
        self.credits.withdraw(most)
    }

    /// The RECALL was put into a SEND.
    pub(super) fn recall_sent(&mut self, now: Time) {
        self.recall_until = self.liveness.bound().map(|silence| now + silence.max(RETURN_WITHIN));
        if let Some(until) = self.recall_until {
            self.arm(until, Timer::Recall);
        }
    }

    pub(super) fn on_return(&mut self, body: &[u8]) -> Result<(), Violation> {
        let Count { count } = Count::decode("RETURN", body)?;
        let asked = self.recalled.filter(|_| self.outbox.recall.is_none());
        if asked.is_none_or(|asked| count > asked) {
            return Err(Violation::Unexpected("RETURN"));
        }
        if !self.credits.take_back(count) {
            return Err(Violation::Counters("it gives back credits that it has spent"));
        }
        self.recalled = None;
        self.counters.credits_returned += u64::from(count);
        self.events.push_back(Event::Returned { count });
        Ok(())
    }

    /// The peer's time to answer is over; where it may have answered unseen, it has that time once more.
    pub(super) fn recall_is_over(&mut self, now: Time, caught_up: bool) {
        // The time of an earlier RECALL, which was answered, says nothing of this one.
        let Some(until) = self.recall_until.filter(|until| *until <= now) else { return };
        if caught_up {
            let message = "the peer does not give back the credits that it was asked for";
            self.end_everything(message, CloseReason::CreditsUnreturned);
        } else {
            let again = until.max(now) + RETURN_WITHIN;
            self.recall_until = Some(again);
            self.arm(again, Timer::Recall);
        }
    }
}
