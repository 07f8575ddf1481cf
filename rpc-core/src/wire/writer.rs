use std::fmt;

use super::ALIGN;

/// What was to be written does not fit. Nothing of it was written that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// A cursor that writes into memory of a fixed size.
///
/// Positions count from the start of that memory, which is the start of a SEND or of a control
/// message, so padding to a multiple of eight is padding of the message.
pub struct Writer<'a> {
    buf: &'a mut [u8],
    len: usize,
}

impl<'a> Writer<'a> {
    /// Writes from the start of `buf`.
    pub fn new(buf: &'a mut [u8]) -> Self {
        Self { buf, len: 0 }
    }

    /// Bytes written.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing is written.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes that can still be written.
    pub fn room(&self) -> usize {
        self.buf.len().saturating_sub(self.len)
    }

    /// Forgets what was written after the first `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Runs `write`; if it does not fit, all that it wrote is forgotten.
    pub fn all_or_nothing(
        &mut self,
        write: impl FnOnce(&mut Self) -> Result<(), Full>,
    ) -> Result<(), Full> {
        let start = self.len;
        write(self).inspect_err(|_| self.truncate(start))
    }

    /// Writes `bytes`.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), Full> {
        self.reserve(bytes.len())?.copy_from_slice(bytes);
        Ok(())
    }

    /// Writes `bytes`, and zeros up to the next multiple of eight.
    pub fn bytes_padded(&mut self, bytes: &[u8]) -> Result<(), Full> {
        self.bytes(bytes)?;
        self.pad()
    }

    /// Writes `len` zeros.
    pub fn zeros(&mut self, len: usize) -> Result<(), Full> {
        self.reserve(len)?.fill(0);
        Ok(())
    }

    /// Writes zeros up to the next multiple of eight.
    pub fn pad(&mut self) -> Result<(), Full> {
        let over = self.len % ALIGN;
        if over == 0 { Ok(()) } else { self.zeros(ALIGN - over) }
    }

    /// Writes a byte.
    pub fn u8(&mut self, value: u8) -> Result<(), Full> {
        self.bytes(&[value])
    }

    /// Writes a 16-bit number.
    pub fn u16(&mut self, value: u16) -> Result<(), Full> {
        self.bytes(&value.to_le_bytes())
    }

    /// Writes a 32-bit number.
    pub fn u32(&mut self, value: u32) -> Result<(), Full> {
        self.bytes(&value.to_le_bytes())
    }

    /// Writes a 64-bit number.
    pub fn u64(&mut self, value: u64) -> Result<(), Full> {
        self.bytes(&value.to_le_bytes())
    }

    /// Writes a 128-bit number.
    pub fn u128(&mut self, value: u128) -> Result<(), Full> {
        self.bytes(&value.to_le_bytes())
    }

    /// Writes a length as 16 bits; one that needs more never fits.
    pub fn len_u16(&mut self, len: usize) -> Result<(), Full> {
        self.u16(u16::try_from(len).map_err(|_| Full)?)
    }

    /// Writes a length as 32 bits; one that needs more never fits.
    pub fn len_u32(&mut self, len: usize) -> Result<(), Full> {
        self.u32(u32::try_from(len).map_err(|_| Full)?)
    }

    /// Overwrites bytes that are already written; those that are not, are [`Full`].
    pub fn patch(&mut self, at: usize, bytes: &[u8]) -> Result<(), Full> {
        let end = at.checked_add(bytes.len()).filter(|&end| end <= self.len).ok_or(Full)?;
        self.buf.get_mut(at..end).ok_or(Full)?.copy_from_slice(bytes);
        Ok(())
    }

    fn reserve(&mut self, len: usize) -> Result<&mut [u8], Full> {
        let end = self.len.checked_add(len).ok_or(Full)?;
        let reserved = self.buf.get_mut(self.len..end).ok_or(Full)?;
        self.len = end;
        Ok(reserved)
    }
}

impl fmt::Debug for Writer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Writer({} of {} bytes)", self.len, self.buf.len())
    }
}

/// The start of `text`, at most `max` bytes, cut between characters.
pub(crate) fn cut(text: &str, max: usize) -> &str {
    if text.len() <= max {
        return text;
    }
    let end = (0..=max).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    text.get(..end).unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_leaves_nothing_behind() {
        let mut buf = [9; 10];
        let mut writer = Writer::new(&mut buf);
        writer.u16(1).unwrap();
        let full = writer.all_or_nothing(|w| {
            w.u32(2)?;
            w.u64(3)
        });
        assert_eq!((full, writer.len()), (Err(Full), 2));
        writer.pad().unwrap();
        assert_eq!((writer.len(), writer.room()), (8, 2));
        assert_eq!(writer.patch(7, &[1, 1]), Err(Full), "only what is written can be patched");
        assert_eq!(buf, [1, 0, 0, 0, 0, 0, 0, 0, 9, 9]);
    }

    #[test]
    fn text_is_cut_between_characters() {
        assert_eq!(cut("abc", 3), "abc");
        assert_eq!(cut("abcd", 3), "abc");
        assert_eq!(cut("aßb", 2), "a");
        assert_eq!(cut("ß", 1), "");
    }
}
