use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::ptr::NonNull;

/// The key by which local work requests name a memory region.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Lkey(pub u32);

/// The key by which a peer names a memory region or window (R_Key).
///
/// Whoever holds it can read the memory, so it is never printed.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rkey(pub u32);

impl fmt::Debug for Rkey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Rkey(hidden)")
    }
}

/// A queue pair's number, 24 bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct QpNum(pub u32);

/// A packet sequence number, 24 bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Psn(pub u32);

impl Psn {
    /// Cuts a number to the 24 bits a PSN has.
    pub const fn new(value: u32) -> Self {
        Self(value & 0x00ff_ffff)
    }
}

/// Access rights of a region, or of a window's bind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access(u8);

impl Access {
    /// Local reads only.
    pub const NONE: Self = Self(0);
    /// The device may write here: receives, and destinations of READs.
    pub const LOCAL_WRITE: Self = Self(1);
    /// Peers that know the key may READ.
    pub const REMOTE_READ: Self = Self(4);
    /// Windows may be bound over this region.
    pub const MW_BIND: Self = Self(16);

    /// Both sets of rights.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `other` is granted.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Memory to register: mapped by us, never moved, never unmapped while the process lives.
#[derive(Clone, Copy)]
pub struct Region {
    ptr: NonNull<u8>,
    len: usize,
}

// SAFETY: a Region is an address range; the contract of `Region::new` makes it valid on any thread.
#[allow(unsafe_code)]
unsafe impl Send for Region {}
// SAFETY: as for Send; a Region gives no access by itself.
#[allow(unsafe_code)]
unsafe impl Sync for Region {}

impl Region {
    /// Names a mapped range.
    ///
    /// # Safety
    /// `ptr..ptr + len` must be one live mapping, readable and writable, that is never unmapped while
    /// any device may hold it, and whose bytes are accessed elsewhere only in the times that the
    /// owner of the memory (`mem`) allows: never while a posted work request may write them, and
    /// never mutably while one may read them.
    #[allow(unsafe_code)]
    pub unsafe fn new(ptr: NonNull<u8>, len: usize) -> Self {
        Self { ptr, len }
    }

    /// The first byte.
    pub fn ptr(&self) -> NonNull<u8> {
        self.ptr
    }

    /// The first byte's address.
    pub fn addr(&self) -> u64 {
        self.ptr.addr().get() as u64
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Region({} bytes)", self.len)
    }
}

/// A piece of registered memory in a work request.
///
/// Only `mem` makes these, from slots it has handed to the device, and arenas outlive every device;
/// so it has no lifetime.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Sge {
    /// Virtual address.
    pub(crate) addr: u64,
    /// Bytes.
    pub(crate) len: u32,
    /// The region's key.
    pub(crate) lkey: Lkey,
}

impl Sge {
    /// Names `len` bytes at `addr` of the region `lkey`.
    pub(crate) const fn new(addr: u64, len: u32, lkey: Lkey) -> Self {
        Self { addr, len, lkey }
    }

    /// Virtual address: what a payload descriptor tells the peer, and nobody else.
    pub(crate) const fn addr(&self) -> u64 {
        self.addr
    }

    /// Bytes.
    pub const fn len(&self) -> u32 {
        self.len
    }

    /// Whether it is empty.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl fmt::Debug for Sge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sge({} bytes)", self.len)
    }
}

/// The start of a range in a peer's memory. Its length is that of the local entries it is read into.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RemoteRange {
    /// Virtual address in the peer.
    pub addr: u64,
    /// The window's or region's key.
    pub rkey: Rkey,
}

impl fmt::Debug for RemoteRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RemoteRange(hidden)")
    }
}

/// What a device can do at most.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// Completions a CQ can hold.
    pub cqe_max: u32,
    /// Receives an SRQ can hold.
    pub srq_wr_max: u32,
    /// Requests a send queue can hold.
    pub qp_wr_max: u32,
    /// Entries per request.
    pub sge_max: u32,
    /// Bytes that can be posted inline.
    pub inline_bytes_max: u32,
    /// READs a QP may have outstanding as requester.
    pub max_rd_atomic: u8,
    /// READs a QP serves at once as responder.
    pub max_dest_rd_atomic: u8,
    /// The longest message.
    pub message_bytes_max: u32,
    /// The active MTU.
    pub mtu: u32,
    /// Whether type-2 windows exist. Without them payload memory must allow remote READ itself.
    pub windows: bool,
    /// Whether SEND_WITH_INV may be used.
    pub remote_invalidate: bool,
    /// Whether a QP in ERR announces its last receive (LAST_WQE_REACHED). Soft-RoCE before Linux
    /// 6.12 does not.
    pub last_wqe_event: bool,
    /// Whether local operations (BIND_MW, LOCAL_INV) may stand in a send queue only by themselves:
    /// posted when nothing else is outstanding, with nothing else posted before they have completed.
    /// Soft-RoCE carries out again what stands behind the oldest request that is not acknowledged when
    /// it retransmits; a local operation fails the second time, and its QP is silent for ever.
    pub local_ops_alone: bool,
    /// Whether its work is done by this machine's CPUs, in threads of the kernel that a program which polls
    /// without a pause keeps from running. That of soft-RoCE is, once there is much of it: a core that
    /// polls there lets others run whenever it finds nothing.
    pub needs_cpu: bool,
    /// The shortest local ACK timeout to be used, as QP attributes encode it. Soft-RoCE runs on CPUs
    /// that may be busy elsewhere for a while, and each retransmission costs it more of them.
    pub ack_timeout_min: u8,
    /// Retries after an ACK timeout at most, at most 7. Soft-RoCE takes 7 for no limit, and would never
    /// give up a peer that is gone.
    pub retries_max: u8,
    /// How long after its posting a request has completed or failed at the latest, by the device's own
    /// timers, if no request before it is outstanding. A QP that exceeds it is broken. `None`: a request
    /// waits for as long as the peer's process stands still.
    pub silence_max: Option<std::time::Duration>,
}

