//! The body of a REQUEST.

use std::fmt;
use std::time::Duration;

use super::error::at_most;
use super::reader::text;
use super::segment::SEGMENTS_BYTES_MAX;
use super::{DecodeError, Full, NAME_BYTES_MAX, Reader, Segments, Writer, metadata, padded};
use crate::Metadata;

/// Bytes of a REQUEST before its inline bytes, at most.
pub const HEAD_BYTES_MAX: usize = FIXED_BYTES
    + TRACE_BYTES
    + TOKEN_BYTES
    + SEGMENTS_BYTES_MAX
    + padded(NAME_BYTES_MAX)
    + padded(Metadata::BYTES_MAX);

const FIXED_BYTES: usize = 24;
const TRACE_BYTES: usize = 32;
const TOKEN_BYTES: usize = 16;

const HAS_TRACE: u16 = 1;
const HAS_TOKEN: u16 = 2;

/// Where a call belongs in a distributed trace: the fields of W3C trace context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace.
    pub trace_id: [u8; 16],
    /// The caller's span.
    pub span_id: [u8; 8],
    /// Trace flags.
    pub flags: u8,
}

/// The body of a REQUEST.
// docs/wire-format.md section 9
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct RequestFrame<'a> {
    /// The method's number on this connection, chosen by the caller.
    pub method: u32,
    /// The method's full proto name, the first time its number is used.
    pub name: Option<&'a str>,
    /// What is left of the call's time; `None`: it has no deadline. Longer than 2⁶⁴ ns is cut to it,
    /// and nothing left travels as 1 ns.
    pub timeout: Option<Duration>,
    /// Higher goes first; 0 is usual.
    pub priority: u8,
    /// The trace it is part of.
    pub trace: Option<TraceContext>,
    /// The same for each repetition of one call.
    pub token: Option<u128>,
    /// Metadata as [`metadata`] encodes it, not yet looked into.
    pub metadata: &'a [u8],
    /// The message's segments in order; none: `inline` is the message.
    pub segments: Segments<'a>,
    /// The bytes of the message that travel in the frame.
    pub inline: &'a [u8],
}

impl<'a> RequestFrame<'a> {
    /// Reads the body of a REQUEST, all of it, and checks everything but the metadata's inside.
    pub fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let method = reader.u32("REQUEST method id")?;
        let flags = reader.u16("REQUEST flags")?;
        let priority = reader.u8("REQUEST priority")?;
        let segment_count = usize::from(reader.u8("segment count")?);
        let timeout = reader.u64("REQUEST remaining time")?;
        let metadata_len = usize::from(reader.u16("metadata length")?);
        let name_len = usize::from(reader.u16("REQUEST method name length")?);
        let inline_len = reader.u32("REQUEST inline length")? as usize;
        if flags & !(HAS_TRACE | HAS_TOKEN) != 0 {
            return Err(DecodeError::Unknown { field: "REQUEST flags", value: u64::from(flags) });
        }
        metadata::check_len(metadata_len)?;
        at_most("REQUEST method name length", name_len as u64, NAME_BYTES_MAX as u64)?;
        let trace = match flags & HAS_TRACE {
            0 => None,
            _ => Some(TraceContext::decode(&mut reader)?),
        };
        let token = match flags & HAS_TOKEN {
            0 => None,
            _ => Some(reader.u128("REQUEST idempotency token")?),
        };
        let segments = Segments::decode(&mut reader, segment_count, inline_len)?;
        let name = reader.take_padded("REQUEST method name", name_len)?;
        let name = text("REQUEST method name", name)?;
        let metadata = reader.take_padded("metadata", metadata_len)?;
        let inline = reader.take("REQUEST inline bytes", inline_len)?;
        reader.end("REQUEST")?;
        Ok(Self {
            method,
            name: (!name.is_empty()).then_some(name),
            timeout: (timeout != 0).then_some(Duration::from_nanos(timeout)),
            priority,
            trace,
            token,
            metadata,
            segments,
            inline,
        })
    }

    /// What a decoder would refuse: to be asked when a call is taken on, since a frame that breaks a
    /// rule fits nowhere.
    pub fn check(&self) -> Result<(), DecodeError> {
        if let Some(name) = self.name {
            at_most("REQUEST method name length", name.len() as u64, NAME_BYTES_MAX as u64)?;
            // On the wire it would be no name, and the peer would close over a number without one.
            if name.is_empty() {
                let field = "REQUEST method name";
                return Err(DecodeError::Invalid { field, rule: "is empty" });
            }
        }
        metadata::check_len(self.metadata.len())?;
        at_most("REQUEST inline length", self.inline.len() as u64, u64::from(u32::MAX))?;
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
            + self.trace.map_or(0, |_| TRACE_BYTES)
            + self.token.map_or(0, |_| TOKEN_BYTES)
            + self.segments.encoded_len()
            + padded(self.name.map_or(0, str::len))
            + padded(self.metadata.len())
            + self.inline.len()
    }

    fn write(&self, w: &mut Writer<'_>) -> Result<(), Full> {
        let name = self.name.unwrap_or("");
        let trace = if self.trace.is_some() { HAS_TRACE } else { 0 };
        let token = if self.token.is_some() { HAS_TOKEN } else { 0 };
        w.u32(self.method)?;
        w.u16(trace | token)?;
        w.u8(self.priority)?;
        w.u8(u8::try_from(self.segments.len()).map_err(|_| Full)?)?;
        w.u64(self.timeout.map_or(0, nanos))?;
        w.len_u16(self.metadata.len())?;
        w.len_u16(name.len())?;
        w.len_u32(self.inline.len())?;
        if let Some(trace) = &self.trace {
            trace.encode(w)?;
        }
        if let Some(token) = self.token {
            w.u128(token)?;
        }
        self.segments.encode(w)?;
        w.bytes_padded(name.as_bytes())?;
        w.bytes_padded(self.metadata)?;
        w.bytes(self.inline)
    }
}

/// Nanoseconds of what is left: 0 would mean that there is no deadline.
fn nanos(timeout: Duration) -> u64 {
    u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX).max(1)
}

impl TraceContext {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let field = "REQUEST trace context";
        let trace = Self {
            trace_id: reader.array(field)?,
            span_id: reader.array(field)?,
            flags: reader.u8(field)?,
        };
        reader.reserved::<7>(field)?;
        Ok(trace)
    }

    fn encode(&self, w: &mut Writer<'_>) -> Result<(), Full> {
        w.bytes(&self.trace_id)?;
        w.bytes(&self.span_id)?;
        w.u8(self.flags)?;
        w.zeros(7)
    }
}

impl fmt::Debug for RequestFrame<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What the user sends is not for logs.
        f.debug_struct("RequestFrame")
            .field("method", &self.method)
            .field("name", &self.name)
            .field("timeout", &self.timeout)
            .field("priority", &self.priority)
            .field("trace", &self.trace)
            .field("token", &self.token)
            .field("metadata", &format_args!("{} bytes", self.metadata.len()))
            .field("segments", &self.segments)
            .field("inline", &format_args!("{} bytes", self.inline.len()))
            .finish()
    }
}
