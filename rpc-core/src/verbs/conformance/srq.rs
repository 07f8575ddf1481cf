//! Shared receive queues.

use super::fabric::Fabric;
use super::pair::Pair;
use super::side::*;
use crate::verbs::{AsyncEvent, Qp, RecvBatch, Srq, WcStatus};

pub(in crate::verbs) fn receives_hold_the_messages_that_their_completions_name_in_any_order<
    F: Fabric,
>() {
    const MESSAGES: u64 = 40;
    let mut pair = Pair::<F>::new();
    for wr_id in 0..MESSAGES {
        pair.b.post_recv(wr_id, wr_id * 64, 64);
    }
    for number in 0..MESSAGES {
        pair.a.send((number % 2) as usize, number, &number.to_le_bytes());
        // The next message is put where this one was.
        pair.until_that(|pair| !pair.a.got.is_empty());
        assert_eq!(pair.a.take(), [ok(number)]);
    }
    pair.until(0, MESSAGES as usize);
    let mut on_qp = [Vec::new(), Vec::new()];
    let mut used = [false; MESSAGES as usize];
    for wc in std::mem::take(&mut pair.b.got) {
        assert_eq!(wc.outcome().unwrap().byte_len, 8);
        assert!(!std::mem::replace(&mut used[wc.wr_id() as usize], true), "a receive used twice");
        let bytes = pair.b.memory.get(wc.wr_id() * 64, 8);
        let number = u64::from_le_bytes(bytes.try_into().unwrap());
        let qp = (number % 2) as usize;
        assert_eq!(wc.qp_num(), pair.b.qps[qp].num());
        on_qp[qp].push(number);
    }
    // Between QPs there is no order; on each there is.
    assert_eq!(on_qp[0], (0..MESSAGES).step_by(2).collect::<Vec<_>>());
    assert_eq!(on_qp[1], (1..MESSAGES).step_by(2).collect::<Vec<_>>());
}

pub(in crate::verbs) fn srq_that_is_full_refuses_the_next<F: Fabric>() {
    let mut pair = Pair::<F>::new();
    let sge = pair.b.sge(0, 16);
    // A device may round the queue's size up.
    let mut post = |wr_id| {
        let mut batch = pair.b.srq.batch();
        batch.recv(wr_id, &[sge]).unwrap();
        batch.post()
    };
    let refused = (0..).map(&mut post).take(8 * SRQ_WRS as usize).position(|post| post.is_err());
    assert!(refused.is_some_and(|at| at >= SRQ_WRS as usize), "refused at {refused:?}");
    let error = post(0).unwrap_err();
    assert_eq!((error.posted, error.errno), (0, 12));
}

pub(in crate::verbs) fn srq_limit_fires_once<F: Fabric>() {
    let mut pair = Pair::<F>::new();
    for wr_id in 0..5 {
        pair.b.post_recv(wr_id, 0, 16);
    }
    pair.b.srq.arm_limit(3).unwrap();
    let limits = |pair: &Pair<F>| {
        let reached = |event: &AsyncEvent| *event == AsyncEvent::SrqLimitReached;
        pair.b.events().into_iter().filter(reached).count()
    };
    pair.a.send(0, 1, b"x");
    pair.a.send(0, 2, b"x");
    pair.until(2, 2);
    pair.quiet();
    assert_eq!(limits(&pair), 0, "three are left");
    pair.a.send(0, 3, b"x");
    pair.a.send(0, 4, b"x");
    pair.until(4, 4);
    pair.quiet();
    assert_eq!(limits(&pair), 1);
    pair.b.srq.arm_limit(3).unwrap();
    pair.a.send(0, 5, b"x");
    pair.until(5, 5);
    pair.quiet();
    assert_eq!(limits(&pair), 1, "armed again, it fires again");
}

pub(in crate::verbs) fn receives_outlive_a_qp_in_error<F: Fabric>() {
    let mut pair = Pair::<F>::new();
    pair.b.post_recv(1, 0, 16);
    pair.b.qps[0].to_err().unwrap();
    pair.quiet();
    assert_eq!(pair.b.take(), [], "the receive belongs to the SRQ, not to the QP");
    pair.a.send(1, 2, b"other");
    pair.until(1, 1);
    assert_eq!((pair.a.take(), pair.b.take()), (vec![ok(2)], vec![ok(1)]));
    pair.a.qps[0].to_err().unwrap();
    pair.a.send(0, 3, b"x");
    pair.until(1, 0);
    assert_eq!(pair.a.take(), [failed(3, WcStatus::WrFlushErr)]);
}
