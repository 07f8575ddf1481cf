use super::fixture::*;
use crate::verbs::{
    Access, Device, Mr, Mw, Qp, QpState, Rkey, SendBatch, SendFlags, Sge, WcStatus,
};

#[test]
pub(super) fn bind_gives_the_next_key_while_the_chain_is_built() {
    let mut world = World::new(Via::Mem);
    let mut mw = world.b.dev.alloc_mw(&world.b.pd).unwrap();
    let (before, next) = (mw.rkey(), mw.next_rkey());
    let range = world.b.sge(0, 100);
    let mut batch = world.b.qps[0].batch();
    batch.bind(1, &mut mw, &world.b.mr, range, SIGNALED).unwrap();
    assert!(mw.rkey() == next && next != before);
    assert_eq!(
        (next.0 >> 8, (next.0 & 0xff) as u8),
        (before.0 >> 8, (before.0 as u8).wrapping_add(1))
    );
    let mut batch = world.b.qps[0].batch();
    batch.bind(1, &mut mw, &world.b.mr, range, SIGNALED).unwrap();
    batch.post().unwrap();
    world.settle();
    assert_eq!(world.b.take(), [ok(1)]);
    assert_eq!((world.b.dev.usage().mws, world.b.dev.usage().mws_bound), (1, 1));
    assert_eq!(world.b.dev.counters().binds, 1);
}

#[test]
pub(super) fn window_bound_before_a_send_of_the_same_chain_is_open_when_it_arrives() {
    for via in BOTH {
        let mut world = World::new(via);
        world.a.post_recv(9, 0, 64);
        world.b.memory.put(0, b"payload");
        let mut mw = world.b.dev.alloc_mw(&world.b.pd).unwrap();
        let (range, message) = (world.b.sge(0, 7), world.b.sge(4096, 8));
        let mut batch = world.b.qps[0].batch();
        batch.bind(1, &mut mw, &world.b.mr, range, SendFlags::NONE).unwrap();
        batch.send(2, &[message], SIGNALED).unwrap();
        batch.post().unwrap();
        world.until(1, 0);
        let (to, from) = (world.a.sge(100, 7), world.b.remote(0, mw.rkey()));
        world.a.read(0, 3, to, from);
        world.until(2, 1);
        assert_eq!(world.a.take(), [ok(9), ok(3)]);
        assert_eq!(world.b.take(), [ok(2)]);
        assert_eq!(world.a.memory.get(100, 7), b"payload");
        drop(mw);
    }
}

/// A bind that must fail, after which its QP is in ERR and nothing is open.
fn bind_fails(world: &mut World, mw: usize, mr: Option<&super::super::SoftMr>, range: Sge) {
    let bound = world.b.dev.usage().mws_bound;
    let mw = &mut world.b.mws[mw];
    let mut batch = world.b.qps[0].batch();
    batch.bind(8, mw, mr.unwrap_or(&world.b.mr), range, SendFlags::NONE).unwrap();
    batch.post().unwrap();
    world.settle();
    assert_eq!(world.b.take(), [failed(8, WcStatus::MwBindErr)]);
    assert_eq!(world.b.qps[0].state(), QpState::Err);
    assert_eq!(world.b.dev.usage().mws_bound, bound);
}

fn world_with_window() -> World {
    let mut world = World::new(Via::Mem);
    world.b.mws.push(world.b.dev.alloc_mw(&world.b.pd).unwrap());
    world
}

#[test]
pub(super) fn bound_window_cannot_be_bound_again() {
    let mut world = world_with_window();
    world.b.rebind(0, 1, 0, 0, 100);
    world.settle();
    assert_eq!(world.b.take(), [ok(1)]);
    let range = world.b.sge(4096, 100);
    bind_fails(&mut world, 0, None, range);
}

#[test]
pub(super) fn window_can_be_bound_again_after_invalidation() {
    let mut world = world_with_window();
    for round in 0..600 {
        let key = world.b.rebind(0, 1, 0, round % 7, 100);
        world.b.local_inv(0, 2, key);
        world.settle();
        assert_eq!(world.b.take(), [ok(1), ok(2)], "round {round}: the tag wraps after 256");
    }
}

#[test]
pub(super) fn window_past_its_regions_end_cannot_be_bound() {
    let mut world = world_with_window();
    let range = world.b.sge(MEMORY as u64 - 99, 100);
    bind_fails(&mut world, 0, None, range);
}

