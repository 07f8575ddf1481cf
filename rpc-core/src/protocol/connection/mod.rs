use std::collections::VecDeque;

use super::body::{OutAnswer, OutCall};
use super::calls::{InState, Incoming, Outgoing};
use super::config::{ConnectionConfig, Role};
use super::counters::{Counters, CreditCounts};
use super::credits::Credits;
use super::deadlines::{Deadlines, Timer};
use super::event::{CloseReason, Event, GoawayReason};
use super::ids::{CallId, LeaseId, ReadId, TransferId};
use super::leases::{LeaseState, Leases, Side};
use super::liveness::Liveness;
use super::methods::{MethodsIn, MethodsOut};
use super::outbox::{Goaway, Outbox};
use super::transfers::Transfers;
use crate::Time;
use crate::wire::{self, CancelReason as WireCancel, RequestFrame, ResponseFrame, Segments};

mod ends;
mod fetch;
mod recall;
mod receive;
mod timers;
mod transmit;

/// Why a call was not taken on. It was not executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallRefused {
    /// `calls_out_max` calls are outstanding: wait for one to end. Back-pressure, no error.
    #[error("{max} calls are outstanding on this connection, as many as it may have")]
    Full {
        /// The bound.
        max: u32,
    },
    /// The connection is closing, at the wish of either side, or closed.
    #[error("the connection is closing and takes no new calls")]
    Closing,
    /// The part of the request that must travel in one SEND does not fit into it: see
    /// [`Connection::request_inline_max`].
    #[error("the request needs a frame of {len} bytes, and {max} fit into one SEND")]
    TooLarge {
        /// Bytes of its REQUEST.
        len: usize,
        /// What fits.
        max: usize,
    },
    /// The request breaks a rule of the wire format: its segments do not add up to its bytes, or its
    /// name, metadata or descriptors are out of bounds. A bug of the caller.
    #[error("the request cannot be encoded: {0}")]
    Malformed(wire::DecodeError),
    /// Its lease is not one that is reserved: it has expired, or another message uses it.
    #[error("the lease of the request is not held any more")]
    NoLease,
}

/// Leases are used up; wait for one to be released. Back-pressure, no error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{leases} leases over {bytes} bytes are outstanding on this connection; one more is too many"
)]
pub struct LeaseFull {
    /// Outstanding now.
    pub leases: u32,
    /// Bytes under them.
    pub bytes: u64,
}

/// One SEND, written into the buffer that was given.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Transmit {
    /// Its length.
    pub len: usize,
    /// Leases that it advertises for the first time: their windows are bound in the same chain,
    /// before the SEND.
    pub leases: Vec<LeaseId>,
}

/// One READ to be posted.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Read {
    /// Names it in [`Connection::on_read_done`].
    pub id: ReadId,
    /// The transfer whose buffers it fills.
    pub transfer: TransferId,
    /// Which of the transfer's pieces.
    pub piece: u32,
    /// Where in the piece.
    pub offset: u32,
    /// Bytes.
    pub len: u32,
    /// Where in the peer's memory.
    pub addr: u64,
    /// The window's key.
    pub rkey: u32,
    /// Whether it is the last of its transfer to be given out.
    pub last: bool,
}

impl std::fmt::Debug for Read {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Read({:?}, {} bytes of piece {} at {})",
            self.id, self.len, self.piece, self.offset
        )
    }
}

/// How far a connection has come.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// The peer's CONFIRM has not come.
    Confirming,
    /// Calls go both ways.
    Open,
    /// GOAWAY was queued with this reason: what runs may end.
    Closing(GoawayReason),
    /// The peer broke a rule: one ERROR may leave.
    Broken,
    /// Nothing happens any more.
    Closed,
}

