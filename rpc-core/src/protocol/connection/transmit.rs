//! What goes to the peer: as many frames as are ready in one SEND.

use super::super::body::{OutAnswer, OutCall};
use super::super::calls::{InState, OutState};
use super::super::event::FailureKind;
use super::super::ids::LeaseId;
use super::super::leases::{LeaseState, Side};
use super::{Connection, State, Transmit};
use crate::Time;
use crate::wire::{
    Cancel, CancelReason, Confirm, Count, FrameFlags, FrameType, Full, GoAway, Nonce, Notice,
    Releases, RequestFrame, ResponseFrame, Segments, SendFlags, SendHeader, SendWriter, WireStatus,
    Writer,
};

/// A SEND being filled.
struct Filling<'a> {
    writer: SendWriter<'a>,
    /// Ranges that may still be advertised for the first time.
    ranges: u32,
    leases: Vec<LeaseId>,
}

impl Connection {
    /// Fills one SEND with as many frames as are ready and fit into `buf` (and `eager_bytes`).
    ///
    /// At most `ranges_max` ranges of leases are advertised in it for the first time; what needs more
    /// waits for the next. (One message has at most 16.) `None`: there is nothing to say, or no credit
    /// to say it with. What is given out counts as sent: if it cannot be posted, the QP is lost.
    pub fn poll_transmit(
        &mut self,
        now: Time,
        buf: &mut [u8],
        ranges_max: u32,
    ) -> Option<Transmit> {
        if !self.wants_transmit() {
            return None;
        }
        let len = buf.len().min(self.config.eager_bytes as usize);
        let writer = SendWriter::new(buf.get_mut(..len)?).ok()?;
        let mut filling = Filling { writer, ranges: ranges_max, leases: Vec::new() };
        let answers = self.outbox.has_answers();
        if self.credits.may_send() {
            self.fill(now, &mut filling);
        }
        let credit_only = filling.writer.is_empty();
        if credit_only {
            if !self.credit_only_due() {
                return None;
            }
            put(&mut filling.writer, FrameType::Credit, 0, |_| Ok(())).ok()?;
        }
        let sent = self.finish(filling, credit_only);
        if answers {
            self.credits.expect_read();
        }
        if self.liveness.is_even() && self.is_waiting() {
            self.liveness.waits(now);
        }
        self.settle();
        sent.ok()
    }

    /// Whether [`poll_transmit`](Self::poll_transmit) is worth calling.
    pub fn wants_transmit(&self) -> bool {
        let waits = match self.state {
            State::Closed => false,
            State::Broken => self.outbox.error.is_some(),
            _ if !self.confirm_sent => self.outbox.confirm,
            State::Confirming => false,
            State::Open | State::Closing(_) => !self.outbox.is_empty(),
        };
        waits && self.credits.may_send() || self.credit_only_due()
    }

    fn credit_only_due(&self) -> bool {
        self.is_confirmed() && self.confirm_sent && self.credits.credit_only_due()
    }

    /// Spends the credit and writes the header.
    fn finish(&mut self, filling: Filling<'_>, credit_only: bool) -> Result<Transmit, Full> {
        let frames = filling.writer.frames();
        let credits = self.credits.send(credit_only);
        let mut flags = SendFlags::NONE;
        if credit_only {
            flags = flags.and(SendFlags::CREDIT_ONLY);
            self.counters.sends_credit_only += 1;
        }
        // What waits now, or waited until now though it fitted in: with one more credit it would have left
        // while the peer was at work on what left before. That credits have come back meanwhile, all at once
        // perhaps, changes nothing of that.
        let starved = std::mem::take(&mut self.starved);
        if starved || (self.credits.available() == 0 && !self.outbox.is_empty()) {
            flags = flags.and(SendFlags::WANTS_CREDIT);
            self.counters.credit_stalls += 1;
        }
        self.counters.sends += 1;
        self.counters.frames_out += u64::from(frames);
        let len = filling.writer.finish(&SendHeader {
            flags,
            epoch: self.config.epoch,
            sequence: credits.sequence,
            limit: credits.limit,
            received: credits.received,
        })?;
        Ok(Transmit { len, leases: filling.leases })
    }

