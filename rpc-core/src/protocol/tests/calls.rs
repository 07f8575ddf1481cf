use std::time::Duration;

use super::super::pair::{Ending, Pair, Peer, content};
use super::super::*;
use crate::{Code, Execution};

const MS: Duration = Duration::from_millis(1);

fn failure(pair: &Pair, side: usize, token: u64) -> &CallFailure {
    match pair.peers[side].ended.get(&token).and_then(|endings| endings.first()) {
        Some(Ending::Failed(failure)) => failure,
        other => panic!("the call ended as {other:?}"),
    }
}

fn is_answered(pair: &Pair, side: usize, token: u64) -> bool {
    pair.peers[side].ended.get(&token) == Some(&vec![Ending::Answered(None)])
}

#[test]
fn a_first_call_succeeds_both_ways_with_only_the_guaranteed_receives() {
    let mut pair = Pair::connected();
    let there = pair.call(0, 100, None).unwrap();
    pair.drive();
    let back = pair.call(1, 100, None).unwrap();
    pair.drive();
    assert!(is_answered(&pair, 0, there) && is_answered(&pair, 1, back));
    pair.assert_quiescent();
}

#[test]
fn calls_that_are_ready_together_share_sends() {
    let mut pair = Pair::connected();
    let before = pair.peers[0].connection.counters().sends;
    let tokens: Vec<_> = (0..100).map(|_| pair.call(0, 64, None).unwrap()).collect();
    pair.drive();
    assert!(tokens.iter().all(|token| is_answered(&pair, 0, *token)));
    let sends = pair.peers[0].connection.counters().sends - before;
    assert!(sends <= 5, "{sends} SENDs for 100 small calls");
    pair.assert_quiescent();
}

#[test]
fn urgent_calls_pass_those_that_wait_on_the_way_there_and_their_answers_on_the_way_back() {
    let mut pair = Pair::connected();
    pair.peers[1].hold_calls = true;
    let begin = |pair: &mut Pair, priority| {
        pair.peers[0].priority = priority;
        // Few fit into one SEND, and there is one credit.
        pair.call(0, 900, None).unwrap()
    };
    let usual: Vec<_> = (0..40).map(|_| begin(&mut pair, 0)).collect();
    let urgent: Vec<_> = (0..2).map(|_| begin(&mut pair, 1)).collect();
    pair.drive();
    let arrived = pair.peers[1].calls.clone();
    let tokens: Vec<_> = arrived.iter().map(|(_, token)| *token).collect();
    assert_eq!(tokens, [&urgent[..], &usual].concat());
    // Answered last, and back first.
    for (call, token) in arrived.into_iter().rev() {
        pair.peers[1].answer(pair.now, call, token, 900);
    }
    while !is_answered(&pair, 0, urgent[0]) {
        assert!(pair.step());
    }
    let before = usual.iter().filter(|token| is_answered(&pair, 0, **token)).count();
    assert!(before < 20, "{before} usual answers came with or before the urgent one");
    pair.drive();
    assert!(usual.iter().chain(&urgent).all(|token| is_answered(&pair, 0, *token)));
    pair.assert_quiescent();
}

#[test]
fn a_goaway_lets_those_run_that_were_sent_whatever_was_begun_before_them() {
    let mut pair = Pair::connected();
    pair.peers[1].hold_calls = true;
    let usual: Vec<_> = (0..40).map(|_| pair.call(0, 900, None).unwrap()).collect();
    pair.peers[0].priority = 1;
    let urgent = pair.call(0, 900, None).unwrap();
    while pair.peers[1].calls.is_empty() {
        assert!(pair.step());
    }
    let reason = GoawayReason { code: 0, message: "leaving".into() };
    pair.peers[1].connection.close(pair.now, reason);
    pair.drive();
    for (call, token) in pair.peers[1].calls.clone() {
        pair.peers[1].answer(pair.now, call, token, 10);
    }
    pair.drive();
    assert!(is_answered(&pair, 0, urgent));
    let executed = &pair.peers[1].executed;
    for token in usual {
        let run = executed.contains_key(&token);
        assert_eq!(is_answered(&pair, 0, token), run);
        let verdict = (!run).then(|| failure(&pair, 0, token).execution);
        assert!(verdict.is_none_or(|verdict| verdict == Execution::NotExecuted));
    }
}

