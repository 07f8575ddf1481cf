//! States, limits, and the order of creating and destroying.

use super::fixture::*;
use crate::verbs::soft::SoftConfig;
use crate::verbs::{
    Access, Device, DeviceUsage, Limits, Psn, Qp, QpAttr, QpState, SrqInit, VerbsError,
};

#[test]
fn states_are_passed_in_order_only() {
    let mut world = World::unconnected(Via::Mem, |config| config);
    world.a.add_qp();
    world.b.add_qp();
    let at_b = world.b.qps[0].address(Psn(1)).unwrap();
    let qp = &mut world.a.qps[0];
    assert_eq!(qp.state(), QpState::Init);
    assert!(qp.to_rts(&ATTR).is_err());
    qp.to_rtr(&at_b, &ATTR).unwrap();
    assert!(qp.to_rtr(&at_b, &ATTR).is_err());
    let error = qp.to_rts(&ATTR).unwrap_err();
    assert!(error.to_string().contains("start PSN"), "{error}");
    qp.address(Psn(2)).unwrap();
    qp.to_rts(&ATTR).unwrap();
    assert!(qp.to_rts(&ATTR).is_err());
    assert!(qp.address(Psn(3)).is_err());
    qp.to_err().unwrap();
    qp.to_err().unwrap();
    assert!(qp.to_rtr(&at_b, &ATTR).is_err());
}

#[test]
fn attributes_out_of_range_are_refused() {
    let mut world = World::unconnected(Via::Mem, |config| config);
    world.a.add_qp();
    world.b.add_qp();
    let at_b = world.b.qps[0].address(Psn(1)).unwrap();
    for attr in [
        QpAttr { max_rd_atomic: 17, ..ATTR },
        QpAttr { max_dest_rd_atomic: 17, ..ATTR },
        QpAttr { mtu: 8192, ..ATTR },
        QpAttr { timeout: 32, ..ATTR },
        QpAttr { retry_cnt: 8, ..ATTR },
        QpAttr { rnr_retry: 8, ..ATTR },
        QpAttr { min_rnr_timer: 32, ..ATTR },
    ] {
        assert!(world.a.qps[0].to_rtr(&at_b, &attr).is_err(), "{attr:?}");
    }
}

#[test]
fn limits_of_the_device_are_kept() {
    let side = Side::new(FakeClock::default().config(1), 16);
    let Limits { cqe_max, srq_wr_max, sge_max, .. } = side.dev.limits();
    assert!(side.dev.create_cq(cqe_max + 1).is_err());
    let init = SrqInit { wr_max: srq_wr_max + 1, sge_max: 1 };
    assert!(matches!(side.dev.create_srq(&side.pd, init), Err(VerbsError::Limit { .. })));
    let init = SrqInit { wr_max: 1, sge_max: sge_max + 1 };
    assert!(side.dev.create_srq(&side.pd, init).is_err());
    let without = Limits { windows: false, ..side.dev.limits() };
    let small = Side::new(FakeClock::default().config(1).limits(without), 16);
    assert!(small.dev.alloc_mw(&small.pd).is_err());
}

#[test]
fn objects_of_another_device_are_refused() {
    let World { a, b, .. } = World::unconnected(Via::Mem, |config: SoftConfig| config);
    let refused = a.dev.register(&b.pd, Memory::new(64).region(), Access::NONE);
    assert!(matches!(refused, Err(VerbsError::State { .. })));
    assert!(a.dev.alloc_mw(&b.pd).is_err());
}

#[test]
fn tables_are_empty_when_everything_is_dropped() {
    let mut world = World::new(Via::Mem);
    world.b.bind(0, 1, 0, 100);
    world.settle();
    let dev = world.b.dev.clone();
    let usage = dev.usage();
    let expected = DeviceUsage {
        pds: 1,
        mrs: 1,
        mr_bytes: MEMORY as u64,
        mws: 1,
        mws_bound: 1,
        cqs: 1,
        srqs: 1,
        srq_wrs: 0,
        qps: 1,
        links: 1,
    };
    assert_eq!(usage, expected);
    let World { a, b, .. } = world;
    drop(b);
    drop(a);
    crate::verbs::Cq::poll(&mut dev.create_cq(1).unwrap(), &mut [Default::default()]).unwrap();
    assert_eq!(dev.usage(), DeviceUsage::default());
}
