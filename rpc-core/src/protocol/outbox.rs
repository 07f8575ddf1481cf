use std::borrow::Cow;
use std::collections::VecDeque;

use super::ids::CallId;
use crate::wire::{CancelReason, Release};

/// What waits to be put into a SEND, by class: control first, then what is urgent, then the rest.
///
/// Answers before requests: an answer ends something, a request begins something. Neither can starve
/// the other, as answers are bounded by requests taken in.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    pub confirm: bool,
    /// The last words on a broken connection.
    pub error: Option<(u32, String)>,
    pub goaway: Option<Goaway>,
    /// Whether the peer is to be asked for a sign of life.
    pub ping: bool,
    /// The nonce of the last PING that has no PONG yet.
    pub pong: Option<u64>,
    /// Credits that the peer is to be asked for.
    pub recall: Option<u32>,
    /// Credits given back and not yet told; an answer to RECALL is due even if they are none.
    pub returned: Option<u32>,
    pub releases: VecDeque<Release>,
    /// Calls of ours, by their ids on the wire.
    pub cancels: VecDeque<(u64, CancelReason)>,
    pub refusals: VecDeque<Refusal>,
    /// Calls that were marked so: a heartbeat does not wait behind bulk.
    pub urgent: Lane,
    /// All others.
    pub usual: Lane,
}

/// Calls of one class.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    /// Calls in state `Answered`.
    pub answers: Line,
    /// Calls in state `Queued`.
    pub requests: Line,
}

#[derive(Debug)]
pub(crate) struct Goaway {
    pub last: u64,
    pub code: u32,
    pub message: Cow<'static, str>,
}

/// A call of the peer that did not run.
#[derive(Debug)]
pub(crate) struct Refusal {
    /// Its id on the wire.
    pub wire: u64,
    pub code: u32,
    pub message: Cow<'static, str>,
}

impl Outbox {
    /// Whether anything but answers and requests waits.
    pub(crate) fn has_control(&self) -> bool {
        self.confirm
            || self.error.is_some()
            || self.goaway.is_some()
            || self.ping
            || self.pong.is_some()
            || self.recall.is_some()
            || self.returned.is_some()
            || !self.releases.is_empty()
            || !self.cancels.is_empty()
            || !self.refusals.is_empty()
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.has_control() && self.urgent.is_empty() && self.usual.is_empty()
    }

    /// Whether an answer waits.
    pub(crate) fn has_answers(&self) -> bool {
        !(self.urgent.answers.is_empty() && self.usual.answers.is_empty())
    }

    pub(crate) fn lane(&mut self, urgent: bool) -> &mut Lane {
        if urgent { &mut self.urgent } else { &mut self.usual }
    }

    /// Control frames that the peer caused: what [`Violation::Flood`](super::Violation) counts.
    pub(crate) fn owed(&self) -> usize {
        self.releases.len() + self.refusals.len()
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

impl Lane {
    fn is_empty(&self) -> bool {
        self.answers.is_empty() && self.requests.is_empty()
    }
}

/// Calls in the order in which they are to be sent.
///
/// One that ends while it waits stays behind until it comes up, or until there are more than as many
/// again as there were live ones the last time.
#[derive(Debug)]
pub(crate) struct Line {
    ids: VecDeque<CallId>,
    sweep_at: usize,
}

impl Line {
    /// What may be left behind whatever the number of live ones.
    const SLACK: usize = 64;

    pub(crate) fn push(&mut self, id: CallId, live: impl Fn(CallId) -> bool) {
        if self.ids.len() >= self.sweep_at {
            self.ids.retain(|id| live(*id));
            self.sweep_at = self.ids.len() * 2 + Self::SLACK;
        }
        self.ids.push_back(id);
    }

    /// The first one that is live. Those before it are dropped.
    pub(crate) fn first(&mut self, live: impl Fn(CallId) -> bool) -> Option<CallId> {
        while let Some(id) = self.ids.front().copied() {
            if live(id) {
                return Some(id);
            }
            self.ids.pop_front();
        }
        None
    }

    pub(crate) fn pop(&mut self) {
        self.ids.pop_front();
    }

    /// Whether there is none, live or not.
    pub(crate) fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }
}

impl Default for Line {
    fn default() -> Self {
        Self { ids: VecDeque::new(), sweep_at: Self::SLACK }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_end_while_they_wait_are_skipped_and_bounded() {
        let mut line = Line::default();
        for n in 0..10_000 {
            line.push(CallId(n), |id| id.0 + 5 > n);
            assert!(line.ids.len() <= 2 * 5 + Line::SLACK + 1);
        }
        assert_eq!(line.first(|id| id.0 >= 9_995), Some(CallId(9_995)));
        line.pop();
        assert_eq!(line.first(|_| true), Some(CallId(9_996)));
    }
}
