//! Peers that stand still are found, and those that only have nothing to say are left alone.

use std::time::Duration;

use super::super::pair::{Ending, Pair};
use super::super::*;
use crate::{Execution, Pings};

const SECOND: Duration = Duration::from_secs(1);

/// Within this of its time a check comes.
const LATE: Duration = Duration::from_millis(600);

fn pings() -> Pings {
    Pings::new().busy_after(2 * SECOND).idle_after(30 * SECOND).timeout(5 * SECOND)
}

fn pair(windows: [u32; 2]) -> Pair {
    let mut pair = Pair::new(windows, |config| config.pings = pings());
    pair.drive();
    pair
}

fn pings_sent(pair: &Pair) -> [u64; 2] {
    [0, 1].map(|side| pair.peers[side].connection.counters().pings)
}

#[test]
fn a_peer_that_stops_with_a_call_is_found_within_both_times() {
    for side in 0..2 {
        let mut pair = pair([1, 1]);
        let (caller, other) = (side, 1 - side);
        pair.peers[other].hold_calls = true;
        let token = pair.call(caller, 100, None).unwrap();
        pair.drive();
        pair.peers[other].stopped = true;
        pair.pass(7 * SECOND);
        assert_eq!(pair.peers[caller].closed, None, "it has its time");
        pair.pass(LATE);
        let Some(CloseReason::Lost(why)) = &pair.peers[caller].closed else { panic!("not found") };
        assert_eq!(why.kind, LossKind::Silence);
        assert!(pair.peers[caller].silence.unwrap() >= 7 * SECOND);
        let [Ending::Failed(failure)] = &pair.peers[caller].ended[&token][..] else { panic!() };
        assert_eq!(failure.execution, Execution::MaybeExecuted);
    }
}

#[test]
fn a_peer_without_a_credit_left_for_the_ping_is_found_as_well() {
    let mut pair = pair([1, 1]);
    pair.peers[1].stopped = true;
    let tokens = [(); 3].map(|()| {
        let token = pair.call(0, 100, None).unwrap();
        pair.drive();
        token
    });
    assert_eq!(pair.peers[0].connection.credits().available, 0);
    pair.pass(7 * SECOND + LATE);
    assert!(pair.peers[0].closed.is_some());
    assert_eq!(pings_sent(&pair), [0, 0], "it could not even be sent");
    let said = [Execution::MaybeExecuted, Execution::NotExecuted, Execution::NotExecuted];
    assert_eq!(tokens.map(|token| pair.peers[0].execution(token).unwrap()), said);
}

#[test]
fn calls_that_give_up_sooner_do_not_hide_a_peer_that_stands_still() {
    let mut pair = pair([8, 8]);
    pair.peers[1].stopped = true;
    for _ in 0..16 {
        pair.call(0, 100, Some(SECOND / 4));
        pair.pass(SECOND / 2);
    }
    assert!(pair.peers[0].closed.is_some());
}

#[test]
fn a_peer_that_stops_before_it_reads_an_answer_gives_its_lease_back() {
    let mut pair = pair([1, 1]);
    pair.peers[0].hold_memory = true;
    pair.call(0, 50_000, Some(3600 * SECOND)).unwrap();
    pair.drive();
    pair.peers[0].stopped = true;
    assert_eq!(pair.peers[1].connection.leases_outstanding(), 1);
    pair.pass(7 * SECOND + LATE);
    assert_eq!(pair.peers[1].connection.leases_outstanding(), 0);
    assert!(matches!(pair.peers[1].closed, Some(CloseReason::Lost(_))));
}

#[test]
fn an_idle_peer_that_stops_is_found_by_either_side() {
    for stopped in 0..2 {
        let mut pair = pair([1, 1]);
        pair.peers[stopped].stopped = true;
        let within = if stopped == 1 { 35 * SECOND } else { 50 * SECOND };
        pair.pass(within - SECOND);
        assert_eq!(pair.peers[1 - stopped].closed, None);
        pair.pass(SECOND + LATE);
        assert!(pair.peers[1 - stopped].closed.is_some());
    }
}

#[test]
fn an_idle_connection_lives_on_and_the_connecting_side_alone_asks() {
    let mut pair = pair([1, 1]);
    pair.pass(3600 * SECOND);
    assert!(pair.peers.iter().all(|peer| peer.closed.is_none()));
    let [connecting, accepting] = pings_sent(&pair);
    assert_eq!(accepting, 0);
    assert!((110..=120).contains(&connecting), "{connecting} in an hour");
    pair.assert_quiescent();
}

#[test]
fn a_call_that_takes_minutes_is_no_silence() {
    let mut pair = pair([1, 1]);
    pair.peers[1].hold_calls = true;
    let token = pair.call(0, 100, None).unwrap();
    pair.pass(300 * SECOND);
    let (call, _) = pair.peers[1].calls[0];
    let now = pair.now;
    pair.peers[1].answer(now, call, token, 100);
    pair.drive();
    assert_eq!(pair.peers[0].ended[&token], [Ending::Answered(None)]);
    pair.assert_quiescent();
}

#[test]
fn calls_after_a_quiet_time_ask_for_nothing_else() {
    let mut pair = pair([1, 1]);
    for _ in 0..5 {
        pair.pass(20 * SECOND);
        pair.call(0, 100, None).unwrap();
        pair.call(0, 50_000, None).unwrap();
        pair.drive();
    }
    assert_eq!(pings_sent(&pair), [0, 0]);
}

#[test]
fn a_peer_that_stood_still_for_less_than_its_time_goes_on() {
    let mut pair = pair([4, 4]);
    let token = pair.call(0, 50_000, None).unwrap();
    pair.peers[1].stopped = true;
    pair.pass(6 * SECOND);
    pair.peers[1].stopped = false;
    pair.drive();
    assert_eq!(pair.peers[0].ended[&token], [Ending::Answered(None)]);
    pair.pass(60 * SECOND);
    assert!(pair.peers.iter().all(|peer| peer.closed.is_none()));
    pair.assert_quiescent();
}

#[test]
fn switched_off_a_silent_peer_is_waited_for() {
    let mut pair = Pair::new([1, 1], |config| config.pings = Pings::off());
    pair.drive();
    pair.peers[1].stopped = true;
    let token = pair.call(0, 100, None).unwrap();
    pair.pass(3600 * SECOND);
    pair.peers[1].stopped = false;
    pair.drive();
    assert_eq!(pair.peers[0].ended[&token], [Ending::Answered(None)]);
}

#[test]
fn a_peer_that_stops_before_its_answer_comes_is_found_by_the_side_that_answered() {
    let mut pair = pair([1, 1]);
    pair.peers[1].hold_calls = true;
    let token = pair.call(0, 100, None).unwrap();
    pair.drive();
    pair.peers[0].stopped = true;
    let (call, _) = pair.peers[1].calls[0];
    let now = pair.now;
    pair.peers[1].answer(now, call, token, 100);
    pair.pass(7 * SECOND + LATE);
    assert!(pair.peers[1].closed.is_some());
}
