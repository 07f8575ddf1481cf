//! Receives: each connection owns some of those that stand in the SRQ, and only those are granted.

use super::capacity::{RECEIVES_GUARANTEED, RECEIVES_LENT_STEP};
use super::drive::Turn;
use super::engine::Engine;
use super::shortage::IDLE;
use super::wr_id::WrId;
use crate::Time;
use crate::mem::{EagerSlab, EagerSlot, SlotId};
use crate::verbs::{Device, RecvBatch, Srq, VerbsError};

/// What is posted again in a turn: kept between turns for its memory.
#[derive(Default)]
pub(super) struct Reposting {
    /// What others' receives wait in for the next turn, if the device did not take it in this one.
    buffers: Vec<EagerSlot>,
    /// The connection that each belongs to; `None`: some other than the one that took it.
    owners: Vec<Option<u32>>,
    lent: Vec<SlotId>,
}

impl Reposting {
    /// Buffers that wait to be posted again.
    pub(super) fn waiting(&self) -> u32 {
        self.buffers.len() as u32
    }
}

/// A free eager buffer; a slab that `grows` by itself does so if it has none and may.
pub(super) fn take_slot(slab: &mut EagerSlab, grows: bool) -> Option<EagerSlot> {
    if let Some(slot) = slab.alloc() {
        return Some(slot);
    }
    if !grows {
        return None;
    }
    match slab.grow() {
        Ok(Some(_)) => slab.alloc(),
        Ok(None) => None,
        Err(error) => {
            tracing::warn!(%error, "no further eager buffers");
            None
        }
    }
}

impl<D: Device> Engine<D> {
    /// Posts again what was consumed in this turn, in one chain, before any handler runs; then tells
    /// each connection, which may now grant it.
    pub(super) fn repost_receives(&mut self, turn: &Turn<'_>) {
        if self.consumed.is_empty() {
            return;
        }
        let mut consumed = std::mem::take(&mut self.consumed);
        let Reposting { mut buffers, mut owners, mut lent } = std::mem::take(&mut self.reposting);
        for (buffer, owner) in consumed.drain(..) {
            let open =
                owner.is_some_and(|slot| self.connections.at(slot).is_some_and(|c| c.is_alive()));
            if open {
                buffers.push(buffer);
                owners.push(owner);
            } else if self.goes_with_its_connection(owner) {
                self.slab.free(buffer);
            } else {
                // A peer that overdrew its credits took a receive of others: it goes back to them.
                buffers.push(buffer);
                owners.push(None);
            }
        }
        self.consumed = consumed;
        let posted = self.post_receives(&mut buffers, &mut lent);
        let taken = owners.len() - buffers.len();
        for slot in owners.drain(..taken).flatten() {
            if !self.keep_for_others(slot)
                && let Some(connection) = self.connections.at(slot)
            {
                connection.protocol.on_receives_posted(1);
            }
        }
        if let Err(error) = posted {
            tracing::error!(%error, "receives could not be posted again; connections are closed");
            self.give_up_receives(turn, &mut buffers, &mut owners, &error);
        }
        self.reposting = Reposting { buffers, owners, lent };
    }

    /// The device did not take these. Their connections have fewer receives now than they granted, so
    /// they end; those of others, who are not to blame, are tried again.
    fn give_up_receives(
        &mut self,
        turn: &Turn<'_>,
        buffers: &mut Vec<EagerSlot>,
        owners: &mut Vec<Option<u32>>,
        error: &VerbsError,
    ) {
        for (buffer, owner) in std::mem::take(buffers).into_iter().zip(std::mem::take(owners)) {
            let Some(slot) = owner else {
                buffers.push(buffer);
                owners.push(None);
                continue;
            };
            self.slab.free(buffer);
            self.goes_with_its_connection(owner);
            self.lose(turn, slot, super::teardown::Loss::Device(error.to_string()));
        }
    }

