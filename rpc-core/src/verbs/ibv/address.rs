use std::net::IpAddr;

use super::config::IbvConfig;
use super::context::Context;
use super::ffi::{AddressHandle, GlobalRoute};
use super::gid::{self, GidEntry};
use super::port::{PortState, pkey};
use crate::verbs::{Gid, LinkLayer, Port, VerbsError};

/// What a QP's packets carry and where they leave: the port, its GID, and the configured rest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Route {
    pub(super) port: u8,
    pub(super) gid: GidEntry,
    pub(super) pkey_index: u16,
    service_level: u8,
    traffic_class: u8,
    hop_limit: u8,
}

impl Route {
    pub(super) const fn new(config: &IbvConfig, port: u8, gid: GidEntry) -> Self {
        Self {
            port,
            gid,
            pkey_index: config.pkey_index,
            service_level: config.service_level,
            traffic_class: config.traffic_class,
            hop_limit: config.hop_limit,
        }
    }

    /// What a peer must know of the port, and the port's MTU, as they are now.
    pub(super) fn port_now(&self, context: &Context) -> Result<(Port, u32), VerbsError> {
        let now = PortState::query(context, self.port)?;
        now.usable(context)?;
        let port = Port {
            link_layer: now.link_layer,
            gid: self.gid.gid,
            gid_type: self.gid.kind,
            lid: now.lid,
            pkey: pkey(context, self.port, self.pkey_index)?,
        };
        Ok((port, now.mtu))
    }
}

/// The entry of a port's GID table for a connection whose local address is `local_ip`.
pub(super) fn choose_gid(
    context: &Context,
    port: &PortState,
    config: &IbvConfig,
    local_ip: Option<IpAddr>,
    table: &mut Vec<GidEntry>,
) -> Result<GidEntry, VerbsError> {
    let index = match (config.gid_index, port.link_layer) {
        (None, LinkLayer::InfiniBand) => Some(0),
        (index, _) => index,
    };
    if let Some(index) = index {
        let entry = gid::entry(context, port, index);
        return entry.ok_or_else(|| gid::missing(context, port.number, format!("index {index}")));
    }
    // What was read before may have changed since.
    let still = |entry: &GidEntry| gid::entry(context, port, entry.index) == Some(*entry);
    if let Some(entry) = gid::choose(table, local_ip).filter(still) {
        return Ok(entry);
    }
    *table = gid::table(context, port);
    let fits = gid::choose(table, local_ip);
    // Whoever names a device may reach the peer's control port over another one.
    let named = || config.device.as_ref().and_then(|_| gid::choose(table, None));
    fits.or_else(named).ok_or_else(|| {
        let wanted = local_ip.map_or_else(|| "any address".to_owned(), |ip| ip.to_string());
        gid::missing(context, port.number, wanted)
    })
}

/// How packets get from `route` to the port of a peer.
pub(super) fn address_handle(route: &Route, peer: &Port) -> Result<AddressHandle, VerbsError> {
    if peer.gid_type != route.gid.kind {
        return Err(VerbsError::Address("its GID is of another kind than ours".to_owned()));
    }
    let global = match peer.link_layer {
        LinkLayer::Ethernet if peer.gid.is_zero() => {
            return Err(VerbsError::Address("it has no GID, which RoCE needs".to_owned()));
        }
        LinkLayer::Ethernet => true,
        LinkLayer::InfiniBand if peer.lid == 0 && peer.gid.is_zero() => {
            return Err(VerbsError::Address("it has neither LID nor GID".to_owned()));
        }
        // Within a subnet the LID says all.
        LinkLayer::InfiniBand => {
            !peer.gid.is_zero() && (peer.lid == 0 || subnet(peer.gid) != subnet(route.gid.gid))
        }
    };
    let route_to = global.then_some(GlobalRoute {
        gid: peer.gid,
        index: route.gid.index,
        hop_limit: route.hop_limit,
        traffic_class: route.traffic_class,
    });
    Ok(AddressHandle {
        lid: peer.lid,
        service_level: route.service_level,
        port: route.port,
        global: route_to,
    })
}

fn subnet(gid: Gid) -> u64 {
    (u128::from_be_bytes(gid.0) >> 64) as u64
}
