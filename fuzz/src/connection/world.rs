use std::time::Duration;

use bytes::Bytes;
use rpc_core::Time;
use rpc_core::protocol::{
    CallId, ConnectionConfig, GoawayReason, LeaseId, LossKind, LossReason, OutAnswer, OutBody,
    OutCall, Role, Transmit, WireStatus,
};
use rpc_core::wire::{PIECES_MAX, PayloadDescriptor, Segment};

use super::metered::Metered;
use super::owner::{Incoming, Lease, Limits, Outgoing, Owner};
use super::peer::Peer;
use super::say;
use super::seen::Seen;
use crate::recipe::Recipe;

/// What a connection with the bounds below may hold of the heap, the names of methods apart. Most of it
/// are frames that wait for credits: each of 40 bytes in a queue that grows by doubling, and up to 130
/// of text.
const LIVE_BYTES_MAX: i64 = 256 << 10;

/// Frames that may wait for the peer to grant credits: of `protocol`, with the bounds below at most.
const OWED_MAX: u32 = 2 * 8 + 1024 + 1;

const START: Time = Time::from_nanos(1_000_000_000);
const EPOCH: u32 = 5;
const MACS: [[u8; 32]; 2] = [[1; 32], [2; 32]];

/// Receives that stand beside the guaranteed two at most.
const STANDING_MAX: u32 = 64;

/// A connection between its owner and its peer.
pub(super) struct World {
    connection: Metered,
    owner: Owner,
    peer: Peer,
    limits: Limits,
    now: Time,
    standing: u32,
    /// Bytes of the method names that the connection was given to keep.
    names: i64,
    /// Bytes of all SENDs that came.
    received_bytes: usize,
    went_away: bool,
    broken: bool,
    /// Events are not taken in this step.
    held: bool,
}

fn config(r: &mut Recipe<'_>, role: Role) -> ConnectionConfig {
    ConnectionConfig {
        role,
        epoch: EPOCH,
        confirm_own: MACS[0],
        confirm_peer: MACS[1],
        confirm_deadline: START + Duration::from_secs(5),
        calls_out_max: 1 + u32::from(r.u8() % 8),
        calls_in_max: 1 + u32::from(r.u8() % 8),
        message_bytes_max: 100_000,
        leases_max: 1 + u32::from(r.u8() % 6),
        lease_bytes_max: 20_000,
        reads_max: 1 + u32::from(r.u8() % 4),
        read_chunk_bytes: 8000,
        methods_max: u32::from(r.u8() % 4),
        ..ConnectionConfig::default()
    }
}

impl World {
    pub(super) fn new(r: &mut Recipe<'_>) -> Self {
        let role = if r.flag() { Role::Connecting } else { Role::Accepting };
        let config = config(r, role);
        let limits = Limits {
            calls_out_max: config.calls_out_max,
            calls_in_max: config.calls_in_max,
            leases_max: config.leases_max,
            lease_bytes_max: config.lease_bytes_max,
            reads_max: config.reads_max,
            read_chunk_bytes: config.read_chunk_bytes,
            message_bytes_max: config.message_bytes_max,
            memory_wait: config.memory_wait,
        };
        let mut world = Self {
            connection: Metered::new(START, config, 99),
            owner: Owner::default(),
            peer: Peer::new(EPOCH, role == Role::Accepting),
            limits,
            now: START,
            standing: 0,
            names: 0,
            received_bytes: 0,
            went_away: false,
            broken: false,
            held: false,
        };
        world.post(2);
        // Most scripts begin after the handshake.
        if !r.one_in(8) {
            world.transmit(9216, 16);
            let confirm = say::confirm(&world.peer, MACS[1]);
            world.receive(&confirm);
            world.post(1 + u32::from(r.u8() % 8));
            world.transmit(9216, 16);
            world.take_events();
        }
        world
    }

    /// Whether nothing can happen any more.
    pub(super) fn is_over(&self) -> bool {
        self.owner.is_closed && self.owner.reads.is_empty() && self.owner.incoming.is_empty()
    }

    /// Bytes of all SENDs that came.
    pub(super) fn received_bytes(&self) -> usize {
        self.received_bytes
    }

    /// One thing happens.
    pub(super) fn step(&mut self, r: &mut Recipe<'_>) {
        self.held = false;
        match r.u8() % 32 {
            0..=9 => self.hear(r),
            10 => {
                let len = r.below(200);
                let bytes = r.bytes(len).to_vec();
                self.receive(&bytes);
            }
            11 | 12 => self.post(1 + u32::from(r.u8() % 4)),
            13 | 14 => self.call(r),
            15 => self.cancel(r),
            16 | 17 => self.answer(r),
            18 => self.end_handler(r),
            19..=21 => self.memory(r),
            22 | 23 => self.read_done(r),
            24 | 25 => {
                self.transmit(if r.one_in(8) { r.below(9217) } else { 9216 }, 1 + r.u8() % 16)
            }
            26 => self.revoked(r),
            27 => self.wait(r),
            28 => self.reserve(r),
            29 => self.held = true,
            30 => self.wait(r),
            _ => self.end_of_it(r),
        }
        self.read();
        if !self.held {
            self.take_events();
        }
        self.check();
    }

