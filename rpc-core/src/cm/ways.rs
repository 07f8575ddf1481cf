//! Which device a connection gets: what the server offers, and what this side can use.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::sync::Arc;

use super::path::Path;
use super::route::WayId;
use super::{ConnectError, DeviceChoice, RdmaOptions};
use crate::verbs::{Gid, GidType};
use crate::wire::{self, AddressBlob, Candidate, DeviceKind};

/// A device on which this side, as the server, can make a queue pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// What the peer is told of it.
    pub candidate: Candidate,
    /// The local address that leads to it, if it is one of RDMA.
    pub ip: Option<IpAddr>,
}

impl Offer {
    /// The software device.
    pub const fn soft(number: u8) -> Self {
        Self { candidate: Candidate::soft(number), ip: None }
    }

    /// A device of RDMA whose queue pairs have this GID, and the local address that leads to it.
    pub fn rdma(number: u8, gid: Gid, kind: GidType, ip: Option<IpAddr>) -> Self {
        let (link_layer, gid_type) = match kind {
            GidType::InfiniBand => (wire::LinkLayer::InfiniBand, wire::GidType::InfiniBand),
            GidType::RoceV1 => (wire::LinkLayer::Ethernet, wire::GidType::RoceV1),
            GidType::RoceV2 => (wire::LinkLayer::Ethernet, wire::GidType::RoceV2),
        };
        let kind = DeviceKind::Ibv;
        Self { candidate: Candidate { number, kind, link_layer, gid_type, gid: gid.0 }, ip }
    }
}

/// A device that this side, as the client, may make a queue pair on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Way {
    /// The server's candidate; 0: it named none.
    pub(super) number: u8,
    /// The software device, or one of RDMA.
    pub(super) device: DeviceChoice,
    /// The local address that leads to it; `None`: that of the control connection.
    pub(super) ip: Option<IpAddr>,
    pub(super) id: WayId,
}

/// The ways to a server that offers these, in the order in which they are to be tried.
///
/// # Errors
/// It offers nothing that `wanted` allows.
pub(super) fn ways(wanted: &DeviceChoice, offered: &[Candidate]) -> Result<Vec<Way>, ConnectError> {
    let soft = |number| Way { number, device: DeviceChoice::Soft, ip: None, id: WayId::SOFT };
    let rdma = |candidate: &Candidate, options: &Arc<RdmaOptions>| Way {
        number: candidate.number,
        device: DeviceChoice::Rdma(Arc::clone(options)),
        ip: own_address(candidate, options),
        id: WayId::of(candidate),
    };
    let of = |kind| offered.iter().filter(move |candidate| candidate.kind == kind);
    let found: Vec<Way> = match wanted {
        DeviceChoice::Soft if offered.is_empty() => vec![soft(0)],
        DeviceChoice::Soft => of(DeviceKind::Soft).map(|c| soft(c.number)).collect(),
        DeviceChoice::Rdma(options) if offered.is_empty() => {
            let ip = options.addresses.first().copied();
            vec![Way { number: 0, device: wanted.clone(), ip, id: WayId::RDMA }]
        }
        DeviceChoice::Rdma(options) => {
            of(DeviceKind::Ibv).map(|candidate| rdma(candidate, options)).collect()
        }
        DeviceChoice::Auto(_) if offered.is_empty() => vec![soft(0)],
        DeviceChoice::Auto(options) => offered
            .iter()
            .map(|candidate| match candidate.kind {
                DeviceKind::Soft => soft(candidate.number),
                DeviceKind::Ibv => rdma(candidate, options),
            })
            .collect(),
    };
    if found.is_empty() {
        let offers_rdma = of(DeviceKind::Ibv).next().is_some();
        return Err(ConnectError::NotOffered { offers_rdma });
    }
    Ok(found)
}

/// The local address that leads to a candidate: where packets to it start, if that is one of the options'
/// or they name none; otherwise the first that they name.
fn own_address(candidate: &Candidate, options: &RdmaOptions) -> Option<IpAddr> {
    let source = source_towards(candidate);
    let named = |ip: &IpAddr| options.addresses.is_empty() || options.addresses.contains(ip);
    source.filter(named).or_else(|| options.addresses.first().copied())
}

/// The address of this machine that packets to a candidate's GID would carry, if that is an address.
fn source_towards(candidate: &Candidate) -> Option<IpAddr> {
    if candidate.gid == [0; 16] {
        return None;
    }
    let to = Gid(candidate.gid).ip();
    let any: IpAddr =
        if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    // Any port: nothing is sent.
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect((to, 9)).ok()?;
    Some(socket.local_addr().ok()?.ip().to_canonical())
}

