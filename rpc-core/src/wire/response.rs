//! The body of a RESPONSE.

use std::fmt;

use super::error::at_most;
use super::segment::SEGMENTS_BYTES_MAX;
use super::status::STATUS_BYTES_MAX;
use super::{DecodeError, Full, Reader, Segments, StatusBlock, Writer, metadata, padded};
use crate::Metadata;

/// Bytes of a RESPONSE before its inline bytes, at most.
pub const HEAD_BYTES_MAX: usize =
    FIXED_BYTES + STATUS_BYTES_MAX + SEGMENTS_BYTES_MAX + padded(Metadata::BYTES_MAX);

const FIXED_BYTES: usize = 16;

const HAS_STATUS: u16 = 1;

/// The body of a RESPONSE: the call was executed, and this is how it ended.
// docs/wire-format.md section 10
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct ResponseFrame<'a> {
    /// How it failed; `None`: it succeeded.
    pub status: Option<StatusBlock<'a>>,
    /// Metadata as [`metadata`] encodes it, not yet looked into.
    pub metadata: &'a [u8],
    /// The message's segments in order; none: `inline` is the message.
    pub segments: Segments<'a>,
    /// The bytes of the message that travel in the frame.
    pub inline: &'a [u8],
}

impl<'a> ResponseFrame<'a> {
    /// Reads the body of a RESPONSE, all of it, and checks everything but the metadata's inside.
    pub fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let flags = reader.u16("RESPONSE flags")?;
        let segment_count = usize::from(reader.u8("segment count")?);
        reader.reserved::<1>("RESPONSE")?;
        let metadata_len = usize::from(reader.u16("metadata length")?);
        reader.reserved::<2>("RESPONSE")?;
        let inline_len = reader.u32("RESPONSE inline length")? as usize;
        reader.reserved::<4>("RESPONSE")?;
        if flags & !HAS_STATUS != 0 {
            return Err(DecodeError::Unknown { field: "RESPONSE flags", value: u64::from(flags) });
        }
        metadata::check_len(metadata_len)?;
        let status = match flags & HAS_STATUS {
            0 => None,
            _ => Some(StatusBlock::decode(&mut reader)?),
        };
        let segments = Segments::decode(&mut reader, segment_count, inline_len)?;
        let metadata = reader.take_padded("metadata", metadata_len)?;
        let inline = reader.take("RESPONSE inline bytes", inline_len)?;
        reader.end("RESPONSE")?;
        Ok(Self { status, metadata, segments, inline })
    }

    /// What a decoder would refuse: to be asked when an answer is taken on, since a frame that
    /// breaks a rule fits nowhere.
    pub fn check(&self) -> Result<(), DecodeError> {
        if let Some(status) = &self.status {
            status.check()?;
        }
        metadata::check_len(self.metadata.len())?;
        at_most("RESPONSE inline length", self.inline.len() as u64, u64::from(u32::MAX))?;
        self.segments.check(self.inline.len())
    }

    /// Writes it all, or nothing if it does not fit or breaks a rule.
    pub fn encode(&self, w: &mut Writer<'_>) -> Result<(), Full> {
        self.check().map_err(|_| Full)?;
        w.all_or_nothing(|w| self.write(w))
    }

    /// Bytes that [`encode`](Self::encode) writes.
    pub fn encoded_len(&self) -> usize {
        FIXED_BYTES
            + self.status.as_ref().map_or(0, StatusBlock::encoded_len)
            + self.segments.encoded_len()
            + padded(self.metadata.len())
            + self.inline.len()
    }

    fn write(&self, w: &mut Writer<'_>) -> Result<(), Full> {
        w.u16(if self.status.is_some() { HAS_STATUS } else { 0 })?;
        w.u8(u8::try_from(self.segments.len()).map_err(|_| Full)?)?;
        w.u8(0)?;
        w.len_u16(self.metadata.len())?;
        w.u16(0)?;
        w.len_u32(self.inline.len())?;
        w.u32(0)?;
        if let Some(status) = &self.status {
            status.encode(w)?;
        }
        self.segments.encode(w)?;
        w.bytes_padded(self.metadata)?;
        w.bytes(self.inline)
    }
}

impl fmt::Debug for ResponseFrame<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What the user sends is not for logs.
        f.debug_struct("ResponseFrame")
            .field("status", &self.status)
            .field("metadata", &format_args!("{} bytes", self.metadata.len()))
            .field("segments", &self.segments)
            .field("inline", &format_args!("{} bytes", self.inline.len()))
            .finish()
    }
}
