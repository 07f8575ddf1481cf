use bytes::Bytes;

use super::ids::{LeaseId, TransferId};
use crate::Time;
use crate::wire::{Segment, WireStatus};

/// A message to be sent.
#[derive(Debug, Default)]
pub struct OutBody {
    /// The bytes that travel in the frame.
    pub inline: Bytes,
    /// The message in order; empty if it is just `inline`. The descriptors name `lease`.
    pub segments: Vec<Segment>,
    /// The lease that covers the descriptors; `None` exactly if there are none.
    pub lease: Option<LeaseId>,
}

impl OutBody {
    /// A message without pieces.
    pub fn inline(bytes: impl Into<Bytes>) -> Self {
        Self { inline: bytes.into(), segments: Vec::new(), lease: None }
    }
}

/// A call to be made.
#[derive(Debug)]
pub struct OutCall {
    /// The method's full proto name, `package.Service/Method`; at most 255 bytes.
    pub method: &'static str,
    /// When the caller gives up.
    pub deadline: Option<Time>,
    /// An encoded metadata block; empty if there is none.
    pub metadata: Bytes,
    /// Carried to the peer as it is.
    pub priority: u8,
    /// The request message.
    pub body: OutBody,
}

/// The answer to a call of the peer.
#[derive(Debug, Default)]
pub struct OutAnswer {
    /// `None`: the call succeeded and `body` is its message.
    pub status: Option<WireStatus>,
    /// An encoded metadata block; empty if there is none.
    pub metadata: Bytes,
    /// The response message.
    pub body: OutBody,
}

/// A message that came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InBody {
    /// The bytes that travelled in the frame, copied out of the receive buffer.
    pub inline: Bytes,
    /// The message in order; empty if it is just `inline`.
    pub segments: Vec<InSegment>,
    /// The transfer whose destination buffers hold the pieces: the engine hands them over with this
    /// event. `None` exactly if there are no pieces.
    pub transfer: Option<TransferId>,
}

/// One part of a message that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InSegment {
    /// The next so many bytes of `inline`.
    Inline(u32),
    /// The piece with this index, as [`Event::Fetch`](super::Event::Fetch) listed them.
    Piece(u32),
}
