//! The hello: versions, features and limits of one side, and what two sides agree on.

use std::fmt;

use super::error::{at_least, at_most};
use super::reader::text;
use super::{
    Candidate, DecodeError, Full, Reader, VERSION_MAX, VERSION_MIN, WindowType, Writer, candidate,
};

pub use super::handshake::{CONTROL_BYTES_MAX as HELLO_BYTES_MAX, frame_len};

/// Bytes of a peer's name at most.
pub const PEER_NAME_BYTES_MAX: usize = 64;

/// The shortest eager buffer: it holds all that can precede the inline bytes of a message.
pub const EAGER_BYTES_MIN: u32 = 8192;

/// The usual eager buffer: an 8 KiB page and its headers.
pub const EAGER_BYTES_DEFAULT: u32 = 9216;

/// The longest eager buffer: past it, a READ costs less than the memory of posted receives.
pub const EAGER_BYTES_MAX: u32 = 65_536;

/// Which side of a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The side that dialled.
    Connecting,
    /// The side that was dialled.
    Accepting,
}

/// A set of features, a bit for each. No feature is in use in version 1; bits that are given away
/// keep their meaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Features(pub u64);

impl Features {
    /// None.
    pub const NONE: Self = Self(0);
    /// A RELEASE may come as SEND_WITH_INV.
    pub const REMOTE_INVALIDATE: Self = Self(1);
    /// Payloads may carry checksums.
    pub const CHECKSUM: Self = Self(1 << 1);
    /// Streams.
    pub const STREAMS: Self = Self(1 << 2);
    /// A message may go on in the call's next frame.
    pub const MORE: Self = Self(1 << 3);

    const NAMES: [(Self, &'static str); 4] = [
        (Self::REMOTE_INVALIDATE, "remote-invalidate"),
        (Self::CHECKSUM, "checksum"),
        (Self::STREAMS, "streams"),
        (Self::MORE, "more"),
    ];

    /// Both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// What both sets have.
    #[must_use]
    pub const fn common(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// What `other` does not have.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether all of `other` is in it.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether it is empty.
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = *self;
        let mut comma = "";
        for (feature, name) in Self::NAMES {
            if self.has(feature) {
                write!(f, "{comma}{name}")?;
                comma = ", ";
                rest = rest.without(feature);
            }
        }
        match (rest.is_none(), self.is_none()) {
            (_, true) => f.write_str("none"),
            (true, _) => Ok(()),
            (false, _) => write!(f, "{comma}unknown bits {:#x}", rest.0),
        }
    }
}

/// What one side says of itself before anything else.
// docs/wire-format.md section 3
#[derive(Clone, PartialEq, Eq)]
pub struct Hello {
    /// The oldest version it speaks.
    pub version_min: u16,
    /// The newest version it speaks.
    pub version_max: u16,
    /// Which side it is.
    pub role: Role,
    /// What it can do.
    pub offered: Features,
    /// What it cannot do without; all of it is offered too.
    pub required: Features,
    /// Drawn anew each time its runtime starts.
    pub boot_id: u128,
    /// Drawn anew for each connection; keys its confirmation.
    pub nonce: [u8; 32],
    /// The connection's epoch, which the accepting side chooses; the connecting side's is ignored.
    pub epoch: u32,
    /// The longest SEND it can receive, [`EAGER_BYTES_MIN`] to [`EAGER_BYTES_MAX`], a multiple of 8.
    pub eager_bytes: u32,
    /// The longest message it takes.
    pub message_bytes_max: u64,
    /// What it calls itself, at most [`PEER_NAME_BYTES_MAX`] bytes; nobody checks it.
    pub name: String,
    /// How it guards memory that peers may READ.
    pub window: WindowType,
    /// What the accepting side can make the queue pair on, in the order that it prefers; none: what its
    /// address says. At most [`CANDIDATES_MAX`](candidate::CANDIDATES_MAX).
    pub candidates: Vec<Candidate>,
}

/// What two hellos agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Agreed {
    /// The newest version that both speak.
    pub version: u16,
    /// The features that both offer.
    pub features: Features,
    /// The connection's epoch.
    pub epoch: u32,
    /// The longest SEND either side may issue.
    pub eager_bytes: u32,
    /// The longest message either side may send.
    pub message_bytes_max: u64,
}

