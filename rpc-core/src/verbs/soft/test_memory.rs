use super::dma::{Span, leaked_region};
use crate::verbs::Region;

/// Memory that a test registers, fills and looks at. Zeroed at first, and never freed.
#[derive(Clone, Copy)]
pub(in crate::verbs) struct Memory(Region);

impl Memory {
    pub(in crate::verbs) fn new(bytes: usize) -> Self {
        Self(leaked_region(bytes))
    }

    /// The address of its byte `offset`.
    pub(in crate::verbs) fn addr(&self, offset: u64) -> u64 {
        self.0.addr() + offset
    }

    pub(in crate::verbs) fn region(&self) -> Region {
        self.0
    }

    /// Writes `bytes` at `offset`; panics if they leave it.
    pub(in crate::verbs) fn put(&self, offset: u64, bytes: &[u8]) {
        let span = Span::within(&self.0, self.addr(offset), bytes.len() as u64).unwrap();
        span.fill_from(bytes);
    }

    /// A copy of `len` bytes at `offset`; panics if they leave it.
    pub(in crate::verbs) fn get(&self, offset: u64, len: u64) -> Vec<u8> {
        let mut out = Vec::new();
        Span::within(&self.0, self.addr(offset), len).unwrap().append_to(&mut out);
        out
    }
}
