use std::fmt;
use std::hash::{Hash, Hasher};
use std::time::Duration;

/// What happened in a run, as a number: two runs of one seed have the same.
///
/// It holds times, nodes and amounts, and no address, descriptor or number that the process hands out.
pub(super) struct Trace {
    hash: Fnv,
    steps: u64,
    shown: bool,
}

/// Prints every step to standard error when it is set.
const SHOW: &str = "SIM_TRACE";

impl Trace {
    pub(super) fn new() -> Self {
        let shown = std::env::var_os(SHOW).is_some();
        Self { hash: Fnv(0xcbf2_9ce4_8422_2325), steps: 0, shown }
    }

    /// Adds a step.
    pub(super) fn add(&mut self, now: Duration, what: &'static str, node: usize, amount: usize) {
        self.steps += 1;
        (now, what, node, amount).hash(&mut self.hash);
        if self.shown {
            eprintln!("{now:>14?} {what} {node} {amount}");
        }
    }

    pub(super) fn sum(&self) -> TraceSum {
        TraceSum { steps: self.steps, hash: self.hash.0 }
    }
}

/// What came of a run: see [`Sim::trace`](super::Sim::trace).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceSum {
    steps: u64,
    hash: u64,
}

impl TraceSum {
    /// Steps of the run: turns of nodes, arrivals and faults.
    pub fn steps(&self) -> u64 {
        self.steps
    }
}

impl fmt::Debug for TraceSum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} steps, {:016x}", self.steps, self.hash)
    }
}

/// FNV-1a: the same in every process, unlike the standard library's hasher.
struct Fnv(u64);

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
