#![forbid(unsafe_code)]

use std::cell::RefCell;

use bytes::{Bytes, BytesMut};
use prost::Message;

use super::yields::yield_now;
use super::{CodecError, Rope, RopeSegment};
use crate::mem::{BLOCK_BYTES_MAX, PayloadMut, Pool, Share, Use};

/// Bytes copied before other tasks of the executor run: some 50 µs.
const COPY_SLICE_BYTES: usize = 256 << 10;

/// What shapes an outgoing message.
#[derive(Clone, Copy, Debug)]
pub struct OutboundLimits {
    /// Bytes of a frame that the message and its segment list may take.
    pub eager_space: usize,
    /// Bytes of a frame that one segment of the list takes at most.
    pub segment_bytes: usize,
    /// A field of at least so many bytes travels by descriptor; a shorter one inside the frame.
    /// Below 16 KiB a copy costs less than a window and a READ.
    pub piece_min: usize,
    /// Descriptors per message at most: each costs a window and READs of its own.
    pub pieces_max: usize,
    /// Bytes of a message at most.
    pub message_bytes_max: u64,
}

impl Default for OutboundLimits {
    fn default() -> Self {
        Self {
            eager_space: 8 << 10,
            segment_bytes: 32,
            piece_min: 16 << 10,
            pieces_max: 16,
            message_bytes_max: 128 << 20,
        }
    }
}

/// A part of an outgoing message, in the message's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutSegment {
    /// The next so many bytes of the inline bytes; at least 1.
    Inline(u32),
    /// Bytes in payload memory: advertised as they lie.
    Piece(Bytes),
}

/// A message ready to travel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outbound {
    /// What travels inside the frame.
    pub inline: Bytes,
    /// How inline bytes and pieces follow each other. None: the inline bytes are the message.
    pub segments: Vec<OutSegment>,
}

/// A message after encoding.
#[derive(Debug)]
pub enum Encoded {
    /// It travels inside the frame.
    Eager(Outbound),
    /// Its large parts still have to be in payload memory: see [`Rope::place`].
    Large(Rope),
}

impl Encoded {
    /// Encodes a message on the calling thread.
    ///
    /// # Errors
    /// [`CodecError::TooLarge`], before anything is encoded.
    pub fn new<M: Message>(message: &M, limits: &OutboundLimits) -> Result<Self, CodecError> {
        let len = message.encoded_len();
        if len as u64 > limits.message_bytes_max {
            return Err(CodecError::TooLarge { len: len as u64, max: limits.message_bytes_max });
        }
        if len <= limits.eager_space {
            let inline = encode_inline(message, len);
            return Ok(Self::Eager(Outbound { inline, segments: Vec::new() }));
        }
        Ok(Self::Large(Rope::encode(message, limits.piece_min)))
    }

    /// Brings the message into the form it travels in: see [`Rope::place`].
    pub async fn prepare(
        self,
        pool: &Pool,
        purpose: Use,
        limits: &OutboundLimits,
    ) -> Result<Outbound, CodecError> {
        match self {
            Self::Eager(outbound) => Ok(outbound),
            Self::Large(rope) => rope.place(pool, purpose, limits).await,
        }
    }
}

/// Small messages that a thread encodes share blocks of this size: they leave soon after one another,
/// and none keeps more than a block.
const BLOCK_BYTES: usize = 4 << 10;
/// A message up to this long is small: at least eight fit into a block.
const SMALL_BYTES_MAX: usize = BLOCK_BYTES / 8;

thread_local! {
    /// What is left of this thread's block.
    static BLOCK: RefCell<BytesMut> = RefCell::new(BytesMut::new());
}

