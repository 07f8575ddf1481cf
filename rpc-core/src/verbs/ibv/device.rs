use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};

use super::address::{Route, choose_gid};
use super::config::IbvConfig;
use super::context::Context;
use super::cq::{IbvCq, IbvCqRef};
use super::events;
use super::gid::GidEntry;
use super::limits::{inline_bytes_max, is_soft_roce, limits};
use super::list::DeviceList;
use super::mr::IbvMr;
use super::mw::IbvMw;
use super::pd::IbvPd;
use super::port::{PortState, pkey};
use super::qp::{IbvQp, Parts};
use super::srq::{IbvSrq, IbvSrqRef};
use super::wc::Reader;
use crate::verbs::{
    Access, AsyncEvent, Device, DeviceCounters, DeviceUsage, Gid, GidType, Limits, OpenError,
    QpInit, Region, SrqInit, VerbsError,
};

/// An open device of libibverbs and one of its ports. Clones are cheap and name the same context.
///
/// A clone differs in one thing at most: the entry of the GID table that QPs made with it use, see
/// [`at`](Self::at).
#[derive(Clone)]
pub struct IbvDevice {
    shared: Arc<Shared>,
    gid: GidEntry,
}

struct Shared {
    context: Arc<Context>,
    limits: Limits,
    soft_roce: bool,
    port: PortState,
    config: IbvConfig,
    /// The port's GID table when it was last read.
    gids: Mutex<Vec<GidEntry>>,
    /// The domain of everything that shares memory, once it is asked for.
    pd: Mutex<Option<IbvPd>>,
}

impl IbvDevice {
    /// Opens the device that `config` names, or the first one with a port that can be used and that
    /// has the configured local address. May block.
    ///
    /// # Errors
    /// [`VerbsError::Open`] with the reason and what to do about it.
    pub fn open(config: &IbvConfig) -> Result<Self, VerbsError> {
        let list = DeviceList::get()?;
        let named = |name: &str| config.device.as_deref().is_none_or(|wanted| wanted == name);
        let mut refused = None;
        for (index, name) in list.names().iter().enumerate() {
            if !named(name) {
                continue;
            }
            match Self::open_one(&list, index, config) {
                Ok(device) => return Ok(device),
                Err(error) => refused = Some(worse(refused, error)),
            }
        }
        Err(refused.unwrap_or_else(|| {
            let name = config.device.clone().unwrap_or_default();
            OpenError::NoSuchDevice { name, have: list.names().join(", ") }.into()
        }))
    }

    fn open_one(list: &DeviceList, index: usize, config: &IbvConfig) -> Result<Self, VerbsError> {
        let context = Arc::new(Context::open(list, index)?);
        let ports = context.attributes()?.phys_port_cnt;
        let (first, last) = match config.port {
            Some(port) if port == 0 || port > ports => {
                let device = context.name.clone();
                return Err(OpenError::NoSuchPort { device, port, ports }.into());
            }
            Some(port) => (port, port),
            None => (1, ports),
        };
        let mut refused = None;
        for port in first..=last {
            match Self::open_port(&context, port, config) {
                Ok(device) => return Ok(device),
                Err(error) => refused = Some(worse(refused, error)),
            }
        }
        Err(refused.unwrap_or_else(|| OpenError::NoDevice.into()))
    }

