use std::collections::{HashMap, HashSet};

use rpc_core::protocol::METHODS_MAX;
use rpc_core::wire::{
    CALL_FROM_ACCEPTING, Count, FrameType, Notice, Releases, RequestFrame, ResponseFrame,
    SendFlags, SendHeader,
};

use crate::recipe::Recipe;

/// What a peer knows of a connection and has said to it, and that the connection says only what is
/// due.
pub(super) struct Peer {
    epoch: u32,
    /// The bit of calls that the connection begins.
    bit: u64,
    // What it said.
    accepted: u32,
    accepted_spent: u32,
    limit: u32,
    last_call: u64,
    methods: u32,
    /// Calls of its own that are to be answered, refused or passed over, by their ids on the wire.
    owed: HashSet<u64>,
    /// How often each of its leases was advertised and not released.
    advertised: HashMap<u64, u32>,
    unreleased: u32,
    /// Methods whose names the connection took.
    named: u32,
    pings: bool,
    recalls: bool,
    // What it heard.
    heard: u32,
    heard_spent: u32,
    heard_limit: u32,
    slot_used: Option<u32>,
    confirmed: bool,
    /// The last calls of the connection, and all of those that it has not cancelled.
    asked: Vec<u64>,
    cancellable: HashSet<u64>,
    /// Leases of the connection, the newest last.
    leases: Vec<u64>,
    method_names: u32,
    went_away: bool,
    errors: u32,
}

/// What the connection's owner is told of a SEND.
#[derive(Default)]
pub(super) struct Heard {
    /// Tokens of the calls in it.
    pub(super) requests: Vec<u64>,
    /// Leases that it names.
    pub(super) leases: Vec<u64>,
}

/// What a peer remembers of one kind.
const KNOWN_MAX: usize = 64;

fn remember(list: &mut Vec<u64>, id: u64) {
    if list.len() == KNOWN_MAX {
        list.remove(0);
    }
    list.push(id);
}

impl Peer {
    pub(super) fn new(epoch: u32, connection_accepts: bool) -> Self {
        Self {
            epoch,
            bit: if connection_accepts { CALL_FROM_ACCEPTING } else { 0 },
            accepted: 0,
            accepted_spent: 0,
            limit: 1,
            last_call: 0,
            methods: 0,
            owed: HashSet::new(),
            advertised: HashMap::new(),
            unreleased: 0,
            named: 0,
            pings: false,
            recalls: false,
            heard: 0,
            heard_spent: 0,
            heard_limit: 1,
            slot_used: None,
            confirmed: false,
            asked: Vec::new(),
            cancellable: HashSet::new(),
            leases: Vec::new(),
            method_names: 0,
            went_away: false,
            errors: 0,
        }
    }

    /// The header of its next SEND if it is honest, and grants so many more.
    pub(super) fn next_header(&self, grants: u32) -> SendHeader {
        SendHeader {
            flags: SendFlags::NONE,
            epoch: self.epoch,
            sequence: self.accepted.wrapping_add(1),
            limit: self.limit.wrapping_add(grants),
            received: self.heard,
        }
    }

    /// The id of a call that it begins.
    pub(super) fn call(&mut self, r: &mut Recipe<'_>) -> u64 {
        if r.one_in(32) {
            return r.number();
        }
        self.last_call += 1 + u64::from(r.one_in(8)) * 0x1_0000;
        self.last_call | (self.bit ^ CALL_FROM_ACCEPTING)
    }

    /// A method's number, and which name goes with it.
    pub(super) fn method(&mut self, r: &mut Recipe<'_>) -> (u32, Option<usize>) {
        match r.u8() % 8 {
            0 if self.methods < METHODS_MAX => {
                self.methods += 1;
                (self.methods, Some(r.below(4)))
            }
            1 if r.one_in(8) => (r.number32(), r.flag().then_some(1)),
            kind @ 2..=5 if self.methods > 0 => (1 + u32::from(kind) % self.methods, None),
            _ => (0, Some(r.below(4))),
        }
    }

    /// A call of the connection.
    pub(super) fn asked(&self, r: &mut Recipe<'_>) -> u64 {
        if r.one_in(16) { r.number() } else { r.pick(&self.asked).unwrap_or(self.bit | 1 << 16) }
    }

    /// A call of its own, mostly one of the last.
    pub(super) fn own(&self, r: &mut Recipe<'_>) -> u64 {
        if r.one_in(16) {
            return r.number();
        }
        let back = u64::from(r.u8() % 16);
        self.last_call.saturating_sub(back) | (self.bit ^ CALL_FROM_ACCEPTING)
    }

    /// A lease of the connection, or none.
    pub(super) fn lease(&self, r: &mut Recipe<'_>) -> u64 {
        if r.one_in(8) { r.number() } else { r.pick(&self.leases).unwrap_or(3) }
    }

    /// The connection took this SEND: what it says counts.
    pub(super) fn on_accepted(&mut self, bytes: &[u8]) -> usize {
        let (header, frames) = SendHeader::decode(bytes).expect("the connection took it");
        self.accepted = header.sequence;
        if !header.flags.has(SendFlags::CREDIT_ONLY) {
            self.accepted_spent += 1;
        }
        if header.limit.wrapping_sub(self.limit) as i32 > 0 {
            self.limit = header.limit;
        }
        if self.slot_used.is_some_and(|used| header.received.wrapping_sub(used) as i32 >= 0) {
            self.slot_used = None;
        }
        let mut names = 0;
        for frame in frames {
            let frame = frame.expect("the connection took it");
            match frame.kind {
                FrameType::Request => {
                    let request = RequestFrame::decode(frame.body).expect("it was taken");
                    self.owed.insert(frame.call);
                    if request.method == self.named + 1 {
                        self.named += 1;
                        names += request.name.map_or(0, str::len);
                    }
                    self.advertise(request.segments.lease());
                }
                FrameType::Response => {
                    let response = ResponseFrame::decode(frame.body).expect("it was taken");
                    self.advertise(response.segments.lease());
                }
                FrameType::Ping => self.pings = true,
                FrameType::Recall => self.recalls = true,
                _ => {}
            }
        }
        names
    }

