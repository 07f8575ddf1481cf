//! What comes in over a link to the software device: its hello, then packets for a queue pair.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rpc_core::Time;
use rpc_core::mem::{EagerConfig, EagerSlab, EagerSlot};
use rpc_core::verbs::soft::{SoftConfig, SoftCq, SoftDevice, SoftMr, SoftQp, SoftSrq};
use rpc_core::verbs::{
    Access, Cq, Device, Link, Mr, Psn, Qp, QpAddress, QpAttr, QpInit, QpNum, QpState, RecvBatch,
    RemoteRange, Rkey, SendBatch, SendFlags, Srq, SrqInit, Wc,
};

use crate::heap;
use crate::recipe::Recipe;

/// What a device takes while it reads what a peer sends: nothing on the word of a packet's length.
const HEAP_BYTES_MAX: u64 = 256 << 10;

/// Bytes of a buffer.
const SLOT_BYTES: u32 = 4096;
/// Buffers, and those of them that are never posted: nobody may write those.
const SLOTS: u32 = 8;
const UNTOUCHED: usize = 2;
const PATTERN: u8 = 0x5a;

/// How long the device may take to close a link whose peer has said everything.
const PATIENCE: Duration = Duration::from_secs(20);

const PEER_GUID: u64 = 0x1234_5678_9abc_def0;
const PEER_QP: QpNum = QpNum(0x77);
/// The first PSNs, of the peer and of the device.
const PSNS: [u32; 2] = [100, 1];

const ATTR: QpAttr = QpAttr {
    mtu: 4096,
    max_rd_atomic: 4,
    max_dest_rd_atomic: 4,
    timeout: 14,
    retry_cnt: 2,
    rnr_retry: 2,
    min_rnr_timer: 12,
};

pub(crate) fn run(input: &[u8]) {
    let mut r = Recipe::new(input);
    let mut victim = Victim::new();
    for _ in 0..r.below(4) {
        victim.post_receive();
    }
    for _ in 0..r.below(4) {
        victim.post_request(r.flag());
    }
    let bytes = say(&mut r, &victim);
    heap::at_most("reading a link", HEAP_BYTES_MAX, || victim.hear(&bytes));
    victim.end();
}

/// A hello and packets, many of them nearly right.
fn say(r: &mut Recipe<'_>, victim: &Victim) -> Vec<u8> {
    let mut bytes = [&b"softlnk\x01"[..], &PEER_GUID.to_le_bytes()].concat();
    bytes.extend(victim.device.guid().to_le_bytes());
    bytes.extend([0; 8]);
    if r.one_in(16) {
        r.spoil(&mut bytes);
    }
    for _ in 0..r.below(8) {
        if r.one_in(16) {
            bytes.extend(r.some_bytes(100));
            continue;
        }
        let mut packet = packet(r, victim.address.qp_num.0);
        if r.one_in(8) {
            r.spoil(&mut packet);
        }
        bytes.append(&mut packet);
    }
    bytes
}

/// A header of 32 bytes as `verbs/soft/packet.rs` lays it out, and its payload.
fn packet(r: &mut Recipe<'_>, qp: u32) -> Vec<u8> {
    let kind = 1 + r.u8() % 7;
    let may_carry = matches!(kind, 1 | 3);
    let most = if r.one_in(8) { 6000 } else { 100 };
    let len = if may_carry { r.below(most) } else { 0 };
    let flags = match kind {
        1 => r.u8() & 15,
        3 => r.u8() & 2,
        _ => 0,
    };
    let (reason, timer) = if kind == 5 { (1 + r.u8() % 4, 0) } else { (0, 0) };
    let qp = if r.one_in(8) { r.number32() & 0x00ff_ffff } else { qp };
    // Requests go by the peer's numbers, answers by those of the device.
    let first = PSNS[usize::from(matches!(kind, 3..=5))];
    let psn = if r.one_in(8) { r.number32() } else { first + u32::from(r.u8() % 4) } & 0x00ff_ffff;
    let addressed = matches!(kind, 2 | 3 | 6 | 7);
    let address = if addressed && !r.one_in(2) { r.number() } else { 0 };
    let key = if kind == 2 || flags & 8 != 0 { r.number32() } else { 0 };
    let wanted = if kind == 2 { r.number32() } else { 0 };
    let stated = if r.one_in(32) { r.number32() } else { len as u32 };
    let mut packet = vec![kind, flags, reason, timer];
    for field in [qp, psn, stated] {
        packet.extend(field.to_le_bytes());
    }
    packet.extend(address.to_le_bytes());
    packet.extend(key.to_le_bytes());
    packet.extend(wanted.to_le_bytes());
    let value = r.u8();
    packet.resize(32 + len, value);
    packet
}

/// A device with one queue pair that believes its peer to be the one that speaks here.
struct Victim {
    // In the order in which they must go.
    qp: SoftQp,
    srq: SoftSrq,
    cq: SoftCq,
    region: SoftMr,
    device: SoftDevice,
    slab: EagerSlab,
    untouched: Vec<EagerSlot>,
    clock: Arc<AtomicU64>,
    at: SocketAddr,
    address: QpAddress,
    /// Requests and receives that have not completed, by their numbers.
    sends: Vec<u64>,
    receives: Vec<u64>,
    next: u64,
}

