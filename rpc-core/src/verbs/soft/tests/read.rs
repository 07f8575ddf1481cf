use super::fixture::*;
use crate::verbs::{Access, AsyncEvent, Device, Mr, Qp, QpState, RemoteRange, Rkey, WcStatus};

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
fn read_through_a_window_brings_the_bytes() {
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
fn read_past_the_windows_end_is_refused_before_the_first_byte() {
    let mut world = World::with(Via::Mem, |config| config.piece_bytes(16));
    let (key, _) = open(&mut world, 100);
    let from = world.b.remote(1, key);
    refused_for_access(world, from, 100);
}

#[test]
fn regions_lkey_is_no_remote_key() {
    let world = World::new(Via::Mem);
    let from = world.b.remote(0, Rkey(world.b.mr.lkey().0));
    refused_for_access(world, from, 100);
}

#[test]
fn zero_bytes_need_a_valid_key_too() {
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
fn read_revoked_midway_fails_and_leaves_partial_bytes() {
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
fn destination_must_be_writable_memory_of_the_same_pd() {
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
