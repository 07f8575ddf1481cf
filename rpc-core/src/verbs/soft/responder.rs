use std::cmp::Ordering;
use std::collections::VecDeque;

use super::dma::Span;
use super::env::Env;
use super::packet::{Header, Kind, Nak, psn_after, psn_order};
use super::qp::QpInner;
use super::rule::Rule;
use super::sge::SgeList;
use super::srq::RecvWqe;
use super::table::Id;
use crate::verbs::{AsyncEvent, Completed, Opcode, Psn, Rkey, Wc, WcStatus};

/// A READ to answer, or a fault that waits for the answers before it.
enum Due {
    Read(Answer),
    Fault(Fault),
}

/// A READ that is being answered.
#[derive(Clone, Copy)]
struct Answer {
    psn: Psn,
    addr: u64,
    key: u32,
    len: u32,
    sent: u32,
    /// What the key opened when the answer began.
    opened: Option<Span>,
    /// It was answered before: the peer asked again, perhaps while that answer was on its way.
    again: bool,
}

impl Answer {
    const fn new(psn: Psn, addr: u64, key: u32, len: u32) -> Self {
        Self { psn, addr, key, len, sent: 0, opened: None, again: false }
    }

    /// The next `count` bytes, if the key still opens them.
    fn open(&mut self, env: &Env, here: (Id, Id), count: u32) -> Option<Span> {
        let at = self.addr.checked_add(self.sent.into())?;
        let rest = u64::from(self.len - self.sent);
        if self.sent == 0 {
            // The whole range must be open before the first byte leaves.
            self.opened = Some(env.keys.remote(env.rules, here, self.key, at, rest)?);
        }
        let still = env.keys.remote(env.rules, here, self.key, at, count.into());
        let kept = env.rules.hold(Rule::PieceKey, still.is_some());
        let opened = self.opened.filter(|_| kept)?;
        Some(opened.skip(self.sent as usize).take(count as usize))
    }
}

/// A request that ends the connection.
#[derive(Clone, Copy)]
struct Fault {
    psn: Psn,
    nak: Nak,
    /// The receive that failed with it.
    recv: Option<(u64, WcStatus)>,
}

/// A receive that a message is arriving in.
struct Arriving {
    wr_id: u64,
    sges: SgeList,
    capacity: u64,
    filled: u64,
}

/// A piece of a READ's answer, ready for the link.
pub(super) struct Piece {
    pub(super) header: Header,
    pub(super) key: u32,
    pub(super) span: Option<Span>,
}

/// The responder's half of a QP.
pub(super) struct Responder {
    expected: Psn,
    arriving: Option<Arriving>,
    due: VecDeque<Due>,
    reads: u32,
    /// A fault waits in `due`: nothing more is accepted.
    closing: bool,
    /// The newest PSN that is received and not acknowledged.
    ack: Option<Psn>,
    /// An RNR NAK to send.
    rnr: Option<Psn>,
}

impl Responder {
    pub(super) const fn new() -> Self {
        Self {
            expected: Psn(0),
            arriving: None,
            due: VecDeque::new(),
            reads: 0,
            closing: false,
            ack: None,
            rnr: None,
        }
    }

    /// Begins at the peer's first PSN.
    pub(super) const fn expect(&mut self, psn: Psn) {
        self.expected = psn;
    }

    /// Drops all work; returns the receive that was being filled.
    pub(super) fn abandon(&mut self) -> Option<u64> {
        self.due.clear();
        self.reads = 0;
        self.rnr = None;
        self.arriving.take().map(|recv| recv.wr_id)
    }

    pub(super) const fn owes_ack(&self) -> bool {
        self.ack.is_some()
    }

    /// Whether READ answers wait for the link.
    pub(super) fn has_answers(&self) -> bool {
        !self.due.is_empty()
    }

    /// Drops the oldest answer that would be given again. A peer within its depth sends a new READ
    /// only when it has what it asked for before, so nobody waits for this one.
    fn drop_repeated(&mut self) {
        let repeated = |due: &Due| matches!(due, Due::Read(read) if read.again);
        if let Some(at) = self.due.iter().position(repeated) {
            self.due.remove(at);
            self.reads -= 1;
        }
    }

    /// The acknowledgement that is owed.
    pub(super) const fn take_ack(&mut self) -> Option<Psn> {
        self.ack.take()
    }

    /// The RNR NAK that is owed.
    pub(super) const fn take_rnr(&mut self) -> Option<Psn> {
        self.rnr.take()
    }
}

