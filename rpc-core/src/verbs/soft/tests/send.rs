use std::time::Duration;

use super::fixture::*;
use crate::verbs::{
    AsyncEvent, Device, Opcode, Qp, QpAttr, QpState, RecvBatch, SendBatch, SendFlags, Sge, Srq,
    WcStatus,
};

#[test]
pub(super) fn message_arrives_and_both_sides_complete() {
    for via in BOTH {
        let mut world = World::new(via);
        world.b.post_recv(70, 0, 100);
        world.a.send(0, 7, b"hello");
        world.until(1, 1);
        let received = world.b.got[0].outcome().unwrap();
        assert_eq!((received.opcode, received.byte_len), (Opcode::Recv, 5));
        assert_eq!(world.b.got[0].qp_num(), world.b.qps[0].num());
        assert_eq!(world.b.memory.get(0, 6), b"hello\0");
        assert_eq!((world.a.take(), world.b.take()), (vec![ok(7)], vec![ok(70)]));
        let counters = (world.a.dev.counters(), world.b.dev.counters());
        assert_eq!((counters.0.sends, counters.0.send_bytes), (1, 5));
        assert_eq!((counters.1.recvs, counters.1.recv_bytes), (1, 5));
    }
}

#[test]
pub(super) fn messages_of_every_size_arrive_whole_and_in_order() {
    for via in BOTH {
        let mut world = World::with(via, |config| config.piece_bytes(4096));
        let sizes = [0, 1, 4095, 4096, 4097, 8192, 9216, 40_000, 65_537];
        for (index, size) in sizes.into_iter().enumerate() {
            let data = pattern(size, index as u8);
            world.b.post_recv(100, 0, 100_000);
            world.a.send(0, 1, &data);
            world.until(1, 1);
            assert_eq!(world.b.got[0].outcome().unwrap().byte_len as usize, size);
            assert!(world.b.memory.get(0, size as u64) == data, "{size} bytes over {via:?}");
            assert_eq!((world.a.take(), world.b.take()), (vec![ok(1)], vec![ok(100)]));
        }
    }
}

#[test]
pub(super) fn message_is_gathered_and_scattered() {
    let mut world = World::new(Via::Mem);
    world.a.memory.put(0, b"abcdefgh");
    let from = [world.a.sge(0, 3), world.a.sge(4, 0), world.a.sge(5, 3)];
    let into = [world.b.sge(10, 2), world.b.sge(20, 100)];
    let mut recv = world.b.srq.batch();
    recv.recv(1, &into).unwrap();
    recv.post().unwrap();
    let mut send = world.a.qps[0].batch();
    send.send(2, &from, SIGNALED).unwrap();
    send.post().unwrap();
    world.until(1, 1);
    assert_eq!(world.b.memory.get(10, 2), b"ab");
    assert_eq!(world.b.memory.get(20, 5), b"cfgh\0");
}

#[test]
pub(super) fn inline_payload_is_free_when_the_post_returns() {
    let mut world = World::new(Via::Mem);
    world.a.memory.put(0, b"before");
    let sge = world.a.sge(0, 6);
    let mut batch = world.a.qps[0].batch();
    batch.send(1, &[sge], SIGNALED.and(SendFlags::INLINE)).unwrap();
    batch.post().unwrap();
    world.a.memory.put(0, b"after!");
    // No receive was posted: the message is sent again, from the copy.
    world.settle();
    world.b.post_recv(2, 0, 16);
    world.clock.pass(Duration::from_millis(1));
    world.until(1, 1);
    assert_eq!(world.b.memory.get(0, 6), b"before");
}

#[test]
pub(super) fn unsignaled_request_is_reported_only_by_the_signaled_one_after_it() {
    let mut world = World::new(Via::Mem);
    for wr_id in 0..3 {
        world.b.post_recv(wr_id, 0, 16);
    }
    let sge = world.a.sge(0, 4);
    let mut batch = world.a.qps[0].batch();
    batch.send(1, &[sge], SendFlags::NONE).unwrap();
    batch.send(2, &[sge], SendFlags::NONE).unwrap();
    batch.send(3, &[sge], SIGNALED).unwrap();
    batch.post().unwrap();
    world.settle();
    assert_eq!(world.a.take(), [ok(3)]);
    assert_eq!(world.b.take(), [ok(0), ok(1), ok(2)]);
}

