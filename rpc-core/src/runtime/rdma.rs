//! Devices of libibverbs: opened when an address first asks for one, shared by all cores.

use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

use super::memlock;
use super::pending::{Pending, Purpose};
use super::stats::DeviceStats;
use super::{CoreHandle, RuntimeBuilder};
use crate::cm::{ConnectError, Control, EventSource, Offer, OpenRequest, PendingQp, RdmaOptions};
use crate::engine::{
    CoreShared, Engine, EngineControl, EngineError, EngineParts, Lending, Offload,
};
use crate::mem::{Pool, Regions};
use crate::verbs::ibv::{IbvConfig, IbvDevice, IbvPd};
use crate::verbs::{AsyncEvent, Device};
use crate::{Pings, world};

/// Devices, each with its options, that one runtime opens: an address with other options opens
/// another context, and a program has a handful of addresses.
const DEVICES_MAX: usize = 16;

/// The devices of libibverbs that a runtime has opened.
pub(super) struct RdmaDevices {
    pool: Pool,
    lending: Lending,
    read_bytes_max: u64,
    pings: Pings,
    control: OnceLock<Control>,
    /// Locked by the control thread alone, also while it opens a device.
    state: Mutex<State>,
    /// The same devices, for those who only look.
    shown: Mutex<Vec<IbvDevice>>,
}

#[derive(Default)]
struct State {
    opened: Vec<Opened>,
    /// How many engines each core has been given beside that of its software device.
    engines: Vec<u16>,
    /// Where none was found lately.
    absent: Vec<Absent>,
    /// Devices whose events the control thread does not watch yet.
    unwatched: Vec<Arc<dyn EventSource>>,
}

/// To look for a device opens all there are, which a peer that only connects must not cause each time…
const ABSENT_FOR: Duration = Duration::from_secs(5);
/// …for any of so many addresses.
const ABSENT_MAX: usize = 64;

/// An address that had no device with these options.
struct Absent {
    options: Arc<RdmaOptions>,
    ip: Option<IpAddr>,
    until: Instant,
}

/// A device that was opened for some options.
struct Opened {
    options: Arc<RdmaOptions>,
    device: IbvDevice,
    pd: IbvPd,
    regions: Arc<Regions<IbvDevice>>,
    /// By core: made when its first connection is.
    engines: Vec<Option<Arc<EngineControl<IbvDevice>>>>,
    events: Arc<Events>,
}

impl RdmaDevices {
    pub(super) fn new(pool: Pool, settings: &RuntimeBuilder) -> Self {
        Self {
            pool,
            lending: settings.lending,
            read_bytes_max: settings.read_bytes_max,
            pings: settings.pings,
            control: OnceLock::new(),
            state: Mutex::default(),
            shown: Mutex::default(),
        }
    }

    /// The control thread's handle, once it runs.
    pub(super) fn use_control(&self, control: Control) {
        let _ = self.control.set(control);
    }

    /// Makes a QP for a core, on the device of its options and local address. On the control thread.
    pub(super) fn open(
        &self,
        core: &CoreHandle,
        purpose: Purpose,
        request: &OpenRequest,
        options: &Arc<RdmaOptions>,
    ) -> Result<Box<dyn PendingQp>, ConnectError> {
        let mut state = self.lock();
        let (index, device) = self.find(&mut state, options, request.local_ip)?;
        let engine = self.engine(&mut state, index, core)?;
        drop(state);
        Ok(Box::new(Pending::open(&core.shared, &engine, &device, purpose)?))
    }

    /// The devices that a server with these options offers to a peer that came to `local_ip`: those of the
    /// configured addresses, or that of the address itself. What cannot be used is not offered.
    pub(super) fn offers(
        &self,
        options: &Arc<RdmaOptions>,
        local_ip: Option<IpAddr>,
    ) -> Vec<Offer> {
        let mut state = self.lock();
        let now = world::now();
        state.absent.retain(|absent| absent.until > now);
        let mut offers = Vec::new();
        for ip in addresses(options, local_ip) {
            if state.absent.iter().any(|absent| absent.ip == ip && absent.options == *options) {
                continue;
            }
            let number = offers.len() as u8 + 1;
            match self.find(&mut state, options, ip) {
                Ok((_, device)) => {
                    let (_, gid, kind) = device.gid();
                    offers.push(Offer::rdma(number, gid, kind, ip));
                }
                Err(error) => {
                    tracing::debug!(?ip, %error, "no RDMA is offered");
                    if state.absent.len() < ABSENT_MAX {
                        let (options, until) = (Arc::clone(options), now + ABSENT_FOR);
                        state.absent.push(Absent { options, ip, until });
                    }
                }
            }
        }
        offers
    }

