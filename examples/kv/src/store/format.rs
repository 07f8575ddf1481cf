//! What lies in the file: three tables.
//!
//! `entries` has, under each key, the version and either the value itself or its length and where its
//! pieces are. A B-tree rewrites a page with all that lies in it, so values beside which small ones
//! would be rewritten lie apart, in `pieces`, cut so that each fills pages of its own.
//! 400 commits of one value each, a quarter of them of 100 kB among others of 100 bytes, write 25.0 MB so,
//! and 29.5 MB with all in one table; 600 more that replace small ones write 17.4 MB and 20.6 MB.
//!
//! An entry also has a sum of all that is in it, of its key and, where the value lies apart, one of that,
//! for redb looks at its own sums only after an end that was not in order: what a disk or somebody else
//! changed since would be given out as the value, or would say that another value's pieces are its own.
//! Format 1 had none. Its entries are read as they are, and have sums once they are written again; the first
//! write makes the file one of format 2, which a program that knows 1 alone refuses in words. `meta` also says
//! which format a file was made with, for where there never was one of format 1 nothing passes for its entry.

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

/// The first format whose entries all have sums.
const SUMMED: u8 = 2;

/// A value up to this length lies beside its key: some fit in a page of 4 KiB.
pub(super) const INLINE_BYTES_MAX: usize = 1 << 10;

/// The length of a piece: with its key and the page's header it just fits in the 64 pages that are
/// given out at once, of which a power of two would take 128.
pub(super) const PIECE_BYTES: usize = (256 << 10) - 128;

/// What kind an entry is: in format 1, and with sums. Four bits and more are between one that has sums and
/// any other: were it one, that bit would turn them off.
const INLINE: u8 = 0;
const APART: u8 = 1;
const INLINE_SUMMED: u8 = 0x5a;
const APART_SUMMED: u8 = 0xa6;

/// What lies under a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry<'a> {
    /// The value itself, which [`decode`](Self::decode) has compared with its sum.
    Inline { version: u64, value: &'a [u8] },
    /// Where the value is, and the [`Sum`] of it, which format 1 had not.
    Apart { version: u64, sum: Option<u32>, slot: u32, len: u64 },
}

impl<'a> Entry<'a> {
    /// Reads the entry of a key. `None` for what this program does not write under that key: nothing of it
    /// is to be believed then, not even which pieces are its own. In a file that was made with format
    /// `first`, entries of older ones are no more than damage.
    pub(super) fn decode(first: u8, key: &[u8], bytes: &'a [u8]) -> Option<Self> {
        let (version, rest) = bytes.split_first_chunk::<8>()?;
        let version = u64::from_le_bytes(*version);
        if version == 0 {
            return None; // no write has it, but every block of zeros
        }
        let (kind, rest) = rest.split_first()?;
        match *kind {
            INLINE if first < SUMMED => Some(Self::Inline { version, value: rest }),
            APART if first < SUMMED => Self::apart(version, None, rest),
            INLINE_SUMMED => {
                let (sum, value) = number(rest)?;
                let right = sum == Sum::begin(INLINE_SUMMED, key, version).with(value);
                right.then_some(Self::Inline { version, value })
            }
            APART_SUMMED => {
                let (head, rest) = number(rest)?;
                if head != Sum::begin(HEAD, key, version).with(rest) {
                    return None;
                }
                let (sum, rest) = number(rest)?;
                Self::apart(version, Some(sum), rest)
            }
            _ => None,
        }
    }