    fn open_port(context: &Arc<Context>, port: u8, config: &IbvConfig) -> Result<Self, VerbsError> {
        let port = PortState::query(context, port)?;
        port.usable(context)?;
        pkey(context, port.number, config.pkey_index)?;
        let mut gids = Vec::new();
        let gid = choose_gid(context, &port, config, config.local_ip, &mut gids)?;
        let attr = context.attributes()?;
        let soft_roce = is_soft_roce(&attr);
        let inline = {
            let cq = IbvCq::create(context, 1, Reader::new(soft_roce))?;
            inline_bytes_max(&IbvPd::alloc(context)?, &cq)?
        };
        #[allow(unused_mut, reason = "tests change it")]
        let mut limits = limits(&attr, &port, inline);
        #[cfg(test)]
        {
            limits.remote_invalidate |= config.remote_invalidate_anyway;
        }
        let shared = Shared {
            context: Arc::clone(context),
            limits,
            soft_roce,
            port,
            config: config.clone(),
            gids: Mutex::new(gids),
            pd: Mutex::default(),
        };
        tracing::info!(
            device = context.name, port = port.number, gid = %gid.gid, gid_index = gid.index,
            kind = ?gid.kind, mtu = port.mtu, soft_roce, "RDMA device opened"
        );
        Ok(Self { shared: Arc::new(shared), gid })
    }

    /// The same device for a connection whose local address is `local_ip`: QPs made with it use the
    /// entry of the GID table that is this address, RoCE v2 if there is one, as the table is now. An
    /// address of this machine alone (127.0.0.1) leads to the default entry, and so does one that the
    /// port does not have if the configuration names the device. On InfiniBand, and when the
    /// configuration names an entry, nothing changes. May block.
    ///
    /// # Errors
    /// The port does not have that address, and the device was not named.
    pub fn at(&self, local_ip: IpAddr) -> Result<Self, VerbsError> {
        let Shared { context, port, config, gids, .. } = &*self.shared;
        let mut gids = gids.lock().unwrap_or_else(PoisonError::into_inner);
        let gid = choose_gid(context, port, config, Some(local_ip), &mut gids)?;
        drop(gids);
        Ok(Self { shared: Arc::clone(&self.shared), gid })
    }

    /// The domain that the cores of a runtime share: always the same one, made at the first call.
    /// An SRQ, the QPs that use it, their regions and windows must be in one domain.
    /// [`alloc_pd`](Device::alloc_pd) makes a new one at each call.
    ///
    /// # Errors
    /// The device has no more domains.
    pub fn shared_pd(&self) -> Result<IbvPd, VerbsError> {
        let mut pd = self.shared.pd.lock().unwrap_or_else(PoisonError::into_inner);
        match &*pd {
            Some(pd) => Ok(pd.clone()),
            None => Ok(pd.insert(IbvPd::alloc(&self.shared.context)?).clone()),
        }
    }

    /// The device's port that is used, from 1.
    pub fn port(&self) -> u8 {
        self.shared.port.number
    }

    /// The GID that QPs made with this handle use: its index, itself, and what it is.
    pub fn gid(&self) -> (u8, Gid, GidType) {
        (self.gid.index, self.gid.gid, self.gid.kind)
    }

    /// Whether it is the kernel's soft-RoCE: for tests and people, not for speed.
    pub fn is_soft_roce(&self) -> bool {
        self.shared.soft_roce
    }

    fn of(&self, context: &Arc<Context>) -> Result<(), VerbsError> {
        if Arc::ptr_eq(context, &self.shared.context) {
            return Ok(());
        }
        Err(VerbsError::State {
            operation: "creating a queue pair",
            why: "a queue belongs to another device",
        })
    }
}

/// Which of two devices' errors says more: one that has a link but not the address is nearer to what
/// was asked for than one without a link.
fn worse(before: Option<VerbsError>, now: VerbsError) -> VerbsError {
    match (before, now) {
        (Some(before), now) if !matches!(now, VerbsError::Open(OpenError::NoGid { .. })) => before,
        (_, now) => now,
    }
}

fn bounded(what: &'static str, value: u32, max: u32) -> Result<(), VerbsError> {
    if value <= max { Ok(()) } else { Err(VerbsError::Limit { what, max: max.into() }) }
}

impl Device for IbvDevice {
    type Pd = IbvPd;
    type Mr = IbvMr;
    type Mw = IbvMw;
    type Cq = IbvCq;
    type CqRef = IbvCqRef;
    type Srq = IbvSrq;
    type SrqRef = IbvSrqRef;
    type Qp = IbvQp;

