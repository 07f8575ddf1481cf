use std::cmp::Ordering;
use std::collections::VecDeque;
use std::time::Duration;

use super::dma::Span;
use super::env::Env;
use super::key::{Binding, KeyTable};
use super::packet::{Header, Kind, Nak, psn_after, psn_order};
use super::qp::QpInner;
use super::rule::Rule;
use super::sge::SgeList;
use super::timers::rnr_delay;
use crate::Time;
use crate::verbs::{Completed, Opcode, Psn, QpState, SendFlags, Wc, WcStatus};

/// How long a request waits for the peer to dial, before the peer counts as silent: the bound of
/// the peer's own attempt to connect, and some.
const LINK_WAIT: Duration = Duration::from_secs(5);

/// What a send request asks for.
#[derive(Clone, Copy)]
pub(super) enum Op {
    Send { invalidate: Option<u32> },
    Read { addr: u64, key: u32 },
    Bind { key: u32, lkey: u32, addr: u64, len: u64 },
    Invalidate { key: u32 },
}

impl Op {
    const fn opcode(self) -> Opcode {
        match self {
            Self::Send { .. } => Opcode::Send,
            Self::Read { .. } => Opcode::Read,
            Self::Bind { .. } => Opcode::BindMw,
            Self::Invalidate { .. } => Opcode::LocalInv,
        }
    }

    pub(super) const fn is_local(self) -> bool {
        matches!(self, Self::Bind { .. } | Self::Invalidate { .. })
    }
}

/// How far a send request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Its last packet is not on the link, or must go there again.
    Pending,
    /// Its last packet is on the link.
    Sent,
    /// It waits only for those before it.
    Done,
    /// It failed, and says so when those before it are done.
    Failed(WcStatus),
}

/// An entry of the send queue.
pub(super) struct Wqe {
    pub(super) wr_id: u64,
    pub(super) op: Op,
    pub(super) flags: SendFlags,
    pub(super) sges: SgeList,
    /// The payload of an inline SEND.
    pub(super) inline: Option<Box<[u8]>>,
    /// Bytes of the message.
    pub(super) len: u32,
    pub(super) progress: Progress,
    /// Its first PSN, once its first packet was made, and how many PSNs it has.
    pub(super) psn: Option<Psn>,
    pub(super) psns: u32,
    /// Its last packet was on the link at least once.
    pub(super) issued: bool,
    /// READ: bytes that arrived.
    pub(super) received: u32,
}

impl Wqe {
    fn last_psn(&self) -> Option<Psn> {
        self.psn.map(|first| psn_after(first, self.psns.saturating_sub(1)))
    }

    /// A READ always wants its answer; a SEND wants an ACK soon only if its completion is reported.
    pub(super) const fn wants_answer(&self) -> bool {
        matches!(self.op, Op::Read { .. }) || self.flags.has(SendFlags::SIGNALED)
    }
}

/// What is known about the peer's device when a retry timer runs out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PeerDevice {
    /// Nobody asked since the last packet of the QP was sent.
    Unknown,
    /// It was asked and has not answered: its owner is busy, and the QP's silence means nothing.
    Busy,
    /// It has dealt with everything that was sent before it was asked.
    Polled,
}

/// The requester's half of a QP: its send queue.
pub(super) struct Requester {
    pub(super) sq: VecDeque<Wqe>,
    /// The number of the queue's head, counted from the QP's first request.
    pub(super) head: u64,
    /// The first entry that is not on the link, as an index into `sq`, and how much of it is.
    pub(super) next: usize,
    pub(super) next_bytes: u32,
    /// The PSN of the next new packet.
    pub(super) psn: Psn,
    /// READs on the link and unanswered.
    pub(super) reads: u32,
    /// Requests on the link that want an answer.
    pub(super) awaited: u32,
    /// An entry failed: nothing after it is begun.
    pub(super) stopped: bool,
    pub(super) rnr_until: Option<Time>,
    pub(super) rnr_left: u8,
    pub(super) retry_at: Option<Time>,
    pub(super) retries_left: u8,
    /// The probe that was sent when the retry timer last ran out.
    pub(super) probe: Option<u64>,
}

