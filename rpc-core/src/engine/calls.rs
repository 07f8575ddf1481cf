//! Calls of this side: begun, cancelled, given up while they wait.

use std::sync::Arc;

use super::capacity::CALLS_MAX;
use super::cell::{CallCell, CallPlace};
use super::connection::Waiting;
use super::drive::Turn;
use super::engine::Engine;
use super::leases::NotNow;
use super::outbound::has_pieces;
use super::status;
use super::submission::{CallSubmission, OutgoingCall};
use crate::protocol::{CallRefused, OutCall};
use crate::verbs::Device;
use crate::{Execution, Status, Time};

/// A lease for a call without a deadline expires this long after it was made.
const CALL_LEASE: std::time::Duration = std::time::Duration::from_secs(300);

/// The priority of an urgent call on the wire, and 0 that of any other: more classes may follow.
const URGENT: u8 = 1;

impl<D: Device> Engine<D> {
    /// A call comes in from a program.
    pub(super) fn start_call(&mut self, turn: &Turn<'_>, submission: CallSubmission) {
        self.counters.calls_made += 1;
        if submission.cell.is_abandoned() {
            return;
        }
        let key = submission.connection;
        let Some(connection) = self.connections.get(key).filter(|c| c.is_open()) else {
            fail(&submission.cell, "the connection is gone; the call was not sent");
            return;
        };
        // A call that waits holds its place, so that calls with payloads cannot pass one another
        // for ever and the number of them is bounded.
        let has_pieces = has_pieces(&submission.call.body);
        if connection.waiting.len() + connection.calls.len() >= CALLS_MAX as usize {
            submission.cell.complete(Err(too_many_calls()));
        } else if has_pieces && !connection.waiting.is_empty() {
            self.wait(turn, submission);
        } else {
            self.try_start(turn, submission);
        }
    }

    /// Starts a call, or lets it wait for a lease.
    fn try_start(&mut self, turn: &Turn<'_>, submission: CallSubmission) {
        let CallSubmission { connection: key, cell, call } = submission;
        let OutgoingCall { method, deadline, urgent, metadata, body } = call;
        let expires = deadline.unwrap_or(turn.now + CALL_LEASE);
        let body = match self.advertise(turn, key.slot, body, expires) {
            Ok(body) => body,
            Err(NotNow::Refused(status)) => {
                self.counters.errors += 1;
                cell.complete(Err(status.with_execution(Execution::NotExecuted)));
                return;
            }
            Err(NotNow::Wait(body)) => {
                let call = OutgoingCall { method, deadline, urgent, metadata, body };
                self.wait(turn, CallSubmission { connection: key, cell, call });
                return;
            }
        };
        let Some(connection) = self.connections.get(key) else { return };
        let entry = connection.calls.vacant_entry();
        let token = entry.key() as u64;
        let priority = if urgent { URGENT } else { 0 };
        let call = OutCall { method, deadline, metadata, priority, body };
        match connection.protocol.start_call(turn.now, token, call) {
            Ok(id) => {
                cell.set_place(CallPlace { connection: key, call: id, token });
                entry.insert(cell);
            }
            Err((call, refused)) => {
                cell.complete(Err(refused_status(&refused)));
                if let Some(lease) = call.body.lease {
                    self.revoke_lease(turn, key.slot, lease);
                }
            }
        }
        self.mark_dirty(key.slot);
    }

    fn wait(&mut self, turn: &Turn<'_>, submission: CallSubmission) {
        let slot = submission.connection.slot;
        if let Some(connection) = self.connections.get(submission.connection) {
            connection.waiting.push_back(Waiting::Call(submission));
            self.schedule_waiting_check(turn.now, slot);
        }
    }

    /// Gives what waits for leases another try, in order, and ends what has waited too long.
    pub(super) fn retry_waiting(&mut self, turn: &Turn<'_>, slot: u32) {
        loop {
            let Some(connection) = self.connections.at(slot) else { return };
            let Some(first) = connection.waiting.pop_front() else { return };
            // While the first is tried nothing seems to wait; if it must wait again, it is alone.
            let rest = std::mem::take(&mut connection.waiting);
            let key = connection.key;
            match first {
                Waiting::Call(call) if call.cell.is_abandoned() => {}
                Waiting::Call(call) if is_past(call.call.deadline, turn.now) => {
                    call.cell.complete(Err(status::deadline_before_sent()));
                }
                Waiting::Call(call) => self.try_start(turn, call),
                Waiting::Answer { call, answer } => self.answer(turn, key, call, answer),
            }
            let Some(connection) = self.connections.at(slot) else { return };
            let waits_again = !connection.waiting.is_empty();
            connection.waiting.extend(rest);
            if waits_again {
                self.end_overdue(turn, slot);
                self.schedule_waiting_check(turn.now, slot);
                return;
            }
        }
    }

    /// Ends calls behind the first that have waited too long.
    fn end_overdue(&mut self, turn: &Turn<'_>, slot: u32) {
        let Some(connection) = self.connections.at(slot) else { return };
        connection.waiting.retain(|waiting| match waiting {
            Waiting::Call(call) if is_past(call.call.deadline, turn.now) => {
                call.cell.complete(Err(status::deadline_before_sent()));
                false
            }
            Waiting::Call(call) => !call.cell.is_abandoned(),
            Waiting::Answer { .. } => true,
        });
    }

    /// The future of a call was dropped.
    pub(super) fn cancel_call(&mut self, turn: &Turn<'_>, place: CallPlace, cell: &Arc<CallCell>) {
        let Some(connection) = self.connections.get(place.connection) else { return };
        let token = place.token as usize;
        if connection.calls.get(token).is_some_and(|have| Arc::ptr_eq(have, cell)) {
            connection.calls.remove(token);
            connection.protocol.cancel_call(turn.now, place.call);
            self.pump(turn, place.connection.slot);
            self.mark_dirty(place.connection.slot);
        }
    }
}

fn is_past(deadline: Option<Time>, now: Time) -> bool {
    deadline.is_some_and(|deadline| deadline <= now)
}

fn fail(cell: &CallCell, why: &str) {
    cell.complete(Err(Status::unavailable(why).with_execution(Execution::NotExecuted)));
}

fn too_many_calls() -> Status {
    Status::resource_exhausted(format!(
        "{CALLS_MAX} calls are in progress on this connection already; wait for some to end, or \
         open more connections"
    ))
    .with_execution(Execution::NotExecuted)
}

fn refused_status(refused: &CallRefused) -> Status {
    match refused {
        CallRefused::Full { .. } => too_many_calls(),
        CallRefused::Closing => {
            Status::unavailable("the connection is closing; the call was not sent")
                .with_execution(Execution::NotExecuted)
        }
        other => {
            Status::resource_exhausted(other.to_string()).with_execution(Execution::NotExecuted)
        }
    }
}
