#![allow(unsafe_code)]

use std::fs;
use std::net::{IpAddr, Ipv6Addr};

use super::context::Context;
use super::ffi;
use super::port::PortState;
use crate::verbs::{Gid, GidType, LinkLayer, OpenError, VerbsError};

/// An entry of a port's GID table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GidEntry {
    pub(super) index: u8,
    pub(super) gid: Gid,
    pub(super) kind: GidType,
}

/// The entries of a port's GID table that are in use. What an entry is, the kernel says in its file
/// system alone; one about which it says nothing is left out.
pub(super) fn table(context: &Context, port: &PortState) -> Vec<GidEntry> {
    let indices = (0..port.gids).filter_map(|index| u8::try_from(index).ok());
    indices.filter_map(|index| entry(context, port, index)).collect()
}

/// One entry; `None` if it is not in use.
pub(super) fn entry(context: &Context, port: &PortState, index: u8) -> Option<GidEntry> {
    // SAFETY: the context is alive.
    let gid = unsafe { ffi::query_gid(context.raw(), port.number, index) }.ok()?;
    if gid.is_zero() {
        return None;
    }
    let kind = match port.link_layer {
        LinkLayer::InfiniBand => GidType::InfiniBand,
        LinkLayer::Ethernet => {
            let (name, number) = (&context.name, port.number);
            let path =
                format!("/sys/class/infiniband/{name}/ports/{number}/gid_attrs/types/{index}");
            kind_of(&fs::read_to_string(path).ok()?)?
        }
    };
    Some(GidEntry { index, gid, kind })
}

/// The kernel's words for what a GID is.
fn kind_of(words: &str) -> Option<GidType> {
    match words.trim() {
        "RoCE v2" => Some(GidType::RoceV2),
        "IB/RoCE v1" => Some(GidType::RoceV1),
        _ => None,
    }
}

/// The entry that QPs of an Ethernet port use: that of `local_ip`, or the best one there is.
/// RoCE v2 comes before v1, IPv4 before IPv6; a link-local address never counts, for it says nothing
/// of where a peer is.
pub(super) fn choose(table: &[GidEntry], local_ip: Option<IpAddr>) -> Option<GidEntry> {
    // A connection within this machine says nothing of the port: any entry leads to it.
    let wanted = local_ip.filter(|ip| !ip.to_canonical().is_loopback()).map(Gid::of_ip);
    let rank = |entry: &&GidEntry| {
        (entry.kind == GidType::RoceV2, entry.gid.ip().is_ipv4(), u8::MAX - entry.index)
    };
    table
        .iter()
        .filter(|entry| !is_link_local(entry.gid))
        .filter(|entry| wanted.is_none_or(|wanted| wanted == entry.gid))
        .max_by_key(rank)
        .copied()
}

fn is_link_local(gid: Gid) -> bool {
    Ipv6Addr::from(gid.0).is_unicast_link_local()
}

/// That no entry fits.
pub(super) fn missing(context: &Context, port: u8, wanted: String) -> VerbsError {
    OpenError::NoGid { device: context.name.clone(), port, wanted }.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(index: u8, ip: &str, kind: GidType) -> GidEntry {
        GidEntry { index, gid: Gid::of_ip(ip.parse().unwrap()), kind }
    }

    fn usual() -> Vec<GidEntry> {
        use GidType::{RoceV1, RoceV2};
        vec![
            entry(0, "fe80::5054:ff:fe12:3456", RoceV1),
            entry(1, "fe80::5054:ff:fe12:3456", RoceV2),
            entry(2, "2001:db8::7", RoceV1),
            entry(3, "2001:db8::7", RoceV2),
            entry(4, "10.0.0.7", RoceV1),
            entry(5, "10.0.0.7", RoceV2),
            entry(6, "10.9.0.7", RoceV1),
            entry(7, "10.0.0.8", RoceV2),
        ]
    }

    fn chosen(ip: &str) -> Option<u8> {
        choose(&usual(), Some(ip.parse().unwrap())).map(|entry| entry.index)
    }

    #[test]
    fn the_entry_is_that_of_the_local_address_and_v2_if_there_is_one() {
        assert_eq!(chosen("10.0.0.7"), Some(5));
        assert_eq!(chosen("::ffff:10.0.0.7"), Some(5));
        assert_eq!(chosen("10.9.0.7"), Some(6));
        assert_eq!(chosen("2001:db8::7"), Some(3));
        assert_eq!(chosen("10.0.0.9"), None);
    }

    #[test]
    fn a_link_local_entry_is_never_chosen() {
        assert_eq!(chosen("fe80::5054:ff:fe12:3456"), None);
        assert_eq!(choose(&usual()[..2], None), None);
    }

    #[test]
    fn without_an_address_to_go_by_the_first_of_the_best_kind_is_chosen() {
        assert_eq!(choose(&usual(), None).map(|entry| entry.index), Some(5));
        assert_eq!(choose(&usual()[..4], None).map(|entry| entry.index), Some(3));
        assert_eq!(choose(&usual()[..3], None).map(|entry| entry.index), Some(2));
        for loopback in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] {
            assert_eq!(chosen(loopback), Some(5));
        }
        assert_eq!(choose(&[], None), None);
    }

    #[test]
    fn the_kernels_words_are_understood() {
        assert_eq!(kind_of("RoCE v2\n"), Some(GidType::RoceV2));
        assert_eq!(kind_of("IB/RoCE v1\n"), Some(GidType::RoceV1));
        assert_eq!(kind_of("RoCE v3\n"), None);
    }
}