impl Requester {
    pub(super) const fn new() -> Self {
        Self {
            sq: VecDeque::new(),
            head: 0,
            next: 0,
            next_bytes: 0,
            psn: Psn(0),
            reads: 0,
            awaited: 0,
            stopped: false,
            rnr_until: None,
            rnr_left: 0,
            retry_at: None,
            retries_left: 0,
            probe: None,
        }
    }

    /// The entry that holds `psn` and has been on the link, in part at least.
    fn find(&self, psn: Psn) -> Option<usize> {
        self.sq.iter().position(|wqe| {
            let Some(first) = wqe.psn else { return false };
            let past = psn_after(first, wqe.psns);
            psn_order(psn, first) != Ordering::Less && psn_order(psn, past) == Ordering::Less
        })
    }

    /// Marks an entry as no longer on the link.
    fn leave_link(&mut self, index: usize) {
        let Some(wqe) = self.sq.get(index) else { return };
        if wqe.progress == Progress::Sent {
            self.awaited -= u32::from(wqe.wants_answer());
            self.reads -= u32::from(matches!(wqe.op, Op::Read { .. }));
        }
    }

    fn set(&mut self, index: usize, progress: Progress) {
        self.leave_link(index);
        if let Some(wqe) = self.sq.get_mut(index) {
            wqe.progress = progress;
        }
    }

    /// Goes back to entry `index`: it and all after it are sent again.
    fn rewind(&mut self, index: usize) {
        for at in index..self.sq.len() {
            if self.sq[at].progress == Progress::Sent {
                self.set(at, Progress::Pending);
            }
        }
        self.next = index.min(self.next);
        self.next_bytes = 0;
        self.retry_at = None;
    }

    fn fail(&mut self, index: usize, status: WcStatus) {
        self.set(index, Progress::Failed(status));
        self.stopped = true;
    }

    /// Records that entry `next` is on the link as a whole.
    pub(super) fn sent(&mut self) {
        if let Some(wqe) = self.sq.get_mut(self.next) {
            wqe.progress = Progress::Sent;
            wqe.issued = true;
            self.awaited += u32::from(wqe.wants_answer());
            self.reads += u32::from(matches!(wqe.op, Op::Read { .. }));
        }
        self.next += 1;
        self.next_bytes = 0;
    }
}

impl QpInner {
    /// Appends a request. The caller has checked that there is room.
    pub(super) fn push_request(&mut self, env: &mut Env, wqe: Wqe) {
        if self.state == QpState::Err {
            self.flush_one(env, wqe.wr_id);
        } else {
            self.req.sq.push_back(wqe);
        }
    }

    fn flush_one(&self, env: &mut Env, wr_id: u64) {
        let wc = Wc::failed(wr_id, self.num, WcStatus::WrFlushErr, 0);
        env.complete(self.parts.send_cq, wc);
    }

    /// Completes everything outstanding with a flush, signaled or not.
    pub(super) fn flush_send_queue(&mut self, env: &mut Env) {
        for wqe in std::mem::take(&mut self.req.sq) {
            let reported = wqe.flags.has(SendFlags::SIGNALED);
            if env.rules.hold(Rule::Flush, false) && !reported {
                continue;
            }
            self.flush_one(env, wqe.wr_id);
        }
        let psn = self.req.psn;
        self.req = Requester { psn, ..Requester::new() };
    }

    /// Does what can be done without the link, completes what is done, and asks for the link if the
    /// next request needs it.
    pub(super) fn advance(&mut self, env: &mut Env) {
        while !self.req.stopped {
            let Some(wqe) = self.req.sq.get(self.req.next) else { break };
            match wqe.progress {
                Progress::Done => {
                    self.req.next += 1;
                    self.req.next_bytes = 0;
                    continue;
                }
                // It was refused as it was posted.
                Progress::Failed(_) => {
                    self.req.stopped = true;
                    break;
                }
                Progress::Pending | Progress::Sent => {}
            }
            if !wqe.op.is_local() || self.fenced(env, wqe) {
                break;
            }
            match self.execute(env, wqe.op) {
                Ok(()) => {
                    let next = self.req.next;
                    self.req.set(next, Progress::Done);
                    self.req.next += 1;
                }
                Err(status) => self.req.fail(self.req.next, status),
            }
        }
        self.complete_head(env);
        if self.state != QpState::Err && self.may_send(env) {
            if self.link.is_some() {
                self.want(env);
            } else if self.loss_at.is_none() {
                // Nothing can carry it: no link yet, or no longer.
                let delay = if self.lost { env.config.link_loss_delay } else { LINK_WAIT };
                self.loss_at = Some(env.now() + delay);
            }
        }
    }

