//! A device's address and its form on the wire.

use std::net::{IpAddr, SocketAddr};

use super::{ConnectError, Role};
use crate::verbs::{Gid, GidType, Link, LinkLayer, Port, Psn, QpAddress, QpNum};
use crate::wire::{self, AddressBlob, DeviceKind, SoftLink};

/// What a blob must agree with, besides itself.
pub(super) struct Expected {
    /// The boot id of the peer's hello.
    pub boot_id: u128,
    /// The connection's epoch.
    pub epoch: u32,
    /// Bytes of the longest SEND.
    pub eager_bytes: u32,
    /// This side's role.
    pub role: Role,
    /// The remote end of the control connection; `None` inside one process.
    pub remote_ip: Option<IpAddr>,
}

/// The blob of an address.
pub(super) fn to_blob(address: &QpAddress, boot_id: u128, epoch: u32) -> AddressBlob {
    let (num, psn, mtu) = (address.qp_num.0, address.psn.0, address.mtu);
    let of_device = match address.link {
        Link::Soft { guid, dial } => AddressBlob::soft(num, psn, mtu, SoftLink { guid, dial }),
        Link::Ibv(port) => AddressBlob {
            kind: DeviceKind::Ibv,
            link_layer: match port.link_layer {
                LinkLayer::InfiniBand => wire::LinkLayer::InfiniBand,
                LinkLayer::Ethernet => wire::LinkLayer::Ethernet,
            },
            gid: port.gid.0,
            gid_type: match port.gid_type {
                _ if port.gid.is_zero() => wire::GidType::None,
                GidType::InfiniBand => wire::GidType::InfiniBand,
                GidType::RoceV1 => wire::GidType::RoceV1,
                GidType::RoceV2 => wire::GidType::RoceV2,
            },
            lid: port.lid,
            pkey: port.pkey,
            soft: None,
            ..AddressBlob::soft(num, psn, mtu, SoftLink { guid: 0, dial: None })
        },
    };
    AddressBlob {
        max_rd_atomic: address.max_rd_atomic,
        max_dest_rd_atomic: address.max_dest_rd_atomic,
        message_bytes_max: address.message_bytes_max,
        boot_id,
        epoch,
        ..of_device
    }
}

/// The peer's address, of a blob that its decoder has checked field by field (QPN and PSN have 24
/// bits, the MTU is in its range), to be reached by the device of `own`.
///
/// # Errors
/// [`ConnectError::OtherDevice`]; [`ConnectError::Malformed`] if the blob does not fit its hello or the
/// connection.
pub(super) fn from_blob(
    blob: &AddressBlob,
    own: &QpAddress,
    expected: &Expected,
) -> Result<QpAddress, ConnectError> {
    if blob.boot_id != expected.boot_id {
        return Err(malformed("its device address comes from another runtime than its hello"));
    }
    if blob.epoch != expected.epoch {
        return Err(malformed("its device address belongs to another connection"));
    }
    if blob.max_rd_atomic == 0 || blob.max_dest_rd_atomic == 0 {
        return Err(malformed("its device allows no RDMA READ, which large messages need"));
    }
    if blob.message_bytes_max < expected.eager_bytes {
        return Err(malformed("its device takes no message as long as an eager buffer"));
    }
    let link = match (blob.kind, blob.soft, &own.link) {
        (DeviceKind::Soft, Some(SoftLink { guid, dial }), Link::Soft { .. }) => {
            Link::Soft { guid, dial: usable(dial, expected) }
        }
        (DeviceKind::Ibv, None, Link::Ibv(own)) => Link::Ibv(port(blob, own)?),
        _ => return Err(ConnectError::OtherDevice),
    };
    Ok(QpAddress {
        qp_num: QpNum(blob.qp_num),
        psn: Psn::new(blob.psn),
        mtu: blob.mtu,
        max_rd_atomic: blob.max_rd_atomic,
        max_dest_rd_atomic: blob.max_dest_rd_atomic,
        message_bytes_max: blob.message_bytes_max,
        link,
    })
}

