//! SEND: what arrives, what is reported, and how it fails.

use super::fabric::Fabric;
use super::pair::{ATTR, Pair, Setup, USUAL};
use super::side::*;
use crate::verbs::soft::test_memory::Memory;
use crate::verbs::{
    Access, Device, Mr, Opcode, Qp, QpAttr, QpState, RecvBatch, SendBatch, SendFlags, Sge, Srq,
    WcStatus,
};

pub(in crate::verbs) fn message_arrives_and_both_sides_complete<F: Fabric>() {
    let mut pair = Pair::<F>::new();
    pair.b.post_recv(70, 0, 100);
    pair.a.send(0, 7, b"hello");
    pair.until(1, 1);
    let received = pair.b.got[0].outcome().unwrap();
    assert_eq!((received.opcode, received.byte_len), (Opcode::Recv, 5));
    assert_eq!(pair.a.got[0].outcome().unwrap().opcode, Opcode::Send);
    assert_eq!(pair.b.got[0].qp_num(), pair.b.qps[0].num());
    assert_eq!(pair.a.got[0].qp_num(), pair.a.qps[0].num());
    assert_eq!(pair.b.memory.get(0, 6), b"hello\0");
    assert_eq!((pair.a.take(), pair.b.take()), (vec![ok(7)], vec![ok(70)]));
}

pub(in crate::verbs) fn messages_of_every_size_arrive_whole_and_in_order<F: Fabric>() {
    let mut pair = Pair::<F>::new();
    for (index, size) in [0, 1, 4095, 4096, 4097, 8192, 9216, 40_000].into_iter().enumerate() {
        let data = pattern(size, index as u8);
        pair.b.post_recv(100, 0, 50_000);
        pair.a.send(0, 1, &data);
        pair.until(1, 1);
        assert_eq!(pair.b.got[0].outcome().unwrap().byte_len as usize, size);
        assert!(pair.b.memory.get(0, size as u64) == data, "{size} bytes");
        assert_eq!((pair.a.take(), pair.b.take()), (vec![ok(1)], vec![ok(100)]));
    }
}

pub(in crate::verbs) fn message_is_gathered_and_scattered<F: Fabric>() {
    let mut pair = Pair::<F>::new();
    pair.a.memory.put(0, b"abcdefgh");
    let from = [pair.a.sge(0, 3), pair.a.sge(5, 3)];
    let into = [pair.b.sge(10, 2), pair.b.sge(20, 100)];
    let mut recv = pair.b.srq.batch();
    recv.recv(1, &into).unwrap();
    recv.post().unwrap();
    let mut send = pair.a.qps[0].batch();
    send.send(2, &from, SIGNALED).unwrap();
    send.post().unwrap();
    pair.until(1, 1);
    assert_eq!(pair.b.memory.get(10, 3), b"ab\0");
    assert_eq!(pair.b.memory.get(20, 5), b"cfgh\0");
}

pub(in crate::verbs) fn inline_payload_is_free_when_the_post_returns<F: Fabric>() {
    let mut pair = Pair::<F>::new();
    pair.a.memory.put(0, b"before");
    let sge = pair.a.sge(0, 6);
    let mut batch = pair.a.qps[0].batch();
    batch.send(1, &[sge], SIGNALED.and(SendFlags::INLINE)).unwrap();
    batch.post().unwrap();
    pair.a.memory.put(0, b"after!");
    // No receive is posted yet: the message is sent again, from the copy.
    pair.quiet();
    pair.b.post_recv(2, 0, 16);
    pair.until(1, 1);
    assert_eq!(pair.b.memory.get(0, 6), b"before");
}

pub(in crate::verbs) fn inline_payload_is_as_long_as_the_queue_was_made_for_and_no_longer<
    F: Fabric,
>() {
    let mut pair = Pair::<F>::new();
    pair.b.post_recv(2, 0, 128);
    let data = pattern(INLINE_BYTES as usize, 5);
    pair.a.memory.put(0, &data);
    let (fits, too_long) = (pair.a.sge(0, INLINE_BYTES), pair.a.sge(0, INLINE_BYTES + 1));
    let halves = [pair.a.sge(0, INLINE_BYTES), pair.a.sge(500, 1)];
    let flags = SIGNALED.and(SendFlags::INLINE);
    let mut batch = pair.a.qps[0].batch();
    assert!(batch.send(8, &[too_long], flags).is_err());
    assert!(batch.send(9, &halves, flags).is_err(), "it is the sum that counts");
    batch.send(1, &[fits], flags).unwrap();
    assert_eq!(batch.len(), 1, "what was refused is not in the chain");
    batch.post().unwrap();
    pair.until(1, 1);
    assert_eq!((pair.a.take(), pair.b.take()), (vec![ok(1)], vec![ok(2)]));
    assert!(pair.b.memory.get(0, INLINE_BYTES.into()) == data);
}

