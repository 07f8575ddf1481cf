use rpc_core::bytes::Bytes;

use crate::limits::VALUE_BYTES_MAX;

/// One value of a file: the whole of it, or a part where the file is longer than a value may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Which part, from 0.
    pub(crate) index: u64,
    /// Whether the file has other parts too.
    pub(crate) of_many: bool,
    /// Where it begins in the file.
    pub(crate) offset: u64,
    /// Its length in bytes.
    pub(crate) len: usize,
}

impl Part {
    /// How many parts a file of `file_len` bytes has.
    pub(crate) fn count(file_len: u64) -> u64 {
        file_len.div_ceil(VALUE_BYTES_MAX as u64).max(1)
    }

    /// The part of a number of a file of `file_len` bytes; `None` past the last. An empty file has one.
    pub(crate) fn of(file_len: u64, index: u64) -> Option<Self> {
        let most = VALUE_BYTES_MAX as u64;
        let offset = index.checked_mul(most)?;
        if offset >= file_len && index > 0 {
            return None;
        }
        let len = (file_len - offset).min(most) as usize;
        Some(Self { index, of_many: file_len > most, offset, len })
    }

    /// The key it is stored under: the file's name, for one of many with a zero byte, which no name
    /// has, `part/` and its number.
    pub(crate) fn key(&self, name: &[u8]) -> Bytes {
        if !self.of_many {
            return Bytes::copy_from_slice(name);
        }
        [name, PART, self.index.to_string().as_bytes()].concat().into()
    }
}

/// What stands between a file's name and a part's number.
const PART: &[u8] = b"\0part/";

/// The file's name in a key, and the part's number if it is a part's: what [`Part::key`] makes. Any other
/// key is a name.
pub(crate) fn part_of(key: &[u8]) -> (&[u8], Option<u64>) {
    let name = key.split(|byte| *byte == 0).next().unwrap_or(key);
    let number = key[name.len()..].strip_prefix(PART).and_then(|text| {
        let number: u64 = std::str::from_utf8(text).ok()?.parse().ok()?;
        // As it is written, and not `+1` or `01`.
        (number.to_string().as_bytes() == text).then_some(number)
    });
    match number {
        Some(number) => (name, Some(number)),
        None => (key, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: u64 = VALUE_BYTES_MAX as u64;

    fn parts(file_len: u64) -> Vec<Part> {
        (0..).map_while(|index| Part::of(file_len, index)).collect()
    }

    #[test]
    fn parts_cover_a_file_without_gap_or_overlap() {
        for len in [0, 1, MOST - 1, MOST, MOST + 1, 2 * MOST, 3 * MOST + 17] {
            let parts = parts(len);
            let mut next = 0;
            for (index, part) in parts.iter().enumerate() {
                assert_eq!((part.index, part.offset), (index as u64, next), "{len}");
                assert!(part.len <= VALUE_BYTES_MAX);
                next += part.len as u64;
            }
            assert_eq!(next, len);
            assert_eq!(parts.len() as u64, Part::count(len));
        }
    }

    #[test]
    fn only_a_long_file_has_keys_of_parts() {
        assert_eq!(parts(MOST)[0].key(b"a/\xff"), &b"a/\xff"[..]);
        assert_eq!(parts(0)[0].key(b"a"), &b"a"[..]);
        assert_eq!(parts(MOST + 1)[1].key(b"a"), &b"a\0part/1"[..]);
        for (key, of) in [
            (&b"a"[..], (&b"a"[..], None)),
            (b"a\0part/17", (b"a", Some(17))),
            (b"\0part/0", (b"", Some(0))),
            (b"a\0part/", (b"a\0part/", None)),
            (b"a\0part/x", (b"a\0part/x", None)),
        ] {
            assert_eq!(part_of(key), of);
        }
    }
}
