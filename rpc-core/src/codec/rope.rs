#![allow(unsafe_code)]

use std::fmt;
use std::mem::size_of;

use bytes::buf::UninitSlice;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::Message;

/// Room for the small fields of a typical message whose bulk is by reference, in bytes.
const INLINE_CAPACITY: usize = 1024;

/// A part of an encoded message, in the message's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RopeSegment {
    /// The next so many bytes of the rope's inline bytes.
    Inline(usize),
    /// A `Bytes` field of the message, by reference.
    Piece(Bytes),
}

/// An encoded message that was not made contiguous: large `Bytes` fields stay what they are.
///
/// It is a [`BufMut`]. prost encodes a `Bytes` field by `put(field.clone())`, which is taken by
/// reference if it is at least `piece_min` long; a `Vec<u8>` comes as `put(&[u8])` and a string by
/// `put_slice`, which are copied.
pub struct Rope {
    inline: BytesMut,
    segments: Vec<RopeSegment>,
    /// Inline bytes that `segments` names.
    named: usize,
    piece_min: usize,
}

impl Rope {
    /// An empty rope that takes `Bytes` of at least `piece_min` bytes by reference.
    pub fn new(piece_min: usize) -> Self {
        let inline = BytesMut::with_capacity(INLINE_CAPACITY);
        Self { inline, segments: Vec::new(), named: 0, piece_min: piece_min.max(1) }
    }

    /// Encodes a message. The caller has checked its length ([`Message::encoded_len`]).
    pub fn encode<M: Message>(message: &M, piece_min: usize) -> Self {
        let mut rope = Self::new(piece_min);
        // Not `encode`, which would compute the length again to compare it with endless room.
        message.encode_raw(&mut rope);
        rope
    }

    /// Bytes of the encoded message.
    pub fn len(&self) -> usize {
        let piece = |segment: &RopeSegment| match segment {
            RopeSegment::Piece(bytes) => bytes.len(),
            RopeSegment::Inline(_) => 0,
        };
        self.inline.len() + self.segments.iter().map(piece).sum::<usize>()
    }

    /// Whether nothing was encoded.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The inline bytes of all segments together, and the segments in order.
    pub fn into_parts(mut self) -> (Bytes, Vec<RopeSegment>) {
        self.name_inline();
        (self.inline.freeze(), self.segments)
    }

    /// Ends the current run of inline bytes.
    fn name_inline(&mut self) {
        let run = self.inline.len() - self.named;
        if run > 0 {
            self.segments.push(RopeSegment::Inline(run));
            self.named = self.inline.len();
        }
    }

    fn push_piece(&mut self, piece: Bytes) {
        self.name_inline();
        self.segments.push(RopeSegment::Piece(piece));
    }
}

// SAFETY: the three required methods are those of `BytesMut`, whose promises they keep.
unsafe impl BufMut for Rope {
    fn remaining_mut(&self) -> usize {
        self.inline.remaining_mut()
    }

    /// # Safety
    /// The next `count` bytes of [`chunk_mut`](Self::chunk_mut) have been written.
    unsafe fn advance_mut(&mut self, count: usize) {
        // SAFETY: the caller wrote `count` bytes to what `chunk_mut` gave, which is this buffer's.
        unsafe { self.inline.advance_mut(count) };
    }

    fn chunk_mut(&mut self) -> &mut UninitSlice {
        self.inline.chunk_mut()
    }

    fn put_slice(&mut self, src: &[u8]) {
        self.inline.extend_from_slice(src);
    }

    fn put<T: Buf>(&mut self, mut src: T) {
        // Only a `Bytes` gives its content away without copying it, and its type cannot be asked
        // for, as `T` may borrow. Its size tells it from `&[u8]`, where `copy_to_bytes` would be a
        // copy that is copied again later. Another `Buf` of this size is encoded as rightly.
        let by_reference = size_of::<T>() == size_of::<Bytes>();
        while src.has_remaining() {
            let len = src.chunk().len();
            if by_reference && len >= self.piece_min {
                let piece = src.copy_to_bytes(len);
                self.push_piece(piece);
            } else {
                self.inline.extend_from_slice(src.chunk());
                src.advance(len);
            }
        }
    }
}

impl fmt::Debug for Rope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rope({} bytes, {} inline)", self.len(), self.inline.len())
    }
}
