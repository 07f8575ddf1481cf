//! What lies in the file: three tables.
//!
//! `entries` has, under each key, the version and either the value itself or its length and where its
//! pieces are. A B-tree rewrites a page with all that lies in it, so values beside which small ones
//! would be rewritten lie apart, in `pieces`, cut so that each fills pages of its own.
//! 400 commits of one value each, a quarter of them of 100 kB among others of 100 bytes, write 25.0 MB so,
//! and 29.5 MB with all in one table; 600 more that replace small ones write 17.4 MB and 20.6 MB.
//!
//! An entry also has a sum of its key, its version and its value, for redb looks at its own sums only after
//! an end that was not in order: what a disk or somebody else changed since would be given out as the value.
//! Format 1 had none. Its entries are read as they are, and have one once they are written again; the first
//! write makes the file one of format 2, which a program that knows 1 alone refuses in words.

use redb::TableDefinition;
use rpc_core::bytes::Bytes;

use crate::limits::VALUE_BYTES_MAX;

/// Keys and what is under them.
pub(super) const ENTRIES: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("entries");

/// Pieces of longer values: version of the write, which write of its batch, which piece.
pub(super) const PIECES: TableDefinition<'static, (u64, u32, u32), &[u8]> =
    TableDefinition::new("pieces");

/// [`FORMAT`], and what [`Totals`](super::writer::Totals) tells.
pub(super) const META: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("meta");

/// The number of this format. A file with a higher one is refused.
pub(super) const FORMAT: u8 = 2;

/// The first format that is read.
pub(super) const FORMAT_MIN: u8 = 1;

/// A value up to this length lies beside its key: some fit in a page of 4 KiB.
pub(super) const INLINE_BYTES_MAX: usize = 1 << 10;

/// The length of a piece: with its key and the page's header it just fits in the 64 pages that are
/// given out at once, of which a power of two would take 128.
pub(super) const PIECE_BYTES: usize = (256 << 10) - 128;

/// What kind an entry is: in format 1, and with a sum.
const INLINE: u8 = 0;
const APART: u8 = 1;
const INLINE_SUMMED: u8 = 2;
const APART_SUMMED: u8 = 3;

/// What lies under a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry<'a> {
    /// The value itself.
    Inline { version: u64, sum: Option<u32>, value: &'a [u8] },
    /// Where the value is.
    Apart { version: u64, sum: Option<u32>, slot: u32, len: u64 },
}

impl<'a> Entry<'a> {
    /// Reads an entry. `None` for what this program does not write.
    pub(super) fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (version, rest) = bytes.split_first_chunk::<8>()?;
        let version = u64::from_le_bytes(*version);
        let (kind, rest) = rest.split_first()?;
        let (sum, rest) = match *kind {
            INLINE | APART => (None, rest),
            INLINE_SUMMED | APART_SUMMED => {
                let (sum, rest) = rest.split_first_chunk::<4>()?;
                (Some(u32::from_le_bytes(*sum)), rest)
            }
            _ => return None,
        };
        if matches!(*kind, INLINE | INLINE_SUMMED) {
            return Some(Self::Inline { version, sum, value: rest });
        }
        let (slot, len) = rest.split_first_chunk::<4>()?;
        let len = u64::from_le_bytes(len.try_into().ok()?);
        if len > VALUE_BYTES_MAX as u64 {
            return None; // memory is taken by this number
        }
        Some(Self::Apart { version, sum, slot: u32::from_le_bytes(*slot), len })
    }

    /// The entry's bytes.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = self.version().to_le_bytes().to_vec();
        let (kind, sum) = match self {
            Self::Inline { sum: None, .. } => (INLINE, None),
            Self::Apart { sum: None, .. } => (APART, None),
            Self::Inline { sum, .. } => (INLINE_SUMMED, *sum),
            Self::Apart { sum, .. } => (APART_SUMMED, *sum),
        };
        bytes.push(kind);
        if let Some(sum) = sum {
            bytes.extend_from_slice(&sum.to_le_bytes());
        }
        match self {
            Self::Inline { value, .. } => bytes.extend_from_slice(value),
            Self::Apart { slot, len, .. } => {
                bytes.extend_from_slice(&slot.to_le_bytes());
                bytes.extend_from_slice(&len.to_le_bytes());
            }
        }
        bytes
    }

    pub(super) fn version(&self) -> u64 {
        match self {
            Self::Inline { version, .. } | Self::Apart { version, .. } => *version,
        }
    }

    /// The length of the value.
    pub(super) fn len(&self) -> u64 {
        match self {
            Self::Inline { value, .. } => value.len() as u64,
            Self::Apart { len, .. } => *len,
        }
    }
}

