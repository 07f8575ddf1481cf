//! What the state machine of a connection asks for, done.

use super::cell::Reply;
use super::drive::Turn;
use super::engine::Engine;
use super::status;
use super::teardown::Loss;
use crate::protocol::{CloseReason, Event};
use crate::verbs::Device;
use crate::{Execution, Status};

/// Why a connection was closed, for its log line and for whoever asked for it.
fn close_text(reason: CloseReason) -> String {
    match reason {
        CloseReason::Local { reason, drained: true } => format!("closed here: {}", reason.message),
        CloseReason::Local { reason, drained: false } => {
            format!("closed here with calls still in progress: {}", reason.message)
        }
        CloseReason::Lost(reason) => reason.message.to_string(),
        CloseReason::ConfirmTimeout => {
            "the peer did not confirm the connection in time; its core may be busy, or the path \
             may drop full-sized packets"
                .to_owned()
        }
        CloseReason::CreditsUnreturned => {
            "the peer did not give back the credits that it was asked for; its core may be busy"
                .to_owned()
        }
        CloseReason::LeasesUnreleased => {
            "the peer let leases expire without reading or releasing them".to_owned()
        }
    }
}

impl<D: Device> Engine<D> {
    /// Takes every event that a connection has. What it then has to say, and its next timer, come with
    /// the flush.
    pub(super) fn pump(&mut self, turn: &Turn<'_>, slot: u32) {
        while let Some(event) =
            self.connections.at(slot).and_then(|connection| connection.protocol.poll_event())
        {
            self.on_event(turn, slot, event);
        }
        self.mark_dirty(slot);
    }

    fn on_event(&mut self, turn: &Turn<'_>, slot: u32, event: Event) {
        let Some(connection) = self.connections.at(slot) else { return };
        match event {
            Event::Confirmed => connection.tell_ready(),
            Event::Fetch { transfer, pieces, answer, deadline } => {
                self.fetch(turn, slot, transfer, pieces, answer, deadline);
            }
            Event::Call(call) => self.arrive(slot, call),
            Event::Answer { token, status: answer, metadata, body } => {
                let body = connection.take_body(&self.pool, body);
                if let Some(cell) = connection.calls.try_remove(token as usize) {
                    cell.complete(match answer {
                        None => Ok(Reply { metadata, body }),
                        Some(answer) => Err(status::from_peer(answer, &metadata)),
                    });
                }
            }
            Event::Failed { token, failure } => {
                if let Some(cell) = connection.calls.try_remove(token as usize) {
                    self.counters.errors += 1;
                    cell.complete(Err(status::from_failure(failure)));
                }
            }
            Event::Cancelled { call, .. } => {
                // Dropping the task drops the handler's future; its guard then reports the end.
                match connection.handlers.remove(&call) {
                    Some(task) => drop(task),
                    None => self.forget_arrived(turn, slot, call),
                }
            }
            Event::Revoke { lease, expired } => {
                if expired {
                    self.counters.errors += 1;
                    tracing::warn!(slot, "a lease expired: the peer has not released it in time");
                }
                self.revoke_lease(turn, slot, lease);
            }
            Event::Discard { transfer } => {
                connection.transfers.remove(&transfer);
                let waited = connection.fetches.len();
                connection.fetches.retain(|fetch| fetch.transfer != transfer);
                if waited > 0 && connection.fetches.is_empty() {
                    let key = connection.key;
                    self.fetches.retain(|other| *other != key);
                }
            }
            Event::Lend { wanted } => self.lend_receives(turn, slot, wanted),
            Event::Returned { count } => self.receives_returned(slot, count),
            Event::GoingAway => {
                if let Some(observer) = &connection.observer {
                    observer.retiring(connection.key);
                }
            }
            Event::Silent { silence } => self.lose(turn, slot, Loss::Mute(silence)),
            Event::Closed { reason: reason @ CloseReason::Local { .. } } => {
                self.finish(turn, slot, close_text(reason));
            }
            Event::Closed { reason: reason @ CloseReason::ConfirmTimeout } => {
                self.lose(turn, slot, Loss::Unconfirmed(close_text(reason)));
            }
            Event::Closed { reason } => self.lose(turn, slot, Loss::Closed(close_text(reason))),
        }
    }

    /// Tells whoever asked for a connection that it is gone.
    pub(super) fn tell_observer(&mut self, slot: u32, why: &str, way_failed: bool) {
        let Some(connection) = self.connections.at(slot) else { return };
        if let Some(observer) = connection.observer.take() {
            observer.lost(
                connection.key,
                Status::unavailable(why).with_execution(Execution::NotExecuted),
                way_failed,
            );
        }
    }
}
