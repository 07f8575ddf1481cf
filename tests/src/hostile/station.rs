use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use rpc_core::Time;
use rpc_core::mem::{EagerConfig, EagerSlab, Pool, PoolConfig, Regions, Registrar, SlotId};
#[cfg(feature = "verbs")]
use rpc_core::verbs::ibv::{IbvConfig, IbvDevice};
use rpc_core::verbs::soft::{SoftConfig, SoftDevice};
use rpc_core::verbs::{
    Cq, Device, Psn, Qp, QpAddress, QpAttr, QpInit, RecvBatch, SendBatch, SendFlags, Srq, SrqInit,
    VerbsError, Wc,
};

use crate::Place;

/// Receives that the attacker keeps posted.
pub(super) const RECEIVES: u32 = 64;
/// SENDs that it may have posted.
const SENDS: u32 = 512;
/// The same in the guest, which is slow to give memory out and to pin it. What a station had stays
/// mapped until its process ends.
const SENDS_IN_GUEST: u32 = 64;
/// Bytes of its buffers: more than the server takes.
pub(super) const SLOT_BYTES: u32 = 32 << 10;

/// Marks the `wr_id` of a receive.
const RECEIVE: u64 = 1 << 60;

/// The attacker's queue pair and what it needs, on a device of its own.
///
/// The device works only while one of these methods runs.
pub(super) trait Station: Send {
    /// Where its queue pair is.
    fn address(&self) -> QpAddress;
    /// RTR and RTS.
    fn rise(&mut self, peer: &QpAddress) -> Result<(), VerbsError>;
    /// Whether the send queue has room for no further SEND.
    fn is_full(&self) -> bool;
    /// Sends these bytes.
    ///
    /// # Errors
    /// If the queue pair takes nothing more.
    fn send(&mut self, bytes: &[u8]) -> Result<(), String>;
    /// What has completed since the last call.
    fn poll(&mut self) -> Vec<Seen>;
}

/// A completion.
pub(super) enum Seen {
    /// A SEND of the server, as it arrived.
    Message(Vec<u8>),
    /// A request that failed.
    Failure(String),
}

/// A station on the device that the tests run on.
///
/// # Panics
/// If this side has no memory, descriptors or device.
pub(super) fn open() -> Box<dyn Station> {
    if Place::here().is_soft() {
        let began = Instant::now();
        let clock = move || Time::from_nanos(began.elapsed().as_nanos() as u64);
        let config = SoftConfig::new(Arc::new(clock)).mem_links(false).name("hostile");
        return Box::new(OnDevice::new(SoftDevice::open(config).expect("a device opens")));
    }
    open_rdma()
}

#[cfg(feature = "verbs")]
fn open_rdma() -> Box<dyn Station> {
    let config = IbvConfig::new().local_ip(Place::here().host());
    Box::new(OnDevice::new(IbvDevice::open(&config).expect("a device opens")))
}

#[cfg(not(feature = "verbs"))]
fn open_rdma() -> Box<dyn Station> {
    panic!("peers over rdma:// need the feature `verbs` of rpc-tests")
}

/// A station on one kind of device.
struct OnDevice<D: Device> {
    // In the order in which they must go.
    qp: D::Qp,
    srq: D::Srq,
    cq: D::Cq,
    registrar: Registrar<D>,
    slab: EagerSlab,
    posted: HashMap<u64, SlotId>,
    sends_max: u32,
}

impl<D: Device> OnDevice<D> {
    fn new(device: D) -> Self {
        let sends_max = if Place::here().is_soft() { SENDS } else { SENDS_IN_GUEST };
        let pd = device.alloc_pd().expect("a protection domain");
        let cq = device.create_cq(4096).expect("a completion queue");
        let init = SrqInit { wr_max: RECEIVES, sge_max: 1 };
        let srq = device.create_srq(&pd, init).expect("a receive queue");
        let init = QpInit {
            pd: &pd,
            send_cq: &device.cq_ref(&cq),
            recv_cq: &device.cq_ref(&cq),
            srq: &device.srq_ref(&srq),
            send_wr_max: sends_max,
            send_sge_max: 1,
            inline_bytes_max: 0,
            remote_read: true,
        };
        let qp = device.create_qp(&init).expect("a queue pair");
        let pool = Pool::new(PoolConfig::new(1 << 20)).expect("a pool");
        let slots = RECEIVES + sends_max;
        let config = EagerConfig { slot_bytes: SLOT_BYTES, chunk_slots: slots, slots_max: slots };
        let slab = EagerSlab::new(config).expect("eager buffers");
        let registrar = Registrar::new(Arc::new(Regions::new(device, pd, pool)));
        let mut station = Self { qp, srq, cq, registrar, slab, posted: HashMap::new(), sends_max };
        (0..RECEIVES).for_each(|_| station.post_receive());
        station
    }