/// What a connection is carried by, and why. `passed`: why ways before this one were not taken; `lack`: why this side
/// has no RDMA.
pub(super) fn path_of(
    wanted: &DeviceChoice,
    way: &Way,
    offered: &[Candidate],
    passed: Option<&str>,
    lack: Option<&str>,
) -> Path {
    let offers_rdma = offered.iter().any(|candidate| candidate.kind == DeviceKind::Ibv);
    let (device, reason) = match (wanted, &way.device, passed) {
        (DeviceChoice::Soft, ..) => ("soft", "the address says soft://".into()),
        (DeviceChoice::Rdma(_), _, None) => ("rdma", "the address says rdma://".into()),
        (DeviceChoice::Rdma(_), _, Some(why)) => {
            ("rdma", format!("the address says rdma://; what the server prefers failed: {why}"))
        }
        (_, DeviceChoice::Soft, passed) => ("soft", why_soft(offers_rdma, passed, lack)),
        (_, _, None) => ("rdma", "auto://, and both ends have RDMA".into()),
        (_, _, Some(why)) => (
            "rdma",
            format!("auto://, and both ends have RDMA; what the server prefers failed: {why}"),
        ),
    };
    Path { device, reason: reason.into() }
}

/// Why `auto://` is carried by the software device: each end that is why is named.
fn why_soft(offers_rdma: bool, passed: Option<&str>, lack: Option<&str>) -> String {
    match (lack, passed) {
        (Some(why), _) if !offers_rdma => {
            format!("auto://, and {why}; the server offers no RDMA at this address either")
        }
        (None, _) if !offers_rdma => {
            "auto://, and the server offers no RDMA at this address".to_owned()
        }
        (Some(why), _) | (None, Some(why)) => format!("auto://, and not RDMA: {why}"),
        (None, None) => "auto://, and the server prefers it".to_owned(),
    }
}

