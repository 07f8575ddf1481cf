use std::ops::Range;
use std::time::Duration;

/// The choices of a simulation, which follow from its seed: SplitMix64.
///
/// The nodes' own random numbers come from another stream, so that a choice more or less here does not
/// change theirs.
#[derive(Clone, Debug)]
pub(super) struct Dice(u64);

impl Dice {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub(super) const fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// True so many times in a million.
    pub(super) const fn chance(&mut self, per_million: u32) -> bool {
        self.below(1_000_000) < per_million as u64
    }

    /// A span of the range; its start if it is empty.
    pub(super) fn span(&mut self, range: &Range<Duration>) -> Duration {
        let width = range.end.saturating_sub(range.start).as_nanos() as u64;
        if width == 0 { range.start } else { range.start + Duration::from_nanos(self.below(width)) }
    }

    /// The time to the next of events that come once in `mean`, on average.
    pub(super) fn until_next(&mut self, mean: Duration) -> Duration {
        self.span(&(Duration::ZERO..2 * mean))
    }
}