    fn post_receive(&mut self) {
        let token = self.slab.alloc().expect("a slot for each receive");
        let chunk = self.slab.chunk(&token);
        let lkey = self.registrar.eager_lkey(&self.slab, chunk).expect("registered memory");
        let (id, sge) = self.slab.lend(token, SLOT_BYTES, lkey);
        let mut batch = self.srq.batch();
        batch.recv(RECEIVE | number(id), &[sge]).expect("the chain has room");
        batch.post().expect("the queue has room");
    }

    fn received(&mut self, id: SlotId, len: usize) -> Option<Seen> {
        let token = self.slab.reclaim(id)?;
        let bytes = self.slab.bytes(&token)[..len].to_vec();
        self.slab.free(token);
        self.post_receive();
        Some(Seen::Message(bytes))
    }

    fn completed(&mut self, completion: &Wc) -> Option<Seen> {
        let id = completion.wr_id();
        match (id & RECEIVE != 0, completion.outcome()) {
            (true, Ok(done)) => self.received(slot(id), done.byte_len as usize),
            (true, Err(failure)) => Some(Seen::Failure(failure.to_string())),
            (false, outcome) => {
                let slot = self.posted.remove(&id);
                if let Some(token) = slot.and_then(|id| self.slab.reclaim(id)) {
                    self.slab.free(token);
                }
                outcome.err().map(|failure| Seen::Failure(failure.to_string()))
            }
        }
    }
}

impl<D: Device> Station for OnDevice<D> {
    fn address(&self) -> QpAddress {
        self.qp.address(Psn::new(77)).expect("an address")
    }

    fn rise(&mut self, peer: &QpAddress) -> Result<(), VerbsError> {
        let attr = QpAttr {
            mtu: 4096.min(peer.mtu),
            max_rd_atomic: 1,
            max_dest_rd_atomic: 16,
            timeout: 14,
            // Soft-RoCE takes seven for no limit.
            retry_cnt: 6,
            rnr_retry: 7,
            min_rnr_timer: 12,
        };
        self.qp.to_rtr(peer, &attr)?;
        self.qp.to_rts(&attr)
    }

    fn is_full(&self) -> bool {
        self.posted.len() >= self.sends_max as usize
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        let mut slot = self.slab.alloc().expect("a slot for each SEND");
        self.slab.bytes_mut(&mut slot)[..bytes.len()].copy_from_slice(bytes);
        let chunk = self.slab.chunk(&slot);
        let lkey = self.registrar.eager_lkey(&self.slab, chunk).expect("registered memory");
        let (id, sge) = self.slab.lend(slot, bytes.len() as u32, lkey);
        let wr_id = number(id);
        self.posted.insert(wr_id, id);
        let mut batch = self.qp.batch();
        let flags = SendFlags::SIGNALED.and(SendFlags::SOLICITED);
        batch.send(wr_id, &[sge], flags).expect("the chain has room");
        batch.post().map_err(|error| error.to_string())
    }

    fn poll(&mut self) -> Vec<Seen> {
        let mut seen = Vec::new();
        let mut completions = [Wc::default(); 64];
        loop {
            let count = self.cq.poll(&mut completions).expect("the queue is large enough");
            seen.extend(completions[..count].iter().filter_map(|wc| self.completed(wc)));
            if count < completions.len() {
                return seen;
            }
        }
    }
}

/// A `wr_id` of a slot.
fn number(id: SlotId) -> u64 {
    u64::from(id.slot) << 32 | u64::from(id.generation)
}

fn slot(number: u64) -> SlotId {
    SlotId { slot: (number >> 32) as u32 & 0x00ff_ffff, generation: number as u32 }
}
