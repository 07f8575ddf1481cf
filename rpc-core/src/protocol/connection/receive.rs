//! What comes from the peer. Everything is checked before it is believed.

use super::super::body::InBody;
use super::super::calls::{InState, OutState};
use super::super::config::Role;
use super::super::credits::CreditHeader;
use super::super::event::{CancelReason, Event, FailureKind, InCall};
use super::super::ids::CallId;
use super::super::leases::Released;
use super::super::transfers::{Held, copied, in_body};
use super::super::violation::Violation;
use super::{Connection, State};
use crate::wire::{
    Cancel, Confirm, Count, DecodeError, Frame, FrameType, Frames, GoAway, Nonce, Notice,
    ReleaseOutcome, Releases, RequestFrame, ResponseFrame, SendFlags, SendHeader,
};
use crate::{Code, Execution, Time};

/// Frames in a row that bring nothing forward, after which the peer is taken for broken or hostile.
/// An honest peer sends few: a PING while another is unanswered, or frames of a later version.
const NO_PROGRESS_MAX: u32 = 1024;

/// RELEASEs of leases that never were, after which the connection ends. An honest peer sends none.
const RELEASES_UNKNOWN_MAX: u64 = 16;

/// Frames that an honest peer may still send about what has ended here, and those that bring nothing
/// forward.
#[derive(Debug, Default)]
pub(super) struct Stray {
    /// Calls of ours that ended here first: one answer or refusal may come for each.
    answers: u64,
    /// Calls of the peer that we ended: one CANCEL may come for each.
    cancels: u64,
    /// Leases that ended without a RELEASE: one may come for each.
    releases: u64,
    /// Frames that brought nothing forward since the last one that did.
    idle: u32,
}

impl Stray {
    pub(super) fn expect_answer(&mut self) {
        self.answers += 1;
    }

    pub(super) fn expect_cancel(&mut self) {
        self.cancels += 1;
    }

    pub(super) fn expect_release(&mut self) {
        self.releases += 1;
    }

    fn progress(&mut self) {
        self.idle = 0;
    }

    /// A frame that nothing follows from.
    fn idle(&mut self) -> Result<(), Violation> {
        self.idle += 1;
        if self.idle > NO_PROGRESS_MAX { Err(Violation::NoProgress(self.idle)) } else { Ok(()) }
    }

    /// A frame that comes late: free of blame as often as `expected` says.
    fn late(expected: &mut u64) -> bool {
        let was = *expected > 0;
        *expected = expected.saturating_sub(1);
        was
    }
}

impl Connection {
    /// A SEND came. What is needed of `bytes` is copied, so its buffer may be posted again at once.
    ///
    /// After a `Violation` take what [`poll_transmit`](Self::poll_transmit) still gives (one ERROR
    /// frame if there is a credit), then close and say [`on_lost`](Self::on_lost).
    pub fn on_message(&mut self, now: Time, bytes: &[u8]) -> Result<(), Violation> {
        if matches!(self.state, State::Broken | State::Closed) {
            return Ok(());
        }
        let received = self.receive(now, bytes);
        if let Err(violation) = &received {
            let tell = self.is_confirmed() && !matches!(violation, Violation::Reported { .. });
            self.outbox.clear();
            self.outbox.error = tell.then(|| (Code::Internal as u32, violation.to_string()));
            self.state = State::Broken;
        }
        self.settle();
        received
    }

    /// This side ends the connection because of the peer's delay, and has a last word for it, as after a
    /// `Violation`.
    pub fn give_up(&mut self, why: &str) {
        if matches!(self.state, State::Broken | State::Closed) {
            return;
        }
        self.outbox.clear();
        let notice = (Code::Unavailable as u32, why.to_owned());
        self.outbox.error = self.is_confirmed().then_some(notice);
        self.state = State::Broken;
    }

    /// `n` more receives stand in the SRQ for this connection: first the guaranteed two, later one
    /// for each SEND that was parsed, and loans. Only these are granted to the peer.
    pub fn on_receives_posted(&mut self, n: u32) {
        self.credits.posted(n);
    }

