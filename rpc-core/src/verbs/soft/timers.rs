use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use super::table::Id;
use crate::Time;

/// The RNR timer of each 5-bit code, in units of 10 µs (InfiniBand Architecture, table 45).
const RNR_DELAYS: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

/// How long an RNR NAK with this code asks to wait.
pub(super) const fn rnr_delay(code: u8) -> Duration {
    Duration::from_micros(RNR_DELAYS[(code & 31) as usize] as u64 * 10)
}

/// The timers of all QPs.
///
/// A QP's own deadline moves with every acknowledgement; here it has an entry that is never later,
/// and one that comes up too early is put back. So an acknowledgement costs no heap operation.
#[derive(Default)]
pub(super) struct Timers {
    heap: BinaryHeap<Reverse<(Time, Id)>>,
}

impl Timers {
    /// Adds an entry.
    pub(super) fn push(&mut self, at: Time, qp: Id) {
        self.heap.push(Reverse((at, qp)));
    }

    /// The earliest entry.
    pub(super) fn first(&self) -> Option<(Time, Id)> {
        self.heap.peek().map(|Reverse(entry)| *entry)
    }

    /// Takes the earliest entry.
    pub(super) fn pop(&mut self) {
        self.heap.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rnr_codes_are_those_of_the_specification() {
        assert_eq!(rnr_delay(0), Duration::from_micros(655_360));
        assert_eq!(rnr_delay(1), Duration::from_micros(10));
        assert_eq!(rnr_delay(12), Duration::from_micros(640));
        assert_eq!(rnr_delay(31), Duration::from_micros(491_520));
        assert_eq!(rnr_delay(32 + 1), rnr_delay(1));
    }
}
