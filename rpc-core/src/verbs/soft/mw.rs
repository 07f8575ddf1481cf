use std::sync::Arc;

use super::device::Shared;
use crate::verbs::{Mw, Rkey};

/// A type-2 window of a software device.
pub struct SoftMw {
    shared: Arc<Shared>,
    key: u32,
}

impl SoftMw {
    pub(super) const fn new(shared: Arc<Shared>, key: u32) -> Self {
        Self { shared, key }
    }

    /// Takes the next key for a bind.
    pub(super) const fn renew(&mut self) -> u32 {
        self.key = next(self.key);
        self.key
    }
}

/// The same index, the next of 256 tags.
const fn next(key: u32) -> u32 {
    (key & !0xff) | (key.wrapping_add(1) & 0xff)
}

impl Mw for SoftMw {
    fn rkey(&self) -> Rkey {
        Rkey(self.key)
    }

    fn next_rkey(&self) -> Rkey {
        Rkey(next(self.key))
    }
}

impl Drop for SoftMw {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        let env = &mut state.core.env;
        if let Some(pd) = env.keys.remove_mw(self.key) {
            env.release_pd(pd);
            env.settle = true;
            state.finish();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tag_wraps_within_its_eight_bits() {
        assert_eq!(next(0x0123_45fe), 0x0123_45ff);
        assert_eq!(next(0x0123_45ff), 0x0123_4500);
    }
}
