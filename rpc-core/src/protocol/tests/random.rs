//! Any order of events ends everything exactly once and loses no credit.
//!
//! What must hold at each moment (a call ends once, a handler runs once, buffers outlive their READs,
//! a SEND finds a receive, a window is bound once) the fixture asserts as it goes.

use std::time::Duration;

use proptest::prelude::*;

use super::super::pair::{Ending, Pair, Peer};
use super::super::*;
use crate::Execution;

#[derive(Clone, Debug)]
enum Op {
    Call { side: usize, len: usize, timeout_us: Option<u64> },
    Cancel { side: usize, at: usize },
    Answer { side: usize, at: usize, len: usize },
    Refuse { side: usize, at: usize },
    EndHandler { side: usize, at: usize },
    Memory { side: usize, at: usize, ready: bool },
    Revoked { side: usize, at: usize },
    Lend { side: usize, n: u32 },
    Recall { side: usize, n: u32 },
    Repost { side: usize },
    HoldReceives { side: usize, hold: bool },
    Step(u8),
    Pass { us: u64 },
    Latency { us: u64 },
    Close { side: usize },
    Kill { side: usize },
}

fn op() -> impl Strategy<Value = Op> {
    let side = 0..2_usize;
    let len = prop_oneof![
        4 => 0..200_usize,
        2 => 200..2000_usize,
        3 => 2001..100_000_usize,
    ];
    let timeout = prop_oneof![2 => Just(None), 1 => (1..5_000_u64).prop_map(Some)];
    let at = 0..8_usize;
    prop_oneof![
        8 => (side.clone(), len.clone(), timeout)
            .prop_map(|(side, len, timeout_us)| Op::Call { side, len, timeout_us }),
        2 => (side.clone(), at.clone()).prop_map(|(side, at)| Op::Cancel { side, at }),
        6 => (side.clone(), at.clone(), len).prop_map(|(side, at, len)| Op::Answer { side, at, len }),
        1 => (side.clone(), at.clone()).prop_map(|(side, at)| Op::Refuse { side, at }),
        2 => (side.clone(), at.clone()).prop_map(|(side, at)| Op::EndHandler { side, at }),
        6 => (side.clone(), at.clone(), prop::bool::weighted(0.8))
            .prop_map(|(side, at, ready)| Op::Memory { side, at, ready }),
        3 => (side.clone(), at).prop_map(|(side, at)| Op::Revoked { side, at }),
        1 => (side.clone(), 1..4_u32).prop_map(|(side, n)| Op::Lend { side, n }),
        1 => (side.clone(), 1..9_u32).prop_map(|(side, n)| Op::Recall { side, n }),
        2 => side.clone().prop_map(|side| Op::Repost { side }),
        1 => (side, any::<bool>())
            .prop_map(|(side, hold)| Op::HoldReceives { side, hold }),
        12 => (1..6_u8).prop_map(Op::Step),
        2 => (1..3_000_u64).prop_map(|us| Op::Pass { us }),
        1 => (1..2_000_u64).prop_map(|us| Op::Latency { us }),
    ]
}

/// At most one end of the connection, anywhere in the middle.
fn script() -> impl Strategy<Value = Vec<Op>> {
    let end = prop_oneof![
        3 => Just(None),
        1 => (0..2_usize).prop_map(|side| Some(Op::Kill { side })),
        1 => (0..2_usize).prop_map(|side| Some(Op::Close { side })),
    ];
    (prop::collection::vec(op(), 1..120), end, any::<prop::sample::Index>()).prop_map(
        |(mut ops, end, at)| {
            if let Some(end) = end {
                let at = at.index(ops.len());
                ops.insert(at, end);
            }
            ops
        },
    )
}

/// The entry at `at`, counted round.
fn pick<T: Clone>(list: &[T], at: usize) -> Option<T> {
    list.get(at % list.len().max(1)).cloned()
}

