use super::random::Random;

/// Values that are put over others: ends of ranges, and small counts.
const VALUES: [u64; 12] =
    [0, 1, 2, 16, 0x7f, 0x80, 0xff, 0x7fff, 0xffff, 0x7fff_ffff, 0xffff_ffff, u64::MAX];

/// Makes input `number` of a run: bytes of no sense, or something of the corpus with changes.
pub(crate) fn make(random: &mut Random, corpus: &[Vec<u8>], len_max: usize) -> Vec<u8> {
    let mut bytes = match random.below(4) {
        0 => fresh(random, len_max),
        _ => match corpus.get(random.below(corpus.len())) {
            Some(bytes) => bytes.clone(),
            None => fresh(random, len_max),
        },
    };
    for _ in 0..1 + random.below(8) {
        change(random, corpus, &mut bytes);
    }
    bytes.truncate(len_max);
    bytes
}

/// Bytes of no sense; half of the time of few values, which are more often in range.
fn fresh(random: &mut Random, len_max: usize) -> Vec<u8> {
    let longest = len_max.min(1 << random.below(16));
    let mut bytes = vec![0; random.below(longest + 1)];
    random.fill(&mut bytes);
    if random.below(2) == 0 {
        let values = 1 + random.below(16) as u8;
        bytes.iter_mut().for_each(|byte| *byte %= values);
    }
    bytes
}

fn change(random: &mut Random, corpus: &[Vec<u8>], bytes: &mut Vec<u8>) {
    let len = bytes.len();
    let at = random.below(len);
    let some = 1 + random.below(16);
    match random.below(9) {
        0 => bytes.truncate(at),
        1 => {
            let mut more = vec![0; some];
            random.fill(&mut more);
            bytes.splice(at..at, more);
        }
        2 => drop(bytes.drain(at..len.min(at + some))),
        3 => {
            let again = bytes[at..len.min(at + 4 * some)].to_vec();
            bytes.splice(at..at, again);
        }
        4 => {
            let value = VALUES[random.below(VALUES.len())].to_le_bytes();
            let width = 1 << random.below(4);
            let over = bytes.iter_mut().skip(at).zip(value).take(width);
            over.for_each(|(byte, new)| *byte = new);
        }
        5 => {
            if let Some(other) = corpus.get(random.below(corpus.len())) {
                let from = random.below(other.len());
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
        }
        6 => {
            let drawn = random.next() as u8;
            bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte = drawn);
        }
        _ => {
            let bit = random.below(8);
            bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << bit);
        }
    }
}
