//! A peer that speaks to a device's TCP port byte by byte, and breaks the rules.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::super::link::Hello;
use super::super::packet::{HEADER_BYTES, Header, Kind, Nak};
use super::fixture::*;
use crate::verbs::{Device, Link, Psn, Qp, QpAddress, QpNum, QpState, Rkey, WcStatus};

/// A device under test with one QP that believes its peer to be a device of this GUID.
struct Victim {
    side: Side,
    clock: FakeClock,
    at: SocketAddr,
    qp: QpAddress,
}

const PEER: u64 = 0x1234_5678_9abc_def0;
const PEER_QP: QpNum = QpNum(0x77);
const PEER_PSN: Psn = Psn(100);

impl Victim {
    fn new() -> Self {
        let clock = FakeClock::default();
        let mut side = Side::new(clock.config(5), 64);
        let at = side.dev.listen(IpAddr::V4(Ipv4Addr::LOCALHOST)).unwrap();
        side.add_qp();
        let qp = side.qps[0].address(Psn(1)).unwrap();
        let peer = QpAddress {
            qp_num: PEER_QP,
            psn: PEER_PSN,
            link: Link::Soft { guid: PEER, dial: None },
            ..qp
        };
        side.qps[0].to_rtr(&peer, &ATTR).unwrap();
        side.qps[0].to_rts(&ATTR).unwrap();
        Self { side, clock, at, qp }
    }

    fn dial(&mut self, from: u64) -> TcpStream {
        let mut stream = TcpStream::connect(self.at).unwrap();
        let hello = Hello { from, to: self.side.dev.guid() };
        stream.write_all(&hello.encode()).unwrap();
        let links = self.side.dev.usage().links;
        self.until(|side| side.dev.usage().links > links);
        stream
    }

    fn until(&mut self, mut done: impl FnMut(&mut Side) -> bool) {
        let begun = Instant::now();
        while !done(&mut self.side) {
            self.side.poll();
            std::thread::yield_now();
            assert!(begun.elapsed() < patience(), "stuck");
        }
    }

    fn header(&self, kind: Kind, psn: u32, payload: u32) -> Header {
        let qp = self.qp.qp_num;
        Header { kind, qp, psn: Psn(psn), payload, ack_wanted: true }
    }
}

const WHOLE: Kind = Kind::Send { first: true, last: true, invalidate: None };

fn packet(header: Header, payload: &[u8]) -> Vec<u8> {
    [&header.encode()[..], payload].concat()
}

#[test]
pub(super) fn packets_out_of_order_are_dropped_and_the_expected_one_is_taken() {
    let mut victim = Victim::new();
    victim.side.post_recv(1, 0, 64);
    victim.side.post_recv(2, 64, 64);
    let mut peer = victim.dial(PEER);
    peer.write_all(&packet(victim.header(WHOLE, 101, 5), b"later")).unwrap();
    victim.until(|side| side.dev.packets_dropped() == 1);
    assert_eq!(victim.side.take(), []);
    peer.write_all(&packet(victim.header(WHOLE, 100, 5), b"first")).unwrap();
    victim.until(|side| !side.got.is_empty());
    assert_eq!(victim.side.take(), [ok(1)]);
    assert_eq!(victim.side.memory.get(0, 5), b"first");
    let mut ack = [0; HEADER_BYTES];
    victim.side.poll();
    peer.read_exact(&mut ack).unwrap();
    let ack = Header::decode(&ack).unwrap();
    assert!(ack == Header::answer(PEER_QP, Psn(100), Kind::Ack));
    // The same again is acknowledged and not taken.
    peer.write_all(&packet(victim.header(WHOLE, 100, 5), b"twice")).unwrap();
    victim.until(|side| side.dev.packets_dropped() == 2);
    assert_eq!(victim.side.take(), []);
    assert_eq!(victim.side.memory.get(0, 5), b"first");
}

#[test]
pub(super) fn packets_of_another_device_than_the_connected_one_are_dropped() {
    let mut victim = Victim::new();
    victim.side.post_recv(1, 0, 64);
    let mut other = victim.dial(PEER ^ 1);
    other.write_all(&packet(victim.header(WHOLE, 100, 4), b"evil")).unwrap();
    victim.until(|side| side.dev.packets_dropped() == 1 || !side.got.is_empty());
    assert_eq!(victim.side.take(), []);
    assert_eq!(victim.side.dev.usage().srq_wrs, 1);
}

#[test]
pub(super) fn requests_wait_for_the_peer_to_dial() {
    let mut victim = Victim::new();
    victim.side.send(0, 1, b"waiting");
    victim.side.poll();
    assert!(crate::verbs::Cq::next_deadline(&victim.side.cq).is_some());
    let mut peer = victim.dial(PEER);
    let mut bytes = [0; HEADER_BYTES + 7];
    victim.side.poll();
    peer.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes[HEADER_BYTES..], b"waiting");
    let ack = Header::answer(victim.qp.qp_num, Psn(1), Kind::Ack);
    peer.write_all(&packet(ack, b"")).unwrap();
    victim.until(|side| !side.got.is_empty());
    assert_eq!(victim.side.take(), [ok(1)]);
}

