//! What connections have to say, as work requests: one chain for each, one doorbell.

use super::apart::BehindBinds;
use super::attention::Seen;
use super::capacity::{SEND_SIGNAL_EVERY, SEND_WRS_CONTROL};
use super::connection::{Connection, LeaseStage};
use super::drive::Turn;
use super::engine::Engine;
use super::passing::Passing;
use super::read_share::{ReadShare, ReadTurn};
use super::receives::take_slot;
use super::send_queue::{Holds, SendQueue};
use super::submission::ConnectionKey;
use super::teardown::Loss;
use super::wr_id::WrId;
use crate::failpoint::Point;
use crate::mem::{EagerSlab, Registrar, SlotId};
use crate::protocol::LeaseId;
use crate::verbs::{Device, PostError, Qp, SendBatch, SendFlags, Sge, VerbsError};

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
        let was_empty = connection.send_queue.is_empty();
        let grows = self.offload.is_none();
        let (slab, registrar, apart) = (&mut self.slab, &mut self.registrar, self.local_ops_alone);
        let shares = (&mut self.reads, apart);
        let Some(mut chain) = Chain::new(connection, slab, grows, registrar, shares) else {
            return 0;
        };
        let built = chain.build(turn);
        let posted = chain.post();
        match (built, posted) {
            (Ok(Stopped::NoBuffer), Ok(())) => self.starved.push(slot),
            (Ok(_), Ok(())) => {}
            (Err(error), _) => self.lose(turn, slot, Loss::Device(error.to_string())),
            (_, Err(error)) => {
                self.take_refused(slot, before, error.posted);
                self.lose(turn, slot, Loss::Device(error.to_string()));
            }
        }
        self.schedule_timer(slot);
        let Some(connection) = self.connections.at(slot) else { return 0 };
        let posted = before.saturating_sub(connection.send_queue.free());
        if posted > 0 {
            connection.moved.posted(turn.now, was_empty);
        }
        posted as usize
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

/// One connection's chain being built.
pub(super) struct Chain<'a, D: Device> {
    key: ConnectionKey,
    batch: <D::Qp as Qp>::Batch<'a>,
    pub(super) books: &'a mut SendQueue,
    slab: &'a mut EagerSlab,
    /// Whether the slab grows by itself when it has no buffer.
    slab_grows: bool,
    registrar: &'a mut Registrar<D>,
    protocol: &'a mut crate::protocol::Connection,
    pub(super) leases: &'a mut std::collections::HashMap<LeaseId, super::connection::Lease<D>>,
    pub(super) revoking: &'a mut std::collections::VecDeque<LeaseId>,
    transfers:
        &'a std::collections::HashMap<crate::protocol::TransferId, Vec<crate::mem::PayloadMut>>,
    share: &'a mut ReadShare,
    reads: &'a mut ReadTurn,
    read_at: &'a mut Seen,
    eager_bytes: usize,
    /// The last SEND: whether it is signaled depends on what follows.
    pub(super) held: Option<(SlotId, Sge)>,
    /// Whether binds and invalidations are posted by themselves.
    apart: bool,
    pub(super) behind_binds: &'a mut Option<BehindBinds>,
    pub(super) local_last: &'a mut bool,
    /// What is passed once it is posted.
    passing: Passing,
}

