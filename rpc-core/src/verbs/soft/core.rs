use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use super::dma::Span;
use super::env::Env;
use super::key::KeyHasher;
use super::packet::{Header, Kind, Nak};
use super::qp::QpInner;
use super::rule::Rule;
use super::rx::{Body, Target};
use super::table::{Id, Table};
use super::timers::Timers;
use super::tx::{Lender, Tx};
use crate::Time;
use crate::verbs::{QpState, WcStatus};

/// The QPs of a device and what they work with; everything but the links.
pub(super) struct Core {
    pub(super) env: Env,
    pub(super) qps: Table<QpInner>,
    pub(super) by_num: HashMap<u32, Id, BuildHasherDefault<KeyHasher>>,
    pub(super) timers: Timers,
}

impl Core {
    pub(super) fn new(env: Env) -> Self {
        Self { env, qps: Table::new(), by_num: HashMap::default(), timers: Timers::default() }
    }

    /// A packet's header arrived from the device `guid`: does what needs no payload, and says where
    /// the payload goes.
    pub(super) fn begin_packet(&mut self, guid: u64, header: Header) -> Body {
        let nobody = Id { index: u32::MAX, generation: u32::MAX };
        let id = self.by_num.get(&header.qp.0).copied().unwrap_or(nobody);
        let refused = Body { header, qp: id, target: Target::Nowhere, left: header.payload };
        let env = &mut self.env;
        let Some(qp) = self.qps.get_mut(id) else {
            env.packets_dropped += 1;
            return refused;
        };
        let from_peer = qp.peer.is_some_and(|peer| peer.guid == guid) && !qp.lost;
        if !env.rules.hold(Rule::PeerDevice, from_peer) {
            env.packets_dropped += 1;
            return refused;
        }
        let target = match header.kind {
            Kind::Send { .. } if qp.on_send(env, &header) => Target::Recv,
            Kind::ReadResponse { .. } => match qp.begin_answer(env, &header) {
                Some(number) => Target::Read(number),
                None => Target::Nowhere,
            },
            Kind::Send { .. } => Target::Nowhere,
            Kind::ReadRequest { .. } => {
                qp.on_read(env, &header);
                Target::Nowhere
            }
            Kind::Ack => {
                qp.on_ack(env, header.psn);
                Target::Nowhere
            }
            Kind::Nak(nak) => {
                qp.on_nak(env, header.psn, nak);
                Target::Nowhere
            }
            Kind::Probe { .. } | Kind::ProbeAnswer { .. } => Target::Nowhere,
        };
        self.sync_timer(id);
        Body { target, ..refused }
    }

    /// Where the next bytes of a payload go, as far as that is one piece. `None`: nowhere, from here
    /// on; the local reason, if there is one, has ended the QP.
    pub(super) fn place_of(&mut self, body: &mut Body) -> Option<Span> {
        if body.left == 0 || body.target == Target::Nowhere {
            return None;
        }
        let env = &mut self.env;
        let place =
            self.qps.get_mut(body.qp).filter(|qp| qp.state != QpState::Err).and_then(|qp| {
                let place = match body.target {
                    Target::Nowhere => None,
                    Target::Recv => qp.recv_target(env),
                    Target::Read(number) => qp.read_target(env, number),
                };
                match (place, body.target) {
                    (None, Target::Recv) => qp.fail_recv(env, body.header.psn),
                    (None, Target::Read(number)) => {
                        qp.fail_entry(env, number, WcStatus::LocProtErr);
                    }
                    _ => {}
                }
                place
            });
        if place.is_none() {
            body.target = Target::Nowhere;
        }
        place.map(|place| place.take(body.left as usize))
    }

    /// `count` bytes of a payload are in their place.
    pub(super) fn placed(&mut self, body: &Body, count: u32) {
        let Some(qp) = self.qps.get_mut(body.qp) else { return };
        match body.target {
            Target::Nowhere => {}
            Target::Recv => qp.on_recv_bytes(count),
            Target::Read(number) => {
                if let Some(wqe) = qp.entry_mut(number) {
                    wqe.received += count;
                }
            }
        }
    }

    /// A packet is complete.
    pub(super) fn finish_packet(&mut self, body: &Body) {
        let env = &mut self.env;
        let Some(qp) = self.qps.get_mut(body.qp).filter(|qp| qp.state != QpState::Err) else {
            return;
        };
        match (body.target, body.header.kind) {
            (Target::Recv, _) => qp.on_send_piece(env, &body.header),
            (Target::Read(number), Kind::ReadResponse { last, .. }) => {
                qp.on_read_piece(env, number, last);
            }
            _ => return,
        }
        self.sync_timer(body.qp);
    }

