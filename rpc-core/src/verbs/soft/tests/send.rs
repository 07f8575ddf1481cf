use std::time::Duration;

use super::fixture::*;
use crate::verbs::{
    Device, Opcode, Qp, QpAttr, QpState, RecvBatch, SendBatch, SendFlags, Sge, Srq, WcStatus,
};

#[test]
fn message_arrives_and_both_sides_complete() {
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
fn acknowledgement_rides_with_the_answer() {
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
fn acknowledgement_leaves_alone_when_the_receiver_goes_to_sleep() {
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
fn missing_receive_is_given_up_after_rnr_retry() {
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
fn rnr_retry_seven_is_for_ever() {
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
fn receive_with_a_bad_key_fails_on_both_sides() {
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
fn queue_that_is_full_refuses_the_rest_of_a_chain() {
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

/// The order in which a device with this seed uses the receives 0 to 31 for two pairs of QPs.
fn order_of_receives(seed: u64) -> Vec<u64> {
    let mut side = Side::new(FakeClock::default().config(0).seed(seed), 256);
    for index in 0..4 {
        side.add_qp();
        let at = side.qps[index].address(crate::verbs::Psn(1)).unwrap();
        if index % 2 == 1 {
            let peer = side.qps[index - 1].address(crate::verbs::Psn(1)).unwrap();
            for (qp, peer) in [(index - 1, at), (index, peer)] {
                side.qps[qp].to_rtr(&peer, &ATTR).unwrap();
                side.qps[qp].to_rts(&ATTR).unwrap();
            }
        }
    }
    for wr_id in 0..32 {
        side.post_recv(wr_id, wr_id * 16, 16);
    }
    for number in 0..32 {
        side.send(number % 2 * 2, 1000, b"x");
        for _ in 0..8 {
            side.poll();
        }
    }
    let used = side.take().into_iter().map(|(wr_id, _)| wr_id);
    used.filter(|wr_id| *wr_id < 1000).collect()
}

#[test]
fn receives_of_shared_queues_are_used_out_of_order_and_alike_for_one_seed() {
    let order = order_of_receives(0x5eed_0001);
    assert_ne!(order, (0..32).collect::<Vec<_>>());
    assert_eq!(order, order_of_receives(0x5eed_0001));
    assert_ne!(order, order_of_receives(0x5eed_0002));
    let mut sorted = order;
    sorted.sort_unstable();
    assert_eq!(sorted, (0..32).collect::<Vec<_>>());
}
