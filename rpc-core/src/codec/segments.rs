#![forbid(unsafe_code)]

use std::fmt;
use std::vec;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::{DecodeError, Message};

use crate::mem::{PayloadMut, Pool};

/// A `bytes` field below this is copied out; a longer one is handed out by reference. So a small
/// field never keeps a large buffer, and a page never is copied.
pub const SLICE_MIN: usize = 4 << 10;

/// A field that ends a message inside the frame takes the frame's copy with it, instead of another
/// copy, if that is no more than so many times as long.
const FRAME_KEPT_MAX: usize = 2;

/// A part of a received message, in the message's order.
#[derive(Clone)]
pub enum InSegment {
    /// Bytes that came inside the frame, already copied out of the eager buffer.
    Inline(Bytes),
    /// A buffer that was filled by READs.
    Piece(Bytes),
    /// Such a buffer that the user may not keep, since users hold too much already: all of it is
    /// copied out, and it is free when the message has been decoded.
    Transient(Bytes),
}

impl InSegment {
    /// A received payload as users get it. Copies nothing: where a copy is due, decoding makes it.
    pub fn deliver(pool: &Pool, payload: PayloadMut) -> Self {
        match pool.try_deliver(payload) {
            Ok(bytes) => Self::Piece(bytes),
            Err(payload) => Self::Transient(payload.freeze()),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Inline(bytes) | Self::Piece(bytes) | Self::Transient(bytes) => bytes.len(),
        }
    }
}

impl fmt::Debug for InSegment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inline(bytes) => write!(f, "Inline({} bytes)", bytes.len()),
            Self::Piece(bytes) => write!(f, "Piece({} bytes)", bytes.len()),
            Self::Transient(bytes) => write!(f, "Transient({} bytes)", bytes.len()),
        }
    }
}

/// A received message as one [`Buf`] over its parts.
///
/// `copy_to_bytes` of at least [`SLICE_MIN`] bytes that lie in one part gives that part, or a slice
/// of it, without a copy; anything smaller, or that spans parts, is copied to the heap. What came
/// inside the frame is on the heap already: its end is not copied again if it is most of it.
pub struct Segments {
    /// The part being read; empty only at the end.
    now: Bytes,
    /// Whether parts of `now` may be handed out by reference.
    now_shared: bool,
    /// The length of the part that came inside the frame and that `now` is the rest of; else 0.
    now_frame: usize,
    rest: vec::IntoIter<InSegment>,
    remaining: usize,
}

impl Segments {
    /// Reads over these parts in order.
    pub fn new(parts: Vec<InSegment>) -> Self {
        let remaining = parts.iter().map(InSegment::len).fold(0, usize::saturating_add);
        let rest = parts.into_iter();
        let mut segments =
            Self { now: Bytes::new(), now_shared: false, now_frame: 0, rest, remaining };
        segments.next_part();
        segments
    }

    /// Reads over one run of bytes that came inside the frame.
    pub fn inline(bytes: Bytes) -> Self {
        let (remaining, rest) = (bytes.len(), Vec::new().into_iter());
        Self { now: bytes, now_shared: true, now_frame: remaining, rest, remaining }
    }

    /// Goes on to the next part that has bytes, if this one has none left.
    fn next_part(&mut self) {
        while self.now.is_empty() {
            let Some(part) = self.rest.next() else { return };
            self.now_frame = if let InSegment::Inline(bytes) = &part { bytes.len() } else { 0 };
            (self.now, self.now_shared) = match part {
                InSegment::Inline(bytes) | InSegment::Piece(bytes) => (bytes, true),
                InSegment::Transient(bytes) => (bytes, false),
            };
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
        if self.now_shared && len >= SLICE_MIN && len <= self.now.len() {
            self.remaining -= len;
            let bytes = self.now.split_to(len);
            self.next_part();
            return bytes;
        }
        let is_kept = self.now_frame > 0 && len * FRAME_KEPT_MAX >= self.now_frame;
        if is_kept && len == self.now.len() {
            self.remaining -= len;
            let bytes = std::mem::take(&mut self.now);
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
