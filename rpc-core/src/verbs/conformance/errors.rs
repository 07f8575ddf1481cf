//! QPs in error, and peers that do not answer.

use super::fabric::Fabric;
use super::pair::{ATTR, Pair, Setup, USUAL};
use super::side::*;
use crate::verbs::{AsyncEvent, Qp, QpAttr, QpState, Rkey, SendBatch, SendFlags, WcStatus};

pub(in crate::verbs) fn error_flushes_every_outstanding_request_signaled_or_not<F: Fabric>() {
    let mut pair = Pair::<F>::new();
    let (small, to) = (pair.a.sge(0, 4), pair.a.sge(4096, 64));
    let from = pair.b.remote(0, Rkey(0x0100));
    let mut batch = pair.a.qps[0].batch();
    // The first waits for a receive that never comes, the others wait behind it.
    batch.send(1, &[small], SIGNALED).unwrap();
    batch.send(2, &[small], SendFlags::NONE).unwrap();
    batch.read(3, &[to], from, SendFlags::NONE).unwrap();
    batch.send(4, &[small], SIGNALED).unwrap();
    batch.post().unwrap();
    pair.quiet();
    assert_eq!(pair.a.take(), []);
    pair.a.qps[0].to_err().unwrap();
    pair.until(4, 0);
    let flushed: Vec<_> = (1..=4).map(|wr_id| failed(wr_id, WcStatus::WrFlushErr)).collect();
    assert_eq!(pair.a.take(), flushed);
}

pub(in crate::verbs) fn request_posted_in_error_is_flushed_too<F: Fabric>() {
    let mut pair = Pair::<F>::new();
    pair.a.qps[0].to_err().unwrap();
    pair.a.send(0, 9, b"marker");
    pair.until(1, 0);
    assert_eq!(pair.a.take(), [failed(9, WcStatus::WrFlushErr)]);
}

pub(in crate::verbs) fn error_tells_that_the_last_receive_is_used<F: Fabric>() {
    let mut pair = Pair::<F>::new();
    let last = AsyncEvent::LastWqeReached(pair.a.qps[0].num());
    pair.a.qps[0].to_err().unwrap();
    pair.until_that(|pair| pair.a.events().contains(&last));
    pair.quiet();
    assert!(!pair.a.events().contains(&last), "told once");
}

/// A pair whose a gives a silent peer up after one retry.
fn impatient<F: Fabric>() -> Pair<F> {
    Pair::with(Setup { of_a: QpAttr { retry_cnt: 1, ..ATTR }, ..USUAL })
}

pub(in crate::verbs) fn qp_in_error_is_silent_and_its_peer_gives_up<F: Fabric>() {
    let mut pair = impatient::<F>();
    pair.b.post_recv(1, 0, 16);
    pair.b.qps[0].to_err().unwrap();
    pair.a.send(0, 2, b"anybody?");
    pair.a.send(0, 3, b"hello?");
    pair.until(2, 0);
    let flushed = failed(3, WcStatus::WrFlushErr);
    assert_eq!(pair.a.take(), [failed(2, WcStatus::RetryExcErr), flushed]);
    assert_eq!(pair.b.take(), []);
    // The receive was not used, and the other QP knows nothing of it.
    pair.a.send(1, 4, b"you?");
    pair.until(1, 1);
    assert_eq!((pair.a.take(), pair.b.take()), (vec![ok(4)], vec![ok(1)]));
}

pub(in crate::verbs) fn destroyed_qp_is_silent_and_its_peer_gives_up<F: Fabric>() {
    let mut pair = impatient::<F>();
    drop(pair.b.qps.remove(0));
    pair.a.send(0, 2, b"anybody?");
    pair.until(1, 0);
    assert_eq!(pair.a.take(), [failed(2, WcStatus::RetryExcErr)]);
}

pub(in crate::verbs) fn peer_whose_device_is_gone_is_given_up<F: Fabric>() {
    let Pair { fabric, mut a, b } = impatient::<F>();
    a.send(0, 1, b"x");
    a.send(0, 2, b"y");
    drop(b);
    let (begun, mut pauses) = (std::time::Instant::now(), 0);
    while a.got.len() < 2 {
        if a.poll() == 0 {
            fabric.pause();
            pauses += 1;
        }
        assert!(!fabric.gives_up(pauses, begun), "a peer that is gone was not given up");
    }
    let flushed = failed(2, WcStatus::WrFlushErr);
    assert_eq!(a.take(), [failed(1, WcStatus::RetryExcErr), flushed]);
    assert_eq!(a.qps[0].state(), QpState::Err);
}
