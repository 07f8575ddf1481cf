/// How payload memory is used, in bytes. A snapshot: exact while nothing changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryUsage {
    /// What may be in use at once.
    pub budget: u64,
    /// Mapped for arenas: what devices may pin. Never shrinks.
    pub mapped: u64,
    /// In use of the inbound share, in whole blocks.
    pub inbound: u64,
    /// The part of `inbound` that holds responses.
    pub inbound_responses: u64,
    /// In use of the outbound share, in whole blocks.
    pub outbound: u64,
    /// The part of `outbound` that holds responses.
    pub outbound_responses: u64,
    /// The most that was in use at once.
    pub peak: u64,
    /// Free blocks of the shared level. Mapped memory beyond this and what is in use lies in cores'
    /// caches.
    pub free: u64,
    /// The part of `inbound` that users hold as received payloads.
    pub held_by_users: u64,
    /// How many payloads were delivered as heap copies because users held too much.
    pub delivered_as_copies: u64,
}
