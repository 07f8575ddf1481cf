//! Messages as lists of segments.

use std::fmt;

use super::error::at_most;
use super::{DecodeError, Full, PayloadDescriptor, Reader, Writer};

/// Segments of a message at most: sixteen pieces with bytes before, between and after them are 33;
/// the rest is room for a later encoder that cuts inline bytes finer.
pub const SEGMENTS_MAX: usize = 64;

/// Payload descriptors of a message at most: each costs a window and a READ of its own.
pub const PIECES_MAX: usize = 16;

/// Bytes that the segments of a message take at most.
pub const SEGMENTS_BYTES_MAX: usize =
    SEGMENTS_MAX * ENTRY_BYTES + PIECES_MAX * PayloadDescriptor::BYTES;

const ENTRY_BYTES: usize = 8;
const KIND_INLINE: u8 = 0;
const KIND_PAYLOAD: u8 = 1;

/// A part of a message, in the message's order.
// docs/wire-format.md section 8
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segment {
    /// The next so many bytes of the frame's inline bytes; at least 1.
    Inline(u32),
    /// Bytes in the sender's memory.
    Payload(PayloadDescriptor),
}

/// The segments of one message, checked: either those of a frame that was decoded or a list to
/// encode. None means that all inline bytes are the message.
#[derive(Clone, Copy)]
pub struct Segments<'a>(Source<'a>);

#[derive(Clone, Copy)]
enum Source<'a> {
    Wire { bytes: &'a [u8], count: usize },
    List(&'a [Segment]),
}

impl<'a> Segments<'a> {
    /// No segments: the inline bytes are the message.
    pub const NONE: Self = Self(Source::List(&[]));

    /// Segments to encode. They are checked when they are.
    pub const fn new(list: &'a [Segment]) -> Self {
        Self(Source::List(list))
    }

    /// Reads `count` segments of a message with `inline_len` inline bytes, and checks all of them.
    pub fn decode(
        reader: &mut Reader<'a>,
        count: usize,
        inline_len: usize,
    ) -> Result<Self, DecodeError> {
        at_most("segment count", count as u64, SEGMENTS_MAX as u64)?;
        let mut ahead = *reader;
        for _ in 0..count {
            Segment::decode(&mut ahead)?;
        }
        let len = reader.remaining().saturating_sub(ahead.remaining());
        let bytes = reader.take("segments", len)?;
        let segments = Self(Source::Wire { bytes, count });
        segments.check(inline_len)?;
        Ok(segments)
    }

    /// The rules of a list as a whole, for a message with `inline_len` inline bytes: counts within
    /// their bounds, one lease, no empty segment, and inline counts that sum to `inline_len`.
    pub fn check(&self, inline_len: usize) -> Result<(), DecodeError> {
        at_most("segment count", self.len() as u64, SEGMENTS_MAX as u64)?;
        if self.is_empty() {
            return Ok(());
        }
        // At most 64 numbers of 32 bits: the sums cannot overflow.
        let (mut inline, mut pieces, mut lease) = (0_u64, 0_u64, None);
        for segment in self.iter() {
            match segment {
                Segment::Inline(0) => {
                    let field = "inline segment";
                    return Err(DecodeError::Invalid { field, rule: "names no bytes" });
                }
                Segment::Inline(len) => inline += u64::from(len),
                Segment::Payload(descriptor) => {
                    descriptor.check()?;
                    pieces += 1;
                    if *lease.get_or_insert(descriptor.lease) != descriptor.lease {
                        let rule = "names another lease than those before it in the message";
                        return Err(DecodeError::Invalid { field: "payload descriptor", rule });
                    }
                }
            }
        }
        at_most("payload descriptor count", pieces, PIECES_MAX as u64)?;
        if inline != inline_len as u64 {
            let field = "sum of the inline segments";
            return Err(DecodeError::Mismatch { field, stated: inline, found: inline_len as u64 });
        }
        Ok(())
    }

    /// Writes them.
    pub fn encode(&self, w: &mut Writer<'_>) -> Result<(), Full> {
        self.iter().try_for_each(|segment| segment.encode(w))
    }

    /// Bytes they take.
    pub fn encoded_len(&self) -> usize {
        match self.0 {
            Source::Wire { bytes, .. } => bytes.len(),
            Source::List(list) => list.iter().map(Segment::encoded_len).sum(),
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        match self.0 {
            Source::Wire { count, .. } => count,
            Source::List(list) => list.len(),
        }
    }

    /// Whether there is none, so that the inline bytes are the message.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The segments in order.
    pub fn iter(&self) -> SegmentIter<'a> {
        match self.0 {
            Source::Wire { bytes, .. } => SegmentIter(Source::Wire { bytes, count: 0 }),
            list @ Source::List(_) => SegmentIter(list),
        }
    }

    /// The payload descriptors in order.
    pub fn payloads(&self) -> impl Iterator<Item = PayloadDescriptor> + use<'a> {
        self.iter().filter_map(|segment| match segment {
            Segment::Payload(descriptor) => Some(descriptor),
            Segment::Inline(_) => None,
        })
    }

    /// Bytes that lie in the sender's memory.
    pub fn payload_bytes(&self) -> u64 {
        self.payloads().map(|descriptor| u64::from(descriptor.len)).sum()
    }

    /// The lease that covers the message, if any of it lies in the sender's memory.
    pub fn lease(&self) -> Option<u64> {
        self.payloads().next().map(|descriptor| descriptor.lease)
    }
}