/// Two hellos that do not go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HelloError {
    /// The ranges of versions have none in common.
    #[error(
        "no protocol version is common: this side speaks {own_min} to {own_max} and the peer \
         {peer_min} to {peer_max}; upgrade {}",
        if own_max < peer_min { "this side" } else { "the peer" }
    )]
    Version {
        /// The oldest that this side speaks.
        own_min: u16,
        /// The newest that this side speaks.
        own_max: u16,
        /// The oldest that the peer speaks.
        peer_min: u16,
        /// The newest that the peer speaks.
        peer_max: u16,
    },
    /// The peer cannot do without features that this side has not.
    #[error(
        "the peer requires features that this side does not offer: {0}; upgrade this side, or \
         turn them off at the peer"
    )]
    PeerRequires(Features),
    /// This side cannot do without features that the peer has not.
    #[error(
        "this side requires features that the peer does not offer: {0}; upgrade the peer, or turn \
         them off at this side"
    )]
    OwnRequires(Features),
    /// Both say that they dialled, or that they were dialled.
    #[error(
        "both sides say that they are the {0:?} one: two clients or two servers are joined, as by a \
         proxy that is set up the wrong way"
    )]
    Role(Role),
}

impl Hello {
    /// A hello of this code's versions, with defaults for all that a side need not choose.
    pub fn new(role: Role, boot_id: u128, nonce: [u8; 32]) -> Self {
        Self {
            version_min: VERSION_MIN,
            version_max: VERSION_MAX,
            role,
            offered: Features::NONE,
            required: Features::NONE,
            boot_id,
            nonce,
            epoch: 0,
            eager_bytes: EAGER_BYTES_DEFAULT,
            message_bytes_max: 64 << 20,
            name: String::new(),
            window: WindowType::None,
            candidates: Vec::new(),
        }
    }

    /// What this side, which sent `self`, and the peer, which sent `peer`, agree on. Both sides come
    /// to the same.
    pub fn negotiate(&self, peer: &Self) -> Result<Agreed, HelloError> {
        if self.role == peer.role {
            return Err(HelloError::Role(self.role));
        }
        let version = self.version_max.min(peer.version_max);
        if version < self.version_min.max(peer.version_min) {
            return Err(HelloError::Version {
                own_min: self.version_min,
                own_max: self.version_max,
                peer_min: peer.version_min,
                peer_max: peer.version_max,
            });
        }
        let lacking = peer.required.without(self.offered);
        if !lacking.is_none() {
            return Err(HelloError::PeerRequires(lacking));
        }
        let lacking = self.required.without(peer.offered);
        if !lacking.is_none() {
            return Err(HelloError::OwnRequires(lacking));
        }
        let accepting = if self.role == Role::Accepting { self } else { peer };
        Ok(Agreed {
            version,
            features: self.offered.common(peer.offered),
            epoch: accepting.epoch,
            eager_bytes: self.eager_bytes.min(peer.eager_bytes),
            message_bytes_max: self.message_bytes_max.min(peer.message_bytes_max),
        })
    }

