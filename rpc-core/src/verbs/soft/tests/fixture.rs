//! Two devices with one connected pair of QPs and more on demand, and a clock that stands still.

use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub(super) use super::super::test_memory::Memory;
use super::super::{Rule, SoftConfig, SoftCq, SoftDevice, SoftMr, SoftMw, SoftPd, SoftQp, SoftSrq};
use crate::Time;
use crate::verbs::{
    Access, Cq, Device, Lkey, Mr, Psn, Qp, QpAttr, QpInit, RecvBatch, RemoteRange, Rkey, SendBatch,
    SendFlags, Sge, Srq, SrqInit, Wc, WcStatus,
};

pub(super) const SIGNALED: SendFlags = SendFlags::SIGNALED;

#[derive(Clone, Default)]
pub(in crate::verbs) struct FakeClock(Arc<AtomicU64>);

impl FakeClock {
    pub(super) fn pass(&self, span: Duration) {
        self.0.fetch_add(span.as_nanos() as u64, Ordering::SeqCst);
    }

    pub(super) fn now(&self) -> Time {
        Time::from_nanos(self.0.load(Ordering::SeqCst))
    }

    pub(super) fn config(&self, seed: u64) -> SoftConfig {
        let clock = self.clone();
        SoftConfig::new(Arc::new(move || clock.now())).seed(seed ^ unique())
    }
}

/// Devices of one process meet by GUID, and tests run side by side.
fn unique() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1 << 32, Ordering::SeqCst)
}

thread_local! {
    static BROKEN: Cell<Option<Rule>> = const { Cell::new(None) };
}

/// Has devices that this thread opens from now on break a rule.
pub(super) fn break_rule(rule: Option<Rule>) {
    BROKEN.set(rule);
}

/// The rule that devices of this thread break.
pub(super) fn broken_rule() -> Option<Rule> {
    BROKEN.get()
}

/// How long a test waits for what must come. Where a rule is broken it will not.
pub(super) fn patience() -> Duration {
    Duration::from_secs(if BROKEN.get().is_some() { 3 } else { 30 })
}

/// One device. Fields are dropped in an order that verbs allow.
pub(super) struct Side {
    pub(super) qps: Vec<SoftQp>,
    pub(super) srq: SoftSrq,
    pub(super) cq: SoftCq,
    pub(super) mws: Vec<SoftMw>,
    pub(super) mr: SoftMr,
    pub(super) memory: Memory,
    pub(super) pd: SoftPd,
    pub(super) dev: SoftDevice,
    pub(super) got: Vec<Wc>,
}

pub(super) const MEMORY: usize = 1 << 20;
pub(super) const SRQ_WRS: u32 = 512;

impl Side {
    pub(super) fn new(config: SoftConfig, cqe: u32) -> Self {
        Self::with_memory(config, cqe, MEMORY)
    }

    pub(super) fn with_memory(config: SoftConfig, cqe: u32, bytes: usize) -> Self {
        let dev = SoftDevice::open(config).unwrap();
        if let Some(rule) = BROKEN.get() {
            dev.break_rule(rule);
        }
        let pd = dev.alloc_pd().unwrap();
        let memory = Memory::new(bytes);
        let access = Access::LOCAL_WRITE.and(Access::MW_BIND);
        let mr = dev.register(&pd, memory.region(), access).unwrap();
        let cq = dev.create_cq(cqe).unwrap();
        let srq = dev.create_srq(&pd, SrqInit { wr_max: SRQ_WRS, sge_max: 4 }).unwrap();
        Self { qps: Vec::new(), srq, cq, mws: Vec::new(), mr, memory, pd, dev, got: Vec::new() }
    }

    pub(super) fn add_qp(&mut self) -> usize {
        self.add_qp_in(&self.pd.clone(), true)
    }

    pub(super) fn add_qp_in(&mut self, pd: &SoftPd, remote_read: bool) -> usize {
        let (cq, srq) = (self.dev.cq_ref(&self.cq), self.dev.srq_ref(&self.srq));
        let qp = self.dev.create_qp(&QpInit {
            pd,
            send_cq: &cq,
            recv_cq: &cq,
            srq: &srq,
            send_wr_max: 64,
            send_sge_max: 4,
            inline_bytes_max: 128,
            remote_read,
        });
        self.qps.push(qp.unwrap());
        self.qps.len() - 1
    }

    pub(super) fn sge(&self, offset: u64, len: u32) -> Sge {
        Sge::new(self.memory.addr(offset), len, self.mr.lkey())
    }

    pub(super) fn post_recv(&mut self, wr_id: u64, offset: u64, len: u32) {
        let sge = self.sge(offset, len);
        let mut batch = self.srq.batch();
        batch.recv(wr_id, &[sge]).unwrap();
        batch.post().unwrap();
    }

    pub(super) fn send(&mut self, qp: usize, wr_id: u64, data: &[u8]) {
        let at = 512 << 10;
        self.memory.put(at, data);
        let sge = self.sge(at, data.len() as u32);
        let mut batch = self.qps[qp].batch();
        batch.send(wr_id, &[sge], SIGNALED).unwrap();
        batch.post().unwrap();
    }

    pub(super) fn read(&mut self, qp: usize, wr_id: u64, to: Sge, remote: RemoteRange) {
        let mut batch = self.qps[qp].batch();
        batch.read(wr_id, &[to], remote, SIGNALED).unwrap();
        batch.post().unwrap();
    }

