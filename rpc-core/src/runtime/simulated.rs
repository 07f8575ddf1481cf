use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use super::{Runtime, RuntimeBuilder};
use crate::Status;
use crate::cm::{ControlLoop, Network};
use crate::engine::{Core, Progress};
use crate::verbs::soft::{Fabric, FailsWhen, SoftConfig};

/// What a simulated node has instead of a machine.
#[derive(Clone)]
pub(crate) struct Surroundings {
    /// The devices that its device can reach.
    pub(crate) fabric: Arc<Fabric>,
    /// What its control connections go through.
    pub(crate) network: Arc<dyn Network>,
    /// Which verbs of its device fail.
    pub(crate) fails: FailsWhen,
}

impl fmt::Debug for Surroundings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Surroundings").finish_non_exhaustive()
    }
}

thread_local! {
    /// The runtime of the node that this thread turns.
    static CURRENT: RefCell<Option<Runtime>> = const { RefCell::new(None) };
}

/// That of the node whose task asks, if one does.
pub(crate) fn current() -> Option<Runtime> {
    CURRENT.try_with(|current| current.borrow().clone()).ok().flatten()
}

/// Puts a node's device on its fabric.
pub(super) fn in_surroundings(config: SoftConfig, settings: &RuntimeBuilder) -> SoftConfig {
    match &settings.surroundings {
        None => config,
        Some(around) => {
            config.on_fabric(Arc::clone(&around.fabric)).failing(Arc::clone(&around.fails))
        }
    }
}

/// A runtime without any thread: its core and its control loop are turned by a simulation.
pub(crate) struct SimulatedRuntime {
    core: Core,
    control: ControlLoop,
    runtime: Runtime,
}

impl SimulatedRuntime {
    pub(crate) fn start(settings: RuntimeBuilder, around: Surroundings) -> Result<Self, Status> {
        let network = Arc::clone(&around.network);
        // How long a core looks for work before it sleeps is the simulation's to draw.
        let mut settings = settings.cores(1).spin(Duration::ZERO);
        settings.surroundings = Some(around);
        let start = |host| ControlLoop::start(host, network);
        let (runtime, seeds, control) = Runtime::assemble_with(settings, start)?;
        let seed = seeds.into_iter().next().ok_or_else(|| Status::internal("no core was made"))?;
        let core = seed
            .into_core(runtime.clock(), Duration::ZERO)
            .map_err(|error| Status::internal(format!("the core cannot start: {error}")))?;
        Ok(Self { core, control, runtime })
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// The name of its device on the fabric.
    pub(crate) fn guid(&self) -> u64 {
        self.runtime.core_handles()[0].engine.device.guid()
    }

    /// Runs `f` as part of the node.
    pub(crate) fn enter<R>(&self, f: impl FnOnce() -> R) -> R {
        let before = CURRENT.with(|current| current.replace(Some(self.runtime.clone())));
        let result = self.core.enter(f);
        CURRENT.with(|current| current.replace(before));
        result
    }

    pub(crate) fn spawn(&self, future: impl Future<Output = ()> + 'static) {
        self.core.spawn_local(future);
    }

    /// A turn of the control loop, then one of the core.
    pub(crate) fn turn(&mut self) -> Progress {
        let before = CURRENT.with(|current| current.replace(Some(self.runtime.clone())));
        if let Err(error) = self.control.turn() {
            tracing::error!(%error, "a simulated node cannot look at its sockets");
        }
        let progress = self.core.turn();
        CURRENT.with(|current| current.replace(before));
        progress
    }

    /// As for a core that sleeps.
    pub(crate) fn prepare_to_sleep(&mut self) -> bool {
        let before = CURRENT.with(|current| current.replace(Some(self.runtime.clone())));
        let sleeps = self.core.prepare_to_sleep();
        CURRENT.with(|current| current.replace(before));
        sleeps
    }

    /// A sleep has ended.
    pub(crate) fn wake(&mut self) {
        self.core.look();
    }

    /// Whether nothing but a notification of completions would end its sleep, and the core looks again by
    /// itself before long: what may be lost.
    pub(crate) fn may_miss(&self) -> bool {
        self.core.is_notified_only() && self.core.has_outstanding()
    }

    /// Its sleep ends when one of these is readable.
    pub(crate) fn fds(&self) -> [BorrowedFd<'_>; 2] {
        [self.core.fd(), self.control.fd()]
    }

    /// How long its sleep lasts at most.
    pub(crate) fn next_wake(&self) -> Option<Duration> {
        let core = self.core.next_wake(self.runtime.clock().now());
        core.into_iter().chain(self.control.next_timer()).min()
    }
}

impl Drop for SimulatedRuntime {
    fn drop(&mut self) {
        // First no new connections, then the core.
        self.runtime.control().shutdown();
        let _ = self.control.turn();
        self.core.shut_down();
    }
}