    fn apart(version: u64, sum: Option<u32>, rest: &[u8]) -> Option<Self> {
        let (slot, len) = number(rest)?;
        let len = u64::from_le_bytes(len.try_into().ok()?);
        // Memory is taken by this number.
        (len <= VALUE_BYTES_MAX as u64).then_some(Self::Apart { version, sum, slot, len })
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

/// The bytes of an entry that has its value.
pub(super) fn inline(key: &[u8], version: u64, value: &[u8]) -> Vec<u8> {
    let sum = Sum::begin(INLINE_SUMMED, key, version).with(value);
    let version = version.to_le_bytes();
    [&version[..], &[INLINE_SUMMED], &sum.to_le_bytes(), value].concat()
}

/// The bytes of an entry whose value of this [`Sum`] lies in pieces.
pub(super) fn apart(key: &[u8], version: u64, sum: u32, slot: u32, len: u64) -> Vec<u8> {
    let rest = [&sum.to_le_bytes()[..], &slot.to_le_bytes(), &len.to_le_bytes()].concat();
    let head = Sum::begin(HEAD, key, version).with(&rest);
    let version = version.to_le_bytes();
    [&version[..], &[APART_SUMMED], &head.to_le_bytes(), &rest].concat()
}

fn number(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (number, rest) = bytes.split_first_chunk::<4>()?;
    Some((u32::from_le_bytes(*number), rest))
}

/// What a sum is of, beside the kinds of entries: that of an entry whose value lies apart.
const HEAD: u8 = !APART_SUMMED;

/// The sum of a value that lies apart, while it is gone through.
///
/// CRC-32 finds what disks do, which is to lose or change a block; it is no defence against somebody who
/// means to deceive, who could change the sum as well.
pub(super) struct Sum(crc32fast::Hasher);

impl Sum {
    /// Of a key and a version, so that neither another key's value nor an older one passes for this one.
    pub(super) fn new(key: &[u8], version: u64) -> Self {
        Self::begin(APART_SUMMED, key, version)
    }

    fn begin(of: u8, key: &[u8], version: u64) -> Self {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&[of]);
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

    /// The sum of all that and of these last bytes.
    pub(super) fn with(mut self, value: &[u8]) -> u32 {
        self.add(value);
        self.end()
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

    /// Entries of the key `key`, and their bytes.
    fn entries() -> [(Entry<'static>, Vec<u8>); 3] {
        let len = VALUE_BYTES_MAX as u64;
        let value = b"value";
        [
            (Entry::Inline { version: 7, value }, inline(b"key", 7, value)),
            (Entry::Inline { version: 1, value: b"" }, inline(b"key", 1, b"")),
            (
                Entry::Apart { version: u64::MAX, sum: Some(9), slot: 3, len },
                apart(b"key", u64::MAX, 9, 3, len),
            ),
        ]
    }

    #[test]
    fn entries_are_read_as_they_were_written_and_others_are_refused() {
        for (entry, bytes) in entries() {
            assert_eq!(Entry::decode(FORMAT, b"key", &bytes), Some(entry));
            assert_eq!(Entry::decode(FORMAT, b"kez", &bytes), None);
            for len in 0..bytes.len() {
                assert_eq!(Entry::decode(FORMAT, b"key", &bytes[..len]), None, "{len}");
            }
        }
        for len in [VALUE_BYTES_MAX as u64 + 1, u64::MAX] {
            assert_eq!(Entry::decode(FORMAT, b"key", &apart(b"key", 1, 2, 3, len)), None, "{len}");
        }
        assert_eq!(Entry::decode(FORMAT, b"key", &[0; 40]), None);
        for kind in 0..=u8::MAX {
            assert_eq!(
                Entry::decode(FORMAT, b"key", &[&[1; 8][..], &[kind], &[0; 20]].concat()),
                None
            );
        }
    }

    #[test]
    fn no_single_bit_of_an_entry_can_change_unnoticed() {
        for (entry, bytes) in entries() {
            for bit in 0..bytes.len() * 8 {
                let mut bytes = bytes.clone();
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(Entry::decode(FORMAT, b"key", &bytes), None, "{entry:?}: {bit}");
            }
        }
    }

    #[test]
    fn entries_of_the_first_format_are_read_in_a_file_that_had_it() {
        let inline = [7, 0, 0, 0, 0, 0, 0, 0, 0, b'a', b'b'];
        let entry = Entry::Inline { version: 7, value: b"ab" };
        assert_eq!(Entry::decode(1, b"key", &inline), Some(entry));
        let apart = [7, 0, 0, 0, 0, 0, 0, 0, 1, 3, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0];
        let entry = Entry::Apart { version: 7, sum: None, slot: 3, len: 2_048 };
        assert_eq!(Entry::decode(1, b"key", &apart), Some(entry));
        assert_eq!(Entry::decode(1, b"key", &apart[..20]), None);
        for bytes in [&inline[..], &apart] {
            assert_eq!(Entry::decode(FORMAT, b"key", bytes), None);
        }
    }

    #[test]
    fn a_sum_tells_keys_versions_and_values_apart() {
        let sum = Sum::new(b"key", 1).with(b"value");
        for other in [
            Sum::new(b"key", 2).with(b"value"),
            Sum::new(b"kez", 1).with(b"value"),
            Sum::new(b"keyv", 1).with(b"alue"),
            Sum::new(b"key", 1).with(b"valuf"),
            Sum::new(b"key", 1).with(b"valu"),
            Sum::begin(INLINE_SUMMED, b"key", 1).with(b"value"),
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
