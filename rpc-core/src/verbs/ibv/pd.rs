#![allow(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::context::Context;
use super::ffi::{self, Handle, ibv_pd};
use crate::verbs::VerbsError;

/// A protection domain. It goes with its last clone and the last object in it.
#[derive(Clone)]
pub struct IbvPd(pub(super) Arc<PdInner>);

pub(super) struct PdInner {
    raw: Handle<ibv_pd>,
    pub(super) context: Arc<Context>,
}

impl IbvPd {
    pub(super) fn alloc(context: &Arc<Context>) -> Result<Self, VerbsError> {
        // SAFETY: the context is alive.
        let raw = unsafe { ffi::ibv_alloc_pd(context.raw().ptr()) };
        let raw = Handle::created(raw, "allocating a protection domain (ibv_alloc_pd)")?;
        context.tables.pds.fetch_add(1, Relaxed);
        Ok(Self(Arc::new(PdInner { raw, context: Arc::clone(context) })))
    }

    /// What is in it, if it is of this device.
    pub(super) fn of(&self, context: &Arc<Context>) -> Result<&Arc<PdInner>, VerbsError> {
        if Arc::ptr_eq(&self.0.context, context) {
            return Ok(&self.0);
        }
        Err(VerbsError::State {
            operation: "using a protection domain",
            why: "it belongs to another device",
        })
    }
}

impl PdInner {
    pub(super) const fn raw(&self) -> Handle<ibv_pd> {
        self.raw
    }
}

impl Drop for PdInner {
    fn drop(&mut self) {
        // SAFETY: every object in the domain holds an Arc of it, so none is left.
        let code = unsafe { ffi::ibv_dealloc_pd(self.raw.ptr()) };
        if code != 0 {
            return self.context.tables.leaked("protection domain", ffi::errno(code));
        }
        self.context.tables.pds.fetch_sub(1, Relaxed);
    }
}
