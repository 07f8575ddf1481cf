//! What crosses the border between the engine and the code above it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;

use super::allowance::{Allowance, Allowed};
use crate::codec::{InSegment, Outbound, Segments};
use crate::protocol::CallId;
use crate::{Metadata, Peer, Status, Time};

/// Names a connection of a core; stale after the connection has gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ConnectionKey {
    /// Which of the core's engines.
    pub(crate) engine: u16,
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

/// A call to be made, encoded, its large pieces in payload memory.
pub(crate) struct OutgoingCall {
    pub(crate) method: &'static str,
    pub(crate) deadline: Option<Time>,
    /// Whether it passes those that are not.
    pub(crate) urgent: bool,
    pub(crate) metadata: Bytes,
    pub(crate) body: Outbound,
}

#[cfg(test)]
impl OutgoingCall {
    /// A call of no service, for tests: it is never sent.
    pub(crate) fn of(inline: Bytes) -> Self {
        let body = Outbound { inline, segments: Vec::new() };
        Self { method: "/test", deadline: None, urgent: false, metadata: Bytes::new(), body }
    }
}

/// A message as it came: parts that lay in frames, and pieces that were READ.
#[derive(Debug)]
pub(crate) enum ReceivedBody {
    /// All of it lay in the frame.
    Inline(Bytes),
    /// In the message's order.
    Parts(Vec<InSegment>),
}

impl ReceivedBody {
    /// The message, to be decoded.
    pub(crate) fn into_segments(self) -> Segments {
        match self {
            Self::Inline(bytes) => Segments::inline(bytes),
            Self::Parts(parts) => Segments::new(parts),
        }
    }
}

/// A call that arrived, on its way to a handler.
pub(crate) struct IncomingCall {
    pub(crate) deadline: Option<Time>,
    pub(crate) urgent: bool,
    pub(crate) metadata: Bytes,
    pub(crate) body: ReceivedBody,
    pub(crate) peer: Arc<Peer>,
    /// The longest answer that the peer takes.
    pub(crate) message_bytes_max: u64,
    /// The longest SEND that the peer takes.
    pub(crate) eager_bytes: u32,
    /// What its connection's answers may keep of payload memory.
    pub(crate) allowance: Arc<Allowance>,
}

/// What a handler answers, or how it failed.
pub(crate) type Answer = Result<Answered, Status>;

/// An answer, encoded.
pub(crate) struct Answered {
    pub(crate) outbound: Outbound,
    pub(crate) metadata: Metadata,
    /// Its part of the connection's allowance, if it has pieces: kept until they are released.
    pub(crate) allowed: Option<Allowed>,
    /// The call's deadline: the peer may read the answer's payload until then.
    pub(crate) deadline: Option<Time>,
}

/// A handler at work.
pub(crate) type HandlerFuture = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// A handler that was polled as a task has ended.
pub(crate) struct HandlerEnd {
    pub(crate) connection: ConnectionKey,
    pub(crate) call: CallId,
    /// `None`: its future was dropped, by a cancelled call.
    pub(crate) answer: Option<Answer>,
}

/// Finds the handlers of a server's methods.
pub(crate) trait Dispatch: Send + Sync {
    /// The method of a name on the wire.
    fn resolve(&self, name: &str) -> Option<Method>;
    /// Begins a call.
    fn call(&self, method: Method, call: IncomingCall) -> HandlerFuture;
}

/// A method that was found: small, so that a connection keeps one for each name it has interned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Method {
    pub(crate) service: u32,
    pub(crate) index: u32,
    /// Its name on the wire.
    pub(crate) path: &'static str,
}

/// What both sides of a connection agreed on, as far as a caller needs it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Negotiated {
    /// The longest SEND, bytes.
    pub(crate) eager_bytes: u32,
    /// The longest message, bytes.
    pub(crate) message_bytes_max: u64,
}

/// The rest of what they agreed on, for people.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// The protocol's version.
    pub(crate) version: u16,
    /// The path MTU, bytes: the smaller of both ports'.
    pub(crate) mtu: u32,
    /// That of this side's port, and of the peer's.
    pub(crate) mtus: [u32; 2],
    /// READs that this side may have outstanding.
    pub(crate) reads_max: u32,
}

/// Hears of a connection that this side asked for.
pub(crate) trait Observer: Send + Sync {
    /// Both sides have confirmed it: calls can be made.
    fn ready(
        &self,
        connection: ConnectionKey,
        negotiated: Negotiated,
        peer: &Arc<Peer>,
        terms: Terms,
    );
    /// The peer goes away: calls in progress may end on it, new ones are refused.
    fn retiring(&self, connection: ConnectionKey);
    /// It is gone, or never came to be. `way_failed`: because of the device or the path of its packets, and not
    /// of the peer.
    fn lost(&self, connection: ConnectionKey, why: Status, way_failed: bool);
}
