use std::sync::LazyLock;

use rpc_core::bytes::Bytes;

use crate::Payloads;

/// The longest payload.
pub(super) const BYTES_MAX: usize = 4 << 20;

/// A payload begins at one of so many places of the pattern, by its index.
const STARTS: usize = 1 << 16;

/// What every payload is a part of, the same in every process. Made once: a payload costs nothing
/// then, and is checked as fast as memory is compared, also in a build that is not optimised.
static PATTERN: LazyLock<Bytes> =
    LazyLock::new(|| Payloads::new(0x50a6).bytes(0, BYTES_MAX + STARTS).into());

/// Payload `index` of a seed, `len` bytes long.
///
/// # Panics
/// If `len` is more than [`BYTES_MAX`].
pub(super) fn payload(seed: u64, index: u64, len: usize) -> Bytes {
    let start = start(seed, index);
    PATTERN.slice(start..start + len)
}

/// Whether `bytes` are payload `index` of a seed, `len` bytes long.
///
/// # Errors
/// What is wrong.
pub(super) fn check(seed: u64, index: u64, len: usize, bytes: &[u8]) -> Result<(), String> {
    if bytes.len() != len {
        return Err(format!("payload {index} has {} bytes instead of {len}", bytes.len()));
    }
    let expected = payload(seed, index, len);
    if expected == bytes {
        return Ok(());
    }
    let wrong = expected.iter().zip(bytes).filter(|(expected, found)| expected != found).count();
    let first = expected.iter().zip(bytes).position(|(expected, found)| expected != found);
    Err(format!(
        "payload {index} of {len} bytes: {wrong} bytes are wrong, the first at {}",
        first.unwrap_or(len)
    ))
}

fn start(seed: u64, index: u64) -> usize {
    mix(seed ^ mix(index)) as usize % STARTS
}

/// The length of payload `index` of a seed.
///
/// Half are small, some of none and some about the eager limit; a quarter reach 64 KiB, and a few
/// reach `bytes_max`. The mean is about 56 KiB.
pub(super) fn len(seed: u64, index: u64, bytes_max: usize) -> usize {
    let word = mix(!seed ^ mix(index));
    let (class, draw) = (word % 64, (word >> 6) as usize);
    let len = match class {
        0..=3 => 0,
        4..=35 => 1 + draw % 4096,
        36..=43 => 8192 - 64 + draw % 1200,
        44..=59 => draw % (64 << 10),
        60..=62 => draw % (512 << 10),
        _ if draw.is_multiple_of(8) => bytes_max,
        _ => draw % BYTES_MAX,
    };
    len.min(bytes_max)
}

/// The finaliser of splitmix64.
pub(super) fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_passes_its_own_check_and_no_other() {
        let bytes = payload(1, 7, 300);
        assert_eq!(check(1, 7, 300, &bytes), Ok(()));
        assert!(check(1, 8, 300, &bytes).is_err());
        assert!(check(2, 7, 300, &bytes).is_err());
        assert!(check(1, 7, 299, &bytes).unwrap_err().contains("300 bytes instead of 299"));
        assert!(check(1, 7, 300, &[0; 300]).is_err());
    }

    #[test]
    fn one_wrong_byte_is_found_where_it_is() {
        let mut bytes = payload(1, 7, 5000).to_vec();
        bytes[4999] ^= 1;
        let wrong = check(1, 7, 5000, &bytes).unwrap_err();
        assert!(wrong.contains("1 bytes are wrong, the first at 4999"), "{wrong}");
    }

    #[test]
    fn lengths_are_within_the_bound_and_reach_both_ends_of_it() {
        let lens: Vec<usize> = (0..20_000).map(|index| len(3, index, BYTES_MAX)).collect();
        let above = |least: usize| lens.iter().filter(|len| **len > least).count();
        assert!(lens.contains(&0) && lens.contains(&BYTES_MAX));
        assert!(above(9216) > 5000 && above(1 << 20) > 100, "{} {}", above(9216), above(1 << 20));
        assert!((0..1000).all(|index| len(3, index, 100) <= 100));
    }
}
