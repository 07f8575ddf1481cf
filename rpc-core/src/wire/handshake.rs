//! Messages of the control connection: how they are framed, and which there are.

use std::fmt;

use super::error::{at_least, at_most};
use super::{ALIGN, AddressBlob, DecodeError, Full, Hello, Notice, Reader, Writer};

/// Bytes of a message on the control connection at most, its prefix included.
pub const CONTROL_BYTES_MAX: usize = 4096;

/// Bytes of the prefix of each message on the control connection.
pub const PREFIX_BYTES: usize = 16;

/// What each message on the control connection begins with. It holds a byte above 127 and both line
/// ends, so that neither text nor a transfer that changes line ends passes for it.
pub const MAGIC: [u8; 8] = *b"\x89rpcq\r\n\x1a";

/// What a message on the control connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ControlKind {
    /// A [`Hello`].
    Hello,
    /// An [`AddressBlob`].
    Blob,
    /// A [`Refusal`].
    Refused,
}

impl ControlKind {
    const fn to_u16(self) -> u16 {
        match self {
            Self::Hello => 1,
            Self::Blob => 2,
            Self::Refused => 3,
        }
    }

    fn from_u16(kind: u16) -> Result<Self, DecodeError> {
        match kind {
            1 => Ok(Self::Hello),
            2 => Ok(Self::Blob),
            3 => Ok(Self::Refused),
            _ => {
                Err(DecodeError::Unknown { field: "control message kind", value: u64::from(kind) })
            }
        }
    }
}

/// Beside the status code in a [`Refusal`]: the device on which the queue pair was to be is why, so the peer may
/// try another of this side's candidates.
pub const REFUSED_FOR_DEVICE: u32 = 1 << 8;

/// The answer of a peer that will not connect, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The number of a [`Code`](crate::Code); unknown numbers are kept.
    pub code: u32,
    /// Why, for people; cut to [`TEXT_BYTES_MAX`](super::control::TEXT_BYTES_MAX) when encoded.
    pub text: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let code = crate::Code::from_u32(self.code);
        write!(f, "the peer refused the connection: {} ({code:?}, {})", self.text, self.code)
    }
}

impl std::error::Error for Refusal {}

/// A message on the control connection.
// docs/wire-format.md section 2
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ControlMessage {
    /// Who speaks and what it can do.
    Hello(Hello),
    /// How its QP is reached.
    Blob(AddressBlob),
    /// It will not connect.
    Refused(Refusal),
}

impl ControlMessage {
    /// Which kind it is.
    pub const fn kind(&self) -> ControlKind {
        match self {
            Self::Hello(_) => ControlKind::Hello,
            Self::Blob(_) => ControlKind::Blob,
            Self::Refused(_) => ControlKind::Refused,
        }
    }

    /// Reads one message, all of `bytes`, whose length [`frame_len`] gave.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let prefix = Prefix::decode(&mut reader)?;
        if prefix.len != bytes.len() {
            let (stated, found) = (prefix.len as u64, bytes.len() as u64);
            return Err(DecodeError::Mismatch { field: "control message length", stated, found });
        }
        match ControlKind::from_u16(prefix.kind)? {
            ControlKind::Hello => Hello::decode(&mut reader).map(Self::Hello),
            ControlKind::Blob => AddressBlob::decode(&mut reader).map(Self::Blob),
            ControlKind::Refused => {
                let Notice { code, text } = Notice::read("refusal", &mut reader)?;
                Ok(Self::Refused(Refusal { code, text: text.into() }))
            }
        }
    }

    /// The message's bytes, at most [`CONTROL_BYTES_MAX`]. [`Full`] if a value in it breaks a rule,
    /// as a name that is too long.
    pub fn encode(&self) -> Result<Vec<u8>, Full> {
        let mut buf = [0; CONTROL_BYTES_MAX];
        let mut w = Writer::new(&mut buf);
        w.bytes(&MAGIC)?;
        w.u16(self.kind().to_u16())?;
        w.u16(0)?;
        let len_at = w.len();
        w.u32(0)?;
        match self {
            Self::Hello(hello) => hello.encode(&mut w)?,
            Self::Blob(blob) => blob.encode(&mut w)?,
            Self::Refused(refusal) => {
                Notice { code: refusal.code, text: &refusal.text }.encode(&mut w)?;
            }
        }
        w.pad()?;
        let len = w.len();
        w.patch(len_at, &u32::try_from(len).map_err(|_| Full)?.to_le_bytes())?;
        Ok(buf.get(..len).unwrap_or_default().to_vec())
    }
}

/// How many bytes the message has of which `bytes` are the first that came; `None` until enough
/// came to know. A stream that does not begin with the magic fails at its first wrong byte, and a
/// length above [`CONTROL_BYTES_MAX`] before anything is kept for it.
pub fn frame_len(bytes: &[u8]) -> Result<Option<usize>, DecodeError> {
    let begun = bytes.get(..MAGIC.len()).unwrap_or(bytes);
    if !MAGIC.starts_with(begun) {
        return Err(DecodeError::Magic);
    }
    if bytes.len() < PREFIX_BYTES {
        return Ok(None);
    }
    Prefix::decode(&mut Reader::new(bytes)).map(|prefix| Some(prefix.len))
}

struct Prefix {
    kind: u16,
    len: usize,
}

impl Prefix {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        if reader.array("magic")? != MAGIC {
            return Err(DecodeError::Magic);
        }
        let kind = reader.u16("control message kind")?;
        reader.reserved::<2>("control message prefix")?;
        let field = "control message length";
        let len = reader.u32(field)?;
        at_least(field, u64::from(len), PREFIX_BYTES as u64)?;
        at_most(field, u64::from(len), CONTROL_BYTES_MAX as u64)?;
        if !(len as usize).is_multiple_of(ALIGN) {
            let (value, of) = (u64::from(len), ALIGN as u64);
            return Err(DecodeError::Unaligned { field, value, of });
        }
        Ok(Self { kind, len: len as usize })
    }
}
