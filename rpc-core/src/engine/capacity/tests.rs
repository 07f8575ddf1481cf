//! No engine can be made whose completion queue overruns or which asks a device for more than it
//! has: every size comes out of [`Capacity::for_limits`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;

use proptest::prelude::*;

use super::*;
use crate::Time;
use crate::engine::engine::{Engine, EngineControl, EngineError, EngineParts};
use crate::mem::{PayloadMut, Pool, PoolConfig, Regions, Share, Use};
use crate::verbs::soft::{SoftConfig, SoftCq, SoftDevice, SoftQp, SoftSrq};
use crate::verbs::{
    Access, AsyncEvent, Cq, Device, Lkey, Mr, Psn, Qp, QpAttr, RecvBatch, SendBatch, SendFlags,
    Sge, Srq, SrqInit, Wc,
};

fn limits(cqe_max: u32, srq_wr_max: u32, qp_wr_max: u32) -> Limits {
    Limits {
        cqe_max,
        srq_wr_max,
        qp_wr_max,
        sge_max: 1,
        inline_bytes_max: 0,
        max_rd_atomic: 16,
        max_dest_rd_atomic: 16,
        message_bytes_max: 1 << 20,
        mtu: 4096,
        windows: true,
        remote_invalidate: false,
        last_wqe_event: true,
        local_ops_alone: false,
        needs_cpu: false,
        ack_timeout_min: 0,
        retries_max: 7,
        silence_max: None,
    }
}

/// Numbers of every size: near the smallest that can be, and up to the largest.
fn number() -> impl Strategy<Value = u32> {
    prop_oneof![0..300u32, 0..70_000u32, any::<u32>()]
}

proptest! {
    #[test]
    fn no_queue_can_overrun_and_no_limit_is_passed(
        cqe in number(), srq in number(), qp in number(), lent in number(),
    ) {
        if let Ok(capacity) = Capacity::for_limits(&limits(cqe, srq, qp)) {
            let capacity = capacity.lending(Lending { each_max: lent, core_max: lent });
            let sends = u64::from(capacity.connections_max) * u64::from(capacity.send_wrs);
            prop_assert!(u64::from(capacity.cqe) >= sends + u64::from(capacity.srq_wrs));
            prop_assert!(capacity.cqe <= cqe);
            prop_assert!(capacity.srq_wrs <= srq);
            prop_assert!(capacity.send_wrs <= qp);
            prop_assert!(capacity.send_wrs > SEND_WRS_CONTROL);
            prop_assert!((1..=CONNECTIONS_MAX).contains(&capacity.connections_max));
            let guaranteed = capacity.connections_max * RECEIVES_GUARANTEED;
            prop_assert!(capacity.srq_wrs >= guaranteed + capacity.surplus_max);
            prop_assert!(capacity.lent_max <= lent && capacity.surplus_max <= lent);
            prop_assert!(capacity.slots_max >= capacity.srq_wrs + capacity.send_wrs);
        }
    }

    /// The device itself refuses what is beyond its limits, so that an engine and all of its
    /// connections can be made shows that they are within them.
    #[test]
    #[cfg_attr(miri, ignore = "maps real memory")]
    fn a_device_holds_its_engine_with_every_connection_or_is_refused_as_too_small(
        cqe in 0..1_500u32, srq in 0..300u32, qp in 0..100u32,
    ) {
        let device = device(limits(cqe, srq, qp));
        match engine(&device) {
            Ok(engine) => {
                let control = engine.control();
                let mut held = Vec::new();
                while let Some(place) = control.reserve() {
                    held.push((device.create_qp(&control.qp_init()).unwrap(), place));
                }
                prop_assert_eq!(held.len() as u32, control.capacity.connections_max);
            }
            Err(EngineError::TooSmall(_)) => {
                prop_assert!(Capacity::for_limits(&device.limits()).is_err());
            }
            Err(error) => return Err(TestCaseError::fail(error.to_string())),
        }
    }
}

#[test]
fn a_small_device_serves_fewer_connections_and_a_tiny_one_is_refused() {
    let soft_roce = Capacity::for_limits(&limits(32_767, 16_384, 16_384)).unwrap();
    assert!(soft_roce.connections_max >= 400 && soft_roce.surplus_max >= 1024, "{soft_roce:?}");
    assert!(Capacity::for_limits(&limits(16, 16_384, 16_384)).is_err());
    assert!(Capacity::for_limits(&limits(32_767, 1, 16_384)).is_err());
    assert!(Capacity::for_limits(&limits(32_767, 16_384, 2 * SEND_WRS_CONTROL)).is_err());
}

fn device(limits: Limits) -> SoftDevice {
    // Devices of one process meet by numbers that they draw from their seeds.
    static SEED: AtomicU64 = AtomicU64::new(0xcafe << 40);
    let seed = SEED.fetch_add(1, Ordering::Relaxed);
    SoftDevice::open(SoftConfig::new(Arc::new(|| Time::ZERO)).seed(seed).limits(limits)).unwrap()
}

fn pool() -> Pool {
    Pool::new(PoolConfig::new(1 << 20)).unwrap()
}

fn engine(device: &SoftDevice) -> Result<Engine<SoftDevice>, EngineError> {
    let (pd, pool) = (device.alloc_pd()?, pool());
    Engine::new(EngineParts {
        index: 0,
        device: device.clone(),
        pd: pd.clone(),
        regions: Arc::new(Regions::new(device.clone(), pd, pool.clone())),
        pool,
        waker: Waker::noop().clone(),
        lending: Lending::USUAL,
        read_bytes_max: READ_BYTES_MAX,
        pings: crate::Pings::new(),
        offload: None,
    })
}

