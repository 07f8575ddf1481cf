//! RDMA READs that the owner of the memory does not allow.

use super::fabric::Fabric;
use super::pair::{ATTR, Pair, Setup, USUAL};
use super::side::*;
use crate::verbs::soft::test_memory::Memory;
use crate::verbs::{
    Access, AsyncEvent, Device, Mr, Qp, QpAttr, QpState, RemoteRange, Rkey, WcStatus,
};

/// Runs one READ that must be refused, and checks that it brought nothing and ended both QPs.
fn refused<F: Fabric>(pair: &mut Pair<F>, from: RemoteRange, len: u32, status: WcStatus) {
    let to = pair.a.sge(0, len);
    pair.a.read(1, to, from);
    pair.until(1, 0);
    assert_eq!(pair.a.take(), [failed(1, status)]);
    assert_eq!(pair.a.memory.get(0, len.into()), vec![0; len as usize]);
    assert_eq!(pair.a.qps[0].state(), QpState::Err);
    pair.until_that(|pair| pair.b.qps[0].state() == QpState::Err);
}

fn refused_for_access<F: Fabric>(pair: &mut Pair<F>, from: RemoteRange, len: u32) {
    refused(pair, from, len, WcStatus::RemAccessErr);
}

pub(in crate::verbs) fn read_by_an_unknown_key_is_refused<F: Fabric>() {
    let mut pair = Pair::<F>::new();
    let (key, _) = pair.open(100);
    let from = pair.b.remote(0, Rkey(key.0 ^ 0x0080_0000));
    refused_for_access(&mut pair, from, 100);
}

pub(in crate::verbs) fn read_by_another_tag_of_the_windows_key_is_refused<F: Fabric>() {
    let mut pair = Pair::<F>::new();
    let (key, _) = pair.open(100);
    let from = pair.b.remote(0, Rkey(key.0 ^ 1));
    refused_for_access(&mut pair, from, 100);
}

pub(in crate::verbs) fn read_by_the_key_of_an_earlier_bind_is_refused<F: Fabric>() {
    let mut pair = Pair::<F>::new();
    let (stale, _) = pair.open(100);
    pair.b.local_inv(0, 5, stale);
    pair.b.bind_again(0, 6, 0, 100);
    pair.until(0, 2);
    assert_eq!(pair.b.take(), [ok(5), ok(6)]);
    let from = pair.b.remote(0, stale);
    refused_for_access(&mut pair, from, 100);
}

pub(in crate::verbs) fn read_past_the_windows_end_is_refused<F: Fabric>() {
    let mut pair = Pair::<F>::new();
    // Longer than one packet: it must be refused before the first byte.
    let (key, _) = pair.open(20_000);
    let from = pair.b.remote(1, key);
    refused_for_access(&mut pair, from, 20_000);
}

pub(in crate::verbs) fn read_before_the_windows_start_is_refused<F: Fabric>() {
    let mut pair = Pair::<F>::new();
    let key = pair.b.bind(0, 1, 4096, 100);
    pair.until(0, 1);
    let from = pair.b.remote(4095, key);
    refused_for_access(&mut pair, from, 10);
}

pub(in crate::verbs) fn read_whose_end_wraps_is_refused<F: Fabric>() {
    let mut pair = Pair::<F>::new();
    let (key, _) = pair.open(100);
    refused_for_access(&mut pair, RemoteRange { addr: u64::MAX - 10, rkey: key }, 100);
}

/// As payload memory is: without REMOTE_READ, a window over it is the only way in.
pub(in crate::verbs) fn payload_region_is_readable_through_its_window_only<F: Fabric>() {
    let mut pair = Pair::<F>::new();
    let (key, data) = pair.open(100);
    let (to, from) = (pair.a.sge(1000, 100), pair.b.remote(0, key));
    pair.a.read(5, to, from);
    pair.until(1, 0);
    assert_eq!(pair.a.take(), [ok(5)]);
    assert_eq!(pair.a.memory.get(1000, 100), data);
    let from = pair.b.remote(0, pair.b.mr.rkey());
    refused_for_access(&mut pair, from, 100);
}

pub(in crate::verbs) fn region_with_remote_read_is_readable_by_its_own_key<F: Fabric>() {
    let mut pair = Pair::<F>::new();
    let open = Memory::new(4096);
    open.put(0, b"open to all");
    let mr = pair.b.dev.register(&pair.b.pd, open.region(), Access::REMOTE_READ).unwrap();
    let to = pair.a.sge(0, 11);
    pair.a.read(1, to, RemoteRange { addr: open.addr(0), rkey: mr.rkey() });
    pair.until(1, 0);
    assert_eq!(pair.a.take(), [ok(1)]);
    assert_eq!(pair.a.memory.get(0, 11), b"open to all");
}

pub(in crate::verbs) fn region_of_another_pd_is_refused<F: Fabric>() {
    let mut pair = Pair::<F>::new();
    let other = pair.b.dev.alloc_pd().unwrap();
    let open = Memory::new(4096);
    open.put(0, &[7; 64]);
    let mr = pair.b.dev.register(&other, open.region(), Access::REMOTE_READ).unwrap();
    let from = RemoteRange { addr: open.addr(0), rkey: mr.rkey() };
    refused_for_access(&mut pair, from, 64);
}