pub(in crate::verbs) fn unsignaled_request_is_reported_only_by_the_signaled_one_after_it<
    F: Fabric,
>() {
    let mut pair = Pair::<F>::new();
    for wr_id in 0..3 {
        pair.b.post_recv(wr_id, 0, 16);
    }
    let sge = pair.a.sge(0, 4);
    let mut batch = pair.a.qps[0].batch();
    batch.send(1, &[sge], SendFlags::NONE).unwrap();
    batch.send(2, &[sge], SendFlags::NONE).unwrap();
    batch.send(3, &[sge], SIGNALED).unwrap();
    batch.post().unwrap();
    pair.until(1, 3);
    pair.quiet();
    assert_eq!(pair.a.take(), [ok(3)]);
}

pub(in crate::verbs) fn message_longer_than_its_receive_fails_on_both_sides<F: Fabric>() {
    let mut pair = Pair::<F>::new();
    pair.b.post_recv(1, 0, 8);
    pair.a.send(0, 5, b"nine byte");
    pair.a.send(0, 6, b"later");
    pair.until(2, 1);
    let flushed = failed(6, WcStatus::WrFlushErr);
    assert_eq!(pair.a.take(), [failed(5, WcStatus::RemInvReqErr), flushed]);
    assert_eq!(pair.b.take(), [failed(1, WcStatus::LocLenErr)]);
    assert_eq!(pair.a.qps[0].state(), QpState::Err);
    assert_eq!(pair.b.qps[0].state(), QpState::Err);
    assert_eq!(pair.b.memory.get(8, 8), [0; 8], "nothing beyond the receive");
    assert_eq!(pair.a.qps[1].state(), QpState::Rts, "the other QP knows nothing of it");
}

pub(in crate::verbs) fn missing_receive_is_retried_until_there_is_one<F: Fabric>() {
    let mut pair = Pair::<F>::new();
    pair.a.send(0, 1, b"first");
    pair.a.send(0, 2, b"second");
    pair.quiet();
    assert_eq!((pair.a.take(), pair.b.take()), (vec![], vec![]));
    pair.b.post_recv(10, 0, 16);
    pair.b.post_recv(11, 0, 16);
    pair.until(2, 2);
    assert_eq!(pair.a.take(), [ok(1), ok(2)]);
    assert!(pair.b.take().iter().all(|(_, status)| status.is_none()));
}

fn with_rnr_retries<F: Fabric>(rnr_retry: u8) -> Pair<F> {
    // Few retries after silence, so that RNR is what ends it.
    Pair::with(Setup { of_a: QpAttr { rnr_retry, retry_cnt: 1, ..ATTR }, ..USUAL })
}

pub(in crate::verbs) fn missing_receive_is_told_to_the_sender<F: Fabric>() {
    let mut pair = with_rnr_retries::<F>(0);
    pair.a.send(0, 1, b"first");
    pair.a.send(0, 2, b"second");
    pair.until(2, 0);
    let flushed = failed(2, WcStatus::WrFlushErr);
    assert_eq!(pair.a.take(), [failed(1, WcStatus::RnrRetryExcErr), flushed]);
    assert_eq!(pair.b.qps[0].state(), QpState::Rts, "the receiver lives on");
}

pub(in crate::verbs) fn retries_after_rnr_are_counted<F: Fabric>() {
    let mut pair = with_rnr_retries::<F>(2);
    pair.a.send(0, 1, b"first");
    pair.until(1, 0);
    assert_eq!(pair.a.take(), [failed(1, WcStatus::RnrRetryExcErr)]);
}

pub(in crate::verbs) fn receive_in_memory_that_is_not_writable_fails_on_both_sides<F: Fabric>() {
    let mut pair = Pair::<F>::new();
    let memory = Memory::new(4096);
    let mr = pair.b.dev.register(&pair.b.pd, memory.region(), Access::NONE).unwrap();
    pair.b.post_recv_into(1, Sge::new(memory.addr(0), 16, mr.lkey()));
    pair.a.send(0, 2, b"x");
    pair.until(1, 1);
    assert_eq!(pair.a.take(), [failed(2, WcStatus::RemOpErr)]);
    assert_eq!(pair.b.take(), [failed(1, WcStatus::LocProtErr)]);
    assert_eq!(memory.get(0, 1), [0]);
}

