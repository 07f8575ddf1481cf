//! What a person is told when there is no device to be had.

use std::fs::{self, Permissions};
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, setrlimit};

use super::child::{is_child, run_as_nobody};
use crate::verbs::ibv::{IbvConfig, IbvDevice, Survey};
use crate::verbs::soft::test_memory::Memory;
use crate::verbs::{Access, AsyncEvent, Device, GidType, OpenError, VerbsError};

const FILE: &str = "/dev/infiniband/uverbs0";

fn open(config: &IbvConfig) -> IbvDevice {
    IbvDevice::open(config).unwrap_or_else(|error| panic!("{error}"))
}

fn refused(config: &IbvConfig) -> VerbsError {
    IbvDevice::open(config).err().unwrap()
}

#[test]
fn a_machine_without_rdma_is_told_apart_from_one_without_a_device() {
    let opened = IbvDevice::open(&IbvConfig::new());
    if Path::new("/sys/class/infiniband_verbs/abi_version").exists() {
        assert!(!matches!(opened, Err(VerbsError::Open(OpenError::NoRdma))));
        return;
    }
    let error = opened.err().unwrap();
    assert!(matches!(error, VerbsError::Open(OpenError::NoRdma)), "{error:?}");
    assert!(error.to_string().contains("modprobe ib_uverbs"), "{error}");
}

#[test]
#[ignore = "needs soft-RoCE: tests/rxe runs it in its guest"]
fn what_is_asked_for_and_not_there_is_named_with_what_is() {
    let name = open(&IbvConfig::new()).name().to_owned();
    let cases = [
        (IbvConfig::new().device("mlx9_9"), format!("\"mlx9_9\"; there are: {name}")),
        (IbvConfig::new().port(9), "no port 9; it has 1".to_owned()),
        (IbvConfig::new().gid_index(200), "no GID for index 200".to_owned()),
        (IbvConfig::new().pkey_index(60_000), "no PKey at index 60000".to_owned()),
        (
            IbvConfig::new().local_ip("192.0.2.77".parse().unwrap()),
            "no GID for 192.0.2.77".to_owned(),
        ),
    ];
    for (config, part) in cases {
        let error = refused(&config).to_string();
        assert!(error.contains(&part), "{error}");
    }
}

#[test]
#[ignore = "needs soft-RoCE: tests/rxe runs it in its guest"]
fn the_gid_is_that_of_the_local_address() {
    let device = open(&IbvConfig::new());
    let (index, gid, kind) = device.gid();
    assert!(gid.ip().is_ipv4() && kind == GidType::RoceV2, "{index} {gid} {kind:?}");
    assert_eq!(open(&IbvConfig::new().local_ip(gid.ip())).gid(), device.gid());
    let (loopback, other): (IbvAddr, IbvAddr) = ("127.0.0.1", "192.0.2.77");
    let at = |device: &IbvDevice, ip: IbvAddr| device.at(ip.parse::<IpAddr>().unwrap());
    assert_eq!(at(&device, loopback).unwrap().gid(), device.gid());
    let error = at(&device, other).err().unwrap();
    assert!(matches!(error, VerbsError::Open(OpenError::NoGid { .. })), "{error}");
    // Whoever names the device reaches the peer's control port over another.
    let named = open(&IbvConfig::new().device(device.name()));
    assert_eq!(at(&named, other).unwrap().gid(), device.gid());
    // The entry itself can be named.
    let indexed = open(&IbvConfig::new().gid_index(index));
    assert_eq!(at(&indexed, other).unwrap().gid(), device.gid());
}

type IbvAddr = &'static str;

#[test]
#[ignore = "needs soft-RoCE: tests/rxe runs it in its guest"]
fn soft_roce_is_told_by_its_limits() {
    let device = open(&IbvConfig::new());
    let limits = device.limits();
    assert!(device.is_soft_roce() && limits.windows && !limits.remote_invalidate, "{limits:?}");
    assert!(limits.inline_bytes_max >= 64 && limits.max_rd_atomic == 16, "{limits:?}");
    assert!([1024, 2048, 4096].contains(&limits.mtu), "{limits:?}");
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert!(!kernel.starts_with("6.1.") || !limits.last_wqe_event, "{kernel}");
    assert_eq!(device.usage(), Default::default(), "what was tried at opening is gone");
}

/// Brings the network interface under the device's port up or down.
fn set_link(device: &IbvDevice, state: &str) {
    let (name, (index, ..)) = (device.name(), device.gid());
    let ndev = format!("/sys/class/infiniband/{name}/ports/1/gid_attrs/ndevs/{index}");
    let interface = fs::read_to_string(ndev).unwrap();
    let done = Command::new("ip").args(["link", "set", interface.trim(), state]).status().unwrap();
    assert!(done.success());
}

