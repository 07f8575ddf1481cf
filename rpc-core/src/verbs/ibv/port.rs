#![allow(unsafe_code)]

use super::context::Context;
use super::ffi;
use crate::verbs::{LinkLayer, OpenError, VerbsError};

/// A port as it is now.
#[derive(Clone, Copy)]
pub(super) struct PortState {
    pub(super) number: u8,
    state: u32,
    /// Bytes.
    pub(super) mtu: u32,
    /// What it could carry, bytes.
    pub(super) mtu_max: u32,
    pub(super) lid: u16,
    pub(super) link_layer: LinkLayer,
    /// Entries of its GID table. A QP names one by a byte.
    pub(super) gids: u16,
    pub(super) message_bytes_max: u32,
}

impl PortState {
    pub(super) fn query(context: &Context, number: u8) -> Result<Self, VerbsError> {
        // SAFETY: the context is alive.
        let attr = unsafe { ffi::query_port(context.raw(), number) }?;
        let link_layer = if attr.link_layer == ffi::LINK_LAYER_ETHERNET {
            LinkLayer::Ethernet
        } else {
            LinkLayer::InfiniBand
        };
        Ok(Self {
            number,
            state: attr.state,
            mtu: mtu_bytes(attr.active_mtu),
            mtu_max: mtu_bytes(attr.max_mtu),
            lid: attr.lid,
            link_layer,
            gids: attr.gid_tbl_len.clamp(0, 256) as u16,
            message_bytes_max: attr.max_msg_sz,
        })
    }

    /// # Errors
    /// It cannot carry messages now.
    pub(super) fn usable(&self, context: &Context) -> Result<(), VerbsError> {
        if self.state == ffi::PORT_ACTIVE {
            return Ok(());
        }
        Err(OpenError::PortDown {
            device: context.name.clone(),
            port: self.number,
            state: ffi::port_state(self.state),
        }
        .into())
    }
}

/// Verbs number MTUs: 1 is 256 bytes, 5 is 4096. What is not numbered so is taken for the least.
const fn mtu_bytes(number: u32) -> u32 {
    match number {
        1..=5 => 128 << number,
        _ => 256,
    }
}

/// The number of the largest MTU of verbs that is no larger.
pub(super) const fn mtu_number(bytes: u32) -> Option<u32> {
    match bytes {
        0..256 => None,
        256..512 => Some(1),
        512..1024 => Some(2),
        1024..2048 => Some(3),
        2048..4096 => Some(4),
        4096.. => Some(5),
    }
}

/// The key at `index` of a port's PKey table.
pub(super) fn pkey(context: &Context, port: u8, index: u16) -> Result<u16, VerbsError> {
    let mut key = 0;
    // SAFETY: the context is alive, and `key` is where the answer goes.
    let code =
        unsafe { ffi::ibv_query_pkey(context.raw().ptr(), port, index.into(), &raw mut key) };
    if code != 0 {
        let device = context.name.clone();
        return Err(OpenError::NoPkey { device, port, index }.into());
    }
    Ok(u16::from_be(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_mtu_keeps_its_bytes_through_its_number() {
        for bytes in [256, 512, 1024, 2048, 4096] {
            assert_eq!(mtu_number(bytes).map(mtu_bytes), Some(bytes));
        }
        assert_eq!(mtu_number(255), None);
        assert_eq!(mtu_number(1500).map(mtu_bytes), Some(1024));
        assert_eq!(mtu_number(65_536).map(mtu_bytes), Some(4096));
        assert_eq!((mtu_bytes(0), mtu_bytes(6), mtu_bytes(u32::MAX)), (256, 256, 256));
    }
}
