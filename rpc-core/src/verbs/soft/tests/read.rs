use super::fixture::*;
use crate::verbs::{
    Access, AsyncEvent, Device, Mr, Qp, QpAttr, QpState, RemoteRange, Rkey, SendBatch, SendFlags,
    WcStatus,
};

/// Opens b's first bytes to a, and fills them.
fn open(world: &mut World, len: u32) -> (Rkey, Vec<u8>) {
    let data = pattern(len as usize, 3);
    world.b.memory.put(0, &data);
    let key = world.b.bind(0, 1000, 0, len);
    world.until(0, 1);
    assert_eq!(world.b.take(), [ok(1000)]);
    (key, data)
}

#[test]
pub(super) fn read_through_a_window_brings_the_bytes() {
    for via in BOTH {
        for piece in [16 << 10, 64 << 10] {
            let mut world = World::with(via, |config| config.piece_bytes(piece));
            let (key, data) = open(&mut world, 500_000);
            let (to, from) = (world.a.sge(100, 500_000), world.b.remote(0, key));
            world.a.read(0, 1, to, from);
            world.until(1, 0);
            assert_eq!(world.a.got[0].outcome().unwrap().byte_len, 500_000);
            assert_eq!(world.a.take(), [ok(1)]);
            assert!(world.a.memory.get(100, 500_000) == data);
            assert_eq!(world.a.memory.get(500_100, 8), [0; 8]);
            let counters = (world.a.dev.counters(), world.b.dev.counters());
            assert_eq!((counters.0.reads, counters.0.read_bytes), (1, 500_000));
            assert_eq!((counters.1.reads_served, counters.1.read_bytes_served), (1, 500_000));
        }
    }
}

#[test]
pub(super) fn read_of_a_part_scatters() {
    let mut world = World::new(Via::Mem);
    let (key, data) = open(&mut world, 1000);
    let to = [world.a.sge(0, 10), world.a.sge(5000, 90)];
    let from = world.b.remote(200, key);
    let mut batch = world.a.qps[0].batch();
    batch.read(1, &to, from, SIGNALED).unwrap();
    batch.post().unwrap();
    world.until(1, 0);
    assert_eq!(world.a.memory.get(0, 11)[..10], data[200..210]);
    assert_eq!(world.a.memory.get(5000, 90), data[210..300]);
}

/// Runs one READ that must be refused, and checks that nothing came and what each side learned.
fn refused(mut world: World, from: RemoteRange, len: u32, status: WcStatus, event: AsyncEvent) {
    while world.b.dev.poll_async().is_some() {}
    let to = world.a.sge(0, len);
    world.a.read(0, 1, to, from);
    world.settle();
    assert_eq!(world.a.take(), [failed(1, status)]);
    assert_eq!(world.a.memory.get(0, u64::from(len)), vec![0; len as usize]);
    assert_eq!(world.b.dev.poll_async(), Some(event));
    assert_eq!(world.b.dev.poll_async(), Some(AsyncEvent::LastWqeReached(world.b.qps[0].num())));
    assert_eq!(world.b.qps[0].state(), QpState::Err);
    assert_eq!(world.b.dev.counters().read_bytes_served, 0);
}

fn refused_for_access(world: World, from: RemoteRange, len: u32) {
    let event = AsyncEvent::QpAccessError(world.b.qps[0].num());
    refused(world, from, len, WcStatus::RemAccessErr, event);
}

#[test]
pub(super) fn read_by_an_unknown_key_is_refused() {
    let mut world = World::new(Via::Mem);
    let (key, _) = open(&mut world, 100);
    let from = world.b.remote(0, Rkey(key.0 ^ 0x0100_0000));
    refused_for_access(world, from, 100);
}

#[test]
pub(super) fn read_by_another_tag_of_the_windows_key_is_refused() {
    let mut world = World::new(Via::Mem);
    let (key, _) = open(&mut world, 100);
    let from = world.b.remote(0, Rkey(key.0 ^ 1));
    refused_for_access(world, from, 100);
}

#[test]
pub(super) fn read_past_the_windows_end_is_refused_before_the_first_byte() {
    let mut world = World::with(Via::Mem, |config| config.piece_bytes(16));
    let (key, _) = open(&mut world, 100);
    let from = world.b.remote(1, key);
    refused_for_access(world, from, 100);
}

#[test]
pub(super) fn read_before_the_windows_start_is_refused() {
    let mut world = World::new(Via::Mem);
    world.b.bind(0, 1, 4096, 100);
    world.until(0, 1);
    world.b.take();
    let from = world.b.remote(4095, crate::verbs::Mw::rkey(&world.b.mws[0]));
    refused_for_access(world, from, 10);
}

#[test]
pub(super) fn read_whose_end_wraps_is_refused() {
    let mut world = World::new(Via::Mem);
    let (key, _) = open(&mut world, 100);
    refused_for_access(world, RemoteRange { addr: u64::MAX - 10, rkey: key }, 100);
}

#[test]
pub(super) fn read_by_the_regions_own_key_needs_remote_read() {
    let world = World::new(Via::Mem);
    let from = world.b.remote(0, world.b.mr.rkey());
    refused_for_access(world, from, 100);
}

