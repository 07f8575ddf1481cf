#![allow(unsafe_code)]

use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::chain::{posted, to_raw};
use super::ffi::{self, Handle, ibv_recv_wr, ibv_sge, ibv_srq, ibv_srq_attr, ibv_srq_init_attr};
use super::pd::PdInner;
use crate::verbs::{PostError, RecvBatch, Sge, Srq, SrqInit, VerbsError};

/// A shared receive queue.
pub struct IbvSrq {
    inner: Arc<SrqInner>,
    chain: RecvChain,
    init: SrqInit,
}

/// The name of an [`IbvSrq`]. It keeps the queue alive.
#[derive(Clone)]
pub struct IbvSrqRef(pub(super) Arc<SrqInner>);

pub(super) struct SrqInner {
    raw: Handle<ibv_srq>,
    pub(super) pd: Arc<PdInner>,
}

/// Receives being built: made once, for the queue's size, and filled in place.
struct RecvChain {
    wrs: Vec<ibv_recv_wr>,
    sges: Vec<ibv_sge>,
}

// SAFETY: its requests point into the chain itself, and only while it is posted.
unsafe impl Send for RecvChain {}

impl IbvSrq {
    pub(super) fn create(pd: &Arc<PdInner>, init: SrqInit) -> Result<Self, VerbsError> {
        let attr = ibv_srq_attr { max_wr: init.wr_max, max_sge: init.sge_max, srq_limit: 0 };
        let mut attr = ibv_srq_init_attr { srq_context: null_mut(), attr };
        // SAFETY: the domain is alive, and `attr` is read and written only now.
        let raw = unsafe { ffi::ibv_create_srq(pd.raw().ptr(), &raw mut attr) };
        let raw = Handle::created(raw, "creating a shared receive queue (ibv_create_srq)")?;
        pd.context.tables.srqs.fetch_add(1, Relaxed);
        let chain = RecvChain {
            wrs: Vec::with_capacity(init.wr_max as usize),
            sges: Vec::with_capacity(init.wr_max as usize * init.sge_max as usize),
        };
        Ok(Self { inner: Arc::new(SrqInner { raw, pd: Arc::clone(pd) }), chain, init })
    }

    pub(super) fn name(&self) -> IbvSrqRef {
        IbvSrqRef(Arc::clone(&self.inner))
    }
}

impl SrqInner {
    pub(super) const fn raw(&self) -> Handle<ibv_srq> {
        self.raw
    }
}

impl RecvChain {
    /// Links the requests to each other and to their entries.
    fn link(&mut self) -> *mut ibv_recv_wr {
        let (first, entries) = (self.wrs.as_mut_ptr(), self.sges.as_mut_ptr());
        let (count, mut used) = (self.wrs.len(), 0);
        for (index, wr) in self.wrs.iter_mut().enumerate() {
            wr.sg_list = entries.wrapping_add(used);
            used += wr.num_sge as usize;
            wr.next = if index + 1 < count { first.wrapping_add(index + 1) } else { null_mut() };
        }
        first
    }
}

impl Srq for IbvSrq {
    type Batch<'a> = IbvRecvBatch<'a>;

    fn batch(&mut self) -> IbvRecvBatch<'_> {
        self.chain.wrs.clear();
        self.chain.sges.clear();
        IbvRecvBatch { srq: self }
    }

    fn arm_limit(&mut self, limit: u32) -> Result<(), VerbsError> {
        let mut attr = ibv_srq_attr { max_wr: 0, max_sge: 0, srq_limit: limit };
        let raw = self.inner.raw.ptr();
        // SAFETY: the queue is alive, and `attr` is read only now.
        let code = unsafe { ffi::ibv_modify_srq(raw, &raw mut attr, ffi::SRQ_LIMIT) };
        ffi::done(code, "arming a shared receive queue's limit (ibv_modify_srq)")
    }
}

impl Drop for SrqInner {
    fn drop(&mut self) {
        let tables = &self.pd.context.tables;
        // SAFETY: every QP that receives from it holds an Arc of this, so none is left.
        let code = unsafe { ffi::ibv_destroy_srq(self.raw.ptr()) };
        if code != 0 {
            return tables.leaked("shared receive queue", ffi::errno(code));
        }
        tables.srqs.fetch_sub(1, Relaxed);
    }
}

/// A chain of receives for an [`IbvSrq`].
pub struct IbvRecvBatch<'a> {
    srq: &'a mut IbvSrq,
}

impl RecvBatch for IbvRecvBatch<'_> {
    fn recv(&mut self, wr_id: u64, sges: &[Sge]) -> Result<(), VerbsError> {
        let IbvSrq { chain, init, .. } = &mut *self.srq;
        if chain.wrs.len() >= init.wr_max as usize {
            return Err(VerbsError::Limit { what: "a chain of receives", max: init.wr_max.into() });
        }
        if sges.len() > init.sge_max as usize {
            return Err(VerbsError::Limit {
                what: "scatter entries of a receive",
                max: init.sge_max.into(),
            });
        }
        chain.sges.extend(sges.iter().map(to_raw));
        let (next, sg_list) = (null_mut(), null_mut());
        chain.wrs.push(ibv_recv_wr { wr_id, next, sg_list, num_sge: sges.len() as i32 });
        Ok(())
    }

    fn post(self) -> Result<(), PostError> {
        let IbvSrq { inner, chain, .. } = self.srq;
        if chain.wrs.is_empty() {
            return Ok(());
        }
        let first = chain.link();
        let mut bad = null_mut();
        // SAFETY: the queue is alive; the chain ends within `wrs`, its entries within `sges`, and
        // both stay as they are while the library copies them. The device checks each entry's key.
        let code = unsafe { ffi::ibv_post_srq_recv(inner.raw.ptr(), first, &raw mut bad) };
        if code == 0 {
            return Ok(());
        }
        Err(PostError { posted: posted(first, bad, chain.wrs.len()), errno: ffi::errno(code) })
    }
}