/// A piece of memory that a device knows.
struct Known {
    payload: PayloadMut,
    mr: <SoftDevice as Device>::Mr,
    _pool: Pool,
}

impl Known {
    fn new(device: &SoftDevice, pd: &<SoftDevice as Device>::Pd) -> Self {
        let pool = pool();
        let payload = pool.alloc(Share::Inbound, Use::Response, 4096).unwrap();
        let region = pool.region(payload.arena());
        let mr = device.register(pd, region, Access::LOCAL_WRITE).unwrap();
        Self { payload, mr, _pool: pool }
    }

    fn sge(&self) -> Sge {
        let lkey: Lkey = self.mr.lkey();
        self.payload.sge(0, 8, lkey).unwrap()
    }
}

const ATTR: QpAttr = QpAttr {
    mtu: 4096,
    max_rd_atomic: 4,
    max_dest_rd_atomic: 4,
    timeout: 14,
    retry_cnt: 7,
    rnr_retry: 7,
    min_rnr_timer: 12,
};

fn send(qp: &mut SoftQp, sge: Sge) -> bool {
    let mut batch = qp.batch();
    batch.send(1, &[sge], SendFlags::SIGNALED).is_ok() && batch.post().is_ok()
}

/// Fills everything that an engine of `control` can have outstanding: each receive of its SRQ is
/// consumed, each send queue of its most connections is full, and all of it completes before the
/// first completion is taken.
fn fill(control: &Arc<EngineControl<SoftDevice>>, srq: &mut SoftSrq) -> Vec<SoftQp> {
    let (near, far) = (&control.device, device(limits(1 << 16, 1 << 10, 1 << 10)));
    let far_engine = engine(&far).unwrap();
    let here = Known::new(near, &control.pd);
    let there = Known::new(&far, &far_engine.control().pd);

    let mut batch = srq.batch();
    for _ in 0..control.capacity.srq_wrs {
        batch.recv(2, &[here.sge()]).unwrap();
    }
    batch.post().unwrap();

    let (mut places, mut qps, mut peers) = (Vec::new(), Vec::new(), Vec::new());
    while let Some(place) = control.reserve() {
        let mut qp = near.create_qp(&control.qp_init()).unwrap();
        let mut peer = far.create_qp(&far_engine.control().qp_init()).unwrap();
        let (at, to) = (qp.address(Psn::new(1)).unwrap(), peer.address(Psn::new(2)).unwrap());
        qp.to_rtr(&to, &ATTR).unwrap();
        peer.to_rtr(&at, &ATTR).unwrap();
        qp.to_rts(&ATTR).unwrap();
        peer.to_rts(&ATTR).unwrap();
        places.push(place);
        qps.push(qp);
        peers.push(peer);
    }
    assert_eq!(qps.len() as u32, control.capacity.connections_max);
    let peer_count = peers.len();
    for n in 0..control.capacity.srq_wrs as usize {
        assert!(send(&mut peers[n % peer_count], there.sge()));
    }
    // A queue of its own moves the device on and leaves the engine's completions where they are.
    let mut other = near.create_cq(1).unwrap();
    for _ in 0..8 {
        assert_eq!(other.poll(&mut [Wc::default()]).unwrap(), 0);
    }
    for qp in &mut qps {
        let posted = (0..).take_while(|_| send(qp, here.sge())).count();
        assert_eq!(posted as u32, control.capacity.send_wrs, "and not one more");
        qp.to_err().unwrap();
    }
    qps
}

fn taken(cq: &mut SoftCq) -> usize {
    let mut wcs = [Wc::default(); 16];
    std::iter::from_fn(|| Some(cq.poll(&mut wcs).unwrap()).filter(|count| *count > 0)).sum()
}

fn has_cq_error(device: &SoftDevice) -> bool {
    std::iter::from_fn(|| device.poll_async()).any(|event| event == AsyncEvent::CqError)
}

#[test]
#[cfg_attr(miri, ignore = "maps real memory")]
fn every_queue_of_an_engine_full_at_once_fits_its_completion_queue() {
    for (cqe, srq, qp) in [(700, 100, 100), (66, 2, 64), (70, 50, 64), (300, 300, 20)] {
        let device = device(limits(cqe, srq, qp));
        let mut engine = engine(&device).unwrap();
        let (control, capacity) = (engine.control(), engine.capacity);
        let _qps = fill(&control, &mut engine.srq);
        assert!(!has_cq_error(&device), "{capacity:?}");
        assert_eq!(taken(&mut engine.cq) as u32, capacity.cqe, "all of it was outstanding");
    }
}

/// The queue is no larger than it must be, and the test above would see one that is too small.
#[test]
#[cfg_attr(miri, ignore = "maps real memory")]
fn a_completion_queue_with_one_entry_less_would_overrun() {
    let device = device(limits(700, 100, 100));
    let made = engine(&device).unwrap().control();
    let cq = device.create_cq(made.capacity.cqe - 1).unwrap();
    let init = SrqInit { wr_max: made.capacity.srq_wrs, sge_max: 1 };
    let mut srq = device.create_srq(&made.pd, init).unwrap();
    let control = Arc::new(EngineControl {
        index: 0,
        device: device.clone(),
        pd: made.pd.clone(),
        cq: device.cq_ref(&cq),
        srq: device.srq_ref(&srq),
        capacity: made.capacity,
        inline_bytes_max: 0,
        connections: Default::default(),
        failed: Default::default(),
    });
    let _qps = fill(&control, &mut srq);
    assert!(has_cq_error(&device));
}