#[test]
pub(super) fn peer_that_never_dials_is_given_up() {
    let mut victim = Victim::new();
    victim.side.send(0, 1, b"waiting");
    victim.clock.pass(Duration::from_secs(5));
    victim.side.poll();
    assert_eq!(victim.side.take(), [failed(1, WcStatus::RetryExcErr)]);
}

#[test]
pub(super) fn garbage_ends_its_link_and_no_other() {
    let mut victim = Victim::new();
    victim.side.post_recv(1, 0, 64);
    let mut honest = victim.dial(PEER);
    let mut evil = victim.dial(PEER ^ 1);
    assert_eq!(victim.side.dev.usage().links, 2);
    evil.write_all(&[0xff; 4096]).unwrap();
    victim.until(|side| side.dev.usage().links == 1);
    honest.write_all(&packet(victim.header(WHOLE, 100, 4), b"fine")).unwrap();
    victim.until(|side| !side.got.is_empty());
    assert_eq!(victim.side.take(), [ok(1)]);
}

#[test]
pub(super) fn socket_that_says_no_hello_for_this_device_is_closed() {
    let victim = Victim::new();
    let own = victim.side.dev.guid();
    let wrong = [
        Hello { from: PEER, to: own ^ 1 }.encode(),
        Hello { from: own, to: own }.encode(),
        [0x16; 32],
    ];
    let Victim { mut side, at, .. } = victim;
    for hello in wrong {
        let mut stream = TcpStream::connect(at).unwrap();
        stream.write_all(&hello).unwrap();
        stream.set_nonblocking(true).unwrap();
        let begun = Instant::now();
        // The end of the stream, or a reset: closed by the device.
        while matches!(stream.read(&mut [0]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
        {
            side.poll();
            assert!(begun.elapsed() < patience(), "still open");
        }
        assert_eq!(side.dev.usage().links, 0);
    }
}

#[test]
pub(super) fn half_open_sockets_are_bounded_in_number_and_time() {
    let mut victim = Victim::new();
    let sockets: Vec<_> = (0..100).map(|_| TcpStream::connect(victim.at).unwrap()).collect();
    for _ in 0..500 {
        victim.side.poll();
    }
    let open = |victim: &Victim| crate::verbs::Cq::next_deadline(&victim.side.cq).is_some();
    assert!(open(&victim));
    // An honest peer gets through at once.
    let mut honest = victim.dial(PEER);
    victim.side.post_recv(1, 0, 64);
    honest.write_all(&packet(victim.header(WHOLE, 100, 4), b"fine")).unwrap();
    victim.until(|side| !side.got.is_empty());
    victim.clock.pass(Duration::from_secs(5));
    for _ in 0..500 {
        victim.side.poll();
    }
    assert!(!open(&victim));
    drop(sockets);
}

#[test]
pub(super) fn a_link_that_no_qp_uses_makes_room_and_one_in_use_does_not() {
    let mut victim = Victim::new();
    let _strangers: Vec<_> = (100..103).map(|guid| victim.dial(guid)).collect();
    let mut honest = victim.dial(PEER);
    victim.until(|side| side.dev.usage().links == 4);
    for left in [3, 2, 1] {
        assert!(victim.side.dev.drop_idle_link());
        assert_eq!(victim.side.dev.usage().links, left);
    }
    assert!(!victim.side.dev.drop_idle_link());
    victim.side.post_recv(1, 0, 64);
    honest.write_all(&packet(victim.header(WHOLE, 100, 4), b"fine")).unwrap();
    victim.until(|side| !side.got.is_empty());
}

#[test]
pub(super) fn answers_to_nothing_are_dropped() {
    let mut victim = Victim::new();
    let mut peer = victim.dial(PEER);
    let read = Kind::ReadResponse { offset: u64::MAX, last: true };
    for (kind, payload) in [
        (read, 8),
        (Kind::ReadResponse { offset: 0, last: true }, 0),
        (Kind::Ack, 0),
        (Kind::Nak(Nak::Access), 0),
        (Kind::Nak(Nak::Rnr(31)), 0),
    ] {
        let mut header = victim.header(kind, 5, payload);
        header.ack_wanted = false;
        peer.write_all(&packet(header, &vec![1; payload as usize])).unwrap();
    }
    victim.until(|side| side.dev.packets_dropped() >= 5);
    assert_eq!((victim.side.qps[0].state(), victim.side.take()), (QpState::Rts, vec![]));
}

#[test]
pub(super) fn read_answer_that_does_not_fit_its_request_fails_it() {
    let fits = Kind::ReadResponse { offset: 0, last: true };
    let wrong = [
        (fits, 9),
        (fits, 7),
        (Kind::ReadResponse { offset: 0, last: false }, 8),
        (Kind::ReadResponse { offset: 0, last: false }, 0),
        (Kind::ReadResponse { offset: 1, last: true }, 7),
        (Kind::ReadResponse { offset: u64::MAX, last: true }, 8),
    ];
    for (kind, payload) in wrong {
        let mut victim = Victim::new();
        let mut peer = victim.dial(PEER);
        let (to, from) = (victim.side.sge(0, 8), victim.side.remote(0, Rkey(1)));
        victim.side.read(0, 1, to, from);
        let mut header = victim.header(kind, 1, payload);
        header.ack_wanted = false;
        peer.write_all(&packet(header, &vec![1; payload as usize])).unwrap();
        victim.until(|side| !side.got.is_empty());
        assert_eq!(victim.side.take(), [failed(1, WcStatus::BadRespErr)], "{kind:?} {payload}");
        assert_eq!(victim.side.memory.get(0, 16), [0; 16]);
    }
}

/// A peer whose timer ran out while the answers were on the way: it asks for everything again, has
/// its answers then, and goes on.
fn asks_again_and_goes_on(close_between: bool) {
    let mut victim = Victim::new();
    victim.side.memory.put(0, b"source");
    let (mut peer, key) = (victim.dial(PEER), victim.side.bind(0, 3, 0, 6));
    let other = victim.side.bind(0, 4, 0, 6);
    let addr = victim.side.remote(0, key).addr;
    let depth = u32::from(ATTR.max_dest_rd_atomic);
    let read = |victim: &Victim, key: Rkey, psn| {
        packet(victim.header(Kind::ReadRequest { addr, key: key.0, len: 6 }, psn, 0), b"")
    };
    let asked: Vec<u8> = (100..100 + depth).flat_map(|psn| read(&victim, key, psn)).collect();
    peer.write_all(&asked).unwrap();
    victim.until(|side| side.dev.counters().reads_served == u64::from(depth));
    if close_between {
        victim.side.local_inv(0, 5, key);
    }
    let next = read(&victim, other, 100 + depth);
    peer.write_all(&[asked, next].concat()).unwrap();
    peer.set_nonblocking(true).unwrap();
    let (mut answers, mut bytes) = (Vec::new(), [0; 256]);
    let is_last = |answer: &[u8]| {
        let (header, payload) = answer.split_first_chunk().unwrap();
        payload == b"source"
            && Header::decode(header).is_ok_and(|header| header.psn == Psn(100 + depth))
    };
    victim.until(|side| {
        let came = peer.read(&mut bytes).unwrap_or(0);
        answers.extend_from_slice(&bytes[..came]);
        side.qps[0].state() == QpState::Err || answers.chunks_exact(HEADER_BYTES + 6).any(is_last)
    });
    assert_eq!(victim.side.qps[0].state(), QpState::Rts);
}

#[test]
fn read_after_repeated_ones_is_within_the_depth() {
    asks_again_and_goes_on(false);
}

#[test]
fn repeated_read_of_what_was_closed_since_is_dropped() {
    asks_again_and_goes_on(true);
}

#[test]
pub(super) fn message_without_its_beginning_is_refused() {
    let middle = Kind::Send { first: false, last: false, invalidate: None };
    let mut victim = Victim::new();
    victim.side.post_recv(1, 0, 64);
    let mut peer = victim.dial(PEER);
    peer.write_all(&packet(victim.header(middle, 100, 4), b"what")).unwrap();
    victim.until(|side| side.qps[0].state() == QpState::Err);
    assert_eq!(victim.side.take(), []);
    let mut nak = [0; HEADER_BYTES];
    victim.side.poll();
    peer.read_exact(&mut nak).unwrap();
    let nak = Header::decode(&nak).unwrap();
    assert!(nak == Header::answer(PEER_QP, Psn(100), Kind::Nak(Nak::InvalidRequest)));
}

#[test]
pub(super) fn acknowledgement_of_what_was_never_sent_completes_nothing() {
    let mut victim = Victim::new();
    let mut peer = victim.dial(PEER);
    victim.side.send(0, 1, b"x");
    for psn in [2, 1000, 0x00ff_ffff, 0] {
        let ack = Header::answer(victim.qp.qp_num, Psn(psn), Kind::Ack);
        peer.write_all(&packet(ack, b"")).unwrap();
    }
    peer.write_all(&packet(victim.header(WHOLE, 101, 0), b"")).unwrap();
    victim.until(|side| side.dev.packets_dropped() >= 3);
    assert_eq!(victim.side.take(), []);
}