    fn receive(&mut self, now: Time, bytes: &[u8]) -> Result<(), Violation> {
        let max = u64::from(self.config.eager_bytes);
        if bytes.len() as u64 > max {
            let (field, value) = ("SEND total length", bytes.len() as u64);
            return Err(DecodeError::TooLarge { field, value, max }.into());
        }
        let (header, frames) = SendHeader::decode(bytes)?;
        if header.epoch != self.config.epoch {
            return Err(Violation::Epoch { want: self.config.epoch, got: header.epoch });
        }
        let credit_only = header.flags.has(SendFlags::CREDIT_ONLY);
        let SendHeader { sequence, limit, received, .. } = header;
        self.credits.receive(CreditHeader { sequence, limit, received, credit_only })?;
        self.liveness.heard(now);
        self.counters.receives += 1;
        self.counters.frames_in += u64::from(frames.left());
        if self.state == State::Confirming {
            return self.on_confirm(frames, credit_only);
        }
        if header.flags.has(SendFlags::WANTS_CREDIT) && !self.lend_pending {
            self.lend_pending = true;
            let wanted = self.credits.counts().standing.saturating_sub(1).max(1);
            self.events.push_back(Event::Lend { wanted });
        }
        if frames.left() == 0 && !credit_only {
            self.stray.idle()?;
        }
        for frame in frames {
            let frame = frame?;
            if credit_only && frame.kind != FrameType::Credit {
                return Err(Violation::CreditOnly);
            }
            self.on_frame(now, frame)?;
            // After each, since what a frame begins may have to be answered whatever becomes of it.
            self.check_flood()?;
        }
        Ok(())
    }

    /// The peer's first SEND: CONFIRM alone.
    fn on_confirm(&mut self, frames: Frames<'_>, credit_only: bool) -> Result<(), Violation> {
        if credit_only || frames.left() != 1 {
            return Err(Violation::Confirm("it was something else"));
        }
        for frame in frames {
            let frame = frame?;
            if frame.kind != FrameType::Confirm {
                return Err(Violation::Confirm("it was something else"));
            }
            let mac = Confirm::decode(frame.body)?.mac;
            // Every byte is compared whatever the others are, so time tells nothing of the key.
            let pairs = mac.iter().zip(&self.config.confirm_peer);
            if pairs.fold(0, |differs, (a, b)| differs | (a ^ b)) != 0 {
                return Err(Violation::Unconfirmed);
            }
        }
        self.state = State::Open;
        if self.config.role == Role::Accepting {
            self.outbox.confirm = true;
        }
        self.events.push_back(Event::Confirmed);
        Ok(())
    }

    fn on_frame(&mut self, now: Time, frame: Frame<'_>) -> Result<(), Violation> {
        match frame.kind {
            FrameType::Request => self.on_request(now, frame),
            FrameType::Response => self.on_response(now, frame),
            FrameType::Refused => self.on_refused(frame),
            FrameType::Cancel => self.on_cancel(frame),
            FrameType::Release => self.on_releases(frame.body),
            FrameType::Ping => self.on_ping(frame.body),
            FrameType::Pong => self.on_pong(frame.body),
            FrameType::GoAway => self.on_goaway(frame.body),
            FrameType::Recall => self.on_recall(frame.body),
            FrameType::Credit => Ok(()),
            FrameType::Error => {
                let Notice { code, text } = Notice::decode("ERROR", frame.body)?;
                Err(Violation::Reported { code, message: text.into() })
            }
            FrameType::Confirm => Err(Violation::Confirm("a second one came")),
            FrameType::Item => Err(Violation::Unexpected("ITEM")),
            FrameType::StreamCredit => Err(Violation::Unexpected("STREAM_CREDIT")),
            FrameType::Return => self.on_return(frame.body),
            FrameType::Skippable(_) => {
                self.counters.frames_skipped += 1;
                self.stray.idle()
            }
        }
    }

    fn on_request(&mut self, now: Time, frame: Frame<'_>) -> Result<(), Violation> {
        let request = RequestFrame::decode(frame.body)?;
        if !self.incoming.is_theirs(frame.call) {
            return Err(Violation::Initiator { frame: "REQUEST" });
        }
        if !self.incoming.advance(frame.call) {
            return Err(Violation::CallIdReused);
        }
        // Before anything can refuse the call: later ones rely on the names of this one.
        self.methods_in.take(request.method, request.name)?;
        self.stray.progress();
        if let Some((code, message)) = self.reason_to_refuse(&request) {
            if let Some(lease) = request.segments.lease() {
                self.release(lease, ReleaseOutcome::Skipped);
            }
            match code {
                Some(code) => self.refuse_wire(frame.call, code as u32, message.into()),
                // Our GOAWAY says what became of this call. A CANCEL may come first.
                None => self.stray.expect_cancel(),
            }
            return Ok(());
        }
        self.counters.calls_in += 1;
        self.take_request(now, frame.call, &request);
        Ok(())
    }