/// The encoding of a message of `len` bytes that travels inside a frame.
fn encode_inline<M: Message>(message: &M, len: usize) -> Bytes {
    let encode_in = |mut buffer: BytesMut| {
        message.encode_raw(&mut buffer);
        buffer
    };
    if len > SMALL_BYTES_MAX {
        return encode_in(BytesMut::with_capacity(len)).freeze();
    }
    // Taken out while it is used: an encoder of the program's own may encode another message.
    let mut left = BLOCK.take();
    // A block whose messages have all gone is used again.
    if left.capacity() < len && !left.try_reclaim(BLOCK_BYTES) {
        left = BytesMut::with_capacity(BLOCK_BYTES);
    }
    let mut block = encode_in(left);
    let inline = block.split().freeze();
    BLOCK.set(block);
    inline
}

impl Rope {
    /// Sees to it that every large part lies in payload memory.
    ///
    /// A piece that lies there already stays as it is; any other is copied there once, and so are
    /// inline bytes for which the frame has no space. Pieces beyond `pieces_max` are merged with
    /// all that follows them. Copying is done in slices, between which other tasks run.
    ///
    /// # Errors
    /// [`CodecError::Memory`] when the outbound share has no room, now or ever;
    /// [`CodecError::TooLarge`] when not even `pieces_max` buffers of the longest kind hold it.
    pub async fn place(
        self,
        pool: &Pool,
        purpose: Use,
        limits: &OutboundLimits,
    ) -> Result<Outbound, CodecError> {
        let mut parts = Parts::new(self, pool);
        // Merging takes inline bytes out of the frame too, so what it does not take is looked at
        // next; and that may make pieces of its own.
        parts.merge_tail(limits)?;
        parts.move_out_inline(limits);
        parts.merge_tail(limits)?;
        let lens = parts.copied_lens();
        let mut buffers = pool.alloc_all(Share::Outbound, purpose, &lens)?.into_iter();
        let mut copier = Copier::default();
        let mut outbound = Outbound::default();
        let mut inline = BytesMut::new();
        for part in parts.0 {
            match part {
                Part::Inline(bytes) => {
                    outbound.segments.push(OutSegment::Inline(bytes.len() as u32));
                    inline.extend_from_slice(&bytes);
                }
                Part::Placed(bytes) => outbound.segments.push(OutSegment::Piece(bytes)),
                Part::Copied(sources) => {
                    let piece = match buffers.next() {
                        Some(buffer) => copier.fill(buffer, &sources).await,
                        // One buffer was taken for each; this arm only spares a panic.
                        None => Bytes::new(),
                    };
                    outbound.segments.push(OutSegment::Piece(piece));
                }
            }
        }
        outbound.inline = inline.freeze();
        Ok(outbound)
    }
}

/// What becomes of a part of the message.
enum Part {
    /// It stays inside the frame.
    Inline(Bytes),
    /// It lies in payload memory.
    Placed(Bytes),
    /// These bytes, one after the other, are copied into one buffer; at most the longest there is.
    Copied(Vec<Bytes>),
}

impl Part {
    fn len(&self) -> usize {
        match self {
            Self::Inline(bytes) | Self::Placed(bytes) => bytes.len(),
            Self::Copied(sources) => sources.iter().map(Bytes::len).sum(),
        }
    }
}

struct Parts(Vec<Part>);

impl Parts {
    fn new(rope: Rope, pool: &Pool) -> Self {
        let (mut inline, segments) = rope.into_parts();
        let mut parts = Vec::with_capacity(segments.len());
        for segment in segments {
            match segment {
                RopeSegment::Inline(len) => parts.push(Part::Inline(inline.split_to(len))),
                RopeSegment::Piece(bytes) if pool.locate(&bytes).is_some() => {
                    parts.push(Part::Placed(bytes));
                }
                RopeSegment::Piece(bytes) => parts.extend(in_buffers(vec![bytes])),
            }
        }
        Self(parts)
    }

    fn inline_len(&self) -> usize {
        let inline = self.0.iter().filter(|part| matches!(part, Part::Inline(_)));
        inline.map(Part::len).sum()
    }

