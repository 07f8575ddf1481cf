use std::fmt;
use std::time::Duration;

use crate::{Pings, Time};

/// How long an incoming message waits for memory. Memory comes back as handlers end and answers are taken,
/// so this is a matter of load: the sender is slowed rather than refused. The device may be the slow one
/// too: to register 64 MiB took an emulated machine more than a second.
const MEMORY_WAIT: Duration = Duration::from_secs(5);

/// Which side of the connection this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// It dialled; it sends the first SEND.
    Connecting,
    /// It accepted.
    Accepting,
}

/// What one connection may use, and what its two sides agreed on.
///
/// Every field may be set by itself: `ConnectionConfig { epoch, ..ConnectionConfig::default() }`. The
/// defaults are those of a plain runtime, with keys of zeroes that a real connection replaces.
#[derive(Clone)]
pub struct ConnectionConfig {
    /// Which side this is.
    pub role: Role,
    /// Names this life of the connection; every SEND header carries it.
    pub epoch: u32,
    /// The longest SEND that either side may issue, headers included.
    pub eager_bytes: u32,
    /// What our CONFIRM carries.
    pub confirm_own: [u8; 32],
    /// What the peer's CONFIRM must carry.
    pub confirm_peer: [u8; 32],
    /// Length of the SEND that carries CONFIRM: more than one MTU, so that a path which drops full
    /// packets is found now. Cut to `eager_bytes`.
    pub confirm_bytes: u32,
    /// When the peer's CONFIRM must have come.
    pub confirm_deadline: Time,
    /// Calls that this side may have outstanding, queued ones included; at most 65,536.
    pub calls_out_max: u32,
    /// Calls of the peer that may be in work here, those whose cancelled handlers still run and those
    /// whose answers wait to be sent included.
    pub calls_in_max: u32,
    /// The longest message accepted, inline bytes and pieces together.
    pub message_bytes_max: u64,
    /// Leases that may be outstanding; at most 65,536.
    pub leases_max: u32,
    /// Bytes that may be under lease.
    pub lease_bytes_max: u64,
    /// How long after the point given to [`reserve_lease`](super::Connection::reserve_lease) a lease
    /// that the peer has not released is taken back.
    pub lease_grace: Duration,
    /// Bytes of one READ at most.
    pub read_chunk_bytes: u32,
    /// READs that may be outstanding: the lesser of our `max_rd_atomic` and the peer's
    /// `max_dest_rd_atomic`.
    pub reads_max: u32,
    /// Method names that get a short id when sent; later ones travel in full with every call. At most
    /// [`METHODS_MAX`](super::METHODS_MAX).
    pub methods_max: u32,
    /// How long an incoming message may wait for memory, if its call's deadline is not earlier.
    pub memory_wait: Duration,
    /// How long an orderly close waits for calls to end.
    pub close_wait: Duration,
    /// When the peer is asked for a sign of life, and how long it may take.
    pub pings: Pings,
}

impl Default for ConnectionConfig {
    fn default() -> Self {
        Self {
            role: Role::Connecting,
            epoch: 0,
            // One 8 KiB page and its headers.
            eager_bytes: 9216,
            confirm_own: [0; 32],
            confirm_peer: [0; 32],
            // More than the largest RDMA MTU, 4,096, and within every eager buffer.
            confirm_bytes: 4608,
            // A handshake's share of the usual connect timeout.
            confirm_deadline: Time::from_nanos(5_000_000_000),
            calls_out_max: 4096,
            calls_in_max: 4096,
            message_bytes_max: 64 << 20,
            leases_max: 1024,
            lease_bytes_max: 256 << 20,
            // A peer's engine may be stalled by a handler; one second is far beyond that.
            lease_grace: Duration::from_secs(1),
            read_chunk_bytes: 128 << 10,
            // What most NICs serve per QP.
            reads_max: 16,
            methods_max: super::METHODS_MAX,
            memory_wait: MEMORY_WAIT,
            close_wait: Duration::from_secs(5),
            pings: Pings::new(),
        }
    }
}

impl fmt::Debug for ConnectionConfig {
    /// Without the keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionConfig")
            .field("role", &self.role)
            .field("epoch", &self.epoch)
            .field("eager_bytes", &self.eager_bytes)
            .field("confirm_bytes", &self.confirm_bytes)
            .field("confirm_deadline", &self.confirm_deadline)
            .field("calls_out_max", &self.calls_out_max)
            .field("calls_in_max", &self.calls_in_max)
            .field("message_bytes_max", &self.message_bytes_max)
            .field("leases_max", &self.leases_max)
            .field("lease_bytes_max", &self.lease_bytes_max)
            .field("lease_grace", &self.lease_grace)
            .field("read_chunk_bytes", &self.read_chunk_bytes)
            .field("reads_max", &self.reads_max)
            .field("methods_max", &self.methods_max)
            .field("memory_wait", &self.memory_wait)
            .field("close_wait", &self.close_wait)
            .field("pings", &self.pings)
            .finish()
    }
}
