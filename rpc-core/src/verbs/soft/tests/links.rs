use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use super::super::tx::TX_BYTES_MAX;
use super::fixture::*;
use crate::verbs::{Device, Link, Psn, Qp, QpAddress, QpAttr, SendBatch, SendFlags};

#[test]
fn one_link_carries_all_qps_of_a_pair() {
    for via in BOTH {
        let mut world = World::unconnected(via, |config| config);
        const QPS: usize = 200;
        for index in 0..QPS {
            world.connect(ATTR, ATTR);
            world.b.post_recv(index as u64, index as u64 * 64, 64);
        }
        for index in 0..QPS {
            world.a.send(index, index as u64, &(index as u64).to_le_bytes());
        }
        world.until(QPS, QPS);
        assert_eq!((world.a.dev.usage().links, world.b.dev.usage().links), (1, 1));
        let nums: Vec<_> = world.b.qps.iter().map(Qp::num).collect();
        for wc in std::mem::take(&mut world.b.got) {
            // Each message came on its own QP.
            let data = world.b.memory.get(wc.wr_id() * 64, 8);
            let index = u64::from_le_bytes(data.try_into().unwrap()) as usize;
            assert_eq!(wc.qp_num(), nums[index]);
        }
        assert_eq!(world.a.take().len(), QPS);
    }
}

#[test]
fn device_talks_to_itself() {
    let clock = FakeClock::default();
    let mut side = Side::new(clock.config(1), 64);
    let (a, b) = (side.add_qp(), side.add_qp());
    let (at_a, at_b) = (side.qps[a].address(Psn(1)).unwrap(), side.qps[b].address(Psn(2)).unwrap());
    side.qps[b].to_rtr(&at_a, &ATTR).unwrap();
    side.qps[b].to_rts(&ATTR).unwrap();
    side.qps[a].to_rtr(&at_b, &ATTR).unwrap();
    side.qps[a].to_rts(&ATTR).unwrap();
    let data = pattern(300_000, 4);
    side.memory.put(0, &data);
    let key = side.bind(b, 1, 0, 300_000);
    side.post_recv(2, 400_000, 64);
    side.send(a, 3, b"to myself");
    let (to, from) = (side.sge(600_000, 300_000), side.remote(0, key));
    side.read(a, 4, to, from);
    for _ in 0..64 {
        side.poll();
    }
    assert_eq!(side.take(), [ok(1), ok(2), ok(3), ok(4)]);
    assert!(side.memory.get(600_000, 300_000) == data);
    assert_eq!(side.memory.get(400_000, 9), b"to myself");
    assert_eq!(side.dev.usage().links, 1);
}

#[test]
fn dialling_where_nobody_listens_is_an_error_with_its_cause() {
    let mut world = World::unconnected(Via::Tcp, |config| config);
    world.a.add_qp();
    world.b.add_qp();
    let at_b = world.b.qps[0].address(Psn(1)).unwrap();
    let port = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let Link::Soft { guid, .. } = at_b.link else { panic!("no soft link") };
    let nobody = QpAddress { link: Link::Soft { guid, dial: Some(port) }, ..at_b };
    let error = world.a.qps[0].to_rtr(&nobody, &ATTR).unwrap_err();
    assert!(error.to_string().contains("dialling"), "{error}");
}

#[test]
fn unspecified_address_cannot_be_listened_on() {
    let side = Side::new(FakeClock::default().config(1), 16);
    let error = side.dev.listen(IpAddr::V4(Ipv4Addr::UNSPECIFIED)).unwrap_err();
    assert!(error.to_string().contains("dial"), "{error}");
    let first = side.dev.listen(IpAddr::V4(Ipv4Addr::LOCALHOST)).unwrap();
    assert_eq!(side.dev.listen(IpAddr::V4(Ipv4Addr::LOCALHOST)).unwrap(), first);
}

/// READs `total` bytes in `chunk`s, keeping some in flight; checks each against the source.
fn read_all(a: &mut Side, from: crate::verbs::RemoteRange, source: &[u8], chunk: u32, rounds: u64) {
    const FLIGHT: u64 = 4;
    let (mut posted, mut done) = (0, 0);
    while done < rounds {
        while posted < rounds && posted - done < FLIGHT {
            let to = a.sge((posted % FLIGHT) * u64::from(chunk), chunk);
            a.read(0, posted, to, from);
            posted += 1;
        }
        if a.poll() == 0 {
            std::thread::yield_now();
        }
        for (wr_id, status) in a.take() {
            assert_eq!((wr_id, status), (done, None));
            let at = (wr_id % FLIGHT) * u64::from(chunk);
            assert!(a.memory.get(at, chunk.into()) == source, "READ {wr_id}");
            a.memory.put(at, &[0; 16]);
            done += 1;
        }
    }
}

