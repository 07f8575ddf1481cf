use crate::engine::QueueCounters;
use crate::mem::MemoryUsage;
use crate::verbs::{DeviceCounters, DeviceUsage};

/// What a runtime has done so far, and what it holds now.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RuntimeStats {
    /// One entry for each core.
    pub cores: Vec<CoreStats>,
    /// One entry for each device of libibverbs in use; all cores share it.
    pub devices: Vec<DeviceStats>,
    /// Payload memory.
    pub memory: MemoryUsage,
}

/// A device of libibverbs, as this process uses it.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct DeviceStats {
    /// Its name, as `ibv_devices` lists it.
    pub name: String,
    /// What this process posted and received.
    pub device: DeviceCounters,
    /// This process's objects.
    pub usage: DeviceUsage,
    /// Objects that the system refused to destroy; each was logged.
    pub leaks: u64,
}

/// One core.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct CoreStats {
    /// Calls that this side made.
    pub calls_made: u64,
    /// Calls that handlers here began.
    pub calls_served: u64,
    /// Calls and connections that ended in an error.
    pub errors: u64,
    /// Polls of a handler or task that kept the core busy for more than 10 ms.
    pub stalls: u64,
    /// Completions that were found by the safety timer instead of a notification; each is a bug of
    /// the device or of this crate.
    pub lost_wakeups: u64,
    /// Connections alive.
    pub connections: u32,
    /// Receives posted.
    pub receives_posted: u32,
    /// Receives that peers may use now: never more than are posted.
    pub credits_granted: u32,
    /// Credits that peers were asked to give back, as others were short of them.
    pub credits_recalled: u64,
    /// Credits that came back for others: given back, or not renewed to one that had more than its share.
    pub credits_returned: u64,
    /// Messages whose payloads peers may read now.
    pub leases: u32,
    /// Eager buffers that SENDs hold: those of which the device has not told yet that it is done with them.
    /// None, once connections have been at rest for a moment.
    pub send_buffers: u32,
    /// Times the core gave way to others while it looked for work, each a system call: only where a device's
    /// work waits for this machine's CPUs, as soft-RoCE's does.
    pub yields: u64,
    /// What it asked of its queues, and took from them.
    pub queues: QueueCounters,
    /// What the core's software device counted by itself.
    pub device: DeviceCounters,
    /// That device's own tables.
    pub usage: DeviceUsage,
}