impl<'a, D: Device> Chain<'a, D> {
    /// `None`: its QP is being taken down.
    fn new(
        connection: &'a mut Connection<D>,
        slab: &'a mut EagerSlab,
        slab_grows: bool,
        registrar: &'a mut Registrar<D>,
        (share, apart): (&'a mut ReadShare, bool),
    ) -> Option<Self> {
        Some(Self {
            key: connection.key,
            batch: connection.qp.as_mut()?.batch(),
            books: &mut connection.send_queue,
            slab,
            slab_grows,
            registrar,
            protocol: &mut connection.protocol,
            leases: &mut connection.leases,
            revoking: &mut connection.revoking,
            transfers: &connection.transfers,
            share,
            reads: &mut connection.reads,
            read_at: &mut connection.read_at,
            eager_bytes: connection.eager_bytes as usize,
            held: None,
            apart,
            behind_binds: &mut connection.behind_binds,
            local_last: &mut connection.local_last,
            passing: Passing::default(),
        })
    }

    fn build(&mut self, turn: &Turn<'_>) -> Result<Stopped, VerbsError> {
        if self.apart {
            return self.build_apart(turn);
        }
        self.invalidations()?;
        let stopped = self.sends(turn)?;
        // However the flush stopped, something must come back from the device to go on with.
        self.release_held(true)?;
        self.reads(turn)?;
        Ok(stopped)
    }

    fn post(self) -> Result<(), PostError> {
        if self.batch.is_empty() {
            return Ok(());
        }
        self.batch.post()?;
        self.passing.posted();
        Ok(())
    }

    fn wr_id(&self, sequence: u32) -> u64 {
        let (slot, generation) = (self.key.slot as u16, self.key.generation as u16);
        WrId::SendQueue { slot, generation, sequence }.encode()
    }

    /// Slots for ordinary requests: those kept for control are not among them.
    fn room(&self) -> u32 {
        self.books.free().saturating_sub(SEND_WRS_CONTROL + u32::from(self.held.is_some()))
    }

    /// Closes the windows of leases that were released or have expired. The last is signaled.
    pub(super) fn invalidations(&mut self) -> Result<(), VerbsError> {
        while let Some(&id) = self.revoking.front() {
            let Some(lease) = self.leases.get(&id) else {
                self.revoking.pop_front();
                continue;
            };
            let count = lease.ranges.len() as u32;
            if self.room() < count {
                return Ok(());
            }
            self.revoking.pop_front();
            let end_of_batch = self.revoking.is_empty()
                || self.revoking.front().is_some_and(|next| {
                    let next = self.leases.get(next).map_or(0, |lease| lease.ranges.len() as u32);
                    self.room() - count < next
                });
            for index in 0..lease.ranges.len() {
                let last = index + 1 == lease.ranges.len();
                let rkey = crate::verbs::Mw::rkey(&lease.ranges[index].window);
                let sequence = self.books.push(Holds::Invalidate { lease: id, last });
                let flags =
                    if last && end_of_batch { SendFlags::SIGNALED } else { SendFlags::NONE };
                let wr_id = self.wr_id(sequence);
                self.batch.local_inv(wr_id, rkey, flags)?;
            }
        }
        Ok(())
    }

    /// SENDs as long as there is something to say, a credit, a slot and a buffer.
    pub(super) fn sends(&mut self, turn: &Turn<'_>) -> Result<Stopped, VerbsError> {
        while self.protocol.wants_transmit() {
            let room = self.room();
            if room == 0 {
                return Ok(Stopped::QueueFull);
            }
            let Some(mut buffer) = take_slot(self.slab, self.slab_grows) else {
                return Ok(Stopped::NoBuffer);
            };
            let space = &mut self.slab.bytes_mut(&mut buffer)[..self.eager_bytes];
            let Some(transmit) = self.protocol.poll_transmit(turn.now, space, room - 1) else {
                self.slab.free(buffer);
                // What is left waits for a credit, or needs more slots than are free: then the
                // completion of what was posted goes on, so the last SEND must be signaled.
                let more = self.protocol.wants_transmit();
                return Ok(if more { Stopped::QueueFull } else { Stopped::Done });
            };
            let waits = self.apart && !transmit.leases.is_empty();
            // One that waits for its binds is not in this chain, so the one before it is the last.
            self.release_held(waits)?;
            let chunk = self.slab.chunk(&buffer);
            let lkey = self.registrar.eager_lkey(self.slab, chunk)?;
            if !waits {
                self.binds(&transmit.leases, false)?;
            }
            #[cfg(feature = "failpoints")]
            self.passing.send(&self.slab.bytes(&buffer)[..transmit.len]);
            let (slot, sge) = self.slab.lend(buffer, transmit.len as u32, lkey);
            if waits {
                self.hold_behind_binds(slot, sge, transmit.leases);
                return Ok(Stopped::QueueFull);
            }
            self.held = Some((slot, sge));
        }
        Ok(Stopped::Done)
    }

    /// Opens the windows of the leases that the next SEND advertises, before it in the chain.
    /// `signaled`: the last one reports that all are.
    pub(super) fn binds(&mut self, leases: &[LeaseId], signaled: bool) -> Result<(), VerbsError> {
        self.mark_bound(leases);
        for (at, id) in leases.iter().enumerate() {
            let Some(lease) = self.leases.get_mut(id) else { continue };
            let count = lease.ranges.len();
            for (index, range) in lease.ranges.iter_mut().enumerate() {
                let last = at + 1 == leases.len() && index + 1 == count;
                let flags = if signaled && last { SendFlags::SIGNALED } else { SendFlags::NONE };
                let sequence = self.books.push(Holds::Bind);
                let wr_id = WrId::SendQueue {
                    slot: self.key.slot as u16,
                    generation: self.key.generation as u16,
                    sequence,
                };
                let region = self.registrar.mr(range.arena)?;
                self.batch.bind(wr_id.encode(), &mut range.window, region, range.sge, flags)?;
            }
        }
        Ok(())
    }

    /// From here on these leases end by invalidation alone.
    pub(super) fn mark_bound(&mut self, leases: &[LeaseId]) {
        for id in leases {
            if let Some(lease) = self.leases.get_mut(id)
                && lease.stage == LeaseStage::Reserved
            {
                lease.stage = LeaseStage::Bound;
            }
        }
    }

    /// Adds the SEND that was held back. It is signaled if it is the last of a flush that leaves
    /// nothing queued, or if enough before it were not.
    pub(super) fn release_held(&mut self, last: bool) -> Result<(), VerbsError> {
        let Some((slot, sge)) = self.held.take() else { return Ok(()) };
        let signaled = self.books.signal_due(SEND_SIGNAL_EVERY) || last;
        if signaled {
            self.books.signaled();
        }
        let sequence = self.books.push(Holds::Send(slot));
        let flags = if signaled { SendFlags::SIGNALED } else { SendFlags::NONE };
        let wr_id = self.wr_id(sequence);
        // The peer's core may sleep: a SEND is what it waits for.
        self.batch.send(wr_id, &[sge], flags.and(SendFlags::SOLICITED))
    }

    /// READs, as many as both devices' depths allow, so that the hardware never has to queue one, and no
    /// more than are this connection's share of what its core asks for.
    pub(super) fn reads(&mut self, turn: &Turn<'_>) -> Result<(), VerbsError> {
        let mut outstanding = self.reads.outstanding();
        while self.room() > 0
            && let Some(len) = self.protocol.next_read_len()
            && self.share.take(self.key, self.reads, len)
        {
            if std::mem::replace(&mut outstanding, self.reads.outstanding()) == 0 {
                *self.read_at = Seen::now(turn);
            }
            let Some(read) = self.protocol.poll_read() else { break };
            let destination = self
                .transfers
                .get(&read.transfer)
                .and_then(|pieces| pieces.get(read.piece as usize))
                .ok_or(VerbsError::State {
                    operation: "RDMA READ",
                    why: "its transfer has no destination",
                })?;
            let lkey = self.registrar.lkey(destination.arena())?;
            let sge = destination.sge(read.offset, read.len, lkey).ok_or(VerbsError::State {
                operation: "RDMA READ",
                why: "it would go beyond its destination",
            })?;
            let remote =
                crate::verbs::RemoteRange { addr: read.addr, rkey: crate::verbs::Rkey(read.rkey) };
            let sequence = self.books.push(Holds::Read(read.id, read.len));
            let wr_id = self.wr_id(sequence);
            self.passing.add(Point::ReadPosted);
            // Each is signaled: its completion lets the next chunk go.
            self.batch.read(wr_id, &[sge], remote, SendFlags::SIGNALED)?;
        }
        self.share.pass(self.reads);
        Ok(())
    }
}
