#![allow(unsafe_code)]

use std::cell::Cell;
use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::address::{Route, address_handle};
use super::batch::IbvBatch;
use super::chain::Chain;
use super::cq::CqInner;
use super::device::IbvDevice;
use super::ffi::{self, Handle, ibv_qp, ibv_qp_attr, ibv_qp_init_attr};
use super::mr::IbvMr;
use super::mw::IbvMw;
use super::pd::PdInner;
use super::port::mtu_number;
use super::srq::SrqInner;
use crate::verbs::{Limits, Link, Psn, Qp, QpAddress, QpAttr, QpInit, QpNum, QpState, VerbsError};

/// An RC queue pair. Dropping it destroys it.
///
/// Deallocate the windows that are bound on it first: soft-RoCE takes 51 s to destroy a QP that has
/// one. It is never moved to RESET: requests that are outstanding would complete nowhere.
pub struct IbvQp {
    raw: Handle<ibv_qp>,
    num: QpNum,
    /// As this side has moved it. It can be in ERR without our knowing.
    pub(super) moved_to: QpState,
    psn: Cell<Option<Psn>>,
    route: Route,
    limits: Limits,
    pub(super) chain: Chain,
    pub(super) send_cq: Arc<CqInner>,
    pub(super) pd: Arc<PdInner>,
    _recv_cq: Arc<CqInner>,
    _srq: Arc<SrqInner>,
}

/// What a QP is made of, all of one device.
pub(super) struct Parts {
    pub(super) pd: Arc<PdInner>,
    pub(super) send_cq: Arc<CqInner>,
    pub(super) recv_cq: Arc<CqInner>,
    pub(super) srq: Arc<SrqInner>,
}

impl IbvQp {
    /// Creates a QP and brings it to INIT.
    pub(super) fn create(
        parts: Parts,
        route: Route,
        limits: Limits,
        init: &QpInit<'_, IbvDevice>,
    ) -> Result<Self, VerbsError> {
        let Parts { pd, send_cq, recv_cq, srq } = parts;
        // SAFETY: a plain struct of numbers and pointers, for which zeros are valid.
        let mut attr: ibv_qp_init_attr = unsafe { std::mem::zeroed() };
        (attr.send_cq, attr.recv_cq) = (send_cq.raw().ptr(), recv_cq.raw().ptr());
        (attr.srq, attr.qp_type) = (srq.raw().ptr(), ffi::QPT_RC);
        (attr.cap.max_send_wr, attr.cap.max_send_sge) = (init.send_wr_max, init.send_sge_max);
        attr.cap.max_inline_data = init.inline_bytes_max;
        // SAFETY: domain and queues are alive, and the QP will keep them so; `attr` is read and
        // written only now.
        let raw = unsafe { ffi::ibv_create_qp(pd.raw().ptr(), &raw mut attr) };
        let raw = Handle::created(raw, "creating a queue pair (ibv_create_qp)")?;
        pd.context.tables.qps.fetch_add(1, Relaxed);
        // SAFETY: the QP was made just now, and its number never changes.
        let num = QpNum(unsafe { (*raw.ptr()).qp_num });
        let chain = Chain::new(init.send_wr_max, init.send_sge_max, init.inline_bytes_max);
        let mut qp = Self {
            raw,
            num,
            moved_to: QpState::Reset,
            psn: Cell::new(None),
            route,
            limits,
            chain,
            send_cq,
            pd,
            _recv_cq: recv_cq,
            _srq: srq,
        };
        qp.start(init.remote_read)?;
        Ok(qp)
    }

    pub(super) const fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(super) const fn raw(&self) -> Handle<ibv_qp> {
        self.raw
    }

    fn start(&mut self, remote_read: bool) -> Result<(), VerbsError> {
        let mut attr = attributes(QpState::Init);
        attr.pkey_index = self.route.pkey_index;
        attr.port_num = self.route.port;
        let read = if remote_read { ffi::ACCESS_REMOTE_READ } else { 0 };
        // The specification has binding windows as a right of the QP; some drivers do not know it.
        let mut to_init = |access| {
            attr.qp_access_flags = access;
            self.modify(&mut attr, ffi::TO_INIT, "bringing a queue pair to INIT (ibv_modify_qp)")
        };
        to_init(read | ffi::ACCESS_MW_BIND).or_else(|_| to_init(read))?;
        self.moved_to = QpState::Init;
        Ok(())
    }

    fn modify(
        &self,
        attr: &mut ibv_qp_attr,
        mask: c_int,
        operation: &'static str,
    ) -> Result<(), VerbsError> {
        // SAFETY: the QP is alive, and `attr` holds what the mask names.
        let code = unsafe { ffi::ibv_modify_qp(self.raw.ptr(), attr, mask) };
        ffi::done(code, operation)
    }

    /// # Errors
    /// A value of `attr` that the device or the wire has no room for.
    fn check(&self, peer: &QpAddress, attr: &QpAttr) -> Result<(), VerbsError> {
        let (reads, served) = (self.limits.max_rd_atomic, self.limits.max_dest_rd_atomic);
        if attr.max_rd_atomic > reads || attr.max_dest_rd_atomic > served {
            let max = reads.min(served).into();
            return Err(VerbsError::Limit { what: "READs outstanding", max });
        }
        let max = self.limits.mtu.min(peer.mtu);
        if attr.mtu > max {
            return Err(VerbsError::Limit { what: "the path MTU", max: max.into() });
        }
        let encodable = attr.timeout < 32
            && attr.retry_cnt < 8
            && attr.rnr_retry < 8
            && attr.min_rnr_timer < 32;
        if !encodable {
            return Err(wrong_state(
                "connecting a queue pair",
                "a timer or retry count is out of range",
            ));
        }
        Ok(())
    }
}

