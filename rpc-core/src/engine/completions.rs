use std::time::Duration;

use super::attention::Seen;
use super::drive::Turn;
use super::engine::Engine;
use super::send_queue::Holds;
use super::teardown::Loss;
use super::wr_id::WrId;
use crate::failpoint::{self, Point};
use crate::verbs::{Cq, Device, Wc};

/// Asynchronous events are rare and never urgent: a QP that fails also fails its requests.
const ASYNC_EVERY: Duration = Duration::from_millis(1);

impl<D: Device> Engine<D> {
    /// Takes completions and feeds the state machines with them.
    pub(super) fn poll_completions(&mut self, turn: &Turn<'_>) -> usize {
        if self.failed {
            return 0;
        }
        let mut completions = std::mem::take(&mut self.completions);
        let taken = match self.cq.poll(&mut completions) {
            Ok(taken) => taken,
            Err(error) => {
                // The queue has lost completions: nothing on it can be trusted any more.
                self.fail(turn, &error.to_string());
                0
            }
        };
        self.counters.queues.completions += taken as u64;
        for completion in &completions[..taken] {
            match WrId::decode(completion.wr_id()) {
                Some(WrId::Receive(slot)) => self.received(turn, slot, completion),
                Some(WrId::SendQueue { slot, generation, sequence }) => {
                    self.sent(turn, u32::from(slot), generation, sequence, completion);
                }
                None => tracing::error!("a completion of a request that was never posted"),
            }
        }
        self.caught_up = taken < completions.len();
        if self.caught_up {
            self.polls_dry += 1;
        }
        self.completions = completions;
        self.end_silent(turn);
        if self.own_device && turn.now.since(self.async_seen) >= ASYNC_EVERY {
            self.async_seen = turn.now;
            self.poll_async(turn);
        }
        taken
    }

    /// A receive completed: one SEND of a peer, or the end of its QP.
    fn received(&mut self, turn: &Turn<'_>, id: crate::mem::SlotId, completion: &Wc) {
        let Some(buffer) = self.slab.reclaim(id) else {
            tracing::error!("a receive completed whose buffer is not posted");
            debug_assert!(false, "no peer can bring this about: what is posted is counted wrongly");
            return;
        };
        self.receives_posted -= 1;
        let slot = self.by_qp.get(&completion.qp_num().0).copied();
        let Some(connection) = slot.and_then(|slot| self.connections.at(slot)) else {
            self.consumed.push((buffer, None));
            return;
        };
        let verdict = match completion.outcome() {
            Ok(completed) => {
                let bytes = self.slab.bytes(&buffer);
                let len = (completed.byte_len as usize).min(bytes.len());
                connection.protocol.on_message(turn.now, &bytes[..len]).map_err(Loss::Violation)
            }
            Err(failure) => Err(Loss::Completion(failure)),
        };
        self.consumed.push((buffer, slot));
        let slot = slot.unwrap_or_default();
        if let Err(loss) = verdict {
            self.lose(turn, slot, loss);
        }
        self.pump(turn, slot);
        self.mark_dirty(slot);
    }

    /// A request of a send queue completed, and with it all before it.
    fn sent(
        &mut self,
        turn: &Turn<'_>,
        slot: u32,
        generation: u16,
        sequence: u32,
        completion: &Wc,
    ) {
        let current = self.connections.key(slot).map(|key| key.generation as u16);
        if current != Some(generation) {
            return; // of a connection that has gone
        }
        if let Some(connection) = self.connections.at(slot) {
            connection.moved.completed(turn.now);
        }
        let outcome = completion.outcome();
        let mut told = outcome.is_err();
        if let Err(failure) = outcome {
            self.lose(turn, slot, Loss::Completion(failure));
        }
        loop {
            let Some(connection) = self.connections.at(slot) else { return };
            let Some(holds) = connection.send_queue.pop_through(sequence) else { break };
            match holds {
                Holds::Send(id) => {
                    if let Some(buffer) = self.slab.reclaim(id) {
                        self.slab.free(buffer);
                    }
                }
                Holds::Inline | Holds::Bind | Holds::Drain => {}
                Holds::Read(read, len) => {
                    connection.read_at = Seen::now(turn);
                    told = true;
                    self.reads.done(&mut connection.reads, len);
                    failpoint::pass(Point::ReadDone);
                    connection.protocol.on_read_done(turn.now, read, outcome.is_ok());
                }
                Holds::Invalidate { lease, last } => {
                    told = true;
                    if last && outcome.is_ok() {
                        self.lease_revoked(turn, slot, lease);
                    }
                }
            }
        }
        // That a SEND has left is news to nobody but those who wait for its place or its buffer.
        if told {
            self.pump(turn, slot);
        }
        if told || self.connections.at(slot).is_some_and(|c| c.queue_full || !c.is_open()) {
            self.mark_dirty(slot);
        }
        self.feed_starved();
    }
}