    /// Why a request is not even begun; without a code nothing is said about it.
    fn reason_to_refuse(&mut self, request: &RequestFrame<'_>) -> Option<(Option<Code>, String)> {
        if matches!(self.state, State::Closing(_)) {
            return Some((None, String::new()));
        }
        if self.incoming.is_full() {
            self.counters.calls_in_over_max += 1;
            let max = self.config.calls_in_max;
            let message = format!("{max} calls of this connection are in work, as many as may be");
            return Some((Some(Code::ResourceExhausted), message));
        }
        let len = request.segments.payload_bytes() + request.inline.len() as u64;
        let max = self.config.message_bytes_max;
        (len > max).then(|| {
            let message = format!("the request has {len} bytes, and at most {max} are accepted");
            (Some(Code::ResourceExhausted), message)
        })
    }

    /// A call of the peer is complete.
    pub(super) fn hand_out(&mut self, mut call: InCall) {
        if let Some(name) = self.methods_in.first_name(call.method) {
            call.name = Some(name);
        }
        self.events.push_back(Event::Call(call));
    }

    /// Accepts a request that nothing speaks against.
    fn take_request(&mut self, now: Time, wire: u64, request: &RequestFrame<'_>) {
        let deadline = request.timeout.map(|timeout| now + timeout);
        let urgent = request.priority > 0;
        // The id is filled in when there is one.
        let mut call = InCall {
            call: CallId(0),
            method: request.method,
            // A name with an id comes with the first call of it that is handed out.
            name: request.name.filter(|_| request.method == 0).map(Into::into),
            deadline,
            metadata: copied(request.metadata),
            priority: request.priority,
            body: InBody::default(),
        };
        match self.begin_fetch(&request.segments) {
            None => {
                call.body = in_body(&request.segments, request.inline, None);
                let Some(id) = self.incoming.insert(wire, urgent, InState::Running) else { return };
                call.call = id;
                self.arm_incoming(id, deadline);
                self.hand_out(call);
            }
            Some(Err(message)) => {
                self.refuse_wire(wire, Code::ResourceExhausted as u32, message.into());
            }
            Some(Ok(transfer)) => {
                call.body = in_body(&request.segments, request.inline, Some(transfer));
                let state = InState::Fetching(transfer);
                let Some(id) = self.incoming.insert(wire, urgent, state) else { return };
                call.call = id;
                self.arm_incoming(id, deadline);
                self.fetch(now, transfer, Held::Call(call), deadline);
            }
        }
    }

    fn on_response(&mut self, now: Time, frame: Frame<'_>) -> Result<(), Violation> {
        let response = ResponseFrame::decode(frame.body)?;
        if !self.outgoing.is_ours(frame.call) {
            return Err(Violation::Initiator { frame: "RESPONSE" });
        }
        let Some(call) = self.outgoing.waiting(frame.call) else {
            if let Some(lease) = response.segments.lease() {
                self.release(lease, ReleaseOutcome::Skipped);
            }
            return self.on_late_answer();
        };
        self.stray.progress();
        let len = response.segments.payload_bytes() + response.inline.len() as u64;
        let max = self.config.message_bytes_max;
        if len > max {
            if let Some(lease) = response.segments.lease() {
                self.release(lease, ReleaseOutcome::Skipped);
            }
            let message = format!("the answer has {len} bytes, and at most {max} are accepted");
            self.fail_answered(call, FailureKind::Exhausted, message);
            return Ok(());
        }
        self.take_response(now, call, &response);
        Ok(())
    }

    /// Accepts an answer to a call that waits for it.
    fn take_response(&mut self, now: Time, call: CallId, response: &ResponseFrame<'_>) {
        let status = response.status.map(|status| status.to_wire_status());
        let metadata = copied(response.metadata);
        match self.begin_fetch(&response.segments) {
            None => {
                let Some(token) = self.outgoing.finish(call) else { return };
                let body = in_body(&response.segments, response.inline, None);
                self.events.push_back(Event::Answer { token, status, metadata, body });
            }
            Some(Err(message)) => self.fail_answered(call, FailureKind::Exhausted, message),
            Some(Ok(transfer)) => {
                let Some(slot) = self.outgoing.get_mut(call) else { return };
                slot.state = OutState::Fetching(transfer);
                let deadline = slot.deadline;
                let body = in_body(&response.segments, response.inline, Some(transfer));
                let held = Held::Answer { call, status, metadata, body };
                self.fetch(now, transfer, held, deadline);
            }
        }
    }

