use std::os::fd::BorrowedFd;

use super::{
    Access, DeviceCounters, DeviceUsage, Limits, Lkey, Psn, QpAddress, QpNum, Region, RemoteRange,
    Rkey, Sge, VerbsError, Wc,
};
use crate::Time;

/// An open device: the control half of verbs.
///
/// Cloning gives another handle to the same open device. The engine is generic over this trait, so
/// no call on the hot path is dynamic. The trait is not meant to be implemented outside this crate.
pub trait Device: Clone + Send + Sync + 'static {
    /// A protection domain.
    type Pd: Clone + Send + Sync + 'static;
    /// A registered memory region. Dropping it deregisters.
    type Mr: Mr;
    /// A type-2 memory window. Dropping it deallocates, which also ends remote access through it.
    type Mw: Mw;
    /// A completion queue with its completion channel.
    type Cq: Cq;
    /// A name of a completion queue that other threads may create QPs with.
    type CqRef: Clone + Send + Sync + 'static;
    /// A shared receive queue.
    type Srq: Srq;
    /// A name of a shared receive queue that other threads may create QPs with.
    type SrqRef: Clone + Send + Sync + 'static;
    /// An RC queue pair.
    type Qp: Qp<Mr = Self::Mr, Mw = Self::Mw>;

    /// The device's name, for people.
    fn name(&self) -> &str;

    /// What the device can do at most.
    fn limits(&self) -> Limits;

    /// Allocates a protection domain.
    fn alloc_pd(&self) -> Result<Self::Pd, VerbsError>;

    /// Registers memory. An access right that is not named is refused by the device.
    fn register(
        &self,
        pd: &Self::Pd,
        region: Region,
        access: Access,
    ) -> Result<Self::Mr, VerbsError>;

    /// Allocates a type-2 window. It opens nothing until it is bound.
    fn alloc_mw(&self, pd: &Self::Pd) -> Result<Self::Mw, VerbsError>;

    /// Creates a CQ that holds `cqe` completions. One more overruns it, and the CQ is lost.
    fn create_cq(&self, cqe: u32) -> Result<Self::Cq, VerbsError>;

    /// The name of `cq` for [`QpInit`].
    fn cq_ref(&self, cq: &Self::Cq) -> Self::CqRef;

    /// Creates a shared receive queue.
    fn create_srq(&self, pd: &Self::Pd, init: SrqInit) -> Result<Self::Srq, VerbsError>;

    /// The name of `srq` for [`QpInit`].
    fn srq_ref(&self, srq: &Self::Srq) -> Self::SrqRef;

    /// Creates an RC QP in RESET and brings it to INIT.
    fn create_qp(&self, init: &QpInit<'_, Self>) -> Result<Self::Qp, VerbsError>;

    /// A descriptor that is readable while asynchronous events wait.
    fn async_fd(&self) -> Option<BorrowedFd<'_>>;

    /// Fetches and acknowledges one asynchronous event.
    fn poll_async(&self) -> Option<AsyncEvent>;

    /// What the device itself counted since it was opened.
    fn counters(&self) -> DeviceCounters;

    /// Objects that the system refused to destroy: they stay until the process ends, and what they
    /// let a peer reach stays within its reach.
    fn leaks(&self) -> u64 {
        0
    }

    /// The device's own tables: how many objects of each kind are alive.
    fn usage(&self) -> DeviceUsage;
}

/// A registered memory region.
pub trait Mr: Send + Sync + 'static {
    /// The key local work requests name this region by.
    fn lkey(&self) -> Lkey;
    /// The key peers could name this region by, if it allows remote access.
    fn rkey(&self) -> Rkey;
}

/// A type-2 memory window.
pub trait Mw: Send + 'static {
    /// The key of the last bind, or the one it was allocated with.
    fn rkey(&self) -> Rkey;
    /// The key the next bind must use: the same index with the next 8-bit tag.
    fn next_rkey(&self) -> Rkey;
}

/// How a shared receive queue is made.
#[derive(Clone, Copy, Debug)]
pub struct SrqInit {
    /// Receives that can be posted at once.
    pub wr_max: u32,
    /// Scatter entries per receive.
    pub sge_max: u32,
}