#[test]
pub(super) fn region_with_remote_read_can_be_read_by_its_own_key() {
    let mut world = World::new(Via::Mem);
    let open = Memory::new(4096);
    open.put(0, b"open to all");
    let mr = world.b.dev.register(&world.b.pd, open.region(), Access::REMOTE_READ).unwrap();
    let to = world.a.sge(0, 11);
    world.a.read(0, 1, to, RemoteRange { addr: open.addr(0), rkey: mr.rkey() });
    world.settle();
    assert_eq!(world.a.take(), [ok(1)]);
    assert_eq!(world.a.memory.get(0, 11), b"open to all");
}

#[test]
pub(super) fn regions_lkey_is_no_remote_key() {
    let world = World::new(Via::Mem);
    let from = world.b.remote(0, Rkey(world.b.mr.lkey().0));
    refused_for_access(world, from, 100);
}

#[test]
pub(super) fn region_of_another_pd_is_refused() {
    let mut world = World::new(Via::Mem);
    let other = world.b.dev.alloc_pd().unwrap();
    let open = Memory::new(4096);
    let mr = world.b.dev.register(&other, open.region(), Access::REMOTE_READ).unwrap();
    let from = RemoteRange { addr: open.addr(0), rkey: mr.rkey() };
    let to = world.a.sge(0, 1);
    world.a.read(0, 1, to, from);
    world.settle();
    assert_eq!(world.a.take(), [failed(1, WcStatus::RemAccessErr)]);
}

#[test]
pub(super) fn window_of_another_qp_is_refused() {
    let mut world = World::new(Via::Mem);
    let other = world.connect(ATTR, ATTR);
    world.b.bind(other, 1, 0, 100);
    world.until(0, 1);
    world.b.take();
    let from = world.b.remote(0, crate::verbs::Mw::rkey(&world.b.mws[0]));
    refused_for_access(world, from, 100);
}

#[test]
pub(super) fn window_is_closed_after_local_invalidate() {
    let mut world = World::new(Via::Mem);
    let (key, _) = open(&mut world, 100);
    world.b.local_inv(0, 5, key);
    world.until(0, 1);
    assert_eq!(world.b.take(), [ok(5)]);
    assert_eq!(world.b.dev.usage().mws_bound, 0);
    let from = world.b.remote(0, key);
    refused_for_access(world, from, 100);
}

#[test]
pub(super) fn window_is_closed_when_it_is_deallocated() {
    let mut world = World::new(Via::Mem);
    let (key, _) = open(&mut world, 100);
    world.b.mws.clear();
    assert_eq!((world.b.dev.usage().mws, world.b.dev.usage().mws_bound), (0, 0));
    let from = world.b.remote(0, key);
    refused_for_access(world, from, 100);
}

#[test]
pub(super) fn zero_bytes_need_a_valid_key_too() {
    let mut world = World::new(Via::Mem);
    let (key, _) = open(&mut world, 100);
    let (to, from) = (world.a.sge(0, 0), world.b.remote(0, key));
    world.a.read(0, 1, to, from);
    world.settle();
    assert_eq!(world.a.take(), [ok(1)]);
    let from = RemoteRange { rkey: Rkey(key.0 ^ 1), ..from };
    world.a.read(0, 2, to, from);
    world.settle();
    assert_eq!(world.a.take(), [failed(2, WcStatus::RemAccessErr)]);
}

#[test]
pub(super) fn qp_without_remote_read_refuses_every_read() {
    let mut world = World::unconnected(Via::Mem, |config| config);
    world.a.add_qp();
    let pd = world.b.pd.clone();
    world.b.add_qp_in(&pd, false);
    world.join(0, 0, ATTR, ATTR);
    let (key, _) = open(&mut world, 100);
    let from = world.b.remote(0, key);
    let event = AsyncEvent::QpRequestError(world.b.qps[0].num());
    refused(world, from, 100, WcStatus::RemInvReqErr, event);
}

#[test]
pub(super) fn reads_beyond_the_responders_depth_are_refused() {
    let mut world = World::unconnected(Via::Mem, |config| config.piece_bytes(1024));
    world.connect(QpAttr { max_rd_atomic: 3, ..ATTR }, QpAttr { max_dest_rd_atomic: 2, ..ATTR });
    let (key, data) = open(&mut world, 4096);
    let from = world.b.remote(0, key);
    for wr_id in 0..3 {
        let to = world.a.sge(wr_id * 4096, 4096);
        world.a.read(0, wr_id, to, from);
    }
    world.settle();
    // The two that were allowed are answered first: the device answers in order.
    assert_eq!(world.a.take(), [ok(0), ok(1), failed(2, WcStatus::RemInvReqErr)]);
    assert_eq!(world.a.memory.get(4096, 4096), data);
    assert_eq!(world.a.memory.get(8192, 4096), [0; 4096]);
}