    fn hear(&mut self, r: &mut Recipe<'_>) {
        if self.peer.granted() == 0 && !r.one_in(16) {
            self.post(2);
            self.transmit(9216, 16);
        }
        let bytes = say::send(r, &mut self.peer);
        self.receive(&bytes);
        if r.flag() {
            self.post(1);
        }
        if r.flag() {
            self.transmit(9216, 16);
        }
    }

    /// A SEND comes, also when no receive of this connection stands: it took another's then.
    fn receive(&mut self, bytes: &[u8]) {
        self.received_bytes += bytes.len();
        let was_closed = self.broken || self.connection.get().is_closed();
        let now = self.now;
        let taken = self.connection.with(|c| c.on_message(now, bytes).is_ok());
        self.standing = self.standing.saturating_sub(1);
        if was_closed {
            assert!(taken, "what comes too late does no harm");
        } else if taken {
            self.names += self.peer.on_accepted(bytes) as i64;
        } else {
            self.broken = true;
        }
    }

    fn post(&mut self, n: u32) {
        let n = n.min(STANDING_MAX.saturating_sub(self.standing));
        self.standing += n;
        self.connection.with(|c| c.on_receives_posted(n));
    }

    /// Begins a call, with pieces if a lease is free for it.
    fn call(&mut self, r: &mut Recipe<'_>) {
        const METHODS: [&str; 5] = ["a.B/c", "a.B/d", "a.B/e", "a.B/f", ""];
        let (now, token) = (self.now, self.owner.token());
        let method = METHODS[r.below(5)];
        let deadline = r.one_in(4).then(|| now + Duration::from_millis(r.below(3000) as u64));
        let lease =
            r.flag().then(|| self.owner.leases_in(Lease::Reserved)).and_then(|l| r.pick(&l));
        let len = if r.one_in(16) { 9300 } else { r.below(300) };
        let begun = self.connection.with(|c| {
            let body = body(token, len, lease);
            let call = OutCall { method, deadline, metadata: Bytes::new(), priority: 0, body };
            c.start_call(now, token, call).ok()
        });
        if let Some(call) = begun {
            self.owner.outgoing.push(Outgoing { token, call, posted: false });
            self.queued(lease);
            if !r.one_in(4) {
                self.transmit(9216, 16);
            }
        }
    }

    fn queued(&mut self, lease: Option<LeaseId>) {
        if let Some(state) = lease.and_then(|lease| self.owner.lease_mut(lease)) {
            *state = Lease::Queued;
        }
    }

    fn cancel(&mut self, r: &mut Recipe<'_>) {
        let Some(Outgoing { token, call, .. }) = r.pick(&self.owner.outgoing) else { return };
        let now = self.now;
        // Otherwise its end is among the events.
        if self.connection.with(|c| c.cancel_call(now, call)) {
            self.owner.cancelled(token);
        }
    }

    fn answer(&mut self, r: &mut Recipe<'_>) {
        let Some(Incoming { call, .. }) = r.pick(&self.owner.incoming) else { return };
        let now = self.now;
        let lease =
            r.flag().then(|| self.owner.leases_in(Lease::Reserved)).and_then(|l| r.pick(&l));
        let len = if r.one_in(16) { 9300 } else { r.below(300) };
        let failed = r.one_in(8);
        self.connection.with(|c| {
            let status = failed.then(|| WireStatus::new(rpc_core::Code::NotFound, "not here"));
            let answer = OutAnswer { status, metadata: Bytes::new(), body: body(7, len, lease) };
            c.answer(now, call, answer)
        });
        self.queued(lease);
        self.forget(call);
    }

    fn end_handler(&mut self, r: &mut Recipe<'_>) {
        let Some(Incoming { call, cancelled }) = r.pick(&self.owner.incoming) else { return };
        let now = self.now;
        if cancelled {
            self.connection.with(|c| c.end_incoming(now, call));
        } else {
            self.connection.with(|c| c.refuse(now, call, 3, "not like this"));
        }
        self.forget(call);
    }

    fn forget(&mut self, call: CallId) {
        self.owner.incoming.retain(|other| other.call != call);
    }

