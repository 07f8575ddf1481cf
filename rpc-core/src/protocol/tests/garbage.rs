//! A peer that says things at random, many of them nearly right.

use proptest::prelude::*;

use super::super::*;
use super::raw::*;
use crate::wire::{FrameType, GoAway, Notice, ResponseFrame};

/// What is sent in one frame before it is spoilt.
#[derive(Clone, Debug)]
enum Say {
    Request { id: u64, method: u32, named: bool },
    Large { id: u64, request: bool },
    Response { id: u64 },
    Refused { id: u64 },
    Cancel { id: u64 },
    Release { lease: u64 },
    Ping,
    Recall { count: u32 },
    GoAway { last: u64 },
    Bytes { kind: u8, id: u64, body: Vec<u8> },
}

/// What the connection's owner does in between.
#[derive(Clone, Debug)]
enum Do {
    Say(Vec<Say>, Option<(prop::sample::Index, u8)>),
    Call,
    LeasedCall,
    Reads { ok: bool },
    Time { ms: u64 },
    Drain,
}

fn say() -> impl Strategy<Value = Say> {
    let id = || (0..12_u64).prop_map(|n| n << 16);
    prop_oneof![
        6 => (1..40_u64, 0..3_u32, any::<bool>())
            .prop_map(|(n, method, named)| Say::Request { id: n << 16, method, named }),
        4 => (1..40_u64, any::<bool>())
            .prop_map(|(n, request)| Say::Large { id: n << 16, request }),
        4 => id().prop_map(|id| Say::Response { id }),
        2 => id().prop_map(|id| Say::Refused { id }),
        3 => id().prop_map(|id| Say::Cancel { id }),
        3 => (0..4_u64).prop_map(|lease| Say::Release { lease }),
        1 => Just(Say::Ping),
        1 => (0..3_u32).prop_map(|count| Say::Recall { count }),
        1 => id().prop_map(|last| Say::GoAway { last }),
        1 => (any::<u8>(), id(), prop::collection::vec(any::<u8>(), 0..80))
            .prop_map(|(kind, id, body)| Say::Bytes { kind, id, body }),
    ]
}

fn act() -> impl Strategy<Value = Do> {
    let spoil = prop::option::weighted(0.05, (any::<prop::sample::Index>(), 0..8_u8));
    prop_oneof![
        8 => (prop::collection::vec(say(), 0..5), spoil).prop_map(|(say, spoil)| Do::Say(say, spoil)),
        3 => Just(Do::Call),
        2 => Just(Do::LeasedCall),
        3 => prop::bool::weighted(0.8).prop_map(|ok| Do::Reads { ok }),
        1 => (1..3000_u64).prop_map(|ms| Do::Time { ms }),
        2 => Just(Do::Drain),
    ]
}

/// Says it. Ids get the bit of the side that may have given them; what is wrong is the rest.
fn frame(raw: &Raw, leases: &[u64], say: Say) -> Out {
    let (theirs, ours) = match raw.role {
        Role::Accepting => (0, 1 << 63),
        Role::Connecting => (1 << 63, 0),
    };
    match say {
        Say::Request { id, method, named } => {
            request(id | theirs, method, named.then_some("a.B/c"))
        }
        Say::Large { id, request: true } => large(FrameType::Request, id | theirs, id),
        Say::Large { id, request: false } => large(FrameType::Response, id | ours, id),
        Say::Response { id } => {
            out(FrameType::Response, id | ours, |w| ResponseFrame::default().encode(w))
        }
        Say::Refused { id } => notice(FrameType::Refused, id | ours),
        Say::Cancel { id } => cancel(id | theirs),
        Say::Release { lease } => release(leases.get(lease as usize).copied().unwrap_or(lease)),
        Say::Ping => ping(3),
        Say::Recall { count } => out(FrameType::Recall, 0, |w| w.u64(u64::from(count))),
        Say::GoAway { last } => {
            let body = GoAway { last_id: last | ours, notice: Notice { code: 1, text: "x" } };
            out(FrameType::GoAway, 0, |w| body.encode(w))
        }
        Say::Bytes { kind, id, body } => {
            Out { kind: FrameType::from_u8(kind).unwrap_or(FrameType::Ping), call: id, body }
        }
    }
}

/// Does what the events ask for. Half of the fetches get memory.
fn serve(raw: &mut Raw) {
    for event in raw.events() {
        let now = raw.now;
        let connection = &mut raw.connection;
        match event {
            Event::Fetch { transfer, .. } if transfer.slot() % 2 == 0 => {
                connection.on_fetch_ready(now, transfer);
            }
            Event::Fetch { transfer, .. } => connection.on_fetch_refused(now, transfer),
            Event::Call(call) if call.method != 2 => {
                connection.answer(now, call.call, OutAnswer::default());
            }
            Event::Cancelled { call, .. } => connection.end_incoming(now, call),
            Event::Revoke { lease, .. } => connection.on_lease_revoked(lease),
            _ => {}
        }
    }
}

fn run(role: Role, acts: Vec<Do>) {
    let mut raw = Raw::confirmed(role);
    let mut leases = Vec::new();
    for act in acts {
        match act {
            Do::Say(says, spoil) => {
                let frames: Vec<Out> =
                    says.into_iter().map(|say| frame(&raw, &leases, say)).collect();
                // After a violation it must go on to do no harm.
                let _ = raw.send_spoilt(&frames, spoil);
            }
            Do::Call => drop(raw.begin(OutBody::inline("x"))),
            Do::LeasedCall => {
                let expires = raw.now;
                if let Some(body) = raw.leased(expires) {
                    leases.extend(body.lease.map(LeaseId::as_u64));
                    if let Err((call, _)) = raw.begin(body) {
                        call.body
                            .lease
                            .into_iter()
                            .for_each(|l| raw.connection.on_lease_revoked(l));
                    }
                }
            }
            Do::Reads { ok } => {
                while let Some(read) = raw.connection.poll_read() {
                    raw.connection.on_read_done(raw.now, read.id, ok);
                }
            }
            Do::Time { ms } => {
                raw.now = raw.now + std::time::Duration::from_millis(ms);
                raw.connection.on_timer(raw.now, true);
            }
            Do::Drain => raw.drain(),
        }
        serve(&mut raw);
        assert!(raw.connection.calls_incoming() <= 8);
        assert!(raw.connection.transfers_outstanding() <= raw.connection.calls_incoming() + 64);
    }
    // Whatever was said, the end is orderly.
    let message = "over".into();
    raw.connection.on_lost(raw.now, LossReason { kind: LossKind::Violation, message });
    serve(&mut raw);
    raw.events();
    let connection = &raw.connection;
    assert!(connection.is_closed() && connection.calls_outstanding() == 0);
    assert_eq!((connection.leases_outstanding(), connection.transfers_outstanding()), (0, 0));
    assert_eq!(connection.calls_incoming(), 0);
    assert!(!connection.wants_transmit(), "a closed connection has nothing to say");
}

proptest! {
    #[test]
    fn whatever_a_peer_says_nothing_panics_and_everything_stays_bounded(
        accepting in any::<bool>(),
        acts in prop::collection::vec(act(), 1..60),
    ) {
        run(if accepting { Role::Accepting } else { Role::Connecting }, acts);
    }
}
