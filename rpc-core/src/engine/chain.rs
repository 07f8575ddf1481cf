//! One connection's requests as one chain.

use rustc_hash::FxHashMap;

use super::apart::BehindBinds;
use super::attention::Seen;
use super::capacity::SEND_WRS_CONTROL;
use super::connection::{Connection, LeaseStage};
use super::drive::Turn;
use super::flush::Stopped;
use super::passing::Passing;
use super::read_share::{ReadShare, ReadTurn};
use super::receives::take_slot;
use super::send_queue::{Holds, SendQueue};
use super::submission::ConnectionKey;
use super::wr_id::WrId;
use crate::failpoint::Point;
use crate::mem::{EagerSlab, Registrar, SlotId};
use crate::protocol::LeaseId;
use crate::verbs::{Device, PostError, Qp, SendBatch, SendFlags, Sge, VerbsError};

/// What stands behind a SEND in its chain.
#[derive(Clone, Copy)]
pub(super) enum Behind {
    /// Another SEND.
    More,
    /// Nothing, and all is said.
    Nothing,
    /// Something that waits for its completion.
    Waiting,
}

/// How a device wants its requests.
pub(super) struct Posting<'a> {
    /// Binds and invalidations by themselves.
    pub(super) apart: bool,
    pub(super) inline_bytes_max: u32,
    /// For buffers of inline SENDs: kept between chains for its memory.
    pub(super) copied: &'a mut Vec<SlotId>,
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
    pub(super) leases: &'a mut FxHashMap<LeaseId, super::connection::Lease<D>>,
    pub(super) revoking: &'a mut std::collections::VecDeque<LeaseId>,
    transfers: &'a FxHashMap<crate::protocol::TransferId, Vec<crate::mem::PayloadMut>>,
    share: &'a mut ReadShare,
    reads: &'a mut ReadTurn,
    read_at: &'a mut Seen,
    eager_bytes: usize,
    inline_bytes_max: u32,
    /// Buffers of inline SENDs, free when the chain is posted.
    copied: &'a mut Vec<SlotId>,
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
    pub(super) fn new(
        connection: &'a mut Connection<D>,
        slab: &'a mut EagerSlab,
        slab_grows: bool,
        registrar: &'a mut Registrar<D>,
        share: &'a mut ReadShare,
        posting: Posting<'a>,
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
            inline_bytes_max: posting.inline_bytes_max,
            copied: posting.copied,
            held: None,
            apart: posting.apart,
            behind_binds: &mut connection.behind_binds,
            local_last: &mut connection.local_last,
            passing: Passing::default(),
        })
    }

    pub(super) fn build(&mut self, turn: &Turn<'_>) -> Result<Stopped, VerbsError> {
        if self.apart {
            return self.build_apart(turn);
        }
        self.invalidations()?;
        let stopped = self.sends(turn)?;
        // Unless all is said, something must come back from the device to go on with; and whoever closes
        // waits for what it said to arrive.
        let quiet = stopped == Stopped::Done && self.protocol.is_open();
        self.release_held(if quiet { Behind::Nothing } else { Behind::Waiting })?;
        self.reads(turn)?;
        Ok(stopped)
    }

    /// Whether buffers come back when it is posted.
    pub(super) fn copies(&self) -> bool {
        !self.copied.is_empty()
    }

    pub(super) fn post(self) -> Result<(), PostError> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let posted = self.batch.post();
        // The device has copied them, or will never look at them.
        for id in self.copied.drain(..) {
            if let Some(buffer) = self.slab.reclaim(id) {
                self.slab.free(buffer);
            }
        }
        posted?;
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
                let holds = Holds::Invalidate { lease: id, last };
                let flags =
                    if last && end_of_batch { SendFlags::SIGNALED } else { SendFlags::NONE };
                let sequence = self.books.push(holds, flags);
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
            self.release_held(if waits { Behind::Waiting } else { Behind::More })?;
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
                let sequence = self.books.push(Holds::Bind, flags);
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

    /// Adds the SEND that was held back. It is signaled if enough before it were not, or if its completion is
    /// needed: to go on, or for its buffer where no other will give that back.
    pub(super) fn release_held(&mut self, behind: Behind) -> Result<(), VerbsError> {
        let Some((slot, sge)) = self.held.take() else { return Ok(()) };
        let inline = sge.len() <= self.inline_bytes_max;
        let needed = match behind {
            Behind::More => false,
            Behind::Nothing => !inline || self.books.holds_untold(),
            Behind::Waiting => true,
        };
        let signaled = self.books.signal_due() || needed;
        let mut flags = if signaled { SendFlags::SIGNALED } else { SendFlags::NONE };
        let holds = if inline {
            flags = flags.and(SendFlags::INLINE);
            self.copied.push(slot);
            Holds::Inline
        } else {
            Holds::Send(slot)
        };
        let sequence = self.books.push(holds, flags);
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
            let sequence = self.books.push(Holds::Read(read.id, read.len), SendFlags::SIGNALED);
            let wr_id = self.wr_id(sequence);
            self.passing.add(Point::ReadPosted);
            // Each is signaled: its completion lets the next chunk go.
            self.batch.read(wr_id, &[sge], remote, SendFlags::SIGNALED)?;
        }
        self.share.pass(self.reads);
        Ok(())
    }
}