    /// Memory for a message, or none; now and then for one that has ended.
    fn memory(&mut self, r: &mut Recipe<'_>) {
        let now = self.now;
        if r.one_in(8) {
            if let Some(stale) = r.pick(&self.owner.stale) {
                let ready = r.flag();
                self.connection.with(|c| match ready {
                    true => c.on_fetch_ready(now, stale),
                    false => c.on_fetch_refused(now, stale),
                });
            }
            return;
        }
        let at = r.below(self.owner.fetches.len());
        let Some(fetch) = self.owner.fetches.get_mut(at) else { return };
        let transfer = fetch.transfer;
        if fetch.ready || r.one_in(4) {
            self.connection.with(|c| c.on_fetch_refused(now, transfer));
        } else {
            fetch.ready = true;
            self.connection.with(|c| c.on_fetch_ready(now, transfer));
        }
    }

    /// READs that are due are posted at once.
    fn read(&mut self) {
        while let Some(read) = self.connection.with(|c| c.poll_read()) {
            self.owner.on_read(&self.limits, read);
        }
    }

    /// Some READs end, in any order.
    fn read_done(&mut self, r: &mut Recipe<'_>) {
        for _ in 0..1 + r.below(4) {
            let at = r.below(self.owner.reads.len());
            if at < self.owner.reads.len() {
                let ok = !r.one_in(16);
                self.end_read(at, ok);
            }
            self.read();
        }
    }

    fn end_read(&mut self, at: usize, ok: bool) {
        let (now, read) = (self.now, self.owner.read_ended(at, ok));
        self.connection.with(|c| c.on_read_done(now, read.id, ok));
    }

    /// One SEND is posted, if there is one.
    fn transmit(&mut self, room: usize, ranges_max: u8) {
        let mut buf = [0; 9216];
        let (now, room) = (self.now, room.min(buf.len()));
        // It may be closed by this SEND, if that was all that an orderly close waited for.
        let was_closed = self.connection.get().is_closed();
        let sent = self.connection.with(|c| {
            let wanted = c.wants_transmit();
            let sent = c.poll_transmit(now, &mut buf[..room], u32::from(ranges_max));
            assert!(wanted || sent.is_none());
            sent.map(|Transmit { len, leases, .. }| {
                let mut advertised = [None; 64];
                assert!(leases.len() <= advertised.len());
                advertised.iter_mut().zip(leases).for_each(|(slot, lease)| *slot = Some(lease));
                (len, advertised)
            })
        });
        let Some((len, advertised)) = sent else { return };
        assert!(!was_closed, "a closed connection speaks");
        let heard = self.peer.hear(&buf[..len], self.went_away, self.broken);
        assert!(self.peer.errors() <= 1, "last words come once");
        heard.requests.iter().for_each(|token| self.owner.on_posted(*token));
        let leases: Vec<LeaseId> = advertised.into_iter().flatten().collect();
        let named: Vec<u64> = leases.iter().map(|lease| lease.as_u64()).collect();
        assert_eq!(named, heard.leases, "windows are bound for what is said, and for nothing else");
        assert!(leases.len() <= usize::from(ranges_max), "more windows than there may be");
        self.owner.on_advertised(&leases);
        let counts = self.connection.get().credits();
        assert!(self.peer.granted() < counts.standing.max(1) + 1, "granted beyond what stands");
    }

    fn revoked(&mut self, r: &mut Recipe<'_>) {
        let state = if r.one_in(4) { Lease::Reserved } else { Lease::Revoking };
        let Some(lease) = r.pick(&self.owner.leases_in(state)) else { return };
        self.connection.with(|c| c.on_lease_revoked(lease));
        self.owner.leases.retain(|(other, _)| *other != lease);
    }

    fn reserve(&mut self, r: &mut Recipe<'_>) {
        let now = self.now;
        let bytes = r.below(20_000) as u64;
        let expires = now + Duration::from_millis(r.below(2000) as u64);
        let lease = self.connection.with(|c| c.reserve_lease(now, 1, bytes, expires).ok());
        self.owner.leases.extend(lease.map(|lease| (lease, Lease::Reserved)));
    }

    /// Time goes on: to the next timeout, or some way.
    fn wait(&mut self, r: &mut Recipe<'_>) {
        let next = self.connection.get().poll_timeout().filter(|_| r.flag());
        let by_chance = self.now + Duration::from_micros(u64::from(r.u16()) * 16);
        self.now = next.unwrap_or(by_chance).max(self.now);
        let now = self.now;
        self.connection.with(|c| c.on_timer(now, true));
        let next = self.connection.get().poll_timeout();
        assert!(next.is_none_or(|next| next > now), "a timeout that does not go away");
    }

