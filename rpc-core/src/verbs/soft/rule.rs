macro_rules! rules {
    ($($(#[$text:meta])* $rule:ident,)*) => {
        /// The rules of verbs that this device enforces, one variant per rule.
        ///
        /// Each check asks `Rules::hold` with its name, so a test can break one rule and see that the
        /// conformance tests of that name notice. Breaking a rule never makes a copy leave a
        /// registered region: that bound is kept by `dma` alone and cannot be switched off.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Rule {
            $($(#[$text])* $rule,)*
        }

        impl Rule {
            /// Every rule.
            pub const ALL: &'static [Self] = &[$(Self::$rule,)*];
        }
    };
}

rules! {
    /// A receive or READ destination must allow LOCAL_WRITE.
    LocalWrite,
    /// A local request's region must be in its QP's protection domain.
    LocalPd,
    /// A READ's key must be the present one, with its tag.
    KeyTag,
    /// A READ's range must lie inside the window or region its key names.
    RemoteBounds,
    /// A READ's key must carry REMOTE_READ.
    RemoteReadRight,
    /// A READ's key must be of its QP's protection domain.
    RemotePd,
    /// A READ needs a QP that allows remote READ.
    QpRemoteRead,
    /// A window opens memory only to the QP it was bound on.
    WindowQp,
    /// A window must be free when it is bound.
    WindowFree,
    /// The region under a window must allow MW_BIND.
    WindowRight,
    /// A window's range must lie inside its region and not be empty.
    WindowRange,
    /// Window, region and QP must share a protection domain.
    WindowPd,
    /// Only a window bound on this QP can be invalidated here, and once.
    InvalidateBound,
    /// SEND_WITH_INV closes only a window bound on the receiving QP.
    SendInvQp,
    /// A READ's key is checked again for each piece of the answer.
    PieceKey,
    /// READs beyond the responder's depth are refused.
    ReadDepth,
    /// The requester keeps no more than `max_rd_atomic` READs outstanding.
    MaxRdAtomic,
    /// A fenced request waits for the READs before it.
    Fence,
    /// A SEND that meets no receive is answered by RNR, and retried.
    Rnr,
    /// A retry after RNR waits for the receiver's timer.
    RnrTimer,
    /// Retries after RNR are bounded by `rnr_retry`.
    RnrRetry,
    /// A silent peer is given up after `retry_cnt` retries.
    RetryExceeded,
    /// A SEND longer than its receive fails on both sides.
    LocLen,
    /// A QP in ERR flushes every outstanding request, signaled or not.
    Flush,
    /// A QP in ERR neither answers nor accepts.
    ErrSilent,
    /// A full CQ overruns.
    CqOverrun,
    /// An SRQ limit fires once.
    SrqLimitOnce,
    /// Packets count only when they come from the device this QP was connected to.
    PeerDevice,
    /// Packets are taken in the order of their PSNs.
    Psn,
    /// A packet that comes again is answered, and not taken again.
    Duplicate,
    /// A request that was not signaled says nothing when it succeeds.
    Unsignaled,
    /// A queue takes no more requests than it was made for.
    QueueFull,
    /// An armed CQ makes one event, and none until it is armed again.
    ArmOnce,
    /// Requests fail with RETRY_EXC_ERR when their link is lost.
    LinkLost,
    /// A QP that goes to ERR tells it by LAST_WQE_REACHED.
    LastWqe,
    /// The states of a QP are passed in order.
    StateOrder,
    /// Nothing is posted to a QP before RTS.
    PostState,
    /// An object that others still use is not destroyed.
    DestroyOrder,
}

/// Which rules hold: all, except in a test of the tests.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rules {
    broken: Option<Rule>,
}

impl Rules {
    /// `kept`, or true if a test has switched `rule` off.
    #[inline]
    pub(super) fn hold(&self, rule: Rule, kept: bool) -> bool {
        kept || self.broken == Some(rule)
    }

    /// Switches one rule off.
    #[cfg(any(test, feature = "test-util"))]
    pub(super) fn break_rule(&mut self, rule: Rule) {
        self.broken = Some(rule);
    }
}