    /// Opens the device for these options and this address, and makes its engines for these cores: a server hears
    /// at once if there is none, and no handshake waits for it to be opened. A server at every address opens the
    /// first here, and others with the first peer that comes to their address.
    pub(super) fn prepare<'a>(
        &self,
        options: &Arc<RdmaOptions>,
        local_ip: Option<IpAddr>,
        cores: impl Iterator<Item = &'a CoreHandle>,
    ) -> Result<(), ConnectError> {
        let mut state = self.lock();
        let cores: Vec<_> = cores.collect();
        let (mut found, mut failed) = (0, None);
        for ip in addresses(options, local_ip) {
            let made = self.find(&mut state, options, ip).and_then(|(index, _)| {
                cores.iter().try_for_each(|core| self.engine(&mut state, index, core).map(drop))
            });
            match made {
                Ok(()) => found += 1,
                Err(error) => {
                    if let Some(ip) = ip.filter(|_| !options.addresses.is_empty()) {
                        tracing::warn!(%ip, %error, "this address of rdma_ip= cannot be used");
                    }
                    failed = Some(error);
                }
            }
        }
        match failed {
            Some(error) if found == 0 => Err(error),
            _ => Ok(()),
        }
    }

    /// The device for these options that has this address, opened if it is not yet.
    fn find(
        &self,
        state: &mut State,
        options: &Arc<RdmaOptions>,
        local_ip: Option<IpAddr>,
    ) -> Result<(usize, IbvDevice), ConnectError> {
        state.forget_dead();
        self.show(state);
        let mut refused = None;
        for (index, opened) in state.opened.iter().enumerate() {
            if opened.options != *options || opened.events.is_dead() {
                continue;
            }
            match local_ip.map_or_else(|| Ok(opened.device.clone()), |ip| opened.device.at(ip)) {
                Ok(device) => return Ok((index, device)),
                // The address may be another device's.
                Err(error) => refused = Some(error),
            }
        }
        if state.opened.len() >= DEVICES_MAX {
            let what = format!("{DEVICES_MAX} RDMA devices are open already, the most allowed");
            return Err(refused.map_or(ConnectError::NoMemory { what }, ConnectError::from));
        }
        memlock::check(self.pool.budget().bytes())?;
        let device = IbvDevice::open(&config(options, local_ip))?;
        if !device.limits().windows {
            return Err(ConnectError::NoWindows { device: device.name().to_owned() });
        }
        let pd = device.shared_pd()?;
        let regions = Regions::new(device.clone(), pd.clone(), self.pool.clone());
        let events = Arc::new(Events::new(device.clone()));
        state.unwatched.push(Arc::clone(&events) as _);
        state.opened.push(Opened {
            options: Arc::clone(options),
            device: device.clone(),
            pd,
            regions: Arc::new(regions),
            engines: Vec::new(),
            events,
        });
        self.show(state);
        Ok((state.opened.len() - 1, device))
    }

    /// The engine of a core on a device, made if it is not there yet.
    fn engine(
        &self,
        state: &mut State,
        index: usize,
        core: &CoreHandle,
    ) -> Result<Arc<EngineControl<IbvDevice>>, ConnectError> {
        let number = core.shared.index;
        let State { opened, engines, .. } = state;
        let opened = &mut opened[index];
        if opened.engines.len() <= number {
            opened.engines.resize(number + 1, None);
        }
        if let Some(engine) = &opened.engines[number] {
            return Ok(Arc::clone(engine));
        }
        if engines.len() <= number {
            engines.resize(number + 1, 0);
        }
        let control = self.control.get().ok_or(ConnectError::ShutDown)?.clone();
        // The first is that of the software device.
        let place = engines[number] + 1;
        let engine = Engine::new(EngineParts {
            index: place,
            device: opened.device.clone(),
            pd: opened.pd.clone(),
            regions: Arc::clone(&opened.regions),
            pool: self.pool.clone(),
            waker: Waker::from(Arc::clone(&core.shared)),
            lending: self.lending,
            read_bytes_max: self.read_bytes_max,
            pings: self.pings,
            offload: Some(Offload { control, core: Arc::clone(&core.shared) }),
        })
        .map_err(refused)?;
        engines[number] = place;
        let made = engine.control();
        opened.engines[number] = Some(Arc::clone(&made));
        opened.events.add(Arc::clone(&core.shared), usize::from(place));
        core.shared.run_on_core(Box::new(move |core| core.add_engine(Box::new(engine))));
        Ok(made)
    }

    /// Connections that a core has, or is getting, on these devices.
    pub(super) fn connections_of(&self, core: usize) -> u32 {
        let state = self.lock();
        let engines = state.opened.iter().filter_map(|opened| opened.engines.get(core)?.as_ref());
        engines.map(|engine| engine.connections.load(Ordering::Relaxed)).sum()
    }

    /// Devices whose events nobody watches yet.
    pub(super) fn new_event_sources(&self) -> Vec<Arc<dyn EventSource>> {
        std::mem::take(&mut self.lock().unwatched)
    }

    pub(super) fn stats(&self) -> Vec<DeviceStats> {
        let of = |device: &IbvDevice| DeviceStats {
            name: device.name().to_owned(),
            device: device.counters(),
            usage: device.usage(),
            leaks: device.leaks(),
        };
        self.looked_at().iter().map(of).collect()
    }

    /// One line for each device, for people.
    pub(super) fn describe(&self) -> Vec<String> {
        let line = |device: &IbvDevice| {
            let (index, gid, kind) = device.gid();
            format!(
                "RDMA device: {}, port {}, GID {index} ({gid}, {kind:?}), MTU {} B",
                device.name(),
                device.port(),
                device.limits().mtu
            )
        };
        self.looked_at().iter().map(line).collect()
    }

    fn show(&self, state: &State) {
        *self.looked_at() = state.opened.iter().map(|opened| opened.device.clone()).collect();
    }

    fn looked_at(&self) -> MutexGuard<'_, Vec<IbvDevice>> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// A device that is gone makes no connections any more; its cores keep what is left of it until
    /// the last connection has been taken down.
    fn forget_dead(&mut self) {
        self.opened.retain(|opened| {
            let used = opened.engines.iter().flatten();
            let connections: u32 =
                used.map(|engine| engine.connections.load(Ordering::Relaxed)).sum();
            !opened.events.is_dead() || connections > 0
        });
    }
}

