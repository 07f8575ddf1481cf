use std::fs;
use std::io;

use super::files::Files;
use super::machine::{may_use_node, nodes};
use super::netdev::Netdev;
use super::report::{Report, Severity};
use super::{Wanted, port};
use crate::cm::{RdmaOptions, Scheme};

/// Where the kernel lists its devices, whatever libraries know of them.
const DEVICES: &str = "/sys/class/infiniband";
/// Where it lists the files by which programs reach them.
const DEVICE_FILES: &str = "/sys/class/infiniband_verbs";

/// Looks at every device; how many there are.
pub(super) fn examine(files: &Files, wanted: &Wanted, opens: bool, report: &mut Report) -> usize {
    let options = &wanted.options;
    let devices = files.names(DEVICES);
    if devices.is_empty() {
        report.fact(
            "machine",
            "RDMA devices",
            "none: soft:// is what there is, and auto:// takes it",
        );
        without(files, wanted, report);
    } else {
        report.fact("machine", "RDMA devices", devices.join(", "));
        programs(files, report);
    }
    for name in &devices {
        examine_one(files, name, wanted, opens, report);
    }
    if let Some(wanted) = options.device.as_ref().filter(|wanted| !devices.contains(wanted)) {
        report.problem(
            Severity::Error,
            "address",
            format!("there is no RDMA device {wanted:?}"),
            "the name in ?device= is another machine's, or its driver is not loaded",
            match devices.first() {
                None => format!(
                    "leave ?device= out; {} makes a software one, ?device=rxe0",
                    make_one(files)
                ),
                Some(first) => format!("?device={first}"),
            },
        );
    }
    devices.len()
}

/// There is no device: whether that is what was asked for.
fn without(files: &Files, wanted: &Wanted, report: &mut Report) {
    let module = files.exists("/sys/module/ib_uverbs");
    let cause = if module {
        "the driver of the network card is not loaded, or there is no card for RDMA"
    } else {
        "the kernel's modules of RDMA are not loaded, or there is no card"
    };
    let load = if module {
        "modprobe of the card's driver"
    } else {
        "modprobe ib_uverbs and the card's driver"
    };
    let make = make_one(files);
    let fix = format!("as root: {make} for a software one; or {load}");
    let options_given = wanted.options != RdmaOptions::default();
    match wanted.scheme {
        Scheme::Rdma => report.problem(
            Severity::Error,
            "machine",
            "there is no RDMA device, and the address says rdma://",
            cause,
            format!("{fix}; or auto:// in place of rdma://"),
        ),
        Scheme::Auto if wanted.options.device.is_some() => {} // It is named as missing.
        Scheme::Auto if options_given => report.problem(
            Severity::Warning,
            "address",
            "its options choose an RDMA device or path, and this machine has none",
            "they are of another machine",
            format!("leave them out here; or, {fix}"),
        ),
        Scheme::Auto if cfg!(feature = "verbs") => report.problem(
            Severity::Warning,
            "machine",
            "there is no RDMA device, so all goes over the software device",
            cause,
            fix,
        ),
        Scheme::Auto | Scheme::Soft => {}
    }
}

/// The command that makes a software device.
fn make_one(files: &Files) -> String {
    let netdev = Netdev::any(files).map_or_else(|| "eth0".to_owned(), |netdev| netdev.name);
    format!("rdma link add rxe0 type rxe netdev {netdev}")
}

/// Whether programs can reach any device, and this one is built for it.
fn programs(files: &Files, report: &mut Report) {
    if files.names(DEVICE_FILES).is_empty() {
        report.problem(
            Severity::Error,
            "machine",
            "the kernel has RDMA devices, and lets no program use them",
            "its module ib_uverbs is not loaded",
            "modprobe ib_uverbs",
        );
    }
    if !cfg!(feature = "verbs") {
        report.problem(
            Severity::Warning,
            "program",
            "this machine has RDMA devices, and this program cannot use them",
            "it is built without the feature `verbs` of rpc-core",
            "cargo build --release --features verbs",
        );
    }
}

