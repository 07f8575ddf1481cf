use std::fmt;

use super::{DecodeError, padded};

/// A cursor over bytes of a peer. Every step is checked; none panics.
///
/// Each method takes the name of the field it reads, for the error.
#[derive(Clone, Copy)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads from the start of `bytes`.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Bytes not yet read.
    pub const fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Whether all is read.
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// All that is not yet read.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// The next `len` bytes.
    pub fn take(&mut self, field: &'static str, len: usize) -> Result<&'a [u8], DecodeError> {
        let have = self.rest.len();
        let Some((taken, rest)) = self.rest.split_at_checked(len) else {
            return Err(DecodeError::Truncated { field, need: len, have });
        };
        self.rest = rest;
        Ok(taken)
    }

    /// The next `len` bytes and the padding after them, which is dropped. The cursor must stand on a
    /// multiple of eight.
    pub fn take_padded(
        &mut self,
        field: &'static str,
        len: usize,
    ) -> Result<&'a [u8], DecodeError> {
        let whole = self.take(field, padded(len))?;
        Reader::new(whole).take(field, len)
    }

    /// The next `N` bytes.
    pub fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], DecodeError> {
        let have = self.rest.len();
        let Some((taken, rest)) = self.rest.split_first_chunk::<N>() else {
            return Err(DecodeError::Truncated { field, need: N, have });
        };
        self.rest = rest;
        Ok(*taken)
    }

    /// The next byte.
    pub fn u8(&mut self, field: &'static str) -> Result<u8, DecodeError> {
        self.array::<1>(field).map(|[byte]| byte)
    }

    /// The next 16-bit number.
    pub fn u16(&mut self, field: &'static str) -> Result<u16, DecodeError> {
        self.array(field).map(u16::from_le_bytes)
    }

    /// The next 32-bit number.
    pub fn u32(&mut self, field: &'static str) -> Result<u32, DecodeError> {
        self.array(field).map(u32::from_le_bytes)
    }

    /// The next 64-bit number.
    pub fn u64(&mut self, field: &'static str) -> Result<u64, DecodeError> {
        self.array(field).map(u64::from_le_bytes)
    }

    /// The next 128-bit number.
    pub fn u128(&mut self, field: &'static str) -> Result<u128, DecodeError> {
        self.array(field).map(u128::from_le_bytes)
    }

    /// Skips `N` reserved bytes. They are written as zero and ignored, so a later version may use
    /// them for what an older one need not know.
    pub fn reserved<const N: usize>(&mut self, field: &'static str) -> Result<(), DecodeError> {
        self.array::<N>(field).map(|_| ())
    }

    /// Fails if bytes are left.
    pub fn end(&self, field: &'static str) -> Result<(), DecodeError> {
        match self.rest.len() {
            0 => Ok(()),
            extra => Err(DecodeError::Trailing { field, extra }),
        }
    }
}

impl fmt::Debug for Reader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reader({} bytes left)", self.rest.len())
    }
}

/// `bytes` as text.
pub(crate) fn text<'a>(field: &'static str, bytes: &'a [u8]) -> Result<&'a str, DecodeError> {
    std::str::from_utf8(bytes).map_err(|_| DecodeError::NotUtf8 { field })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_that_is_cut_says_what_it_needs_and_the_cursor_stays() {
        let mut reader = Reader::new(&[1, 0, 2]);
        assert_eq!(reader.u16("first"), Ok(1));
        let cut = DecodeError::Truncated { field: "second", need: 4, have: 1 };
        assert_eq!(reader.u32("second"), Err(cut));
        assert_eq!(reader.u8("third"), Ok(2));
        assert_eq!(reader.end("all"), Ok(()));
    }

    #[test]
    fn padding_that_is_missing_is_an_error_and_no_length_overflows() {
        assert!(Reader::new(&[0; 7]).take_padded("name", 5).is_err());
        assert_eq!(Reader::new(&[7; 8]).take_padded("name", 5), Ok(&[7; 5][..]));
        assert!(Reader::new(&[0; 7]).take_padded("name", usize::MAX).is_err());
    }
}
