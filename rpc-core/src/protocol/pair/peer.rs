use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;

use super::super::*;
use crate::wire::{PayloadDescriptor, Segment};
use crate::{Execution, Time};

/// Bytes up to which a message travels inline here.
const INLINE_MAX: usize = 2000;
/// Bytes of a piece at most: small, so that messages have several.
const PIECE_MAX: usize = 30_000;

/// How a call of ours ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It was answered, with this status.
    Answered(Option<WireStatus>),
    /// It failed.
    Failed(CallFailure),
    /// The test cancelled it.
    Cancelled,
}

/// All ends of calls, by token.
pub type Ended = HashMap<u64, Vec<Ending>>;

/// A READ that was posted.
#[derive(Debug)]
pub(super) struct Posted {
    read: Read,
}

/// A range of memory that the other side may READ while it is open.
#[derive(Debug)]
struct Window {
    addr: u64,
    bytes: Bytes,
    open: bool,
}

/// What became of a transfer's announcement.
#[derive(Debug, Default)]
struct Fetched {
    buffers: Vec<Vec<u8>>,
    /// READs outstanding.
    reads: u32,
    ready: bool,
}

/// A connection and the small engine that serves it.
#[derive(Debug)]
pub struct Peer {
    /// The connection.
    pub connection: Connection,
    /// Whether incoming messages wait in `fetches` for the test.
    pub hold_memory: bool,
    /// Whether incoming calls wait in `calls` for the test; otherwise they are echoed at once.
    pub hold_calls: bool,
    /// Priority of the calls that are begun from now on.
    pub priority: u8,
    /// Whether leases whose end has begun wait in `revokes` for the test.
    pub hold_revokes: bool,
    /// Whether receives are not posted again (they count in `unposted`).
    pub hold_receives: bool,
    /// Messages without memory.
    pub fetches: Vec<TransferId>,
    /// Calls whose handlers run, with the token that their content names.
    pub calls: Vec<(CallId, u64)>,
    /// Calls that were cancelled and whose handlers have not ended.
    pub cancelled: Vec<CallId>,
    /// Leases whose windows are to be closed.
    pub revokes: Vec<LeaseId>,
    /// How calls ended.
    pub ended: Ended,
    /// Calls that were begun and have not ended, oldest first.
    pub outstanding: Vec<(CallId, u64)>,
    /// Why it closed.
    pub closed: Option<CloseReason>,
    /// What was wrong with the other side.
    pub violation: Option<Violation>,
    /// Whether the other side has said that it goes away.
    pub goes_away: bool,
    /// How long the other side had said nothing when it was given up.
    pub silence: Option<Duration>,
    /// Whether this side's program stands still: nothing that arrives is looked at, nothing leaves.
    pub stopped: bool,
    /// The wish of the last `Lend`.
    pub lend: Option<u32>,
    /// Receives that came back by RETURN.
    pub returned: u32,
    /// Handlers that ran, by token: never more than once each.
    pub executed: HashMap<u64, u32>,
    /// Receives that stand in the device.
    pub receives: u32,
    /// Receives that were consumed and not posted again.
    pub unposted: u32,
    side: u64,
    next_token: u64,
    next_key: u32,
    windows: HashMap<u32, Window>,
    leases: HashMap<LeaseId, Vec<u32>>,
    transfers: HashMap<TransferId, Fetched>,
}

/// The content of the message of a call or its answer: the token, then bytes that follow from it.
pub fn content(token: u64, len: usize) -> Vec<u8> {
    let mut bytes = token.to_le_bytes().to_vec();
    bytes
        .extend((8..len.max(8)).map(|at| (token as usize).wrapping_mul(31).wrapping_add(at) as u8));
    bytes
}

impl Peer {
    pub(super) fn new(now: Time, config: ConnectionConfig, window: u32, side: u64) -> Self {
        let mut connection = Connection::new(now, config, side.wrapping_mul(0x1234_5678_9abc_def1));
        connection.on_receives_posted(window + 1);
        Self {
            connection,
            hold_memory: false,
            hold_calls: false,
            priority: 0,
            hold_revokes: false,
            hold_receives: false,
            fetches: Vec::new(),
            calls: Vec::new(),
            cancelled: Vec::new(),
            revokes: Vec::new(),
            ended: HashMap::new(),
            outstanding: Vec::new(),
            closed: None,
            violation: None,
            goes_away: false,
            silence: None,
            stopped: false,
            lend: None,
            returned: 0,
            executed: HashMap::new(),
            receives: window + 1,
            unposted: 0,
            side,
            next_token: 0,
            next_key: 1,
            windows: HashMap::new(),
            leases: HashMap::new(),
            transfers: HashMap::new(),
        }
    }

