/// What a core asked of its send, receive and completion queues, and took from them, whatever its devices.
///
/// Divided by the calls of the same time they are what a call costs a NIC: `docs/performance.md` says
/// what each stands for there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueCounters {
    /// Work requests posted to send queues: SENDs, READs, binds and invalidations.
    pub requests: u64,
    /// Chains in which they were posted: each rings a doorbell once, which soft-RoCE answers with a system
    /// call.
    pub send_doorbells: u64,
    /// Chains of receives: each rings that of the shared receive queue.
    pub receive_doorbells: u64,
    /// Completions taken, of requests and of receives.
    pub completions: u64,
    /// Times a notification of the next completion was asked for, before a sleep.
    pub arms: u64,
}

impl QueueCounters {
    /// Those of two engines, or two cores, together.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            requests: self.requests + other.requests,
            send_doorbells: self.send_doorbells + other.send_doorbells,
            receive_doorbells: self.receive_doorbells + other.receive_doorbells,
            completions: self.completions + other.completions,
            arms: self.arms + other.arms,
        }
    }
}
