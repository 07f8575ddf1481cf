//! Places at which a process can be made to die, for tests of what its peers do then.
//!
//! Only with the feature `failpoints`; without it nothing of this is compiled in. The environment variable
//! [`VARIABLE`] names a point and how often it is passed before the process kills itself there, as `kill -9`
//! does: `RPC_FAILPOINT=request-sent:3`. It is read when the first point is passed.

#![cfg_attr(
    not(feature = "failpoints"),
    allow(
        dead_code,
        unreachable_pub,
        reason = "without the feature points are passed and nothing comes of it"
    )
)]

/// Points that a process passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// A side of a handshake has sent its hello.
    HelloSent,
    /// Its queue pair is ready, and the core does not know of it.
    QpReady,
    /// The core has the connection, and the peer was not told.
    Installed,
    /// A SEND with a REQUEST in it was posted.
    RequestSent,
    /// READs were posted.
    ReadPosted,
    /// A READ has completed, and no RELEASE was sent.
    ReadDone,
    /// A handler waits for something.
    HandlerRunning,
    /// A SEND with a RESPONSE in it was posted.
    ReplySent,
    /// One with a RELEASE.
    ReleaseSent,
    /// One with a CANCEL.
    CancelSent,
    /// One with a GOAWAY: what runs may end.
    Draining,
    /// A SEND asks for credit: more waits to be sent than there are credits for, or did until now.
    NoCredits,
    /// Connections are there, nothing is asked of anybody, and the core goes to sleep.
    Idle,
}

impl Point {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::HelloSent,
        Self::QpReady,
        Self::Installed,
        Self::RequestSent,
        Self::ReadPosted,
        Self::ReadDone,
        Self::HandlerRunning,
        Self::ReplySent,
        Self::ReleaseSent,
        Self::CancelSent,
        Self::Draining,
        Self::NoCredits,
        Self::Idle,
    ];

    /// Its name in [`VARIABLE`].
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::HelloSent => "hello-sent",
            Self::QpReady => "qp-ready",
            Self::Installed => "installed",
            Self::RequestSent => "request-sent",
            Self::ReadPosted => "read-posted",
            Self::ReadDone => "read-done",
            Self::HandlerRunning => "handler-running",
            Self::ReplySent => "reply-sent",
            Self::ReleaseSent => "release-sent",
            Self::CancelSent => "cancel-sent",
            Self::Draining => "draining",
            Self::NoCredits => "no-credits",
            Self::Idle => "idle",
        }
    }
}

/// Says where this process is to die.
pub const VARIABLE: &str = "RPC_FAILPOINT";

/// Passes a point.
#[inline(always)]
pub(crate) fn pass(point: Point) {
    #[cfg(feature = "failpoints")]
    armed::pass(point);
    #[cfg(not(feature = "failpoints"))]
    let _ = point;
}

#[cfg(feature = "failpoints")]
mod armed {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    use rustix::process::{Signal, getpid, kill_process};

    use super::{Point, VARIABLE};

    /// Where to die, and how often that is still to be passed before.
    struct Armed {
        point: Point,
        left: AtomicU64,
    }

    fn armed() -> Option<&'static Armed> {
        static ARMED: OnceLock<Option<Armed>> = OnceLock::new();
        ARMED.get_or_init(|| std::env::var(VARIABLE).ok().map(|text| parse(&text))).as_ref()
    }

    fn parse(text: &str) -> Armed {
        let parts = text.split_once(':').and_then(|(name, count)| {
            let point = Point::ALL.into_iter().find(|point| point.name() == name)?;
            let count = count.parse().ok().filter(|count| *count > 0)?;
            Some(Armed { point, left: AtomicU64::new(count) })
        });
        // A test that dies nowhere would show nothing.
        parts.unwrap_or_else(|| {
            panic!("{VARIABLE}={text}: it is a point's name, a colon and a number from 1")
        })
    }

    pub(super) fn pass(point: Point) {
        let Some(armed) = armed().filter(|armed| armed.point == point) else { return };
        if armed.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            let _ = kill_process(getpid(), Signal::KILL);
            loop {
                std::thread::park(); // until the signal is here
            }
        }
    }
}