impl Victim {
    fn new() -> Self {
        let clock = Arc::new(AtomicU64::new(1));
        let read = Arc::clone(&clock);
        let now = move || Time::from_nanos(read.load(Ordering::Relaxed));
        let config = SoftConfig::new(Arc::new(now)).seed(7).mem_links(false);
        let device = SoftDevice::open(config).expect("a device opens");
        let at = device.listen(IpAddr::V4(Ipv4Addr::LOCALHOST)).expect("a port is free");
        let pd = device.alloc_pd().expect("a protection domain");
        let cq = device.create_cq(64).expect("a completion queue");
        let srq = device.create_srq(&pd, SrqInit { wr_max: 8, sge_max: 1 }).expect("receives");
        let mut qp = device
            .create_qp(&QpInit {
                pd: &pd,
                send_cq: &device.cq_ref(&cq),
                recv_cq: &device.cq_ref(&cq),
                srq: &device.srq_ref(&srq),
                send_wr_max: 8,
                send_sge_max: 1,
                inline_bytes_max: 0,
                remote_read: true,
            })
            .expect("a queue pair");
        let address = qp.address(Psn::new(PSNS[1])).expect("it is in INIT");
        let link = Link::Soft { guid: PEER_GUID, dial: None };
        let peer = QpAddress { qp_num: PEER_QP, psn: Psn::new(PSNS[0]), link, ..address };
        qp.to_rtr(&peer, &ATTR).expect("RTR");
        qp.to_rts(&ATTR).expect("RTS");
        let config = EagerConfig { slot_bytes: SLOT_BYTES, chunk_slots: SLOTS, slots_max: SLOTS };
        let mut slab = EagerSlab::new(config).expect("buffers");
        let chunk = slab.chunks().next().expect("a slab has a chunk");
        let region =
            device.register(&pd, slab.region(chunk), Access::LOCAL_WRITE).expect("a region");
        let mut untouched: Vec<EagerSlot> = (0..UNTOUCHED).filter_map(|_| slab.alloc()).collect();
        untouched.iter_mut().for_each(|slot| slab.bytes_mut(slot).fill(PATTERN));
        let (sends, receives) = (Vec::new(), Vec::new());
        Self {
            qp,
            srq,
            cq,
            region,
            device,
            slab,
            untouched,
            clock,
            at,
            address,
            sends,
            receives,
            next: 1,
        }
    }

    /// A request or receive with a buffer of its own.
    fn sge(&mut self) -> Option<(u64, rpc_core::verbs::Sge)> {
        let slot = self.slab.alloc()?;
        let (_, sge) = self.slab.lend(slot, SLOT_BYTES, self.region.lkey());
        self.next += 1;
        Some((self.next, sge))
    }

    fn post_receive(&mut self) {
        let Some((id, sge)) = self.sge() else { return };
        let mut batch = self.srq.batch();
        batch.recv(id, &[sge]).expect("there is room");
        batch.post().expect("there is room");
        self.receives.push(id);
    }

    fn post_request(&mut self, read: bool) {
        let Some((id, sge)) = self.sge() else { return };
        let mut batch = self.qp.batch();
        let remote = RemoteRange { addr: 1 << 20, rkey: Rkey(5) };
        let put = match read {
            true => batch.read(id, &[sge], remote, SendFlags::SIGNALED),
            false => batch.send(id, &[sge], SendFlags::SIGNALED),
        };
        put.expect("there is room");
        batch.post().expect("there is room");
        self.sends.push(id);
    }

    /// Reads all that a peer sends, until it closes the link.
    fn hear(&mut self, bytes: &[u8]) {
        let mut stream = TcpStream::connect(self.at).expect("the device listens");
        // The device may close before it has heard everything.
        let _ = stream.write_all(bytes).and_then(|()| stream.shutdown(Shutdown::Write));
        stream.set_nonblocking(true).expect("a socket option");
        let (began, mut answer) = (Instant::now(), [0; 4096]);
        loop {
            self.poll();
            match stream.read(&mut answer) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::yield_now(),
                Err(_) => break,
            }
            assert!(began.elapsed() < PATIENCE, "the device does not close the link");
        }
    }

    /// Lets the device work. What completes was posted, and has not completed before.
    fn poll(&mut self) {
        let mut wcs = [Wc::default(); 16];
        let count = self.cq.poll(&mut wcs).expect("the completion queue is large enough");
        for wc in &wcs[..count] {
            let id = wc.wr_id();
            let list = if self.sends.contains(&id) { &mut self.sends } else { &mut self.receives };
            let at = list.iter().position(|posted| *posted == id);
            list.swap_remove(at.expect("something completes twice, or was never posted"));
            if let Ok(done) = wc.outcome() {
                assert!(done.byte_len <= SLOT_BYTES, "{done:?}");
            }
        }
    }

    /// Ends the queue pair: every request completes then, and nobody has written where nothing was
    /// posted.
    fn end(mut self) {
        // Past every timer of a lost link.
        for _ in 0..4 {
            self.clock.fetch_add(5_000_000_000, Ordering::Relaxed);
            self.poll();
        }
        self.qp.to_err().expect("any queue pair can be ended");
        self.poll();
        assert_eq!(self.qp.state(), QpState::Err);
        assert!(self.sends.is_empty(), "requests never complete: {:?}", self.sends);
        assert_eq!(self.device.usage().links, 0);
        for slot in &self.untouched {
            assert!(self.slab.bytes(slot).iter().all(|byte| *byte == PATTERN), "a stray write");
        }
        drop(self.qp);
        drop((self.srq, self.cq, self.region));
    }
}