    fn name(&self) -> &str {
        &self.shared.context.name
    }

    fn limits(&self) -> Limits {
        self.shared.limits
    }

    fn alloc_pd(&self) -> Result<IbvPd, VerbsError> {
        IbvPd::alloc(&self.shared.context)
    }

    fn register(&self, pd: &IbvPd, region: Region, access: Access) -> Result<IbvMr, VerbsError> {
        if region.is_empty() {
            return Err(VerbsError::State { operation: "registering", why: "the region is empty" });
        }
        IbvMr::register(pd.of(&self.shared.context)?, region, access)
    }

    fn alloc_mw(&self, pd: &IbvPd) -> Result<IbvMw, VerbsError> {
        if !self.shared.limits.windows {
            return Err(VerbsError::Limit { what: "memory windows", max: 0 });
        }
        IbvMw::alloc(pd.of(&self.shared.context)?)
    }

    fn create_cq(&self, cqe: u32) -> Result<IbvCq, VerbsError> {
        bounded("entries of a completion queue", cqe, self.shared.limits.cqe_max)?;
        IbvCq::create(&self.shared.context, cqe, Reader::new(self.shared.soft_roce))
    }

    fn cq_ref(&self, cq: &IbvCq) -> IbvCqRef {
        cq.name()
    }

    fn create_srq(&self, pd: &IbvPd, init: SrqInit) -> Result<IbvSrq, VerbsError> {
        bounded("receives of an SRQ", init.wr_max, self.shared.limits.srq_wr_max)?;
        bounded("scatter entries of a receive", init.sge_max, self.shared.limits.sge_max)?;
        IbvSrq::create(pd.of(&self.shared.context)?, init)
    }

    fn srq_ref(&self, srq: &IbvSrq) -> IbvSrqRef {
        srq.name()
    }

    fn create_qp(&self, init: &QpInit<'_, Self>) -> Result<IbvQp, VerbsError> {
        let limits = self.shared.limits;
        bounded("requests of a send queue", init.send_wr_max, limits.qp_wr_max)?;
        bounded("gather entries of a request", init.send_sge_max, limits.sge_max)?;
        bounded("inline bytes", init.inline_bytes_max, limits.inline_bytes_max)?;
        let parts = Parts {
            pd: Arc::clone(init.pd.of(&self.shared.context)?),
            send_cq: Arc::clone(&init.send_cq.0),
            recv_cq: Arc::clone(&init.recv_cq.0),
            srq: Arc::clone(&init.srq.0),
        };
        self.of(&parts.send_cq.context)?;
        self.of(&parts.recv_cq.context)?;
        self.of(&parts.srq.pd.context)?;
        let route = Route::new(&self.shared.config, self.shared.port.number, self.gid);
        IbvQp::create(parts, route, limits, init)
    }

    fn async_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.shared.context.async_fd())
    }

    /// The events of all QPs and queues of the device, whichever core they belong to: one thread
    /// fetches them and passes them on. A CQ that overran also says so itself, when it is polled.
    fn poll_async(&self) -> Option<AsyncEvent> {
        let event = events::fetch(&self.shared.context)?;
        if matches!(event, AsyncEvent::GidChange(_)) {
            self.shared.gids.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
        Some(event)
    }

    fn leaks(&self) -> u64 {
        self.shared.context.tables.leaks()
    }

    /// What this process posted and received, of all clones. SENDs, READs, binds and invalidations
    /// count when they are posted; what the device does by itself, it does not say.
    fn counters(&self) -> DeviceCounters {
        self.shared.context.tables.counters()
    }

    /// The objects of this process, of all clones. Receives that wait on an SRQ are not known.
    fn usage(&self) -> DeviceUsage {
        self.shared.context.tables.usage()
    }
}