#[test]
pub(super) fn requester_holds_back_reads_beyond_its_own_depth_and_all_behind_them() {
    let mut world = World::unconnected(Via::Mem, |config| config);
    world.connect(QpAttr { max_rd_atomic: 2, ..ATTR }, QpAttr { max_dest_rd_atomic: 2, ..ATTR });
    let (key, data) = open(&mut world, 4096);
    world.b.post_recv(50, 8192, 64);
    let from = world.b.remote(0, key);
    let mut expected = Vec::new();
    let to: Vec<_> = (0..8).map(|index| world.a.sge(index * 4096, 4096)).collect();
    let last = world.a.sge(0, 4);
    let mut batch = world.a.qps[0].batch();
    for (wr_id, to) in to.iter().enumerate() {
        batch.read(wr_id as u64, &[*to], from, SIGNALED).unwrap();
        expected.push(ok(wr_id as u64));
    }
    batch.send(8, &[last], SIGNALED).unwrap();
    expected.push(ok(8));
    batch.post().unwrap();
    world.b.poll();
    assert_eq!(world.b.take(), [], "the SEND waits behind READs that wait");
    world.settle();
    assert_eq!(world.a.take(), expected);
    assert_eq!(world.a.memory.get(7 * 4096, 4096), data);
}

#[test]
pub(super) fn read_revoked_midway_fails_and_leaves_partial_bytes() {
    for via in BOTH {
        // A link that holds two pieces, so that the answer stops midway.
        let world =
            World::with(via, |config| config.piece_bytes(16 << 10).mem_link_bytes(20 << 10));
        world.clock.pass(std::time::Duration::from_millis(1));
        let len = if matches!(via, Via::Mem) { 200_000 } else { 900_000 };
        let mut world = match via {
            Via::Mem => world,
            // Sockets buffer megabytes: many READs fill them.
            Via::Tcp => {
                world.a.dev.break_rule(crate::verbs::soft::Rule::MaxRdAtomic);
                world.b.dev.break_rule(crate::verbs::soft::Rule::ReadDepth);
                world
            }
        };
        let (key, data) = open(&mut world, len);
        let reads = if matches!(via, Via::Mem) { 1 } else { 60 };
        for wr_id in 0..reads {
            let (to, from) = (world.a.sge(0, len), world.b.remote(0, key));
            world.a.read(0, wr_id, to, from);
        }
        // The owner serves what the link takes; the reader reads nothing yet.
        for _ in 0..200 {
            world.b.poll();
        }
        let served = world.b.dev.counters().read_bytes_served;
        assert!(served > 0 && served < u64::from(len) * reads, "{served} over {via:?}");
        world.b.local_inv(0, 5, key);
        assert_eq!(world.b.poll(), 1);
        assert_eq!(world.b.take(), [ok(5)]);
        // The memory is its owner's again: what it writes now must not reach the reader.
        world.b.memory.put(0, &vec![0xee; len as usize]);
        world.until_that(|world| world.a.qps[0].state() == QpState::Err);
        let got = world.a.take();
        let first = got.iter().find(|(_, status)| status.is_some()).unwrap();
        assert_eq!(first.1, Some(WcStatus::RemAccessErr));
        if matches!(via, Via::Mem) {
            let partial = world.a.memory.get(0, u64::from(len));
            let same = partial.iter().zip(&data).take_while(|(a, b)| a == b).count();
            assert_eq!(same as u64, served);
            assert!(partial[same..].iter().all(|byte| *byte == 0));
        } else {
            assert!(!world.a.memory.get(0, u64::from(len)).contains(&0xee) || data.contains(&0xee));
        }
    }
}

#[test]
pub(super) fn fence_waits_for_the_reads_before_it() {
    let mut world = World::new(Via::Mem);
    let (key, _) = open(&mut world, 4096);
    world.b.post_recv(50, 8192, 64);
    let (to, from) = (world.a.sge(0, 4096), world.b.remote(0, key));
    let small = world.a.sge(0, 4);
    let mut batch = world.a.qps[0].batch();
    batch.read(1, &[to], from, SIGNALED).unwrap();
    batch.send(2, &[small], SIGNALED.and(SendFlags::FENCE)).unwrap();
    batch.post().unwrap();
    world.b.poll();
    world.b.poll();
    assert_eq!(world.b.take(), []);
    world.settle();
    assert_eq!((world.a.take(), world.b.take()), (vec![ok(1), ok(2)], vec![ok(50)]));
}

#[test]
pub(super) fn destination_must_be_writable_memory_of_the_same_pd() {
    for (access, same_pd) in [(Access::NONE, true), (Access::LOCAL_WRITE, false)] {
        let mut world = World::new(Via::Mem);
        let (key, _) = open(&mut world, 64);
        let other = world.a.dev.alloc_pd().unwrap();
        let pd = if same_pd { &world.a.pd } else { &other };
        let memory = Memory::new(64);
        let mr = world.a.dev.register(pd, memory.region(), access).unwrap();
        let to = crate::verbs::Sge::new(memory.addr(0), 64, mr.lkey());
        let from = world.b.remote(0, key);
        world.a.read(0, 1, to, from);
        world.settle();
        assert_eq!(world.a.take(), [failed(1, WcStatus::LocProtErr)]);
        assert_eq!(world.b.dev.counters().reads_served, 0);
    }
}
