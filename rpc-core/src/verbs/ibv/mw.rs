#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use super::context::Context;
use super::ffi::{self, Handle, ibv_mw};
use super::mr::MrInner;
use super::pd::PdInner;
use crate::verbs::{Mw, Rkey, VerbsError};

/// A type-2 window. Dropping it ends remote access through it.
pub struct IbvMw {
    inner: Arc<MwInner>,
    /// The key of the last bind that was built.
    key: u32,
}

pub(super) struct MwInner {
    raw: Handle<ibv_mw>,
    /// Its first key, whose index all later ones share.
    first_key: u32,
    /// The region of the last bind: a region with a window over it cannot be deregistered. Dropped
    /// after the window.
    over: Mutex<Option<Arc<MrInner>>>,
    pd: Arc<PdInner>,
}

impl IbvMw {
    pub(super) fn alloc(pd: &Arc<PdInner>) -> Result<Self, VerbsError> {
        // SAFETY: the domain is alive.
        let raw = unsafe { ffi::alloc_mw(pd.raw()) }?;
        // SAFETY: the window was made just now, and nobody else knows it yet.
        let key = unsafe { (*raw.ptr()).rkey };
        pd.context.tables.mws.fetch_add(1, Relaxed);
        let (over, pd) = (Mutex::default(), Arc::clone(pd));
        Ok(Self { inner: Arc::new(MwInner { raw, first_key: key, over, pd }), key })
    }

    pub(super) fn context(&self) -> &Arc<Context> {
        &self.inner.pd.context
    }

    /// Takes the next key for a bind over `mr`. Answers the key, the window, and the region that a
    /// request before this one, which may not be posted yet, named.
    pub(super) fn renew(&mut self, mr: &Arc<MrInner>) -> (u32, Arc<MwInner>, Option<Arc<MrInner>>) {
        self.key = next(self.key);
        let mut over = self.inner.over.lock().unwrap_or_else(PoisonError::into_inner);
        let same = over.as_ref().is_some_and(|over| Arc::ptr_eq(over, mr));
        let before = if same { None } else { over.replace(Arc::clone(mr)) };
        (self.key, Arc::clone(&self.inner), before)
    }
}

impl MwInner {
    pub(super) const fn raw(&self) -> Handle<ibv_mw> {
        self.raw
    }

    /// A bind with this key was posted: the next one names it as the key to be replaced.
    pub(super) fn posted(&self, key: u32) {
        // SAFETY: the window is alive, so its fields have addresses.
        let rkey = unsafe { &raw mut (*self.raw.ptr()).rkey };
        // SAFETY: the field is aligned and lives as long as the window. Rust reads and writes it by
        // this atomic alone; the library reads it while a bind is posted.
        unsafe { AtomicU32::from_ptr(rkey) }.store(key, Relaxed);
    }
}

/// The same index, the next of 256 tags.
const fn next(key: u32) -> u32 {
    (key & !0xff) | (key.wrapping_add(1) & 0xff)
}

impl Mw for IbvMw {
    fn rkey(&self) -> Rkey {
        Rkey(self.key)
    }

    fn next_rkey(&self) -> Rkey {
        Rkey(next(self.key))
    }
}

impl Drop for MwInner {
    fn drop(&mut self) {
        let tables = &self.pd.context.tables;
        // SAFETY: whoever holds the window's address holds an Arc of it, so nobody does any more.
        let code = unsafe { ffi::ibv_dealloc_mw(self.raw.ptr()) };
        if code != 0 {
            // Then the region under it cannot go either.
            std::mem::forget(self.over.get_mut().unwrap_or_else(PoisonError::into_inner).take());
            return tables.leaked("memory window", ffi::errno(code));
        }
        tables.bound.closed(self.first_key);
        tables.mws.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::next;

    #[test]
    fn tag_wraps_within_its_eight_bits() {
        assert_eq!(next(0x0123_45fe), 0x0123_45ff);
        assert_eq!(next(0xffff_ffff), 0xffff_ff00);
    }
}
