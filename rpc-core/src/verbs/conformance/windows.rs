//! Type-2 memory windows: bind and invalidate.

use super::fabric::Fabric;
use super::pair::Pair;
use super::side::*;
use crate::verbs::soft::test_memory::Memory;
use crate::verbs::{
    Access, Device, Mr, Mw, Opcode, Qp, QpState, RemoteRange, Rkey, SendBatch, SendFlags, Sge,
    WcStatus,
};

pub(in crate::verbs) fn bind_gives_the_next_key_while_the_chain_is_built<F: Fabric>() {
    let mut pair = Pair::<F>::new();
    let b = &mut pair.b;
    let mut mw = b.dev.alloc_mw(&b.pd).unwrap();
    let (before, next) = (mw.rkey(), mw.next_rkey());
    let range = b.sge(0, 100);
    let mut batch = b.qps[0].batch();
    batch.bind(1, &mut mw, &b.mr, range, SIGNALED).unwrap();
    assert!(mw.rkey() == next && next != before);
    assert_eq!(next.0 >> 8, before.0 >> 8, "only the tag moves");
    batch.post().unwrap();
    pair.until(0, 1);
    assert_eq!(pair.b.got[0].outcome().unwrap().opcode, Opcode::BindMw);
    assert_eq!(pair.b.take(), [ok(1)]);
}

pub(in crate::verbs) fn window_bound_before_a_send_of_the_same_chain_is_open_when_it_arrives<
    F: Fabric,
>() {
    let mut pair = Pair::<F>::new();
    pair.a.post_recv(9, 0, 64);
    pair.b.memory.put(0, b"payload");
    let mut mw = pair.b.dev.alloc_mw(&pair.b.pd).unwrap();
    let (range, message) = (pair.b.sge(0, 7), pair.b.sge(4096, 8));
    let mut batch = pair.b.qps[0].batch();
    batch.bind(1, &mut mw, &pair.b.mr, range, SendFlags::NONE).unwrap();
    batch.send(2, &[message], SIGNALED).unwrap();
    batch.post().unwrap();
    pair.until(1, 0);
    let (to, from) = (pair.a.sge(100, 7), pair.b.remote(0, mw.rkey()));
    pair.a.read(3, to, from);
    pair.until(2, 1);
    assert_eq!((pair.a.take(), pair.b.take()), (vec![ok(9), ok(3)], vec![ok(2)]));
    assert_eq!(pair.a.memory.get(100, 7), b"payload");
    pair.b.mws.push(mw);
}

pub(in crate::verbs) fn window_can_be_bound_again_after_invalidation<F: Fabric>() {
    let mut pair = Pair::<F>::new();
    pair.b.mws.push(pair.b.dev.alloc_mw(&pair.b.pd).unwrap());
    for round in 0..300 {
        let key = pair.b.bind_again(0, 1, round % 7, 100);
        pair.b.local_inv(0, 2, key);
        pair.until(0, 2);
        assert_eq!(pair.b.take(), [ok(1), ok(2)], "round {round}: the tag wraps after 256");
    }
}

/// Binds the newest window of b, which must fail and end the QP, and checks that its key opens
/// nothing.
fn bind_fails<F: Fabric>(pair: &mut Pair<F>, mr: Option<&<F::Device as Device>::Mr>, range: Sge) {
    let mw = pair.b.mws.last_mut().unwrap();
    let mut batch = pair.b.qps[0].batch();
    batch.bind(8, mw, mr.unwrap_or(&pair.b.mr), range, SendFlags::NONE).unwrap();
    batch.post().unwrap();
    // A bind that succeeds says nothing; this request says so in its place.
    let sge = pair.b.sge(0, 1);
    let mut batch = pair.b.qps[0].batch();
    batch.send(9, &[sge], SIGNALED).unwrap();
    batch.post().unwrap();
    pair.a.post_recv(1, 0, 16);
    pair.until(0, 1);
    assert_eq!(pair.b.take()[0], failed(8, WcStatus::MwBindErr));
    assert_eq!(pair.b.qps[0].state(), QpState::Err);
}

fn with_window<F: Fabric>() -> Pair<F> {
    let mut pair = Pair::<F>::new();
    pair.b.mws.push(pair.b.dev.alloc_mw(&pair.b.pd).unwrap());
    pair
}

pub(in crate::verbs) fn bound_window_cannot_be_bound_again<F: Fabric>() {
    let mut pair = with_window::<F>();
    pair.b.bind_again(0, 1, 0, 100);
    pair.until(0, 1);
    assert_eq!(pair.b.take(), [ok(1)]);
    let range = pair.b.sge(4096, 100);
    bind_fails(&mut pair, None, range);
}

pub(in crate::verbs) fn window_past_its_regions_end_cannot_be_bound<F: Fabric>() {
    let mut pair = with_window::<F>();
    let memory = Memory::new(4096);
    let access = Access::LOCAL_WRITE.and(Access::MW_BIND);
    let mr = pair.b.dev.register(&pair.b.pd, memory.region(), access).unwrap();
    bind_fails(&mut pair, Some(&mr), Sge::new(memory.addr(4000), 97, mr.lkey()));
}