/// The state machine of one connection. See the [module](super) for the contract.
#[derive(Debug)]
pub struct Connection {
    config: ConnectionConfig,
    state: State,
    /// Whether our CONFIRM was put into a SEND.
    confirm_sent: bool,
    /// The peer's GOAWAY: it will run no call of ours above this id.
    peer_last: Option<u64>,
    credits: Credits,
    outgoing: Outgoing,
    incoming: Incoming,
    methods_out: MethodsOut,
    methods_in: MethodsIn,
    leases: Leases,
    transfers: Transfers,
    deadlines: Deadlines,
    liveness: Liveness,
    outbox: Outbox,
    events: VecDeque<Event>,
    /// Credits that the peer was asked for, or is to be, and has not answered for.
    recalled: Option<u32>,
    /// When it must have answered.
    recall_until: Option<Time>,
    /// Whether `Lend` is among the events.
    lend_pending: bool,
    /// Whether a message had to wait for a credit since the last SEND.
    starved: bool,
    stray: receive::Stray,
    /// Leases that expired since the last RELEASE.
    expired_in_a_row: u32,
    counters: Counters,
}

// Commands.
impl Connection {
    /// A new connection. `seed` makes lease ids hard to guess; it comes from the system's CSPRNG.
    ///
    /// The two guaranteed receives must stand before the peer may send:
    /// [`on_receives_posted`](Self::on_receives_posted)`(2)` comes first.
    pub fn new(now: Time, config: ConnectionConfig, seed: u64) -> Self {
        // A transfer belongs to a call, or has been abandoned and waits for its READs.
        let transfers_max = config
            .calls_out_max
            .saturating_add(config.calls_in_max)
            .saturating_add(config.reads_max);
        let mut connection = Self {
            state: State::Confirming,
            confirm_sent: false,
            peer_last: None,
            credits: Credits::new(),
            outgoing: Outgoing::new(config.role, config.calls_out_max),
            incoming: Incoming::new(config.role, config.calls_in_max),
            methods_out: MethodsOut::new(config.methods_max),
            methods_in: MethodsIn::default(),
            leases: Leases::new(config.leases_max, config.lease_bytes_max, seed),
            transfers: Transfers::new(transfers_max, config.reads_max, config.read_chunk_bytes),
            deadlines: Deadlines::new(),
            liveness: Liveness::new(now, config.pings, config.role == Role::Accepting),
            outbox: Outbox::default(),
            events: VecDeque::new(),
            recalled: None,
            recall_until: None,
            lend_pending: false,
            starved: false,
            stray: receive::Stray::default(),
            expired_in_a_row: 0,
            counters: Counters::default(),
            config,
        };
        // The connecting side speaks first: the other is ready before it answers the hello.
        connection.outbox.confirm = connection.config.role == Role::Connecting;
        connection.arm(connection.config.confirm_deadline, Timer::Confirm);
        connection
    }

    /// Takes a call on. It is sent as soon as there are credits; until then it is `NotExecuted`.
    ///
    /// `token` comes back with the `Answer` or `Failed` that ends it. If the call is refused it is
    /// given back and its lease stays reserved: use it again, or give it up with
    /// [`on_lease_revoked`](Self::on_lease_revoked).
    #[expect(clippy::result_large_err, reason = "the call goes back where it came from, unboxed")]
    pub fn start_call(
        &mut self,
        now: Time,
        token: u64,
        call: OutCall,
    ) -> Result<CallId, (OutCall, CallRefused)> {
        if let Err(why) = self.check_call(&call) {
            return Err((call, why));
        }
        self.begin_to_wait(now);
        let (deadline, lease, urgent) = (call.deadline, call.body.lease, call.priority > 0);
        let id = match self.outgoing.insert(token, call) {
            Ok(id) => id,
            Err(call) => return Err((call, CallRefused::Full { max: self.config.calls_out_max })),
        };
        if let Some(lease) = lease {
            self.leases.step(lease, LeaseState::Reserved, LeaseState::Queued(Side::Outgoing(id)));
        }
        if let Some(deadline) = deadline {
            self.arm(deadline, Timer::Outgoing(id));
        }
        let outgoing = &self.outgoing;
        self.outbox.lane(urgent).requests.push(id, |id| outgoing.is_queued(id));
        self.starved |= self.credits.available() == 0;
        Ok(id)
    }

