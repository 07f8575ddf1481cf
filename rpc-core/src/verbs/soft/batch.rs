use std::collections::VecDeque;

use super::env::Env;
use super::failing::Verb;
use super::mr::SoftMr;
use super::mw::SoftMw;
use super::queue_pair::SoftQp;
use super::requester::{Op, Progress, Wqe};
use super::rule::Rule;
use super::sge::SgeList;
use super::srq::{ERRNO_FULL, ERRNO_INVALID};
use super::state::State;
use super::table::Id;
use crate::verbs::{
    Mr, PostError, QpState, RemoteRange, Rkey, SendBatch, SendFlags, Sge, VerbsError, WcStatus,
};

/// A chain's requests before they are posted; kept by the QP, so that building allocates once.
#[derive(Default)]
pub(super) struct Staging {
    requests: Vec<Request>,
}

struct Request {
    wr_id: u64,
    op: Op,
    flags: SendFlags,
    sges: SgeList,
}

/// A chain of send requests for a [`SoftQp`].
pub struct SoftBatch<'a> {
    qp: &'a mut SoftQp,
}

impl<'a> SoftBatch<'a> {
    pub(super) fn new(qp: &'a mut SoftQp) -> Self {
        qp.staging.requests.clear();
        Self { qp }
    }

    fn add(
        &mut self,
        wr_id: u64,
        op: Op,
        sges: &[Sge],
        flags: SendFlags,
    ) -> Result<(), VerbsError> {
        if self.qp.staging.requests.len() >= self.qp.send_wr_max as usize {
            let max = self.qp.send_wr_max.into();
            return Err(VerbsError::Limit { what: "a chain of send requests", max });
        }
        let sges = SgeList::new(sges, self.qp.sge_max)?;
        let inline = flags.has(SendFlags::INLINE);
        if inline && sges.len() > self.qp.inline_bytes_max.into() {
            let max = self.qp.inline_bytes_max.into();
            return Err(VerbsError::Limit { what: "inline bytes", max });
        }
        self.qp.staging.requests.push(Request { wr_id, op, flags, sges });
        Ok(())
    }
}

impl SendBatch for SoftBatch<'_> {
    type Mr = SoftMr;
    type Mw = SoftMw;

    fn bind(
        &mut self,
        wr_id: u64,
        mw: &mut SoftMw,
        mr: &SoftMr,
        range: Sge,
        flags: SendFlags,
    ) -> Result<(), VerbsError> {
        // The key of the region comes from the region: `range` only says where.
        let (lkey, addr, len) = (mr.lkey().0, range.addr, range.len.into());
        let key = mw.renew();
        self.add(wr_id, Op::Bind { key, lkey, addr, len }, &[], flags)
    }

    fn send(&mut self, wr_id: u64, sges: &[Sge], flags: SendFlags) -> Result<(), VerbsError> {
        self.add(wr_id, Op::Send { invalidate: None }, sges, flags)
    }

    fn send_with_inv(
        &mut self,
        wr_id: u64,
        sges: &[Sge],
        rkey: Rkey,
        flags: SendFlags,
    ) -> Result<(), VerbsError> {
        if !self.qp.shared.limits.remote_invalidate {
            return Err(VerbsError::Limit { what: "SEND_WITH_INV", max: 0 });
        }
        self.add(wr_id, Op::Send { invalidate: Some(rkey.0) }, sges, flags)
    }

    fn read(
        &mut self,
        wr_id: u64,
        sges: &[Sge],
        remote: RemoteRange,
        flags: SendFlags,
    ) -> Result<(), VerbsError> {
        self.add(wr_id, Op::Read { addr: remote.addr, key: remote.rkey.0 }, sges, flags)
    }

    fn local_inv(&mut self, wr_id: u64, rkey: Rkey, flags: SendFlags) -> Result<(), VerbsError> {
        self.add(wr_id, Op::Invalidate { key: rkey.0 }, &[], flags)
    }

    fn len(&self) -> u32 {
        self.qp.staging.requests.len() as u32
    }

    fn post(self) -> Result<(), PostError> {
        let SoftQp { shared, id, staging, .. } = self.qp;
        let mut state = shared.lock();
        let State { core, .. } = &mut *state;
        let Some(qp) = core.qps.get_mut(*id) else {
            return Err(PostError { posted: 0, errno: ERRNO_INVALID });
        };
        let env = &mut core.env;
        let begun = matches!(qp.state, QpState::Rts | QpState::Err);
        if !env.rules.hold(Rule::PostState, begun) {
            return Err(PostError { posted: 0, errno: ERRNO_INVALID });
        }
        if env.config.limits.local_ops_alone && !keeps_apart(&staging.requests, &qp.req.sq) {
            return Err(PostError { posted: 0, errno: ERRNO_INVALID });
        }
        let room = (qp.parts.send_wr_max as usize).saturating_sub(qp.req.sq.len());
        let asked = staging.requests.len();
        let fits = if env.rules.hold(Rule::QueueFull, asked <= room) { asked } else { room };
        let posted = shared.failing.taken(Verb::PostSend, fits);
        for request in staging.requests.drain(..posted) {
            let wqe = request.into_wqe(env, qp.parts.pd);
            qp.push_request(env, wqe);
        }
        qp.advance(env);
        let id = *id;
        core.sync_timer(id);
        state.finish();
        if staging.requests.is_empty() {
            return Ok(());
        }
        Err(PostError { posted: posted as u32, errno: ERRNO_FULL })
    }
}

/// Whether local operations of a chain, or of the queue that it is posted to, are by themselves.
fn keeps_apart(chain: &[Request], queue: &VecDeque<Wqe>) -> bool {
    let local = |op: Op| op.is_local();
    let outstanding = queue.iter().any(|wqe| local(wqe.op));
    let all = chain.iter().all(|request| local(request.op));
    let none = !chain.iter().any(|request| local(request.op));
    if none { !outstanding } else { all && queue.is_empty() }
}

impl Request {
    /// Its entry of the send queue. What is wrong with it already fails there, in its turn.
    fn into_wqe(self, env: &Env, pd: Id) -> Wqe {
        let message_max = u64::from(env.config.limits.message_bytes_max);
        let len = self.sges.len();
        let inline = self.flags.has(SendFlags::INLINE) && matches!(self.op, Op::Send { .. });
        let inline = inline.then(|| self.copy_payload(env, pd));
        let progress = match &inline {
            Some(None) => Progress::Failed(WcStatus::LocProtErr),
            _ if len > message_max => Progress::Failed(WcStatus::LocLenErr),
            _ => Progress::Pending,
        };
        Wqe {
            wr_id: self.wr_id,
            op: self.op,
            flags: self.flags,
            sges: self.sges,
            inline: inline.flatten(),
            len: len.min(message_max) as u32,
            progress,
            psn: None,
            psns: 0,
            issued: false,
            received: 0,
        }
    }

    /// The payload of an inline SEND, copied while it is posted.
    fn copy_payload(&self, env: &Env, pd: Id) -> Option<Box<[u8]>> {
        let mut bytes = Vec::new();
        for sge in self.sges.as_slice() {
            env.keys.local(env.rules, pd, *sge, false)?.append_to(&mut bytes);
        }
        Some(bytes.into_boxed_slice())
    }
}