#[test]
pub(super) fn empty_window_cannot_be_bound() {
    let mut world = world_with_window();
    let range = world.b.sge(0, 0);
    bind_fails(&mut world, 0, None, range);
}

#[test]
pub(super) fn window_over_a_region_without_the_right_cannot_be_bound() {
    let mut world = world_with_window();
    let memory = Memory::new(4096);
    let access = Access::LOCAL_WRITE.and(Access::REMOTE_READ);
    let mr = world.b.dev.register(&world.b.pd, memory.region(), access).unwrap();
    bind_fails(&mut world, 0, Some(&mr), Sge::new(memory.addr(0), 100, mr.lkey()));
}

#[test]
pub(super) fn window_of_another_pd_cannot_be_bound() {
    let mut world = World::new(Via::Mem);
    let other = world.b.dev.alloc_pd().unwrap();
    world.b.mws.push(world.b.dev.alloc_mw(&other).unwrap());
    let range = world.b.sge(0, 100);
    bind_fails(&mut world, 0, None, range);
}

#[test]
pub(super) fn region_of_another_pd_cannot_be_bound() {
    let mut world = world_with_window();
    let other = world.b.dev.alloc_pd().unwrap();
    let memory = Memory::new(4096);
    let mr = world.b.dev.register(&other, memory.region(), Access::MW_BIND).unwrap();
    bind_fails(&mut world, 0, Some(&mr), Sge::new(memory.addr(0), 100, mr.lkey()));
}

#[test]
pub(super) fn second_invalidation_of_one_key_is_an_error() {
    let mut world = world_with_window();
    let key = world.b.rebind(0, 1, 0, 0, 100);
    world.b.local_inv(0, 2, key);
    world.b.local_inv(0, 3, key);
    world.settle();
    assert_eq!(world.b.take(), [ok(1), ok(2), failed(3, WcStatus::LocQpOpErr)]);
}

#[test]
pub(super) fn invalidation_on_another_qp_is_an_error_and_closes_nothing() {
    let mut world = world_with_window();
    let other = world.connect(ATTR, ATTR);
    let key = world.b.rebind(0, 1, 0, 0, 100);
    world.b.local_inv(other, 2, key);
    world.settle();
    assert_eq!(world.b.take(), [ok(1), failed(2, WcStatus::LocQpOpErr)]);
    assert_eq!(world.b.dev.usage().mws_bound, 1);
}

fn send_with_inv(world: &mut World, key: Rkey) {
    let sge = world.a.sge(0, 3);
    let mut batch = world.a.qps[0].batch();
    batch.send_with_inv(4, &[sge], key, SIGNALED).unwrap();
    batch.post().unwrap();
}

#[test]
pub(super) fn send_with_inv_closes_the_receivers_window_and_says_which() {
    for via in BOTH {
        let mut world = World::new(via);
        let key = world.b.bind(0, 1, 0, 100);
        world.b.post_recv(2, 4096, 64);
        send_with_inv(&mut world, key);
        world.until(1, 2);
        let received = world.b.got[1].outcome().unwrap();
        assert!(received.invalidated == Some(key));
        assert!(world.b.got[0].outcome().unwrap().invalidated.is_none());
        assert_eq!(world.b.take(), [ok(1), ok(2)]);
        assert_eq!(world.b.dev.usage().mws_bound, 0);
        assert_eq!(world.b.dev.counters().invalidations, 1);
        // A local invalidation after it is the second of this key.
        world.b.local_inv(0, 3, key);
        world.until(1, 1);
        assert_eq!(world.b.take(), [failed(3, WcStatus::LocQpOpErr)]);
    }
}

#[test]
pub(super) fn send_with_inv_of_another_qps_window_fails_on_both_sides() {
    let mut world = World::new(Via::Mem);
    let other = world.connect(ATTR, ATTR);
    let key = world.b.bind(other, 1, 0, 100);
    world.b.post_recv(2, 4096, 64);
    send_with_inv(&mut world, key);
    world.settle();
    assert_eq!(world.a.take(), [failed(4, WcStatus::RemAccessErr)]);
    assert_eq!(world.b.take(), [ok(1), failed(2, WcStatus::LocAccessErr)]);
    assert_eq!(world.b.dev.usage().mws_bound, 1);
}