pub(in crate::verbs) fn window_of_another_qp_is_refused<F: Fabric>() {
    let mut pair = Pair::<F>::new();
    pair.b.memory.put(0, &[7; 100]);
    let key = pair.b.bind(1, 1, 0, 100);
    pair.until(0, 1);
    let from = pair.b.remote(0, key);
    refused_for_access(&mut pair, from, 100);
}

pub(in crate::verbs) fn window_is_closed_by_local_invalidation<F: Fabric>() {
    let mut pair = Pair::<F>::new();
    let (key, _) = pair.open(100);
    pair.b.local_inv(0, 5, key);
    pair.until(0, 1);
    assert_eq!(pair.b.take(), [ok(5)]);
    let from = pair.b.remote(0, key);
    refused_for_access(&mut pair, from, 100);
}

pub(in crate::verbs) fn window_is_closed_by_its_deallocation<F: Fabric>() {
    let mut pair = Pair::<F>::new();
    let (key, _) = pair.open(100);
    pair.b.mws.clear();
    let from = pair.b.remote(0, key);
    refused_for_access(&mut pair, from, 100);
}

pub(in crate::verbs) fn qp_without_remote_read_refuses_every_read<F: Fabric>() {
    let mut pair = Pair::<F>::with(Setup { remote_read: false, ..USUAL });
    let (key, _) = pair.open(100);
    let from = pair.b.remote(0, key);
    refused(&mut pair, from, 100, WcStatus::RemInvReqErr);
}

pub(in crate::verbs) fn reads_beyond_the_responders_depth_are_refused<F: Fabric>() {
    const LEN: u32 = 60_000;
    let of_a = QpAttr { max_rd_atomic: 3, ..ATTR };
    let of_b = QpAttr { max_dest_rd_atomic: 2, ..ATTR };
    let mut pair = Pair::<F>::with(Setup { of_a, of_b, ..USUAL });
    let (key, data) = pair.open(LEN);
    let from = pair.b.remote(0, key);
    for wr_id in 0..3 {
        let to = pair.a.sge(wr_id * u64::from(LEN), LEN);
        pair.a.read(wr_id, to, from);
    }
    pair.until(3, 0);
    // The two that were allowed are answered first: a responder answers in order.
    assert_eq!(pair.a.take(), [ok(0), ok(1), failed(2, WcStatus::RemInvReqErr)]);
    assert!(pair.a.memory.get(LEN.into(), LEN.into()) == data);
    assert_eq!(pair.a.memory.get(2 * u64::from(LEN), 4096), [0; 4096]);
}

/// Once an invalidation has completed, its owner may write the memory, and no READ sees that. A READ
/// that was under way fails; the bytes it brought before stay where they are.
pub(in crate::verbs) fn read_that_is_revoked_midway_fails_and_brings_nothing_new<F: Fabric>() {
    // A device that works beside this thread may have served all READs before it is told.
    let failed = (0..20).find_map(|_| revoked_midway::<F>());
    assert!(matches!(failed, Some(WcStatus::RemAccessErr)), "{failed:?}");
}

/// How the first of some READs that failed did so.
fn revoked_midway<F: Fabric>() -> Option<WcStatus> {
    // Far more than a device serves at once.
    const LEN: u32 = 4 << 20;
    let bytes = LEN as usize;
    let mut pair = Pair::<F>::with(Setup { bytes, ..USUAL });
    pair.b.memory.put(0, &vec![0x11; bytes]);
    let key = pair.b.bind(0, 1, 0, LEN);
    pair.until(0, 1);
    pair.b.take();
    let (to, from) = (pair.a.sge(0, LEN), pair.b.remote(0, key));
    for wr_id in 0..4 {
        pair.a.read(wr_id, to, from);
    }
    // The owner's device begins to serve; the reader's is not polled. One that does not count what
    // it serves is seen by what it brings.
    for _ in 0..1000 {
        let served = pair.b.dev.counters().read_bytes_served;
        if served > 0 || pair.a.memory.get(0, 1) != [0] {
            break;
        }
        pair.b.poll();
        std::thread::yield_now();
    }
    pair.b.local_inv(0, 5, key);
    while pair.b.got.is_empty() {
        pair.b.poll();
    }
    assert_eq!(pair.b.take(), [ok(5)]);
    pair.b.memory.put(0, &vec![0xee; bytes]);
    pair.until(4, 0);
    let failure = pair.a.take().into_iter().find_map(|(_, status)| status);
    let brought = pair.a.memory.get(0, LEN.into());
    assert!(!brought.contains(&0xee), "a READ saw what was written after the invalidation");
    // If it was the first, its bytes are a beginning of what there was, and nothing after it.
    let rest = brought.iter().position(|byte| *byte != 0x11).unwrap_or(bytes);
    assert!(brought[rest..].iter().all(|byte| *byte == 0));
    failure
}

pub(in crate::verbs) fn refused_read_is_told_by_an_asynchronous_event<F: Fabric>() {
    let mut pair = Pair::<F>::new();
    let (key, _) = pair.open(100);
    let from = pair.b.remote(0, Rkey(key.0 ^ 1));
    pair.b.events();
    refused_for_access(&mut pair, from, 100);
    assert!(pair.b.events().contains(&AsyncEvent::QpAccessError(pair.b.qps[0].num())));
}