    fn check_call(&self, call: &OutCall) -> Result<(), CallRefused> {
        if !matches!(self.state, State::Confirming | State::Open) || self.peer_last.is_some() {
            return Err(CallRefused::Closing);
        }
        if self.outgoing.is_full() {
            return Err(CallRefused::Full { max: self.config.calls_out_max });
        }
        // As if its name had to travel: whether it must is known when it is sent.
        let frame = transmit::request_frame(call, 0, true, None);
        frame.check().map_err(CallRefused::Malformed)?;
        let (len, max) = (frame.encoded_len(), self.frame_body_max());
        if len > max {
            return Err(CallRefused::TooLarge { len, max });
        }
        match call.body.lease {
            Some(lease) if self.leases.state(lease) != Some(LeaseState::Reserved) => {
                Err(CallRefused::NoLease)
            }
            lease if lease.map(LeaseId::as_u64) != frame.segments.lease() => {
                Err(CallRefused::NoLease)
            }
            _ => Ok(()),
        }
    }

    /// The user dropped this call: it ends here and now without an event. The peer is told if it
    /// knows of it. `Revoke` and `Discard` may still follow for what it used.
    ///
    /// `false`: it had ended before; its `Answer` or `Failed` was given out or is among the events.
    pub fn cancel_call(&mut self, _now: Time, call: CallId) -> bool {
        let ended = self.end_outgoing(call, WireCancel::Dropped).is_some();
        self.settle();
        ended
    }

    /// Answers a call of the peer. `false`: nobody waits for it any more (it was cancelled, its
    /// deadline passed, the connection is gone); this ends it all the same, and if the answer has a
    /// lease, `Revoke` follows for it unless the connection is closed.
    ///
    /// An answer whose frame does not fit into a SEND goes out as a status that says so.
    pub fn answer(&mut self, _now: Time, call: CallId, answer: OutAnswer) -> bool {
        let running = match self.incoming.get(call).map(|slot| &slot.state) {
            Some(InState::Running) => !self.is_closed(),
            Some(InState::Cancelled) => {
                self.incoming.discard(call);
                false
            }
            _ => false,
        };
        if running {
            self.queue_answer(call, answer);
        } else if let Some(lease) = answer.body.lease {
            self.revoke(lease, false);
        }
        self.settle();
        running
    }

    fn queue_answer(&mut self, call: CallId, mut answer: OutAnswer) {
        if let Err(why) = self.check_answer(&answer) {
            if let Some(lease) = answer.body.lease {
                self.revoke(lease, false);
            }
            let status = wire::WireStatus::new(crate::Code::Internal, why);
            answer = OutAnswer { status: Some(status), ..OutAnswer::default() };
        }
        if let Some(lease) = answer.body.lease {
            self.leases.step(lease, LeaseState::Reserved, LeaseState::Queued(Side::Incoming(call)));
        }
        let mut urgent = false;
        if let Some(slot) = self.incoming.get_mut(call) {
            slot.state = InState::Answered(answer);
            urgent = slot.urgent;
        }
        let incoming = &self.incoming;
        self.outbox.lane(urgent).answers.push(call, |id| incoming.is_answered(id));
        self.starved |= self.credits.available() == 0;
    }

    fn check_answer(&self, answer: &OutAnswer) -> Result<(), String> {
        let frame = transmit::response_frame(answer);
        frame.check().map_err(|error| format!("the answer cannot be encoded: {error}"))?;
        let (len, max) = (frame.encoded_len(), self.frame_body_max());
        if len > max {
            return Err(format!(
                "the answer needs a frame of {len} bytes, and {max} fit into one SEND"
            ));
        }
        let held = match answer.body.lease {
            Some(lease) => self.leases.state(lease) == Some(LeaseState::Reserved),
            None => true,
        };
        if !held || answer.body.lease.map(LeaseId::as_u64) != frame.segments.lease() {
            return Err("the lease of the answer expired before it was sent".to_owned());
        }
        Ok(())
    }

