#![allow(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use rustix::process::{Resource, getrlimit};

use super::ffi::{self, Handle, ibv_mr};
use super::pd::PdInner;
use crate::verbs::{Access, Lkey, Mr, Region, Rkey, VerbsError};

/// A registered region. It is deregistered when it is dropped and no window is bound over it.
pub struct IbvMr(pub(super) Arc<MrInner>);

pub(super) struct MrInner {
    raw: Handle<ibv_mr>,
    bytes: u64,
    lkey: u32,
    rkey: u32,
    pd: Arc<PdInner>,
}

impl IbvMr {
    pub(super) fn register(
        pd: &Arc<PdInner>,
        region: Region,
        access: Access,
    ) -> Result<Self, VerbsError> {
        const REGISTER: &str = "registering memory (ibv_reg_mr)";
        let (at, len) = (region.ptr().as_ptr().cast(), region.len());
        // SAFETY: whoever made the Region promised that it stays mapped while a device may hold it,
        // and that it is accessed only when no posted request is in the way.
        let raw = unsafe { ffi::ibv_reg_mr(pd.raw().ptr(), at, len, ffi::access_flags(access)) };
        let bytes = len as u64;
        let raw = Handle::created(raw, REGISTER).map_err(|error| explain(error, bytes))?;
        // SAFETY: the region was made just now, and its fields never change.
        let mr = unsafe { &*raw.ptr() };
        let inner = MrInner { raw, bytes, lkey: mr.lkey, rkey: mr.rkey, pd: Arc::clone(pd) };
        pd.context.tables.mrs.fetch_add(1, Relaxed);
        pd.context.tables.mr_bytes.fetch_add(bytes, Relaxed);
        Ok(Self(Arc::new(inner)))
    }
}

/// ENOMEM under a limit on locked memory is almost always that limit.
fn explain(error: VerbsError, bytes: u64) -> VerbsError {
    let out_of_memory = matches!(&error, VerbsError::System { source, .. }
        if source.raw_os_error() == Some(ffi::ENOMEM));
    match getrlimit(Resource::Memlock).current {
        Some(limit) if out_of_memory => VerbsError::MemoryLock { bytes, limit },
        _ => error,
    }
}

impl MrInner {
    pub(super) const fn raw(&self) -> Handle<ibv_mr> {
        self.raw
    }

    pub(super) const fn pd(&self) -> &Arc<PdInner> {
        &self.pd
    }
}

impl Mr for IbvMr {
    fn lkey(&self) -> Lkey {
        Lkey(self.0.lkey)
    }

    fn rkey(&self) -> Rkey {
        Rkey(self.0.rkey)
    }
}

impl Drop for MrInner {
    fn drop(&mut self) {
        let tables = &self.pd.context.tables;
        // SAFETY: whoever holds the region's address holds an Arc of it: windows and chains, so none
        // does any more. Requests that name its key fail from now on.
        let code = unsafe { ffi::ibv_dereg_mr(self.raw.ptr()) };
        if code != 0 {
            return tables.leaked("memory region", ffi::errno(code));
        }
        tables.mrs.fetch_sub(1, Relaxed);
        tables.mr_bytes.fetch_sub(self.bytes, Relaxed);
    }
}
