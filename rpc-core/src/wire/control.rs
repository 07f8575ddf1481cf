//! Bodies of the frames that carry no message.

use super::error::{at_least, at_most};
use super::reader::text;
use super::writer::cut;
use super::{DecodeError, FRAME_HEADER_BYTES, Full, Reader, SEND_HEADER_BYTES, Writer};

/// Bytes at most of a text that says why something was refused or ended.
pub const TEXT_BYTES_MAX: usize = 256;

/// Leases that one RELEASE answers at most: 4 KiB of them, half an eager buffer.
pub const RELEASES_MAX: usize = 256;

/// Bytes of padding in a CONFIRM at most: more than the longest MTU of verbs, 4096, and such that the
/// SEND fits any eager buffer.
pub const CONFIRM_PADDING_MAX: u32 = 6144;

/// Why the caller wants a call no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CancelReason {
    /// The caller dropped it.
    Dropped,
    /// Its deadline passed at the caller.
    Deadline,
    /// A reason of a later version.
    Other(u32),
}

/// The body of a CANCEL.
// docs/wire-format.md section 12.1
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cancel {
    /// Why.
    pub reason: CancelReason,
}

impl Cancel {
    /// Reads the body.
    pub fn decode(body: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let reason = match reader.u32("CANCEL reason")? {
            1 => CancelReason::Dropped,
            2 => CancelReason::Deadline,
            other => CancelReason::Other(other),
        };
        reader.reserved::<4>("CANCEL")?;
        reader.end("CANCEL")?;
        Ok(Self { reason })
    }

    /// Writes the body.
    pub fn encode(&self, w: &mut Writer<'_>) -> Result<(), Full> {
        w.u32(match self.reason {
            CancelReason::Dropped => 1,
            CancelReason::Deadline => 2,
            CancelReason::Other(other) => other,
        })?;
        w.u32(0)
    }
}

/// What became of the bytes under a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReleaseOutcome {
    /// They were read.
    Read,
    /// They were not wanted, or there was no memory for them.
    Skipped,
    /// A READ failed.
    Failed,
}

/// One lease that the receiver of a message needs no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    /// The lease, as the payload descriptors named it.
    pub lease: u64,
    /// What became of it.
    pub outcome: ReleaseOutcome,
}

impl Release {
    /// Bytes of one entry.
    pub const BYTES: usize = 16;

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let lease = reader.u64("RELEASE lease")?;
        let outcome = match reader.u8("RELEASE outcome")? {
            1 => ReleaseOutcome::Read,
            2 => ReleaseOutcome::Skipped,
            3 => ReleaseOutcome::Failed,
            other => {
                let (field, value) = ("RELEASE outcome", u64::from(other));
                return Err(DecodeError::Unknown { field, value });
            }
        };
        reader.reserved::<7>("RELEASE")?;
        Ok(Self { lease, outcome })
    }

    fn encode(&self, w: &mut Writer<'_>) -> Result<(), Full> {
        w.u64(self.lease)?;
        w.u8(match self.outcome {
            ReleaseOutcome::Read => 1,
            ReleaseOutcome::Skipped => 2,
            ReleaseOutcome::Failed => 3,
        })?;
        w.zeros(7)
    }
}

/// The body of a RELEASE that was decoded: an iterator over its entries, all of them checked.
// docs/wire-format.md section 12.2
#[derive(Clone, Debug)]
pub struct Releases<'a> {
    entries: Reader<'a>,
}

impl<'a> Releases<'a> {
    /// Bytes of the body before its entries.
    pub const HEAD_BYTES: usize = 8;

    /// Reads the body, all of it.
    pub fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let count = reader.u32("RELEASE count")? as usize;
        reader.reserved::<4>("RELEASE")?;
        at_least("RELEASE count", count as u64, 1)?;
        at_most("RELEASE count", count as u64, RELEASES_MAX as u64)?;
        let entries = Reader::new(reader.take("RELEASE entries", count * Release::BYTES)?);
        reader.end("RELEASE")?;
        let mut ahead = entries;
        while !ahead.is_empty() {
            Release::decode(&mut ahead)?;
        }
        Ok(Self { entries })
    }

    /// Writes a body of `list`, which has 1 to [`RELEASES_MAX`] entries; others are [`Full`].
    pub fn encode(list: &[Release], w: &mut Writer<'_>) -> Result<(), Full> {
        if list.is_empty() || list.len() > RELEASES_MAX {
            return Err(Full);
        }
        w.all_or_nothing(|w| {
            w.len_u32(list.len())?;
            w.u32(0)?;
            list.iter().try_for_each(|release| release.encode(w))
        })
    }

    /// How many entries of a RELEASE fit into a body of `room` bytes.
    pub fn fit(room: usize) -> usize {
        (room.saturating_sub(Self::HEAD_BYTES) / Release::BYTES).min(RELEASES_MAX)
    }
}

impl Iterator for Releases<'_> {
    type Item = Release;

    fn next(&mut self) -> Option<Release> {
        // They were decoded once already, so only their end stops this.
        Release::decode(&mut self.entries).ok()
    }
}

/// The body of a RECALL or a RETURN: a number of credits.
// docs/wire-format.md section 12.3
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// Credits.
    pub count: u32,
}

