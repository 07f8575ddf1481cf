use super::fixture::*;
use crate::verbs::{Device, QpState, SendBatch, WcStatus};

#[test]
fn empty_window_cannot_be_bound() {
    let mut world = World::new(Via::Mem);
    world.b.bind(0, 8, 0, 0);
    world.settle();
    assert_eq!(world.b.take(), [failed(8, WcStatus::MwBindErr)]);
    assert_eq!(crate::verbs::Qp::state(&world.b.qps[0]), QpState::Err);
    assert_eq!(world.b.dev.usage().mws_bound, 0);
}

#[test]
fn windows_are_counted_by_the_device() {
    let mut world = World::new(Via::Mem);
    let key = world.b.bind(0, 1, 0, 100);
    world.b.post_recv(2, 4096, 64);
    world.settle();
    assert_eq!((world.b.dev.usage().mws_bound, world.b.dev.counters().binds), (1, 1));
    let sge = world.a.sge(0, 3);
    let mut batch = crate::verbs::Qp::batch(&mut world.a.qps[0]);
    batch.send_with_inv(4, &[sge], key, SIGNALED).unwrap();
    batch.post().unwrap();
    world.settle();
    assert_eq!((world.a.take(), world.b.take()), (vec![ok(4)], vec![ok(1), ok(2)]));
    assert_eq!((world.b.dev.usage().mws_bound, world.b.dev.counters().invalidations), (0, 1));
}