fn examine_one(files: &Files, name: &str, wanted: &Wanted, opens: bool, report: &mut Report) {
    let options = &wanted.options;
    let of = format!("device {name}");
    let at = |file: &str| format!("{DEVICES}/{name}/{file}");
    let netdev = files.read(&at("parent"));
    let kind = match &netdev {
        Some(netdev) => format!("soft-RoCE over {netdev}"),
        None => files.link(&at("device/driver")).map_or_else(
            || "hardware, of an unknown driver".to_owned(),
            |driver| format!("hardware, driver {driver}"),
        ),
    };
    report.fact(&of, "kind", kind);
    if let Some(firmware) = files.read(&at("fw_ver")).filter(|text| !text.is_empty()) {
        report.fact(&of, "firmware", firmware);
    }
    node(files, &of, files.number(&at("device/numa_node")), report);
    let reachable = device_file(files, &of, name, report);
    let said = if opens && reachable { opened(name, &of, report) } else { Vec::new() };
    let meant = options.device.as_deref().is_none_or(|wanted| wanted == name);
    let ports = files.names(&at("ports"));
    for number in ports.iter().filter_map(|number| number.parse::<u8>().ok()) {
        let meant = meant && options.device_port.is_none_or(|wanted| wanted == number);
        let mtus = said.iter().find(|(said, _)| *said == number).map(|(_, mtus)| *mtus);
        let gids = port::examine(files, name, number, mtus, report);
        if let Some(index) = options.gid_index.filter(|_| meant) {
            port::chosen(name, number, &gids, index, wanted.peer, report);
        }
    }
    if let Some(port) = options.device_port.filter(|_| options.device.as_deref() == Some(name))
        && !ports.contains(&port.to_string())
    {
        report.problem(
            Severity::Error,
            "address",
            format!("the device has no port {port}"),
            "?device_port= counts from 1, and most devices have one",
            format!("?device_port={}", ports.first().map_or("1", String::as_str)),
        );
    }
}

/// What the device says of itself; each port's number and MTUs.
#[cfg(feature = "verbs")]
fn opened(name: &str, of: &str, report: &mut Report) -> Vec<(u8, port::Mtus)> {
    let ports = super::opened::examine(name, of, report);
    let mtus = |port: &crate::verbs::ibv::PortSurvey| {
        (port.number, port::Mtus { now: port.mtu, most: port.mtu_max })
    };
    ports.iter().map(mtus).collect()
}

/// That nothing is known of its limits.
#[cfg(not(feature = "verbs"))]
fn opened(_: &str, of: &str, report: &mut Report) -> Vec<(u8, port::Mtus)> {
    report.fact(of, "limits", "not asked for: this program is built without the feature `verbs`");
    Vec::new()
}

/// Which NUMA node it is on, and whether this process may run there.
fn node(files: &Files, of: &str, node: Option<i64>, report: &mut Report) {
    let Some(node) = node.and_then(|node| u32::try_from(node).ok()) else { return };
    report.fact(of, "NUMA node", node.to_string());
    if nodes(files).len() > 1 && may_use_node(files, node) == Some(false) {
        report.problem(
            Severity::Warning,
            of,
            format!("it is on NUMA node {node}, where this process may not run"),
            "each message then crosses from one node to another",
            format!("numactl --cpunodebind={node} --membind={node} before the command, or Runtime::builder().pin(..)"),
        );
    }
}

/// The file by which programs reach it: whether this one may use it.
fn device_file(files: &Files, of: &str, name: &str, report: &mut Report) -> bool {
    let is_its = |file: &String| {
        files.read(&format!("{DEVICE_FILES}/{file}/ibdev")).is_some_and(|of| of == name)
    };
    let Some(file) = files.names(DEVICE_FILES).into_iter().find(is_its) else { return false };
    let path = format!("/dev/infiniband/{file}");
    let opened = fs::File::options().read(true).write(true).open(files.path(&path));
    let trouble = opened.err().map(|error| error.kind());
    report.fact(of, "file", &*path);
    let (what, cause, fix) = match trouble {
        None => return true,
        Some(io::ErrorKind::NotFound) => (
            format!("it cannot be opened: its file {path} is missing"),
            "this is a container that was not given it, or udev does not run",
            format!("--device={path} for a container; systemctl restart systemd-udevd elsewhere"),
        ),
        Some(io::ErrorKind::PermissionDenied) => (
            format!("it cannot be opened: this user may not open its file {path}"),
            "the file's mode and group leave this user out; in a container, --device= is missing",
            format!(
                "sudo chmod 666 {path}; for good a udev rule: KERNEL==\"uverbs*\", MODE=\"0666\""
            ),
        ),
        Some(kind) => (
            format!("it cannot be opened: its file {path}: {kind}"),
            "the driver is being loaded or removed",
            "dmesg | tail".to_owned(),
        ),
    };
    report.problem(Severity::Error, of, what, cause, fix);
    false
}
