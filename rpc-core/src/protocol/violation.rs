use crate::wire::DecodeError;

/// A rule that the peer broke, or its word that we broke one. The connection cannot go on.
///
/// The engine sends what `poll_transmit` still gives (one ERROR frame, if there is a credit for it)
/// and takes the QP down.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// Bytes that are no SEND of this protocol.
    #[error(
        "the peer sent bytes that cannot be decoded ({0}); its version or its memory is broken"
    )]
    Decode(#[from] DecodeError),
    /// A SEND of another life of the connection.
    #[error("the peer sent epoch {got} on a connection of epoch {want}; it mixes up connections")]
    Epoch {
        /// This connection's.
        want: u32,
        /// The SEND's.
        got: u32,
    },
    /// A SEND was lost, repeated or reordered below us.
    #[error(
        "the peer's SEND number {got} came where {want} was due; the transport below is broken"
    )]
    Sequence {
        /// The next one.
        want: u32,
        /// The one that came.
        got: u32,
    },
    /// A SEND that no credit allowed.
    #[error("the peer sent more than its credits allow; it would take receives from other peers")]
    Overdraft,
    /// A credit-only SEND while its one slot was taken, or one with frames in it.
    #[error("the peer sent a credit-only SEND that its slot does not allow")]
    CreditOnly,
    /// A limit that grants more than a peer can mean, or acknowledges SENDs that were not sent.
    #[error("the peer's credit counters are impossible ({0}); it counts wrongly")]
    Counters(&'static str),
    /// Something came before CONFIRM, or CONFIRM came again.
    #[error("the peer's first SEND must carry CONFIRM alone, and no later one may ({0})")]
    Confirm(&'static str),
    /// CONFIRM does not prove what it must.
    #[error(
        "the peer's CONFIRM does not match: this queue pair does not belong to the peer that the \
         control connection reached, or the two derived different keys"
    )]
    Unconfirmed,
    /// A call id of the wrong side.
    #[error("the peer sent a {frame} with a call id of the wrong side")]
    Initiator {
        /// The frame's type.
        frame: &'static str,
    },
    /// A call id used before.
    #[error(
        "the peer began a call with an id that is not above its last; ids are never used again"
    )]
    CallIdReused,
    /// A method id that was not introduced, or was introduced wrongly.
    #[error("the peer used method id {0} without introducing it in order, once, by its name")]
    Method(u32),
    /// A frame that this version never asks for.
    #[error("the peer sent a {0} frame, which this side has not asked for")]
    Unexpected(&'static str),
    /// RELEASEs that name no lease of ours.
    #[error(
        "the peer released leases that it was never given, {0} times; it counts wrongly or guesses"
    )]
    Releases(u64),
    /// Frames that bring nothing forward.
    #[error("the peer sent {0} frames in a row that bring nothing forward")]
    NoProgress(u32),
    /// More answers are owed than a peer can be waiting for.
    #[error("the peer asks faster than it takes answers: {0} control frames wait for it")]
    Flood(usize),
    /// The peer says that we broke a rule.
    #[error("the peer ends the connection because of this side, code {code}: {message}")]
    Reported {
        /// Its code.
        code: u32,
        /// Its words.
        message: Box<str>,
    },
}