#[test]
fn two_peers_that_call_each_other_at_windows_of_1_finish_100_000_calls() {
    let mut pair = Pair::connected();
    let mut begun = 0;
    while begun < 100_000 {
        for side in 0..2 {
            for _ in 0..20 {
                begun += u32::from(pair.call(side, 40, None).is_some());
            }
        }
        // Far from rest: a few SENDs are always under way.
        for _ in 0..4 {
            pair.step();
        }
        for peer in &mut pair.peers {
            peer.ended.retain(|_, endings| *endings != [Ending::Answered(None)]);
            peer.executed.clear();
        }
    }
    pair.drive();
    assert!(pair.peers.iter().all(|peer| peer.violation.is_none()));
    let unanswered = |peer: &Peer| {
        peer.ended.values().filter(|endings| **endings != [Ending::Answered(None)]).count()
    };
    assert_eq!(pair.peers.each_ref().map(unanswered), [0, 0]);
    pair.assert_quiescent();
}

#[test]
fn a_deadline_ends_the_call_on_both_sides_and_counts_until_the_handler_has_ended() {
    let mut pair = Pair::connected();
    pair.peers[1].hold_calls = true;
    let token = pair.call(0, 10, Some(10 * MS)).unwrap();
    pair.pass(20 * MS);
    let failure = failure(&pair, 0, token);
    assert_eq!(failure.kind.code(), Code::DeadlineExceeded);
    assert_eq!(failure.execution, Execution::MaybeExecuted);
    assert_eq!(pair.peers[1].cancelled.len(), 1);
    assert_eq!(pair.peers[1].connection.calls_incoming(), 1);
    let call = pair.peers[1].cancelled[0];
    let now = pair.now;
    pair.peers[1].end_incoming(now, call);
    pair.drive();
    pair.assert_quiescent();
}

#[test]
fn a_cancel_reaches_the_handler_and_its_late_answer_is_refused() {
    let mut pair = Pair::connected();
    pair.peers[1].hold_calls = true;
    let token = pair.call(0, 10, None).unwrap();
    pair.drive();
    pair.peers[0].cancel(pair.now, token);
    pair.drive();
    let call = pair.peers[1].cancelled[0];
    let now = pair.now;
    assert!(!pair.peers[1].answer(now, call, token, 5000), "nobody waits for it");
    pair.drive();
    pair.assert_quiescent();
}

#[test]
fn a_call_that_was_never_sent_is_not_executed() {
    let mut pair = Pair::new([1, 1], |_| {});
    // Nothing can be sent before the peer has confirmed.
    let dropped = pair.call(0, 10, None).unwrap();
    let late = pair.call(0, 5000, Some(MS)).unwrap();
    let lost = pair.call(0, 5000, None).unwrap();
    pair.latency = Duration::from_secs(1);
    pair.peers[0].cancel(pair.now, dropped);
    pair.pass(2 * MS);
    assert_eq!(failure(&pair, 0, late).execution, Execution::NotExecuted);
    assert_eq!(failure(&pair, 0, late).kind, FailureKind::Deadline);
    pair.kill(0);
    pair.drive();
    assert_eq!(failure(&pair, 0, lost).execution, Execution::NotExecuted);
    assert_eq!(pair.peers[1].connection.counters().calls_in, 0);
    pair.assert_quiescent();
}

#[test]
fn a_loss_says_of_each_call_how_far_it_had_come() {
    let mut pair = Pair::connected();
    pair.peers[1].hold_calls = true;
    let posted = pair.call(0, 10, None).unwrap();
    pair.drive();
    let unsent = pair.call(0, 10, None).unwrap();
    pair.kill(0);
    pair.peers[0].connection.on_lost(
        pair.now,
        LossReason { kind: LossKind::Control, message: "the control connection ended".into() },
    );
    pair.drive();
    assert_eq!(failure(&pair, 0, posted).execution, Execution::MaybeExecuted);
    assert_eq!(failure(&pair, 0, unsent).execution, Execution::NotExecuted);
    assert_eq!(failure(&pair, 0, unsent).message, "the control connection ended");
    assert!(pair.peers[0].connection.is_closed() && pair.call(0, 10, None).is_none());
    let call = pair.peers[1].cancelled[0];
    let now = pair.now;
    pair.peers[1].end_incoming(now, call);
    pair.assert_quiescent();
}

#[test]
fn calls_over_the_peers_bound_are_refused_and_not_executed() {
    let mut pair = Pair::new([1, 1], |config| config.calls_in_max = 3);
    pair.peers[1].hold_calls = true;
    let tokens: Vec<_> = (0..5).map(|_| pair.call(0, 5000, None).unwrap()).collect();
    pair.drive();
    for token in &tokens[3..] {
        let failure = failure(&pair, 0, *token);
        assert_eq!(failure.kind.code(), Code::ResourceExhausted);
        assert_eq!(failure.execution, Execution::NotExecuted);
    }
    for (call, token) in pair.peers[1].calls.clone() {
        let now = pair.now;
        assert!(pair.peers[1].answer(now, call, token, 10));
    }
    pair.drive();
    assert!(tokens[..3].iter().all(|token| is_answered(&pair, 0, *token)));
    assert_eq!(pair.peers[1].connection.counters().calls_in_over_max, 2);
    pair.assert_quiescent();
}