/// How a QP is made. Every QP of this crate uses an SRQ.
pub struct QpInit<'a, D: Device> {
    /// Its protection domain.
    pub pd: &'a D::Pd,
    /// Where completions of its send queue go.
    pub send_cq: &'a D::CqRef,
    /// Where completions of its receives go.
    pub recv_cq: &'a D::CqRef,
    /// Where its receives come from.
    pub srq: &'a D::SrqRef,
    /// Work requests that can be outstanding on its send queue.
    pub send_wr_max: u32,
    /// Gather entries per send request.
    pub send_sge_max: u32,
    /// Bytes that can be posted with [`SendFlags::INLINE`].
    pub inline_bytes_max: u32,
    /// Whether peers may READ through this QP (windows and keys still decide what).
    pub remote_read: bool,
}

/// What RTR and RTS need beside the peer's address.
#[derive(Clone, Copy, Debug)]
pub struct QpAttr {
    /// Path MTU in bytes: the smaller of both sides.
    pub mtu: u32,
    /// READs this QP may have outstanding: at most the peer's `max_dest_rd_atomic`.
    pub max_rd_atomic: u8,
    /// READs the peer may have outstanding here.
    pub max_dest_rd_atomic: u8,
    /// Local ACK timeout, 4.096 µs × 2^n.
    pub timeout: u8,
    /// Retries after a timeout.
    pub retry_cnt: u8,
    /// Retries after RNR; 7 is for ever.
    pub rnr_retry: u8,
    /// The RNR timer this side asks of the peer, as encoded in the specification (12: 0.64 ms).
    pub min_rnr_timer: u8,
}

/// The states of an RC QP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the specification's names")]
pub enum QpState {
    Reset,
    Init,
    Rtr,
    Rts,
    Sqd,
    Err,
}

/// Flags of a send request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendFlags(u8);

impl SendFlags {
    /// No flag.
    pub const NONE: Self = Self(0);
    /// Report this request's completion, and with it that of every one before it on the QP.
    pub const SIGNALED: Self = Self(1);
    /// The receiver's CQ, armed for solicited completions, wakes for this message.
    pub const SOLICITED: Self = Self(2);
    /// Copy the payload while posting; the memory is free when the post returns.
    pub const INLINE: Self = Self(4);
    /// Wait for earlier READs of this QP.
    pub const FENCE: Self = Self(8);

    /// Both sets of flags.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `other` is set.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// A post that stopped midway: `posted` requests are live, the next one and all after it are not.
///
/// Go on from the first that was refused, or move the QP to ERR. Never post from the head again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the device took {posted} work requests and refused the next: {errno}")]
pub struct PostError {
    /// How many of the batch are live.
    pub posted: u32,
    /// The system's error number (12, ENOMEM: the queue is full; 22, EINVAL: the QP's state or the
    /// request is wrong).
    pub errno: i32,
}

/// An RC queue pair: the part that one core drives.
///
/// Dropping it destroys the QP. Do that in the order the design gives: ERR, drained, windows gone.
pub trait Qp: Send + 'static {
    /// The device's region type.
    type Mr: Mr;
    /// The device's window type.
    type Mw: Mw;
    /// A chain of work requests being built.
    type Batch<'a>: SendBatch<Mr = Self::Mr, Mw = Self::Mw>
    where
        Self: 'a;

    /// This QP's number.
    fn num(&self) -> QpNum;
    /// Its state.
    fn state(&self) -> QpState;
    /// What a peer needs to reach this QP. `psn` is the start PSN of its send queue. May block.
    fn address(&self, psn: Psn) -> Result<QpAddress, VerbsError>;
    /// INIT → RTR: the peer is known, receiving can begin. May block.
    fn to_rtr(&mut self, peer: &QpAddress, attr: &QpAttr) -> Result<(), VerbsError>;
    /// RTR → RTS: sending can begin, from the PSN given to [`address`](Self::address). May block.
    fn to_rts(&mut self, attr: &QpAttr) -> Result<(), VerbsError>;
    /// Any state → ERR: outstanding requests complete with a flush error.
    fn to_err(&mut self) -> Result<(), VerbsError>;
    /// Bytes that went to and came from this QP's peer so far, as far as the device can tell: also of READs
    /// that the peer makes, which nothing else shows. 0 where it cannot.
    fn moved_bytes(&self) -> u64 {
        0
    }
    /// Begins a chain that one [`SendBatch::post`] hands to the device.
    fn batch(&mut self) -> Self::Batch<'_>;
}

