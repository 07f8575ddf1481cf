use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::pending::{Pending, Purpose};
use super::{CoreHandle, RuntimeBuilder};
use crate::cm::{
    ConnectError, DeviceChoice, Host, LocalHello, Offer, OpenRequest, PendingQp, RdmaOptions, Role,
};
use crate::engine::ServerSide;
use crate::engine::capacity::EAGER_BYTES;
#[cfg(feature = "verbs")]
use crate::mem::Pool;

/// The runtime as its control thread sees it: who we are, and how a QP is made for a core.
pub(super) struct RuntimeHost {
    pub(super) cores: Vec<CoreHandle>,
    pub(super) boot_id: u128,
    pub(super) name: String,
    pub(super) message_bytes_max: u64,
    pub(super) rnr_retry: u8,
    #[cfg(feature = "verbs")]
    pub(super) rdma: super::rdma::RdmaDevices,
    servers: Mutex<HashMap<u64, ServerSide>>,
    next_server: AtomicU64,
}

impl RuntimeHost {
    pub(super) fn new(
        cores: Vec<CoreHandle>,
        boot_id: u128,
        settings: &RuntimeBuilder,
        #[cfg(feature = "verbs")] pool: &Pool,
    ) -> Self {
        Self {
            cores,
            boot_id,
            name: settings.name.clone(),
            message_bytes_max: settings.message_bytes_max,
            rnr_retry: settings.rnr_retry,
            #[cfg(feature = "verbs")]
            rdma: super::rdma::RdmaDevices::new(pool.clone(), settings),
            servers: Mutex::default(),
            next_server: AtomicU64::new(1),
        }
    }

    pub(super) fn add_server(&self, make: impl FnOnce(u64) -> ServerSide) -> u64 {
        let server = self.next_server.fetch_add(1, Ordering::Relaxed);
        let side = make(server);
        self.servers.lock().unwrap_or_else(PoisonError::into_inner).insert(server, side);
        server
    }

    pub(super) fn remove_server(&self, server: u64) {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner).remove(&server);
    }

    fn server(&self, server: u64) -> Option<ServerSide> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner).get(&server).cloned()
    }

    /// Connections that a core has or is getting, of every device.
    fn connections_of(&self, core: &CoreHandle) -> u32 {
        let soft = core.engine.connections.load(Ordering::Relaxed);
        #[cfg(feature = "verbs")]
        let soft = soft + self.rdma.connections_of(core.shared.index);
        soft
    }

    /// The core for a new connection: the one asked for, or the one with the fewest.
    fn place(&self, wanted: Option<usize>) -> Option<&CoreHandle> {
        match wanted {
            Some(core) => self.cores.get(core),
            None => self.cores.iter().min_by_key(|core| self.connections_of(core)),
        }
    }
}

impl Host for RuntimeHost {
    fn hello(&self) -> LocalHello {
        LocalHello {
            boot_id: self.boot_id,
            name: self.name.clone(),
            eager_bytes: EAGER_BYTES,
            message_bytes_max: self.message_bytes_max,
        }
    }

    fn offers(&self, device: &DeviceChoice, local_ip: Option<IpAddr>) -> Vec<Offer> {
        #[cfg(feature = "verbs")]
        let mut offers = match device {
            DeviceChoice::Soft => Vec::new(),
            DeviceChoice::Rdma(options) | DeviceChoice::Auto(options) => {
                self.rdma.offers(options, local_ip)
            }
        };
        #[cfg(not(feature = "verbs"))]
        let (mut offers, _) = (Vec::new(), local_ip);
        if !matches!(device, DeviceChoice::Rdma(_)) {
            offers.push(Offer::soft(offers.len() as u8 + 1));
        }
        offers
    }

    fn lack(&self, device: &DeviceChoice) -> Option<String> {
        match device {
            DeviceChoice::Soft => None,
            DeviceChoice::Rdma(options) | DeviceChoice::Auto(options) => lack(options),
        }
    }