    /// The connection goes away, in order or not; mostly not yet.
    fn end_of_it(&mut self, r: &mut Recipe<'_>) {
        match r.u8() {
            0..=31 => {
                let reason = GoawayReason { code: 14, message: "enough".into() };
                let now = self.now;
                self.went_away = true;
                self.connection.with(|c| c.close(now, reason));
            }
            32..=47 => self.lose(),
            _ => {}
        }
    }

    fn lose(&mut self) {
        let now = self.now;
        self.connection.with(|c| {
            let message = "the queue pair failed".into();
            c.on_lost(now, LossReason { kind: LossKind::QueuePair, message });
        });
    }

    fn take_events(&mut self) {
        loop {
            let event = self.connection.with(|c| c.poll_event().map(|event| Seen::new(&event)));
            let Some(event) = event else { break };
            if matches!(event, Seen::Silent) {
                self.lose();
            }
            self.owner.on_event(self.now, &self.limits, event);
        }
    }

    /// What holds at any moment.
    fn check(&self) {
        let (c, limits) = (self.connection.get(), &self.limits);
        assert!(c.calls_outstanding() <= limits.calls_out_max);
        assert!(c.calls_incoming() <= limits.calls_in_max);
        assert!(c.leases_outstanding() <= limits.leases_max);
        assert!(c.lease_bytes() <= limits.lease_bytes_max);
        assert_eq!(c.reads_outstanding() as usize, self.owner.reads.len());
        let transfers_max = limits.calls_out_max + limits.calls_in_max + limits.reads_max;
        assert!(c.transfers_outstanding() <= transfers_max);
        assert_eq!(c.counters().misuses, 0, "the owner keeps to its part");
        if !self.held && !c.is_closed() {
            assert_eq!(c.calls_outstanding() as usize, self.owner.outgoing.len());
            assert_eq!(c.leases_outstanding() as usize, self.owner.leases.len());
            assert_eq!(c.transfers_outstanding() as usize, self.owner.fetches.len());
            assert!(c.calls_incoming() as usize >= self.owner.incoming.len());
        }
        if !self.broken && !c.is_closed() {
            let counts = c.credits();
            assert_eq!(counts.standing, self.standing, "receives");
            assert_eq!(counts.granted, self.peer.granted());
            assert!(counts.available <= self.peer.available());
        }
        // Each lease of the peer is being read, or its RELEASE waits.
        let unreleased_max = transfers_max + OWED_MAX;
        assert!(self.broken || c.is_closed() || self.peer.unreleased() <= unreleased_max);
        assert!(!c.is_closed() || (!c.wants_transmit() && c.poll_timeout().is_none()));
        let live_max = LIVE_BYTES_MAX + 3 * self.names;
        assert!(self.connection.live() <= live_max, "{} bytes are held", self.connection.live());
    }

    /// Whatever was said and done, the end is orderly and nothing is left.
    pub(super) fn end(mut self) {
        self.take_events();
        self.lose();
        self.take_events();
        assert!(self.owner.is_closed, "a lost connection closes");
        assert!(self.owner.outgoing.is_empty(), "calls are left: {:?}", self.owner.outgoing);
        while !self.owner.reads.is_empty() {
            self.end_read(0, true);
            self.take_events();
        }
        for Incoming { call, cancelled } in std::mem::take(&mut self.owner.incoming) {
            assert!(cancelled, "a call of the peer is not cancelled by the loss");
            let now = self.now;
            self.connection.with(|c| c.end_incoming(now, call));
        }
        self.take_events();
        self.check();
        let c = self.connection.get();
        assert!(c.is_quiescent() && self.owner.fetches.is_empty(), "something is left");
        assert_eq!((c.leases_outstanding(), c.lease_bytes(), c.transfers_outstanding()), (0, 0, 0));
        let mut buf = [0; 9216];
        let now = self.now;
        let silent = self
            .connection
            .with(|c| c.poll_transmit(now, &mut buf, 16).is_none() && c.poll_read().is_none());
        assert!(silent, "a closed connection has nothing to say");
        assert_eq!(self.connection.end(), 0, "bytes are never given back");
    }
}

/// A message that begins with its token; with a lease it has one piece.
fn body(token: u64, len: usize, lease: Option<LeaseId>) -> OutBody {
    let mut inline = token.to_le_bytes().to_vec();
    inline.resize(8 + len, 0);
    let piece = |lease: LeaseId| {
        let piece = PayloadDescriptor { addr: 4096, len: 100, rkey: 1, lease: lease.as_u64() };
        vec![Segment::Inline(inline.len() as u32), Segment::Payload(piece)]
    };
    let segments = lease.map_or_else(Vec::new, piece);
    OutBody { inline: inline.into(), segments, lease }
}

const _: () = assert!(PIECES_MAX == 16);
