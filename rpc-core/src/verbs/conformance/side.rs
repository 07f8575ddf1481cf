use crate::verbs::soft::test_memory::Memory;
use crate::verbs::{
    Access, AsyncEvent, Cq, Device, Mr, Mw, Qp, QpInit, RecvBatch, RemoteRange, Rkey, SendBatch,
    SendFlags, Sge, Srq, SrqInit, Wc, WcStatus,
};

pub(in crate::verbs) const SIGNALED: SendFlags = SendFlags::SIGNALED;

/// Requests a send queue is made for. A device may make it larger.
pub(in crate::verbs) const SEND_WRS: u32 = 64;

/// Receives an SRQ is made for. A device may make it larger.
pub(in crate::verbs) const SRQ_WRS: u32 = 256;

/// Bytes that a QP is made to take inline.
pub(in crate::verbs) const INLINE_BYTES: u32 = 64;

/// Where the message of [`Side::send`] is put.
const OUTBOX: u64 = 64 << 10;

/// One device with what a test needs of it. Fields are dropped in an order that verbs allow, windows
/// first: some devices wait long for one that is bound to a QP which is to go.
pub(in crate::verbs) struct Side<D: Device> {
    pub(in crate::verbs) mws: Vec<D::Mw>,
    pub(in crate::verbs) qps: Vec<D::Qp>,
    pub(in crate::verbs) srq: D::Srq,
    pub(in crate::verbs) cq: D::Cq,
    /// Over all of `memory`, as payload memory is registered: no remote access.
    pub(in crate::verbs) mr: D::Mr,
    pub(in crate::verbs) memory: Memory,
    pub(in crate::verbs) pd: D::Pd,
    pub(in crate::verbs) dev: D,
    /// Completions polled and not looked at.
    pub(in crate::verbs) got: Vec<Wc>,
}

impl<D: Device> Side<D> {
    pub(in crate::verbs) fn new(dev: D, cqe: u32, bytes: usize) -> Self {
        let pd = dev.alloc_pd().unwrap();
        let memory = Memory::new(bytes);
        let access = Access::LOCAL_WRITE.and(Access::MW_BIND);
        let mr = dev.register(&pd, memory.region(), access).unwrap();
        let cq = dev.create_cq(cqe).unwrap();
        let srq = dev.create_srq(&pd, SrqInit { wr_max: SRQ_WRS, sge_max: 4 }).unwrap();
        Self { mws: Vec::new(), qps: Vec::new(), srq, cq, mr, memory, pd, dev, got: Vec::new() }
    }

    pub(in crate::verbs) fn add_qp(&mut self, pd: &D::Pd, remote_read: bool) {
        let (cq, srq) = (self.dev.cq_ref(&self.cq), self.dev.srq_ref(&self.srq));
        let qp = self.dev.create_qp(&QpInit {
            pd,
            send_cq: &cq,
            recv_cq: &cq,
            srq: &srq,
            send_wr_max: SEND_WRS,
            send_sge_max: 4,
            inline_bytes_max: INLINE_BYTES,
            remote_read,
        });
        self.qps.push(qp.unwrap());
    }

    pub(in crate::verbs) fn sge(&self, offset: u64, len: u32) -> Sge {
        Sge::new(self.memory.addr(offset), len, self.mr.lkey())
    }

    pub(in crate::verbs) fn remote(&self, offset: u64, rkey: Rkey) -> RemoteRange {
        RemoteRange { addr: self.memory.addr(offset), rkey }
    }

    pub(in crate::verbs) fn post_recv(&mut self, wr_id: u64, offset: u64, len: u32) {
        let sge = self.sge(offset, len);
        self.post_recv_into(wr_id, sge);
    }

    pub(in crate::verbs) fn post_recv_into(&mut self, wr_id: u64, sge: Sge) {
        let mut batch = self.srq.batch();
        batch.recv(wr_id, &[sge]).unwrap();
        batch.post().unwrap();
    }

    pub(in crate::verbs) fn send(&mut self, qp: usize, wr_id: u64, data: &[u8]) {
        self.memory.put(OUTBOX, data);
        let sge = self.sge(OUTBOX, data.len() as u32);
        let mut batch = self.qps[qp].batch();
        batch.send(wr_id, &[sge], SIGNALED).unwrap();
        batch.post().unwrap();
    }

    pub(in crate::verbs) fn send_with_inv(&mut self, wr_id: u64, key: Rkey) {
        let sge = self.sge(0, 3);
        let mut batch = self.qps[0].batch();
        batch.send_with_inv(wr_id, &[sge], key, SIGNALED).unwrap();
        batch.post().unwrap();
    }

    pub(in crate::verbs) fn read(&mut self, wr_id: u64, to: Sge, remote: RemoteRange) {
        let mut batch = self.qps[0].batch();
        batch.read(wr_id, &[to], remote, SIGNALED).unwrap();
        batch.post().unwrap();
    }

    /// Binds a new window over a part of the memory; returns its key.
    pub(in crate::verbs) fn bind(&mut self, qp: usize, wr_id: u64, offset: u64, len: u32) -> Rkey {
        self.mws.push(self.dev.alloc_mw(&self.pd).unwrap());
        self.bind_again(qp, wr_id, offset, len)
    }

    /// Binds the newest window once more.
    pub(in crate::verbs) fn bind_again(
        &mut self,
        qp: usize,
        wr_id: u64,
        offset: u64,
        len: u32,
    ) -> Rkey {
        let range = self.sge(offset, len);
        let mw = self.mws.last_mut().unwrap();
        let mut batch = self.qps[qp].batch();
        batch.bind(wr_id, mw, &self.mr, range, SIGNALED).unwrap();
        batch.post().unwrap();
        mw.rkey()
    }

    pub(in crate::verbs) fn local_inv(&mut self, qp: usize, wr_id: u64, key: Rkey) {
        let mut batch = self.qps[qp].batch();
        batch.local_inv(wr_id, key, SIGNALED).unwrap();
        batch.post().unwrap();
    }

    /// Polls once; returns how many completions came.
    pub(in crate::verbs) fn poll(&mut self) -> usize {
        let mut wcs = [Wc::default(); 16];
        let count = self.cq.poll(&mut wcs).unwrap();
        self.got.extend_from_slice(&wcs[..count]);
        count
    }

    /// Takes the completions so far, as (wr_id, failure).
    pub(in crate::verbs) fn take(&mut self) -> Vec<(u64, Option<WcStatus>)> {
        let short = |wc: Wc| (wc.wr_id(), wc.outcome().err().map(|failure| failure.status));
        std::mem::take(&mut self.got).into_iter().map(short).collect()
    }

    /// Takes the asynchronous events that wait.
    pub(in crate::verbs) fn events(&self) -> Vec<AsyncEvent> {
        std::iter::from_fn(|| self.dev.poll_async()).collect()
    }
}

/// A success of `wr_id`.
pub(in crate::verbs) const fn ok(wr_id: u64) -> (u64, Option<WcStatus>) {
    (wr_id, None)
}

/// A failure of `wr_id`.
pub(in crate::verbs) const fn failed(wr_id: u64, status: WcStatus) -> (u64, Option<WcStatus>) {
    (wr_id, Some(status))
}

/// Bytes that differ from their neighbours and from those of another seed.
pub(in crate::verbs) fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at as u8).wrapping_mul(31).wrapping_add((at >> 8) as u8) ^ seed).collect()
}
