use crate::mem::{EAGER_SLOTS_MAX, SlotId};

/// What a work request's `wr_id` says: its kind, and where its resources are kept.
///
/// A receive names its eager slot with the slot's generation. Everything else names its connection's
/// slot and generation and its place in that connection's send queue; so a completion that comes
/// after the connection's end is recognised as stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WrId {
    Receive(SlotId),
    SendQueue { slot: u16, generation: u16, sequence: u32 },
}

const KIND_SHIFT: u32 = 56;
const KIND_RECEIVE: u64 = 1;
const KIND_SEND_QUEUE: u64 = 2;

/// An eager slot's number is 24 bits.
const SLOT_MASK: u32 = EAGER_SLOTS_MAX - 1;
const _: () = assert!(EAGER_SLOTS_MAX == 1 << 24);

/// Sequence numbers of a send queue are 24 bits: far more than it can hold.
pub(super) const SEQUENCE_MASK: u32 = 0x00ff_ffff;

impl WrId {
    pub(super) fn encode(self) -> u64 {
        match self {
            Self::Receive(slot) => {
                KIND_RECEIVE << KIND_SHIFT
                    | u64::from(slot.slot & SLOT_MASK) << 32
                    | u64::from(slot.generation)
            }
            Self::SendQueue { slot, generation, sequence } => {
                KIND_SEND_QUEUE << KIND_SHIFT
                    | u64::from(slot) << 40
                    | u64::from(generation) << 24
                    | u64::from(sequence & SEQUENCE_MASK)
            }
        }
    }

    /// `None`: no request of this engine has such a number.
    pub(super) fn decode(bits: u64) -> Option<Self> {
        match bits >> KIND_SHIFT {
            KIND_RECEIVE => Some(Self::Receive(SlotId {
                slot: (bits >> 32) as u32 & SLOT_MASK,
                generation: bits as u32,
            })),
            KIND_SEND_QUEUE => Some(Self::SendQueue {
                slot: (bits >> 40) as u16,
                generation: (bits >> 24) as u16,
                sequence: bits as u32 & SEQUENCE_MASK,
            }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_survives_and_foreign_numbers_are_refused() {
        let all = WrId::SendQueue { slot: u16::MAX, generation: 0x1234, sequence: SEQUENCE_MASK };
        assert_eq!(WrId::decode(all.encode()), Some(all));
        let slot = WrId::Receive(SlotId { slot: SLOT_MASK, generation: u32::MAX });
        assert_eq!(WrId::decode(slot.encode()), Some(slot));
        assert_eq!(WrId::decode(0), None);
        assert_eq!(WrId::decode(u64::MAX), None);
    }
}
