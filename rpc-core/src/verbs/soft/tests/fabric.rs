//! The software device as a fabric of the conformance suite: over each link, and with itself.

use std::marker::PhantomData;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use super::super::SoftDevice;
use super::fixture::{FakeClock, broken_rule};
use crate::verbs::conformance::{Fabric, Kind, conformance, every_test};

/// Two software devices, or one, and the clock of both.
pub(in crate::verbs) struct Soft<Link> {
    clock: FakeClock,
    link: PhantomData<Link>,
}

/// How two devices reach each other.
pub(in crate::verbs) trait Joined: 'static {
    fn open(clock: &FakeClock) -> (SoftDevice, SoftDevice);
}

fn device(clock: &FakeClock, seed: u64, mem_links: bool) -> SoftDevice {
    let config = clock.config(seed).mem_links(mem_links).piece_bytes(16 << 10);
    let dev = SoftDevice::open(config.link_loss_delay(Duration::from_millis(50))).unwrap();
    if let Some(rule) = broken_rule() {
        dev.break_rule(rule);
    }
    dev
}

/// Through memory.
pub(in crate::verbs) struct Mem;
impl Joined for Mem {
    fn open(clock: &FakeClock) -> (SoftDevice, SoftDevice) {
        (device(clock, 1, true), device(clock, 2, true))
    }
}

/// Through a TCP connection; the second listens.
pub(in crate::verbs) struct Tcp;
impl Joined for Tcp {
    fn open(clock: &FakeClock) -> (SoftDevice, SoftDevice) {
        let (a, b) = (device(clock, 1, false), device(clock, 2, false));
        b.listen(IpAddr::V4(Ipv4Addr::LOCALHOST)).unwrap();
        (a, b)
    }
}

/// Both are one device.
pub(in crate::verbs) struct Itself;
impl Joined for Itself {
    fn open(clock: &FakeClock) -> (SoftDevice, SoftDevice) {
        let dev = device(clock, 1, true);
        (dev.clone(), dev)
    }
}

impl<Link: Joined> Fabric for Soft<Link> {
    type Device = SoftDevice;
    const KIND: Kind = Kind::Soft;

    fn open() -> (Self, SoftDevice, SoftDevice) {
        let clock = FakeClock::default();
        let (a, b) = Link::open(&clock);
        (Self { clock, link: PhantomData }, a, b)
    }

    fn pause(&self) {
        self.clock.pass(Duration::from_micros(200));
        std::thread::yield_now();
    }

    /// What must come takes its time on a busy machine, above all over TCP; where a rule is broken
    /// it will not come.
    fn gives_up(&self, pauses: u32, begun: Instant) -> bool {
        let (pauses_max, wait) = match broken_rule() {
            None => (50_000, Duration::from_secs(30)),
            Some(_) => (10_000, Duration::from_millis(200)),
        };
        pauses > pauses_max && begun.elapsed() > wait
    }
}

/// Named for the list of tests, which asks for paths from the crate's root.
pub(in crate::verbs) type SoftMem = Soft<Mem>;
pub(in crate::verbs) type SoftTcp = Soft<Tcp>;
pub(in crate::verbs) type SoftSelf = Soft<Itself>;

every_test!(conformance { conformance_soft_mem, crate::verbs::soft::tests::fabric::SoftMem });
every_test!(conformance { conformance_soft_tcp, crate::verbs::soft::tests::fabric::SoftTcp });
every_test!(conformance { conformance_soft_self, crate::verbs::soft::tests::fabric::SoftSelf });
