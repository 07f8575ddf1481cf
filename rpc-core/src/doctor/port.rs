use std::net::{IpAddr, Ipv6Addr};

use super::files::Files;
use super::report::{Report, Severity};

/// What a packet of RoCE v2 over IPv6 has beside its payload.
const ROCE_HEADERS: u32 = 78;
/// MTUs of verbs, bytes.
const MTUS: [u32; 5] = [256, 512, 1024, 2048, 4096];
/// GIDs shown of a port; some have one for each VLAN.
const GIDS_SHOWN: usize = 8;

/// An entry of a port's GID table.
struct Gid {
    index: u16,
    ip: IpAddr,
    kind: String,
    netdev: Option<String>,
}

impl Gid {
    /// Whether it says where a peer is.
    fn is_routable(&self) -> bool {
        match self.ip {
            IpAddr::V4(_) => true,
            IpAddr::V6(ip) => !ip.is_unicast_link_local(),
        }
    }
}

/// Looks at one port. `gid_index`: what an address names for it.
pub(super) fn examine(
    files: &Files,
    device: &str,
    number: u8,
    gid_index: Option<u8>,
    report: &mut Report,
) {
    let of = format!("device {device}, port {number}");
    let base = format!("/sys/class/infiniband/{device}/ports/{number}");
    let read = |file: &str| files.read(&format!("{base}/{file}")).unwrap_or_default();
    let (state, layer, rate) = (read("state"), read("link_layer"), read("rate"));
    let state = state.split_once(": ").map_or(&*state, |(_, name)| name).to_owned();
    report.fact(&of, "state", format!("{state}, {layer}, {rate}"));
    let gids = gids(files, &base);
    let ethernet = layer == "Ethernet";
    let parent = files.read(&format!("/sys/class/infiniband/{device}/parent"));
    let netdev = gids.iter().find_map(|gid| gid.netdev.clone()).or(parent);
    link(&of, &state, ethernet, netdev.as_deref(), report);
    for gid in gids.iter().take(GIDS_SHOWN) {
        report.fact(&of, "GID", format!("{}: {}, {}", gid.index, gid.ip, gid.kind));
    }
    if gids.len() > GIDS_SHOWN {
        report.fact(&of, "GID", format!("and {} more", gids.len() - GIDS_SHOWN));
    }
    if ethernet {
        addresses(&of, &gids, netdev.as_deref(), report);
        mtu(files, &of, netdev.as_deref(), report);
    }
    if let Some(index) =
        gid_index.filter(|index| !gids.iter().any(|gid| gid.index == u16::from(*index)))
    {
        let best = gids.iter().filter(|gid| gid.is_routable());
        let best = best.max_by_key(|gid| (gid.kind.ends_with("v2"), gid.ip.is_ipv4()));
        report.problem(
            Severity::Error,
            "address",
            format!("port {number} of {device} has no GID at index {index}"),
            "?gid_index= is another machine's, or the interface's address has changed",
            best.map_or_else(
                || "leave ?gid_index= out: it follows from the connection's address".to_owned(),
                |gid| {
                    format!(
                        "?gid_index={}, or leave it out: it follows from the connection's address",
                        gid.index
                    )
                },
            ),
        );
    }
}

fn link(of: &str, state: &str, ethernet: bool, netdev: Option<&str>, report: &mut Report) {
    if state == "ACTIVE" {
        return;
    }
    let (cause, fix) = if ethernet {
        let netdev = netdev.unwrap_or("IFACE");
        (
            format!("its network interface {netdev} is down or has no carrier"),
            format!("ip link set {netdev} up"),
        )
    } else {
        (
            "no subnet manager has brought it up, or the cable is not in".to_owned(),
            "systemctl start opensm on one host of the network; ibstat shows the cable".to_owned(),
        )
    };
    report.problem(
        Severity::Error,
        of,
        format!("its state is {state}, so it carries nothing"),
        cause,
        fix,
    );
}

fn addresses(of: &str, gids: &[Gid], netdev: Option<&str>, report: &mut Report) {
    let netdev = netdev.unwrap_or("IFACE");
    if !gids.iter().any(Gid::is_routable) {
        report.problem(
            Severity::Error,
            of,
            "it has no GID by which a peer could reach it",
            format!("its network interface {netdev} has no address but a link-local one"),
            format!("ip addr add 10.0.0.1/24 dev {netdev}"),
        );
    } else if !gids.iter().any(|gid| gid.is_routable() && gid.kind.ends_with("v2")) {
        report.problem(
            Severity::Warning,
            of,
            "it has GIDs of RoCE v1 alone, which routers do not pass",
            "the card or its driver is set to RoCE v1",
            "cma_roce_mode -d DEVICE -p PORT -m 2",
        );
    }
}

fn mtu(files: &Files, of: &str, netdev: Option<&str>, report: &mut Report) {
    let Some(netdev) = netdev else { return };
    let Some(bytes) = files.number::<u32>(&format!("/sys/class/net/{netdev}/mtu")) else { return };
    let fits = |bytes: u32| MTUS.into_iter().rev().find(|mtu| mtu + ROCE_HEADERS <= bytes);
    let rdma = fits(bytes).unwrap_or(MTUS[0]);
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
    files.names(&format!("{base}/gids")).into_iter().filter_map(entry).collect()
}