#[test]
fn a_refusal_says_that_the_call_did_not_run_and_why() {
    let mut pair = Pair::connected();
    pair.peers[1].hold_calls = true;
    let token = pair.call(0, 10, None).unwrap();
    pair.drive();
    let (call, _) = pair.peers[1].calls.remove(0);
    let now = pair.now;
    pair.peers[1].connection.refuse(now, call, Code::Unimplemented as u32, "no such method");
    pair.drive();
    let failure = failure(&pair, 0, token);
    assert_eq!((failure.kind.code(), &*failure.message), (Code::Unimplemented, "no such method"));
    assert_eq!(failure.execution, Execution::NotExecuted);
    pair.assert_quiescent();
}

#[test]
fn what_does_not_fit_into_a_send_is_refused_or_answered_with_a_status() {
    let mut pair = Pair::connected();
    let max = pair.peers[0].connection.request_inline_max("t.S/A", 0, 0, 0);
    let call = |len| OutCall {
        method: "t.S/A",
        deadline: None,
        metadata: bytes::Bytes::new(),
        priority: 0,
        body: OutBody::inline(content(1 << 40, len)),
    };
    let (peer, now) = (&mut pair.peers[0], pair.now);
    let refused = peer.connection.start_call(now, 1 << 40, call(max + 1));
    assert!(matches!(refused, Err((_, CallRefused::TooLarge { .. }))));
    peer.connection.start_call(now, 1 << 40, call(max)).unwrap();
    pair.peers[1].hold_calls = true;
    pair.drive();
    let (id, _) = pair.peers[1].calls.remove(0);
    let max = pair.peers[1].connection.response_inline_max(0, 0, 0);
    let answer = OutAnswer { body: OutBody::inline(vec![0; max + 1]), ..OutAnswer::default() };
    let now = pair.now;
    assert!(pair.peers[1].connection.answer(now, id, answer));
    pair.drive();
    let endings = &pair.peers[0].ended[&(1 << 40)];
    let [Ending::Answered(Some(status))] = &endings[..] else { panic!("{endings:?}") };
    assert_eq!(status.code, Code::Internal as u32);
    pair.assert_quiescent();
}

#[test]
fn outgoing_calls_are_bounded_and_the_bound_is_back_pressure() {
    let mut pair = Pair::new([1, 1], |config| config.calls_out_max = 2);
    assert!(pair.call(0, 1, None).is_some() && pair.call(0, 1, None).is_some());
    assert!(pair.call(0, 1, None).is_none() && pair.call(0, 5000, None).is_none());
    pair.drive();
    assert!(pair.call(0, 1, None).is_some());
    pair.drive();
    pair.assert_quiescent();
}

#[test]
fn an_orderly_close_lets_what_runs_end_and_takes_nothing_new() {
    let mut pair = Pair::connected();
    pair.peers[1].hold_calls = true;
    let running = pair.call(0, 100_000, None).unwrap();
    pair.drive();
    let reason = GoawayReason { code: Code::Unavailable as u32, message: "shutdown".into() };
    let now = pair.now;
    // The request and the GOAWAY cross on the way.
    let crossing = pair.call(0, 5000, None).unwrap();
    pair.peers[1].connection.close(now, reason);
    pair.drive();
    assert_eq!(failure(&pair, 0, crossing).execution, Execution::NotExecuted);
    assert!(pair.call(0, 1, None).is_none(), "the peer goes away");
    assert!(pair.peers[1].closed.is_none());
    let (call, token) = pair.peers[1].calls[0];
    let now = pair.now;
    assert!(pair.peers[1].answer(now, call, token, 100_000));
    pair.drive();
    assert!(is_answered(&pair, 0, running));
    assert!(matches!(pair.peers[1].closed, Some(CloseReason::Local { drained: true, .. })));
    assert!(matches!(pair.peers[0].closed, Some(CloseReason::Lost(_))));
    pair.assert_quiescent();
}