    /// Takes a consumed receive from those of a connection that has gone or is going. False: it has
    /// none left, so the receive belonged to others.
    fn goes_with_its_connection(&mut self, owner: Option<u32>) -> bool {
        let Some(connection) = owner.and_then(|slot| self.connections.at(slot)) else {
            let has = self.receives_orphaned > 0;
            self.receives_orphaned = self.receives_orphaned.saturating_sub(1);
            return has;
        };
        let has = connection.receives > 0;
        if connection.receives > RECEIVES_GUARANTEED {
            self.receives_lent = self.receives_lent.saturating_sub(1); // it was a lent one
        }
        connection.receives = connection.receives.saturating_sub(1);
        has
    }

    /// Posts `buffers` as receives in one chain. Those that the device did not take stay in it; `lent` is
    /// empty before and after.
    fn post_receives(
        &mut self,
        buffers: &mut Vec<EagerSlot>,
        lent: &mut Vec<SlotId>,
    ) -> Result<(), VerbsError> {
        if buffers.is_empty() {
            return Ok(());
        }
        let mut batch = self.srq.batch();
        let len = self.slab.slot_bytes();
        for buffer in buffers.iter() {
            // What can fail comes first: nothing is lent yet.
            self.registrar.eager_lkey(&self.slab, self.slab.chunk(buffer))?;
        }
        let mut added = Ok(());
        for buffer in buffers.drain(..) {
            let lkey = self.registrar.eager_lkey(&self.slab, self.slab.chunk(&buffer))?;
            let (id, sge) = self.slab.lend(buffer, len, lkey);
            lent.push(id);
            added = added.and_then(|()| batch.recv(WrId::Receive(id).encode(), &[sge]));
        }
        let posted = match added {
            Err(error) => Err((0, error)),
            Ok(()) => batch.post().map_err(|error| {
                let source = std::io::Error::from_raw_os_error(error.errno);
                (error.posted, VerbsError::System { operation: "posting receives", source })
            }),
        };
        self.counters.queues.receive_doorbells += 1;
        let count = posted.as_ref().map_or_else(|(count, _)| *count, |()| lent.len() as u32);
        self.receives_posted += count;
        for id in lent.drain(..).skip(count as usize) {
            buffers.extend(self.slab.reclaim(id));
        }
        posted.map_err(|(_, error)| error)
    }

    /// Gives a connection `count` receives: first those that a gone connection left in the SRQ,
    /// then new ones. Returns how many it got.
    pub(super) fn give_receives(&mut self, slot: u32, count: u32) -> Result<u32, VerbsError> {
        let adopted = count.min(self.receives_orphaned);
        let mut buffers = Vec::new();
        while (buffers.len() as u32) < count - adopted {
            let Some(buffer) = take_slot(&mut self.slab, self.offload.is_none()) else { break };
            buffers.push(buffer);
        }
        let new = buffers.len() as u32;
        if let Err(error) = self.post_receives(&mut buffers, &mut Vec::new()) {
            // Those that the device took are there for the next connection.
            self.receives_orphaned += new - buffers.len() as u32;
            buffers.into_iter().for_each(|buffer| self.slab.free(buffer));
            return Err(error);
        }
        self.receives_orphaned -= adopted;
        let given = adopted + new;
        if let Some(connection) = self.connections.at(slot) {
            connection.receives += given;
            connection.protocol.on_receives_posted(given);
        }
        Ok(given)
    }

    /// The peer is short of credits: lends it receives, if the core has some to lend.
    pub(super) fn lend_receives(&mut self, turn: &Turn<'_>, slot: u32, wanted: u32) {
        let Some(connection) = self.connections.at(slot) else { return };
        let (key, has) = (connection.key, connection.lent());
        let may =
            wanted.clamp(1, RECEIVES_LENT_STEP).min(self.capacity.lent_max.saturating_sub(has));
        let count = may.min(self.capacity.surplus_max - self.receives_lent);
        if count < may && self.capacity.surplus_max > 0 {
            self.shortage.wants(key, has);
        }
        if count == 0 {
            return;
        }
        match self.give_receives(slot, count) {
            Ok(given) => self.receives_lent += given,
            Err(error) => self.lose(turn, slot, super::teardown::Loss::Device(error.to_string())),
        }
    }

