#![allow(unsafe_code)]

use std::ptr::null_mut;
use std::sync::Arc;

use super::chain::posted;
use super::ffi::{self, Work};
use super::mr::IbvMr;
use super::mw::IbvMw;
use super::qp::IbvQp;
use crate::verbs::{PostError, QpState, RemoteRange, Rkey, SendBatch, SendFlags, Sge, VerbsError};

/// A chain of send requests for an [`IbvQp`].
pub struct IbvBatch<'a> {
    qp: &'a mut IbvQp,
}

impl<'a> IbvBatch<'a> {
    pub(super) fn new(qp: &'a mut IbvQp) -> Self {
        // What another batch built and did not post.
        qp.chain.clear();
        Self { qp }
    }
}

impl SendBatch for IbvBatch<'_> {
    type Mr = IbvMr;
    type Mw = IbvMw;

    fn bind(
        &mut self,
        wr_id: u64,
        mw: &mut IbvMw,
        mr: &IbvMr,
        range: Sge,
        flags: SendFlags,
    ) -> Result<(), VerbsError> {
        let context = &self.qp.pd.context;
        if !Arc::ptr_eq(mw.context(), context) || !Arc::ptr_eq(&mr.0.pd().context, context) {
            return Err(VerbsError::State {
                operation: "building a bind",
                why: "the window or the region belongs to another device",
            });
        }
        self.qp.chain.room()?;
        let renewed = mw.renew(&mr.0);
        self.qp.chain.add_bind(wr_id, renewed, &mr.0, range, flags)
    }

    fn send(&mut self, wr_id: u64, sges: &[Sge], flags: SendFlags) -> Result<(), VerbsError> {
        self.qp.chain.add(wr_id, Work::Send, sges, flags)
    }

    fn send_with_inv(
        &mut self,
        wr_id: u64,
        sges: &[Sge],
        rkey: Rkey,
        flags: SendFlags,
    ) -> Result<(), VerbsError> {
        if !self.qp.limits().remote_invalidate {
            return Err(VerbsError::Limit { what: "SEND_WITH_INV", max: 0 });
        }
        self.qp.chain.add(wr_id, Work::SendWithInv(rkey.0), sges, flags)
    }

    fn read(
        &mut self,
        wr_id: u64,
        sges: &[Sge],
        remote: RemoteRange,
        flags: SendFlags,
    ) -> Result<(), VerbsError> {
        self.qp.chain.add(wr_id, Work::Read(remote), sges, flags)
    }

    fn local_inv(&mut self, wr_id: u64, rkey: Rkey, flags: SendFlags) -> Result<(), VerbsError> {
        self.qp.chain.add(wr_id, Work::LocalInv(rkey.0), &[], flags)
    }

    fn len(&self) -> u32 {
        self.qp.chain.len() as u32
    }

    fn post(self) -> Result<(), PostError> {
        let qp = self.qp;
        let len = qp.chain.len();
        if len == 0 {
            return Ok(());
        }
        // Drivers need not notice: soft-RoCE's library queues the requests and only then learns from
        // the kernel that they are too early, and they would run at RTS.
        if matches!(qp.moved_to, QpState::Reset | QpState::Init | QpState::Rtr) {
            qp.chain.clear();
            return Err(PostError { posted: 0, errno: ffi::EINVAL });
        }
        let raw = qp.raw();
        let first = qp.chain.link();
        let mut bad = null_mut();
        // SAFETY: the QP is alive. The chain ends within its array, its entries within theirs, and
        // both stay as they are while the library copies them; its notes keep the windows and
        // regions alive that it names. Inline entries are read by the library itself: an Sge names
        // memory that stays mapped. Of all other entries the device checks key and bounds.
        let code = unsafe { ffi::ibv_post_send(raw.ptr(), first, &raw mut bad) };
        let live = if code == 0 { len as u32 } else { posted(first, bad, len) };
        qp.chain.settle(live as usize, &qp.pd.context.tables, &qp.send_cq.counts);
        if code == 0 { Ok(()) } else { Err(PostError { posted: live, errno: ffi::errno(code) }) }
    }
}
