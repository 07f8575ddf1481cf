use std::time::Duration;

use super::super::pair::{Ending, Pair};
use super::super::*;
use crate::{Code, Execution};

/// Four pieces.
const LARGE: usize = 110_000;

fn execution(pair: &Pair, side: usize, token: u64) -> Option<Execution> {
    pair.peers[side].execution(token)
}

fn code(pair: &Pair, side: usize, token: u64) -> Code {
    match &pair.peers[side].ended[&token][..] {
        [Ending::Failed(failure)] => failure.kind.code(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn large_requests_and_answers_travel_by_read_and_every_lease_ends() {
    for (request, answer) in [(LARGE, 10), (10, LARGE), (LARGE, LARGE)] {
        let mut pair = Pair::connected();
        pair.peers[1].hold_calls = true;
        let token = pair.call(0, request, None).unwrap();
        pair.drive();
        let (call, _) = pair.peers[1].calls[0];
        let now = pair.now;
        assert!(pair.peers[1].answer(now, call, token, answer));
        pair.drive();
        assert_eq!(pair.peers[0].ended[&token], [Ending::Answered(None)]);
        let read = [0, 1].map(|side| pair.peers[side].connection.counters().read_bytes);
        // Each large message has 107 bytes inline.
        assert_eq!(read[1], if request == LARGE { LARGE as u64 - 107 } else { 0 });
        assert_eq!(read[0], if answer == LARGE { LARGE as u64 - 107 } else { 0 });
        pair.assert_quiescent();
    }
}

#[test]
fn a_request_without_memory_is_refused_and_an_answer_without_memory_was_executed() {
    let mut pair = Pair::connected();
    pair.peers[1].hold_memory = true;
    let request = pair.call(0, LARGE, None).unwrap();
    pair.drive();
    let (transfer, now) = (pair.peers[1].fetches[0], pair.now);
    pair.peers[1].fetch_refused(now, transfer);
    pair.drive();
    assert_eq!(code(&pair, 0, request), Code::ResourceExhausted);
    assert_eq!(execution(&pair, 0, request), Some(Execution::NotExecuted));

    pair.peers[1].hold_memory = false;
    pair.peers[0].hold_memory = true;
    let answer = pair.call(0, LARGE, None).unwrap();
    pair.drive();
    let (transfer, now) = (pair.peers[0].fetches[0], pair.now);
    pair.peers[0].fetch_refused(now, transfer);
    pair.drive();
    assert_eq!(code(&pair, 0, answer), Code::ResourceExhausted);
    assert_eq!(execution(&pair, 0, answer), Some(Execution::Executed));
    assert_eq!(pair.peers[1].connection.counters().releases_unread, 1);
    pair.assert_quiescent();
}

#[test]
fn waiting_for_memory_ends_by_itself_and_a_late_word_is_ignored() {
    let mut pair = Pair::connected();
    pair.peers[1].hold_memory = true;
    let token = pair.call(0, LARGE, None).unwrap();
    pair.drive();
    let transfer = pair.peers[1].fetches[0];
    pair.pass(Duration::from_millis(5100));
    assert_eq!(code(&pair, 0, token), Code::ResourceExhausted);
    let now = pair.now;
    pair.peers[1].connection.on_fetch_ready(now, transfer);
    pair.peers[1].connection.on_fetch_refused(now, transfer);
    pair.drive();
    pair.assert_quiescent();
}

#[test]
fn a_cancel_while_the_request_is_fetched_ends_it_unseen_after_its_reads() {
    let mut pair = Pair::new([4, 4], |_| {});
    pair.call(0, 10, None).unwrap();
    pair.drive();
    pair.peers[1].executed.clear();
    let token = pair.call(0, LARGE, None).unwrap();
    pair.step();
    // The CANCEL arrives while the READs, posted in the same moment, are under way.
    pair.peers[0].cancel(pair.now, token);
    pair.drive();
    assert!(pair.peers[1].executed.is_empty());
    assert!(pair.peers[1].connection.counters().reads > 0);
    pair.assert_quiescent();
}

#[test]
fn a_deadline_while_the_answer_is_fetched_discards_it_after_its_reads() {
    let mut pair = Pair::connected();
    pair.peers[0].hold_memory = true;
    let token = pair.call(0, LARGE, Some(Duration::from_millis(1))).unwrap();
    pair.drive();
    let (transfer, now) = (pair.peers[0].fetches[0], pair.now);
    pair.latency = Duration::from_millis(10);
    pair.peers[0].fetch_ready(now, transfer);
    pair.pass(Duration::from_millis(2));
    assert_eq!(code(&pair, 0, token), Code::DeadlineExceeded);
    assert_eq!(execution(&pair, 0, token), Some(Execution::Executed));
    assert!(pair.peers[0].connection.transfers_outstanding() == 1);
    pair.drive();
    pair.assert_quiescent();
}

#[test]
fn a_lease_that_is_not_released_is_revoked_after_its_grace_and_the_release_is_late() {
    let mut pair = Pair::connected();
    pair.peers[1].hold_memory = true;
    let token = pair.call(0, LARGE, Some(Duration::from_millis(10))).unwrap();
    pair.drive();
    // The peer's RELEASE needs seconds.
    pair.latency = Duration::from_secs(3);
    pair.pass(Duration::from_millis(1500));
    assert_eq!(code(&pair, 0, token), Code::DeadlineExceeded);
    assert_eq!(pair.peers[0].connection.counters().leases_expired, 1);
    assert_eq!(pair.peers[0].connection.leases_outstanding(), 0);
    pair.drive();
    assert_eq!(pair.peers[0].connection.counters().releases_late, 1);
    pair.assert_quiescent();
}

#[test]
fn lease_bounds_are_back_pressure() {
    let mut pair = Pair::new([1, 1], |config| {
        config.leases_max = 2;
        config.lease_bytes_max = 700_000;
    });
    let now = pair.now;
    let connection = &mut pair.peers[0].connection;
    let a = connection.reserve_lease(now, 1, 600_000, now).unwrap();
    assert!(connection.reserve_lease(now, 1, 100_001, now).is_err());
    let b = connection.reserve_lease(now, 1, 100_000, now).unwrap();
    assert!(connection.reserve_lease(now, 1, 0, now).is_err());
    connection.on_lease_revoked(a);
    connection.on_lease_revoked(b);
    assert_eq!((connection.leases_outstanding(), connection.lease_bytes()), (0, 0));
    assert!(connection.reserve_lease(now, 1, 700_000, now).is_ok());
}

#[test]
fn windows_of_one_send_are_bounded_by_what_the_engine_can_bind() {
    let mut pair = Pair::connected();
    for _ in 0..3 {
        pair.call(0, LARGE, None).unwrap();
    }
    let (now, mut buf) = (pair.now, vec![0; 9216]);
    let connection = &mut pair.peers[0].connection;
    assert_eq!(connection.poll_transmit(now, &mut buf, 3), None, "each has four ranges");
    let sent = connection.poll_transmit(now, &mut buf, 9).unwrap();
    assert_eq!(sent.leases.len(), 2);
}

#[test]
fn a_message_over_the_bound_is_not_fetched() {
    let mut pair = Pair::new([1, 1], |config| {
        config.message_bytes_max = if config.role == Role::Accepting { 100_000 } else { 1 << 30 };
    });
    pair.drive();
    let token = pair.call(0, LARGE, None).unwrap();
    pair.drive();
    assert_eq!(code(&pair, 0, token), Code::ResourceExhausted);
    assert_eq!(execution(&pair, 0, token), Some(Execution::NotExecuted));
    assert_eq!(pair.peers[1].connection.counters().reads, 0);
    pair.assert_quiescent();
}