const fn wrong_state(operation: &'static str, why: &'static str) -> VerbsError {
    VerbsError::State { operation, why }
}

/// Attributes that move a QP to `state`, the rest to be filled in.
fn attributes(state: QpState) -> ibv_qp_attr {
    // SAFETY: a plain struct of numbers, for which zeros are valid.
    let mut attr: ibv_qp_attr = unsafe { std::mem::zeroed() };
    attr.qp_state = ffi::state_number(state);
    attr
}

impl Qp for IbvQp {
    type Mr = IbvMr;
    type Mw = IbvMw;
    type Batch<'a> = IbvBatch<'a>;

    fn num(&self) -> QpNum {
        self.num
    }

    /// Asks the kernel. A QP that it does not know any more counts as in ERR.
    fn state(&self) -> QpState {
        let mut attr = attributes(QpState::Reset);
        // SAFETY: a plain struct of numbers and pointers, for which zeros are valid.
        let mut init: ibv_qp_init_attr = unsafe { std::mem::zeroed() };
        let raw = self.raw.ptr();
        // SAFETY: the QP is alive, and the answers go to locals.
        let code = unsafe { ffi::ibv_query_qp(raw, &raw mut attr, ffi::STATE_ONLY, &raw mut init) };
        if code == 0 { ffi::state_of(attr.qp_state) } else { QpState::Err }
    }

    fn address(&self, psn: Psn) -> Result<QpAddress, VerbsError> {
        if !matches!(self.moved_to, QpState::Init | QpState::Rtr) {
            return Err(wrong_state("setting the start PSN", "the queue pair is past RTR"));
        }
        let (port, mtu) = self.route.port_now(&self.pd.context)?;
        let psn = Psn::new(psn.0);
        self.psn.set(Some(psn));
        Ok(QpAddress {
            qp_num: self.num,
            psn,
            mtu: mtu.min(self.limits.mtu),
            max_rd_atomic: self.limits.max_rd_atomic,
            max_dest_rd_atomic: self.limits.max_dest_rd_atomic,
            message_bytes_max: self.limits.message_bytes_max,
            link: Link::Ibv(port),
        })
    }

    fn to_rtr(&mut self, peer: &QpAddress, attr: &QpAttr) -> Result<(), VerbsError> {
        self.check(peer, attr)?;
        if self.moved_to != QpState::Init {
            return Err(wrong_state("connecting a queue pair (RTR)", "it is not in INIT"));
        }
        let Link::Ibv(port) = &peer.link else {
            return Err(VerbsError::Address("it is not a libibverbs device's".to_owned()));
        };
        let mtu = mtu_number(attr.mtu)
            .ok_or(VerbsError::Limit { what: "the least path MTU, in bytes", max: 256 })?;
        let mut to = attributes(QpState::Rtr);
        to.ah_attr = address_handle(&self.route, port)?.to_raw();
        to.path_mtu = mtu;
        to.dest_qp_num = peer.qp_num.0;
        to.rq_psn = peer.psn.0;
        to.max_dest_rd_atomic = attr.max_dest_rd_atomic;
        to.min_rnr_timer = attr.min_rnr_timer;
        self.modify(&mut to, ffi::TO_RTR, "bringing a queue pair to RTR (ibv_modify_qp)")?;
        self.moved_to = QpState::Rtr;
        Ok(())
    }

    fn to_rts(&mut self, attr: &QpAttr) -> Result<(), VerbsError> {
        const TO_RTS: &str = "starting a queue pair (RTS)";
        if self.moved_to != QpState::Rtr {
            return Err(wrong_state(TO_RTS, "it is not in RTR"));
        }
        let psn = self.psn.get().ok_or_else(|| wrong_state(TO_RTS, "it has no start PSN"))?;
        let mut to = attributes(QpState::Rts);
        to.sq_psn = psn.0;
        to.timeout = attr.timeout;
        to.retry_cnt = attr.retry_cnt;
        to.rnr_retry = attr.rnr_retry;
        to.max_rd_atomic = attr.max_rd_atomic;
        self.modify(&mut to, ffi::TO_RTS, "bringing a queue pair to RTS (ibv_modify_qp)")?;
        self.moved_to = QpState::Rts;
        Ok(())
    }

    fn to_err(&mut self) -> Result<(), VerbsError> {
        let mut to = attributes(QpState::Err);
        self.modify(&mut to, ffi::STATE_ONLY, "moving a queue pair to ERR (ibv_modify_qp)")?;
        self.moved_to = QpState::Err;
        Ok(())
    }

    fn batch(&mut self) -> IbvBatch<'_> {
        IbvBatch::new(self)
    }
}

impl Drop for IbvQp {
    fn drop(&mut self) {
        let tables = &self.pd.context.tables;
        // SAFETY: nobody else has the QP's address: it belongs to this value alone.
        let code = unsafe { ffi::ibv_destroy_qp(self.raw.ptr()) };
        if code != 0 {
            return tables.leaked("queue pair", ffi::errno(code));
        }
        tables.qps.fetch_sub(1, Relaxed);
    }
}
