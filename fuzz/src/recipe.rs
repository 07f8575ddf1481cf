/// Reads decisions out of an input: each takes the next bytes, and zeros when there are none left.
///
/// So any input is a recipe, a short one says little, and an engine that changes a byte changes one
/// decision.
#[derive(Clone)]
pub(crate) struct Recipe<'a> {
    rest: &'a [u8],
}

/// Numbers at which something may change.
const EDGES: [u64; 14] = [
    0,
    1,
    7,
    8,
    64,
    255,
    4096,
    0xffff,
    1 << 16,
    (1 << 31) - 1,
    1 << 31,
    u32::MAX as u64,
    1 << 63,
    u64::MAX,
];

impl<'a> Recipe<'a> {
    pub(crate) fn new(input: &'a [u8]) -> Self {
        Self { rest: input }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn u8(&mut self) -> u8 {
        let Some((first, rest)) = self.rest.split_first() else { return 0 };
        self.rest = rest;
        *first
    }

    pub(crate) fn array<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| self.u8())
    }

    pub(crate) fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    pub(crate) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    pub(crate) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// A number below `bound`, 0 if there is none. Takes one byte up to 256, otherwise two.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        let drawn = if bound <= 256 { usize::from(self.u8()) } else { usize::from(self.u16()) };
        drawn % bound.max(1)
    }

    /// Whether one of so many draws hit; never when the recipe is done.
    pub(crate) fn one_in(&mut self, of: u8) -> bool {
        self.u8() % of == of - 1
    }

    pub(crate) fn flag(&mut self) -> bool {
        self.u8() & 1 == 1
    }

    /// A number: small, at an edge, or any.
    pub(crate) fn number(&mut self) -> u64 {
        match self.u8() {
            kind @ 0..=127 => u64::from(kind),
            kind @ 128..=223 => EDGES[usize::from(kind) % EDGES.len()].wrapping_add(self.near()),
            _ => self.u64(),
        }
    }

    /// -1, 0 or 1.
    fn near(&mut self) -> u64 {
        u64::from(self.u8() % 3).wrapping_sub(1)
    }

    /// The same as 32 bits.
    pub(crate) fn number32(&mut self) -> u32 {
        self.number() as u32
    }

    /// One of these.
    pub(crate) fn pick<T: Clone>(&mut self, of: &[T]) -> Option<T> {
        let at = self.below(of.len());
        of.get(at).cloned()
    }

    /// At most `len` bytes.
    pub(crate) fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(len.min(self.rest.len()));
        self.rest = rest;
        taken
    }

    /// At most `len_max` bytes, mostly few.
    pub(crate) fn some_bytes(&mut self, len_max: usize) -> &'a [u8] {
        let len = if self.one_in(8) { self.below(len_max + 1) } else { self.below(17) };
        self.bytes(len.min(len_max))
    }

    /// Text of at most `len_max` bytes: what of the next bytes is UTF-8.
    pub(crate) fn text(&mut self, len_max: usize) -> &'a str {
        let bytes = self.some_bytes(len_max);
        match std::str::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => bytes
                .get(..error.valid_up_to())
                .and_then(|valid| std::str::from_utf8(valid).ok())
                .unwrap_or(""),
        }
    }

    /// Changes a few of `bytes`, or their number.
    pub(crate) fn spoil(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..self.below(4) {
            let at = self.below(bytes.len());
            match self.u8() % 8 {
                0 => bytes.truncate(at),
                1 => bytes.extend(self.some_bytes(64)),
                2 => {
                    let value = self.number().to_le_bytes();
                    let width = 1 << self.below(4);
                    for (byte, new) in bytes.iter_mut().skip(at).zip(value).take(width) {
                        *byte = new;
                    }
                }
                3 => {
                    let more = self.some_bytes(16);
                    bytes.splice(at..at, more.iter().copied());
                }
                4 => drop(bytes.drain(at..bytes.len().min(at + 8))),
                _ => {
                    if let Some(byte) = bytes.get_mut(at) {
                        *byte ^= 1 << self.below(8);
                    }
                }
            }
        }
    }
}
