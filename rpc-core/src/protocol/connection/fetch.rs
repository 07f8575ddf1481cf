//! Messages with pieces: from the frame that describes them to the RELEASE.

use std::borrow::Cow;

use super::super::calls::InState;
use super::super::deadlines::Timer;
use super::super::event::{Event, FailureKind};
use super::super::ids::{CallId, ReadId, TransferId};
use super::super::transfers::{Held, Progress};
use super::Connection;
use crate::wire::{ReleaseOutcome, Segments};
use crate::{Execution, Time};

/// What a call is told that waited for memory in vain.
pub(super) const NO_MEMORY: &str = "there was no memory for the message in time";

impl Connection {
    /// The destination buffers of a `Fetch` exist. Ignored if the transfer has ended meanwhile: then
    /// its `Discard` is among the events.
    pub fn on_fetch_ready(&mut self, _now: Time, transfer: TransferId) {
        self.transfers.ready(transfer);
        self.settle();
    }

    /// There is no memory for a `Fetch`: the peer is told, the call ends RESOURCE_EXHAUSTED, and the
    /// transfer ends in `Discard`. Ignored if the transfer has ended meanwhile.
    pub fn on_fetch_refused(&mut self, _now: Time, transfer: TransferId) {
        self.refuse_fetch(transfer, NO_MEMORY);
        self.settle();
    }

    /// There can never be memory for a `Fetch`, as `why` says to whoever reads the call's status. Otherwise
    /// as [`on_fetch_refused`](Self::on_fetch_refused).
    pub fn on_fetch_impossible(&mut self, _now: Time, transfer: TransferId, why: String) {
        self.refuse_fetch(transfer, why);
        self.settle();
    }

    /// A READ that [`poll_read`](Self::poll_read) gave has completed, or will never be posted
    /// (`ok` is false). Once for each, in any order, also after `on_lost`.
    pub fn on_read_done(&mut self, _now: Time, read: ReadId, ok: bool) {
        if !ok {
            self.counters.reads_failed += 1;
        }
        match self.transfers.done(read, ok) {
            Progress::Unknown => self.counters.misuses += 1,
            Progress::More => {}
            Progress::Complete(transfer) => {
                self.release(transfer.lease, ReleaseOutcome::Read);
                if let Some(held) = transfer.held {
                    self.deliver(held);
                }
            }
            Progress::Failed => {
                let message = "a READ of the message failed; the connection is about to end";
                let kind = FailureKind::Read;
                self.fail_fetch(read.transfer, ReleaseOutcome::Failed, kind, message.into());
            }
            Progress::Ended { lease, outcome } => self.discard(read.transfer, lease, outcome),
        }
        self.settle();
    }

    /// Begins a transfer if a message has pieces. An error if no more transfers are possible; then
    /// the peer's lease is released.
    pub(super) fn begin_fetch(
        &mut self,
        segments: &Segments<'_>,
    ) -> Option<Result<TransferId, &'static str>> {
        let lease = segments.lease()?;
        Some(self.transfers.begin(segments).ok_or_else(|| {
            self.release(lease, ReleaseOutcome::Skipped);
            "as many messages as possible are being fetched on this connection"
        }))
    }

    /// Asks for memory, for as long as its call and `memory_wait` allow.
    pub(super) fn fetch(
        &mut self,
        now: Time,
        transfer: TransferId,
        held: Held,
        deadline: Option<Time>,
    ) {
        let wait = now + self.config.memory_wait;
        let deadline = deadline.map_or(wait, |deadline| deadline.min(wait));
        let answer = matches!(held, Held::Answer { .. });
        let Some(state) = self.transfers.get_mut(transfer) else { return };
        let pieces = state.piece_lens();
        state.held = Some(held);
        self.arm(deadline, Timer::Memory(transfer));
        self.events.push_back(Event::Fetch { transfer, pieces, answer, deadline });
    }

    /// A message is whole.
    fn deliver(&mut self, held: Held) {
        match held {
            Held::Call(call) => {
                if let Some(slot) = self.incoming.get_mut(call.call) {
                    slot.state = InState::Running;
                    self.hand_out(call);
                }
            }
            Held::Answer { call, status, metadata, body } => {
                if let Some(token) = self.outgoing.finish(call) {
                    self.events.push_back(Event::Answer { token, status, metadata, body });
                }
            }
        }
    }

    pub(super) fn refuse_fetch(
        &mut self,
        transfer: TransferId,
        message: impl Into<Cow<'static, str>>,
    ) {
        if self.transfers.is_waiting(transfer) {
            self.counters.fetches_refused += 1;
            let kind = FailureKind::Exhausted;
            self.fail_fetch(transfer, ReleaseOutcome::Skipped, kind, message.into());
        }
    }

    /// A message cannot be had: its call ends, and its transfer when its READs have.
    fn fail_fetch(
        &mut self,
        transfer: TransferId,
        outcome: ReleaseOutcome,
        kind: FailureKind,
        message: Cow<'static, str>,
    ) {
        let held = self.transfers.get_mut(transfer).and_then(|transfer| transfer.held.take());
        match held {
            Some(Held::Call(call)) => {
                self.refuse_incoming(call.call, kind.code() as u32, message);
            }
            Some(Held::Answer { call, .. }) => self.fail_answered(call, kind, message),
            None => {}
        }
        self.abandon(transfer, outcome);
    }

    /// A call of ours was answered, and the answer cannot be had.
    pub(super) fn fail_answered(
        &mut self,
        call: CallId,
        kind: FailureKind,
        message: impl Into<Cow<'static, str>>,
    ) {
        if let Some(token) = self.outgoing.finish(call) {
            self.failed(token, kind, message, Execution::Executed);
        }
    }

    /// When a call of the peer must have ended.
    pub(super) fn arm_incoming(&mut self, call: CallId, deadline: Option<Time>) {
        if let Some(deadline) = deadline {
            self.arm(deadline, Timer::Incoming(call));
        }
    }
}
