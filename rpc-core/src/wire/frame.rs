//! Frames: their header, their types, and the walk over those of a SEND.

use std::fmt;

use super::{DecodeError, Reader};

/// Bytes of the header that each frame begins with.
pub const FRAME_HEADER_BYTES: usize = 16;

/// The bit of a call id that says that the accepting side began the call.
pub const CALL_FROM_ACCEPTING: u64 = 1 << 63;

/// The bit of a frame's type that says that who does not know it may skip it.
const SKIPPABLE: u8 = 0x80;

macro_rules! frame_types {
    ($($name:ident = $number:literal, $doc:literal;)*) => {
        /// What a frame says.
        // docs/wire-format.md section 6
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum FrameType {
            $(#[doc = $doc] $name,)*
            /// A type of a later version, number 128 to 255, which may be skipped.
            Skippable(u8),
        }

        impl FrameType {
            /// The types that this version knows.
            pub const KNOWN: &'static [Self] = &[$(Self::$name),*];

            /// The number on the wire.
            pub const fn to_u8(self) -> u8 {
                match self {
                    $(Self::$name => $number,)*
                    Self::Skippable(number) => number | SKIPPABLE,
                }
            }

            /// The type of a number, `None` if it is unknown and may not be skipped.
            pub const fn from_u8(number: u8) -> Option<Self> {
                match number {
                    $($number => Some(Self::$name),)*
                    _ if number & SKIPPABLE != 0 => Some(Self::Skippable(number)),
                    _ => None,
                }
            }
        }
    };
}

frame_types! {
    Request = 1, "Begins a call.";
    Response = 2, "Ends a call with its answer.";
    Item = 3, "A message of a stream; laid out when streams are.";
    Cancel = 4, "The caller wants the call no more.";
    Release = 5, "Leases that the receiver of messages needs no longer.";
    Credit = 6, "Nothing: it stands in a SEND that is sent for its header's credits.";
    Recall = 7, "Asks for unused credits back.";
    Return = 8, "Gives unused credits back.";
    StreamCredit = 9, "Byte credits of a stream; laid out when streams are.";
    Ping = 10, "Asks for a PONG.";
    Pong = 11, "Answers a PING.";
    GoAway = 12, "No call above an id was or will be executed.";
    Refused = 13, "The call was not executed.";
    Error = 14, "The connection ends, and why.";
    Confirm = 15, "Proves that this QP belongs to its control connection.";
}

/// Flags of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FrameFlags(u8);

impl FrameFlags {
    /// None.
    pub const NONE: Self = Self(0);
    /// The message goes on in the call's next frame.
    pub const MORE: Self = Self(1);
    /// The sender says nothing more in this call.
    pub const END: Self = Self(2);
    /// The last four bytes of the body are a CRC32C of those before.
    pub const CHECKSUM: Self = Self(4);

    /// The flags of bits; `None` if one of them has no meaning.
    pub const fn from_bits(bits: u8) -> Option<Self> {
        if bits & !7 == 0 { Some(Self(bits)) } else { None }
    }

    /// The bits.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `other` is set.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// One frame of a SEND.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// What it says.
    pub kind: FrameType,
    /// Its flags.
    pub flags: FrameFlags,
    /// The call it is about; 0 where it is about none.
    pub call: u64,
    /// Its body without padding, to be read by its type's decoder.
    pub body: &'a [u8],
}

impl fmt::Debug for Frame<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The body may hold descriptors.
        f.debug_struct("Frame")
            .field("kind", &self.kind)
            .field("flags", &self.flags)
            .field("call", &self.call)
            .field("body", &format_args!("{} bytes", self.body.len()))
            .finish()
    }
}

/// The frames of a SEND in order. After an error there are no more.
///
/// A frame of an unknown type is [`FrameType::Skippable`] if its type says so, otherwise an error.
#[derive(Clone, Debug)]
pub struct Frames<'a> {
    reader: Reader<'a>,
    left: u16,
    ended: bool,
    allowed: FrameFlags,
}

impl<'a> Frames<'a> {
    /// Reads `count` frames, which must be all of `bytes`.
    pub const fn new(bytes: &'a [u8], count: u16) -> Self {
        // Whoever does not put messages together must not take a part for the whole, nor a
        // checksum for data: MORE and CHECKSUM are errors until they are allowed.
        let allowed = FrameFlags::END;
        Self { reader: Reader::new(bytes), left: count, ended: false, allowed }
    }

    /// Allows flags that were agreed with the peer, beside END.
    #[must_use]
    pub const fn allowing(mut self, flags: FrameFlags) -> Self {
        self.allowed = self.allowed.and(flags);
        self
    }

    /// Frames that are still to come.
    pub const fn left(&self) -> u16 {
        self.left
    }

    fn decode(&mut self) -> Result<Frame<'a>, DecodeError> {
        let number = self.reader.u8("frame type")?;
        let bits = self.reader.u8("frame flags")?;
        self.reader.reserved::<2>("frame header")?;
        let len = self.reader.u32("frame length")?;
        let call = self.reader.u64("frame call id")?;
        let body = self.reader.take_padded("frame body", len as usize)?;
        let kind = FrameType::from_u8(number).ok_or_else(|| DecodeError::Unknown {
            field: "frame type",
            value: u64::from(number),
        })?;
        let skipped = matches!(kind, FrameType::Skippable(_));
        let flags = match FrameFlags::from_bits(bits) {
            Some(flags) if skipped || self.allowed.has(flags) => flags,
            None if skipped => FrameFlags::NONE,
            _ => {
                return Err(DecodeError::Unknown { field: "frame flags", value: u64::from(bits) });
            }
        };
        Ok(Frame { kind, flags, call, body })
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<Frame<'a>, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                self.decode()
            }
            None => {
                self.ended = true;
                return self.reader.end("last frame").err().map(Err);
            }
        };
        self.ended = next.is_err();
        Some(next)
    }
}

impl std::iter::FusedIterator for Frames<'_> {}