/// The port of the peer's device, if ours can send to it.
fn port(blob: &AddressBlob, own: &Port) -> Result<Port, ConnectError> {
    let link_layer = match blob.link_layer {
        wire::LinkLayer::InfiniBand => LinkLayer::InfiniBand,
        wire::LinkLayer::Ethernet => LinkLayer::Ethernet,
        wire::LinkLayer::Unspecified => {
            return Err(malformed("its device does not say what lies under its port"));
        }
    };
    if link_layer != own.link_layer {
        return Err(other("one device is on InfiniBand and the other on Ethernet"));
    }
    let gid_type = match (blob.gid_type, link_layer) {
        (wire::GidType::RoceV1, LinkLayer::Ethernet) => GidType::RoceV1,
        (wire::GidType::RoceV2, LinkLayer::Ethernet) => GidType::RoceV2,
        (wire::GidType::InfiniBand | wire::GidType::None, LinkLayer::InfiniBand) => {
            GidType::InfiniBand
        }
        _ => return Err(malformed("its GID is not of the kind that its port has")),
    };
    let gid = Gid(blob.gid);
    if gid.is_zero() && link_layer == LinkLayer::Ethernet {
        return Err(malformed("its device has no GID, which RoCE needs"));
    }
    if gid_type != own.gid_type {
        return Err(other(
            "one side uses RoCE v1 and the other v2; choose a GID of the same kind with gid_index=",
        ));
    }
    // The top bit says full or limited member, not which partition.
    if (blob.pkey ^ own.pkey) << 1 != 0 {
        return Err(other("they are in other partitions; choose a PKey with pkey_index="));
    }
    Ok(Port { link_layer, gid, gid_type, lid: blob.lid, pkey: blob.pkey })
}

/// Where the peer's device can be dialled.
///
/// A device that listens at every address cannot know which one leads to it: the control connection
/// does. The accepting side never dials: whoever connects can reach us, and must neither make us dial
/// a third party nor keep the control thread, and with it every other handshake, waiting for a port
/// that does not answer.
fn usable(dial: Option<SocketAddr>, expected: &Expected) -> Option<SocketAddr> {
    let dial = dial.filter(|_| expected.role == Role::Connecting)?;
    if dial.ip().is_unspecified() {
        let remote_ip = expected.remote_ip.map(|ip| ip.to_canonical());
        return Some(SocketAddr::new(remote_ip?, dial.port()));
    }
    Some(dial)
}

const fn other(why: &'static str) -> ConnectError {
    ConnectError::OtherPort { why }
}

