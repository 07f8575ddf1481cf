use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::fabric::On;
use super::failing::Failing;
use super::packet::PIECE_BYTES_MAX;
use crate::Time;
use crate::verbs::{Limits, VerbsError};

/// Where a device takes the time from: the runtime's clock, or a simulator's.
pub type Clock = Arc<dyn Fn() -> Time + Send + Sync>;

/// Scatter or gather entries of one request. Stored in place in each queue entry, so it is small;
/// a message is a header, a body and at most a few pieces.
pub const SGE_MAX: usize = 8;

/// Pieces that may be between the oldest unacknowledged packet of a QP and its newest: a quarter of
/// half the PSN space, so that "before" and "after" are never confused.
const PIECES_OUTSTANDING_MAX: u64 = 1 << 21;

/// How a software device is made.
#[derive(Clone)]
pub struct SoftConfig {
    pub(super) name: String,
    pub(super) clock: Clock,
    pub(super) limits: Limits,
    pub(super) piece_bytes: u32,
    pub(super) seed: Option<u64>,
    pub(super) link_loss_delay: Duration,
    pub(super) mem_links: bool,
    pub(super) mem_link_bytes: usize,
    pub(super) on: On,
    pub(super) failing: Failing,
}

impl SoftConfig {
    /// The defaults, with time from `clock`.
    pub fn new(clock: Clock) -> Self {
        Self {
            name: "soft0".to_owned(),
            clock,
            limits: Limits {
                cqe_max: 1 << 20,
                srq_wr_max: 1 << 16,
                qp_wr_max: 2048,
                sge_max: SGE_MAX as u32,
                inline_bytes_max: 256,
                max_rd_atomic: 16,
                max_dest_rd_atomic: 16,
                message_bytes_max: 64 << 20,
                mtu: 4096,
                windows: true,
                remote_invalidate: true,
                last_wqe_event: true,
                local_ops_alone: false,
                needs_cpu: false,
                ack_timeout_min: 0,
                retries_max: 7,
                silence_max: None,
            },
            piece_bytes: 64 << 10,
            seed: None,
            link_loss_delay: Duration::from_millis(500),
            mem_links: true,
            mem_link_bytes: 256 << 10,
            on: On::default(),
            failing: Failing::default(),
        }
    }

    /// The device's name, for people. Default `soft0`.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// What the device admits to be able to do. Lower limits than the defaults imitate a small NIC;
    /// higher ones are refused by `open`.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// What [`Limits::silence_max`] says; default `None`. The device does not keep it.
    #[must_use]
    pub fn silence_max(mut self, limit: Option<Duration>) -> Self {
        self.limits.silence_max = limit;
        self
    }

    /// What [`Limits::local_ops_alone`] says; default no. A device that says so refuses chains that do
    /// not keep to it, so that a test of what keeps to it can fail.
    #[must_use]
    pub fn local_ops_alone(mut self, alone: bool) -> Self {
        self.limits.local_ops_alone = alone;
        self
    }

    /// Bytes of a message or of a READ's answer that travel as one packet, 1 to 1 MiB; default
    /// 64 KiB. A READ's key is checked again for each, and QPs of one link take turns by pieces.
    #[must_use]
    pub fn piece_bytes(mut self, bytes: u32) -> Self {
        self.piece_bytes = bytes;
        self
    }

    /// Draws keys, QP numbers and the device's GUID from this seed, so that a test can be repeated.
    /// Never set it where a peer is not trusted: keys become predictable. Default: the system's
    /// random numbers.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// How long after the loss of a link its outstanding requests fail with RETRY_EXC_ERR; default
    /// 500 ms. On hardware this is the time of all retries.
    #[must_use]
    pub fn link_loss_delay(mut self, delay: Duration) -> Self {
        self.link_loss_delay = delay;
        self
    }

    /// Whether devices of one process meet in memory; default yes. A test that wants TCP within
    /// one process says no on either side.
    #[must_use]
    pub fn mem_links(mut self, yes: bool) -> Self {
        self.mem_links = yes;
        self
    }

    /// Bytes that wait at most in each direction of a link in memory; default 256 KiB, at least 64.
    #[must_use]
    pub fn mem_link_bytes(mut self, bytes: usize) -> Self {
        self.mem_link_bytes = bytes;
        self
    }

    /// Puts the device on a fabric of its own, whose devices alone it can reach.
    #[cfg(any(test, feature = "test-util"))]
    pub(crate) fn on_fabric(mut self, fabric: Arc<super::Fabric>) -> Self {
        self.on = On::Simulated(fabric);
        self
    }

    /// Lets verbs fail when `when` says so.
    #[cfg(any(test, feature = "test-util"))]
    pub(crate) fn failing(mut self, when: super::FailsWhen) -> Self {
        self.failing = Failing::when(when);
        self
    }

    /// Checks every value against its bound.
    pub(super) fn check(&self) -> Result<(), VerbsError> {
        let limits = &self.limits;
        at_most("piece bytes", self.piece_bytes.into(), PIECE_BYTES_MAX.into())?;
        at_most("piece bytes below one", u64::from(self.piece_bytes == 0), 0)?;
        at_most("memory link bytes below 64", u64::from(self.mem_link_bytes < 64), 0)?;
        at_most("scatter entries", limits.sge_max.into(), SGE_MAX as u64)?;
        at_most("inline bytes", limits.inline_bytes_max.into(), 4096)?;
        at_most("READs outstanding", limits.max_rd_atomic.into(), 128)?;
        at_most("READs served", limits.max_dest_rd_atomic.into(), 128)?;
        at_most("message bytes", limits.message_bytes_max.into(), 1 << 30)?;
        let pieces = u64::from(limits.message_bytes_max / self.piece_bytes.max(1)) + 1;
        // Small pieces are for tests, whose messages are small: the bound is on what is usual.
        let usual = pieces.min(1 << 10) * u64::from(limits.qp_wr_max);
        at_most("pieces outstanding on one QP", usual, PIECES_OUTSTANDING_MAX)
    }
}

fn at_most(what: &'static str, value: u64, max: u64) -> Result<(), VerbsError> {
    if value <= max { Ok(()) } else { Err(VerbsError::Limit { what, max }) }
}

impl fmt::Debug for SoftConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SoftConfig")
            .field("name", &self.name)
            .field("piece_bytes", &self.piece_bytes)
            .field("link_loss_delay", &self.link_loss_delay)
            .field("mem_links", &self.mem_links)
            .finish_non_exhaustive()
    }
}