    /// The rules that a hello keeps to.
    pub fn check(&self) -> Result<(), DecodeError> {
        at_least("hello oldest version", u64::from(self.version_min), 1)?;
        let (min, max) = (u64::from(self.version_min), u64::from(self.version_max));
        at_least("hello newest version", max, min)?;
        if !self.offered.has(self.required) {
            let rule = "hold a bit that is not offered";
            return Err(DecodeError::Invalid { field: "hello required features", rule });
        }
        let (field, value) = ("hello eager bytes", u64::from(self.eager_bytes));
        at_least(field, value, u64::from(EAGER_BYTES_MIN))?;
        at_most(field, value, u64::from(EAGER_BYTES_MAX))?;
        if !value.is_multiple_of(8) {
            return Err(DecodeError::Unaligned { field, value, of: 8 });
        }
        at_least("hello longest message", self.message_bytes_max, 1)?;
        let candidates = self.candidates.len() as u64;
        at_most("hello candidates", candidates, candidate::CANDIDATES_MAX as u64)?;
        at_most("hello peer name length", self.name.len() as u64, PEER_NAME_BYTES_MAX as u64)
    }

    /// Reads what follows the prefix, all of it.
    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let version_min = reader.u16("hello oldest version")?;
        let version_max = reader.u16("hello newest version")?;
        let role = match reader.u8("hello role")? {
            1 => Role::Connecting,
            2 => Role::Accepting,
            other => {
                return Err(DecodeError::Unknown { field: "hello role", value: u64::from(other) });
            }
        };
        reader.reserved::<3>("hello")?;
        let offered = Features(reader.u64("hello offered features")?);
        let required = Features(reader.u64("hello required features")?);
        let values = Values::decode(reader)?;
        let hello = Self {
            version_min,
            version_max,
            role,
            offered,
            required,
            boot_id: values.boot_id.ok_or(DecodeError::Missing { field: "hello boot id" })?,
            nonce: values.nonce.ok_or(DecodeError::Missing { field: "hello nonce" })?,
            epoch: values.epoch.ok_or(DecodeError::Missing { field: "hello epoch" })?,
            eager_bytes: values
                .eager_bytes
                .ok_or(DecodeError::Missing { field: "hello eager bytes" })?,
            message_bytes_max: values
                .message_bytes_max
                .ok_or(DecodeError::Missing { field: "hello longest message" })?,
            name: values.name.unwrap_or_default().to_owned(),
            window: values.window.unwrap_or_default(),
            candidates: values.candidates.unwrap_or_default(),
        };
        hello.check()?;
        Ok(hello)
    }

    /// Writes what follows the prefix.
    pub(super) fn encode(&self, w: &mut Writer<'_>) -> Result<(), Full> {
        self.check().map_err(|_| Full)?;
        w.u16(self.version_min)?;
        w.u16(self.version_max)?;
        w.u8(match self.role {
            Role::Connecting => 1,
            Role::Accepting => 2,
        })?;
        w.zeros(3)?;
        w.u64(self.offered.0)?;
        w.u64(self.required.0)?;
        tlv(w, tag::BOOT_ID, &self.boot_id.to_le_bytes())?;
        tlv(w, tag::NONCE, &self.nonce)?;
        tlv(w, tag::EPOCH, &self.epoch.to_le_bytes())?;
        tlv(w, tag::EAGER_BYTES, &self.eager_bytes.to_le_bytes())?;
        tlv(w, tag::MESSAGE_BYTES_MAX, &self.message_bytes_max.to_le_bytes())?;
        tlv(w, tag::WINDOW, &[self.window.to_u8()])?;
        if !self.name.is_empty() {
            tlv(w, tag::NAME, self.name.as_bytes())?;
        }
        if !self.candidates.is_empty() {
            w.u16(tag::CANDIDATES)?;
            w.len_u16(self.candidates.len() * candidate::CANDIDATE_BYTES)?;
            w.u32(0)?;
            Candidate::encode_all(&self.candidates, w)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Hello {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The nonce keys the confirmation.
        f.debug_struct("Hello")
            .field("versions", &(self.version_min..=self.version_max))
            .field("role", &self.role)
            .field("offered", &format_args!("{}", self.offered))
            .field("required", &format_args!("{}", self.required))
            .field("boot_id", &format_args!("{:032x}", self.boot_id))
            .field("epoch", &self.epoch)
            .field("eager_bytes", &self.eager_bytes)
            .field("message_bytes_max", &self.message_bytes_max)
            .field("name", &self.name)
            .field("window", &self.window)
            .field("candidates", &self.candidates)
            .finish_non_exhaustive()
    }
}

/// Numbers of the values. 0 is none; a number is never given twice.
mod tag {
    pub(super) const BOOT_ID: u16 = 1;
    pub(super) const NONCE: u16 = 2;
    pub(super) const EPOCH: u16 = 3;
    pub(super) const EAGER_BYTES: u16 = 4;
    pub(super) const MESSAGE_BYTES_MAX: u16 = 5;
    pub(super) const NAME: u16 = 6;
    pub(super) const WINDOW: u16 = 7;
    pub(super) const CANDIDATES: u16 = 8;
}

/// The values that a hello may hold.
#[derive(Default)]
struct Values<'a> {
    boot_id: Option<u128>,
    nonce: Option<[u8; 32]>,
    epoch: Option<u32>,
    eager_bytes: Option<u32>,
    message_bytes_max: Option<u64>,
    name: Option<&'a str>,
    window: Option<WindowType>,
    candidates: Option<Vec<Candidate>>,
}