fn apply(pair: &mut Pair, begun: &mut [Vec<u64>; 2], op: Op) {
    let now = pair.now;
    match op {
        Op::Call { side, len, timeout_us } => {
            let token = pair.call(side, len, timeout_us.map(Duration::from_micros));
            begun[side].extend(token);
        }
        Op::Cancel { side, at } => {
            if let Some((_, token)) = pick(&pair.peers[side].outstanding, at) {
                pair.peers[side].cancel(now, token);
            }
        }
        Op::Answer { side, at, len } => {
            if let Some((call, token)) = pick(&pair.peers[side].calls, at) {
                pair.peers[side].answer(now, call, token, len);
            }
        }
        Op::Refuse { side, at } => {
            if let Some((call, token)) = pick(&pair.peers[side].calls, at) {
                let peer = &mut pair.peers[side];
                peer.calls.retain(|(other, _)| *other != call);
                // What is refused did not run.
                peer.executed.remove(&token);
                peer.connection.refuse(now, call, 3, "not like this");
            }
        }
        Op::EndHandler { side, at } => {
            if let Some(call) = pick(&pair.peers[side].cancelled, at) {
                pair.peers[side].end_incoming(now, call);
            }
        }
        Op::Memory { side, at, ready } => {
            if let Some(transfer) = pick(&pair.peers[side].fetches, at) {
                if ready {
                    pair.peers[side].fetch_ready(now, transfer);
                } else {
                    pair.peers[side].fetch_refused(now, transfer);
                }
            }
        }
        Op::Revoked { side, at } => {
            if let Some(lease) = pick(&pair.peers[side].revokes, at) {
                pair.peers[side].revoked(lease);
            }
        }
        Op::Lend { side, n } => pair.peers[side].post(n),
        Op::Recall { side, n } => {
            pair.peers[side].connection.recall(now, n);
        }
        Op::Repost { side } => repost(pair, side),
        Op::HoldReceives { side, hold } => pair.peers[side].hold_receives = hold,
        Op::Step(n) => (0..n).for_each(|_| {
            pair.step();
        }),
        Op::Pass { us } => pair.pass(Duration::from_micros(us)),
        Op::Latency { us } => pair.latency = Duration::from_micros(us),
        Op::Close { side } => {
            let reason = GoawayReason { code: 14, message: "enough".into() };
            pair.peers[side].connection.close(now, reason);
        }
        Op::Kill { side } => pair.kill(side),
    }
}

fn repost(pair: &mut Pair, side: usize) {
    let n = std::mem::take(&mut pair.peers[side].unposted);
    if n > 0 {
        pair.peers[side].post(n);
    }
}

/// Holds nothing back any more, and lets everything end.
fn wind_up(pair: &mut Pair) {
    for round in 0.. {
        assert!(round < 50, "it does not come to an end");
        for side in 0..2 {
            let now = pair.now;
            repost(pair, side);
            let peer = &mut pair.peers[side];
            peer.hold_memory = false;
            peer.hold_calls = false;
            peer.hold_revokes = false;
            peer.hold_receives = false;
            peer.act(now);
            peer.revokes.clone().into_iter().for_each(|lease| peer.revoked(lease));
            peer.fetches.clone().into_iter().for_each(|transfer| peer.fetch_ready(now, transfer));
            peer.cancelled.clone().into_iter().for_each(|call| peer.end_incoming(now, call));
            for (call, token) in peer.calls.clone() {
                peer.answer(now, call, token, 300);
            }
        }
        pair.drive();
        // A lost answer to a call without a deadline, a lease whose RELEASE was lost: those only
        // time can end.
        let busy = |peer: &Peer| !peer.connection.is_quiescent();
        if !pair.peers.iter().any(busy) && !pair.step() {
            return;
        }
        pair.pass(Duration::from_millis(100));
    }
}

fn run(windows: [u32; 2], ops: Vec<Op>) {
    let mut pair = Pair::new(windows, |config| {
        config.calls_in_max = 6;
        config.calls_out_max = 8;
        config.leases_max = 5;
        config.lease_bytes_max = 400_000;
        config.reads_max = 3;
        config.read_chunk_bytes = 12_000;
        config.methods_max = 2;
    });
    for peer in &mut pair.peers {
        (peer.hold_memory, peer.hold_calls, peer.hold_revokes) = (true, true, true);
    }
    let mut begun = [Vec::new(), Vec::new()];
    for op in ops {
        apply(&mut pair, &mut begun, op);
    }
    wind_up(&mut pair);
    for (side, tokens) in begun.iter().enumerate() {
        let (peer, other) = (&pair.peers[side], &pair.peers[1 - side]);
        assert_eq!(peer.violation, None);
        assert_eq!(peer.ended.len(), tokens.len());
        for token in tokens {
            let ending = &peer.ended[token][0];
            let ran = other.executed.contains_key(token);
            match peer.execution(*token) {
                Some(Execution::NotExecuted) => assert!(!ran, "{ending:?}, and it ran"),
                Some(Execution::Executed) => assert!(ran, "{ending:?}, and it did not run"),
                Some(Execution::MaybeExecuted) | None => {}
            }
            if let Ending::Failed(failure) = ending {
                let alive = !pair.is_dead() && pair.peers.iter().all(|peer| peer.closed.is_none());
                let lost = matches!(failure.kind, FailureKind::Lost | FailureKind::Read);
                assert!(!(alive && lost), "{failure:?} on a connection that lives");
            }
        }
    }
    pair.assert_quiescent();
}

proptest! {
    #[test]
    fn any_order_of_events_ends_everything_once_and_conserves_credits(
        windows in [1..4_u32, 1..4_u32],
        ops in script(),
    ) {
        run(windows, ops);
    }
}
