//! Binds and invalidations by themselves, for devices that carry out again what they retransmit.
//!
//! Where [`Limits::local_ops_alone`](crate::verbs::Limits::local_ops_alone) is set, a window is bound
//! or closed only while nothing else is outstanding on its QP, and nothing else is posted until that
//! has completed: no retransmission can then pass it. It costs the wait for the queue to run empty,
//! once for each message that advertises memory and once for what is released meanwhile.

use super::chain::{Behind, Chain};
use super::drive::Turn;
use super::flush::Stopped;
use crate::mem::SlotId;
use crate::protocol::LeaseId;
use crate::verbs::{Device, Sge, VerbsError};

/// A SEND that is ready, and whose windows are bound before it is posted.
pub(super) struct BehindBinds {
    pub(super) slot: SlotId,
    sge: Sge,
    leases: Vec<LeaseId>,
    /// Whether its binds were posted.
    posted: bool,
}

impl<D: Device> Chain<'_, D> {
    /// One flush of a QP whose local operations must be apart. Whenever something waits here, the
    /// send queue holds a signaled request whose completion flushes again.
    pub(super) fn build_apart(&mut self, turn: &Turn<'_>) -> Result<Stopped, VerbsError> {
        if self.books.has_local() {
            return Ok(Stopped::QueueFull);
        }
        if self.behind_binds.as_ref().is_some_and(|behind| behind.posted) {
            self.held = self.behind_binds.take().map(|behind| (behind.slot, behind.sge));
        }
        // Between two rounds of local operations there is always one of everything else: messages that
        // keep coming do not keep READs from being posted, nor releases small messages.
        let must_wait = self.has_local_to_post() && !std::mem::take(self.local_last);
        let mut stopped = Stopped::QueueFull;
        if !must_wait {
            if self.behind_binds.is_none() {
                stopped = self.sends(turn)?;
            }
            // Local operations that come later wait for an empty queue.
            self.release_held(Behind::Waiting)?;
            self.reads(turn)?;
        }
        if self.books.is_empty() && self.has_local_to_post() {
            self.post_local()?;
            *self.local_last = true;
        }
        Ok(stopped)
    }

    /// Keeps a SEND until its windows are bound. They count as bound at once: the peer will be told
    /// of them, so they must be closed before they can be bound for another.
    pub(super) fn hold_behind_binds(&mut self, slot: SlotId, sge: Sge, leases: Vec<LeaseId>) {
        self.mark_bound(&leases);
        *self.behind_binds = Some(BehindBinds { slot, sge, leases, posted: false });
    }

    /// Whether a window is to be bound or closed before anything else is said.
    fn has_local_to_post(&mut self) -> bool {
        while self.revoking.front().is_some_and(|id| !self.leases.contains_key(id)) {
            self.revoking.pop_front();
        }
        self.behind_binds.is_some() || !self.revoking.is_empty()
    }

    /// Binds first: a lease that ends while its SEND waits is closed after that SEND.
    fn post_local(&mut self) -> Result<(), VerbsError> {
        let Some(mut behind) = self.behind_binds.take() else { return self.invalidations() };
        let bound = self.binds(&behind.leases, true);
        behind.posted = true;
        *self.behind_binds = Some(behind);
        bound
    }
}
