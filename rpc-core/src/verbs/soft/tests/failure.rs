use std::time::Duration;

use super::fixture::*;
use crate::verbs::{
    AsyncEvent, Cq, Device, Opcode, Qp, QpAttr, QpState, SendBatch, SendFlags, WcStatus,
};

/// 4.096 µs × 2^14, the retry timer of the fixture.
const RETRY: Duration = Duration::from_micros(67_109);

#[test]
fn error_flushes_every_outstanding_request_signaled_or_not() {
    let mut world = World::new(Via::Mem);
    let (small, to) = (world.a.sge(0, 4), world.a.sge(4096, 64));
    let from = world.b.remote(0, crate::verbs::Rkey(0x0100));
    let mut batch = world.a.qps[0].batch();
    batch.send(1, &[small], SIGNALED).unwrap();
    batch.send(2, &[small], SendFlags::NONE).unwrap();
    batch.read(3, &[to], from, SendFlags::NONE).unwrap();
    batch.local_inv(4, crate::verbs::Rkey(0x0200), SendFlags::NONE).unwrap();
    batch.post().unwrap();
    world.a.post_recv(50, 0, 64);
    world.a.qps[0].to_err().unwrap();
    world.a.poll();
    let flushed: Vec<_> = (1..=4).map(|wr_id| failed(wr_id, WcStatus::WrFlushErr)).collect();
    assert_eq!(world.a.take(), flushed);
    let last = AsyncEvent::LastWqeReached(world.a.qps[0].num());
    assert_eq!(world.a.dev.poll_async(), Some(last));
    assert_eq!(world.a.dev.poll_async(), None);
    assert_eq!(world.a.dev.usage().srq_wrs, 1, "receives belong to the SRQ");
}

#[test]
fn receive_that_was_being_filled_is_flushed_with_its_qp() {
    // A link that holds only a part of the message.
    let mut world = World::with(Via::Mem, |config| config.piece_bytes(1024).mem_link_bytes(4096));
    world.b.post_recv(1, 0, 100_000);
    world.a.send(0, 2, &pattern(100_000, 1));
    world.b.poll();
    assert_eq!(world.b.take(), []);
    world.b.qps[0].to_err().unwrap();
    world.settle();
    assert_eq!(world.b.take(), [failed(1, WcStatus::WrFlushErr)]);
}

#[test]
fn qp_in_error_is_silent_and_its_peer_learns_by_its_own_retries() {
    for via in BOTH {
        let mut world = World::new(via);
        world.b.post_recv(1, 0, 16);
        world.b.qps[0].to_err().unwrap();
        world.a.send(0, 2, b"anybody?");
        world.a.send(0, 3, b"hello?");
        world.until_that(|world| {
            world.clock.pass(RETRY / 16);
            world.a.got.len() == 2
        });
        // Two packets, and both again by each of two retries.
        world.until_that(|world| world.b.dev.packets_dropped() == 6);
        let flushed = failed(3, WcStatus::WrFlushErr);
        assert_eq!(world.a.take(), [failed(2, WcStatus::RetryExcErr), flushed]);
        assert_eq!(world.b.dev.usage().srq_wrs, 1);
        assert_eq!(world.b.take(), []);
    }
}

#[test]
fn request_sent_before_the_peer_was_ready_arrives_by_retry() {
    let mut world = World::unconnected(Via::Mem, |config| config);
    let (a, b) = (world.a.add_qp(), world.b.add_qp());
    let at_a = world.a.qps[a].address(crate::verbs::Psn(1)).unwrap();
    let at_b = world.b.qps[b].address(crate::verbs::Psn(2)).unwrap();
    world.a.qps[a].to_rtr(&at_b, &ATTR).unwrap();
    world.a.qps[a].to_rts(&ATTR).unwrap();
    world.b.post_recv(5, 0, 64);
    world.a.send(0, 1, b"early");
    world.settle();
    assert_eq!(world.b.take(), []);
    world.b.qps[b].to_rtr(&at_a, &ATTR).unwrap();
    world.clock.pass(RETRY);
    world.settle();
    assert_eq!((world.a.take(), world.b.take()), (vec![ok(1)], vec![ok(5)]));
    assert_eq!(world.b.memory.get(0, 5), b"early");
}

#[test]
fn answer_that_takes_many_timeouts_is_no_failure_while_it_moves() {
    let mut world = World::with(Via::Mem, |config| config.piece_bytes(1024).mem_link_bytes(2048));
    world.b.memory.put(0, &pattern(40_000, 9));
    let key = world.b.bind(0, 1, 0, 40_000);
    world.b.poll();
    let (to, from) = (world.a.sge(0, 40_000), world.b.remote(0, key));
    world.a.read(0, 2, to, from);
    for _ in 0..200 {
        world.clock.pass(RETRY / 2);
        world.a.poll();
        world.b.poll();
    }
    assert_eq!(world.a.take(), [ok(2)]);
    assert!(world.a.memory.get(0, 40_000) == pattern(40_000, 9));
}