    /// Lets a QP put what it has next on its link: one packet as responder and one as requester.
    /// True: it has more.
    pub(super) fn produce(&mut self, id: Id, tx: &mut Tx) -> bool {
        let env = &mut self.env;
        let Some(qp) = self.qps.get_mut(id) else { return false };
        let more = qp.produce(env, tx);
        qp.active = more;
        self.sync_timer(id);
        more
    }

    /// Puts the acknowledgement that a QP owes on its link.
    pub(super) fn produce_ack(&mut self, id: Id, tx: &mut Tx) {
        let Some(qp) = self.qps.get_mut(id) else { return };
        qp.ack_listed = false;
        qp.produce_ack(tx);
    }

    /// Makes sure that the device's timers know a QP's deadline.
    pub(super) fn sync_timer(&mut self, id: Id) {
        let Some(qp) = self.qps.get_mut(id) else { return };
        let Some(at) = qp.deadline() else { return };
        if qp.timer_queued.is_none_or(|queued| at < queued) {
            qp.timer_queued = Some(at);
            self.timers.push(at, id);
        }
    }

    /// Fires every timer that is due.
    pub(super) fn fire_timers(&mut self, now: Time) {
        while let Some((at, id)) = self.timers.first().filter(|(at, _)| *at <= now) {
            self.timers.pop();
            let Some(qp) = self.qps.get_mut(id) else { continue };
            if qp.timer_queued == Some(at) {
                qp.timer_queued = None;
                qp.on_timer(&mut self.env, now);
                self.sync_timer(id);
            }
        }
    }

    /// The earliest deadline of any QP. Drops entries that no longer stand for one.
    pub(super) fn next_deadline(&mut self) -> Option<Time> {
        while let Some((at, id)) = self.timers.first() {
            let qp = self.qps.get_mut(id).filter(|qp| qp.timer_queued == Some(at));
            if let Some(qp) = qp {
                if qp.deadline() == Some(at) {
                    return Some(at);
                }
                qp.timer_queued = None;
            }
            self.timers.pop();
            self.sync_timer(id);
        }
        None
    }

    /// Ends every QP on a CQ that overran.
    pub(super) fn end_qps_of_lost_cqs(&mut self) {
        while let Some(cq) = self.env.lost_cqs.pop() {
            let env = &mut self.env;
            for (_, qp) in self.qps.iter_mut() {
                if qp.parts.send_cq == cq || qp.parts.recv_cq == cq {
                    qp.enter_err(env);
                }
            }
        }
    }

    /// Whether what `lender` lends to a link may stay lent.
    pub(super) fn may_lend(&self, lender: Lender) -> bool {
        let Some(qp) = self.qps.get(lender.qp) else { return false };
        qp.state != QpState::Err && self.env.keys.is_open(qp.id, lender.key)
    }
}

impl QpInner {
    fn produce_ack(&mut self, tx: &mut Tx) {
        let Some(peer) = self.peer else { return };
        if let Some(psn) = self.resp.take_ack() {
            tx.push_header(&Header::answer(peer.num, psn, Kind::Ack));
        }
    }

    fn produce(&mut self, env: &mut Env, tx: &mut Tx) -> bool {
        let Some(peer) = self.peer else { return false };
        self.produce_ack(tx);
        if let Some((psn, nak)) = self.last_words.take() {
            tx.push_header(&Header::answer(peer.num, psn, Kind::Nak(nak)));
        }
        if self.state == QpState::Err {
            return false;
        }
        if let Some(psn) = self.resp.take_rnr() {
            let nak = Nak::Rnr(self.attr.min_rnr_timer & 31);
            tx.push_header(&Header::answer(peer.num, psn, Kind::Nak(nak)));
        }
        // A small request before a large piece: bulk delays a call by one piece at most.
        self.produce_request(env, tx);
        if tx.has_room() {
            self.produce_answer(env, tx);
        }
        // What a failure above has to say.
        let unsaid = self.last_words.is_some() || self.resp.owes_ack();
        unsaid || (self.state != QpState::Err && (self.resp.has_answers() || self.may_send(env)))
    }

    fn produce_answer(&mut self, env: &mut Env, tx: &mut Tx) {
        let piece_max = env.config.piece_bytes;
        if let Some(piece) = self.next_answer(env, piece_max) {
            tx.push_header(&piece.header);
            if let Some(span) = piece.span {
                tx.push_span(span, Lender { qp: self.id, key: piece.key });
            }
        }
    }
}
