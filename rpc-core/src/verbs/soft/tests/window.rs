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

#[test]
fn device_that_takes_local_operations_alone_refuses_them_in_company() {
    let mut world = World::with(Via::Mem, |config| config.local_ops_alone(true));
    world.b.mws.push(world.b.dev.alloc_mw(&world.b.pd).unwrap());
    let range = world.b.sge(0, 100);
    world.a.post_recv(2, 4096, 64);
    let side = &mut world.b;
    // Beside a SEND in the same chain, and behind one that is still outstanding.
    let mut batch = crate::verbs::Qp::batch(&mut side.qps[0]);
    batch.bind(1, &mut side.mws[0], &side.mr, range, SIGNALED).unwrap();
    batch.send(2, &[range], SIGNALED).unwrap();
    assert!(batch.post().is_err());
    side.send(0, 3, b"first");
    let mut batch = crate::verbs::Qp::batch(&mut side.qps[0]);
    batch.bind(4, &mut side.mws[0], &side.mr, range, SIGNALED).unwrap();
    assert!(batch.post().is_err());
    world.settle();
    assert_eq!((world.b.take(), world.b.dev.counters().binds), (vec![ok(3)], 0));
    // Alone it passes, and so does what follows its completion.
    world.b.rebind(0, 5, 0, 0, 100);
    world.settle();
    world.a.post_recv(6, 4096, 64);
    world.b.send(0, 7, b"second");
    world.settle();
    assert_eq!((world.b.take(), world.b.dev.counters().binds), (vec![ok(5), ok(7)], 1));
}
