//! A runtime: cores, a control thread, devices and payload memory.

mod block_on;
mod builder;
mod host;
mod local;
pub(crate) mod memlock;
#[cfg(all(loom, test))]
mod models;
mod pending;
#[cfg(feature = "verbs")]
mod rdma;
#[cfg(any(test, feature = "test-util"))]
mod simulated;
mod stats;

use std::fmt;
use std::future::Future;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::Waker;
use std::thread;

pub use crate::engine::QueueCounters;
pub use block_on::block_on;
pub use builder::RuntimeBuilder;
pub use local::LocalRuntime;
#[cfg(any(test, feature = "test-util"))]
pub(crate) use simulated::{SimulatedRuntime, Surroundings, current as current_node};
pub use stats::{CoreStats, DeviceStats, RuntimeStats};

use crate::cm::{Control, ControlThread, Host, RdmaOptions};
use crate::engine::{
    Clock, Core, CoreShared, Engine, EngineControl, EngineError, EngineParts, JoinHandle, Offload,
    ServerSide,
};
use crate::mem::{Pool, PoolConfig, Regions};
use crate::verbs::Device;
use crate::verbs::soft::{SoftConfig, SoftDevice};
use crate::{Status, Time, world};
use host::RuntimeHost;

/// Owns cores, devices and the memory budget; servers and channels live on it.
///
/// A cheap clone. The last clone, and the last server or channel on it, stops its threads.
#[derive(Clone)]
pub struct Runtime {
    inner: Arc<Inner>,
}

struct Inner {
    host: Arc<RuntimeHost>,
    control: Control,
    pool: Pool,
    clock: Clock,
    settings: RuntimeBuilder,
    threads: Mutex<Vec<thread::JoinHandle<()>>>,
}

/// A core, as the rest of the runtime reaches it.
#[derive(Clone)]
pub(crate) struct CoreHandle {
    pub(crate) shared: Arc<CoreShared>,
    pub(crate) engine: Arc<EngineControl<SoftDevice>>,
}

/// What a core's thread starts with.
struct Seed {
    shared: Arc<CoreShared>,
    engine: Engine<SoftDevice>,
}

/// Default of the memory budget: this part of the host's memory…
const BUDGET_PART: u64 = 8;
/// …but no more than this: a software device pins nothing, and copies are cheap there.
const BUDGET_BYTES_MAX: u64 = 1 << 30;

impl Runtime {
    /// Begins a runtime.
    pub fn builder() -> RuntimeBuilder {
        RuntimeBuilder::new()
    }

    /// The process's shared runtime, started when first asked for: one core, defaults for the rest.
    ///
    /// # Errors
    /// As [`RuntimeBuilder::build`], at every call until it succeeds.
    pub fn shared() -> Result<Self, Status> {
        #[cfg(any(test, feature = "test-util"))]
        if let Some(runtime) = simulated::current() {
            return Ok(runtime); // that of the node whose task asks
        }
        static SHARED: OnceLock<Mutex<Option<Runtime>>> = OnceLock::new();
        let mut shared =
            SHARED.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(runtime) = &*shared {
            return Ok(runtime.clone());
        }
        let runtime = Self::builder().build()?;
        *shared = Some(runtime.clone());
        Ok(runtime)
    }

    fn start(settings: RuntimeBuilder) -> Result<Self, Status> {
        let (runtime, seeds) = Self::assemble(settings)?;
        for (index, seed) in seeds.into_iter().enumerate() {
            let thread = runtime.start_core(index, seed)?;
            let threads = &runtime.inner.threads;
            threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        }
        Ok(runtime)
    }

    /// Everything but the cores' threads.
    fn assemble(settings: RuntimeBuilder) -> Result<(Self, Vec<Seed>), Status> {
        let start = |host| Ok((ControlThread::start(host)?, ()));
        let (runtime, seeds, ()) = Self::assemble_with(settings, start)?;
        Ok((runtime, seeds))
    }

    /// The same; `start` makes the control thread, or what stands for it.
    fn assemble_with<C>(
        settings: RuntimeBuilder,
        start: impl FnOnce(Arc<dyn Host>) -> std::io::Result<(Control, C)>,
    ) -> Result<(Self, Vec<Seed>, C), Status> {
        let budget = settings.budget_bytes.unwrap_or_else(default_budget);
        let pool = Pool::new(PoolConfig::new(budget)).map_err(memory_error)?;
        let clock = Clock::new();
        let mut seeds = Vec::with_capacity(settings.cores);
        for index in 0..settings.cores {
            seeds.push(Seed::new(index, clock, &pool, &settings)?);
        }
        let cores = seeds.iter().map(Seed::handle).collect();
        let mut boot_id = [0; 16];
        world::fill_random(&mut boot_id)
            .map_err(|error| Status::internal(format!("no random numbers: {error}")))?;
        let host = Arc::new(RuntimeHost::new(
            cores,
            u128::from_ne_bytes(boot_id),
            &settings,
            #[cfg(feature = "verbs")]
            &pool,
        ));
        let (control, started) = start(Arc::clone(&host) as _).map_err(|error| {
            Status::resource_exhausted(format!("the control thread cannot be started: {error}"))
        })?;
        #[cfg(feature = "verbs")]
        host.rdma.use_control(control.clone());
        if settings.verbs_on_control {
            for seed in &mut seeds {
                let core = Arc::clone(&seed.shared);
                seed.engine.offload_to(Offload { control: control.clone(), core });
            }
        }
        let inner = Inner { host, control, pool, clock, settings, threads: Mutex::default() };
        Ok((Self { inner: Arc::new(inner) }, seeds, started))
    }