impl Limits {
    /// How long a QP with the shortest ACK timeout waits before it transmits again: 4.096 µs ×
    /// 2^[`ack_timeout_min`](Self::ack_timeout_min).
    pub fn ack_timeout(&self) -> std::time::Duration {
        std::time::Duration::from_nanos(4_096 << self.ack_timeout_min.min(31))
    }
}

/// How a QP is reached: the device half of what peers exchange when they connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QpAddress {
    /// The QP.
    pub qp_num: QpNum,
    /// The first PSN it sends.
    pub psn: Psn,
    /// Its device's MTU in bytes.
    pub mtu: u32,
    /// READs it may have outstanding.
    pub max_rd_atomic: u8,
    /// READs it serves at once.
    pub max_dest_rd_atomic: u8,
    /// The longest message its device takes.
    pub message_bytes_max: u32,
    /// How packets get there.
    pub link: Link,
}

/// The part of a QP's address that depends on the kind of device.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Link {
    /// A software device.
    Soft {
        /// The device's random name; one link joins each pair of devices.
        guid: u64,
        /// Where its links are dialled. `None`: it dials, or both are in one process.
        dial: Option<SocketAddr>,
    },
    /// A device of libibverbs.
    Ibv(Port),
}

/// The port that a QP sends from: what a peer's device needs to send to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    /// What lies under it.
    pub link_layer: LinkLayer,
    /// The entry of its GID table that the QP uses; zeros if there is none.
    pub gid: Gid,
    /// What that entry is.
    pub gid_type: GidType,
    /// Its LID; zero on Ethernet.
    pub lid: u16,
    /// The partition key that the QP uses.
    pub pkey: u16,
}

/// What lies under a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkLayer {
    /// InfiniBand: paths go by LID.
    InfiniBand,
    /// Ethernet: RoCE, paths go by GID.
    Ethernet,
}

/// What an entry of a GID table is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GidType {
    /// InfiniBand.
    InfiniBand,
    /// RoCE version 1: not routable.
    RoceV1,
    /// RoCE version 2: over UDP and IP.
    RoceV2,
}

/// A port's global identifier. On RoCE it is an IP address; an IPv4 address is mapped into IPv6.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// The GID that is this address, on RoCE.
    pub fn of_ip(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(ip) => Self(ip.to_ipv6_mapped().octets()),
            IpAddr::V6(ip) => Self(ip.octets()),
        }
    }

    /// The address it is, on RoCE.
    pub fn ip(self) -> IpAddr {
        IpAddr::V6(Ipv6Addr::from(self.0)).to_canonical()
    }

    /// Whether it is no GID: an entry of a table that is not used.
    pub fn is_zero(self) -> bool {
        self.0 == [0; 16]
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&Ipv6Addr::from(self.0), f)
    }
}

/// What a device counted by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceCounters {
    /// SENDs whose packets left.
    pub sends: u64,
    /// Bytes in them.
    pub send_bytes: u64,
    /// SENDs that filled a receive.
    pub recvs: u64,
    /// Bytes in them.
    pub recv_bytes: u64,
    /// READs completed as requester.
    pub reads: u64,
    /// Bytes they brought.
    pub read_bytes: u64,
    /// READs served as responder.
    pub reads_served: u64,
    /// Bytes served.
    pub read_bytes_served: u64,
    /// RNR NAKs sent: a SEND found no receive.
    pub rnr_naks_sent: u64,
    /// READs refused for a key, a bound or a right.
    pub remote_access_errors: u64,
    /// Windows bound.
    pub binds: u64,
    /// Windows closed.
    pub invalidations: u64,
}

/// How many objects are alive in a device's own tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceUsage {
    /// Protection domains.
    pub pds: u32,
    /// Memory regions.
    pub mrs: u32,
    /// Bytes they cover.
    pub mr_bytes: u64,
    /// Windows allocated.
    pub mws: u32,
    /// Windows bound: ranges that a peer could read now.
    pub mws_bound: u32,
    /// Completion queues.
    pub cqs: u32,
    /// Shared receive queues.
    pub srqs: u32,
    /// Receives posted on them.
    pub srq_wrs: u32,
    /// Queue pairs.
    pub qps: u32,
    /// Links to other devices.
    pub links: u32,
}