    fn advertise(&mut self, lease: Option<u64>) {
        if let Some(lease) = lease {
            *self.advertised.entry(lease).or_default() += 1;
            self.unreleased += 1;
        }
    }

    /// Leases that it advertised and that were not released.
    pub(super) fn unreleased(&self) -> u32 {
        self.unreleased
    }

    /// SENDs that the connection may still issue.
    pub(super) fn available(&self) -> u32 {
        self.limit.wrapping_sub(self.heard_spent)
    }

    /// Credits that it was told may be spent.
    pub(super) fn granted(&self) -> u32 {
        self.heard_limit.wrapping_sub(self.accepted_spent)
    }

    /// Whether the connection has said its last words.
    pub(super) fn errors(&self) -> u32 {
        self.errors
    }

    /// The connection sent this.
    pub(super) fn hear(&mut self, bytes: &[u8], went_away: bool, broken: bool) -> Heard {
        let (header, frames) = SendHeader::decode(bytes).expect("what is sent can be decoded");
        assert_eq!(header.epoch, self.epoch);
        assert_eq!(header.sequence, self.heard.wrapping_add(1), "SENDs are numbered in order");
        self.heard = header.sequence;
        let credit_only = header.flags.has(SendFlags::CREDIT_ONLY);
        if credit_only {
            assert!(self.confirmed, "a connection begins with CONFIRM");
            assert!(self.slot_used.replace(header.sequence).is_none(), "the slot is used twice");
        } else {
            // Those that a RECALL took are told of later, so there may be fewer than this; and what
            // the SEND granted that broke the connection is not counted here.
            assert!(broken || self.available() as i32 > 0, "an overdraft");
            self.heard_spent = self.heard_spent.wrapping_add(1);
        }
        // The one that broke the connection came too.
        let came = self.accepted.wrapping_add(u32::from(broken));
        assert!(header.received == self.accepted || header.received == came, "not what came");
        self.heard_limit = header.limit;
        let mut heard = Heard::default();
        let count = frames.left();
        assert!(count > 0, "a SEND says something");
        for frame in frames {
            let frame = frame.expect("what is sent can be decoded");
            assert!(!credit_only || frame.kind == FrameType::Credit);
            assert!(frame.kind != FrameType::Confirm || count == 1);
            assert_eq!(
                frame.kind == FrameType::Confirm,
                !std::mem::replace(&mut self.confirmed, true)
            );
            assert_eq!(frame.kind == FrameType::Error, broken, "{frame:?}");
            match frame.kind {
                FrameType::Request => self.on_request(frame.call, frame.body, &mut heard),
                FrameType::Response => {
                    let response = ResponseFrame::decode(frame.body).expect("it can be decoded");
                    heard.leases.extend(response.segments.lease());
                    self.settle(frame.call);
                }
                FrameType::Refused => {
                    Notice::decode("REFUSED", frame.body).expect("it can be decoded");
                    self.settle(frame.call);
                }
                FrameType::Release => self.on_releases(frame.body),
                FrameType::Cancel => {
                    assert!(self.cancellable.remove(&frame.call), "cancelled twice, or never made");
                }
                // One may answer several.
                FrameType::Pong => assert!(std::mem::take(&mut self.pings), "no PONG is due"),
                FrameType::Return => {
                    assert!(std::mem::take(&mut self.recalls), "no RETURN is due");
                    let Count { count } =
                        Count::decode("RETURN", frame.body).expect("it can be decoded");
                    self.heard_spent = self.heard_spent.wrapping_add(count);
                }
                FrameType::GoAway => {
                    assert!(went_away && !std::mem::replace(&mut self.went_away, true));
                }
                FrameType::Error => self.errors += 1,
                FrameType::Confirm | FrameType::Credit | FrameType::Ping => {}
                other => panic!("nobody asked for {other:?}"),
            }
        }
        heard
    }

    fn on_request(&mut self, call: u64, body: &[u8], heard: &mut Heard) {
        let request = RequestFrame::decode(body).expect("it can be decoded");
        assert_eq!(call & CALL_FROM_ACCEPTING, self.bit);
        assert!(self.asked.last().is_none_or(|last| *last < call), "ids only grow");
        remember(&mut self.asked, call);
        self.cancellable.insert(call);
        let introduced = request.method > self.method_names;
        assert_eq!(introduced || request.method == 0, request.name.is_some());
        if introduced {
            self.method_names += 1;
            assert_eq!(request.method, self.method_names);
        }
        let token = request.inline.first_chunk().expect("each request begins with its token");
        heard.requests.push(u64::from_le_bytes(*token));
        heard.leases.extend(request.segments.lease());
        if let Some(lease) = request.segments.lease() {
            remember(&mut self.leases, lease);
        }
    }

    /// A call of the peer ends, which it does once.
    fn settle(&mut self, call: u64) {
        assert!(self.owed.remove(&call), "a call is answered twice, or was never made");
    }

    fn on_releases(&mut self, body: &[u8]) {
        for release in Releases::decode(body).expect("it can be decoded") {
            let left = self.advertised.get_mut(&release.lease).filter(|left| **left > 0);
            *left.expect("a lease is released twice, or was never given") -= 1;
            self.unreleased -= 1;
        }
    }
}