impl<'a> Values<'a> {
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let mut values = Self::default();
        while !reader.is_empty() {
            let tag = reader.u16("hello value type")?;
            let len = usize::from(reader.u16("hello value length")?);
            reader.reserved::<4>("hello value")?;
            let value = reader.take_padded("hello value", len)?;
            values.set(tag, value)?;
        }
        Ok(values)
    }

    fn set(&mut self, tag: u16, value: &'a [u8]) -> Result<(), DecodeError> {
        match tag {
            tag::BOOT_ID => once("hello boot id", &mut self.boot_id, value, u128::from_le_bytes),
            tag::NONCE => once("hello nonce", &mut self.nonce, value, |nonce| nonce),
            tag::EPOCH => once("hello epoch", &mut self.epoch, value, u32::from_le_bytes),
            tag::EAGER_BYTES => {
                once("hello eager bytes", &mut self.eager_bytes, value, u32::from_le_bytes)
            }
            tag::MESSAGE_BYTES_MAX => once(
                "hello longest message",
                &mut self.message_bytes_max,
                value,
                u64::from_le_bytes,
            ),
            tag::NAME => {
                let field = "hello peer name";
                at_most("hello peer name length", value.len() as u64, PEER_NAME_BYTES_MAX as u64)?;
                put(field, &mut self.name, text(field, value)?)
            }
            tag::WINDOW => {
                let field = "hello window type";
                let mut reader = Reader::new(value);
                let window = WindowType::from_u8(field, reader.u8(field)?)?;
                reader.end(field)?;
                put(field, &mut self.window, window)
            }
            tag::CANDIDATES => {
                put("hello candidates", &mut self.candidates, Candidate::decode_all(value)?)
            }
            // Of a later version, which this one may do without.
            _ => Ok(()),
        }
    }
}

/// Sets a value of a fixed size that may come once.
fn once<const N: usize, T>(
    field: &'static str,
    slot: &mut Option<T>,
    value: &[u8],
    read: impl FnOnce([u8; N]) -> T,
) -> Result<(), DecodeError> {
    let mut reader = Reader::new(value);
    let array = reader.array(field)?;
    reader.end(field)?;
    put(field, slot, read(array))
}

fn put<T>(field: &'static str, slot: &mut Option<T>, value: T) -> Result<(), DecodeError> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(DecodeError::Duplicate { field }),
    }
}

fn tlv(w: &mut Writer<'_>, tag: u16, value: &[u8]) -> Result<(), Full> {
    w.u16(tag)?;
    w.len_u16(value.len())?;
    w.u32(0)?;
    w.bytes_padded(value)
}
