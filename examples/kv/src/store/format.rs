//! What lies in the file: three tables.
//!
//! `entries` has, under each key, the version and either the value itself or its length and where its
//! pieces are. A B-tree rewrites a page with all that lies in it, so values beside which small ones
//! would be rewritten lie apart, in `pieces`, cut so that each fills pages of its own.
//! 400 commits of one value each, a quarter of them of 100 kB among others of 100 bytes, write 25.0 MB so,
//! and 29.5 MB with all in one table; 600 more that replace small ones write 17.4 MB and 20.6 MB.

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

/// The number of this format. A file with another is refused.
pub(super) const FORMAT: u8 = 1;

/// A value up to this length lies beside its key: some fit in a page of 4 KiB.
pub(super) const INLINE_BYTES_MAX: usize = 1 << 10;

/// The length of a piece: with its key and the page's header it just fits in the 64 pages that are
/// given out at once, of which a power of two would take 128.
pub(super) const PIECE_BYTES: usize = (256 << 10) - 128;

const INLINE: u8 = 0;
const APART: u8 = 1;

/// What lies under a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry<'a> {
    /// The value itself.
    Inline { version: u64, value: &'a [u8] },
    /// Where the value is.
    Apart { version: u64, slot: u32, len: u64 },
}

impl<'a> Entry<'a> {
    /// Reads an entry. `None` for what this program does not write.
    pub(super) fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (version, rest) = bytes.split_first_chunk::<8>()?;
        let version = u64::from_le_bytes(*version);
        match rest.split_first()? {
            (&INLINE, value) => Some(Self::Inline { version, value }),
            (&APART, rest) => {
                let (slot, len) = rest.split_first_chunk::<4>()?;
                let len = u64::from_le_bytes(len.try_into().ok()?);
                if len > VALUE_BYTES_MAX as u64 {
                    return None; // memory is taken by this number
                }
                Some(Self::Apart { version, slot: u32::from_le_bytes(*slot), len })
            }
            _ => None,
        }
    }

    /// The entry's bytes.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = self.version().to_le_bytes().to_vec();
        match self {
            Self::Inline { value, .. } => {
                bytes.push(INLINE);
                bytes.extend_from_slice(value);
            }
            Self::Apart { slot, len, .. } => {
                bytes.push(APART);
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
        let inline = Entry::Inline { version: 7, value: b"value" };
        let apart = Entry::Apart { version: u64::MAX, slot: 3, len: VALUE_BYTES_MAX as u64 };
        for entry in [inline, Entry::Inline { version: 1, value: b"" }, apart] {
            assert_eq!(Entry::decode(&entry.encode()), Some(entry));
        }
        let bytes = apart.encode();
        for len in 0..bytes.len() {
            assert_eq!(Entry::decode(&bytes[..len]), None, "{len}");
        }
        assert_eq!(Entry::decode(&[0, 0, 0, 0, 0, 0, 0, 0, 2]), None);
        for len in [VALUE_BYTES_MAX as u64 + 1, u64::MAX] {
            let long = Entry::Apart { version: 1, slot: 0, len };
            assert_eq!(Entry::decode(&long.encode()), None, "{len}");
        }
    }

    #[test]
    fn pieces_are_as_many_as_a_value_is_cut_into() {
        for len in [1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES] {
            let value = Bytes::from(vec![0; len]);
            assert_eq!(cut(&value).count(), pieces(len as u64) as usize, "{len}");
        }
    }
}