    fn fenced(&self, env: &Env, wqe: &Wqe) -> bool {
        let waits = wqe.flags.has(SendFlags::FENCE) && self.req.reads > 0;
        !env.rules.hold(Rule::Fence, !waits)
    }

    /// Whether the next request can go on the link now.
    pub(super) fn may_send(&self, env: &Env) -> bool {
        if self.req.stopped || self.req.rnr_until.is_some() || self.state != QpState::Rts {
            return false;
        }
        let Some(wqe) = self.req.sq.get(self.req.next) else { return false };
        let depth_free = !matches!(wqe.op, Op::Read { .. })
            || env
                .rules
                .hold(Rule::MaxRdAtomic, self.req.reads < u32::from(self.attr.max_rd_atomic));
        depth_free && !self.fenced(env, wqe)
    }

    /// A request that touches only this device.
    fn execute(&self, env: &mut Env, op: Op) -> Result<(), WcStatus> {
        match op {
            Op::Bind { key, lkey, addr, len } => {
                let to = Binding { qp: self.id, mr: KeyTable::mr_index(lkey), addr, len };
                env.keys
                    .bind(env.rules, self.parts.pd, key, lkey, to)
                    .map_err(|_| WcStatus::MwBindErr)?;
                env.counters.binds += 1;
            }
            Op::Invalidate { key } => {
                env.keys
                    .invalidate(env.rules, Rule::InvalidateBound, self.id, key)
                    .map_err(|_| WcStatus::LocQpOpErr)?;
                env.counters.invalidations += 1;
                env.settle = true;
            }
            Op::Send { .. } | Op::Read { .. } => {}
        }
        Ok(())
    }

    /// Fails the entry that was to go on the link, for a reason found on this side.
    pub(super) fn fail_next(&mut self, env: &mut Env, status: WcStatus) {
        self.req.fail(self.req.next, status);
        self.complete_head(env);
    }

    /// Reports what is done at the queue's head, in order; a failure there ends the QP.
    pub(super) fn complete_head(&mut self, env: &mut Env) {
        let all = env.rules.hold(Rule::Unsignaled, false);
        let reported = |wqe: &Wqe| all || wqe.flags.has(SendFlags::SIGNALED);
        while let Some(wqe) = self.req.sq.front() {
            let wc = match wqe.progress {
                Progress::Done => reported(wqe).then(|| {
                    let byte_len = if matches!(wqe.op, Op::Read { .. }) { wqe.len } else { 0 };
                    let done = Completed { opcode: wqe.op.opcode(), byte_len, invalidated: None };
                    Wc::completed(wqe.wr_id, self.num, done)
                }),
                Progress::Failed(status) => Some(Wc::failed(wqe.wr_id, self.num, status, 0)),
                Progress::Pending | Progress::Sent => break,
            };
            let failed = matches!(wqe.progress, Progress::Failed(_));
            self.req.sq.pop_front();
            self.req.head += 1;
            if self.req.next == 0 {
                self.req.next_bytes = 0;
            } else {
                self.req.next -= 1;
            }
            if let Some(wc) = wc {
                env.complete(self.parts.send_cq, wc);
            }
            if failed {
                self.enter_err(env);
                break;
            }
        }
    }

    /// Starts, restarts or stops the retry timer: it runs while an answer is awaited.
    pub(super) fn restart_retry_timer(&mut self, env: &Env) {
        let runs = self.req.awaited > 0 && self.attr.timeout > 0 && self.state == QpState::Rts;
        self.req.retry_at = runs.then(|| {
            env.now() + Duration::from_nanos(4096 << u32::from(self.attr.timeout.min(31)))
        });
    }