fn malformed(what: &str) -> ConnectError {
    ConnectError::Malformed { what: what.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(dial: Option<&str>) -> QpAddress {
        QpAddress {
            qp_num: QpNum(0xabcdef),
            psn: Psn::new(0x123456),
            mtu: 4096,
            max_rd_atomic: 16,
            max_dest_rd_atomic: 8,
            message_bytes_max: 1 << 30,
            link: Link::Soft { guid: 9, dial: dial.map(|dial| dial.parse().unwrap()) },
        }
    }

    fn expected(role: Role) -> Expected {
        let remote_ip = Some("10.0.0.7".parse().unwrap());
        Expected { boot_id: 5, epoch: 6, eager_bytes: 9216, role, remote_ip }
    }

    fn there_and_back(dial: Option<&str>, role: Role) -> QpAddress {
        let blob = to_blob(&address(dial), 5, 6);
        from_blob(&blob, &address(None), &expected(role)).unwrap()
    }

    #[test]
    fn an_address_survives_the_wire() {
        let there = there_and_back(Some("10.0.0.9:5"), Role::Connecting);
        assert_eq!(there, address(Some("10.0.0.9:5")));
        assert_eq!(there_and_back(None, Role::Accepting), address(None));
    }

    #[test]
    fn an_unspecified_dial_address_takes_the_control_connections() {
        for dial in ["0.0.0.0:5", "[::]:5"] {
            let there = there_and_back(Some(dial), Role::Connecting);
            assert_eq!(there, address(Some("10.0.0.7:5")));
        }
        let mapped = Some("::ffff:10.0.0.7".parse().unwrap());
        let expected = Expected { remote_ip: mapped, ..expected(Role::Connecting) };
        let blob = to_blob(&address(Some("0.0.0.0:5")), 5, 6);
        let there = from_blob(&blob, &address(None), &expected).unwrap();
        assert_eq!(there, address(Some("10.0.0.7:5")));
    }

    #[test]
    fn a_connecting_peer_cannot_have_us_dial() {
        for dial in ["10.0.0.9:5", "10.0.0.7:5", "0.0.0.0:5"] {
            assert_eq!(there_and_back(Some(dial), Role::Accepting), address(None));
        }
    }

    const PORT: Port = Port {
        link_layer: LinkLayer::Ethernet,
        gid: Gid([0xfd; 16]),
        gid_type: GidType::RoceV2,
        lid: 0,
        pkey: 0xffff,
    };

    fn at(port: Port) -> QpAddress {
        QpAddress { link: Link::Ibv(port), ..address(None) }
    }

    #[test]
    fn a_ports_address_survives_the_wire() {
        let infiniband = Port {
            link_layer: LinkLayer::InfiniBand,
            gid: Gid([0; 16]),
            gid_type: GidType::InfiniBand,
            lid: 77,
            pkey: 0x8001,
        };
        let v1 = Port { gid_type: GidType::RoceV1, pkey: 0x7fff, ..PORT };
        for port in [PORT, v1, infiniband, Port { gid: Gid([1; 16]), ..infiniband }] {
            let blob = to_blob(&at(port), 5, 6);
            blob.check().unwrap();
            let there = from_blob(&blob, &at(port), &expected(Role::Accepting)).unwrap();
            assert_eq!(there, at(port));
        }
    }

    #[test]
    fn a_port_that_ours_cannot_reach_is_refused() {
        type Change = fn(&mut AddressBlob);
        let changes: [(Change, &str); 6] = [
            (|b| b.link_layer = wire::LinkLayer::Unspecified, "under its port"),
            (|b| b.link_layer = wire::LinkLayer::InfiniBand, "InfiniBand and the other"),
            (|b| b.gid_type = wire::GidType::InfiniBand, "not of the kind"),
            (|b| b.gid_type = wire::GidType::RoceV1, "RoCE v1 and the other v2"),
            (|b| b.gid = [0; 16], "no GID"),
            (|b| b.pkey = 0xfffe, "other partitions"),
        ];
        for (change, part) in changes {
            let mut blob = to_blob(&at(PORT), 5, 6);
            change(&mut blob);
            let error = from_blob(&blob, &at(PORT), &expected(Role::Connecting)).unwrap_err();
            assert!(error.to_string().contains(part), "{error}");
        }
        let blob = to_blob(&address(None), 5, 6);
        let error = from_blob(&blob, &at(PORT), &expected(Role::Connecting)).unwrap_err();
        assert!(error.to_string().contains("another kind"), "{error}");
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        type Change = fn(&mut AddressBlob);
        let changes: [(Change, &str); 6] = [
            (|b| b.boot_id ^= 1, "another runtime"),
            (|b| b.epoch ^= 1, "another connection"),
            (|b| b.max_rd_atomic = 0, "no RDMA READ"),
            (|b| b.max_dest_rd_atomic = 0, "no RDMA READ"),
            (|b| b.message_bytes_max = 9215, "as long as an eager buffer"),
            (
                |b| {
                    b.kind = DeviceKind::Ibv;
                    b.soft = None;
                },
                "another kind",
            ),
        ];
        for (change, part) in changes {
            let mut blob = to_blob(&address(None), 5, 6);
            change(&mut blob);
            let error = from_blob(&blob, &address(None), &expected(Role::Connecting)).unwrap_err();
            assert!(error.to_string().contains(part), "{error}");
        }
    }
}
