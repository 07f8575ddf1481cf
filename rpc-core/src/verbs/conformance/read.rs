//! RDMA READ, as its requester sees it.

use super::fabric::Fabric;
use super::pair::{ATTR, Pair, Setup, USUAL};
use super::side::*;
use crate::verbs::soft::test_memory::Memory;
use crate::verbs::{Access, Device, Mr, Opcode, Qp, QpAttr, SendBatch, SendFlags, Sge, WcStatus};

pub(in crate::verbs) fn read_through_a_window_brings_the_bytes<F: Fabric>() {
    const LEN: u32 = 200_000;
    let mut pair = Pair::<F>::new();
    let (key, data) = pair.open(LEN);
    let (to, from) = (pair.a.sge(100, LEN), pair.b.remote(0, key));
    pair.a.read(1, to, from);
    pair.until(1, 0);
    let read = pair.a.got[0].outcome().unwrap();
    assert_eq!((read.opcode, read.byte_len), (Opcode::Read, LEN));
    assert_eq!(pair.a.take(), [ok(1)]);
    assert!(pair.a.memory.get(100, LEN.into()) == data);
    assert_eq!(pair.a.memory.get(0, 100), [0; 100]);
    assert_eq!(pair.a.memory.get(100 + u64::from(LEN), 8), [0; 8]);
    assert_eq!(pair.b.take(), [], "the owner of the memory hears nothing");
}

pub(in crate::verbs) fn read_of_a_part_scatters<F: Fabric>() {
    let mut pair = Pair::<F>::new();
    let (key, data) = pair.open(1000);
    let to = [pair.a.sge(0, 10), pair.a.sge(5000, 90)];
    let from = pair.b.remote(200, key);
    let mut batch = pair.a.qps[0].batch();
    batch.read(1, &to, from, SIGNALED).unwrap();
    batch.post().unwrap();
    pair.until(1, 0);
    assert_eq!(pair.a.take(), [ok(1)]);
    assert_eq!(pair.a.memory.get(0, 11), [&data[200..210], &[0]].concat());
    assert_eq!(pair.a.memory.get(5000, 91), [&data[210..300], &[0]].concat());
}

pub(in crate::verbs) fn reads_of_one_qp_complete_in_order<F: Fabric>() {
    let mut pair = Pair::<F>::new();
    let (key, data) = pair.open(40_000);
    let lens = [40_000, 1, 17, 4096];
    for (wr_id, len) in (0..).zip(lens) {
        let (to, from) = (pair.a.sge(wr_id * 40_000, len), pair.b.remote(0, key));
        pair.a.read(wr_id, to, from);
    }
    pair.until(4, 0);
    assert_eq!(pair.a.take(), [ok(0), ok(1), ok(2), ok(3)]);
    for (at, len) in (0..).zip(lens) {
        assert!(pair.a.memory.get(at * 40_000, len.into()) == data[..len as usize]);
    }
}

pub(in crate::verbs) fn requester_holds_back_reads_beyond_its_own_depth<F: Fabric>() {
    let of_a = QpAttr { max_rd_atomic: 2, ..ATTR };
    let of_b = QpAttr { max_dest_rd_atomic: 2, ..ATTR };
    let mut pair = Pair::<F>::with(Setup { of_a, of_b, ..USUAL });
    let (key, data) = pair.open(20_000);
    pair.b.post_recv(50, 30_000, 64);
    let from = pair.b.remote(0, key);
    let to: Vec<_> = (0..8).map(|index| pair.a.sge(index * 20_000, 20_000)).collect();
    let last = pair.a.sge(0, 4);
    let mut batch = pair.a.qps[0].batch();
    for (wr_id, to) in (0..).zip(&to) {
        batch.read(wr_id, &[*to], from, SIGNALED).unwrap();
    }
    batch.send(8, &[last], SIGNALED).unwrap();
    batch.post().unwrap();
    pair.until_that(|pair| pair.a.got.len() == 9);
    assert_eq!(pair.a.take(), (0..9).map(ok).collect::<Vec<_>>());
    assert!(pair.a.memory.get(7 * 20_000, 20_000) == data);
}

pub(in crate::verbs) fn fence_waits_for_the_reads_before_it<F: Fabric>() {
    let mut pair = Pair::<F>::new();
    let (key, data) = pair.open(4096);
    pair.b.post_recv(50, 8192, 64);
    let (to, from) = (pair.a.sge(0, 4096), pair.b.remote(0, key));
    let passed_on = pair.a.sge(0, 64);
    let mut batch = pair.a.qps[0].batch();
    batch.read(1, &[to], from, SIGNALED).unwrap();
    batch.send(2, &[passed_on], SIGNALED.and(SendFlags::FENCE)).unwrap();
    batch.post().unwrap();
    pair.until(2, 1);
    assert_eq!((pair.a.take(), pair.b.take()), (vec![ok(1), ok(2)], vec![ok(50)]));
    assert!(pair.b.memory.get(8192, 64) == data[..64], "the SEND took what the READ brought");
}

fn destination_is_refused<F: Fabric>(access: Access, same_pd: bool) {
    let mut pair = Pair::<F>::new();
    let (key, _) = pair.open(64);
    let other = pair.a.dev.alloc_pd().unwrap();
    let memory = Memory::new(4096);
    let pd = if same_pd { &pair.a.pd } else { &other };
    let mr = pair.a.dev.register(pd, memory.region(), access).unwrap();
    let from = pair.b.remote(0, key);
    pair.a.read(1, Sge::new(memory.addr(0), 64, mr.lkey()), from);
    pair.until(1, 0);
    assert_eq!(pair.a.take(), [failed(1, WcStatus::LocProtErr)]);
    assert_eq!(memory.get(0, 64), [0; 64]);
}

pub(in crate::verbs) fn destination_must_be_writable<F: Fabric>() {
    destination_is_refused::<F>(Access::NONE, true);
}

pub(in crate::verbs) fn destination_of_another_pd_is_refused<F: Fabric>() {
    destination_is_refused::<F>(Access::LOCAL_WRITE, false);
}