    /// Binds a new window over a part of the memory; returns its key. The completion stays to be
    /// polled under `wr_id`.
    pub(super) fn bind(&mut self, qp: usize, wr_id: u64, offset: u64, len: u32) -> Rkey {
        self.mws.push(self.dev.alloc_mw(&self.pd).unwrap());
        let index = self.mws.len() - 1;
        self.rebind(qp, wr_id, index, offset, len)
    }

    pub(super) fn rebind(
        &mut self,
        qp: usize,
        wr_id: u64,
        mw: usize,
        offset: u64,
        len: u32,
    ) -> Rkey {
        let range = self.sge(offset, len);
        let mw = &mut self.mws[mw];
        let mut batch = self.qps[qp].batch();
        batch.bind(wr_id, mw, &self.mr, range, SIGNALED).unwrap();
        batch.post().unwrap();
        crate::verbs::Mw::rkey(mw)
    }

    pub(super) fn local_inv(&mut self, qp: usize, wr_id: u64, key: Rkey) {
        let mut batch = self.qps[qp].batch();
        batch.local_inv(wr_id, key, SIGNALED).unwrap();
        batch.post().unwrap();
    }

    pub(super) fn remote(&self, offset: u64, rkey: Rkey) -> RemoteRange {
        RemoteRange { addr: self.memory.addr(offset), rkey }
    }

    pub(super) fn poll(&mut self) -> usize {
        let mut wcs = [Wc::default(); 16];
        let count = self.cq.poll(&mut wcs).unwrap();
        self.got.extend_from_slice(&wcs[..count]);
        count
    }

    /// The completions so far, as (wr_id, failure).
    pub(super) fn take(&mut self) -> Vec<(u64, Option<WcStatus>)> {
        let short = |wc: Wc| (wc.wr_id(), wc.outcome().err().map(|failure| failure.status));
        std::mem::take(&mut self.got).into_iter().map(short).collect()
    }
}

pub(super) const fn ok(wr_id: u64) -> (u64, Option<WcStatus>) {
    (wr_id, None)
}

pub(super) const fn failed(wr_id: u64, status: WcStatus) -> (u64, Option<WcStatus>) {
    (wr_id, Some(status))
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Via {
    Mem,
    Tcp,
}

pub(super) const BOTH: [Via; 2] = [Via::Mem, Via::Tcp];

pub(super) const ATTR: QpAttr = QpAttr {
    mtu: 4096,
    max_rd_atomic: 4,
    max_dest_rd_atomic: 4,
    timeout: 14,
    retry_cnt: 2,
    rnr_retry: 2,
    min_rnr_timer: 12,
};

pub(super) struct World {
    pub(super) clock: FakeClock,
    pub(super) a: Side,
    pub(super) b: Side,
}

impl World {
    /// Two devices and one connected pair of QPs, number 0 on each.
    pub(super) fn new(via: Via) -> Self {
        Self::with(via, |config| config)
    }

    pub(super) fn with(via: Via, change: impl Fn(SoftConfig) -> SoftConfig) -> Self {
        let mut world = Self::unconnected(via, change);
        world.connect(ATTR, ATTR);
        world
    }

    pub(super) fn unconnected(via: Via, change: impl Fn(SoftConfig) -> SoftConfig) -> Self {
        let clock = FakeClock::default();
        let config = |seed| change(clock.config(seed).mem_links(matches!(via, Via::Mem)));
        let a = Side::new(config(1), 4096);
        let b = Side::new(config(2), 4096);
        if matches!(via, Via::Tcp) {
            b.dev.listen(IpAddr::V4(Ipv4Addr::LOCALHOST)).unwrap();
        }
        Self { clock, a, b }
    }

    /// Adds a pair of QPs and connects it as two programs would: b first, then a, who dials.
    pub(super) fn connect(&mut self, of_a: QpAttr, of_b: QpAttr) -> usize {
        let index = self.a.add_qp();
        assert_eq!(self.b.add_qp(), index);
        self.join(index, index, of_a, of_b);
        index
    }

    pub(super) fn join(&mut self, a: usize, b: usize, of_a: QpAttr, of_b: QpAttr) {
        let (qa, qb) = (&mut self.a.qps[a], &mut self.b.qps[b]);
        let at_a = qa.address(Psn::new(0x00ff_fffe)).unwrap();
        let at_b = qb.address(Psn::new(7)).unwrap();
        qb.to_rtr(&at_a, &of_b).unwrap();
        qb.to_rts(&of_b).unwrap();
        qa.to_rtr(&at_b, &of_a).unwrap();
        qa.to_rts(&of_a).unwrap();
    }

    /// Polls both until each has so many completions; panics when patience ends.
    pub(super) fn until(&mut self, of_a: usize, of_b: usize) {
        self.until_that(|world| world.a.got.len() >= of_a && world.b.got.len() >= of_b);
    }

    pub(super) fn until_that(&mut self, mut done: impl FnMut(&mut Self) -> bool) {
        let begun = Instant::now();
        while !done(self) {
            if self.a.poll() + self.b.poll() == 0 {
                std::thread::yield_now();
            }
            let (a, b) = (self.a.got.len(), self.b.got.len());
            assert!(begun.elapsed() < patience(), "stuck with {a} and {b} completions");
        }
    }

    /// Polls both until nothing moves any more (over a link in memory; TCP has no such moment).
    pub(super) fn settle(&mut self) {
        for _ in 0..32 {
            self.a.poll();
            self.b.poll();
        }
    }
}

pub(super) fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at as u8).wrapping_mul(31).wrapping_add((at >> 8) as u8) ^ seed).collect()
}

pub(super) const NO_LKEY: Lkey = Lkey(0);