    /// Adds what is ready, class by class.
    fn fill(&mut self, now: Time, filling: &mut Filling<'_>) {
        let writer = &mut filling.writer;
        // What does not fit waits for the next SEND; so nothing here asks twice.
        let _ = if self.state == State::Broken {
            self.fill_error(writer)
        } else if !self.confirm_sent {
            self.fill_confirm(writer)
        } else if self.state == State::Confirming {
            Ok(())
        } else {
            self.fill_control(now, writer)
                .and_then(|()| self.fill_answers(filling, true))
                .and_then(|()| self.fill_requests(now, filling, true))
                .and_then(|()| self.fill_answers(filling, false))
                .and_then(|()| self.fill_requests(now, filling, false))
        };
    }

    /// The last words.
    fn fill_error(&mut self, writer: &mut SendWriter<'_>) -> Result<(), Full> {
        if let Some((code, text)) = self.outbox.error.take() {
            let notice = Notice { code, text: &text };
            put(writer, FrameType::Error, 0, |w| notice.encode(w))?;
        }
        Ok(())
    }

    /// The first SEND carries CONFIRM alone.
    fn fill_confirm(&mut self, writer: &mut SendWriter<'_>) -> Result<(), Full> {
        if self.outbox.confirm {
            let len = self.config.confirm_bytes.min(self.config.eager_bytes / 8 * 8);
            let padding = Confirm::padding_for(len);
            let confirm = Confirm { mac: self.config.confirm_own, padding };
            put(writer, FrameType::Confirm, 0, |w| confirm.encode(w))?;
            self.outbox.confirm = false;
            self.confirm_sent = true;
        }
        Ok(())
    }

    fn fill_control(&mut self, now: Time, writer: &mut SendWriter<'_>) -> Result<(), Full> {
        let outbox = &mut self.outbox;
        if outbox.ping {
            let nonce = self.liveness.number();
            put(writer, FrameType::Ping, 0, |w| Nonce { nonce }.encode(w))?;
            self.liveness.sent(now);
            self.counters.pings += 1;
            outbox.ping = false;
        }
        if let Some(nonce) = outbox.pong {
            put(writer, FrameType::Pong, 0, |w| Nonce { nonce }.encode(w))?;
            outbox.pong = None;
        }
        while !outbox.releases.is_empty() {
            let fit = Releases::fit(writer.room()).min(outbox.releases.len());
            let list = outbox.releases.make_contiguous().get(..fit).ok_or(Full)?;
            put(writer, FrameType::Release, 0, |w| Releases::encode(list, w))?;
            outbox.releases.drain(..fit);
        }
        while let Some(&(call, reason)) = outbox.cancels.front() {
            put(writer, FrameType::Cancel, call, |w| Cancel { reason }.encode(w))?;
            outbox.cancels.pop_front();
        }
        while let Some(refusal) = outbox.refusals.front() {
            let notice = Notice { code: refusal.code, text: &refusal.message };
            put(writer, FrameType::Refused, refusal.wire, |w| notice.encode(w))?;
            outbox.refusals.pop_front();
        }
        if let Some(count) = outbox.recall {
            put(writer, FrameType::Recall, 0, |w| Count { count }.encode(w))?;
            outbox.recall = None;
            self.recall_sent(now);
        }
        let outbox = &mut self.outbox;
        if let Some(count) = outbox.returned {
            put(writer, FrameType::Return, 0, |w| Count { count }.encode(w))?;
            outbox.returned = None;
        }
        if let Some(goaway) = &outbox.goaway {
            let notice = Notice { code: goaway.code, text: &goaway.message };
            let body = GoAway { last_id: goaway.last, notice };
            put(writer, FrameType::GoAway, 0, |w| body.encode(w))?;
            outbox.goaway = None;
        }
        Ok(())
    }