    /// Moves inline runs out of the frame, longest first, until the rest fits.
    fn move_out_inline(&mut self, limits: &OutboundLimits) {
        // Each part is one segment, now and after it became a piece.
        let listed = self.0.len() * limits.segment_bytes;
        let space = limits.eager_space.saturating_sub(listed);
        let mut inline_len = self.inline_len();
        if inline_len <= space {
            return;
        }
        let mut runs: Vec<_> = (0..self.0.len())
            .filter(|index| matches!(self.0[*index], Part::Inline(_)))
            .map(|index| (self.0[index].len(), index))
            .collect();
        runs.sort_unstable();
        let mut moved = vec![false; self.0.len()];
        while inline_len > space {
            let Some((len, index)) = runs.pop() else { break };
            inline_len -= len;
            moved[index] = true;
        }
        let mut parts = Vec::with_capacity(self.0.len());
        for (part, moved) in self.0.drain(..).zip(moved) {
            match part {
                Part::Inline(bytes) if moved => parts.extend(in_buffers(vec![bytes])),
                part => parts.push(part),
            }
        }
        self.0 = parts;
    }

    /// Merges the parts from some point on, so that no more than `pieces_max` pieces remain.
    fn merge_tail(&mut self, limits: &OutboundLimits) -> Result<(), CodecError> {
        let is_piece = |part: &Part| !matches!(part, Part::Inline(_));
        let mut before = self.0.iter().filter(|part| is_piece(part)).count();
        if before <= limits.pieces_max {
            return Ok(());
        }
        let (mut at, mut tail_len) = (self.0.len(), 0_usize);
        while before + tail_len.div_ceil(BLOCK_BYTES_MAX) > limits.pieces_max {
            let Some(index) = at.checked_sub(1) else {
                let max = (limits.pieces_max * BLOCK_BYTES_MAX) as u64;
                return Err(CodecError::TooLarge { len: tail_len as u64, max });
            };
            at = index;
            before -= usize::from(is_piece(&self.0[at]));
            tail_len += self.0[at].len();
        }
        let mut sources = Vec::new();
        for part in self.0.drain(at..) {
            match part {
                Part::Inline(bytes) | Part::Placed(bytes) => sources.push(bytes),
                Part::Copied(more) => sources.extend(more),
            }
        }
        self.0.extend(in_buffers(sources));
        Ok(())
    }

    /// The length of each buffer to copy into.
    fn copied_lens(&self) -> Vec<u32> {
        let copied = self.0.iter().filter(|part| matches!(part, Part::Copied(_)));
        copied.map(|part| part.len() as u32).collect()
    }
}

/// Cuts bytes to be copied into as many buffers as they need.
fn in_buffers(sources: Vec<Bytes>) -> Vec<Part> {
    let (mut buffers, mut current, mut room) = (Vec::new(), Vec::new(), BLOCK_BYTES_MAX);
    for mut source in sources {
        while source.len() > room {
            current.push(source.split_to(room));
            buffers.push(Part::Copied(std::mem::take(&mut current)));
            room = BLOCK_BYTES_MAX;
        }
        room -= source.len();
        current.push(source);
    }
    if !current.is_empty() {
        buffers.push(Part::Copied(current));
    }
    buffers
}

/// Copies in slices, and lets other tasks run between them.
#[derive(Default)]
struct Copier {
    since_yield: usize,
}

impl Copier {
    async fn fill(&mut self, mut buffer: PayloadMut, sources: &[Bytes]) -> Bytes {
        let mut at = 0;
        for slice in sources.iter().flat_map(|source| source.chunks(COPY_SLICE_BYTES)) {
            if self.since_yield + slice.len() > COPY_SLICE_BYTES {
                self.since_yield = 0;
                yield_now().await;
            }
            buffer[at..at + slice.len()].copy_from_slice(slice);
            at += slice.len();
            self.since_yield += slice.len();
        }
        buffer.freeze()
    }
}