/// The sum of an entry, while its value is gone through.
///
/// CRC-32 finds what disks do, which is to lose or change a block; it is no defence against somebody who
/// means to deceive, who could change the sum as well.
pub(super) struct Sum(crc32fast::Hasher);

impl Sum {
    /// Of a key and a version, so that neither another key's entry nor an older one passes for this one.
    pub(super) fn new(key: &[u8], version: u64) -> Self {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&version.to_le_bytes());
        hasher.update(&(key.len() as u64).to_le_bytes());
        hasher.update(key);
        Self(hasher)
    }

    /// And of some bytes of the value.
    pub(super) fn add(&mut self, value: &[u8]) {
        self.0.update(value);
    }

    /// The sum of all that.
    pub(super) fn end(self) -> u32 {
        self.0.finalize()
    }

    /// The sum of an entry whose value is in one place.
    pub(super) fn of(key: &[u8], version: u64, value: &[u8]) -> u32 {
        let mut sum = Self::new(key, version);
        sum.add(value);
        sum.end()
    }
}

/// How many pieces a value of this length has.
pub(super) fn pieces(len: u64) -> u32 {
    u32::try_from(len.div_ceil(PIECE_BYTES as u64)).unwrap_or(u32::MAX)
}

/// The pieces of a value.
pub(super) fn cut(value: &Bytes) -> impl Iterator<Item = (u32, &[u8])> {
    (0..).zip(value.chunks(PIECE_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read_as_they_were_written_and_others_are_refused() {
        let len = VALUE_BYTES_MAX as u64;
        let inline = |sum| Entry::Inline { version: 7, sum, value: b"value" };
        let apart = |sum, len| Entry::Apart { version: u64::MAX, sum, slot: 3, len };
        let empty = Entry::Inline { version: 1, sum: Some(1), value: b"" };
        for sum in [None, Some(u32::MAX)] {
            for entry in [inline(sum), empty, apart(sum, len)] {
                assert_eq!(Entry::decode(&entry.encode()), Some(entry));
            }
            let bytes = apart(sum, len).encode();
            for len in 0..bytes.len() {
                assert_eq!(Entry::decode(&bytes[..len]), None, "{len}");
            }
            for len in [len + 1, u64::MAX] {
                assert_eq!(Entry::decode(&apart(sum, len).encode()), None, "{len}");
            }
        }
        assert_eq!(Entry::decode(&[0, 0, 0, 0, 0, 0, 0, 0, 4]), None);
        assert_eq!(Entry::decode(&empty.encode()[..12]), None);
    }

    #[test]
    fn a_sum_tells_keys_versions_and_values_apart() {
        let sum = Sum::of(b"key", 1, b"value");
        for other in [
            Sum::of(b"key", 2, b"value"),
            Sum::of(b"kez", 1, b"value"),
            Sum::of(b"keyv", 1, b"alue"),
            Sum::of(b"key", 1, b"valuf"),
            Sum::of(b"key", 1, b"valu"),
        ] {
            assert_ne!(other, sum);
        }
        let mut parts = Sum::new(b"key", 1);
        parts.add(b"va");
        parts.add(b"lue");
        assert_eq!(parts.end(), sum);
    }

    #[test]
    fn pieces_are_as_many_as_a_value_is_cut_into() {
        for len in [1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES] {
            let value = Bytes::from(vec![0; len]);
            assert_eq!(cut(&value).count(), pieces(len as u64) as usize, "{len}");
        }
    }
}
