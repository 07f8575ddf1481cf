use std::collections::HashSet;
use std::time::Duration;

use rpc_core::protocol::{CallId, FailureKind, LeaseId, Read, TransferId};
use rpc_core::{Execution, Time};

use super::seen::{Body, Pieces, Seen};

/// What an owner of a connection knows of it, and that all of it ends as promised.
#[derive(Default)]
pub(super) struct Owner {
    /// Calls that this side began and that have not ended, as far as events say.
    pub(super) outgoing: Vec<Outgoing>,
    /// Calls of the peer that were announced and have not ended.
    pub(super) incoming: Vec<Incoming>,
    /// Messages that are being fetched.
    pub(super) fetches: Vec<Fetch>,
    /// READs that were given out and not reported done.
    pub(super) reads: Vec<Read>,
    /// Leases that have not ended.
    pub(super) leases: Vec<(LeaseId, Lease)>,
    /// Transfers that have ended: an owner may say something of them too late.
    pub(super) stale: Vec<TransferId>,
    /// Receives that the peer would like to have.
    pub(super) lend: u32,
    pub(super) is_closed: bool,
    is_confirmed: bool,
    /// Short method ids whose names came.
    named: HashSet<u32>,
    next_token: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Outgoing {
    pub(super) token: u64,
    pub(super) call: CallId,
    /// Whether its REQUEST was in a SEND.
    pub(super) posted: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Incoming {
    pub(super) call: CallId,
    pub(super) cancelled: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lease {
    /// No message has it yet.
    Reserved,
    /// Its message waits to be sent.
    Queued,
    /// Its windows are bound.
    Advertised,
    /// Its windows are to be closed.
    Revoking,
}

/// A message whose pieces are being fetched.
#[derive(Debug)]
pub(super) struct Fetch {
    pub(super) transfer: TransferId,
    pub(super) ready: bool,
    pieces: Pieces,
    /// The piece and offset that the next READ begins at.
    next: (u32, u32),
    /// READs outstanding.
    reads: u32,
    failed: bool,
}

impl Fetch {
    fn is_whole(&self) -> bool {
        self.ready && !self.failed && self.reads == 0 && self.is_issued()
    }

    fn is_issued(&self) -> bool {
        self.next == (self.pieces.lens().len() as u32, 0)
    }
}

impl Owner {
    pub(super) fn token(&mut self) -> u64 {
        self.next_token += 1;
        self.next_token
    }

    /// An event came.
    pub(super) fn on_event(&mut self, now: Time, limits: &Limits, event: Seen) {
        let late = self.is_closed && !matches!(event, Seen::Discard { .. });
        assert!(!late, "{event:?} after the connection closed");
        match event {
            Seen::Confirmed => {
                assert!(!self.is_confirmed, "confirmed twice");
                self.is_confirmed = true;
            }
            Seen::Fetch { transfer, pieces, deadline } => {
                self.on_fetch(now, limits, transfer, pieces, deadline);
            }
            Seen::Call { call, method, named, body } => {
                assert!(!self.incoming.iter().any(|other| other.call == call), "announced twice");
                // A name comes with the first call of its id, and with every call that has no id.
                assert_eq!(named, method == 0 || self.named.insert(method));
                self.incoming.push(Incoming { call, cancelled: false });
                self.deliver(body);
            }
            Seen::Answer { token, body } => {
                assert!(self.end_outgoing(token).posted, "an answer to what was not asked");
                self.deliver(body);
            }
            Seen::Failed { token, kind, execution } => {
                let posted = self.end_outgoing(token).posted;
                let peer_said_so = matches!(kind, FailureKind::Refused(_) | FailureKind::Goaway);
                assert!(posted || execution == Execution::NotExecuted, "{kind:?}");
                let ran_not = execution == Execution::NotExecuted;
                assert!(!posted || !ran_not || peer_said_so, "{kind:?}: it was sent");
            }
            Seen::Cancelled { call } => {
                let slot = self.incoming.iter_mut().find(|other| other.call == call);
                let slot = slot.expect("a call is cancelled that does not run");
                assert!(!slot.cancelled, "cancelled twice");
                slot.cancelled = true;
            }
            Seen::Revoke { lease } => {
                let state = self.lease_mut(lease).expect("a lease ends that is none");
                assert_ne!(*state, Lease::Revoking, "a lease ends twice");
                *state = Lease::Revoking;
            }
            Seen::Discard { transfer } => {
                let fetch = self.take_fetch(transfer);
                assert_eq!(fetch.reads, 0, "buffers are given up under a READ");
            }
            Seen::Lend { wanted } => {
                assert!(wanted > 0);
                self.lend = wanted;
            }
            Seen::GoingAway | Seen::Silent => {}
            Seen::Closed => {
                self.is_closed = true;
                // They go with the queue pair.
                self.leases.clear();
            }
        }
    }

    fn on_fetch(
        &mut self,
        now: Time,
        limits: &Limits,
        transfer: TransferId,
        pieces: Pieces,
        deadline: Time,
    ) {
        assert!(!self.fetches.iter().any(|other| other.transfer == transfer), "announced twice");
        let bytes: u64 = pieces.lens().iter().map(|len| u64::from(*len)).sum();
        assert!(bytes <= limits.message_bytes_max, "{bytes} bytes are to be fetched");
        assert!(pieces.lens().iter().all(|len| *len > 0));
        assert!(deadline <= now + limits.memory_wait);
        let fetch = Fetch { transfer, ready: false, pieces, next: (0, 0), reads: 0, failed: false };
        self.fetches.push(fetch);
    }

    /// A message is whole, or has no pieces.
    fn deliver(&mut self, body: Body) {
        if let Some(transfer) = body.transfer {
            let fetch = self.take_fetch(transfer);
            assert!(fetch.is_whole(), "a message comes without all of its bytes: {fetch:?}");
            assert_eq!(fetch.pieces.lens().len(), body.pieces);
        }
    }

    fn take_fetch(&mut self, transfer: TransferId) -> Fetch {
        let at = self.fetches.iter().position(|fetch| fetch.transfer == transfer);
        self.stale.truncate(16);
        self.stale.insert(0, transfer);
        self.fetches.swap_remove(at.expect("a transfer ends that was not announced"))
    }

    fn end_outgoing(&mut self, token: u64) -> Outgoing {
        let at = self.outgoing.iter().position(|call| call.token == token);
        self.outgoing.swap_remove(at.expect("a call ends twice, or never began"))
    }

    /// The user dropped a call, and it ended by that.
    pub(super) fn cancelled(&mut self, token: u64) {
        self.end_outgoing(token);
    }

    pub(super) fn lease_mut(&mut self, lease: LeaseId) -> Option<&mut Lease> {
        self.leases.iter_mut().find(|(id, _)| *id == lease).map(|(_, state)| state)
    }

    /// The leases in one state.
    pub(super) fn leases_in(&self, state: Lease) -> Vec<LeaseId> {
        self.leases.iter().filter(|(_, other)| *other == state).map(|(id, _)| *id).collect()
    }

    /// A READ is to be posted.
    pub(super) fn on_read(&mut self, limits: &Limits, read: Read) {
        let fetch = self.fetches.iter_mut().find(|fetch| fetch.transfer == read.transfer);
        let fetch = fetch.expect("a READ of a transfer that has ended");
        assert!(fetch.ready, "a READ without a buffer");
        assert_eq!((read.piece, read.offset), fetch.next, "READs leave no gap");
        let len = fetch.pieces.lens()[read.piece as usize];
        let end = read.offset.checked_add(read.len).filter(|end| *end <= len);
        let end = end.expect("a READ stays in its piece");
        assert!((1..=limits.read_chunk_bytes).contains(&read.len));
        assert!(read.addr.checked_add(u64::from(read.len)).is_some(), "a READ wraps");
        fetch.next = if end == len { (read.piece + 1, 0) } else { (read.piece, end) };
        assert_eq!(read.last, fetch.is_issued());
        fetch.reads += 1;
        self.reads.push(read);
        assert!(self.reads.len() <= limits.reads_max as usize, "too many READs");
    }

    /// A READ has ended.
    pub(super) fn read_ended(&mut self, at: usize, ok: bool) -> Read {
        let read = self.reads.swap_remove(at);
        let fetch = self.fetches.iter_mut().find(|fetch| fetch.transfer == read.transfer);
        let fetch = fetch.expect("buffers were given up under a READ");
        fetch.reads -= 1;
        fetch.failed |= !ok;
        read
    }

    /// A SEND was given out that advertises these leases.
    pub(super) fn on_advertised(&mut self, leases: &[LeaseId]) {
        for lease in leases {
            let state = self.lease_mut(*lease).expect("an ended lease is advertised");
            assert_eq!(*state, Lease::Queued, "a lease is advertised twice, or without a message");
            *state = Lease::Advertised;
        }
    }

    /// The call of this token was put into a SEND.
    pub(super) fn on_posted(&mut self, token: u64) {
        let call = self.outgoing.iter_mut().find(|call| call.token == token);
        let call = call.expect("a REQUEST of a call that has ended");
        assert!(!call.posted, "a call is sent twice");
        call.posted = true;
    }
}

/// The bounds that a connection was given.
pub(super) struct Limits {
    pub(super) calls_out_max: u32,
    pub(super) calls_in_max: u32,
    pub(super) leases_max: u32,
    pub(super) lease_bytes_max: u64,
    pub(super) reads_max: u32,
    pub(super) read_chunk_bytes: u32,
    pub(super) message_bytes_max: u64,
    pub(super) memory_wait: Duration,
}
