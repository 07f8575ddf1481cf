use rpc_core::Runtime;

use crate::proto::{CoreStats, DeviceStats, StatsResponse};
use crate::stats;
use crate::store::Usage;

/// What must be the same after the work as before it, at one end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Levels {
    /// Payload memory in use, both shares, in bytes.
    pub(crate) memory: u64,
    /// Messages that the peer may read.
    pub(crate) leases: u64,
    /// Memory windows bound for them, by the device's own table.
    pub(crate) windows: u64,
    /// Receives granted to peers.
    pub(crate) credits: u64,
    /// Connections.
    pub(crate) connections: u64,
}

impl Levels {
    /// The levels that some statistics tell.
    pub(crate) fn of(stats: &StatsResponse) -> Self {
        let memory = stats.memory.unwrap_or_default();
        Self {
            memory: memory.inbound.saturating_add(memory.outbound),
            leases: sum(stats, |core| core.leases.into()),
            windows: sum(stats, |core| core.windows_bound.into())
                .saturating_add(of_devices(stats, |device| device.windows_bound.into())),
            credits: sum(stats, |core| core.credits_granted.into()),
            connections: sum(stats, |core| core.connections.into()),
        }
    }

    /// The levels of this process's own runtime.
    pub(crate) fn here(runtime: &Runtime) -> Self {
        Self::of(&stats::snapshot(runtime, Usage::default()))
    }
}

/// The statistics of both ends at one time.
pub(crate) struct Both {
    /// The server's.
    pub(crate) server: StatsResponse,
    /// This process's.
    pub(crate) client: StatsResponse,
}

/// What went one way between two times, by the devices' own counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    /// Bytes in SENDs.
    pub(crate) eager_bytes: u64,
    /// Bytes fetched by READ.
    pub(crate) read_bytes: u64,
    /// Values that went by READ: each is one piece in one memory window, for a key is too short to
    /// be a piece.
    pub(crate) values_by_read: u64,
}

impl Traffic {
    /// What went to the server between `before` and `after`.
    pub(crate) fn to_server(before: &Both, after: &Both) -> Self {
        Self {
            eager_bytes: grown(&before.server, &after.server, EAGER_BYTES_RECEIVED),
            read_bytes: grown(&before.server, &after.server, READ_BYTES),
            values_by_read: grown(&before.client, &after.client, BINDS),
        }
    }

    /// What went from the server between `before` and `after`.
    pub(crate) fn from_server(before: &Both, after: &Both) -> Self {
        Self {
            eager_bytes: grown(&before.server, &after.server, EAGER_BYTES_SENT),
            // Whatever the device, the end that fetches it knows.
            read_bytes: grown(&before.client, &after.client, READ_BYTES),
            values_by_read: grown(&before.server, &after.server, BINDS),
        }
    }

    /// Adds what went the same way at another time.
    pub(crate) fn add(&mut self, other: Self) {
        self.eager_bytes = self.eager_bytes.saturating_add(other.eager_bytes);
        self.read_bytes = self.read_bytes.saturating_add(other.read_bytes);
        self.values_by_read = self.values_by_read.saturating_add(other.values_by_read);
    }
}

/// The same number of a core's software device and of a device of libibverbs.
type OfEither = (fn(&CoreStats) -> u64, fn(&DeviceStats) -> u64);

const EAGER_BYTES_RECEIVED: OfEither =
    (|core| core.eager_bytes_received, |device| device.eager_bytes_received);
const EAGER_BYTES_SENT: OfEither = (|core| core.eager_bytes_sent, |device| device.eager_bytes_sent);
const READ_BYTES: OfEither = (|core| core.read_bytes, |device| device.read_bytes);
const BINDS: OfEither = (|core| core.binds, |device| device.binds);

/// By how much a number of all devices grew between two times.
fn grown(before: &StatsResponse, after: &StatsResponse, (of_core, of_device): OfEither) -> u64 {
    let all = |stats| sum(stats, of_core).saturating_add(of_devices(stats, of_device));
    all(after).saturating_sub(all(before))
}

fn of_devices(stats: &StatsResponse, of: fn(&DeviceStats) -> u64) -> u64 {
    stats.devices.iter().map(of).fold(0, u64::saturating_add)
}

/// A sum over all cores. The numbers are a server's: they may be anything, and must not overflow here.
fn sum(stats: &StatsResponse, of: fn(&CoreStats) -> u64) -> u64 {
    stats.cores.iter().map(of).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(read_bytes: u64, leases: u32) -> StatsResponse {
        let core = |core| CoreStats { core, read_bytes, leases, ..CoreStats::default() };
        StatsResponse { cores: vec![core(0), core(1)], ..StatsResponse::default() }
    }

    fn both(read_bytes: u64, binds: u64) -> Both {
        let core = |core| CoreStats { core, binds, ..CoreStats::default() };
        let client = StatsResponse { cores: vec![core(0), core(1)], ..StatsResponse::default() };
        Both { server: stats(read_bytes, 0), client }
    }

    #[test]
    fn levels_and_traffic_are_summed_over_cores() {
        assert_eq!(Levels::of(&stats(0, 3)).leases, 6);
        let traffic = Traffic::to_server(&both(10, 1), &both(15, 4));
        let expected = Traffic { read_bytes: 10, values_by_read: 6, ..Traffic::default() };
        assert_eq!(traffic, expected);
        let device = DeviceStats { binds: 4, windows_bound: 2, ..DeviceStats::default() };
        let mut after = both(0, 0);
        after.client.devices.push(device);
        assert_eq!(Traffic::to_server(&both(0, 0), &after).values_by_read, 4);
        assert_eq!(Levels::of(&after.client).windows, 2);
    }

    #[test]
    fn absurd_numbers_do_not_overflow() {
        let absurd = both(u64::MAX, u64::MAX);
        let mut traffic = Traffic::to_server(&both(0, 0), &absurd);
        assert_eq!(traffic.read_bytes, u64::MAX);
        traffic.add(traffic);
        assert_eq!(traffic.read_bytes, u64::MAX);
        assert_eq!(Traffic::from_server(&absurd, &both(0, 0)), Traffic::default());
    }
}
