use rpc_core::Runtime;

use crate::kv::{CoreStats, StatsResponse};
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
            windows: sum(stats, |core| core.windows_bound.into()),
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
            eager_bytes: grown(&before.server, &after.server, |core| core.eager_bytes_received),
            read_bytes: grown(&before.server, &after.server, |core| core.read_bytes),
            values_by_read: grown(&before.client, &after.client, |core| core.binds),
        }
    }

    /// What went from the server between `before` and `after`.
    pub(crate) fn from_server(before: &Both, after: &Both) -> Self {
        let grown = |of| grown(&before.server, &after.server, of);
        Self {
            eager_bytes: grown(|core| core.eager_bytes_sent),
            read_bytes: grown(|core| core.read_bytes_served),
            values_by_read: grown(|core| core.binds),
        }
    }

    /// Adds what went the same way at another time.
    pub(crate) fn add(&mut self, other: Self) {
        self.eager_bytes = self.eager_bytes.saturating_add(other.eager_bytes);
        self.read_bytes = self.read_bytes.saturating_add(other.read_bytes);
        self.values_by_read = self.values_by_read.saturating_add(other.values_by_read);
    }
}

fn grown(before: &StatsResponse, after: &StatsResponse, of: fn(&CoreStats) -> u64) -> u64 {
    sum(after, of).saturating_sub(sum(before, of))
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