pub(in crate::verbs) fn window_over_a_region_without_the_right_cannot_be_bound<F: Fabric>() {
    let mut pair = with_window::<F>();
    let memory = Memory::new(4096);
    let access = Access::LOCAL_WRITE.and(Access::REMOTE_READ);
    let mr = pair.b.dev.register(&pair.b.pd, memory.region(), access).unwrap();
    bind_fails(&mut pair, Some(&mr), Sge::new(memory.addr(0), 100, mr.lkey()));
}

pub(in crate::verbs) fn window_of_another_pd_cannot_be_bound<F: Fabric>() {
    let mut pair = Pair::<F>::new();
    let other = pair.b.dev.alloc_pd().unwrap();
    pair.b.mws.push(pair.b.dev.alloc_mw(&other).unwrap());
    let range = pair.b.sge(0, 100);
    bind_fails(&mut pair, None, range);
}

pub(in crate::verbs) fn region_of_another_pd_cannot_be_bound<F: Fabric>() {
    let mut pair = with_window::<F>();
    let other = pair.b.dev.alloc_pd().unwrap();
    let memory = Memory::new(4096);
    let mr = pair.b.dev.register(&other, memory.region(), Access::MW_BIND).unwrap();
    bind_fails(&mut pair, Some(&mr), Sge::new(memory.addr(0), 100, mr.lkey()));
    pair.b.mws.clear();
}

pub(in crate::verbs) fn second_invalidation_of_one_key_is_an_error<F: Fabric>() {
    let mut pair = with_window::<F>();
    let key = pair.b.bind_again(0, 1, 0, 100);
    pair.b.local_inv(0, 2, key);
    pair.b.local_inv(0, 3, key);
    pair.until(0, 3);
    assert_eq!(pair.b.take(), [ok(1), ok(2), failed(3, WcStatus::LocQpOpErr)]);
}

/// Asserts that the window of `key`, bound on b's second QP over its first bytes, is still open.
fn is_open_on_second_qp<F: Fabric>(pair: &mut Pair<F>, key: Rkey) {
    pair.b.memory.put(0, b"still open");
    let (to, from) = (pair.a.sge(9000, 10), pair.b.remote(0, key));
    read_on_second_qp(pair, to, from);
    assert_eq!(pair.a.memory.get(9000, 10), b"still open");
}

fn read_on_second_qp<F: Fabric>(pair: &mut Pair<F>, to: Sge, from: RemoteRange) {
    let mut batch = pair.a.qps[1].batch();
    batch.read(77, &[to], from, SIGNALED).unwrap();
    batch.post().unwrap();
    pair.until(1, 0);
    assert_eq!(pair.a.take(), [ok(77)]);
}

pub(in crate::verbs) fn invalidation_on_another_qp_is_an_error<F: Fabric>() {
    let mut pair = with_window::<F>();
    let key = pair.b.bind_again(1, 1, 0, 100);
    pair.until(0, 1);
    pair.b.local_inv(0, 2, key);
    pair.until(0, 2);
    assert_eq!(pair.b.take(), [ok(1), failed(2, WcStatus::LocQpOpErr)]);
    is_open_on_second_qp(&mut pair, key);
}

pub(in crate::verbs) fn send_with_inv_closes_the_receivers_window_and_says_which<F: Fabric>() {
    let mut pair = Pair::<F>::new();
    let (key, _) = pair.open(100);
    pair.b.post_recv(2, 4096, 64);
    pair.a.send_with_inv(4, key);
    pair.until(1, 1);
    assert!(pair.b.got[0].outcome().unwrap().invalidated == Some(key));
    assert_eq!((pair.a.take(), pair.b.take()), (vec![ok(4)], vec![ok(2)]));
    let (to, from) = (pair.a.sge(0, 100), pair.b.remote(0, key));
    pair.a.read(5, to, from);
    pair.until(1, 0);
    assert_eq!(pair.a.take(), [failed(5, WcStatus::RemAccessErr)]);
}

pub(in crate::verbs) fn invalidation_after_send_with_inv_is_an_error<F: Fabric>() {
    let mut pair = Pair::<F>::new();
    let (key, _) = pair.open(100);
    pair.b.post_recv(2, 4096, 64);
    pair.a.send_with_inv(4, key);
    pair.until(1, 1);
    assert_eq!(pair.b.take(), [ok(2)]);
    pair.b.local_inv(0, 3, key);
    pair.until(0, 1);
    assert_eq!(pair.b.take(), [failed(3, WcStatus::LocQpOpErr)]);
}

pub(in crate::verbs) fn send_with_inv_of_another_qps_window_fails_on_both_sides<F: Fabric>() {
    let mut pair = Pair::<F>::new();
    let key = pair.b.bind(1, 1, 0, 100);
    pair.until(0, 1);
    pair.b.post_recv(2, 4096, 64);
    pair.a.send_with_inv(4, key);
    pair.until(1, 2);
    assert_eq!(pair.a.take(), [failed(4, WcStatus::RemAccessErr)]);
    assert_eq!(pair.b.take(), [ok(1), failed(2, WcStatus::LocAccessErr)]);
    is_open_on_second_qp(&mut pair, key);
}