    fn start_core(&self, index: usize, seed: Seed) -> Result<thread::JoinHandle<()>, Status> {
        let spin = self.inner.settings.effective_spin();
        let clock = self.inner.clock;
        let cpu = self.inner.settings.pin.get(index).copied();
        thread::Builder::new()
            .name(format!("rpc-core-{index}"))
            .spawn(move || {
                let _open = Mailbox(Arc::clone(&seed.shared));
                if let Some(cpu) = cpu {
                    pin_to(cpu);
                }
                match seed.into_core(clock, spin) {
                    Ok(mut core) => core.run(),
                    Err(error) => tracing::error!(core = index, %error, "the core cannot start"),
                }
            })
            .map_err(|error| {
                Status::resource_exhausted(format!(
                    "a core's thread cannot be started: {error}; check the limit on processes \
                     (ulimit -u)"
                ))
            })
    }

    /// How many cores it has.
    pub fn cores(&self) -> usize {
        self.inner.host.cores.len()
    }

    /// Places a task on a core: `make` runs there, and its future stays there, so it need not be
    /// `Send`. Calls made in it take no thread hop.
    ///
    /// # Panics
    /// If there is no core of this number.
    pub fn spawn_on<M, F>(&self, core: usize, make: M) -> JoinHandle<F::Output>
    where
        M: FnOnce() -> F + Send + 'static,
        F: Future + 'static,
        F::Output: Send + 'static,
    {
        let cores = &self.inner.host.cores;
        assert!(core < cores.len(), "there is no core {core}; this runtime has {}", cores.len());
        let (handle, joining) = JoinHandle::new();
        cores[core].shared.run_on_core(Box::new(move |core| {
            core.spawn_local(async move { joining.finish(make().await) });
        }));
        handle
    }

    /// What it has done so far and holds now. From any thread; cores are not disturbed.
    pub fn stats(&self) -> RuntimeStats {
        let cores = self.inner.host.cores.iter().map(CoreHandle::stats).collect();
        #[cfg(feature = "verbs")]
        let devices = self.inner.host.rdma.stats();
        #[cfg(not(feature = "verbs"))]
        let devices = Vec::new();
        RuntimeStats { cores, devices, memory: self.inner.pool.usage() }
    }

    /// Every effective setting, for people.
    pub fn describe(&self) -> String {
        let inner = &self.inner;
        let capacity = inner.host.cores[0].engine.capacity;
        let limits = inner.host.cores[0].engine.device.limits();
        #[cfg(feature = "verbs")]
        let rdma: String =
            inner.host.rdma.describe().into_iter().map(|line| format!("\n{line}")).collect();
        #[cfg(not(feature = "verbs"))]
        let rdma = "";
        format!(
            "cores: {cores}\n\
             pinned to CPUs: {pinned:?}\n\
             spin before sleeping: {spin:?}\n\
             device: software, one for each core, MTU {mtu} B\n\
             memory budget: {budget} B\n\
             longest message taken: {message} B\n\
             asked for by READ at once: {reads} B per core\n\
             connections per core: {connections}\n\
             send queue: {send} requests; shared receive queue: {srq}; completion queue: {cqe}\n\
             RNR retries: {rnr}\n\
             signs of life: {pings}{rdma}",
            cores = self.cores(),
            pinned = inner.settings.pin,
            spin = inner.settings.effective_spin(),
            mtu = limits.mtu,
            budget = inner.pool.budget().bytes(),
            message = inner.host.message_bytes_max,
            reads = inner.settings.read_bytes_max,
            connections = capacity.connections_max,
            send = capacity.send_wrs,
            srq = capacity.srq_wrs,
            cqe = capacity.cqe,
            rnr = inner.host.rnr_retry,
            pings = inner.settings.pings.describe(),
        )
    }

    /// What addresses leave open.
    pub(crate) fn rdma_options(&self) -> &RdmaOptions {
        &self.inner.settings.rdma
    }

    pub(crate) fn control(&self) -> &Control {
        &self.inner.control
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.inner.pool
    }

    pub(crate) fn clock(&self) -> Clock {
        self.inner.clock
    }

    pub(crate) fn core_handles(&self) -> &[CoreHandle] {
        &self.inner.host.cores
    }

    pub(crate) fn add_server(&self, make: impl FnOnce(u64) -> ServerSide) -> u64 {
        self.inner.host.add_server(make)
    }

