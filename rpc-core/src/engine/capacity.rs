//! The size of every queue and pool of an engine: each a sum with a reason for each term.
//!
//! `docs/capacity.md` explains them to people; [`Capacity::for_limits`] is where they are decided.

use std::time::Duration;

use crate::verbs::Limits;
use crate::wire::PIECES_MAX;

/// Calls that may wait in one core's mailbox. A full mailbox is waited out by the submitter; this
/// many fill some milliseconds of a busy core.
pub(crate) const SUBMISSIONS_MAX: usize = 4096;

/// Completions handled in one turn: enough to amortise a turn, few enough to bound it.
pub(crate) const COMPLETIONS_PER_TURN: usize = 64;
/// Submissions taken in one turn, for the same reason.
pub(crate) const SUBMISSIONS_PER_TURN: usize = 64;
/// Tasks run in one turn, for the same reason.
pub(crate) const TASKS_PER_TURN: usize = 32;
/// Calls begun, and calls answered, before what they have to say is sent, though the turn goes on. One
/// SEND could carry all of a turn, but then the two ends would work in turns: one waits for what the
/// other still collects. Fewer would pay for a SEND and its doorbell too often.
pub(crate) const CALLS_PER_FLUSH: usize = 16;
/// Time that the tasks of one turn may take before the device is looked at again.
pub(crate) const TASKS_PER_TURN_TIME: Duration = Duration::from_micros(50);

/// Bytes of an eager buffer: a page of 8 KiB, the headers of its SEND and frame, a key and
/// metadata of usual size beside it.
pub(crate) const EAGER_BYTES: u32 = 9216;
/// Eager buffers mapped and registered at a time: half a MiB and a little more.
pub(crate) const EAGER_CHUNK_SLOTS: u32 = 64;
/// With fewer free slots than this the next chunk is asked for, where mapping and registering one may
/// block: half a chunk covers what a core uses until it comes.
pub(crate) const EAGER_LOW_SLOTS: u32 = EAGER_CHUNK_SLOTS / 2;
/// Bytes of a frame's own fields beside metadata and message, at most: SEND header (32), frame
/// header (16), request fields with method name (64 + 255), padding (8).
pub(crate) const EAGER_OVERHEAD_BYTES: u32 = 32 + 16 + 64 + 256 + 8;

/// Connections of one core at most.
const CONNECTIONS_MAX: u32 = 1024;
/// Receives that belong to a connection for its life: one ordinary credit, one credit-only slot.
pub(crate) const RECEIVES_GUARANTEED: u32 = 2;
/// Receives lent to one connection at most, beside its guaranteed ones.
const RECEIVES_LENT_MAX: u32 = 62;
/// Receives lent at a time: half of what a busy peer needs to keep one turn's flush going.
pub(crate) const RECEIVES_LENT_STEP: u32 = 8;
/// Receives that a core may lend to all its connections together: what 32 busy ones need.
const RECEIVES_SURPLUS_MAX: u32 = 2048;

/// Work requests on one send queue: SENDs that fill a window (16), READs at the usual depth (16),
/// binds of one message (16), invalidations (13), three kept for control.
const SEND_WRS: u32 = 16 + 16 + 16 + 13 + SEND_WRS_CONTROL;
/// Send-queue slots kept for control: a credit-only SEND, an ERROR or GOAWAY, the drain marker.
pub(crate) const SEND_WRS_CONTROL: u32 = 3;
/// SENDs of up to so many bytes are posted inline: a small message with its method's name and headers. The
/// device needs no second look at memory for them, and their buffers are free once they are posted. More
/// would make each entry of every send queue longer.
pub(crate) const INLINE_BYTES_MAX: u32 = 256;
/// Every this many SENDs one is signaled, so at least four times per full queue.
pub(crate) const SEND_SIGNAL_EVERY: u32 = 16;
/// READs in flight on one connection at most, whatever the devices could do.
pub(crate) const READS_MAX: u32 = 16;

/// Bytes that a core has asked for by READ at most: what 400 Gbit/s bring in a third of a millisecond, many
/// times the round trip of a fast network, and what eight connections at their own bound want.
pub(crate) const READ_BYTES_MAX: u64 = 16 << 20;

/// Windows of an engine at most: 64 ranges for each of 64 connections busy with large messages.
pub(crate) const WINDOWS_MAX: u32 = 4096;
/// Windows that are allocated ahead where allocating one may block: one message of the most pieces
/// and a few small ones.
pub(crate) const WINDOWS_AHEAD: u32 = 32;
/// Windows allocated at a time there.
pub(crate) const WINDOWS_STEP: u32 = 64;

