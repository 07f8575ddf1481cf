use std::time::Instant;

use super::fabric::Fabric;
use super::side::Side;
use crate::verbs::{Device, Psn, Qp, QpAttr, Rkey};

/// What a test's QPs are connected with; the MTU is the devices' own.
pub(in crate::verbs) const ATTR: QpAttr = QpAttr {
    mtu: 0,
    max_rd_atomic: 4,
    max_dest_rd_atomic: 4,
    timeout: 14,
    retry_cnt: 7,
    rnr_retry: 7,
    min_rnr_timer: 12,
};

/// How a pair differs from the usual.
#[derive(Clone, Copy)]
pub(in crate::verbs) struct Setup {
    pub(in crate::verbs) of_a: QpAttr,
    pub(in crate::verbs) of_b: QpAttr,
    /// Entries of a's CQ.
    pub(in crate::verbs) cqe_of_a: u32,
    /// Bytes of memory on each side.
    pub(in crate::verbs) bytes: usize,
    /// Whether b's QPs allow remote READ.
    pub(in crate::verbs) remote_read: bool,
    /// Whether b's QPs are in a PD of their own.
    pub(in crate::verbs) other_pd: bool,
}

pub(in crate::verbs) const USUAL: Setup = Setup {
    of_a: ATTR,
    of_b: ATTR,
    cqe_of_a: 1024,
    bytes: 256 << 10,
    remote_read: true,
    other_pd: false,
};

/// Two sides with two QPs each, every QP connected to that of its number.
pub(in crate::verbs) struct Pair<F: Fabric> {
    pub(in crate::verbs) fabric: F,
    pub(in crate::verbs) a: Side<F::Device>,
    pub(in crate::verbs) b: Side<F::Device>,
}

impl<F: Fabric> Pair<F> {
    pub(in crate::verbs) fn new() -> Self {
        Self::with(USUAL)
    }

    pub(in crate::verbs) fn with(setup: Setup) -> Self {
        let mut pair = Self::unconnected(setup);
        for index in 0..pair.a.qps.len() {
            pair.connect(index, setup);
        }
        pair
    }

    /// With its QPs in INIT.
    pub(in crate::verbs) fn unconnected(setup: Setup) -> Self {
        let (fabric, a, b) = F::open();
        let a = Side::new(a, setup.cqe_of_a, setup.bytes);
        let b = Side::new(b, 1024, setup.bytes);
        let mut pair = Self { fabric, a, b };
        let pd_a = pair.a.pd.clone();
        let pd_b = if setup.other_pd { pair.b.dev.alloc_pd().unwrap() } else { pair.b.pd.clone() };
        for _ in 0..2 {
            pair.a.add_qp(&pd_a, true);
            pair.b.add_qp(&pd_b, setup.remote_read);
        }
        pair
    }

    /// Connects as two programs would: b first, then a.
    pub(in crate::verbs) fn connect(&mut self, index: usize, setup: Setup) {
        let mtu = self.a.dev.limits().mtu.min(self.b.dev.limits().mtu);
        let (of_a, of_b) = (QpAttr { mtu, ..setup.of_a }, QpAttr { mtu, ..setup.of_b });
        let (a, b) = (&mut self.a.qps[index], &mut self.b.qps[index]);
        let at_a = a.address(Psn::new(0x00ff_fffe)).unwrap();
        let at_b = b.address(Psn::new(7)).unwrap();
        b.to_rtr(&at_a, &of_b).unwrap();
        b.to_rts(&of_b).unwrap();
        a.to_rtr(&at_b, &of_a).unwrap();
        a.to_rts(&of_a).unwrap();
    }

    /// Polls both until each has so many completions.
    pub(in crate::verbs) fn until(&mut self, of_a: usize, of_b: usize) {
        self.until_that(|pair| pair.a.got.len() >= of_a && pair.b.got.len() >= of_b);
    }

    /// Polls both until `done`; panics when that is not to be expected any more.
    pub(in crate::verbs) fn until_that(&mut self, mut done: impl FnMut(&mut Self) -> bool) {
        let (begun, mut pauses) = (Instant::now(), 0);
        while !done(self) {
            if self.a.poll() + self.b.poll() == 0 {
                self.fabric.pause();
                pauses += 1;
            }
            let (a, b) = (self.a.got.len(), self.b.got.len());
            assert!(!self.fabric.gives_up(pauses, begun), "stuck with {a} and {b} completions");
        }
    }

    /// Polls both long enough for what would come by itself, without a retry timer.
    pub(in crate::verbs) fn quiet(&mut self) {
        for _ in 0..64 {
            self.a.poll();
            self.b.poll();
            self.fabric.pause();
        }
    }

    /// Opens b's first bytes to a's first QP, and fills them.
    pub(in crate::verbs) fn open(&mut self, len: u32) -> (Rkey, Vec<u8>) {
        let data = super::side::pattern(len as usize, 3);
        self.b.memory.put(0, &data);
        let key = self.b.bind(0, 1000, 0, len);
        self.until(0, 1);
        assert_eq!(self.b.take(), [super::side::ok(1000)]);
        (key, data)
    }
}