/// What a server makes its queue pair on for a client whose blob this is, and the local address that
/// leads to it.
///
/// # Errors
/// It was not offered.
pub(super) fn answer(
    own: &DeviceChoice,
    offers: &[Offer],
    blob: &AddressBlob,
) -> Result<(DeviceChoice, Option<IpAddr>), ConnectError> {
    let fits = |offer: &&Offer| offer.candidate.kind == blob.kind;
    // A number that was not given out is one of a later version's ideas: the kind decides.
    let named = |offer: &&Offer| offer.candidate.number == blob.candidate;
    let offer = offers.iter().find(|offer| fits(offer) && named(offer));
    let offer = offer.or_else(|| offers.iter().find(fits));
    match (own, offer, blob.kind) {
        (DeviceChoice::Auto(options), Some(offer), DeviceKind::Ibv) => {
            Ok((DeviceChoice::Rdma(Arc::clone(options)), offer.ip))
        }
        (DeviceChoice::Auto(_), _, DeviceKind::Soft) => Ok((DeviceChoice::Soft, None)),
        (DeviceChoice::Auto(_), None, DeviceKind::Ibv) => {
            Err(ConnectError::NotOffered { offers_rdma: false })
        }
        // Whether the client's fits is seen when the two are connected.
        (one, offer, _) => Ok((one.clone(), offer.and_then(|offer| offer.ip))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{LinkLayer, SoftLink};

    fn roce(number: u8, gid: [u8; 16]) -> Candidate {
        Candidate {
            number,
            kind: DeviceKind::Ibv,
            link_layer: LinkLayer::Ethernet,
            gid_type: wire::GidType::RoceV2,
            gid,
        }
    }

    fn options() -> Arc<RdmaOptions> {
        Arc::default()
    }

    const LOOPBACK: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1];

    #[test]
    fn each_scheme_takes_what_it_allows_in_the_servers_order() {
        let offered = [roce(1, LOOPBACK), Candidate::soft(2)];
        let numbers = |wanted: &DeviceChoice, offered: &[Candidate]| {
            ways(wanted, offered).map(|ways| ways.iter().map(|way| way.number).collect::<Vec<_>>())
        };
        let (rdma, auto) = (DeviceChoice::Rdma(options()), DeviceChoice::Auto(options()));
        assert_eq!(numbers(&DeviceChoice::Soft, &offered).unwrap(), [2]);
        assert_eq!(numbers(&rdma, &offered).unwrap(), [1]);
        assert_eq!(numbers(&auto, &offered).unwrap(), [1, 2]);
        for wanted in [&DeviceChoice::Soft, &rdma, &auto] {
            assert_eq!(numbers(wanted, &[]).unwrap(), [0], "{wanted:?}");
        }
        let refused = numbers(&rdma, &offered[1..]).unwrap_err();
        assert!(matches!(refused, ConnectError::NotOffered { offers_rdma: false }));
        let refused = numbers(&DeviceChoice::Soft, &offered[..1]).unwrap_err();
        assert!(matches!(refused, ConnectError::NotOffered { offers_rdma: true }));
    }

    #[test]
    fn the_way_to_a_candidate_starts_where_packets_to_it_do() {
        assert_eq!(source_towards(&roce(1, LOOPBACK)), Some([127, 0, 0, 1].into()));
        assert_eq!(source_towards(&roce(1, [0; 16])), None);
        let chosen =
            RdmaOptions { addresses: vec![[10, 0, 0, 9].into()], ..RdmaOptions::default() };
        let wanted = DeviceChoice::Rdma(Arc::new(chosen));
        assert_eq!(ways(&wanted, &[roce(1, LOOPBACK)]).unwrap()[0].ip, Some([10, 0, 0, 9].into()));
        // Of several, the one that is on the candidate's network.
        let both = vec![[10, 0, 0, 9].into(), [127, 0, 0, 1].into()];
        let chosen = RdmaOptions { addresses: both, ..RdmaOptions::default() };
        let wanted = DeviceChoice::Rdma(Arc::new(chosen));
        assert_eq!(ways(&wanted, &[roce(1, LOOPBACK)]).unwrap()[0].ip, Some([127, 0, 0, 1].into()));
    }

    #[test]
    fn a_path_says_why_it_is_not_another() {
        let auto = DeviceChoice::Auto(options());
        let soft = Way { number: 2, device: DeviceChoice::Soft, ip: None, id: WayId::SOFT };
        let both = [roce(1, LOOPBACK), Candidate::soft(2)];
        let of = |offered: &[Candidate], passed, lack| {
            path_of(&auto, &soft, offered, passed, lack).to_string()
        };
        let why = "soft: auto://, and ";
        let (none, down) = (Some("this machine has none"), Some("the port is down"));
        let server = "the server offers no RDMA at this address";
        assert_eq!(of(&both[1..], None, None), format!("{why}{server}"));
        assert_eq!(of(&both, down, None), format!("{why}not RDMA: the port is down"));
        assert_eq!(of(&both, down, none), format!("{why}not RDMA: this machine has none"));
        assert_eq!(of(&both, None, None), format!("{why}the server prefers it"));
        // Who mends one end alone still has no RDMA.
        let neither = of(&both[1..], None, none);
        assert_eq!(neither, format!("{why}this machine has none; {server} either"));
        let rdma = Way { device: DeviceChoice::Rdma(options()), ..soft };
        let path = path_of(&auto, &rdma, &both, None, None);
        assert_eq!(path.to_string(), "rdma: auto://, and both ends have RDMA");
    }

    #[test]
    fn a_server_answers_on_the_device_that_the_client_chose() {
        let link = SoftLink { guid: 1, dial: None };
        let soft = AddressBlob::soft(1, 1, 1024, link);
        let rdma = |candidate| AddressBlob { kind: DeviceKind::Ibv, candidate, soft: None, ..soft };
        let ip = |last| Some(IpAddr::from([10, 0, 0, last]));
        let offers = [
            Offer { candidate: roce(1, LOOPBACK), ip: ip(1) },
            Offer { candidate: roce(2, LOOPBACK), ip: ip(2) },
            Offer { candidate: Candidate::soft(3), ip: None },
        ];
        let auto = DeviceChoice::Auto(options());
        let of = |blob: &AddressBlob| answer(&auto, &offers, blob).unwrap();
        let over_rdma = |ip| (DeviceChoice::Rdma(options()), ip);
        assert_eq!(of(&soft), (DeviceChoice::Soft, None));
        assert_eq!(of(&rdma(2)), over_rdma(ip(2)));
        for unnamed in [0, 3, 200] {
            assert_eq!(of(&rdma(unnamed)), over_rdma(ip(1)));
        }
        assert!(answer(&auto, &offers[2..], &rdma(1)).is_err());
        assert_eq!(answer(&DeviceChoice::Soft, &[], &rdma(1)).unwrap().0, DeviceChoice::Soft);
    }
}