/// A chain of send-queue work requests. Requests take effect in order, and only when posted.
///
/// `wr_id` comes back in the request's completion. Each method fails only when the chain holds more
/// than the queue was made for; that is a bug of the caller, who reserves slots before building.
pub trait SendBatch {
    /// The device's region type.
    type Mr;
    /// The device's window type.
    type Mw;

    /// Opens `range` of `mr` to remote READ through `mw` on this QP. The window's key becomes
    /// [`Mw::next_rkey`] as this is called, so a SEND later in the same chain may carry it.
    fn bind(
        &mut self,
        wr_id: u64,
        mw: &mut Self::Mw,
        mr: &Self::Mr,
        range: Sge,
        flags: SendFlags,
    ) -> Result<(), VerbsError>;
    /// Sends a message into a receive of the peer's SRQ.
    fn send(&mut self, wr_id: u64, sges: &[Sge], flags: SendFlags) -> Result<(), VerbsError>;
    /// Sends a message, and invalidates a window of the peer bound to its end of this QP.
    fn send_with_inv(
        &mut self,
        wr_id: u64,
        sges: &[Sge],
        rkey: Rkey,
        flags: SendFlags,
    ) -> Result<(), VerbsError>;
    /// Reads the peer's memory at `remote` into `sges`, whose lengths say how much.
    fn read(
        &mut self,
        wr_id: u64,
        sges: &[Sge],
        remote: RemoteRange,
        flags: SendFlags,
    ) -> Result<(), VerbsError>;
    /// Closes a window of this side. Exactly once per bind.
    fn local_inv(&mut self, wr_id: u64, rkey: Rkey, flags: SendFlags) -> Result<(), VerbsError>;
    /// How many requests the chain holds.
    fn len(&self) -> u32;
    /// Whether the chain holds none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Hands the chain to the device: one doorbell.
    fn post(self) -> Result<(), PostError>;
}

/// A chain of receives for an SRQ.
pub trait RecvBatch {
    /// Adds a receive into `sges`.
    fn recv(&mut self, wr_id: u64, sges: &[Sge]) -> Result<(), VerbsError>;
    /// Hands the chain to the device.
    fn post(self) -> Result<(), PostError>;
}

/// A shared receive queue: the part that one core drives.
pub trait Srq: Send + 'static {
    /// A chain of receives being built.
    type Batch<'a>: RecvBatch
    where
        Self: 'a;
    /// Begins a chain of receives.
    fn batch(&mut self) -> Self::Batch<'_>;
    /// Asks for one [`AsyncEvent::SrqLimitReached`] when fewer than `limit` receives are posted.
    fn arm_limit(&mut self, limit: u32) -> Result<(), VerbsError>;
}

/// A completion queue with its completion channel: polled by one core.
pub trait Cq: Send + 'static {
    /// Takes completions into `wcs`; returns how many.
    fn poll(&mut self, wcs: &mut [Wc]) -> Result<usize, VerbsError>;
    /// Asks for one event on the completion channel at the next completion. Poll once more after
    /// this before sleeping: a completion that came between is not announced.
    fn arm(&mut self) -> Result<(), VerbsError>;
    /// Drains the completion channel, acknowledging each event here; returns how many there were.
    fn drain_events(&mut self) -> Result<u32, VerbsError>;
    /// The completion channel's descriptor: readable when an event waits, or when the device needs
    /// this thread to make progress.
    fn fd(&self) -> BorrowedFd<'_>;
    /// When the device next needs a poll though nothing arrives (retry and RNR timers of a software
    /// device). Hardware answers `None`.
    fn next_deadline(&self) -> Option<Time>;
}

/// Something that happened to a device, port or object outside of any completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AsyncEvent {
    /// The CQ overran or failed: it and every QP on it are lost.
    CqError,
    /// The QP went to ERR by itself.
    QpFatal(QpNum),
    /// The QP saw an invalid request from its peer.
    QpRequestError(QpNum),
    /// The QP saw an access violation by its peer.
    QpAccessError(QpNum),
    /// The QP is in ERR and has consumed its last receive.
    LastWqeReached(QpNum),
    /// The SRQ has fewer receives than its armed limit; the limit is spent.
    SrqLimitReached,
    /// The SRQ failed: no QP on it receives any more.
    SrqError,
    /// A port can be used again.
    PortActive(u8),
    /// A port lost its link; requests are being retried.
    PortError(u8),
    /// The GID table changed.
    GidChange(u8),
    /// The device is gone.
    DeviceFatal,
    /// An event this crate does not know.
    Unknown(i32),
}