    /// The peer device made progress with this QP.
    fn heard(&mut self, env: &Env) {
        self.req.retries_left = self.attr.retry_cnt;
        self.req.probe = None;
        self.restart_retry_timer(env);
    }

    /// Everything up to and including `psn` arrived; READs among it are done only by their data.
    pub(super) fn on_ack(&mut self, env: &mut Env, psn: Psn) {
        if self.state != QpState::Rts || psn_order(psn, self.req.psn) != Ordering::Less {
            env.packets_dropped += 1;
            return;
        }
        let mut moved = false;
        for index in 0..self.req.sq.len() {
            let wqe = &self.req.sq[index];
            let Some(last) = wqe.last_psn() else {
                // Local requests take no PSN; an unsent one ends the search.
                if wqe.op.is_local() { continue } else { break }
            };
            if psn_order(last, psn) == Ordering::Greater {
                break;
            }
            let open = matches!(wqe.progress, Progress::Sent | Progress::Pending) && wqe.issued;
            if open && matches!(wqe.op, Op::Send { .. }) {
                self.req.set(index, Progress::Done);
                moved = true;
            }
        }
        if moved {
            self.req.rnr_left = self.attr.rnr_retry;
            self.heard(env);
            self.advance(env);
        }
    }

    /// The peer device refused the request that holds `psn`.
    pub(super) fn on_nak(&mut self, env: &mut Env, psn: Psn, nak: Nak) {
        if self.state != QpState::Rts {
            return;
        }
        self.on_ack(env, psn_after(psn, 0x00ff_ffff));
        let Some(index) = self.req.find(psn) else {
            env.packets_dropped += 1;
            return;
        };
        if matches!(self.req.sq[index].progress, Progress::Done | Progress::Failed(_)) {
            return;
        }
        let status = match nak {
            Nak::Rnr(code) => return self.on_rnr(env, index, code),
            Nak::InvalidRequest => WcStatus::RemInvReqErr,
            Nak::Access => WcStatus::RemAccessErr,
            Nak::Operation => WcStatus::RemOpErr,
        };
        self.req.fail(index, status);
        self.complete_head(env);
    }

    fn on_rnr(&mut self, env: &mut Env, index: usize, code: u8) {
        if self.req.rnr_until.is_some() {
            return;
        }
        const FOR_EVER: u8 = 7;
        if self.attr.rnr_retry != FOR_EVER {
            if !env.rules.hold(Rule::RnrRetry, self.req.rnr_left > 0) {
                self.req.fail(index, WcStatus::RnrRetryExcErr);
                return self.complete_head(env);
            }
            self.req.rnr_left = self.req.rnr_left.saturating_sub(1);
        }
        self.req.rewind(index);
        // The peer answered: it is not silent.
        self.req.retries_left = self.attr.retry_cnt;
        self.req.probe = None;
        let waits = !env.rules.hold(Rule::RnrTimer, false);
        let delay = if waits { rnr_delay(code) } else { Duration::ZERO };
        self.req.rnr_until = Some(env.now() + delay);
    }

    /// Fires what is due.
    pub(super) fn on_timer(&mut self, env: &mut Env, now: Time) {
        let due = |at: Option<Time>| at.is_some_and(|at| at <= now);
        if due(self.loss_at) {
            self.loss_at = None;
            if !env.rules.hold(Rule::LinkLost, false) {
                return self.give_up(env);
            }
        }
        if due(self.req.rnr_until) {
            self.req.rnr_until = None;
            self.advance(env);
        }
        if due(self.req.retry_at) {
            self.req.retry_at = None;
            env.overdue.push(self.id);
        }
    }

    /// The retry timer ran out: sends again, gives up, or goes on waiting. True: a probe of the
    /// peer's device must follow.
    ///
    /// A NIC answers whatever its host is doing. A software device answers when it is polled; a
    /// peer whose core is busy is no dead peer, so only silence of a polled device is counted.
    pub(super) fn on_overdue(&mut self, env: &mut Env, peer: PeerDevice) -> bool {
        let exhausted = !env.rules.hold(Rule::RetryExceeded, self.req.retries_left > 0);
        match peer {
            PeerDevice::Busy => {
                self.restart_retry_timer(env);
                return false;
            }
            PeerDevice::Unknown if exhausted => {
                self.restart_retry_timer(env);
                return true;
            }
            PeerDevice::Polled if exhausted => {
                self.give_up(env);
                return false;
            }
            PeerDevice::Unknown | PeerDevice::Polled => {}
        }
        self.req.retries_left = self.req.retries_left.saturating_sub(1);
        let oldest = self.req.sq.iter().position(|wqe| wqe.progress == Progress::Sent);
        if let Some(index) = oldest {
            self.req.rewind(index);
        }
        self.advance(env);
        true
    }