impl QpInner {
    /// Whether a request with this PSN is the next one; answers duplicates.
    fn in_turn(&mut self, env: &mut Env, header: &Header) -> bool {
        if !env.rules.hold(Rule::ErrSilent, self.receives()) || self.resp.closing {
            env.packets_dropped += 1;
            return false;
        }
        match psn_order(header.psn, self.resp.expected) {
            Ordering::Equal => true,
            // Something before it was refused for now: the peer will come back to that.
            Ordering::Greater => {
                env.packets_dropped += 1;
                env.rules.hold(Rule::Psn, false)
            }
            Ordering::Less => {
                self.on_duplicate(env, header);
                env.rules.hold(Rule::Duplicate, false)
            }
        }
    }

    fn on_duplicate(&mut self, env: &mut Env, header: &Header) {
        env.packets_dropped += 1;
        match header.kind {
            Kind::ReadRequest { addr, key, len } => {
                let waits = |due: &Due| matches!(due, Due::Read(read) if read.psn == header.psn);
                let depth = u32::from(self.attr.max_dest_rd_atomic);
                if self.resp.reads < depth && !self.resp.due.iter().any(waits) {
                    self.resp.reads += 1;
                    let answer = Answer { again: true, ..Answer::new(header.psn, addr, key, len) };
                    self.resp.due.push_back(Due::Read(answer));
                    self.want(env);
                }
            }
            _ => {
                let newest = psn_after(self.resp.expected, 0x00ff_ffff);
                self.owe_ack(env, newest, true);
            }
        }
    }

    /// Notes that everything up to `psn` is here. Soon: it leaves alone if nothing leaves first.
    fn owe_ack(&mut self, env: &mut Env, psn: Psn, soon: bool) {
        self.resp.ack = Some(psn);
        if soon && !self.ack_listed {
            self.ack_listed = true;
            env.acks.push(self.id);
        }
    }

    /// A SEND's packet begins. True: its payload goes to [`recv_target`](Self::recv_target).
    pub(super) fn on_send(&mut self, env: &mut Env, header: &Header) -> bool {
        let Kind::Send { first, last, .. } = header.kind else { return false };
        if !self.in_turn(env, header) {
            return false;
        }
        if first == self.resp.arriving.is_some() || (!last && header.payload == 0) {
            self.fault(env, Fault { psn: header.psn, nak: Nak::InvalidRequest, recv: None });
            return false;
        }
        if first && !self.take_receive(env, header.psn) {
            return false;
        }
        let Some(recv) = &self.resp.arriving else { return false };
        let (wr_id, whole) = (recv.wr_id, recv.filled + u64::from(header.payload));
        let longest = recv.capacity.min(env.config.limits.message_bytes_max.into());
        if !env.rules.hold(Rule::LocLen, whole <= longest) {
            let recv = Some((wr_id, WcStatus::LocLenErr));
            self.fault(env, Fault { psn: header.psn, nak: Nak::InvalidRequest, recv });
            return false;
        }
        true
    }

    /// Takes the SRQ's next receive for a new message, or answers RNR.
    fn take_receive(&mut self, env: &mut Env, psn: Psn) -> bool {
        let Some(srq) = env.srqs.get_mut(self.parts.srq) else { return false };
        let Some((RecvWqe { wr_id, sges }, limit)) = srq.pop(env.rules) else {
            if !env.rules.hold(Rule::Rnr, false) {
                env.counters.rnr_naks_sent += 1;
                self.resp.rnr = Some(psn);
                self.want(env);
            }
            return false;
        };
        if limit {
            env.event(AsyncEvent::SrqLimitReached);
        }
        self.resp.arriving = Some(Arriving { wr_id, sges, capacity: sges.len(), filled: 0 });
        let here = self.parts.pd;
        if sges.as_slice().iter().any(|sge| env.keys.local(env.rules, here, *sge, true).is_none()) {
            let recv = Some((wr_id, WcStatus::LocProtErr));
            self.fault(env, Fault { psn, nak: Nak::Operation, recv });
            return false;
        }
        true
    }

    /// Where the next byte of the arriving message goes.
    pub(super) fn recv_target(&self, env: &Env) -> Option<Span> {
        let recv = self.resp.arriving.as_ref()?;
        let sge = recv.sges.at(recv.filled)?;
        env.keys.local(env.rules, self.parts.pd, sge, true)
    }

    /// `count` bytes of the arriving message are in memory.
    pub(super) fn on_recv_bytes(&mut self, count: u32) {
        if let Some(recv) = &mut self.resp.arriving {
            recv.filled += u64::from(count);
        }
    }

    /// A receive's memory went away while it was being filled.
    pub(super) fn fail_recv(&mut self, env: &mut Env, psn: Psn) {
        let recv = self.resp.arriving.as_ref().map(|recv| (recv.wr_id, WcStatus::LocProtErr));
        self.fault(env, Fault { psn, nak: Nak::Operation, recv });
    }

    /// A SEND's packet is complete.
    pub(super) fn on_send_piece(&mut self, env: &mut Env, header: &Header) {
        let Kind::Send { last, invalidate, .. } = header.kind else { return };
        if last && !self.finish_message(env, header.psn, invalidate) {
            return;
        }
        self.resp.expected = psn_after(header.psn, 1);
        self.owe_ack(env, header.psn, header.ack_wanted);
    }