impl Count {
    /// Reads the body of the frame that `field` names.
    pub fn decode(field: &'static str, body: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let count = reader.u32(field)?;
        reader.reserved::<4>(field)?;
        reader.end(field)?;
        Ok(Self { count })
    }

    /// Writes the body.
    pub fn encode(&self, w: &mut Writer<'_>) -> Result<(), Full> {
        w.u32(self.count)?;
        w.u32(0)
    }
}

/// The body of a PING or a PONG.
// docs/wire-format.md section 12.4
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nonce {
    /// Chosen by the PING and repeated by its PONG.
    pub nonce: u64,
}

impl Nonce {
    /// Reads the body of the frame that `field` names.
    pub fn decode(field: &'static str, body: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let nonce = reader.u64(field)?;
        reader.end(field)?;
        Ok(Self { nonce })
    }

    /// Writes the body.
    pub fn encode(&self, w: &mut Writer<'_>) -> Result<(), Full> {
        w.u64(self.nonce)
    }
}

/// A code and a text: the body of a REFUSED or an ERROR, the end of a GOAWAY, a refusal.
// docs/wire-format.md section 12.5
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice<'a> {
    /// The number of a [`Code`](crate::Code); unknown numbers are kept.
    pub code: u32,
    /// Why, for people. What is longer than [`TEXT_BYTES_MAX`] is cut when it is encoded.
    pub text: &'a str,
}

impl<'a> Notice<'a> {
    /// Reads the body of the frame that `field` names.
    pub fn decode(field: &'static str, body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let notice = Self::read(field, &mut reader)?;
        reader.end(field)?;
        Ok(notice)
    }

    /// Writes the body.
    pub fn encode(&self, w: &mut Writer<'_>) -> Result<(), Full> {
        let text = cut(self.text, TEXT_BYTES_MAX);
        w.all_or_nothing(|w| {
            w.u32(self.code)?;
            w.len_u16(text.len())?;
            w.u16(0)?;
            w.bytes(text.as_bytes())
        })
    }

    pub(super) fn read(field: &'static str, reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let code = reader.u32(field)?;
        let text_len = usize::from(reader.u16(field)?);
        reader.reserved::<2>(field)?;
        at_most(field, text_len as u64, TEXT_BYTES_MAX as u64)?;
        let text = text(field, reader.take(field, text_len)?)?;
        Ok(Self { code, text })
    }
}

/// The body of a GOAWAY.
// docs/wire-format.md section 12.6
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GoAway<'a> {
    /// The last call of the peer that was or may be executed; those above it were not and will not.
    pub last_id: u64,
    /// Why.
    pub notice: Notice<'a>,
}

impl<'a> GoAway<'a> {
    /// Reads the body.
    pub fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let last_id = reader.u64("GOAWAY last id")?;
        let notice = Notice::read("GOAWAY text", &mut reader)?;
        reader.end("GOAWAY")?;
        Ok(Self { last_id, notice })
    }

    /// Writes the body.
    pub fn encode(&self, w: &mut Writer<'_>) -> Result<(), Full> {
        w.all_or_nothing(|w| {
            w.u64(self.last_id)?;
            self.notice.encode(w)
        })
    }
}

/// The body of a CONFIRM: the first frame each way on a QP.
///
/// Its padding makes the SEND longer than one MTU, so a path that drops long packets shows at once.
// docs/wire-format.md section 12.7
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Confirm {
    /// The HMAC that ties the QP to its control connection.
    pub mac: [u8; 32],
    /// Bytes of zeros after it, at most [`CONFIRM_PADDING_MAX`].
    pub padding: u32,
}

impl Confirm {
    /// Bytes of the body without padding.
    pub const BYTES: usize = 40;

    /// The padding that makes a SEND with a CONFIRM alone `send_bytes` long, rounded up to eight,
    /// and at least as long as a CONFIRM is.
    pub fn padding_for(send_bytes: u32) -> u32 {
        const ALONE: u32 = (SEND_HEADER_BYTES + FRAME_HEADER_BYTES + Confirm::BYTES) as u32;
        send_bytes.saturating_sub(ALONE).min(CONFIRM_PADDING_MAX).next_multiple_of(8)
    }

    /// Reads the body. What the padding holds is ignored.
    pub fn decode(body: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let mac = reader.array("CONFIRM mac")?;
        let padding = reader.u32("CONFIRM padding length")?;
        reader.reserved::<4>("CONFIRM")?;
        at_most("CONFIRM padding length", u64::from(padding), u64::from(CONFIRM_PADDING_MAX))?;
        reader.take("CONFIRM padding", padding as usize)?;
        reader.end("CONFIRM")?;
        Ok(Self { mac, padding })
    }

    /// Writes the body.
    pub fn encode(&self, w: &mut Writer<'_>) -> Result<(), Full> {
        if self.padding > CONFIRM_PADDING_MAX {
            return Err(Full);
        }
        w.all_or_nothing(|w| {
            w.bytes(&self.mac)?;
            w.u32(self.padding)?;
            w.u32(0)?;
            w.zeros(self.padding as usize)
        })
    }
}

impl std::fmt::Debug for Confirm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Confirm(mac hidden, {} bytes of padding)", self.padding)
    }
}
