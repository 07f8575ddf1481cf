//! How calls, leases and the connection itself end: each in one place, so each ends once.

use std::borrow::Cow;

use super::super::body::{OutBody, OutCall};
use super::super::calls::{InState, OutSlot, OutState};
use super::super::event::{CallFailure, CancelReason, CloseReason, Event, FailureKind, LossReason};
use super::super::ids::{CallId, LeaseId, TransferId};
use super::super::outbox::Refusal;
use super::{Connection, State};
use crate::wire::{CancelReason as WireCancel, Release, ReleaseOutcome};
use crate::{Execution, Time};

impl Connection {
    /// The QP or its control connection is gone. Every call of ours fails with its verdict, every
    /// call of the peer is `Cancelled`, leases end with the QP, and `Closed` follows. READs that are
    /// outstanding still have to be reported done.
    pub fn on_lost(&mut self, _now: Time, reason: LossReason) {
        if self.is_closed() {
            return;
        }
        let message = reason.message.to_string();
        self.end_everything(message, CloseReason::Lost(reason));
    }

    /// The windows of a lease are closed, or it was never used: its slot is free again.
    pub fn on_lease_revoked(&mut self, lease: LeaseId) {
        if !self.leases.remove(lease) && !self.is_closed() {
            self.counters.misuses += 1;
        }
        self.settle();
    }

    /// Takes a call of ours out of the table and lets go of what it used. Says how far it had come.
    pub(super) fn end_outgoing(
        &mut self,
        call: CallId,
        why: WireCancel,
    ) -> Option<(u64, Execution)> {
        let OutSlot { token, state, wire, .. } = self.outgoing.remove(call)?;
        let execution = match state {
            OutState::Queued(call) => {
                if let Some(lease) = call.body.lease {
                    self.revoke(lease, false);
                }
                Execution::NotExecuted
            }
            OutState::Posted => {
                self.outbox.cancels.push_back((wire, why));
                // An answer or a refusal may be on its way.
                self.stray.expect_answer();
                Execution::MaybeExecuted
            }
            OutState::Fetching(transfer) => {
                self.abandon(transfer, ReleaseOutcome::Skipped);
                Execution::Executed
            }
        };
        Some((token, execution))
    }

    /// Takes a call of ours out of the table that the peer has not run and will not.
    pub(super) fn drop_outgoing(&mut self, call: CallId) -> Option<u64> {
        let OutSlot { token, state, .. } = self.outgoing.remove(call)?;
        if let OutState::Queued(OutCall { body: OutBody { lease: Some(lease), .. }, .. }) = state {
            self.revoke(lease, false);
        }
        Some(token)
    }

    /// The peer needs to hear of a call that its handler never saw.
    pub(super) fn refuse_incoming(&mut self, call: CallId, code: u32, message: Cow<'static, str>) {
        if let Some(slot) = self.incoming.remove(call) {
            self.refuse_wire(slot.wire, code, message);
        }
    }

    pub(super) fn refuse_wire(&mut self, wire: u64, code: u32, message: Cow<'static, str>) {
        self.stray.expect_cancel();
        self.outbox.refusals.push_back(Refusal { wire, code, message });
    }

    /// Nobody waits for a call of the peer any more. One that was announced stays until its handler
    /// has ended; others are gone at once. Says whether there was anything to end.
    pub(super) fn cancel_incoming(&mut self, call: CallId, why: CancelReason) -> bool {
        let Some(slot) = self.incoming.get_mut(call) else {
            return false;
        };
        match std::mem::replace(&mut slot.state, InState::Cancelled) {
            InState::Running => self.events.push_back(Event::Cancelled { call, why }),
            InState::Cancelled => return false,
            InState::Fetching(transfer) => {
                self.incoming.discard(call);
                self.abandon(transfer, ReleaseOutcome::Skipped);
            }
            InState::Answered(answer) => {
                self.incoming.discard(call);
                if let Some(lease) = answer.body.lease {
                    self.revoke(lease, false);
                }
            }
        }
        true
    }

    /// Begins the end of a lease.
    pub(super) fn revoke(&mut self, lease: LeaseId, expired: bool) {
        if self.leases.revoke(lease) {
            self.events.push_back(Event::Revoke { lease, expired });
        }
    }

    /// Begins the end of a transfer that nobody wants.
    pub(super) fn abandon(&mut self, transfer: TransferId, outcome: ReleaseOutcome) {
        if let Some((lease, outcome)) = self.transfers.abandon(transfer, outcome) {
            self.discard(transfer, lease, outcome);
        }
    }

    /// The end of a transfer that nobody wants.
    pub(super) fn discard(&mut self, transfer: TransferId, lease: u64, outcome: ReleaseOutcome) {
        self.release(lease, outcome);
        self.events.push_back(Event::Discard { transfer });
    }

    /// Tells the peer that its lease is needed no longer.
    pub(super) fn release(&mut self, lease: u64, outcome: ReleaseOutcome) {
        if !matches!(self.state, State::Broken | State::Closed) {
            self.outbox.releases.push_back(Release { lease, outcome });
        }
    }

    pub(super) fn failed(
        &mut self,
        token: u64,
        kind: FailureKind,
        message: impl Into<Cow<'static, str>>,
        execution: Execution,
    ) {
        let failure = CallFailure { kind, message: message.into(), execution };
        self.events.push_back(Event::Failed { token, failure });
    }

    /// Ends all calls and leases, and the connection.
    pub(super) fn end_everything(
        &mut self,
        message: impl Into<Cow<'static, str>>,
        reason: CloseReason,
    ) {
        if self.is_closed() {
            return;
        }
        let message = message.into();
        self.state = State::Closed;
        let kind = match reason {
            CloseReason::Local { .. } => FailureKind::Goaway,
            _ => FailureKind::Lost,
        };
        for call in self.outgoing.ids() {
            if let Some((token, execution)) = self.end_outgoing(call, WireCancel::Dropped) {
                self.failed(token, kind, message.clone(), execution);
            }
        }
        for call in self.incoming.ids() {
            self.cancel_incoming(call, CancelReason::Lost);
        }
        for transfer in self.transfers.wanted() {
            self.abandon(transfer, ReleaseOutcome::Failed);
        }
        self.end_leases();
        self.outbox.clear();
        self.events.push_back(Event::Closed { reason });
    }

    /// Leases end with the QP; those whose end was announced still end as announced.
    fn end_leases(&mut self) {
        self.events.retain(|event| !matches!(event, Event::Revoke { .. }));
        self.leases.clear();
    }

    /// What is due after anything happened: the end of an orderly close, and a right timeout.
    pub(super) fn settle(&mut self) {
        if let State::Closing(reason) = &self.state {
            let ended = self.outgoing.len() == 0
                && self.incoming.is_empty()
                && self.transfers.len() == 0
                && self.leases.len() == 0
                && self.outbox.is_empty();
            if ended {
                let reason = CloseReason::Local { reason: reason.clone(), drained: true };
                self.end_everything("", reason);
            }
        }
        self.tidy();
    }
}