fn until_event(device: &IbvDevice, wanted: AsyncEvent) {
    let begun = Instant::now();
    while device.poll_async() != Some(wanted) {
        assert!(begun.elapsed() < Duration::from_secs(30), "no {wanted:?}");
        std::thread::yield_now();
    }
}

#[test]
#[ignore = "needs soft-RoCE: tests/rxe runs it in its guest"]
fn a_port_that_goes_down_is_told_to_who_has_it_and_to_who_wants_it() {
    let device = open(&IbvConfig::new());
    set_link(&device, "down");
    until_event(&device, AsyncEvent::PortError(1));
    let error = IbvDevice::open(&IbvConfig::new()).err();
    set_link(&device, "up");
    until_event(&device, AsyncEvent::PortActive(1));
    open(&IbvConfig::new());
    let error = error.unwrap();
    assert!(matches!(error, VerbsError::Open(OpenError::PortDown { .. })), "{error}");
    assert!(error.to_string().contains("its state is down"), "{error}");
}

#[test]
#[ignore = "needs soft-RoCE and root: tests/rxe runs it in its guest"]
fn who_may_not_open_the_device_file_is_told_so() {
    if is_child() {
        let error = refused(&IbvConfig::new());
        assert!(matches!(error, VerbsError::Open(OpenError::NoPermission { .. })), "{error}");
        return;
    }
    let before = fs::metadata(FILE).unwrap().permissions();
    fs::set_permissions(FILE, Permissions::from_mode(0o600)).unwrap();
    let result = std::panic::catch_unwind(|| {
        run_as_nobody("verbs::ibv::tests::open::who_may_not_open_the_device_file_is_told_so");
    });
    fs::set_permissions(FILE, before).unwrap();
    result.unwrap();
}

#[test]
#[ignore = "needs soft-RoCE and root: tests/rxe runs it in its guest"]
fn a_device_file_that_is_missing_is_told_so() {
    // As in a container that was given the system's files but not the device's.
    let away = format!("{FILE}.away");
    fs::rename(FILE, &away).unwrap();
    let error = std::panic::catch_unwind(|| refused(&IbvConfig::new()));
    fs::rename(&away, FILE).unwrap();
    let error = error.unwrap();
    assert!(matches!(error, VerbsError::Open(OpenError::NoDeviceFile { .. })), "{error}");
}

#[test]
#[ignore = "needs soft-RoCE and root: tests/rxe runs it in its guest"]
fn a_limit_on_locked_memory_is_named_with_its_value() {
    const LIMIT: u64 = 64 << 10;
    if !is_child() {
        return run_as_nobody(
            "verbs::ibv::tests::open::a_limit_on_locked_memory_is_named_with_its_value",
        );
    }
    setrlimit(Resource::Memlock, Rlimit { current: Some(LIMIT), maximum: Some(LIMIT) }).unwrap();
    let device = open(&IbvConfig::new());
    let pd = device.alloc_pd().unwrap();
    let (small, large) = (Memory::new(16 << 10), Memory::new(1 << 20));
    device.register(&pd, small.region(), Access::LOCAL_WRITE).unwrap();
    let error = device.register(&pd, large.region(), Access::LOCAL_WRITE).err().unwrap();
    let VerbsError::MemoryLock { bytes, limit } = error else { panic!("{error:?}") };
    assert_eq!((bytes, limit), (1 << 20, LIMIT));
    assert!(error.to_string().contains("65536 bytes; raise it"), "{error}");
    assert_eq!(device.usage().mrs, 0);
}

#[test]
#[ignore = "needs soft-RoCE: tests/rxe runs it in its guest"]
fn a_survey_says_what_a_device_can_do_and_leaves_it_closed() {
    let device = open(&IbvConfig::new());
    let (survey, limits) = (Survey::of(device.name()).unwrap(), device.limits());
    assert_eq!(
        (survey.qp_wrs, survey.cqes, survey.srq_wrs, survey.inline_bytes),
        (limits.qp_wr_max, limits.cqe_max, limits.srq_wr_max, limits.inline_bytes_max)
    );
    // Of what a device offers, a queue pair takes a part.
    assert!(survey.reads_asked >= limits.max_rd_atomic.into());
    assert!(survey.reads_answered >= limits.max_dest_rd_atomic.into());
    assert!(survey.windows_usable && survey.windows > 0 && survey.window_types.contains('2'));
    assert!(survey.ports.iter().any(|port| port.mtu == limits.mtu && port.mtu <= port.mtu_max));
    let none = Survey::of("none9").unwrap_err();
    assert!(matches!(none, VerbsError::Open(OpenError::NoProvider { .. })), "{none}");
}
