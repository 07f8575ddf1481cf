//! The header of a SEND, and how one is put together.

use super::error::{at_least, at_most};
use super::{ALIGN, DecodeError, FRAME_HEADER_BYTES, FrameFlags, FrameType, Frames, Full};
use super::{Reader, Writer};

/// Bytes of the header that each SEND begins with.
pub const SEND_HEADER_BYTES: usize = 32;

/// Flags of a SEND. Those of the low byte must be understood; unknown ones of the high byte are
/// ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SendFlags(u16);

impl SendFlags {
    /// None.
    pub const NONE: Self = Self(0);
    /// It spends no credit: it goes into the slot that the peer keeps for it.
    pub const CREDIT_ONLY: Self = Self(1);
    /// The sender has more to say than it has credits for.
    pub const WANTS_CREDIT: Self = Self(2);

    const KNOWN: u16 = 3;
    const IGNORABLE: u16 = 0xff00;

    /// The bits.
    pub const fn bits(self) -> u16 {
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

    fn from_wire(bits: u16) -> Result<Self, DecodeError> {
        if bits & !(Self::KNOWN | Self::IGNORABLE) != 0 {
            return Err(DecodeError::Unknown { field: "SEND flags", value: u64::from(bits) });
        }
        Ok(Self(bits & Self::KNOWN))
    }
}

/// What each SEND says beside its frames.
// docs/wire-format.md section 5
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendHeader {
    /// Flags.
    pub flags: SendFlags,
    /// The connection's epoch.
    pub epoch: u32,
    /// The number of this SEND; `protocol` says how it counts.
    pub sequence: u32,
    /// How many SENDs the peer may have issued in all, modulo 2³².
    pub limit: u32,
    /// How many SENDs of the peer were received in all, modulo 2³².
    pub received: u32,
}

impl SendHeader {
    /// Reads the header of a SEND that came as `bytes`, all of it, and gives its frames to walk.
    pub fn decode(bytes: &[u8]) -> Result<(Self, Frames<'_>), DecodeError> {
        let mut reader = Reader::new(bytes);
        let header_len = reader.u16("SEND header length")?;
        let flags = reader.u16("SEND flags")?;
        let frame_count = reader.u16("SEND frame count")?;
        reader.reserved::<2>("SEND header")?;
        let total_len = reader.u32("SEND total length")?;
        let header = Self {
            flags: SendFlags::from_wire(flags)?,
            epoch: reader.u32("SEND epoch")?,
            sequence: reader.u32("SEND sequence")?,
            limit: reader.u32("SEND limit")?,
            received: reader.u32("SEND received")?,
        };
        reader.reserved::<4>("SEND header")?;
        if total_len as usize != bytes.len() {
            let (stated, found) = (u64::from(total_len), bytes.len() as u64);
            return Err(DecodeError::Mismatch { field: "SEND total length", stated, found });
        }
        let field = "SEND header length";
        at_least(field, u64::from(header_len), SEND_HEADER_BYTES as u64)?;
        if !usize::from(header_len).is_multiple_of(ALIGN) {
            let (value, of) = (u64::from(header_len), ALIGN as u64);
            return Err(DecodeError::Unaligned { field, value, of });
        }
        // A later version may add to the header; what it adds may be ignored.
        reader.take(field, usize::from(header_len).saturating_sub(SEND_HEADER_BYTES))?;
        let frames_max = reader.remaining() / FRAME_HEADER_BYTES;
        at_most("SEND frame count", u64::from(frame_count), frames_max as u64)?;
        Ok((header, Frames::new(reader.rest(), frame_count)))
    }
}

/// Writes one SEND: frames first, then the header, which knows them.
#[derive(Debug)]
pub struct SendWriter<'a> {
    writer: Writer<'a>,
    frames: u16,
}

impl<'a> SendWriter<'a> {
    /// Begins a SEND in `buf`, whose length is the longest that the SEND may become.
    pub fn new(buf: &'a mut [u8]) -> Result<Self, Full> {
        let mut writer = Writer::new(buf);
        writer.zeros(SEND_HEADER_BYTES)?;
        Ok(Self { writer, frames: 0 })
    }

    /// Adds a frame whose body `write` writes. If it does not fit, the SEND is as it was.
    pub fn frame(
        &mut self,
        kind: FrameType,
        flags: FrameFlags,
        call: u64,
        write: impl FnOnce(&mut Writer<'_>) -> Result<(), Full>,
    ) -> Result<(), Full> {
        let frames = self.frames.checked_add(1).ok_or(Full)?;
        self.writer.all_or_nothing(|w| {
            w.u8(kind.to_u8())?;
            w.u8(flags.bits())?;
            w.u16(0)?;
            let len_at = w.len();
            w.u32(0)?;
            w.u64(call)?;
            let body_at = w.len();
            write(w)?;
            let len = u32::try_from(w.len().saturating_sub(body_at)).map_err(|_| Full)?;
            w.patch(len_at, &len.to_le_bytes())?;
            w.pad()
        })?;
        self.frames = frames;
        Ok(())
    }

    /// Frames so far.
    pub fn frames(&self) -> u16 {
        self.frames
    }

    /// Whether it has no frames yet.
    pub fn is_empty(&self) -> bool {
        self.frames == 0
    }

    /// Bytes so far, the header's included.
    pub fn len(&self) -> usize {
        self.writer.len()
    }

    /// The longest body that another frame can have.
    pub fn room(&self) -> usize {
        let room = self.writer.room() / ALIGN * ALIGN;
        room.saturating_sub(FRAME_HEADER_BYTES)
    }

    /// Writes the header. Returns the SEND's length.
    pub fn finish(mut self, header: &SendHeader) -> Result<usize, Full> {
        let len = self.writer.len();
        let total_len = u32::try_from(len).map_err(|_| Full)?;
        let mut head = [0; SEND_HEADER_BYTES];
        let mut w = Writer::new(&mut head);
        w.len_u16(SEND_HEADER_BYTES)?;
        w.u16(header.flags.bits())?;
        w.u16(self.frames)?;
        w.u16(0)?;
        w.u32(total_len)?;
        w.u32(header.epoch)?;
        w.u32(header.sequence)?;
        w.u32(header.limit)?;
        w.u32(header.received)?;
        w.u32(0)?;
        self.writer.patch(0, &head)?;
        Ok(len)
    }
}
