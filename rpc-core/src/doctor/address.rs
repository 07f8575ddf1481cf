//! Whether what an address chooses is there, and leads to its server.

use std::net::IpAddr;

use super::files::Files;
use super::port::{Gid, Port};
use super::report::{Report, Severity};
use super::{Wanted, software};
use crate::cm::Scheme;

/// Looks at the options of an address. `devices`: the names of all; `ports`: those that were looked at.
pub(super) fn examine(
    files: &Files,
    wanted: &Wanted,
    devices: &[String],
    ports: &[Port],
    report: &mut Report,
) {
    let options = &wanted.options;
    if let Some(name) = options.device.as_ref().filter(|name| !devices.contains(name)) {
        // Without any device that is what is said.
        if !devices.is_empty() || wanted.scheme != Scheme::Rdma {
            no_device(files, name, devices.first(), report);
        }
        return;
    }
    let of_device =
        |port: &&Port| options.device.as_deref().is_none_or(|device| device == port.device);
    let all: Vec<&Port> = ports.iter().filter(of_device).collect();
    let chosen = |port: &&Port| options.device_port.is_none_or(|number| number == port.number);
    let meant: Vec<&Port> = all.iter().copied().filter(chosen).collect();
    match (all.first(), options.device_port) {
        (Some(first), Some(number)) if meant.is_empty() => no_port(first, number, wanted, report),
        _ => {
            if let Some(index) = options.gid_index.filter(|_| !meant.is_empty()) {
                gid(&meant, index, wanted.peer, report);
            }
        }
    }
}

fn no_device(files: &Files, name: &str, first: Option<&String>, report: &mut Report) {
    // Without any device a connection does without RDMA, whatever is chosen: it works.
    let severity = if first.is_none() { Severity::Warning } else { Severity::Error };
    report.problem(
        severity,
        "address",
        format!("there is no RDMA device {name:?}"),
        "the name in ?device= is mistyped or another machine's, or its driver is not loaded",
        match first {
            None => {
                format!("leave ?device= out; or, {}, which is ?device=rxe0", software::how(files))
            }
            Some(first) => format!("?device={first}"),
        },
    );
}

fn no_port(first: &Port, number: u8, wanted: &Wanted, report: &mut Report) {
    let whose = wanted.options.device.as_ref().map_or("no RDMA device", |_| "the device");
    let has = if wanted.options.device.is_some() { "has no port" } else { "has a port" };
    report.problem(
        Severity::Error,
        "address",
        format!("{whose} {has} {number}"),
        "?device_port= counts from 1, and most devices have one",
        format!("?device_port={}", first.number),
    );
}

/// Whether one of the ports has an entry of the GID table that can lead to the server. Which port a connection takes
/// follows from its local address, so one is enough.
fn gid(meant: &[&Port], index: u8, peer: Option<IpAddr>, report: &mut Report) {
    let like_peer = |gid: &Gid| peer.is_none_or(|peer| peer.is_ipv4() == gid.ip.is_ipv4());
    let usable = meant.iter().flat_map(|port| &port.gids).filter(|gid| gid.is_routable());
    let best =
        usable.max_by_key(|gid| (like_peer(gid), gid.kind.ends_with("v2"), gid.ip.is_ipv4()));
    let leave_out = "leave ?gid_index= out: it follows from the connection's address";
    let fix = best.map_or_else(
        || leave_out.to_owned(),
        |gid| format!("?gid_index={} ({}), or {leave_out}", gid.index, gid.ip),
    );
    let entries = meant.iter().flat_map(|port| {
        let here = port.gids.iter().find(|gid| gid.index == u16::from(index));
        here.map(|gid| (&port.device, gid))
    });
    let entries: Vec<_> = entries.collect();
    let Some((device, gid)) = entries.first() else {
        let what = match meant {
            [port] => {
                format!("port {} of {} has no GID at index {index}", port.number, port.device)
            }
            _ => format!(
                "none of the {} ports that are meant has a GID at index {index}",
                meant.len()
            ),
        };
        let cause = "?gid_index= is another machine's, or the interface's address has changed";
        return report.problem(Severity::Error, "address", what, cause, fix);
    };
    if entries.iter().any(|(_, gid)| gid.is_routable() && like_peer(gid)) {
        return;
    }
    let cause = match peer.filter(|_| gid.is_routable()) {
        None => {
            "a link-local GID reaches only a peer on the same link that chooses one too".to_owned()
        }
        Some(peer) => {
            format!("the server, at {peer}, has a GID of another kind, unless it chooses one too")
        }
    };
    let what =
        format!("?gid_index={index} of {device} is {}, which may not lead to the server", gid.ip);
    report.problem(Severity::Warning, "address", what, cause, fix);
}