#[test]
fn an_orderly_close_is_bounded() {
    let mut pair = Pair::connected();
    pair.peers[1].hold_calls = true;
    let token = pair.call(0, 10, None).unwrap();
    pair.drive();
    let reason = GoawayReason { code: 0, message: "shutdown".into() };
    pair.peers[1].connection.close(pair.now, reason);
    pair.pass(Duration::from_secs(6));
    assert!(matches!(pair.peers[1].closed, Some(CloseReason::Local { drained: false, .. })));
    assert_eq!(failure(&pair, 0, token).execution, Execution::MaybeExecuted);
    let call = pair.peers[1].cancelled[0];
    let now = pair.now;
    pair.peers[1].end_incoming(now, call);
    pair.assert_quiescent();
}

#[test]
fn without_confirm_the_connection_ends_at_its_deadline() {
    let mut pair = Pair::new([1, 1], |_| {});
    pair.latency = Duration::from_secs(100);
    let token = pair.call(0, 10, None).unwrap();
    pair.pass(Duration::from_secs(6));
    for peer in &pair.peers {
        assert_eq!(peer.closed, Some(CloseReason::ConfirmTimeout));
    }
    assert_eq!(failure(&pair, 0, token).execution, Execution::NotExecuted);
}

#[test]
fn a_message_that_had_to_wait_asks_for_credit_though_several_have_come_back_since() {
    let mut pair = Pair::new([1, 2], |_| {});
    pair.drive();
    assert_eq!(pair.peers[0].connection.credits().available, 2);
    pair.peers[1].hold_receives = true;
    pair.peers[1].hold_calls = true;
    for _ in 0..3 {
        pair.call(0, 1500, None).unwrap();
        pair.drive(); // a SEND for each, as long as there are credits
    }
    assert_eq!((pair.peers[0].connection.credits().available, pair.peers[1].lend), (0, None));
    pair.peers[1].hold_calls = false;
    pair.peers[1].hold_receives = false;
    let unposted = std::mem::take(&mut pair.peers[1].unposted);
    pair.peers[1].post(unposted);
    pair.drive();
    assert!(pair.peers[1].lend.is_some(), "nobody asked for more");
}

#[test]
fn credits_that_a_peer_does_not_use_come_back_and_can_be_lent_again() {
    let mut pair = Pair::new([1, 9], |_| {});
    pair.drive();
    let granted = |pair: &Pair| pair.peers[1].connection.credits().granted;
    let had = granted(&pair);
    assert!(had > 4, "{had}");
    assert_eq!(pair.peers[1].connection.recall(pair.now, 3), 3);
    assert_eq!(pair.peers[1].connection.recall(pair.now, 3), 0, "one at a time");
    pair.drive();
    // The RETURN spent one itself, which this side's next SEND will renew.
    let left = granted(&pair);
    assert_eq!((pair.peers[1].returned, left), (3, had - 4));
    pair.assert_quiescent();
    // All but one, however many are asked for; and the peer can still speak.
    assert_eq!(pair.peers[1].connection.recall(pair.now, u32::MAX), left - 1);
    pair.drive();
    pair.assert_quiescent();
    assert_eq!(pair.peers[1].connection.recall(pair.now, u32::MAX), 0);
    pair.peers[1].post(4);
    for _ in 0..50 {
        pair.call(0, 1500, None).unwrap();
    }
    pair.drive();
    assert!(granted(&pair) >= 4, "{}", granted(&pair));
    pair.assert_quiescent();
    let counters = pair.peers[1].connection.counters();
    assert_eq!(counters.credits_recalled, counters.credits_returned);
}

#[test]
fn a_peer_that_spent_its_credits_meanwhile_gives_back_what_is_left() {
    let mut pair = Pair::new([1, 9], |_| {});
    pair.drive();
    pair.latency = Duration::from_millis(1);
    assert!(pair.peers[1].connection.recall(pair.now, 8) > 0);
    for _ in 0..20 {
        pair.call(0, 1500, None).unwrap(); // one SEND each, on their way as the RECALL is
    }
    pair.drive();
    pair.assert_quiescent();
    let counters = pair.peers[1].connection.counters();
    assert!(counters.credits_returned < counters.credits_recalled);
    assert_eq!(u64::from(pair.peers[1].returned), counters.credits_returned);
}

#[test]
fn a_peer_short_of_credits_says_so_and_loans_are_used_and_kept_count_of() {
    let mut pair = Pair::connected();
    for _ in 0..50 {
        pair.call(0, 1500, None).unwrap();
    }
    pair.step();
    pair.step();
    assert_eq!(pair.peers[1].lend, Some(1), "as many again as it has");
    pair.peers[1].post(7);
    pair.drive();
    assert_eq!(pair.peers[0].connection.credits().available, 8);
    pair.assert_quiescent();
}