    /// Ends a call of the peer that never ran and never will: the peer may repeat it.
    pub fn refuse(&mut self, _now: Time, call: CallId, code: u32, message: &str) {
        match self.incoming.get(call).map(|slot| &slot.state) {
            Some(InState::Running) => self.refuse_incoming(call, code, message.to_owned().into()),
            Some(InState::Cancelled) => self.incoming.discard(call),
            _ => self.counters.misuses += 1,
        }
        self.settle();
    }

    /// The handler of a call that was `Cancelled` has ended: the call counts no more.
    pub fn end_incoming(&mut self, _now: Time, call: CallId) {
        match self.incoming.get(call).map(|slot| &slot.state) {
            Some(InState::Cancelled) => self.incoming.discard(call),
            _ => self.counters.misuses += 1,
        }
        self.settle();
    }

    /// Reserves a lease of `ranges` ranges over `bytes` bytes, for one message. `expires` is the
    /// deadline of its call; `lease_grace` later it is revoked even if the peer is silent.
    pub fn reserve_lease(
        &mut self,
        now: Time,
        ranges: u8,
        bytes: u64,
        expires: Time,
    ) -> Result<LeaseId, LeaseFull> {
        self.begin_to_wait(now);
        let full = LeaseFull { leases: self.leases.len(), bytes: self.leases.bytes() };
        if self.is_closed() {
            return Err(full);
        }
        let lease = self.leases.reserve(ranges, bytes).ok_or(full)?;
        self.arm(expires + self.config.lease_grace, Timer::Lease(lease));
        Ok(lease)
    }

    /// Closes in good order: tells the peer (GOAWAY), takes no new calls either way, lets those that
    /// run end, then `Closed`, at the latest after `close_wait`.
    pub fn close(&mut self, now: Time, reason: GoawayReason) {
        match self.state {
            State::Confirming => {
                let reason = CloseReason::Local { reason, drained: self.outgoing.len() == 0 };
                self.end_everything("the connection was closed before it was confirmed", reason);
            }
            State::Open => {
                let (code, message) = (reason.code, reason.message.clone());
                let last = self.incoming.last();
                self.outbox.goaway = Some(Goaway { last, code, message });
                self.state = State::Closing(reason);
                self.arm(now + self.config.close_wait, Timer::Close);
            }
            State::Closing(_) | State::Broken | State::Closed => {}
        }
        self.settle();
    }
}

// Outputs, but for `poll_transmit`.
impl Connection {
    /// Whether something happened that was not taken yet. What was transmitted may be the last thing that a
    /// closing connection waited for, so it is asked after each flush too.
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// The next thing that happened.
    pub fn poll_event(&mut self) -> Option<Event> {
        loop {
            match self.events.pop_front()? {
                // Its handler was quicker: it has ended already, and nobody knows it any more.
                Event::Cancelled { call, .. } if self.incoming.get(call).is_none() => {}
                event => {
                    self.lend_pending &= !matches!(event, Event::Lend { .. });
                    return Some(event);
                }
            }
        }
    }

    /// Bytes of the READ that [`poll_read`](Self::poll_read) would give.
    pub fn next_read_len(&self) -> Option<u32> {
        if matches!(self.state, State::Broken | State::Closed) {
            return None;
        }
        self.transfers.next_read_len()
    }

    /// The next READ to post. At most `reads_max` are outstanding at a time.
    pub fn poll_read(&mut self) -> Option<Read> {
        if matches!(self.state, State::Broken | State::Closed) {
            return None;
        }
        let read = self.transfers.next_read()?;
        self.counters.reads += 1;
        self.counters.read_bytes += u64::from(read.len);
        Some(read)
    }