pub(in crate::verbs) fn message_from_outside_a_region_fails_here_and_sends_nothing<F: Fabric>() {
    let mut pair = Pair::<F>::new();
    pair.b.post_recv(9, 0, 16);
    let end = pair.a.sge(USUAL.bytes as u64 - 4, 5);
    let mut batch = pair.a.qps[0].batch();
    batch.send(1, &[end], SendFlags::NONE).unwrap();
    batch.post().unwrap();
    pair.until(1, 0);
    assert_eq!(pair.a.take(), [failed(1, WcStatus::LocProtErr)]);
    pair.quiet();
    assert_eq!(pair.b.take(), []);
}

pub(in crate::verbs) fn qp_of_another_pd_than_its_srq_fails_on_the_first_send<F: Fabric>() {
    let mut pair = Pair::<F>::with(Setup { other_pd: true, ..USUAL });
    pair.b.post_recv(1, 0, 16);
    pair.a.send(0, 2, b"x");
    pair.until(1, 1);
    assert_eq!(pair.b.take(), [failed(1, WcStatus::LocProtErr)]);
    assert!(pair.a.take()[0].1.is_some());
    assert_eq!(pair.b.memory.get(0, 1), [0]);
}

pub(in crate::verbs) fn send_queue_that_is_full_refuses_the_next<F: Fabric>() {
    let mut pair = Pair::<F>::new();
    let sge = pair.a.sge(0, 1);
    // Nothing completes: the peer has no receive. A device may round the queue's size up.
    let mut post = |wr_id| {
        let mut batch = pair.a.qps[0].batch();
        batch.send(wr_id, &[sge], SIGNALED).unwrap();
        batch.post()
    };
    let refused = (0..).map(&mut post).take(8 * SEND_WRS as usize).position(|post| post.is_err());
    assert!(refused.is_some_and(|at| at >= SEND_WRS as usize), "refused at {refused:?}");
    let error = post(0).unwrap_err();
    assert_eq!((error.posted, error.errno), (0, 12));
}

pub(in crate::verbs) fn chain_that_meets_a_full_queue_is_posted_up_to_the_one_refused<F: Fabric>() {
    const CHAIN: u64 = SEND_WRS as u64 / 2 + 1;
    let mut pair = Pair::<F>::new();
    let sge = pair.a.sge(0, 1);
    // Nothing completes: the peer has no receive. A device may round the queue's size up.
    let mut live = 0;
    let error = (0..16).find_map(|_| {
        let mut batch = pair.a.qps[0].batch();
        for wr_id in live..live + CHAIN {
            batch.send(wr_id, &[sge], SIGNALED).unwrap();
        }
        let refused = batch.post().err();
        live += refused.map_or(CHAIN, |error| error.posted.into());
        refused
    });
    let error = error.unwrap();
    assert!(u64::from(error.posted) < CHAIN && error.errno == 12, "{error:?}");
    assert!(live >= SEND_WRS.into());
    pair.a.qps[0].to_err().unwrap();
    pair.until(live as usize, 0);
    pair.quiet();
    let flushed: Vec<_> = (0..live).map(|wr_id| failed(wr_id, WcStatus::WrFlushErr)).collect();
    assert_eq!(pair.a.take(), flushed, "each that was posted completes, and none that was refused");
}

pub(in crate::verbs) fn chain_that_is_longer_than_its_queue_is_refused_while_it_is_built<
    F: Fabric,
>() {
    let mut pair = Pair::<F>::new();
    let sge = pair.a.sge(0, 1);
    for wr_id in 0..SEND_WRS.into() {
        pair.b.post_recv(wr_id, 0, 16);
    }
    let mut batch = pair.a.qps[0].batch();
    for wr_id in 0..SEND_WRS.into() {
        batch.send(wr_id, &[sge], SIGNALED).unwrap();
    }
    assert!(batch.send(99, &[sge], SIGNALED).is_err());
    assert_eq!(batch.len(), SEND_WRS);
    batch.post().unwrap();
    pair.until(SEND_WRS as usize, SEND_WRS as usize);
    assert_eq!(pair.a.take(), (0..SEND_WRS.into()).map(ok).collect::<Vec<_>>());
    // A chain that is not posted leaves nothing behind.
    let mut batch = pair.a.qps[0].batch();
    batch.send(5, &[sge], SIGNALED).unwrap();
    drop(batch);
    pair.b.post_recv(7, 0, 16);
    pair.a.send(0, 6, b"x");
    pair.until(1, SEND_WRS as usize + 1);
    assert_eq!(pair.a.take(), [ok(6)]);
}
