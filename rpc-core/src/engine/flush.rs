//! What connections have to say, as work requests: one chain for each, one doorbell.

use super::capacity::SEND_WRS_CONTROL;
use super::chain::{Chain, Posting};
use super::drive::Turn;
use super::engine::Engine;
use super::send_queue::Holds;
use super::teardown::Loss;
use crate::verbs::Device;

/// Why the flush of one connection stopped.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stopped {
    /// There is nothing more to say, or no credit to say it with.
    Done,
    /// The send queue is full: a completion goes on.
    QueueFull,
    /// There is no eager buffer: any connection's completion goes on.
    NoBuffer,
}

impl<D: Device> Engine<D> {
    /// Flushes every connection that has something to say. Returns how many requests were posted.
    pub(super) fn flush_dirty(&mut self, turn: &Turn<'_>) -> usize {
        let mut work = 0;
        for _ in 0..self.dirty.len() {
            let Some(slot) = self.dirty.pop_front() else { break };
            let Some(connection) = self.connections.at(slot) else { continue };
            connection.dirty = false;
            if connection.is_alive() {
                work += self.flush_connection(turn, slot);
                self.go_on_finishing(turn, slot);
            } else {
                self.destroy_if_drained(turn, slot);
            }
        }
        work
    }

    /// The same, READs shared out among those that wait for a turn.
    pub(super) fn flush_shared(&mut self, turn: &Turn<'_>) -> usize {
        let mut work = self.flush_dirty(turn);
        // One whose turn comes may have nothing left to ask for: then it is the next one's.
        while self.share_reads() {
            work += self.flush_dirty(turn);
        }
        work
    }

    /// Gives READs to connections that waited for them. Says whether there was one.
    fn share_reads(&mut self) -> bool {
        let mut any = false;
        while let Some(key) = self.reads.next() {
            let Some(connection) = self.connections.get(key) else { continue };
            if !connection.is_alive() {
                // It asks for nothing any more; what it has asked for comes back as its QP is drained.
                connection.reads.leave();
                continue;
            }
            self.reads.grant(&mut connection.reads);
            self.mark_dirty(key.slot);
            any = true;
        }
        any
    }

    pub(super) fn flush_connection(&mut self, turn: &Turn<'_>, slot: u32) -> usize {
        let Some(connection) = self.connections.at(slot) else { return 0 };
        let before = connection.send_queue.free();
        let awaited = connection.send_queue.awaits();
        let grows = self.offload.is_none();
        let (slab, registrar) = (&mut self.slab, &mut self.registrar);
        let posting = Posting {
            apart: self.local_ops_alone,
            inline_bytes_max: self.control.inline_bytes_max,
            copied: &mut self.copied,
        };
        let reads = &mut self.reads;
        let Some(mut chain) = Chain::new(connection, slab, grows, registrar, reads, posting) else {
            return 0;
        };
        let built = chain.build(turn);
        let copies = chain.copies();
        let posted = chain.post();
        connection.queue_full = !matches!(built, Ok(Stopped::Done))
            || connection.send_queue.free() <= SEND_WRS_CONTROL
            || connection.behind_binds.is_some()
            || !connection.revoking.is_empty();
        debug_assert!(connection.send_queue.can_go_on(), "what is to be said waits for nothing");
        if matches!(built, Ok(Stopped::NoBuffer)) {
            self.starved.push(slot);
        }
        if copies {
            self.feed_starved();
        }
        match (built, posted) {
            (Ok(_), Ok(())) => {}
            (Err(error), _) => self.lose(turn, slot, Loss::Device(error.to_string())),
            (_, Err(error)) => {
                self.take_refused(slot, before, error.posted);
                self.lose(turn, slot, Loss::Device(error.to_string()));
            }
        }
        // What was said may have been the last thing that the state machine waited for: no completion of it
        // need come to tell.
        if self.connections.at(slot).is_some_and(|connection| connection.protocol.has_events()) {
            self.pump(turn, slot);
        }
        self.schedule_timer(slot);
        let Some(connection) = self.connections.at(slot) else { return 0 };
        let posted = before.saturating_sub(connection.send_queue.free());
        if posted > 0 {
            self.counters.queues.requests += u64::from(posted);
            self.counters.queues.send_doorbells += 1;
            connection.moved.posted(turn.now, awaited);
        }
        posted as usize
    }

    /// Buffers were given back: connections that had none go on.
    pub(super) fn feed_starved(&mut self) {
        for slot in std::mem::take(&mut self.starved) {
            self.mark_dirty(slot);
        }
    }

    /// Takes what the device refused out of the books again.
    fn take_refused(&mut self, slot: u32, free_before: u32, posted: u32) {
        let Some(connection) = self.connections.at(slot) else { return };
        while free_before - connection.send_queue.free().min(free_before) > posted {
            match connection.send_queue.pop_refused() {
                Some(Holds::Send(id)) => {
                    if let Some(buffer) = self.slab.reclaim(id) {
                        self.slab.free(buffer);
                    }
                }
                Some(Holds::Read(_, len)) => self.reads.done(&mut connection.reads, len),
                Some(_) => {}
                None => return,
            }
        }
    }
}