    /// The peer is taken for dead: the oldest request says so, the others are flushed.
    pub(super) fn give_up(&mut self, env: &mut Env) {
        let unfinished = |wqe: &Wqe| matches!(wqe.progress, Progress::Sent | Progress::Pending);
        if let Some(index) = self.req.sq.iter().position(unfinished) {
            self.req.fail(index, WcStatus::RetryExcErr);
        }
        self.complete_head(env);
        self.enter_err(env);
    }

    /// A piece of a READ's answer begins. `Some`: the number of its entry, which takes the payload.
    pub(super) fn begin_answer(&mut self, env: &mut Env, header: &Header) -> Option<u64> {
        let Kind::ReadResponse { offset, last } = header.kind else { return None };
        let number = self.answered_read(header.psn).filter(|_| self.state == QpState::Rts);
        let Some(number) = number else {
            env.packets_dropped += 1;
            return None;
        };
        if offset == 0 {
            // The peer takes requests in order, so those before the READ arrived.
            self.on_ack(env, psn_after(header.psn, 0x00ff_ffff));
        }
        let wqe = self.entry_mut(number)?;
        let end = offset.saturating_add(header.payload.into());
        if offset < wqe.received.into() {
            // An answer to the same request, sent twice: the bytes are here.
            return None;
        }
        let fits = offset == u64::from(wqe.received) && end <= wqe.len.into();
        let whole = last == (end == wqe.len.into()) && (last || header.payload > 0);
        if !fits || !whole {
            self.fail_entry(env, number, WcStatus::BadRespErr);
            return None;
        }
        Some(number)
    }

    /// The READ that a response with `psn` answers: the number of its entry. Responses come in
    /// order, so it is the oldest unfinished one or a late duplicate, which finds nothing.
    pub(super) fn answered_read(&self, psn: Psn) -> Option<u64> {
        let open = |wqe: &Wqe| {
            matches!(wqe.op, Op::Read { .. })
                && matches!(wqe.progress, Progress::Sent | Progress::Pending)
                && wqe.issued
        };
        let index = self.req.sq.iter().position(open)?;
        (self.req.sq[index].psn == Some(psn)).then_some(self.req.head + index as u64)
    }

    /// The entry of that number, if it is still in the queue.
    pub(super) fn entry_mut(&mut self, number: u64) -> Option<&mut Wqe> {
        let index = number.checked_sub(self.req.head)?;
        self.req.sq.get_mut(usize::try_from(index).ok()?)
    }

    /// Where the next byte of that READ goes.
    pub(super) fn read_target(&self, env: &Env, number: u64) -> Option<Span> {
        let index = usize::try_from(number.checked_sub(self.req.head)?).ok()?;
        let wqe = self.req.sq.get(index)?;
        let sge = wqe.sges.at(wqe.received.into())?;
        env.keys.local(env.rules, self.parts.pd, sge, true)
    }

    /// A piece of a READ's answer is complete in memory.
    pub(super) fn on_read_piece(&mut self, env: &mut Env, number: u64, last: bool) {
        let Some(wqe) = self.entry_mut(number) else { return };
        if last {
            let len = wqe.len;
            let index = (number - self.req.head) as usize;
            self.req.set(index, Progress::Done);
            env.counters.reads += 1;
            env.counters.read_bytes += u64::from(len);
        }
        self.heard(env);
        if last {
            self.advance(env);
        }
    }

    /// Something forbids going on with an entry.
    pub(super) fn fail_entry(&mut self, env: &mut Env, number: u64, status: WcStatus) {
        if let Some(index) = number.checked_sub(self.req.head) {
            self.req.fail(index as usize, status);
            self.complete_head(env);
        }
    }
}
