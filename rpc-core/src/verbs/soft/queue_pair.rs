use std::sync::Arc;

use super::batch::{SoftBatch, Staging};
use super::device::{Shared, SoftDevice};
use super::failing::Verb;
use super::mr::SoftMr;
use super::mw::SoftMw;
use super::qp::{PeerQp, QpInner};
use super::rule::{Rule, Rules};
use super::table::Id;
use crate::verbs::{Link, Psn, Qp, QpAddress, QpAttr, QpInit, QpNum, QpState, VerbsError};

/// A queue pair of a software device.
pub struct SoftQp {
    pub(super) shared: Arc<Shared>,
    pub(super) id: Id,
    num: QpNum,
    pub(super) send_wr_max: u32,
    pub(super) sge_max: u32,
    pub(super) inline_bytes_max: u32,
    pub(super) staging: Staging,
}

impl SoftQp {
    pub(super) fn new(
        shared: Arc<Shared>,
        id: Id,
        num: QpNum,
        init: &QpInit<'_, SoftDevice>,
    ) -> Self {
        Self {
            shared,
            id,
            num,
            send_wr_max: init.send_wr_max,
            sge_max: init.send_sge_max,
            inline_bytes_max: init.inline_bytes_max,
            staging: Staging::default(),
        }
    }

    /// Changes the QP under the lock, and does what follows from it for links.
    fn modify<R>(
        &self,
        change: impl FnOnce(&mut QpInner, Rules) -> Result<R, VerbsError>,
    ) -> Result<R, VerbsError> {
        let mut state = self.shared.lock();
        let core = &mut state.core;
        let Some(qp) = core.qps.get_mut(self.id) else {
            return Err(wrong_state("changing a queue pair", "it is gone"));
        };
        let changed = change(qp, core.env.rules);
        state.finish();
        changed
    }
}

const fn wrong_state(operation: &'static str, why: &'static str) -> VerbsError {
    VerbsError::State { operation, why }
}

fn check_attr(shared: &Shared, peer: &QpAddress, attr: &QpAttr) -> Result<(), VerbsError> {
    let limits = &shared.limits;
    let depths = attr.max_rd_atomic <= limits.max_rd_atomic
        && attr.max_dest_rd_atomic <= limits.max_dest_rd_atomic;
    if !depths {
        return Err(VerbsError::Limit {
            what: "READs outstanding",
            max: limits.max_rd_atomic.into(),
        });
    }
    if attr.mtu > limits.mtu || attr.mtu > peer.mtu {
        return Err(VerbsError::Limit {
            what: "the path MTU",
            max: limits.mtu.min(peer.mtu).into(),
        });
    }
    let encodable =
        attr.timeout < 32 && attr.retry_cnt < 8 && attr.rnr_retry < 8 && attr.min_rnr_timer < 32;
    if encodable {
        Ok(())
    } else {
        Err(wrong_state("connecting a queue pair", "a timer or retry count is out of range"))
    }
}

impl Qp for SoftQp {
    type Mr = SoftMr;
    type Mw = SoftMw;
    type Batch<'a> = SoftBatch<'a>;

    fn num(&self) -> QpNum {
        self.num
    }

    fn state(&self) -> QpState {
        let state = self.shared.lock();
        state.core.qps.get(self.id).map_or(QpState::Err, |qp| qp.state)
    }

    fn address(&self, psn: Psn) -> Result<QpAddress, VerbsError> {
        let psn = Psn::new(psn.0);
        self.modify(|qp, _| {
            if !matches!(qp.state, QpState::Init | QpState::Rtr) {
                return Err(wrong_state("setting the start PSN", "the queue pair is past RTR"));
            }
            qp.req.psn = psn;
            qp.has_psn = true;
            Ok(())
        })?;
        let limits = &self.shared.limits;
        Ok(QpAddress {
            qp_num: self.num,
            psn,
            mtu: limits.mtu,
            max_rd_atomic: limits.max_rd_atomic,
            max_dest_rd_atomic: limits.max_dest_rd_atomic,
            message_bytes_max: limits.message_bytes_max,
            link: Link::Soft {
                guid: self.shared.guid,
                dial: self.shared.lock().newcomers.listens_at(),
            },
        })
    }

    fn to_rtr(&mut self, peer: &QpAddress, attr: &QpAttr) -> Result<(), VerbsError> {
        const TO_RTR: &str = "connecting a queue pair (RTR)";
        check_attr(&self.shared, peer, attr)?;
        if self.state() != QpState::Init {
            return Err(wrong_state(TO_RTR, "it is not in INIT"));
        }
        self.shared.failing.check(Verb::ToRtr, TO_RTR)?;
        let Link::Soft { guid, dial } = &peer.link else {
            return Err(VerbsError::Address("it is not a software device's".to_owned()));
        };
        let link = self.shared.link_to(*guid, *dial)?;
        let (guid, num) = (*guid, peer.qp_num);
        let mut state = self.shared.lock();
        // It may have come, or gone, since.
        let link = link.filter(|id| state.links.get(*id).is_some()).or_else(|| state.link_to(guid));
        let Some(qp) = state.core.qps.get_mut(self.id) else {
            return Err(wrong_state(TO_RTR, "it is gone"));
        };
        qp.peer = Some(PeerQp { guid, num });
        qp.attr = *attr;
        qp.link = link;
        qp.resp.expect(Psn::new(peer.psn.0));
        qp.state = QpState::Rtr;
        Ok(())
    }

    fn to_rts(&mut self, attr: &QpAttr) -> Result<(), VerbsError> {
        let attr = *attr;
        self.shared.failing.check(Verb::ToRts, "starting a queue pair (RTS)")?;
        self.modify(|qp, rules| {
            if !rules.hold(Rule::StateOrder, qp.state == QpState::Rtr) {
                return Err(wrong_state("starting a queue pair (RTS)", "it is not in RTR"));
            }
            if !qp.has_psn {
                return Err(wrong_state("starting a queue pair (RTS)", "it has no start PSN"));
            }
            qp.attr = attr;
            qp.req.rnr_left = attr.rnr_retry;
            qp.req.retries_left = attr.retry_cnt;
            qp.state = QpState::Rts;
            Ok(())
        })
    }

    fn to_err(&mut self) -> Result<(), VerbsError> {
        self.shared.failing.check(Verb::ToErr, "ending a queue pair (ERR)")?;
        let mut state = self.shared.lock();
        let core = &mut state.core;
        if let Some(qp) = core.qps.get_mut(self.id) {
            qp.enter_err(&mut core.env);
        }
        state.finish();
        Ok(())
    }

    fn moved_bytes(&self) -> u64 {
        let state = self.shared.lock();
        let link = state.core.qps.get(self.id).and_then(|qp| state.links.get(qp.link?));
        link.map_or(0, |link| link.moved)
    }

    fn batch(&mut self) -> SoftBatch<'_> {
        SoftBatch::new(self)
    }
}

impl Drop for SoftQp {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        // An acknowledgement that is owed leaves before the silence.
        state.say_everything();
        let core = &mut state.core;
        if let Some(qp) = core.qps.remove(self.id) {
            core.by_num.remove(&qp.num.0);
            core.env.release_pd(qp.parts.pd);
            core.env.count_qp(&qp.parts, -1);
            core.env.settle = true;
            state.finish();
        }
    }
}
