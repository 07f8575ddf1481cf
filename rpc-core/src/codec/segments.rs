#![forbid(unsafe_code)]

use std::fmt;
use std::vec;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::{DecodeError, Message};

/// A `bytes` field below this is copied out; a longer one is handed out by reference. So a small
/// field never keeps a large buffer, and a page never is copied.
pub const SLICE_MIN: usize = 4 << 10;

/// A part of a received message, in the message's order.
#[derive(Clone)]
pub enum InSegment {
    /// Bytes that came inside the frame, already copied out of the eager buffer.
    Inline(Bytes),
    /// A buffer that was filled by READs.
    Piece(Bytes),
}

impl InSegment {
    fn into_bytes(self) -> Bytes {
        match self {
            Self::Inline(bytes) | Self::Piece(bytes) => bytes,
        }
    }
}

impl fmt::Debug for InSegment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inline(bytes) => write!(f, "Inline({} bytes)", bytes.len()),
            Self::Piece(bytes) => write!(f, "Piece({} bytes)", bytes.len()),
        }
    }
}

/// A received message as one [`Buf`] over its parts.
///
/// `copy_to_bytes` of at least [`SLICE_MIN`] bytes that lie in one part gives that part, or a slice
/// of it, without a copy; anything smaller, or that spans parts, is copied to the heap.
pub struct Segments {
    /// The part being read; empty only at the end.
    now: Bytes,
    rest: vec::IntoIter<InSegment>,
    remaining: usize,
}

impl Segments {
    /// Reads over these parts in order.
    pub fn new(parts: Vec<InSegment>) -> Self {
        let len = |part: &InSegment| match part {
            InSegment::Inline(bytes) | InSegment::Piece(bytes) => bytes.len(),
        };
        let remaining = parts.iter().map(len).fold(0, usize::saturating_add);
        let mut segments = Self { now: Bytes::new(), rest: parts.into_iter(), remaining };
        segments.next_part();
        segments
    }

    /// Reads over one run of bytes that came inside the frame.
    pub fn inline(bytes: Bytes) -> Self {
        Self { remaining: bytes.len(), now: bytes, rest: Vec::new().into_iter() }
    }

    /// Goes on to the next part that has bytes, if this one has none left.
    fn next_part(&mut self) {
        while self.now.is_empty() {
            let Some(part) = self.rest.next() else { return };
            self.now = part.into_bytes();
        }
    }
}

impl Buf for Segments {
    fn remaining(&self) -> usize {
        self.remaining
    }

    fn chunk(&self) -> &[u8] {
        &self.now
    }

    fn advance(&mut self, mut count: usize) {
        assert!(count <= self.remaining, "advance stays within the message");
        self.remaining -= count;
        while count > self.now.len() {
            count -= self.now.len();
            self.now.clear();
            self.next_part();
        }
        self.now.advance(count);
        self.next_part();
    }

    fn copy_to_bytes(&mut self, len: usize) -> Bytes {
        assert!(len <= self.remaining, "a copy stays within the message");
        if len >= SLICE_MIN && len <= self.now.len() {
            self.remaining -= len;
            let bytes = self.now.split_to(len);
            self.next_part();
            return bytes;
        }
        if len <= self.now.len() {
            let bytes = Bytes::copy_from_slice(&self.now[..len]);
            self.advance(len);
            return bytes;
        }
        let mut gathered = BytesMut::with_capacity(len);
        gathered.put(self.take(len));
        gathered.freeze()
    }
}

impl fmt::Debug for Segments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Segments({} bytes left)", self.remaining)
    }
}

/// Decodes a received message.
///
/// # Errors
/// The bytes are not a message of this type.
pub fn decode<M: Message + Default>(segments: Segments) -> Result<M, DecodeError> {
    M::decode(segments)
}

/// Decodes a message that lies in one run of bytes, copying every field: for short messages, out
/// of the very buffer they were received in.
///
/// # Errors
/// The bytes are not a message of this type.
pub fn decode_slice<M: Message + Default>(bytes: &[u8]) -> Result<M, DecodeError> {
    M::decode(bytes)
}
