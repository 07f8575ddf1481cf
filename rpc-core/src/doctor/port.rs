use std::net::{IpAddr, Ipv6Addr};

use super::files::Files;
use super::netdev::Netdev;
use super::report::{Report, Severity};

/// What a packet of RoCE v2 over IPv6 has beside its payload.
const ROCE_HEADERS: u32 = 78;
/// MTUs of verbs, bytes.
const MTUS: [u32; 5] = [256, 512, 1024, 2048, 4096];
/// GIDs shown of a port; some have one for each VLAN.
const GIDS_SHOWN: usize = 8;

/// Entries of a port's GID table that are looked at: an address cannot choose one beyond, `?gid_index=` is a byte.
const GIDS_MAX: usize = 256;

/// A port.
pub(super) struct Port {
    pub(super) device: String,
    pub(super) number: u8,
    pub(super) gids: Vec<Gid>,
}

/// An entry of a port's GID table.
pub(super) struct Gid {
    pub(super) index: u16,
    pub(super) ip: IpAddr,
    pub(super) kind: String,
    netdev: Option<String>,
}

impl Gid {
    /// Whether it says where a peer is.
    pub(super) fn is_routable(&self) -> bool {
        match self.ip {
            IpAddr::V4(_) => true,
            IpAddr::V6(ip) => !ip.is_unicast_link_local(),
        }
    }
}

/// What a device says that its packets carry, bytes.
#[derive(Clone, Copy)]
pub(super) struct Mtus {
    pub(super) now: u32,
    pub(super) most: u32,
}

/// Looks at one port. `said`: by the device, if it was asked.
pub(super) fn examine(
    files: &Files,
    device: &str,
    number: u8,
    said: Option<Mtus>,
    report: &mut Report,
) -> Port {
    let of = format!("device {device}, port {number}");
    let base = port_folder(device, number);
    let read = |file: &str| files.read(&format!("{base}/{file}")).unwrap_or_default();
    let (state, layer, rate) = (read("state"), read("link_layer"), read("rate"));
    let state = state.split_once(": ").map_or(&*state, |(_, name)| name).to_owned();
    report.fact(&of, "state", format!("{state}, {layer}, {rate}"));
    let gids = gids(files, &base);
    let ethernet = layer == "Ethernet";
    let netdev = interface(files, device, &gids).map(|name| Netdev::new(files, name));
    if state != "ACTIVE" {
        let (cause, fix) = if ethernet { no_link(netdev.as_ref()) } else { no_subnet() };
        let what = format!("its state is {state}, so it carries nothing");
        report.problem(Severity::Error, &of, what, cause, fix);
    }
    for gid in gids.iter().take(GIDS_SHOWN) {
        report.fact(&of, "GID", format!("{}: {}, {}", gid.index, gid.ip, gid.kind));
    }
    if gids.len() > GIDS_SHOWN {
        report.fact(&of, "GID", format!("and {} more", gids.len() - GIDS_SHOWN));
    }
    if ethernet {
        addresses(&of, &gids, netdev.as_ref(), report);
    }
    mtu(&of, netdev.as_ref().filter(|_| ethernet), said, report);
    Port { device: device.to_owned(), number, gids }
}

fn port_folder(device: &str, number: u8) -> String {
    format!("/sys/class/infiniband/{device}/ports/{number}")
}

/// The network interface of a device's first port that has one.
pub(super) fn interface_of(files: &Files, device: &str) -> Option<String> {
    let ports = files.names(&format!("/sys/class/infiniband/{device}/ports"));
    let numbers = ports.iter().filter_map(|number| number.parse().ok());
    let mut of_ports = numbers.map(|number| gids(files, &port_folder(device, number)));
    of_ports.find_map(|gids| interface(files, device, &gids))
}

fn interface(files: &Files, device: &str, gids: &[Gid]) -> Option<String> {
    let parent = || files.read(&format!("/sys/class/infiniband/{device}/parent"));
    gids.iter().find_map(|gid| gid.netdev.clone()).or_else(parent)
}

