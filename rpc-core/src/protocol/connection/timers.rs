//! What the passing of time alone brings about.

use super::super::body::OutAnswer;
use super::super::calls::{InState, Incoming, Outgoing};
use super::super::deadlines::{Deadlines, Timer};
use super::super::event::{CancelReason, CloseReason, Event, FailureKind};
use super::super::ids::{CallId, LeaseId};
use super::super::leases::{LeaseState, Leases, Side};
use super::super::liveness::Due;
use super::super::transfers::Transfers;
use super::fetch::NO_MEMORY;
use super::{Connection, State};
use crate::wire::{CancelReason as WireCancel, WireStatus};
use crate::{Code, Time};

/// Leases that may expire in a row before the peer is taken for one that never releases. An honest
/// peer whose engine stood still for the whole of `lease_grace` is as good as gone.
const EXPIRED_MAX: u32 = 64;

/// What says whether a deadline still matters.
struct Live<'a> {
    state: &'a State,
    outgoing: &'a Outgoing,
    incoming: &'a Incoming,
    leases: &'a Leases,
    transfers: &'a Transfers,
    recalled: bool,
}

impl Live<'_> {
    fn matters(&self, timer: Timer) -> bool {
        match timer {
            Timer::Outgoing(call) => self.outgoing.get(call).is_some(),
            Timer::Incoming(call) => self
                .incoming
                .get(call)
                .is_some_and(|slot| !matches!(slot.state, InState::Cancelled)),
            Timer::Lease(lease) => {
                self.leases.state(lease).is_some_and(|state| state != LeaseState::Revoking)
            }
            Timer::Memory(transfer) => self.transfers.is_waiting(transfer),
            Timer::Confirm => *self.state == State::Confirming,
            Timer::Close => matches!(self.state, State::Closing(_)),
            Timer::Recall => self.recalled,
        }
    }
}

impl Connection {
    /// Time has come to what [`poll_timeout`](Self::poll_timeout) said. Early calls do no harm.
    ///
    /// `caught_up`: every SEND of the peer that the device has delivered was given to
    /// [`on_message`](Self::on_message). Until then the peer is not judged for its silence.
    pub fn on_timer(&mut self, now: Time, caught_up: bool) {
        while !self.is_closed() {
            let (deadlines, live) = self.deadlines();
            let Some(timer) = deadlines.due(now, |timer| live.matters(timer)) else { break };
            match timer {
                Timer::Outgoing(call) => self.outgoing_is_over(call),
                Timer::Incoming(call) => self.incoming_is_over(call),
                Timer::Lease(lease) => self.lease_is_over(lease),
                Timer::Memory(transfer) => self.refuse_fetch(transfer, NO_MEMORY),
                Timer::Confirm => self.end_everything(
                    "the peer did not confirm the queue pair in time: packets longer than some \
                     length may be lost on the path (check the MTU), or the peer stands still",
                    CloseReason::ConfirmTimeout,
                ),
                Timer::Close => self.close_is_over(),
                Timer::Recall => self.recall_is_over(now, caught_up),
            }
        }
        if self.is_confirmed() {
            self.look_for_life(now, caught_up);
        }
        self.settle();
    }

    /// The device has moved so much to the peer or from it that it must live, though it has said nothing.
    pub fn on_moving(&mut self, now: Time) {
        self.liveness.heard(now);
    }

    /// When the peer's silence is looked at next.
    pub(super) fn next_look(&self) -> Option<Time> {
        if self.is_confirmed() { self.liveness.next(self.is_waiting()) } else { None }
    }

    /// Something is about to be asked of the peer: its silence before that does not count.
    pub(super) fn begin_to_wait(&mut self, now: Time) {
        if self.liveness.is_even() && !self.is_waiting() {
            self.liveness.waits(now);
        }
    }

    /// Whether the peer has something to do for this side.
    pub(super) fn is_waiting(&self) -> bool {
        self.outgoing.len() > 0
            || self.leases.len() > 0
            || self.transfers.len() > 0
            || !self.outbox.is_empty()
            || self.credits.expects_read()
            || self.recalled.is_some()
    }

    fn look_for_life(&mut self, now: Time, caught_up: bool) {
        match self.liveness.look(now, self.is_waiting(), caught_up) {
            Due::Nothing => {}
            Due::Ask => self.outbox.ping = true,
            Due::Dead { since } => {
                self.events.push_back(Event::Silent { silence: now.since(since) });
            }
        }
    }

    pub(super) fn arm(&mut self, at: Time, timer: Timer) {
        let (deadlines, live) = self.deadlines();
        deadlines.add(at, timer, |timer| live.matters(timer));
    }

    /// Makes the next timeout one that matters.
    pub(super) fn tidy(&mut self) {
        let (deadlines, live) = self.deadlines();
        deadlines.tidy(|timer| live.matters(timer));
    }

    fn deadlines(&mut self) -> (&mut Deadlines, Live<'_>) {
        let live = Live {
            state: &self.state,
            outgoing: &self.outgoing,
            incoming: &self.incoming,
            leases: &self.leases,
            transfers: &self.transfers,
            recalled: self.recalled.is_some(),
        };
        (&mut self.deadlines, live)
    }

    fn outgoing_is_over(&mut self, call: CallId) {
        if let Some((token, execution)) = self.end_outgoing(call, WireCancel::Deadline) {
            let message = "the deadline passed before the call was answered";
            self.failed(token, FailureKind::Deadline, message, execution);
        }
    }

    fn incoming_is_over(&mut self, call: CallId) {
        let fetching = |state: &InState| matches!(state, InState::Fetching(_));
        let unseen = self.incoming.get(call).filter(|slot| fetching(&slot.state));
        let wire = unseen.map(|slot| slot.wire);
        if self.cancel_incoming(call, CancelReason::Deadline) {
            match wire {
                Some(wire) => {
                    let message = "the deadline passed before the request was here";
                    self.refuse_wire(wire, Code::DeadlineExceeded as u32, message.into());
                }
                // The peer's own clock says the same, and it will say CANCEL.
                None => self.stray.expect_cancel(),
            }
        }
    }

    /// The peer has not released a lease in time, or its message could not be sent in time.
    fn lease_is_over(&mut self, lease: LeaseId) {
        match self.leases.state(lease) {
            None | Some(LeaseState::Revoking) => {}
            Some(LeaseState::Reserved) => self.revoke(lease, true),
            Some(LeaseState::Advertised) => {
                self.counters.leases_expired += 1;
                self.stray.expect_release();
                self.expired_in_a_row += 1;
                self.revoke(lease, true);
                if self.expired_in_a_row >= EXPIRED_MAX {
                    self.end_everything(
                        "the peer releases no memory that it was given to read",
                        CloseReason::LeasesUnreleased,
                    );
                }
            }
            Some(LeaseState::Queued(Side::Outgoing(call))) => self.outgoing_is_over(call),
            Some(LeaseState::Queued(Side::Incoming(call))) => {
                self.revoke(lease, true);
                if let Some(slot) = self.incoming.get_mut(call) {
                    let why = "the answer waited too long for the peer to take it";
                    let status = Some(WireStatus::new(Code::DeadlineExceeded, why));
                    slot.state = InState::Answered(OutAnswer { status, ..OutAnswer::default() });
                }
            }
        }
    }

    fn close_is_over(&mut self) {
        if let State::Closing(reason) = &self.state {
            let reason = reason.clone();
            let message = format!("the connection was closed: {}", reason.message);
            self.end_everything(message, CloseReason::Local { reason, drained: false });
        }
    }
}