#[test]
pub(super) fn acknowledgement_rides_with_the_answer() {
    let mut world = World::new(Via::Mem);
    world.a.post_recv(10, 0, 16);
    world.b.post_recv(20, 0, 16);
    world.a.send(0, 1, b"ask");
    // One poll receives; the answer posted in the same turn carries the acknowledgement.
    assert_eq!(world.b.poll(), 1);
    world.b.send(0, 2, b"answer");
    assert_eq!(world.a.poll(), 2);
    assert_eq!(world.a.take(), [ok(1), ok(10)]);
}

#[test]
pub(super) fn acknowledgement_leaves_alone_when_the_receiver_goes_to_sleep() {
    let mut world = World::new(Via::Mem);
    world.b.post_recv(20, 0, 16);
    world.a.send(0, 1, b"ask");
    assert_eq!(world.b.poll(), 1);
    assert_eq!(world.a.poll(), 0);
    crate::verbs::Cq::arm(&mut world.b.cq).unwrap();
    assert_eq!(world.a.poll(), 1);
    assert_eq!(world.a.take(), [ok(1)]);
}

#[test]
pub(super) fn message_longer_than_its_receive_fails_on_both_sides() {
    for via in BOTH {
        let mut world = World::new(via);
        world.b.post_recv(1, 0, 8);
        world.b.post_recv(2, 0, 8);
        world.a.send(0, 5, b"nine byte");
        world.a.send(0, 6, b"later");
        world.until(2, 1);
        let flushed = failed(6, WcStatus::WrFlushErr);
        assert_eq!(world.a.take(), [failed(5, WcStatus::RemInvReqErr), flushed]);
        assert_eq!(world.b.take(), [failed(1, WcStatus::LocLenErr)]);
        assert_eq!(world.a.qps[0].state(), QpState::Err);
        assert_eq!(world.b.qps[0].state(), QpState::Err);
        assert_eq!(world.b.memory.get(0, 9), [0; 9]);
        // The other receive belongs to the SRQ, not to the QP that failed.
        assert_eq!(world.b.dev.usage().srq_wrs, 1);
    }
}

#[test]
pub(super) fn missing_receive_is_retried_after_the_receivers_timer() {
    for via in BOTH {
        let mut world = World::new(via);
        world.a.send(0, 1, b"first");
        world.a.send(0, 2, b"second");
        world.until_that(|world| world.b.dev.counters().rnr_naks_sent == 1 && world.a.poll() == 0);
        world.b.post_recv(10, 0, 16);
        world.b.post_recv(11, 16, 16);
        world.settle();
        assert_eq!((world.a.take(), world.b.take()), (vec![], vec![]), "before the timer");
        assert!(crate::verbs::Cq::next_deadline(&world.a.cq).is_some());
        world.clock.pass(Duration::from_micros(640));
        world.until(2, 2);
        assert_eq!(world.a.take(), [ok(1), ok(2)]);
        assert_eq!(world.b.take(), [ok(10), ok(11)]);
        assert_eq!(world.b.dev.counters().rnr_naks_sent, 1);
        assert_eq!(world.a.dev.counters().sends, 2);
    }
}

#[test]
pub(super) fn missing_receive_is_given_up_after_rnr_retry() {
    let mut world = World::new(Via::Mem);
    world.a.send(0, 1, b"first");
    world.a.send(0, 2, b"second");
    for round in 1..=3 {
        world.settle();
        assert_eq!(world.b.dev.counters().rnr_naks_sent, round);
        world.clock.pass(Duration::from_micros(640));
    }
    world.settle();
    let flushed = failed(2, WcStatus::WrFlushErr);
    assert_eq!(world.a.take(), [failed(1, WcStatus::RnrRetryExcErr), flushed]);
    assert_eq!(world.b.qps[0].state(), QpState::Rts);
}