/// Why a port of Ethernet is not active, and what mends that.
fn no_link(netdev: Option<&Netdev<'_>>) -> (String, String) {
    let Some(netdev) = netdev else {
        return ("its network interface is down".to_owned(), "ip link set IFACE up".to_owned());
    };
    let name = &netdev.name;
    if netdev.is_up() == Some(true) {
        if let Some(other) = netdev.other_end().filter(|other| other.is_up() == Some(false)) {
            return (
                format!(
                    "its network interface {name} is up, and the other end of that pair, {0}, is down",
                    other.name
                ),
                format!("ip link set {} up", other.name),
            );
        }
        if netdev.has_carrier() == Some(false) {
            return (
                format!("its network interface {name} is up and has no link"),
                format!(
                    "the cable, or the port at its other end; ethtool {name} says when there is a link"
                ),
            );
        }
        return (
            format!("its network interface {name} is up, and the device's own port is not"),
            "rdma link show; dmesg | tail: what the driver says of the port".to_owned(),
        );
    }
    (format!("its network interface {name} is down"), format!("ip link set {name} up"))
}

/// The same of InfiniBand.
fn no_subnet() -> (String, String) {
    (
        "no subnet manager has brought it up, or the cable is not in".to_owned(),
        "systemctl start opensm on one host of the network; ibstat shows the cable".to_owned(),
    )
}

fn addresses(of: &str, gids: &[Gid], netdev: Option<&Netdev<'_>>, report: &mut Report) {
    let netdev = netdev.map_or("IFACE", |netdev| &netdev.name);
    let v1_alone = || !gids.iter().any(|gid| gid.is_routable() && gid.kind.ends_with("v2"));
    if !gids.iter().any(Gid::is_routable) {
        report.problem(
            Severity::Error,
            of,
            "it has no GID by which a peer could reach it",
            format!("its network interface {netdev} has no address but a link-local one"),
            format!("ip addr add 10.0.0.1/24 dev {netdev}"),
        );
    } else if v1_alone() {
        report.problem(
            Severity::Warning,
            of,
            "it has GIDs of RoCE v1 alone, which routers do not pass",
            "the card or its driver is too old for RoCE v2, or set to v1",
            format!(
                "nothing, where both ends are on one Ethernet segment; otherwise a newer driver and firmware, which \
                 ethtool -i {netdev} names"
            ),
        );
    }
}

fn mtu(of: &str, netdev: Option<&Netdev<'_>>, said: Option<Mtus>, report: &mut Report) {
    let Some((netdev, bytes)) = netdev.and_then(|netdev| Some((&netdev.name, netdev.mtu()?)))
    else {
        if let Some(Mtus { now, most }) = said {
            report.fact(of, "MTU", format!("{now} bytes, of at most {most}"));
        }
        return;
    };
    let fits = MTUS.into_iter().rev().find(|mtu| mtu + ROCE_HEADERS <= bytes);
    let rdma = said.map_or_else(|| fits.unwrap_or(MTUS[0]), |mtus| mtus.now);
    report.fact(of, "MTU", format!("{bytes} bytes of {netdev}, which is {rdma} for RDMA"));
    if rdma < 1024 {
        report.problem(
            Severity::Warning,
            of,
            format!("its packets carry {rdma} bytes: READs of large messages need many of them"),
            format!("the MTU of {netdev} is {bytes}"),
            format!("ip link set {netdev} mtu 1500 at the least; mtu 9000 where the whole network has it"),
        );
    }
}

fn gids(files: &Files, base: &str) -> Vec<Gid> {
    let entry = |name: String| {
        let gid: Ipv6Addr = files.read(&format!("{base}/gids/{name}"))?.parse().ok()?;
        let index = name.parse().ok().filter(|_| !gid.is_unspecified())?;
        let kind = files.read(&format!("{base}/gid_attrs/types/{name}"));
        let kind = kind.filter(|kind| !kind.is_empty()).unwrap_or_else(|| "InfiniBand".into());
        let netdev = files.read(&format!("{base}/gid_attrs/ndevs/{name}"));
        let ip = IpAddr::V6(gid).to_canonical();
        Some(Gid { index, ip, kind, netdev: netdev.filter(|name| !name.is_empty()) })
    };
    files.names(&format!("{base}/gids")).into_iter().take(GIDS_MAX).filter_map(entry).collect()
}