    pub(crate) fn remove_server(&self, server: u64) {
        self.inner.host.remove_server(server);
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime").field("cores", &self.cores()).finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // First no new connections, then the cores.
        self.control.shutdown();
        for core in &self.host.cores {
            core.shared.stop();
        }
        let own = thread::current().id();
        for thread in self.threads.get_mut().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // A task of a core may hold the last handle; a thread cannot wait for itself.
            if thread.thread().id() != own && thread.join().is_err() {
                tracing::error!("a core's thread had panicked");
            }
        }
    }
}

/// Closes a core's mailbox when its thread ends, however it ends: nobody waits for a core that is not
/// there.
struct Mailbox(Arc<CoreShared>);

impl Drop for Mailbox {
    fn drop(&mut self) {
        self.0.stop();
        self.0.end_pushed();
    }
}

impl CoreHandle {
    fn stats(&self) -> CoreStats {
        let counters = &self.shared.counters;
        CoreStats {
            calls_made: counters.calls_made.load(Ordering::Relaxed),
            calls_served: counters.calls_served.load(Ordering::Relaxed),
            errors: counters.errors.load(Ordering::Relaxed),
            stalls: counters.stalls.load(Ordering::Relaxed),
            lost_wakeups: counters.lost_wakeups.load(Ordering::Relaxed),
            connections: counters.connections.load(Ordering::Relaxed),
            receives_posted: counters.receives_posted.load(Ordering::Relaxed),
            credits_granted: counters.credits_granted.load(Ordering::Relaxed),
            credits_recalled: counters.credits_recalled.load(Ordering::Relaxed),
            credits_returned: counters.credits_returned.load(Ordering::Relaxed),
            leases: counters.leases.load(Ordering::Relaxed),
            send_buffers: counters.send_buffers.load(Ordering::Relaxed),
            yields: counters.yields.load(Ordering::Relaxed),
            queues: counters.queues(),
            device: self.engine.device.counters(),
            usage: self.engine.device.usage(),
        }
    }
}

impl Seed {
    fn new(
        index: usize,
        clock: Clock,
        pool: &Pool,
        settings: &RuntimeBuilder,
    ) -> Result<Self, Status> {
        let config = SoftConfig::new(Arc::new(move || -> Time { clock.now() }))
            .name(format!("soft{index}"))
            .mem_links(!settings.tcp_links)
            .silence_max(settings.silence_max)
            .local_ops_alone(settings.local_ops_alone);
        #[cfg(any(test, feature = "test-util"))]
        let config = simulated::in_surroundings(config, settings);
        let device = SoftDevice::open(config)
            .map_err(|error| Status::internal(format!("no software device: {error}")))?;
        let shared = CoreShared::new(index).map_err(|error| {
            Status::resource_exhausted(format!(
                "a core cannot be made: {error}; check the limit on open files (ulimit -n)"
            ))
        })?;
        let engine = soft_engine(device, &shared, pool, settings).map_err(|error| {
            Status::resource_exhausted(format!("a core's engine cannot be made: {error}"))
        })?;
        Ok(Self { shared, engine })
    }

    fn handle(&self) -> CoreHandle {
        CoreHandle { shared: Arc::clone(&self.shared), engine: self.engine.control() }
    }

    /// The core itself, which stays on this thread.
    fn into_core(self, clock: Clock, spin: std::time::Duration) -> std::io::Result<Core> {
        Core::new(self.shared, clock, vec![Box::new(self.engine)], spin)
    }
}

/// The engine of a core's software device, which blocks nowhere.
fn soft_engine(
    device: SoftDevice,
    core: &Arc<CoreShared>,
    pool: &Pool,
    settings: &RuntimeBuilder,
) -> Result<Engine<SoftDevice>, EngineError> {
    let pd = device.alloc_pd()?;
    Engine::new(EngineParts {
        index: 0,
        regions: Arc::new(Regions::new(device.clone(), pd.clone(), pool.clone())),
        device,
        pd,
        pool: pool.clone(),
        waker: Waker::from(Arc::clone(core)),
        lending: settings.lending,
        read_bytes_max: settings.read_bytes_max,
        pings: settings.pings,
        offload: None,
    })
}

fn memory_error(error: crate::mem::MemError) -> Status {
    let text = match &error {
        crate::mem::MemError::Config(_) => error.to_string(), // it says all by itself
        _ => format!("payload memory cannot be reserved: {error}"),
    };
    Status::resource_exhausted(text).with_source(error)
}

/// The budget of a runtime that is not told another.
pub(crate) fn default_budget() -> u64 {
    let info = rustix::system::sysinfo();
    let host = info.totalram.saturating_mul(u64::from(info.mem_unit));
    (host / BUDGET_PART).clamp(1 << 20, BUDGET_BYTES_MAX)
}

fn pin_to(cpu: usize) {
    let mut set = rustix::thread::CpuSet::new();
    if cpu < rustix::thread::CpuSet::MAX_CPU {
        set.set(cpu);
    }
    if let Err(error) = rustix::thread::sched_setaffinity(None, &set) {
        tracing::warn!(cpu, %error, "the core could not be pinned; it runs wherever the system puts it");
    }
}