    pub(super) fn call(&mut self, now: Time, len: usize, deadline: Option<Time>) -> Option<u64> {
        const METHODS: [&str; 3] = ["t.S/A", "t.S/B", "t.S/C"];
        self.next_token += 1;
        let token = self.side << 32 | self.next_token;
        let body = self.body(now, content(token, len), deadline)?;
        let method = METHODS[(token % 3) as usize];
        let priority = self.priority;
        let call = OutCall { method, deadline, metadata: Bytes::new(), priority, body };
        match self.connection.start_call(now, token, call) {
            Ok(id) => {
                self.outstanding.push((id, token));
                Some(token)
            }
            Err((call, _)) => {
                if let Some(lease) = call.body.lease {
                    self.close_windows(lease);
                    self.connection.on_lease_revoked(lease);
                }
                None
            }
        }
    }

    /// Cancels the call with this token.
    pub fn cancel(&mut self, now: Time, token: u64) {
        let at = self.outstanding.iter().position(|(_, other)| *other == token);
        if at.is_some_and(|at| self.connection.cancel_call(now, self.outstanding[at].0)) {
            self.end(token, Ending::Cancelled);
        }
    }

    /// Answers a call with `len` bytes.
    pub fn answer(&mut self, now: Time, call: CallId, token: u64, len: usize) -> bool {
        self.calls.retain(|(other, _)| *other != call);
        self.cancelled.retain(|other| *other != call);
        let answer = match self.body(now, content(token, len), None) {
            Some(body) => OutAnswer { body, ..OutAnswer::default() },
            None => {
                let status = WireStatus::new(crate::Code::ResourceExhausted, "no lease");
                OutAnswer { status: Some(status), ..OutAnswer::default() }
            }
        };
        self.connection.answer(now, call, answer)
    }

    /// A message of this content, in pieces if it is long. `None`: no lease.
    fn body(&mut self, now: Time, content: Vec<u8>, deadline: Option<Time>) -> Option<OutBody> {
        if content.len() <= INLINE_MAX {
            return Some(OutBody::inline(content));
        }
        let content = Bytes::from(content);
        let (head, rest) = (content.slice(..100), content.slice(100..));
        let tail = rest.slice(rest.len() - 7..);
        let pieces = rest.slice(..rest.len() - 7);
        let count = pieces.len().div_ceil(PIECE_MAX);
        let expires = deadline.unwrap_or(now + Duration::from_secs(60));
        let bytes = pieces.len() as u64;
        let lease = self.connection.reserve_lease(now, count as u8, bytes, expires).ok()?;
        let mut segments = vec![Segment::Inline(100)];
        for at in (0..pieces.len()).step_by(PIECE_MAX) {
            let bytes = pieces.slice(at..pieces.len().min(at + PIECE_MAX));
            let (rkey, addr) = (self.next_key, u64::from(self.next_key) << 20);
            self.next_key += 1;
            let (len, lease_number) = (bytes.len() as u32, lease.as_u64());
            segments.push(Segment::Payload(PayloadDescriptor {
                addr,
                len,
                rkey,
                lease: lease_number,
            }));
            self.windows.insert(rkey, Window { addr, bytes, open: false });
            self.leases.entry(lease).or_default().push(rkey);
        }
        segments.push(Segment::Inline(7));
        let inline = [head, tail].concat().into();
        Some(OutBody { inline, segments, lease: Some(lease) })
    }

    /// Memory for a message that waits.
    pub fn fetch_ready(&mut self, now: Time, transfer: TransferId) {
        self.fetches.retain(|other| *other != transfer);
        if let Some(fetched) = self.transfers.get_mut(&transfer) {
            fetched.ready = true;
        }
        self.connection.on_fetch_ready(now, transfer);
    }

    /// No memory for a message that waits.
    pub fn fetch_refused(&mut self, now: Time, transfer: TransferId) {
        self.fetches.retain(|other| *other != transfer);
        self.connection.on_fetch_refused(now, transfer);
    }

