use std::net::IpAddr;

/// How a device of libibverbs is chosen, and what its packets carry. What is left open follows from
/// what the machine has.
#[derive(Clone, Debug)]
#[must_use]
pub struct IbvConfig {
    pub(super) device: Option<String>,
    pub(super) port: Option<u8>,
    pub(super) gid_index: Option<u8>,
    pub(super) pkey_index: u16,
    pub(super) service_level: u8,
    pub(super) traffic_class: u8,
    pub(super) hop_limit: u8,
    pub(super) local_ip: Option<IpAddr>,
    /// Lets tests see SEND_WITH_INV where the runtime may not use it.
    #[cfg(test)]
    pub(super) remote_invalidate_anyway: bool,
}

impl Default for IbvConfig {
    fn default() -> Self {
        Self::new()
    }
}

impl IbvConfig {
    /// The defaults: the first port that is active.
    pub const fn new() -> Self {
        Self {
            device: None,
            port: None,
            gid_index: None,
            pkey_index: 0,
            service_level: 0,
            traffic_class: 0,
            hop_limit: 64,
            local_ip: None,
            #[cfg(test)]
            remote_invalidate_anyway: false,
        }
    }

    /// The device's name, as `ibv_devices` lists it.
    pub fn device(mut self, name: impl Into<String>) -> Self {
        self.device = Some(name.into());
        self
    }

    /// The device's port, from 1.
    pub const fn port(mut self, port: u8) -> Self {
        self.port = Some(port);
        self
    }

    /// The entry of the port's GID table, instead of the one that fits the local address.
    pub const fn gid_index(mut self, index: u8) -> Self {
        self.gid_index = Some(index);
        self
    }

    /// The entry of the port's PKey table; default 0.
    pub const fn pkey_index(mut self, index: u16) -> Self {
        self.pkey_index = index;
        self
    }

    /// The service level, 0 to 15; default 0. On RoCE it becomes the packet's priority.
    pub const fn service_level(mut self, level: u8) -> Self {
        self.service_level = level;
        self
    }

    /// The traffic class (on RoCE v2 the byte of DSCP and ECN); default 0.
    pub const fn traffic_class(mut self, class: u8) -> Self {
        self.traffic_class = class;
        self
    }

    /// Routers that a packet may pass; default 64.
    pub const fn hop_limit(mut self, limit: u8) -> Self {
        self.hop_limit = limit;
        self
    }

    /// An address of this machine: the device and the port are those that have it, unless they are
    /// named. See [`IbvDevice::at`](super::IbvDevice::at) for what follows from it.
    pub const fn local_ip(mut self, ip: IpAddr) -> Self {
        self.local_ip = Some(ip);
        self
    }
}
