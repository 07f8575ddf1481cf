/// Bytes of the smallest block: one page, so every payload is page aligned.
pub const BLOCK_BYTES_MIN: usize = 4 << 10;

/// Bytes of the largest block. A longer message travels as several pieces.
pub const BLOCK_BYTES_MAX: usize = 64 << 20;

/// Arenas are whole multiples of this: a huge page, and few registrations per gigabyte.
pub const GRANULE_BYTES: usize = 2 << 20;

/// How many classes there are: powers of two from [`BLOCK_BYTES_MIN`] to [`BLOCK_BYTES_MAX`].
pub const CLASS_COUNT: usize = (BLOCK_BYTES_MAX / BLOCK_BYTES_MIN).ilog2() as usize + 1;

/// A size class of payload memory: its blocks are a power of two long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Class(u8);

impl Class {
    /// The smallest class whose blocks hold `len` bytes; `None` above [`BLOCK_BYTES_MAX`].
    pub const fn for_len(len: usize) -> Option<Self> {
        if len > BLOCK_BYTES_MAX {
            return None;
        }
        if len <= BLOCK_BYTES_MIN {
            return Some(Self(0));
        }
        let bits = (len - 1).ilog2() + 1;
        Some(Self((bits - BLOCK_BYTES_MIN.ilog2()) as u8))
    }

    /// Every class, smallest first.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..CLASS_COUNT as u8).map(Self)
    }

    /// Bytes of a block.
    pub const fn bytes(self) -> usize {
        BLOCK_BYTES_MIN << self.0
    }

    /// Its number, from 0.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Bytes of an arena that holds blocks of this class: one granule, or one large block.
    pub const fn arena_bytes(self) -> usize {
        if self.bytes() > GRANULE_BYTES { self.bytes() } else { GRANULE_BYTES }
    }

    /// Blocks in such an arena.
    pub const fn blocks_per_arena(self) -> usize {
        self.arena_bytes() / self.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_the_smallest_that_holds_the_length() {
        for (len, bytes) in [
            (0, 4096),
            (1, 4096),
            (4096, 4096),
            (4097, 8192),
            (9216, 16384),
            (2 << 20, 2 << 20),
            ((2 << 20) + 1, 4 << 20),
            (64 << 20, 64 << 20),
        ] {
            assert_eq!(Class::for_len(len).unwrap().bytes(), bytes, "{len}");
        }
        assert_eq!(Class::for_len(BLOCK_BYTES_MAX + 1), None);
    }

    #[test]
    fn arenas_are_whole_granules_filled_with_blocks() {
        assert_eq!(Class::all().count(), CLASS_COUNT);
        for class in Class::all() {
            assert_eq!(class.arena_bytes() % GRANULE_BYTES, 0);
            assert_eq!(class.blocks_per_arena() * class.bytes(), class.arena_bytes());
        }
    }
}
