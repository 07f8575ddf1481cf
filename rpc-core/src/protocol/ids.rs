use std::fmt;

use super::table::SLOT_BITS;
use crate::wire::CALL_FROM_ACCEPTING;

/// A call on one connection.
///
/// The top bit says that the accepting side began it; the low 16 bits are a slot of this side's table,
/// and the 47 between are a counter that never repeats in the life of a connection: finding a call is
/// an index and a compare.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId(pub(crate) u64);

impl CallId {
    /// The table key under the top bit.
    pub(crate) const fn key(self) -> u64 {
        self.0 & !CALL_FROM_ACCEPTING
    }

    /// A number below `calls_out_max` or `calls_in_max` that no other live call of the same initiator
    /// has on this connection: an index for whoever keeps something per call.
    pub const fn slot(self) -> usize {
        slot(self.0)
    }
}

impl fmt::Debug for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = if self.0 & CALL_FROM_ACCEPTING == 0 { "connecting" } else { "accepting" };
        write!(f, "CallId({side} {}/{})", self.key() >> SLOT_BITS, self.slot())
    }
}

/// The permission that covers the ranges of one outgoing message, until the peer's RELEASE.
///
/// Slot (16 bits), generation (32) and 16 bits that a peer cannot guess from ids it has seen, so a
/// RELEASE that was made up is told from one that is late.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LeaseId(pub(crate) u64);

impl LeaseId {
    /// The number on the wire, for payload descriptors.
    pub const fn as_u64(self) -> u64 {
        self.0
    }

    /// A number below `leases_max` that no other live lease of this connection has: an index for
    /// whoever keeps something per lease.
    pub const fn slot(self) -> usize {
        slot(self.0)
    }
}

impl fmt::Debug for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LeaseId({}/{})", (self.0 >> SLOT_BITS) as u32, self.slot())
    }
}

/// The READs that bring the pieces of one incoming message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TransferId(pub(crate) u64);

impl TransferId {
    /// A small number that no other live transfer of this connection has: an index for whoever keeps
    /// something per transfer.
    pub const fn slot(self) -> usize {
        slot(self.0)
    }
}

impl fmt::Debug for TransferId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TransferId({}/{})", self.0 >> SLOT_BITS, self.slot())
    }
}

/// One READ of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ReadId {
    pub(crate) transfer: TransferId,
    pub(crate) number: u32,
}

impl ReadId {
    /// The transfer it belongs to.
    pub const fn transfer(self) -> TransferId {
        self.transfer
    }

    /// Its place among the READs of its transfer, from 0.
    pub const fn number(self) -> u32 {
        self.number
    }
}

/// The id on the wire, without the initiator bit, of the `posted`-th call, which is in `slot`.
pub(crate) const fn wire_id(posted: u64, slot: usize) -> u64 {
    posted << SLOT_BITS | slot as u64
}

const fn slot(key: u64) -> usize {
    (key & ((1 << SLOT_BITS) - 1)) as usize
}