impl Default for Segments<'_> {
    fn default() -> Self {
        Self::NONE
    }
}

impl PartialEq for Segments<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Segments<'_> {}

impl fmt::Debug for Segments<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a> IntoIterator for Segments<'a> {
    type Item = Segment;
    type IntoIter = SegmentIter<'a>;

    fn into_iter(self) -> SegmentIter<'a> {
        self.iter()
    }
}

/// The segments of a message, in order.
#[derive(Clone)]
pub struct SegmentIter<'a>(Source<'a>);

impl Iterator for SegmentIter<'_> {
    type Item = Segment;

    fn next(&mut self) -> Option<Segment> {
        match &mut self.0 {
            // The bytes were decoded once already, so only their end stops this.
            Source::Wire { bytes, .. } => {
                let mut reader = Reader::new(bytes);
                let segment = Segment::decode(&mut reader).ok()?;
                *bytes = reader.rest();
                Some(segment)
            }
            Source::List(list) => {
                let (first, rest) = list.split_first()?;
                *list = rest;
                Some(*first)
            }
        }
    }
}

impl fmt::Debug for SegmentIter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.clone()).finish()
    }
}

impl Segment {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let kind = reader.u8("segment kind")?;
        reader.reserved::<3>("segment")?;
        let len = reader.u32("inline segment length")?;
        match kind {
            KIND_INLINE => Ok(Self::Inline(len)),
            KIND_PAYLOAD => PayloadDescriptor::decode(reader).map(Self::Payload),
            _ => Err(DecodeError::Unknown { field: "segment kind", value: u64::from(kind) }),
        }
    }

    fn encode(&self, w: &mut Writer<'_>) -> Result<(), Full> {
        match self {
            Self::Inline(len) => {
                w.u32(u32::from(KIND_INLINE))?;
                w.u32(*len)
            }
            Self::Payload(descriptor) => {
                w.u32(u32::from(KIND_PAYLOAD))?;
                w.u32(0)?;
                descriptor.encode(w)
            }
        }
    }

    fn encoded_len(&self) -> usize {
        match self {
            Self::Inline(_) => ENTRY_BYTES,
            Self::Payload(_) => ENTRY_BYTES + PayloadDescriptor::BYTES,
        }
    }
}