/// The local addresses whose devices are meant.
fn addresses(options: &RdmaOptions, local_ip: Option<IpAddr>) -> Vec<Option<IpAddr>> {
    if options.addresses.is_empty() {
        return vec![local_ip];
    }
    options.addresses.iter().copied().map(Some).collect()
}

fn config(options: &RdmaOptions, local_ip: Option<IpAddr>) -> IbvConfig {
    let mut config = IbvConfig::new();
    if let Some(device) = &options.device {
        config = config.device(device);
    }
    if let Some(port) = options.device_port {
        config = config.port(port);
    }
    if let Some(index) = options.gid_index {
        config = config.gid_index(index);
    }
    if let Some(index) = options.pkey_index {
        config = config.pkey_index(index);
    }
    if let Some(level) = options.service_level {
        config = config.service_level(level);
    }
    if let Some(class) = options.traffic_class {
        config = config.traffic_class(class);
    }
    if let Some(limit) = options.hop_limit {
        config = config.hop_limit(limit);
    }
    match local_ip {
        Some(ip) => config.local_ip(ip),
        None => config,
    }
}

fn refused(error: EngineError) -> ConnectError {
    match error {
        EngineError::Verbs(error) => ConnectError::Device(error),
        error => ConnectError::NoMemory { what: error.to_string() },
    }
}

/// A device's asynchronous events, on their way to the cores that use it.
struct Events {
    device: IbvDevice,
    dead: AtomicBool,
    /// Each core with the place of its engine.
    cores: Mutex<Vec<(Arc<CoreShared>, usize)>>,
}

impl Events {
    fn new(device: IbvDevice) -> Self {
        Self { device, dead: AtomicBool::new(false), cores: Mutex::default() }
    }

    fn add(&self, core: Arc<CoreShared>, engine: usize) {
        self.cores.lock().unwrap_or_else(PoisonError::into_inner).push((core, engine));
    }

    fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    fn note(&self, event: AsyncEvent) {
        let device = self.device.name();
        match event {
            AsyncEvent::DeviceFatal => {
                self.dead.store(true, Ordering::Relaxed);
                tracing::error!(device, "the RDMA device has failed or was removed");
            }
            AsyncEvent::PortError(port) => tracing::warn!(
                device,
                port,
                "an RDMA port lost its link; requests are repeated until their retries are used up"
            ),
            AsyncEvent::PortActive(port) => tracing::info!(device, port, "an RDMA port is up"),
            event => tracing::debug!(device, ?event, "device event"),
        }
    }
}

impl EventSource for Events {
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.device.async_fd()
    }

    fn on_ready(&self) -> bool {
        while let Some(event) = self.device.poll_async() {
            self.note(event);
            for (core, index) in self.cores.lock().unwrap_or_else(PoisonError::into_inner).iter() {
                let index = *index;
                core.run_on_core(Box::new(move |core| {
                    core.with_engine::<IbvDevice>(index, |engine, turn| {
                        engine.on_async_event(turn, event);
                    });
                }));
            }
        }
        !self.is_dead()
    }
}
