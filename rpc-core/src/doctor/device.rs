use std::fs;
use std::io;

use super::files::Files;
use super::machine::{may_use_node, nodes};
use super::port;
use super::report::{Report, Severity};
use crate::cm::RdmaOptions;

/// Where the kernel lists its devices, whatever libraries know of them.
const DEVICES: &str = "/sys/class/infiniband";
/// Where it lists the files by which programs reach them.
const DEVICE_FILES: &str = "/sys/class/infiniband_verbs";

/// Looks at every device; how many there are.
pub(super) fn examine(
    files: &Files,
    options: &RdmaOptions,
    insists: bool,
    report: &mut Report,
) -> usize {
    let devices = files.names(DEVICES);
    if devices.is_empty() {
        report.fact(
            "machine",
            "RDMA devices",
            "none: soft:// is what there is, and auto:// takes it",
        );
        without(files, options, insists, report);
    } else {
        report.fact("machine", "RDMA devices", devices.join(", "));
        programs(files, report);
    }
    for name in &devices {
        examine_one(files, name, options, report);
    }
    if let Some(wanted) = options.device.as_ref().filter(|wanted| !devices.contains(wanted)) {
        report.problem(
            Severity::Error,
            "address",
            format!("there is no RDMA device {wanted:?}"),
            "the name in ?device= is another machine's, or its driver is not loaded",
            match devices.first() {
                None => "leave ?device= out; rdma link add rxe0 type rxe netdev eth0 makes a software one, ?device=rxe0"
                    .to_owned(),
                Some(first) => format!("?device={first}"),
            },
        );
    }
    devices.len()
}

/// There is no device: whether that is what was asked for.
fn without(files: &Files, options: &RdmaOptions, insists: bool, report: &mut Report) {
    if insists {
        let module = files.exists("/sys/module/ib_uverbs");
        report.problem(
            Severity::Error,
            "machine",
            "there is no RDMA device, and the address says rdma://",
            if module {
                "the driver of the network card is not loaded, or there is none"
            } else {
                "the kernel's modules of RDMA are not loaded, or there is no card"
            },
            "modprobe ib_uverbs and the card's driver; or rdma link add rxe0 type rxe netdev eth0 for a \
             software one; or auto:// in place of rdma://",
        );
    } else if options.device.is_none() && *options != RdmaOptions::default() {
        report.problem(
            Severity::Warning,
            "address",
            "its options choose an RDMA device or path, and this machine has none",
            "they are of another machine",
            "leave them out here",
        );
    }
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

fn examine_one(files: &Files, name: &str, options: &RdmaOptions, report: &mut Report) {
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
    device_file(files, &of, name, report);
    let meant = options.device.as_deref().is_none_or(|wanted| wanted == name);
    let ports = files.names(&at("ports"));
    for number in &ports {
        let number: Option<u8> = number.parse().ok();
        let wanted = |port: u8| meant && options.device_port.is_none_or(|wanted| wanted == port);
        if let Some(number) = number {
            let index = options.gid_index.filter(|_| wanted(number));
            port::examine(files, name, number, index, report);
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

/// The file by which programs reach it, and whether this one may.
fn device_file(files: &Files, of: &str, name: &str, report: &mut Report) {
    let is_its = |file: &String| {
        files.read(&format!("{DEVICE_FILES}/{file}/ibdev")).is_some_and(|of| of == name)
    };
    let Some(file) = files.names(DEVICE_FILES).into_iter().find(is_its) else { return };
    let path = format!("/dev/infiniband/{file}");
    let opened = fs::File::options().read(true).write(true).open(files.path(&path));
    let trouble = opened.err().map(|error| error.kind());
    report.fact(of, "file", &*path);
    let (what, cause, fix) = match trouble {
        None => return,
        Some(io::ErrorKind::NotFound) => (
            format!("its file {path} is missing"),
            "this is a container that was not given it, or udev does not run",
            format!("--device={path} for a container; systemctl restart systemd-udevd elsewhere"),
        ),
        Some(io::ErrorKind::PermissionDenied) => (
            format!("this user may not open its file {path}"),
            "the file's mode and group leave this user out",
            format!("chmod 666 {path}, or a udev rule: KERNEL==\"uverbs*\", MODE=\"0666\""),
        ),
        Some(kind) => (
            format!("its file {path} cannot be opened: {kind}"),
            "the driver is being loaded or removed",
            "dmesg | tail".to_owned(),
        ),
    };
    report.problem(Severity::Error, of, what, cause, fix);
}
