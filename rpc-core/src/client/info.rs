use std::sync::Arc;

use crate::Peer;

/// What both ends of a connection agreed on.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConnectionInfo {
    /// What carries it: `"soft"` or `"rdma"`.
    pub device: &'static str,
    /// Why that was chosen, for people.
    pub reason: Arc<str>,
    /// Who is at the other end, as it says.
    pub peer: Arc<Peer>,
    /// The version of the protocol.
    pub version: u16,
    /// The longest SEND, bytes: what is longer travels by READ.
    pub eager_bytes: u32,
    /// The longest message, bytes.
    pub message_bytes_max: u64,
    /// The path MTU, bytes: the smaller of both ports'.
    pub mtu: u32,
    /// That of this end's port, bytes.
    pub mtu_own: u32,
    /// That of the other end's port, bytes.
    pub mtu_peer: u32,
    /// READs that this end may have outstanding, the lesser of what both devices can.
    pub reads_max: u32,
}
