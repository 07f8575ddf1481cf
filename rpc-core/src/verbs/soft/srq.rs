use std::collections::VecDeque;
use std::sync::Arc;

use super::device::Shared;
use super::failing::Verb;
use super::rule::{Rule, Rules};
use super::sge::SgeList;
use super::table::Id;
use crate::verbs::{PostError, RecvBatch, Sge, Srq, SrqInit, VerbsError};

/// ENOMEM: the queue is full.
pub(super) const ERRNO_FULL: i32 = 12;
/// EINVAL: the state or the request is wrong.
pub(super) const ERRNO_INVALID: i32 = 22;

/// A posted receive.
#[derive(Clone, Copy)]
pub(super) struct RecvWqe {
    pub(super) wr_id: u64,
    pub(super) sges: SgeList,
}

/// A shared receive queue in the device's tables.
pub(super) struct SrqState {
    pub(super) pd: Id,
    queue: VecDeque<RecvWqe>,
    wr_max: u32,
    /// Fires when fewer than this many receives are posted; zero: not armed.
    limit: u32,
    /// QPs made with it.
    pub(super) users: u32,
    /// Draws which receive is next, xorshift; never zero.
    draw: u64,
}

/// With several QPs, the next receive is any of the oldest so many. Hardware keeps no order between
/// QPs either; who relies on one finds out here.
const UNORDERED: usize = 4;

impl SrqState {
    pub(super) fn new(pd: Id, init: SrqInit, seed: u64) -> Self {
        let queue = VecDeque::new();
        Self { pd, queue, wr_max: init.wr_max, limit: 0, users: 0, draw: seed | 1 }
    }

    /// Which receive is next: the oldest, or one near it if QPs share the queue.
    fn next_index(&mut self) -> usize {
        if self.users < 2 {
            return 0;
        }
        self.draw ^= self.draw << 13;
        self.draw ^= self.draw >> 7;
        self.draw ^= self.draw << 17;
        self.draw as usize % UNORDERED.min(self.queue.len().max(1))
    }

    /// The next receive, and whether taking it fired the limit.
    pub(super) fn pop(&mut self, rules: Rules) -> Option<(RecvWqe, bool)> {
        let index = self.next_index();
        let wqe = self.queue.swap_remove_front(index)?;
        let fired = (self.queue.len() as u64) < u64::from(self.limit);
        if fired && rules.hold(Rule::SrqLimitOnce, false) {
            return Some((wqe, true));
        }
        if fired {
            self.limit = 0;
        }
        Some((wqe, fired))
    }

    pub(super) fn len(&self) -> u32 {
        self.queue.len() as u32
    }
}

/// A shared receive queue of a software device.
pub struct SoftSrq {
    shared: Arc<Shared>,
    id: Id,
    sge_max: u32,
    wr_max: u32,
    staged: Vec<RecvWqe>,
}

/// The name of a [`SoftSrq`].
#[derive(Clone)]
pub struct SoftSrqRef {
    pub(super) guid: u64,
    pub(super) id: Id,
}

impl SoftSrq {
    pub(super) const fn new(shared: Arc<Shared>, id: Id, init: SrqInit) -> Self {
        Self { shared, id, sge_max: init.sge_max, wr_max: init.wr_max, staged: Vec::new() }
    }

    pub(super) fn name(&self) -> SoftSrqRef {
        SoftSrqRef { guid: self.shared.guid, id: self.id }
    }
}

impl Srq for SoftSrq {
    type Batch<'a> = SoftRecvBatch<'a>;

    fn batch(&mut self) -> SoftRecvBatch<'_> {
        self.staged.clear();
        SoftRecvBatch { srq: self }
    }

    fn arm_limit(&mut self, limit: u32) -> Result<(), VerbsError> {
        if limit > self.wr_max {
            return Err(VerbsError::Limit { what: "the SRQ's limit", max: self.wr_max.into() });
        }
        let mut state = self.shared.lock();
        if let Some(srq) = state.core.env.srqs.get_mut(self.id) {
            srq.limit = limit;
        }
        Ok(())
    }
}

impl Drop for SoftSrq {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        let env = &mut state.core.env;
        let unused = env.srqs.get(self.id).is_none_or(|srq| srq.users == 0);
        if !env.rules.hold(Rule::DestroyOrder, unused) {
            super::device::refuse_destroy("shared receive queue", "queue pairs still use it");
        } else if let Some(srq) = env.srqs.remove(self.id) {
            env.release_pd(srq.pd);
        }
    }
}

/// A chain of receives for a [`SoftSrq`].
pub struct SoftRecvBatch<'a> {
    srq: &'a mut SoftSrq,
}

impl RecvBatch for SoftRecvBatch<'_> {
    fn recv(&mut self, wr_id: u64, sges: &[Sge]) -> Result<(), VerbsError> {
        let sges = SgeList::new(sges, self.srq.sge_max)?;
        if self.srq.staged.len() >= self.srq.wr_max as usize {
            return Err(VerbsError::Limit {
                what: "a chain of receives",
                max: self.srq.wr_max.into(),
            });
        }
        self.srq.staged.push(RecvWqe { wr_id, sges });
        Ok(())
    }

    fn post(self) -> Result<(), PostError> {
        let srq = self.srq;
        let mut state = srq.shared.lock();
        let env = &mut state.core.env;
        let Some(queue) = env.srqs.get_mut(srq.id) else {
            return Err(PostError { posted: 0, errno: ERRNO_INVALID });
        };
        let room = queue.wr_max.saturating_sub(queue.len());
        let asked = srq.staged.len() as u32;
        let fits = if env.rules.hold(Rule::QueueFull, asked <= room) { asked } else { room };
        let posted = srq.shared.failing.taken(Verb::PostRecv, fits as usize) as u32;
        queue.queue.extend(srq.staged.drain(..posted as usize));
        if srq.staged.is_empty() { Ok(()) } else { Err(PostError { posted, errno: ERRNO_FULL }) }
    }
}