    fn open(&self, request: &OpenRequest) -> Result<Box<dyn PendingQp>, ConnectError> {
        let server = match request.server {
            None => None,
            Some(server) => Some(self.server(server).ok_or(ConnectError::NoServer)?),
        };
        let core = self.place(request.core).ok_or(ConnectError::ShutDown)?;
        let purpose = Purpose {
            server,
            rnr_retry: self.rnr_retry,
            message_bytes_max: self.message_bytes_max,
        };
        match &request.device {
            DeviceChoice::Soft => open_soft(core, purpose, request),
            #[cfg(feature = "verbs")]
            DeviceChoice::Rdma(options) => self.rdma.open(core, purpose, request, options),
            // Auto is decided before a QP is asked for.
            #[cfg(feature = "verbs")]
            DeviceChoice::Auto(_) => Err(ConnectError::NotOffered { offers_rdma: false }),
            #[cfg(not(feature = "verbs"))]
            DeviceChoice::Rdma(_) | DeviceChoice::Auto(_) => Err(ConnectError::VerbsFeatureMissing),
        }
    }

    #[cfg(feature = "verbs")]
    fn prepare(
        &self,
        device: &DeviceChoice,
        local_ip: Option<IpAddr>,
        core: Option<usize>,
    ) -> Result<(), ConnectError> {
        let wanted = |handle: &&CoreHandle| core.is_none_or(|core| core == handle.shared.index);
        let cores = self.cores.iter().filter(wanted);
        match device {
            DeviceChoice::Soft => Ok(()),
            DeviceChoice::Rdma(options) => self.rdma.prepare(options, local_ip, cores),
            DeviceChoice::Auto(options) => {
                let prepared = self.rdma.prepare(options, local_ip, cores);
                let named = **options != RdmaOptions::default();
                match prepared {
                    Ok(()) => tracing::info!(
                        "auto://: RDMA is offered to clients, and software to others"
                    ),
                    // Who names a device or an address expects it to be there.
                    Err(error) if named => {
                        let device = options.device.as_deref().unwrap_or("any");
                        tracing::warn!(%error, device, "auto://: no RDMA is offered, software serves all clients");
                    }
                    Err(error) => {
                        tracing::info!(%error, "auto://: no RDMA is offered, software serves all clients");
                    }
                }
                Ok(())
            }
        }
    }

    #[cfg(not(feature = "verbs"))]
    fn prepare(
        &self,
        device: &DeviceChoice,
        _: Option<IpAddr>,
        _: Option<usize>,
    ) -> Result<(), ConnectError> {
        if let DeviceChoice::Auto(options) = device
            && **options != RdmaOptions::default()
            && let Some(why) = lack(options)
        {
            tracing::warn!("auto://: no RDMA is offered, software serves all clients: {why}");
        }
        Ok(())
    }

    #[cfg(feature = "verbs")]
    fn new_event_sources(&self) -> Vec<std::sync::Arc<dyn crate::cm::EventSource>> {
        self.rdma.new_event_sources()
    }
}

/// Why this process has no device for these options.
#[cfg(not(feature = "verbs"))]
fn lack(options: &RdmaOptions) -> Option<String> {
    let ignored = if *options == RdmaOptions::default() {
        ""
    } else {
        ", so options that choose a device or path of RDMA are ignored"
    };
    Some(format!("this program is built without the feature `verbs`{ignored}"))
}

/// The same, as far as the list of devices tells.
#[cfg(feature = "verbs")]
fn lack(options: &RdmaOptions) -> Option<String> {
    use crate::verbs::{OpenError, VerbsError};

    match (crate::verbs::ibv::device_names(), &options.device) {
        (Ok(names), Some(name)) if !names.contains(name) => {
            let (name, have) = (name.clone(), names.join(", "));
            Some(OpenError::NoSuchDevice { name, have }.to_string())
        }
        (Ok(_), _) => None,
        (Err(VerbsError::Open(OpenError::NoRdma | OpenError::NoDevice)), name) => {
            let named = name.as_ref().map(|name| format!(", and so none of the name {name:?}"));
            Some(format!("this machine has no RDMA device{}", named.unwrap_or_default()))
        }
        (Err(error), _) => Some(error.to_string()),
    }
}

/// A QP of a core's software device.
fn open_soft(
    core: &CoreHandle,
    purpose: Purpose,
    request: &OpenRequest,
) -> Result<Box<dyn PendingQp>, ConnectError> {
    let listens = request.role == Role::Accepting && !request.in_process;
    let ip = request.local_ip.filter(|_| listens);
    let device = &core.engine.device;
    if let Some(ip) = ip {
        device.listen(ip)?;
    }
    Ok(Box::new(Pending::open(&core.shared, &core.engine, device, purpose)?))
}