    fn on_refused(&mut self, frame: Frame<'_>) -> Result<(), Violation> {
        let Notice { code, text } = Notice::decode("REFUSED", frame.body)?;
        if !self.outgoing.is_ours(frame.call) {
            return Err(Violation::Initiator { frame: "REFUSED" });
        }
        let Some(call) = self.outgoing.waiting(frame.call) else {
            return self.on_late_answer();
        };
        self.stray.progress();
        if let Some(token) = self.outgoing.finish(call) {
            let (kind, message) = (FailureKind::Refused(code), text.to_owned());
            self.failed(token, kind, message, Execution::NotExecuted);
        }
        Ok(())
    }

    fn on_late_answer(&mut self) -> Result<(), Violation> {
        self.counters.answers_late += 1;
        if Stray::late(&mut self.stray.answers) { Ok(()) } else { self.stray.idle() }
    }

    fn on_cancel(&mut self, frame: Frame<'_>) -> Result<(), Violation> {
        Cancel::decode(frame.body)?;
        if !self.incoming.is_theirs(frame.call) {
            return Err(Violation::Initiator { frame: "CANCEL" });
        }
        let call = self.incoming.find(frame.call);
        if call.is_some_and(|call| self.cancel_incoming(call, CancelReason::Peer)) {
            self.stray.progress();
            return Ok(());
        }
        self.counters.cancels_late += 1;
        if Stray::late(&mut self.stray.cancels) { Ok(()) } else { self.stray.idle() }
    }

    fn on_releases(&mut self, body: &[u8]) -> Result<(), Violation> {
        for release in Releases::decode(body)? {
            if release.outcome != ReleaseOutcome::Read {
                self.counters.releases_unread += 1;
            }
            match self.leases.release(release.lease) {
                Released::Over(lease) => {
                    self.stray.progress();
                    self.expired_in_a_row = 0;
                    self.events.push_back(Event::Revoke { lease, expired: false });
                }
                Released::Late => {
                    self.counters.releases_late += 1;
                    if !Stray::late(&mut self.stray.releases) {
                        self.stray.idle()?;
                    }
                }
                Released::Unknown => {
                    self.counters.releases_unknown += 1;
                    let unknown = self.counters.releases_unknown;
                    if unknown > RELEASES_UNKNOWN_MAX {
                        return Err(Violation::Releases(unknown));
                    }
                }
            }
        }
        Ok(())
    }

    fn on_ping(&mut self, body: &[u8]) -> Result<(), Violation> {
        let Nonce { nonce } = Nonce::decode("PING", body)?;
        match self.outbox.pong.replace(nonce) {
            None => Ok(()),
            Some(_) => {
                self.counters.pings_merged += 1;
                self.stray.idle()
            }
        }
    }

    fn on_pong(&mut self, body: &[u8]) -> Result<(), Violation> {
        let Nonce { nonce } = Nonce::decode("PONG", body)?;
        if self.liveness.takes(nonce) { Ok(()) } else { Err(Violation::Unexpected("PONG")) }
    }

    fn on_recall(&mut self, body: &[u8]) -> Result<(), Violation> {
        let Count { count } = Count::decode("RECALL", body)?;
        let given = self.credits.give_back(count);
        self.outbox.returned = Some(self.outbox.returned.unwrap_or(0).saturating_add(given));
        if given == 0 { self.stray.idle() } else { Ok(()) }
    }

    /// The peer will run no call of ours above an id.
    fn on_goaway(&mut self, body: &[u8]) -> Result<(), Violation> {
        let GoAway { last_id, notice } = GoAway::decode(body)?;
        if self.peer_last.is_some_and(|last| last_id >= last) {
            return self.stray.idle();
        }
        if self.peer_last.is_none() {
            self.events.push_back(Event::GoingAway);
        }
        self.peer_last = Some(last_id);
        for call in self.outgoing.ids() {
            let Some(slot) = self.outgoing.get(call) else { continue };
            let runs = match slot.state {
                OutState::Queued(_) => false,
                OutState::Posted => slot.wire <= last_id,
                OutState::Fetching(_) => true,
            };
            if runs {
                continue;
            }
            if let Some(token) = self.drop_outgoing(call) {
                let message =
                    format!("the peer goes away and did not run the call: {}", notice.text);
                self.failed(token, FailureKind::Goaway, message, Execution::NotExecuted);
            }
        }
        Ok(())
    }

    /// More may not wait for the peer than it can be waiting for.
    fn check_flood(&self) -> Result<(), Violation> {
        let config = &self.config;
        // A peer that keeps to its own bounds has at most as many calls outstanding as we may have,
        // each with at most one lease; and one SEND's worth may be refused at once.
        let max = 2 * (config.calls_in_max.max(config.calls_out_max) as usize) + 1024;
        let owed = self.outbox.owed();
        if owed > max { Err(Violation::Flood(owed)) } else { Ok(()) }
    }
}
