//! A failed call's status as bytes.

use bytes::Bytes;

use super::error::at_most;
use super::reader::text;
use super::writer::cut;
use super::{DecodeError, Full, Reader, Writer, padded};
use crate::{Code, Execution, Status};

/// Bytes of a status's message at most: a page of text is a log, not a message.
pub const MESSAGE_BYTES_MAX: usize = 1024;

/// Bytes of a status's details at most.
pub const DETAILS_BYTES_MAX: usize = 2048;

/// Bytes that a status takes in a RESPONSE at most.
pub(super) const STATUS_BYTES_MAX: usize =
    padded(HEAD_BYTES + MESSAGE_BYTES_MAX + DETAILS_BYTES_MAX);

const HEAD_BYTES: usize = 8;

/// How a call failed, as it lies in a RESPONSE.
// docs/wire-format.md section 10
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatusBlock<'a> {
    /// The number of a [`Code`]; unknown numbers are kept.
    pub code: u32,
    /// A message for people. What is longer than [`MESSAGE_BYTES_MAX`] is cut when it is encoded.
    pub message: &'a str,
    /// Bytes for a program, at most [`DETAILS_BYTES_MAX`].
    pub details: &'a [u8],
}

impl<'a> StatusBlock<'a> {
    /// Reads one.
    pub fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let code = reader.u32("status code")?;
        let message_len = usize::from(reader.u16("status message length")?);
        let details_len = usize::from(reader.u16("status details length")?);
        at_most("status message length", message_len as u64, MESSAGE_BYTES_MAX as u64)?;
        at_most("status details length", details_len as u64, DETAILS_BYTES_MAX as u64)?;
        let both = reader.take_padded("status", message_len + details_len)?;
        let mut both = Reader::new(both);
        let message = text("status message", both.take("status message", message_len)?)?;
        Ok(Self { code, message, details: both.rest() })
    }

    /// What is checked before it is encoded.
    pub fn check(&self) -> Result<(), DecodeError> {
        at_most("status details length", self.details.len() as u64, DETAILS_BYTES_MAX as u64)
    }

    /// Writes it, its message cut to its bound.
    pub fn encode(&self, w: &mut Writer<'_>) -> Result<(), Full> {
        let message = cut(self.message, MESSAGE_BYTES_MAX);
        w.u32(self.code)?;
        w.len_u16(message.len())?;
        w.len_u16(self.details.len())?;
        w.bytes(message.as_bytes())?;
        w.bytes_padded(self.details)
    }

    /// Bytes it takes.
    pub fn encoded_len(&self) -> usize {
        padded(HEAD_BYTES + cut(self.message, MESSAGE_BYTES_MAX).len() + self.details.len())
    }

    /// The same, owned.
    pub fn to_wire_status(&self) -> WireStatus {
        let details = Bytes::copy_from_slice(self.details);
        WireStatus { code: self.code, message: self.message.into(), details }
    }
}

/// How a call failed, owned: what `protocol` keeps until it is sent, or gives to the caller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WireStatus {
    /// The number of a [`Code`].
    pub code: u32,
    /// A message for people.
    pub message: String,
    /// Bytes for a program.
    pub details: Bytes,
}

impl WireStatus {
    /// A status without details.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code: code as u32, message: message.into(), details: Bytes::new() }
    }

    /// What of a status travels here; its metadata travels in the frame's metadata. Details above
    /// their bound are left out, and the message says so.
    pub fn from_status(status: &Status) -> Self {
        let (code, message) = (status.code() as u32, status.message());
        if status.details().len() <= DETAILS_BYTES_MAX {
            return Self { code, message: message.to_owned(), details: status.details().clone() };
        }
        let note = format!(
            " (its {} bytes of details were left out: at most {DETAILS_BYTES_MAX} travel)",
            status.details().len()
        );
        let message = cut(message, MESSAGE_BYTES_MAX.saturating_sub(note.len())).to_owned() + &note;
        Self { code, message, details: Bytes::new() }
    }

    /// The status that the caller sees.
    pub fn into_status(self, execution: Execution) -> Status {
        Status::new(Code::from_u32(self.code), self.message)
            .with_details(self.details)
            .with_execution(execution)
    }

    /// The same, borrowed, to encode.
    pub fn as_block(&self) -> StatusBlock<'_> {
        StatusBlock { code: self.code, message: &self.message, details: &self.details }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_that_do_not_fit_are_left_out_and_the_message_says_so() {
        let long = "x".repeat(5000);
        let status = Status::internal(long).with_details(vec![1; DETAILS_BYTES_MAX + 1]);
        let wire = WireStatus::from_status(&status);
        assert!(wire.details.is_empty());
        assert!(wire.message.len() <= MESSAGE_BYTES_MAX);
        assert!(
            wire.message.ends_with("2049 bytes of details were left out: at most 2048 travel)")
        );
    }

    #[test]
    fn a_status_survives_the_way_and_an_unknown_code_is_unknown() {
        let status = Status::not_found("no such key").with_details(&b"k"[..]);
        let back = WireStatus::from_status(&status).into_status(Execution::Executed);
        assert_eq!((back.code(), back.message()), (Code::NotFound, "no such key"));
        assert_eq!(back.details().as_ref(), b"k");
        let odd = WireStatus { code: 99, ..WireStatus::default() };
        assert_eq!(odd.into_status(Execution::Executed).code(), Code::Unknown);
    }
}
