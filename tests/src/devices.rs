//! What the device that a test runs on has counted, and has in its tables.

use rpc_core::verbs::{DeviceCounters, DeviceUsage};
use rpc_core::{Runtime, RuntimeStats};

/// What a runtime's device did so far, by its own counts: that of the first core, as tests of one core
/// use it.
pub fn counters(runtime: &Runtime) -> DeviceCounters {
    runtime.stats().cores[0].device
}

/// What is in the tables of a runtime's device.
pub fn usage(runtime: &Runtime) -> DeviceUsage {
    usage_of(&runtime.stats())
}

/// The same of a runtime's numbers.
pub fn usage_of(stats: &RuntimeStats) -> DeviceUsage {
    stats.cores[0].usage
}
