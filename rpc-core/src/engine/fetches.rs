//! Memory for payloads that peers advertise.
//!
//! Connections that wait for memory take turns, one message each, so a peer that announces many does
//! not keep others waiting; a message for which there is no room yet keeps its turn, so a long one
//! does not starve behind short ones. A peer that holds memory and lets nothing be read into it has
//! to go once others wait.

use std::time::Duration;

use super::attention::Missed;
use super::connection::Connection;
use super::drive::Turn;
use super::engine::Engine;
use super::offload::Known;
use super::submission::ConnectionKey;
use super::teardown::Loss;
use crate::Time;
use crate::mem::{MemError, PayloadMut, Share, Use};
use crate::protocol::TransferId;
use crate::verbs::{Device, Limits};

/// A connection whose READs bring nothing for so long is closed if others wait for the memory that it
/// holds. Less than half of the time that a message waits for memory, so that others still get it, and
/// beyond the pauses of a peer that shares its processors with dozens: forty clients on two were seen to
/// pause for more than half a second. Where the device itself pauses for longer, [`Stalls::new`].
const READ_STALL: Duration = Duration::from_secs(2);

/// When READs that bring nothing end their connection, because others wait for its memory.
#[derive(Debug)]
pub(super) struct Stalls {
    after: Duration,
    /// What the core had missed when it last looked.
    missed: Missed,
}

impl Stalls {
    /// On a device with these limits after [`READ_STALL`], or long enough for a READ that is asked for twice:
    /// what the network lost is no fault of the peer's either.
    pub(super) fn new(limits: &Limits) -> Self {
        Self { after: READ_STALL.max(2 * limits.ack_timeout()), missed: Missed::default() }
    }
}

/// A message whose payload has no destination yet: the inbound share is used up.
pub(super) struct WaitingFetch {
    pub(super) transfer: TransferId,
    pieces: Vec<u32>,
    /// Its destinations, while the device does not know all of their arenas.
    taken: Vec<PayloadMut>,
    answer: bool,
    until: Time,
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
        let Some(key) = self.connections.key(slot) else { return };
        let mut fetch = WaitingFetch { transfer, pieces, taken: Vec::new(), answer, until };
        if self.fetches.is_empty() {
            match self.try_fetch(turn, key, fetch) {
                Some(back) => fetch = back,
                None => return,
            }
        }
        let Some(connection) = self.connections.get(key) else { return };
        if connection.fetches.is_empty() {
            self.fetches.push_back(key);
        }
        connection.fetches.push_back(fetch);
    }

    /// Gives the fetch back if there is no memory for it now.
    fn try_fetch(
        &mut self,
        turn: &Turn<'_>,
        key: ConnectionKey,
        mut fetch: WaitingFetch,
    ) -> Option<WaitingFetch> {
        let taken = match std::mem::take(&mut fetch.taken) {
            none if none.is_empty() => self.destinations(&fetch),
            taken => Ok(taken),
        };
        let known = taken.as_ref().map_or(Known::Yes, |taken| self.know_arenas(turn, taken));
        let connection = self.connections.get(key)?;
        match taken {
            Ok(taken) if known == Known::Soon && turn.now < fetch.until => {
                fetch.taken = taken;
                return Some(fetch);
            }
            Ok(_) if known != Known::Yes => {
                self.counters.errors += 1;
                connection.protocol.on_fetch_refused(turn.now, fetch.transfer);
            }
            Ok(buffers) => {
                connection.transfers.insert(fetch.transfer, buffers);
                connection.protocol.on_fetch_ready(turn.now, fetch.transfer);
            }
            Err(MemError::Full(_) | MemError::RangeFull { .. }) if turn.now < fetch.until => {
                return Some(fetch);
            }
            Err(error @ (MemError::LargerThanShare { .. } | MemError::TooLong { .. })) => {
                self.counters.errors += 1;
                let why = format!("the receiver can never take the message: {error}");
                tracing::warn!("{why}");
                connection.protocol.on_fetch_impossible(turn.now, fetch.transfer, why);
            }
            Err(error) => {
                self.counters.errors += 1;
                tracing::warn!(%error, "no memory for a payload that a peer advertised");
                connection.protocol.on_fetch_refused(turn.now, fetch.transfer);
            }
        }
        self.mark_dirty(key.slot);
        None
    }

    /// Whether the device knows the arenas of all these buffers.
    fn know_arenas(&mut self, turn: &Turn<'_>, buffers: &[PayloadMut]) -> Known {
        let mut all = Known::Yes;
        for buffer in buffers {
            match self.know_arena(turn, buffer.arena()) {
                Known::Yes => {}
                Known::Soon if all == Known::Yes => all = Known::Soon,
                Known::Soon => {}
                refused @ Known::No(_) => all = refused,
            }
        }
        all
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
        while let Some(key) = self.fetches.pop_front() {
            let Some(connection) = self.connections.get(key) else { continue };
            let Some(fetch) = connection.fetches.pop_front() else { continue };
            let back = self.try_fetch(turn, key, fetch);
            let Some(connection) = self.connections.get(key) else { continue };
            if let Some(fetch) = back {
                self.stalls.missed = turn.missed;
                connection.fetches.push_front(fetch);
                self.fetches.push_front(key);
                self.end_stalled(turn);
                break;
            }
            if !connection.fetches.is_empty() {
                self.fetches.push_back(key);
            }
            self.pump(turn, key.slot);
            work += 1;
        }
        work
    }

    /// Others wait for memory: connections that hold some and bring nothing into it are closed.
    fn end_stalled(&mut self, turn: &Turn<'_>) {
        for slot in self.connections.in_use() {
            let stalled =
                self.connections.at(slot).and_then(|c| c.stalls_at(self.stalls.after, turn.missed));
            if stalled.is_some_and(|at| at <= turn.now) {
                self.lose(turn, slot, Loss::Stalled);
            }
        }
    }

    /// When a connection has to be looked at because others wait for its memory.
    pub(super) fn next_fetch_retry(&self) -> Option<Time> {
        if self.fetches.is_empty() {
            return None;
        }
        let stalls = |connection: &Connection<D>| {
            connection.stalls_at(self.stalls.after, self.stalls.missed)
        };
        self.connections.iter().filter_map(stalls).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Time;
    use crate::verbs::soft::{SoftConfig, SoftDevice};

    #[test]
    fn a_device_that_is_slow_to_transmit_again_makes_no_peer_guilty() {
        let clock = std::sync::Arc::new(|| Time::ZERO);
        let device = SoftDevice::open(SoftConfig::new(clock)).unwrap();
        let quick = device.limits();
        assert_eq!(Stalls::new(&quick).after, READ_STALL);
        let slow = Limits { ack_timeout_min: 19, ..quick };
        assert!(slow.ack_timeout() > Duration::from_secs(2));
        assert_eq!(Stalls::new(&slow).after, 2 * slow.ack_timeout());
    }
}
