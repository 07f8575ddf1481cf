//! A device's address and its form on the wire.

use std::net::{IpAddr, SocketAddr};

use super::{ConnectError, Role};
use crate::verbs::{Link, Psn, QpAddress, QpNum};
use crate::wire::{AddressBlob, DeviceKind, SoftLink};

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
    let Link::Soft { guid, dial } = &address.link;
    let link = SoftLink { guid: *guid, dial: *dial };
    AddressBlob {
        max_rd_atomic: address.max_rd_atomic,
        max_dest_rd_atomic: address.max_dest_rd_atomic,
        message_bytes_max: address.message_bytes_max,
        boot_id,
        epoch,
        ..AddressBlob::soft(address.qp_num.0, address.psn.0, address.mtu, link)
    }
}

/// The peer's address, of a blob that its decoder has checked field by field (QPN and PSN have 24
/// bits, the MTU is in its range), to be reached by the device of `own`.
///
/// # Errors
/// [`ConnectError::Malformed`] if the blob does not fit its hello, the connection or our device.
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
        _ => {
            return Err(malformed(
                "its device is of another kind than ours; use the same scheme at both ends",
            ));
        }
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