    /// Answers, in the order in which they were given. They stop at one that needs more ranges than
    /// are left; requests may still go.
    fn fill_answers(&mut self, filling: &mut Filling<'_>, urgent: bool) -> Result<(), Full> {
        loop {
            let incoming = &self.incoming;
            let line = &mut self.outbox.lane(urgent).answers;
            let Some(call) = line.first(|id| incoming.is_answered(id)) else {
                return Ok(());
            };
            let Some(slot) = incoming.get(call) else { return Ok(()) };
            let InState::Answered(answer) = &slot.state else { return Ok(()) };
            let lease = answer.body.lease;
            let ranges = lease.map_or(0, |lease| self.leases.ranges(lease));
            if ranges > filling.ranges {
                return Ok(());
            }
            let frame = response_frame(answer);
            put(&mut filling.writer, FrameType::Response, slot.wire, |w| frame.encode(w))?;
            self.outbox.lane(urgent).answers.pop();
            self.incoming.discard(call);
            // A CANCEL may be on its way.
            self.stray.expect_cancel();
            if let Some(lease) = lease {
                self.advertise(filling, lease, ranges, Side::Incoming(call));
            }
        }
    }

    /// Requests of one class, in the order in which they were begun.
    fn fill_requests(
        &mut self,
        now: Time,
        filling: &mut Filling<'_>,
        urgent: bool,
    ) -> Result<(), Full> {
        loop {
            let outgoing = &mut self.outgoing;
            let line = &mut self.outbox.lane(urgent).requests;
            let Some(call) = line.first(|id| outgoing.is_queued(id)) else {
                return Ok(());
            };
            let wire = outgoing.next_wire(call);
            let Some(slot) = outgoing.get(call) else { return Ok(()) };
            if slot.deadline.is_some_and(|deadline| deadline <= now) {
                if let Some((token, execution)) = self.end_outgoing(call, CancelReason::Deadline) {
                    let message = "the deadline passed before the request could be sent";
                    self.failed(token, FailureKind::Deadline, message, execution);
                }
                continue;
            }
            let OutState::Queued(request) = &slot.state else { return Ok(()) };
            let (lease, name) = (request.body.lease, request.method);
            let ranges = lease.map_or(0, |lease| self.leases.ranges(lease));
            if ranges > filling.ranges {
                return Ok(());
            }
            let (method, named) = self.methods_out.id(name);
            let frame = request_frame(request, method, named, Some(now));
            put(&mut filling.writer, FrameType::Request, wire, |w| frame.encode(w))?;
            if named {
                self.methods_out.sent(name, method);
            }
            outgoing.post(call);
            self.counters.calls_out += 1;
            self.outbox.lane(urgent).requests.pop();
            if let Some(lease) = lease {
                self.advertise(filling, lease, ranges, Side::Outgoing(call));
            }
        }
    }

    fn advertise(&mut self, filling: &mut Filling<'_>, lease: LeaseId, ranges: u32, side: Side) {
        self.leases.step(lease, LeaseState::Queued(side), LeaseState::Advertised);
        filling.ranges = filling.ranges.saturating_sub(ranges);
        filling.leases.push(lease);
    }
}

/// Adds a frame.
fn put(
    writer: &mut SendWriter<'_>,
    kind: FrameType,
    call: u64,
    write: impl FnOnce(&mut Writer<'_>) -> Result<(), Full>,
) -> Result<(), Full> {
    writer.frame(kind, FrameFlags::NONE, call, write)
}

/// The frame of a request. `now`: what is left of its time; without it, as long as it can get.
pub(super) fn request_frame(
    call: &OutCall,
    method: u32,
    named: bool,
    now: Option<Time>,
) -> RequestFrame<'_> {
    RequestFrame {
        method,
        name: named.then_some(call.method),
        timeout: now.and_then(|now| call.deadline.map(|deadline| deadline.since(now))),
        priority: call.priority,
        metadata: &call.metadata,
        segments: Segments::new(&call.body.segments),
        inline: &call.body.inline,
        ..RequestFrame::default()
    }
}

/// The frame of an answer.
pub(super) fn response_frame(answer: &OutAnswer) -> ResponseFrame<'_> {
    ResponseFrame {
        status: answer.status.as_ref().map(WireStatus::as_block),
        metadata: &answer.metadata,
        segments: Segments::new(&answer.body.segments),
        inline: &answer.body.inline,
    }
}
