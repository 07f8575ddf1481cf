use std::collections::HashMap;
use std::fs;
use std::io;

use super::files::Files;
use super::machine::{may_use_node, nodes};
use super::port::Port;
use super::report::{Report, Severity};
use super::{Wanted, address, port, software};
use crate::cm::{RdmaOptions, Scheme};

/// Where the kernel lists its devices, whatever libraries know of them.
const DEVICES: &str = "/sys/class/infiniband";
/// Where it lists the files by which programs reach them.
const DEVICE_FILES: &str = "/sys/class/infiniband_verbs";

/// Devices that are looked at: machines have up to 16 cards, and more devices are virtual functions of them, each
/// like the other. The one that an address names is always among them.
const DEVICES_MAX: usize = 32;
/// Ports of a device that are looked at: cards have two at most.
const PORTS_MAX: usize = 8;

/// The files by which programs reach devices: by device, so that many of them are looked through once.
struct DeviceFiles(HashMap<String, String>);

impl DeviceFiles {
    fn new(files: &Files) -> Self {
        let of = |file: String| Some((files.read(&format!("{DEVICE_FILES}/{file}/ibdev"))?, file));
        Self(files.names(DEVICE_FILES).into_iter().filter_map(of).collect())
    }
}

/// Looks at the devices; how many there are.
pub(super) fn examine(files: &Files, wanted: &Wanted, opens: bool, report: &mut Report) -> usize {
    let mut devices = files.names(DEVICES);
    let count = devices.len();
    if devices.is_empty() {
        report.fact(
            "machine",
            "RDMA devices",
            "none: soft:// is what there is, and auto:// takes it",
        );
        without(files, wanted, report);
    } else {
        let more = count.saturating_sub(DEVICES_MAX);
        if more > 0 {
            // The one that is named first: the others keep their order.
            devices.sort_by_key(|name| wanted.options.device.as_ref() != Some(name));
        }
        let mut names = devices[..count - more].join(", ");
        if more > 0 {
            names.push_str(&format!(", and {more} more, which are not looked at"));
        }
        report.fact("machine", "RDMA devices", names);
    }
    let paths = DeviceFiles::new(files);
    if count > 0 && paths.0.is_empty() {
        report.problem(
            Severity::Error,
            "machine",
            "the kernel has RDMA devices, and lets no program use them",
            "its module ib_uverbs is not loaded",
            "modprobe ib_uverbs",
        );
    }
    let looked_at = devices.iter().take(DEVICES_MAX);
    let ports: Vec<Port> =
        looked_at.flat_map(|name| examine_one(files, name, &paths, opens, report)).collect();
    address::examine(files, wanted, &devices, &ports, report);
    count
}

/// There is no device: whether that is what was asked for.
fn without(files: &Files, wanted: &Wanted, report: &mut Report) {
    let module = files.exists("/sys/module/ib_uverbs");
    let mut cause = if module {
        "the driver of the network card is not loaded, or there is no card for RDMA"
    } else {
        "the kernel's modules of RDMA are not loaded, or there is no card"
    }
    .to_owned();
    let load = if module {
        "modprobe of the card's driver"
    } else {
        "modprobe ib_uverbs and the card's driver"
    };
    let mut fix = format!("{}; or, with a card, {load}", software::how(files));
    // With rdma:// the build is an error of its own.
    if !wanted.built && wanted.scheme == Scheme::Auto {
        cause.push_str("; and this program is built without the feature `verbs` of rpc-core");
        fix.push_str(&format!("; and then {}", wanted.rebuild));
    }
    let options_given = wanted.options != RdmaOptions::default();
    match wanted.scheme {
        Scheme::Rdma => report.problem(
            Severity::Error,
            "machine",
            "there is no RDMA device, and the address says rdma://",
            cause,
            format!("{fix}; or, without RDMA, auto:// or soft:// in place of rdma://"),
        ),
        Scheme::Auto if wanted.options.device.is_some() => {} // It is named as missing.
        Scheme::Auto if options_given => report.problem(
            Severity::Warning,
            "address",
            "its options choose an RDMA device or path, and this machine has none",
            "they are of another machine",
            format!("leave them out here; or, {fix}"),
        ),
        Scheme::Auto => report.problem(
            Severity::Note,
            "machine",
            "there is no RDMA device, so all goes over the software device",
            cause,
            fix,
        ),
        Scheme::Soft => {}
    }
}

/// Whether this program is built for what is asked for. `devices`: how many of RDMA there are.
pub(super) fn program(wanted: &Wanted, devices: usize, report: &mut Report) {
    let (severity, what) = match wanted.scheme {
        _ if wanted.built => return,
        Scheme::Rdma => {
            (Severity::Error, "the address says rdma://, and this program cannot use RDMA")
        }
        Scheme::Auto if devices > 0 => {
            (Severity::Warning, "this machine has RDMA devices, and this program cannot use them")
        }
        // Without a device that is what is said.
        Scheme::Auto | Scheme::Soft => return,
    };
    let cause = "it is built without the feature `verbs` of rpc-core";
    report.problem(severity, "program", what, cause, &*wanted.rebuild);
}

fn examine_one(
    files: &Files,
    name: &str,
    paths: &DeviceFiles,
    opens: bool,
    report: &mut Report,
) -> Vec<Port> {
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
    let reachable = paths.0.get(name).is_some_and(|file| device_file(files, &of, file, report));
    let said = if opens && reachable { opened(name, &of, report) } else { Vec::new() };
    let numbers = files.names(&at("ports")).into_iter().take(PORTS_MAX);
    let numbers = numbers.filter_map(|number| number.parse::<u8>().ok());
    let look = |number: u8| {
        let mtus = said.iter().find(|(said, _)| *said == number).map(|(_, mtus)| *mtus);
        port::examine(files, name, number, mtus, report)
    };
    numbers.map(look).collect()
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
fn device_file(files: &Files, of: &str, file: &str, report: &mut Report) -> bool {
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