    /// Closes the windows of a lease.
    pub fn revoked(&mut self, lease: LeaseId) {
        self.revokes.retain(|other| *other != lease);
        self.close_windows(lease);
        self.connection.on_lease_revoked(lease);
    }

    /// Posts receives again, or more of them.
    pub fn post(&mut self, n: u32) {
        self.receives += n;
        self.connection.on_receives_posted(n);
    }

    /// Takes all events, and does what they ask for.
    pub fn act(&mut self, now: Time) {
        while let Some(event) = self.connection.poll_event() {
            self.on_event(now, event);
        }
    }

    fn on_event(&mut self, now: Time, event: Event) {
        match event {
            Event::Confirmed => {}
            Event::Fetch { transfer, pieces, .. } => {
                assert!(!pieces.is_empty() && pieces.len() <= 16);
                let buffers = pieces.iter().map(|len| vec![0; *len as usize]).collect();
                let fetched = Fetched { buffers, ..Fetched::default() };
                let before = self.transfers.insert(transfer, fetched);
                assert!(before.is_none(), "one transfer was announced twice");
                self.fetches.push(transfer);
                if !self.hold_memory {
                    self.fetch_ready(now, transfer);
                }
            }
            Event::Call(call) => self.on_call(now, call),
            Event::Answer { token, status, body, .. } => {
                let message = self.collect(body);
                assert!(status.is_some() || message == content(token, message.len()));
                self.end(token, Ending::Answered(status));
            }
            Event::Failed { token, failure } => self.end(token, Ending::Failed(failure)),
            Event::Cancelled { call, .. } => {
                let at = self.calls.iter().position(|(other, _)| *other == call);
                assert!(at.is_some(), "a call was cancelled that does not run");
                self.calls.retain(|(other, _)| *other != call);
                self.cancelled.push(call);
                if !self.hold_calls {
                    self.end_incoming(now, call);
                }
            }
            Event::Revoke { lease, .. } => {
                assert!(self.leases.contains_key(&lease) && !self.revokes.contains(&lease));
                self.revokes.push(lease);
                if !self.hold_revokes {
                    self.revoked(lease);
                }
            }
            Event::Discard { transfer } => {
                self.fetches.retain(|other| *other != transfer);
                let fetched = self.transfers.remove(&transfer);
                assert!(fetched.is_some_and(|fetched| fetched.reads == 0), "READs go on");
            }
            Event::Lend { wanted } => self.lend = Some(wanted),
            Event::Returned { count } => {
                // They are others' now: a SEND that took one would find none here.
                self.receives -= count;
                self.returned += count;
            }
            Event::GoingAway => {
                assert!(!std::mem::replace(&mut self.goes_away, true), "it goes away twice");
            }
            Event::Silent { silence } => {
                assert!(self.silence.replace(silence).is_none(), "it is found silent twice");
                let message = "the peer is silent".into();
                let reason = LossReason { kind: LossKind::Silence, message };
                self.connection.on_lost(now, reason);
            }
            Event::Closed { reason } => {
                assert!(self.closed.replace(reason).is_none(), "it closed twice");
                // The QP's windows go with it.
                self.windows.clear();
                self.leases.clear();
                self.revokes.clear();
            }
        }
    }

    fn on_call(&mut self, now: Time, call: InCall) {
        let message = self.collect(call.body);
        let token = message.first_chunk().map(|bytes| u64::from_le_bytes(*bytes)).unwrap_or(0);
        assert_eq!(message, content(token, message.len()), "the request is damaged");
        *self.executed.entry(token).or_default() += 1;
        assert_eq!(self.executed.get(&token), Some(&1), "a call ran twice");
        self.calls.push((call.call, token));
        if !self.hold_calls {
            self.answer(now, call.call, token, message.len());
        }
    }

    /// The handler of a cancelled call has ended.
    pub fn end_incoming(&mut self, now: Time, call: CallId) {
        self.cancelled.retain(|other| *other != call);
        self.connection.end_incoming(now, call);
    }

    /// Puts a message together; its transfer ends.
    fn collect(&mut self, body: InBody) -> Vec<u8> {
        let Some(transfer) = body.transfer else {
            assert!(body.segments.is_empty());
            return body.inline.to_vec();
        };
        let fetched = self.transfers.remove(&transfer);
        let Some(fetched) = fetched.filter(|fetched| fetched.reads == 0 && fetched.ready) else {
            panic!("a message came without its pieces");
        };
        let (mut message, mut inline) = (Vec::new(), body.inline);
        for segment in body.segments {
            match segment {
                InSegment::Inline(len) => message.extend(inline.split_to(len as usize)),
                InSegment::Piece(piece) => message.extend(&fetched.buffers[piece as usize]),
            }
        }
        assert!(inline.is_empty());
        message
    }