/// Eager buffers for sending: what the send queues of 32 busy connections can hold at once.
const SEND_SLOTS_MAX: u32 = 32 * SEND_WRS;

/// Calls of one connection in progress at most, each way.
pub(crate) const CALLS_MAX: u32 = 4096;
/// Leases of one connection at most.
pub(crate) const LEASES_MAX: u32 = 256;
/// The part of the memory budget, as a divisor, that one connection's unreleased answers may take: an
/// eighth of the outbound share, so that it takes eight peers that release nothing to use it up.
pub(crate) const ANSWERS_DIVISOR: u64 = 16;
/// Methods that one connection may intern.
pub(crate) const METHODS_MAX: u32 = 4096;

/// What the largest message needs of a send queue: a bind for each of its pieces, its SEND, and what is kept for
/// control. So much stays free beside requests for which no completion comes.
pub(crate) const MESSAGE_WRS_MAX: u32 = PIECES_MAX as u32 + 1 + SEND_WRS_CONTROL;

/// The sizes of one engine on one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Capacity {
    pub(crate) connections_max: u32,
    pub(crate) send_wrs: u32,
    pub(crate) srq_wrs: u32,
    pub(crate) cqe: u32,
    /// Receives lent to all connections together at most.
    pub(crate) surplus_max: u32,
    /// Receives lent to one connection at most.
    pub(crate) lent_max: u32,
    pub(crate) slots_max: u32,
}

/// A device too small for even one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the device is too small: its completion queues hold {cqe_max} entries and its shared receive \
     queues {srq_wr_max}, and one connection needs {cqe_needed} and {srq_needed}"
)]
pub(crate) struct TooSmall {
    cqe_max: u32,
    srq_wr_max: u32,
    cqe_needed: u32,
    srq_needed: u32,
}

impl Capacity {
    /// The largest engine that the device's limits allow, up to this crate's own.
    ///
    /// The CQ holds every request that can be outstanding on it, so it cannot overrun: all send
    /// queues full, and every receive of the SRQ consumed.
    pub(crate) fn for_limits(limits: &Limits) -> Result<Self, TooSmall> {
        let send_wrs = SEND_WRS.min(limits.qp_wr_max);
        let cqe_needed = send_wrs + RECEIVES_GUARANTEED;
        let too_small = TooSmall {
            cqe_max: limits.cqe_max,
            srq_wr_max: limits.srq_wr_max,
            cqe_needed,
            srq_needed: RECEIVES_GUARANTEED,
        };
        if send_wrs <= 2 * SEND_WRS_CONTROL
            || limits.cqe_max < cqe_needed
            || limits.srq_wr_max < RECEIVES_GUARANTEED
        {
            return Err(too_small);
        }
        let connections_beside = |surplus: u32| {
            CONNECTIONS_MAX
                .min((limits.cqe_max - surplus) / cqe_needed)
                .min((limits.srq_wr_max - surplus) / RECEIVES_GUARANTEED)
        };
        // A small device lends from an eighth of its entries, and a tiny one lends nothing.
        let mut surplus_max =
            RECEIVES_SURPLUS_MAX.min(limits.srq_wr_max / 2).min(limits.cqe_max / 8);
        if connections_beside(surplus_max) == 0 {
            surplus_max = 0;
        }
        let connections_max = connections_beside(surplus_max);
        let guaranteed = connections_max * RECEIVES_GUARANTEED;
        let srq_wrs = guaranteed + surplus_max;
        Ok(Self {
            connections_max,
            send_wrs,
            srq_wrs,
            cqe: connections_max * send_wrs + srq_wrs,
            surplus_max,
            lent_max: RECEIVES_LENT_MAX,
            slots_max: srq_wrs + SEND_SLOTS_MAX,
        })
    }
}

/// How many receives may be lent, beside those that are a connection's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lending {
    /// To one connection.
    pub(crate) each_max: u32,
    /// By one core to all of its connections.
    pub(crate) core_max: u32,
}

impl Lending {
    /// As many as there is reason to.
    pub(crate) const USUAL: Self =
        Self { each_max: RECEIVES_LENT_MAX, core_max: RECEIVES_SURPLUS_MAX };
}

impl Capacity {
    /// Lends no more than this; none leaves connections those that are their own.
    pub(crate) fn lending(mut self, lending: Lending) -> Self {
        self.lent_max = self.lent_max.min(lending.each_max);
        self.surplus_max = self.surplus_max.min(lending.core_max);
        self
    }
}

#[cfg(test)]
mod tests;
