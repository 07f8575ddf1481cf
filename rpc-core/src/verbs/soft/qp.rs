use std::cmp::min;

use super::env::Env;
use super::packet::Nak;
use super::requester::Requester;
use super::responder::Responder;
use super::rule::Rule;
use super::table::Id;
use crate::Time;
use crate::verbs::{AsyncEvent, Psn, QpAttr, QpNum, QpState, Wc, WcStatus};

/// The far end of a connected QP.
#[derive(Clone, Copy)]
pub(super) struct PeerQp {
    pub(super) guid: u64,
    pub(super) num: QpNum,
}

/// What a QP is made of and never changes.
#[derive(Clone, Copy)]
pub(super) struct QpParts {
    pub(super) pd: Id,
    pub(super) send_cq: Id,
    pub(super) recv_cq: Id,
    pub(super) srq: Id,
    pub(super) send_wr_max: u32,
    pub(super) remote_read: bool,
}

/// A queue pair in the device's tables.
pub(super) struct QpInner {
    pub(super) id: Id,
    pub(super) num: QpNum,
    pub(super) parts: QpParts,
    pub(super) state: QpState,
    pub(super) attr: QpAttr,
    pub(super) peer: Option<PeerQp>,
    /// The link that carries its packets; none before there is one, and after it is lost.
    pub(super) link: Option<Id>,
    /// Its link was lost. No other will do: what was in flight is gone.
    pub(super) lost: bool,
    /// When the loss of the link, or its absence, ends the oldest request.
    pub(super) loss_at: Option<Time>,
    /// A fatal NAK that must still leave, though the QP is in ERR.
    pub(super) last_words: Option<(Psn, Nak)>,
    /// It was asked for its address, and so has its first PSN.
    pub(super) has_psn: bool,
    /// It is in its link's list of QPs with something to send, or in `Env::wants`.
    pub(super) active: bool,
    /// It is in its link's list of QPs that owe an ACK, or in `Env::acks`.
    pub(super) ack_listed: bool,
    /// The earliest entry it has in the device's timers.
    pub(super) timer_queued: Option<Time>,
    pub(super) req: Requester,
    pub(super) resp: Responder,
}

/// Attributes of a QP before RTR.
pub(super) const NO_ATTR: QpAttr = QpAttr {
    mtu: 0,
    max_rd_atomic: 0,
    max_dest_rd_atomic: 0,
    timeout: 0,
    retry_cnt: 0,
    rnr_retry: 0,
    min_rnr_timer: 0,
};

impl QpInner {
    pub(super) fn new(id: Id, num: QpNum, parts: QpParts) -> Self {
        Self {
            id,
            num,
            parts,
            state: QpState::Init,
            attr: NO_ATTR,
            peer: None,
            link: None,
            lost: false,
            loss_at: None,
            last_words: None,
            has_psn: false,
            active: false,
            ack_listed: false,
            timer_queued: None,
            req: Requester::new(),
            resp: Responder::new(),
        }
    }

    /// Whether packets from the peer are taken.
    pub(super) const fn receives(&self) -> bool {
        matches!(self.state, QpState::Rtr | QpState::Rts)
    }

    /// Asks for a turn on the link.
    pub(super) fn want(&mut self, env: &mut Env) {
        if !self.active {
            self.active = true;
            env.wants.push(self.id);
        }
    }

    /// When this QP next needs the device though nothing arrives.
    pub(super) fn deadline(&self) -> Option<Time> {
        let timers = [self.req.rnr_until, self.req.retry_at, self.loss_at];
        timers.into_iter().flatten().reduce(min)
    }

    /// Its link is gone. If something is outstanding, `at` is when that fails.
    pub(super) fn lose_link(&mut self, at: Time) {
        self.link = None;
        self.lost = true;
        self.active = false;
        self.ack_listed = false;
        self.req.retry_at = None;
        self.req.rnr_until = None;
        if !self.req.sq.is_empty() {
            self.loss_at = Some(at);
        }
    }

    /// Any state to ERR: flushes everything outstanding, and falls silent.
    pub(super) fn enter_err(&mut self, env: &mut Env) {
        if self.state == QpState::Err {
            return;
        }
        self.state = QpState::Err;
        self.loss_at = None;
        // What a link still lends of this QP's memory must not outlive its requests.
        env.settle = true;
        if let Some(recv) = self.resp.abandon() {
            // It left the SRQ, so it is this QP's to flush.
            env.complete(self.parts.recv_cq, Wc::failed(recv, self.num, WcStatus::WrFlushErr, 0));
        }
        self.flush_send_queue(env);
        if !env.rules.hold(Rule::LastWqe, false) {
            env.event(AsyncEvent::LastWqeReached(self.num));
        }
        // A receive that was completed is acknowledged before the silence, as hardware would have.
        if self.last_words.is_some() || self.resp.owes_ack() {
            self.want(env);
        }
    }
}
