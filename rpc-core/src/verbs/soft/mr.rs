use std::sync::Arc;

use super::device::{Shared, refuse_destroy};
use crate::verbs::{Lkey, Mr, Rkey};

/// A registered region of a software device.
pub struct SoftMr {
    shared: Arc<Shared>,
    lkey: Lkey,
    rkey: Rkey,
}

impl SoftMr {
    pub(super) const fn new(shared: Arc<Shared>, (lkey, rkey): (u32, u32)) -> Self {
        Self { shared, lkey: Lkey(lkey), rkey: Rkey(rkey) }
    }
}

impl Mr for SoftMr {
    fn lkey(&self) -> Lkey {
        self.lkey
    }

    fn rkey(&self) -> Rkey {
        self.rkey
    }
}

impl Drop for SoftMr {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        let env = &mut state.core.env;
        match env.keys.remove_mr(self.lkey.0) {
            Ok(pd) => {
                env.release_pd(pd);
                env.settle = true;
                state.finish();
            }
            Err(_) => refuse_destroy("memory region", "windows are bound over it"),
        }
    }
}