#[test]
pub(super) fn rnr_retry_seven_is_for_ever() {
    let mut world = World::unconnected(Via::Mem, |config| config);
    world.connect(QpAttr { rnr_retry: 7, ..ATTR }, ATTR);
    world.a.send(0, 1, b"patient");
    for _ in 0..100 {
        world.settle();
        world.clock.pass(Duration::from_micros(640));
    }
    world.b.post_recv(2, 0, 16);
    world.settle();
    assert_eq!(world.a.take(), [ok(1)]);
}

#[test]
pub(super) fn receive_with_a_bad_key_fails_on_both_sides() {
    let mut world = World::new(Via::Mem);
    let bad = Sge::new(world.b.memory.addr(0), 16, NO_LKEY);
    let mut batch = world.b.srq.batch();
    batch.recv(1, &[bad]).unwrap();
    batch.post().unwrap();
    world.a.send(0, 2, b"x");
    world.settle();
    assert_eq!(world.a.take(), [failed(2, WcStatus::RemOpErr)]);
    assert_eq!(world.b.take(), [failed(1, WcStatus::LocProtErr)]);
}

#[test]
pub(super) fn send_from_outside_a_region_fails_here_and_sends_nothing() {
    let mut world = World::new(Via::Mem);
    world.b.post_recv(9, 0, 16);
    let end = Sge::new(world.a.memory.addr(MEMORY as u64 - 4), 5, world.a.sge(0, 0).lkey);
    let mut batch = world.a.qps[0].batch();
    batch.send(1, &[end], SendFlags::NONE).unwrap();
    batch.post().unwrap();
    world.settle();
    assert_eq!(world.a.take(), [failed(1, WcStatus::LocProtErr)]);
    assert_eq!(world.b.take(), []);
}

#[test]
pub(super) fn qp_of_another_pd_than_its_srq_fails_on_the_first_send() {
    let mut world = World::unconnected(Via::Mem, |config| config);
    world.a.add_qp();
    let other = world.b.dev.alloc_pd().unwrap();
    world.b.add_qp_in(&other, true);
    world.join(0, 0, ATTR, ATTR);
    world.b.post_recv(1, 0, 16);
    world.a.send(0, 2, b"x");
    world.settle();
    assert_eq!(world.b.take(), [failed(1, WcStatus::LocProtErr)]);
}

#[test]
pub(super) fn queue_that_is_full_refuses_the_rest_of_a_chain() {
    let mut world = World::new(Via::Mem);
    let sge = world.a.sge(0, 1);
    let mut batch = world.a.qps[0].batch();
    for wr_id in 0..60 {
        batch.send(wr_id, &[sge], SendFlags::NONE).unwrap();
    }
    batch.post().unwrap();
    let mut batch = world.a.qps[0].batch();
    for wr_id in 60..70 {
        batch.send(wr_id, &[sge], SendFlags::NONE).unwrap();
    }
    let error = batch.post().unwrap_err();
    assert_eq!((error.posted, error.errno), (4, 12));
}

#[test]
pub(super) fn srq_limit_fires_once() {
    let mut world = World::new(Via::Mem);
    for wr_id in 0..4 {
        world.b.post_recv(wr_id, 0, 16);
    }
    world.b.srq.arm_limit(3).unwrap();
    let limits = |world: &World| {
        let events = std::iter::from_fn(|| world.b.dev.poll_async());
        events.filter(|event| *event == AsyncEvent::SrqLimitReached).count()
    };
    world.a.send(0, 1, b"x");
    world.settle();
    assert_eq!(limits(&world), 0, "three are left");
    world.a.send(0, 2, b"x");
    world.a.send(0, 3, b"x");
    world.settle();
    assert_eq!(limits(&world), 1);
    world.b.srq.arm_limit(3).unwrap();
    world.a.send(0, 4, b"x");
    world.settle();
    assert_eq!(limits(&world), 1);
}