    /// A receive was consumed and posted again, and others are short: its connection does without it if it
    /// has more than its share.
    fn keep_for_others(&mut self, slot: u32) -> bool {
        let Some(connection) = self.connections.at(slot) else { return false };
        if !self.shortage.is_over(connection.lent()) {
            return false;
        }
        // That of a credit-only SEND must stand again: until it does the connection says nothing.
        let credits = connection.protocol.credits();
        if credits.standing <= credits.granted {
            return false;
        }
        connection.receives -= 1;
        self.receives_lent = self.receives_lent.saturating_sub(1);
        self.receives_orphaned += 1;
        self.counters.credits_returned += 1;
        true
    }

    /// A peer has given back credits: their receives stand, for whoever is short of them.
    pub(super) fn receives_returned(&mut self, slot: u32, count: u32) {
        let Some(connection) = self.connections.at(slot) else { return };
        let count = count.min(connection.lent()); // no more than it was lent is ever asked for
        connection.receives -= count;
        self.receives_lent = self.receives_lent.saturating_sub(count);
        self.receives_orphaned += count;
        self.counters.credits_returned += u64::from(count);
    }

    /// Lends what has become free to those that are short, and sees where more may come from.
    pub(super) fn relieve_shortage(&mut self, turn: &Turn<'_>) {
        if self.shortage.is_due(turn.now) {
            self.look_for_receives(turn.now);
        }
        // Each once: for one that could not be given all it has room for, the next turn is soon enough.
        for _ in 0..self.shortage.len() {
            if self.receives_lent >= self.capacity.surplus_max {
                break;
            }
            let Some(key) = self.shortage.first() else { break };
            let connection = self.connections.get(key).filter(|c| c.is_open());
            let wanted = connection.map_or(0, |connection| self.shortage.room(connection.lent()));
            self.shortage.drop_first();
            if wanted > 0 {
                self.lend_receives(turn, key.slot, wanted);
                self.mark_dirty(key.slot);
            }
        }
    }

    /// Finds what each borrower's share is, and asks those that use nothing to give back what they have.
    fn look_for_receives(&mut self, now: Time) {
        let connections = &mut self.connections;
        let borrowers = connections.iter().filter(|c| c.lent() > 0).count() as u32;
        let surplus = self.capacity.surplus_max;
        let mut short = self.shortage.look(now, surplus, borrowers, |key| {
            connections.get(key).filter(|c| c.is_open()).map(|c| c.lent())
        });
        // What was asked for and has not come yet is not asked for again of others.
        let asked: u32 = self.connections.iter().map(|c| c.protocol.recalling()).sum();
        short = short.saturating_sub(asked);
        for slot in self.connections.in_use() {
            if short == 0 {
                break;
            }
            let Some(connection) = self.connections.at(slot) else { continue };
            let idle = now.since(connection.protocol.heard()) >= IDLE;
            if !connection.is_open() || !idle {
                continue;
            }
            // What the peer was not told of yet can be had at once.
            let untold = connection.protocol.withdraw(connection.lent().min(short));
            let asked =
                connection.protocol.recall(now, (connection.lent() - untold).min(short - untold));
            short -= untold + asked;
            self.counters.credits_recalled += u64::from(asked);
            if asked > 0 {
                self.mark_dirty(slot);
            }
            self.receives_returned(slot, untold);
        }
    }

    /// A connection has gone: its receives stay in the SRQ for the next one.
    pub(super) fn take_receives_back(&mut self, receives: u32) {
        self.receives_lent -= receives.saturating_sub(RECEIVES_GUARANTEED).min(self.receives_lent);
        self.receives_orphaned += receives;
    }
}