    fn finish_message(&mut self, env: &mut Env, psn: Psn, invalidate: Option<u32>) -> bool {
        let Some(recv) = &self.resp.arriving else { return false };
        let (wr_id, filled) = (recv.wr_id, recv.filled);
        if let Some(key) = invalidate {
            if env.keys.invalidate(env.rules, Rule::SendInvQp, self.id, key).is_err() {
                let recv = Some((wr_id, WcStatus::LocAccessErr));
                env.counters.remote_access_errors += 1;
                self.fault(env, Fault { psn, nak: Nak::Access, recv });
                return false;
            }
            env.counters.invalidations += 1;
            env.settle = true;
        }
        self.resp.arriving = None;
        env.counters.recvs += 1;
        env.counters.recv_bytes += filled;
        let done = Completed {
            opcode: Opcode::Recv,
            byte_len: filled as u32,
            invalidated: invalidate.map(Rkey),
        };
        env.complete(self.parts.recv_cq, Wc::completed(wr_id, self.num, done));
        true
    }

    /// A READ request.
    pub(super) fn on_read(&mut self, env: &mut Env, header: &Header) {
        let Kind::ReadRequest { addr, key, len } = header.kind else { return };
        if !self.in_turn(env, header) {
            return;
        }
        let depth = u32::from(self.attr.max_dest_rd_atomic);
        if self.resp.reads >= depth {
            self.resp.drop_repeated();
        }
        let kept = env.rules.hold(Rule::QpRemoteRead, self.parts.remote_read)
            && env.rules.hold(Rule::ReadDepth, self.resp.reads < depth)
            && len <= env.config.limits.message_bytes_max
            && self.resp.arriving.is_none();
        if !kept {
            self.fault(env, Fault { psn: header.psn, nak: Nak::InvalidRequest, recv: None });
            return;
        }
        self.resp.expected = psn_after(header.psn, 1);
        self.resp.reads += 1;
        self.resp.due.push_back(Due::Read(Answer::new(header.psn, addr, key, len)));
        self.want(env);
    }

    /// The next piece of the oldest READ's answer. Its key is checked again for each.
    pub(super) fn next_answer(&mut self, env: &mut Env, piece_max: u32) -> Option<Piece> {
        let peer = self.peer?;
        let Some(Due::Read(read)) = self.resp.due.front_mut() else { return None };
        let (psn, key, offset) = (read.psn, read.key, read.sent);
        let count = (read.len - offset).min(piece_max);
        let again = read.again;
        let Some(span) = read.open(env, (self.id, self.parts.pd), count) else {
            if again {
                // The peer had its answer, gave the memory back, and it was closed.
                self.resp.drop_repeated();
                self.end_if_next(env);
                return self.next_answer(env, piece_max);
            }
            env.counters.remote_access_errors += 1;
            self.resp.due.clear();
            self.fault(env, Fault { psn, nak: Nak::Access, recv: None });
            return None;
        };
        read.sent += count;
        let last = read.sent == read.len;
        env.counters.read_bytes_served += u64::from(count);
        if last {
            env.counters.reads_served += 1;
            self.resp.reads -= 1;
            self.resp.due.pop_front();
        }
        let header = Header {
            kind: Kind::ReadResponse { offset: offset.into(), last },
            qp: peer.num,
            psn,
            payload: count,
            ack_wanted: false,
        };
        self.end_if_next(env);
        Some(Piece { header, key, span: (count > 0).then_some(span) })
    }

    /// The fault that waited for the answers before it, if they are all given.
    fn end_if_next(&mut self, env: &mut Env) {
        if let Some(Due::Fault(fault)) = self.resp.due.front() {
            let fault = *fault;
            self.resp.due.clear();
            self.end(env, fault);
        }
    }

    /// A request that ends the connection, once the READs before it are answered.
    fn fault(&mut self, env: &mut Env, fault: Fault) {
        self.resp.closing = true;
        if self.resp.due.is_empty() {
            self.end(env, fault);
        } else {
            self.resp.due.push_back(Due::Fault(fault));
        }
    }

    fn end(&mut self, env: &mut Env, fault: Fault) {
        if let Some((wr_id, status)) = fault.recv {
            self.resp.arriving = None;
            env.complete(self.parts.recv_cq, Wc::failed(wr_id, self.num, status, 0));
        }
        env.event(match fault.nak {
            Nak::Access => AsyncEvent::QpAccessError(self.num),
            Nak::InvalidRequest => AsyncEvent::QpRequestError(self.num),
            Nak::Operation | Nak::Rnr(_) => AsyncEvent::QpFatal(self.num),
        });
        self.last_words = Some((fault.psn, fault.nak));
        self.enter_err(env);
    }
}
