//! What the device that a test runs on has counted, and has in its tables.

use rpc_core::verbs::{DeviceCounters, DeviceUsage};
use rpc_core::{Runtime, RuntimeStats};

use crate::Place;

/// What a runtime's device did so far, by its own counts: that of the first core, as tests of one core
/// use it, or the one that all cores share.
pub fn counters(runtime: &Runtime) -> DeviceCounters {
    let stats = runtime.stats();
    if Place::here().is_soft() {
        return stats.cores[0].device;
    }
    // It is opened when it is first needed.
    stats.devices.first().map(|of| of.device).unwrap_or_default()
}

/// What is in the tables of a runtime's device.
pub fn usage(runtime: &Runtime) -> DeviceUsage {
    usage_of(&runtime.stats())
}

/// The same of a runtime's numbers.
///
/// libibverbs counts no receives, so there the first core's own count of them stands in.
pub fn usage_of(stats: &RuntimeStats) -> DeviceUsage {
    if Place::here().is_soft() {
        return stats.cores[0].usage;
    }
    let mut usage = stats.devices.first().map(|of| of.usage).unwrap_or_default();
    usage.srq_wrs = stats.cores[0].receives_posted;
    usage
}

/// Whether a peer reads payloads of this runtime, or has begun to since `served` bytes were. What a device
/// of libibverbs serves it does not count: there, whether any may be read.
pub fn is_read_from(runtime: &Runtime, served: u64) -> bool {
    if Place::here().is_soft() {
        return counters(runtime).read_bytes_served > served;
    }
    runtime.stats().cores[0].leases > 0
}