#[test]
pub(super) fn late_retries_do_not_do_things_twice() {
    let mut world = World::new(Via::Mem);
    world.b.post_recv(1, 0, 64);
    world.b.post_recv(2, 64, 64);
    // What a second copy of a message would be found in.
    world.b.post_recv(9, 128, 64);
    world.b.memory.put(4096, b"source");
    let key = world.b.bind(0, 3, 4096, 6);
    let (message, to, from) = (world.a.sge(0, 8), world.a.sge(4096, 6), world.b.remote(4096, key));
    let mut batch = world.a.qps[0].batch();
    batch.send(10, &[message], SIGNALED).unwrap();
    batch.read(11, &[to], from, SIGNALED).unwrap();
    batch.send(12, &[message], SIGNALED).unwrap();
    batch.post().unwrap();
    // The peer's core is busy; our timer repeats everything before it looks.
    world.clock.pass(RETRY);
    world.a.poll();
    world.settle();
    assert_eq!(world.a.take(), [ok(10), ok(11), ok(12)]);
    assert_eq!(world.b.take(), [ok(3), ok(1), ok(2)]);
    let counters = (world.a.dev.counters(), world.b.dev.counters());
    assert_eq!((counters.0.sends, counters.0.reads, counters.1.recvs), (2, 1, 2));
}

#[test]
fn lost_link_fails_outstanding_requests_after_the_delay() {
    for via in BOTH {
        let World { clock, mut a, b } = World::new(via);
        a.send(0, 1, b"x");
        a.send(0, 2, b"y");
        drop(b);
        let begun = std::time::Instant::now();
        while a.dev.usage().links > 0 {
            a.poll();
            assert!(begun.elapsed() < patience());
        }
        assert_eq!(a.take(), []);
        clock.pass(Duration::from_millis(499));
        a.poll();
        assert_eq!(a.take(), []);
        assert_eq!(a.cq.next_deadline(), Some(crate::Time::ZERO + Duration::from_millis(500)));
        clock.pass(Duration::from_millis(1));
        a.poll();
        let flushed = failed(2, WcStatus::WrFlushErr);
        assert_eq!(a.take(), [failed(1, WcStatus::RetryExcErr), flushed], "over {via:?}");
    }
}

#[test]
fn idle_qp_notices_a_lost_link_at_its_next_request() {
    let World { clock, mut a, b } = World::new(Via::Mem);
    drop(b);
    a.poll();
    clock.pass(Duration::from_secs(60));
    a.poll();
    assert_eq!((a.take(), a.qps[0].state()), (vec![], QpState::Rts));
    a.send(0, 1, b"x");
    a.poll();
    assert_eq!(a.take(), []);
    clock.pass(Duration::from_millis(500));
    a.poll();
    assert_eq!(a.take(), [failed(1, WcStatus::RetryExcErr)]);
}

#[test]
fn silent_peer_is_given_up_only_when_an_answer_was_wanted() {
    let mut world = World::unconnected(Via::Mem, |config| config);
    world.connect(QpAttr { retry_cnt: 0, ..ATTR }, ATTR);
    world.b.qps[0].to_err().unwrap();
    let sge = world.a.sge(0, 1);
    let mut batch = world.a.qps[0].batch();
    batch.send(1, &[sge], SendFlags::NONE).unwrap();
    batch.post().unwrap();
    assert_eq!(world.a.cq.next_deadline(), None);
    world.a.send(0, 2, b"x");
    for _ in 0..2 {
        world.clock.pass(RETRY);
        world.settle();
    }
    // The oldest request carries the reason, though nobody asked to hear of it.
    let flushed = failed(2, WcStatus::WrFlushErr);
    assert_eq!(world.a.take(), [failed(1, WcStatus::RetryExcErr), flushed]);
}

#[test]
fn completed_receive_is_acknowledged_before_its_qp_falls_silent() {
    let mut world = World::new(Via::Mem);
    world.b.post_recv(1, 0, 16);
    world.a.send(0, 2, b"x");
    world.b.poll();
    assert_eq!(world.b.got[0].outcome().unwrap().opcode, Opcode::Recv);
    world.b.qps[0].to_err().unwrap();
    world.a.poll();
    assert_eq!(world.a.take(), [ok(2)]);
}

#[test]
fn peer_whose_core_is_busy_is_not_taken_for_dead() {
    for via in BOTH {
        let mut world = World::new(via);
        world.b.post_recv(1, 0, 16);
        world.a.send(0, 2, b"patience");
        // Far beyond all retries, b is not polled.
        for _ in 0..100 {
            world.clock.pass(RETRY);
            world.a.poll();
        }
        assert_eq!(world.a.take(), [], "over {via:?}");
        world.until(1, 1);
        assert_eq!((world.a.take(), world.b.take()), (vec![ok(2)], vec![ok(1)]));
    }
}
