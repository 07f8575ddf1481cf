//! Memory for payloads that peers advertise.

use super::drive::Turn;
use super::engine::Engine;
use super::submission::ConnectionKey;
use crate::Time;
use crate::mem::{MemError, PayloadMut, Share, Use};
use crate::protocol::TransferId;
use crate::verbs::Device;

/// A message whose payload has no destination yet: the inbound share is used up.
pub(super) struct WaitingFetch {
    connection: ConnectionKey,
    transfer: TransferId,
    pieces: Vec<u32>,
    answer: bool,
    until: Time,
}

impl WaitingFetch {
    pub(super) fn is_of(&self, connection: ConnectionKey) -> bool {
        self.connection == connection
    }

    pub(super) fn is_for(&self, slot: u32, transfer: TransferId) -> bool {
        self.connection.slot == slot && self.transfer == transfer
    }
}

impl<D: Device> Engine<D> {
    /// A message with payloads was announced: finds memory for them, or queues for it.
    pub(super) fn fetch(
        &mut self,
        turn: &Turn<'_>,
        slot: u32,
        transfer: TransferId,
        pieces: Vec<u32>,
        answer: bool,
        until: Time,
    ) {
        let Some(connection) = self.connections.key(slot) else { return };
        let fetch = WaitingFetch { connection, transfer, pieces, answer, until };
        if !self.fetches.is_empty() {
            self.fetches.push_back(fetch); // in order: a large one must not starve behind small ones
        } else if let Some(fetch) = self.try_fetch(turn, fetch) {
            self.fetches.push_back(fetch);
        }
    }

    /// Gives the fetch back if there is no memory for it now.
    fn try_fetch(&mut self, turn: &Turn<'_>, fetch: WaitingFetch) -> Option<WaitingFetch> {
        let slot = fetch.connection.slot;
        let taken = self.destinations(&fetch);
        let connection = self.connections.get(fetch.connection)?;
        match taken {
            Ok(buffers) => {
                connection.transfers.insert(fetch.transfer, buffers);
                connection.protocol.on_fetch_ready(turn.now, fetch.transfer);
            }
            Err(MemError::Full(_) | MemError::RangeFull { .. }) if turn.now < fetch.until => {
                return Some(fetch);
            }
            Err(error) => {
                self.counters.errors += 1;
                tracing::warn!(%error, "no memory for a payload that a peer advertised");
                connection.protocol.on_fetch_refused(turn.now, fetch.transfer);
            }
        }
        self.mark_dirty(slot);
        self.schedule_timer(slot);
        None
    }

    /// A buffer for each piece, all or none.
    fn destinations(&mut self, fetch: &WaitingFetch) -> Result<Vec<PayloadMut>, MemError> {
        let used_for = if fetch.answer { Use::Response } else { Use::Request };
        match self.cache.alloc_all(Share::Inbound, used_for, &fetch.pieces) {
            Err(MemError::Full(_)) => {
                // Asked to be woken, it must look once more: memory may have come back between.
                self.cache.wait_for_memory(&self.waker);
                self.cache.alloc_all(Share::Inbound, used_for, &fetch.pieces)
            }
            taken => taken,
        }
    }

    /// Memory may have come back since the last turn.
    pub(super) fn retry_fetches(&mut self, turn: &Turn<'_>) -> usize {
        let mut work = 0;
        while let Some(fetch) = self.fetches.pop_front() {
            let slot = fetch.connection.slot;
            if let Some(fetch) = self.try_fetch(turn, fetch) {
                self.fetches.push_front(fetch);
                break;
            }
            self.pump(turn, slot);
            work += 1;
        }
        work
    }

    pub(super) fn next_fetch_retry(&self) -> Option<Time> {
        self.fetches.iter().map(|fetch| fetch.until).min()
    }
}