#[test]
fn a_hundred_megabytes_cross_intact_between_two_threads() {
    for via in BOTH {
        const CHUNK: u32 = 200_001;
        let World { clock: _clock, mut a, mut b } = World::new(via);
        let source = pattern(CHUNK as usize, 8);
        b.memory.put(0, &source);
        let key = b.bind(0, 1, 0, CHUNK);
        let from = b.remote(0, key);
        let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let served = std::thread::spawn({
            let stop = std::sync::Arc::clone(&stop);
            move || {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    if b.poll() == 0 {
                        std::thread::yield_now();
                    }
                }
                b.dev.counters()
            }
        });
        read_all(&mut a, from, &source, CHUNK, 500);
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(served.join().unwrap().read_bytes_served, 500 * u64::from(CHUNK));
    }
}

#[test]
fn reader_that_stalls_costs_its_peer_a_bounded_buffer() {
    let mut world = World::unconnected(Via::Tcp, |config| config);
    // Many large READs of many QPs, and a reader that does not poll.
    const QPS: u64 = 16;
    let mut keys = Vec::new();
    for index in 0..QPS as usize {
        let attr = QpAttr { max_rd_atomic: 16, max_dest_rd_atomic: 16, ..ATTR };
        world.connect(attr, attr);
        keys.push(world.b.bind(index, 1000, 0, MEMORY as u32));
    }
    world.until(0, QPS as usize);
    world.b.take();
    for (index, key) in keys.into_iter().enumerate() {
        let (to, from) = (world.a.sge(0, MEMORY as u32), world.b.remote(0, key));
        let mut batch = world.a.qps[index].batch();
        for wr_id in 0..16 {
            batch.read(wr_id, &[to], from, SIGNALED).unwrap();
        }
        batch.post().unwrap();
    }
    let mut before = u64::MAX;
    let mut still = 0;
    // Until nothing moves any more.
    while still < 1000 {
        world.b.poll();
        let served = world.b.dev.counters().read_bytes_served;
        still = if served == before { still + 1 } else { 0 };
        before = served;
    }
    assert!(before < QPS * 16 * MEMORY as u64, "the link took everything; nothing stalled");
    let waiting = world.b.dev.waiting_bytes();
    assert!(waiting <= TX_BYTES_MAX + (64 << 10), "{waiting} bytes wait");
    // It goes on when the reader does.
    world.until(QPS as usize * 16, 0);
    assert!(world.a.take().iter().all(|(_, status)| status.is_none()));
}

#[test]
fn bulk_of_one_qp_does_not_stop_the_calls_of_another() {
    let mut world = World::with(Via::Mem, |config| config);
    let other = world.connect(ATTR, ATTR);
    let key = world.b.bind(0, 1, 0, MEMORY as u32);
    world.settle();
    world.b.take();
    let (to, from) = (world.a.sge(0, MEMORY as u32), world.b.remote(0, key));
    world.a.read(0, 1, to, from);
    world.b.post_recv(9, 900_000, 64);
    world.a.send(other, 2, b"call");
    world.b.poll();
    assert_eq!(world.b.take(), [ok(9)], "the call came with the first poll");
    world.until(2, 0);
    // And was acknowledged before the bulk was through.
    assert_eq!(world.a.take(), [ok(2), ok(1)]);
}

#[test]
fn both_ends_see_how_much_a_read_moves() {
    for via in [Via::Mem, Via::Tcp] {
        let mut world = World::new(via);
        let key = world.b.bind(0, 1, 0, MEMORY as u32);
        world.settle();
        let moved = |world: &World| [&world.a, &world.b].map(|side| side.qps[0].moved_bytes());
        let before = moved(&world);
        let (to, from) = (world.a.sge(0, MEMORY as u32), world.b.remote(0, key));
        world.a.read(0, 2, to, from);
        world.until(1, 1);
        let grown: Vec<_> = moved(&world).iter().zip(before).map(|(now, was)| now - was).collect();
        // The bytes and their headers: the side that is read has nothing else that tells it.
        let (least, most) = (MEMORY as u64, MEMORY as u64 + (64 << 10));
        assert!(grown.iter().all(|grown| (least..most).contains(grown)), "{grown:?}");
    }
}

#[test]
fn unsignaled_messages_are_acknowledged_by_the_traffic_that_follows() {
    let mut world = World::new(Via::Mem);
    for round in 0..1000 {
        world.b.post_recv(1, 0, 64);
        let sge = world.a.sge(0, 4);
        let flags = if round % 32 == 31 { SIGNALED } else { SendFlags::NONE };
        let mut batch = world.a.qps[0].batch();
        batch.send(2, &[sge], flags).unwrap();
        batch.post().unwrap();
        world.settle();
        let expected = if round % 32 == 31 { vec![ok(2)] } else { vec![] };
        assert_eq!((world.a.take(), world.b.take()), (expected, vec![ok(1)]));
    }
    world.clock.pass(Duration::from_secs(1));
    world.settle();
    assert_eq!(world.a.take(), []);
}
