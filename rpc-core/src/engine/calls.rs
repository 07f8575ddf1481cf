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
use super::submission::OutgoingCall;
use crate::protocol::{CallRefused, OutCall};
use crate::verbs::Device;
use crate::{Execution, Status, Time};

/// A lease for a call without a deadline expires this long after it was made.
const CALL_LEASE: std::time::Duration = std::time::Duration::from_secs(300);

const GONE: &str = "the connection is gone; the call was not sent";

/// The priority of an urgent call on the wire, and 0 that of any other: more classes may follow.
const URGENT: u8 = 1;

impl<D: Device> Engine<D> {
    /// A call comes in from a program.
    pub(super) fn start_call(&mut self, turn: &Turn<'_>, cell: Arc<CallCell>) {
        self.counters.calls_made += 1;
        if cell.is_abandoned() {
            return;
        }
        let Some(connection) = self.connections.get(cell.connection).filter(|c| c.is_open()) else {
            cell.fail(GONE);
            return;
        };
        let Some(call) = cell.take_call() else {
            debug_assert!(false, "a call is submitted once");
            return;
        };
        // A call that waits holds its place, so that calls with payloads cannot pass one another
        // for ever and the number of them is bounded.
        let has_pieces = has_pieces(&call.body);
        if connection.waiting.len() + connection.calls.len() >= CALLS_MAX as usize {
            cell.complete(Err(too_many_calls()));
        } else if has_pieces && !connection.waiting.is_empty() {
            self.wait(turn, cell, call);
        } else {
            self.try_start(turn, cell, call);
        }
    }

    /// Starts a call, or lets it wait for a lease.
    fn try_start(&mut self, turn: &Turn<'_>, cell: Arc<CallCell>, call: OutgoingCall) {
        let key = cell.connection;
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
                self.wait(turn, cell, call);
                return;
            }
        };
        let Some(connection) = self.connections.get(key) else {
            cell.fail(GONE);
            return;
        };
        let entry = connection.calls.vacant_entry();
        let token = entry.key() as u64;
        let priority = if urgent { URGENT } else { 0 };
        let call = OutCall { method, deadline, metadata, priority, body };
        match connection.protocol.start_call(turn.now, token, call) {
            Ok(id) => {
                cell.set_place(CallPlace { call: id, token });
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

    fn wait(&mut self, turn: &Turn<'_>, cell: Arc<CallCell>, call: OutgoingCall) {
        let slot = cell.connection.slot;
        if let Some(connection) = self.connections.get(cell.connection) {
            connection.waiting.push_back(Waiting::Call { cell, call });
            self.schedule_waiting_check(turn.now, slot);
        } else {
            cell.fail(GONE);
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
                Waiting::Call { cell, .. } if cell.is_abandoned() => {}
                Waiting::Call { cell, call } if is_past(call.deadline, turn.now) => {
                    cell.complete(Err(status::deadline_before_sent()));
                }
                Waiting::Call { cell, call } => self.try_start(turn, cell, call),
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
            Waiting::Call { cell, call } if is_past(call.deadline, turn.now) => {
                cell.complete(Err(status::deadline_before_sent()));
                false
            }
            Waiting::Call { cell, .. } => !cell.is_abandoned(),
            Waiting::Answer { .. } => true,
        });
    }

    /// The future of a call was dropped.
    pub(super) fn cancel_call(&mut self, turn: &Turn<'_>, cell: &Arc<CallCell>) {
        // One that waits, or has not come yet, is seen to be abandoned when its turn comes.
        let Some(place) = cell.place() else { return };
        let key = cell.connection;
        let Some(connection) = self.connections.get(key) else { return };
        let token = place.token as usize;
        if connection.calls.get(token).is_some_and(|have| Arc::ptr_eq(have, cell)) {
            connection.calls.remove(token);
            connection.protocol.cancel_call(turn.now, place.call);
            self.pump(turn, key.slot);
            self.mark_dirty(key.slot);
        }
    }
}

fn is_past(deadline: Option<Time>, now: Time) -> bool {
    deadline.is_some_and(|deadline| deadline <= now)
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
