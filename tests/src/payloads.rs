use std::fmt;

/// Seeded bytes: the same seed, index and length give the same bytes in every process.
///
/// Each byte depends on the seed, the payload's index and its own position, so a payload in the
/// place of another, a shifted one and a piece that was never written are all found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payloads {
    seed: u64,
}

/// Where received bytes first differ from the payload they should be.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mismatch {
    /// The length is wrong.
    Length {
        /// Bytes the payload has.
        expected: usize,
        /// Bytes that were given.
        found: usize,
    },
    /// A byte is wrong.
    Byte {
        /// Position of the first wrong byte.
        at: usize,
        /// What it should be.
        expected: u8,
        /// What it is.
        found: u8,
        /// How many bytes are wrong in all.
        wrong: usize,
    },
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length { expected, found } => {
                write!(f, "{found} bytes where the payload has {expected}")
            }
            Self::Byte { at, expected, found, wrong } => {
                write!(f, "byte {at} is {found:#04x}, not {expected:#04x}; {wrong} bytes differ")
            }
        }
    }
}

impl std::error::Error for Mismatch {}

impl Payloads {
    /// Lengths at which something changes: nothing, a few bytes, the eager limit and both its
    /// neighbours (of the page in it, 8,192, and of the whole buffer, 9,216), READs of one and of
    /// several pieces.
    pub const SIZES: [usize; 13] =
        [0, 1, 17, 300, 4_000, 8_191, 8_192, 8_193, 9_215, 9_216, 9_217, 40_000, 1 << 20];

    /// Payloads of a seed.
    pub const fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// The payload of an index, `len` bytes long. A shorter one is a prefix of a longer one.
    pub fn bytes(&self, index: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.fill(index, &mut bytes);
        bytes
    }

    /// Writes the payload of an index over all of `bytes`.
    pub fn fill(&self, index: u64, bytes: &mut [u8]) {
        for (at, chunk) in bytes.chunks_mut(8).enumerate() {
            let word = self.word(index, at as u64).to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }

    /// Whether `bytes` is the payload of an index, `len` bytes long.
    pub fn check(&self, index: u64, len: usize, bytes: &[u8]) -> Result<(), Mismatch> {
        if bytes.len() != len {
            return Err(Mismatch::Length { expected: len, found: bytes.len() });
        }
        let mut first = None;
        let mut wrong = 0;
        for (word_at, chunk) in bytes.chunks(8).enumerate() {
            let word = self.word(index, word_at as u64).to_le_bytes();
            for (byte_at, (&expected, &found)) in word.iter().zip(chunk).enumerate() {
                if expected != found {
                    wrong += 1;
                    first.get_or_insert((word_at * 8 + byte_at, expected, found));
                }
            }
        }
        match first {
            None => Ok(()),
            Some((at, expected, found)) => Err(Mismatch::Byte { at, expected, found, wrong }),
        }
    }

    /// Eight bytes of a payload: the finaliser of splitmix64 over seed, index and position.
    fn word(&self, index: u64, at: u64) -> u64 {
        let start = mix(self.seed ^ mix(index));
        mix(start.wrapping_add(at.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }
}

fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_the_same_each_time_and_passes_its_own_check() {
        let payloads = Payloads::new(7);
        for (index, len) in Payloads::SIZES.into_iter().enumerate() {
            let bytes = payloads.bytes(index as u64, len);
            assert_eq!(bytes, Payloads::new(7).bytes(index as u64, len));
            assert_eq!(payloads.check(index as u64, len, &bytes), Ok(()));
        }
    }

    #[test]
    fn payloads_of_other_seeds_and_indices_are_refused() {
        let payloads = Payloads::new(7);
        let bytes = payloads.bytes(1, 4_000);
        for other in [payloads.bytes(2, 4_000), Payloads::new(8).bytes(1, 4_000)] {
            assert!(matches!(
                payloads.check(1, 4_000, &other),
                Err(Mismatch::Byte { wrong, .. }) if wrong > 3_900
            ));
        }
        assert_ne!(bytes[..1_000], bytes[1_000..2_000], "a period would hide a shift");
    }

    #[test]
    fn one_flipped_bit_is_found_where_it_is() {
        let payloads = Payloads::new(7);
        let mut bytes = payloads.bytes(3, 300);
        let right = bytes[299];
        bytes[299] ^= 0x10;
        assert_eq!(
            payloads.check(3, 300, &bytes),
            Err(Mismatch::Byte { at: 299, expected: right, found: right ^ 0x10, wrong: 1 })
        );
    }

    #[test]
    fn a_short_or_long_payload_is_refused() {
        let payloads = Payloads::new(7);
        let bytes = payloads.bytes(0, 17);
        for found in [0, 16] {
            assert_eq!(
                payloads.check(0, 17, &bytes[..found]),
                Err(Mismatch::Length { expected: 17, found })
            );
        }
        let long = payloads.bytes(0, 18);
        assert_eq!(payloads.check(0, 17, &long), Err(Mismatch::Length { expected: 17, found: 18 }));
    }

    #[test]
    fn zeroes_never_pass_for_a_payload() {
        assert!(Payloads::new(0).check(0, 17, &[0; 17]).is_err());
        assert!(Payloads::new(7).check(0, 4_096, &[0; 4_096]).is_err());
    }
}