    fn end(&mut self, token: u64, ending: Ending) {
        self.outstanding.retain(|(_, other)| *other != token);
        let endings = self.ended.entry(token).or_default();
        endings.push(ending);
        assert_eq!(endings.len(), 1, "a call ended twice: {endings:?}");
    }

    /// What can be sent and read now.
    pub(super) fn pump(&mut self, now: Time) -> (Vec<Vec<u8>>, Vec<Posted>) {
        self.act(now);
        let (mut sends, mut reads) = (Vec::new(), Vec::new());
        while let Some(read) = self.connection.poll_read() {
            match self.transfers.get_mut(&read.transfer) {
                Some(fetched) if fetched.ready => fetched.reads += 1,
                _ => panic!("a READ without a buffer"),
            }
            reads.push(Posted { read });
        }
        let mut buf = vec![0xee; 9216];
        while let Some(sent) = self.connection.poll_transmit(now, &mut buf, 16) {
            for lease in sent.leases {
                for key in self.leases.get(&lease).into_iter().flatten() {
                    let window = self.windows.get_mut(key).expect("a lease has its windows");
                    assert!(!window.open, "a window was bound twice");
                    window.open = true;
                }
            }
            sends.push(buf[..sent.len].to_vec());
        }
        self.act(now);
        (sends, reads)
    }

    /// A SEND arrives.
    pub(super) fn receive(&mut self, now: Time, bytes: &[u8]) {
        if self.connection.is_closed() || self.violation.is_some() {
            return;
        }
        assert!(self.receives > 0, "a SEND found no receive");
        self.receives -= 1;
        if let Err(violation) = self.connection.on_message(now, bytes) {
            self.violation = Some(violation);
            return;
        }
        if self.hold_receives {
            self.unposted += 1;
        } else {
            self.post(1);
        }
    }

    /// The other side READs here.
    pub(super) fn serve(&self, posted: &Posted) -> Option<Bytes> {
        let read = &posted.read;
        let window = self.windows.get(&read.rkey).filter(|window| window.open)?;
        let from = usize::try_from(read.addr.checked_sub(window.addr)?).ok()?;
        let to = from.checked_add(read.len as usize)?;
        (to <= window.bytes.len()).then(|| window.bytes.slice(from..to))
    }

    pub(super) fn read_done(&mut self, now: Time, posted: &Posted, bytes: Option<Bytes>) {
        let read = &posted.read;
        let Some(fetched) = self.transfers.get_mut(&read.transfer) else {
            panic!("the buffers were freed under a READ");
        };
        fetched.reads -= 1;
        if let Some(bytes) = &bytes {
            let (from, to) = (read.offset as usize, (read.offset + read.len) as usize);
            fetched.buffers[read.piece as usize][from..to].copy_from_slice(bytes);
        }
        self.connection.on_read_done(now, read.id, bytes.is_some());
    }

    fn close_windows(&mut self, lease: LeaseId) {
        for key in self.leases.remove(&lease).into_iter().flatten() {
            self.windows.remove(&key);
        }
    }

    /// Whether the method of a call that ended here may have run, as its caller was told.
    pub fn execution(&self, token: u64) -> Option<Execution> {
        match self.ended.get(&token)?.first()? {
            Ending::Answered(_) => Some(Execution::Executed),
            Ending::Failed(failure) => Some(failure.execution),
            Ending::Cancelled => None,
        }
    }

    /// Nothing is left here.
    ///
    /// # Panics
    /// If something is.
    pub fn assert_at_rest(&self) {
        let c = &self.connection;
        assert!(c.is_quiescent(), "something is left: {c:?}");
        assert_eq!((c.leases_outstanding(), c.lease_bytes(), c.reads_outstanding()), (0, 0, 0));
        assert!(self.windows.is_empty() && self.leases.is_empty(), "memory is still exposed");
        assert!(self.transfers.is_empty(), "buffers are left");
        assert!(self.calls.is_empty() && self.cancelled.is_empty() && self.outstanding.is_empty());
        assert_eq!(c.counters().misuses, 0);
    }
}
