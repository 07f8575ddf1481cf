use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::body::InBody;
use super::ids::{CallId, LeaseId, TransferId};
use crate::wire::WireStatus;
use crate::{Code, Execution, Time};

/// What a connection wants its owner to know or to do.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// The peer's CONFIRM came and is right: the QP belongs to its control connection.
    Confirmed,
    /// A message with pieces came: get memory for each, then say
    /// [`on_fetch_ready`](super::Connection::on_fetch_ready) or
    /// [`on_fetch_refused`](super::Connection::on_fetch_refused). Ends in exactly one `Call` or
    /// `Answer` that carries the transfer, or in one `Discard`.
    Fetch {
        /// Names the destination buffers from now on.
        transfer: TransferId,
        /// Length of each piece in bytes; at most 16, their sum at most `message_bytes_max`.
        pieces: Vec<u32>,
        /// Whether it is an answer (the memory may come from the part kept for responses).
        answer: bool,
        /// When waiting for memory ends. It is enforced here too.
        deadline: Time,
    },
    /// A call of the peer, whole. Ends by `answer`, `refuse`, or, after `Cancelled`, by
    /// `end_incoming`.
    Call(InCall),
    /// A call of ours was answered; it has ended.
    Answer {
        /// The token given to `start_call`.
        token: u64,
        /// `None`: it succeeded.
        status: Option<WireStatus>,
        /// An encoded metadata block, not yet checked.
        metadata: Bytes,
        /// The response.
        body: InBody,
    },
    /// A call of ours has ended without an answer.
    Failed {
        /// The token given to `start_call`.
        token: u64,
        /// How and why.
        failure: CallFailure,
    },
    /// Nobody waits for this call's answer any more: drop its handler, then say `end_incoming`. Until
    /// then it counts against `calls_in_max`.
    Cancelled {
        /// The call, which was announced by `Call`.
        call: CallId,
        /// Why.
        why: CancelReason,
    },
    /// Close the windows of this lease if they were bound, then say
    /// [`on_lease_revoked`](super::Connection::on_lease_revoked). Comes once for each lease, unless
    /// the connection ends first.
    Revoke {
        /// The lease.
        lease: LeaseId,
        /// Whether its time ran out, so that the peer may still be reading.
        expired: bool,
    },
    /// Nobody wants this transfer's bytes and no READ of it is outstanding: free its destination
    /// buffers, or stop waiting for them.
    Discard {
        /// The transfer, which was announced by `Fetch`.
        transfer: TransferId,
    },
    /// The peer has more to say than it has credits: post more receives for it if there are any to
    /// spare.
    Lend {
        /// As many again as it may have outstanding now. A wish, to be clamped.
        wanted: u32,
    },
    /// The peer has given back credits, as [`recall`](super::Connection::recall) asked: so many receives that
    /// stand for it are free to be granted to others.
    Returned {
        /// How many; may be 0.
        count: u32,
    },
    /// The peer goes away: calls begun from now on are refused here, those it has may end. Comes once.
    GoingAway,
    /// The peer was asked for a sign of life and gave none in time: give the connection up, by
    /// [`on_lost`](super::Connection::on_lost) with [`LossKind::Silence`]. Comes once.
    Silent {
        /// How long it has said nothing.
        silence: Duration,
    },
    /// No call will begin or end on this connection any more: take the QP down, after an orderly close
    /// once the SENDs that were posted have completed. Only `Discard` events may follow, for transfers
    /// whose READs were outstanding.
    Closed {
        /// Why.
        reason: CloseReason,
    },
}

/// A call of the peer.
#[derive(Debug)]
pub struct InCall {
    /// Its id.
    pub call: CallId,
    /// The short id of its method, from 1; 0 if the peer has used up its short ids, and then `name` is
    /// always there.
    pub method: u32,
    /// The method's name, with the first call of its short id that is handed out.
    pub name: Option<Box<str>>,
    /// When the caller gives up, on our clock.
    pub deadline: Option<Time>,
    /// An encoded metadata block, not yet checked.
    pub metadata: Bytes,
    /// What the caller set.
    pub priority: u8,
    /// The request.
    pub body: InBody,
}

/// How a call of ours failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallFailure {
    /// What happened.
    pub kind: FailureKind,
    /// In words.
    pub message: Cow<'static, str>,
    /// Whether the method ran, as far as can be known.
    pub execution: Execution,
}

/// What ended a call of ours without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailureKind {
    /// Its deadline passed.
    Deadline,
    /// The peer refused to run it, with this code.
    Refused(u32),
    /// No memory for the answer in time, or the answer is longer than `message_bytes_max`.
    Exhausted,
    /// The peer goes away and will not run it, or this side closed before it was sent.
    Goaway,
    /// The connection was lost.
    Lost,
    /// The READ of the answer failed.
    Read,
    /// The answer used something that this side does not know.
    Unsupported,
}

impl FailureKind {
    /// The code that users see.
    pub const fn code(self) -> Code {
        match self {
            Self::Deadline => Code::DeadlineExceeded,
            Self::Refused(code) => Code::from_u32(code),
            Self::Exhausted => Code::ResourceExhausted,
            Self::Goaway | Self::Lost | Self::Read => Code::Unavailable,
            Self::Unsupported => Code::Internal,
        }
    }
}

/// Why a call of the peer is no longer wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelReason {
    /// The peer cancelled it.
    Peer,
    /// Its deadline passed.
    Deadline,
    /// The connection was lost or closed.
    Lost,
}

/// What took the connection away, as its owner saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LossReason {
    /// What was lost.
    pub kind: LossKind,
    /// In words: the first failed completion, the likely cause. It becomes the message of every call
    /// that fails with it.
    pub message: Arc<str>,
}

/// What was lost first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LossKind {
    /// A work request failed; the QP is in ERR.
    QueuePair,
    /// The control connection ended.
    Control,
    /// The peer broke a rule.
    Violation,
    /// The peer was silent for too long.
    Silence,
    /// This side shuts down at once.
    Shutdown,
}

/// Why this side goes away, as the peer is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoawayReason {
    /// A status code's number.
    pub code: u32,
    /// In words. Cut to what the wire carries.
    pub message: Cow<'static, str>,
}

/// Why a connection is closed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseReason {
    /// This side closed it, for the reason given, and everything had ended or the wait for it had.
    Local {
        /// What `close` was given.
        reason: GoawayReason,
        /// Whether everything had ended; otherwise the wait for it had.
        drained: bool,
    },
    /// It was lost.
    Lost(LossReason),
    /// The peer's CONFIRM did not come in time.
    ConfirmTimeout,
    /// The peer let leases expire, one after the other, without a single RELEASE.
    LeasesUnreleased,
    /// The peer does not answer a RECALL.
    CreditsUnreturned,
}