    /// When to call [`on_timer`](Self::on_timer).
    pub fn poll_timeout(&self) -> Option<Time> {
        if self.is_closed() {
            return None;
        }
        self.deadlines.next().into_iter().chain(self.next_look()).min()
    }

    /// Calls can go both ways: nobody is closing it.
    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Open)
    }

    /// Whether the peer's CONFIRM has come and the connection is not closed.
    pub fn is_confirmed(&self) -> bool {
        matches!(self.state, State::Open | State::Closing(_))
    }

    /// Whether no call can begin or end any more.
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// Whether nothing at all is left: no call, transfer, lease, frame or event.
    pub fn is_quiescent(&self) -> bool {
        self.outgoing.len() == 0
            && self.incoming.is_empty()
            && self.transfers.len() == 0
            && self.leases.len() == 0
            && self.outbox.is_empty()
            && self.events.is_empty()
    }

    /// Credits, both ways.
    pub fn credits(&self) -> CreditCounts {
        self.credits.counts()
    }

    /// When the peer last gave a sign of life: a SEND, or bulk that its device moved.
    pub fn heard(&self) -> Time {
        self.liveness.last_heard()
    }

    /// What was counted since the connection began.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Calls of ours that have not ended.
    pub fn calls_outstanding(&self) -> u32 {
        self.outgoing.len()
    }

    /// Calls of the peer that count against `calls_in_max`.
    pub fn calls_incoming(&self) -> u32 {
        self.incoming.len()
    }

    /// Leases that have not ended.
    pub fn leases_outstanding(&self) -> u32 {
        self.leases.len()
    }

    /// Bytes under them.
    pub fn lease_bytes(&self) -> u64 {
        self.leases.bytes()
    }

    /// Transfers that have not ended, those that only wait for their READs included.
    pub fn transfers_outstanding(&self) -> u32 {
        self.transfers.len()
    }

    /// READs given out and not reported done.
    pub fn reads_outstanding(&self) -> u32 {
        self.transfers.outstanding()
    }

    /// Inline bytes that a request of this method fits beside, with `metadata` bytes of metadata and
    /// a message of `inlines` inline segments and `pieces` payload descriptors (both 0 for a message
    /// that is all inline).
    pub fn request_inline_max(
        &self,
        method: &'static str,
        metadata: usize,
        inlines: usize,
        pieces: usize,
    ) -> usize {
        let empty = RequestFrame { name: Some(method), ..RequestFrame::default() };
        self.inline_max(empty.encoded_len(), metadata, inlines, pieces)
    }

    /// Inline bytes that an answer without a status fits, as for requests.
    pub fn response_inline_max(&self, metadata: usize, inlines: usize, pieces: usize) -> usize {
        self.inline_max(ResponseFrame::default().encoded_len(), metadata, inlines, pieces)
    }

    fn inline_max(&self, head: usize, metadata: usize, inlines: usize, pieces: usize) -> usize {
        let inline = Segments::new(&[wire::Segment::Inline(1)]).encoded_len();
        let piece = inline + wire::PayloadDescriptor::BYTES;
        let rest = metadata
            .checked_next_multiple_of(wire::ALIGN)
            .and_then(|n| n.checked_add(head)?.checked_add(inlines.checked_mul(inline)?))
            .and_then(|n| n.checked_add(pieces.checked_mul(piece)?));
        rest.map_or(0, |rest| self.frame_body_max().saturating_sub(rest))
    }

    /// The longest body of a frame that has a SEND for itself.
    fn frame_body_max(&self) -> usize {
        let room = (self.config.eager_bytes as usize).saturating_sub(wire::SEND_HEADER_BYTES);
        (room / wire::ALIGN * wire::ALIGN).saturating_sub(wire::FRAME_HEADER_BYTES)
    }
}
