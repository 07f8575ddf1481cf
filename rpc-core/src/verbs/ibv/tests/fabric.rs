//! The kernel's soft-RoCE, through libibverbs, as a fabric of the conformance suite.

use std::time::{Duration, Instant};

use super::super::{IbvConfig, IbvDevice};
use crate::verbs::conformance::{Fabric, Kind, conformance, every_test};

/// One soft-RoCE device, opened twice.
pub(in crate::verbs) struct Rxe;

impl Fabric for Rxe {
    type Device = IbvDevice;
    const KIND: Kind = Kind::IbvRxe;

    fn open() -> (Self, IbvDevice, IbvDevice) {
        let config = IbvConfig { remote_invalidate_anyway: true, ..IbvConfig::new() };
        let open = || IbvDevice::open(&config).unwrap_or_else(|error| panic!("{error}"));
        let (a, b) = (open(), open());
        assert!(a.is_soft_roce(), "the marks of these tests are those of soft-RoCE");
        (Self, a, b)
    }

    fn pause(&self) {
        // The kernel does the work: this only leaves it the processor. Nothing depends on how long.
        std::thread::sleep(Duration::from_micros(200));
    }

    /// A silent peer is given up after 8 times 67 ms and more; the machine may be an emulated one.
    fn gives_up(&self, _pauses: u32, begun: Instant) -> bool {
        begun.elapsed() > Duration::from_secs(30)
    }
}

every_test!(conformance {
    conformance_ibv_rxe,
    crate::verbs::ibv::tests::fabric::Rxe,
    ignore = "needs soft-RoCE: tests/rxe runs it in its guest"
});
