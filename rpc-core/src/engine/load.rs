use std::sync::Arc;

use crate::sync::atomic::{AtomicU32, Ordering};

/// How many calls a server takes on at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ServerLimits {
    /// Of one connection, running or queued.
    pub(crate) calls_per_connection_max: u32,
    /// Handlers at work, all connections together; `None`: as many as the connections bring.
    pub(crate) calls_max: Option<u32>,
    /// Calls that wait for a handler to end, all connections together.
    pub(crate) calls_queued_max: u32,
}

/// What a server's handlers on one core take up. Counted only where there is a limit.
#[derive(Debug)]
pub(crate) struct ServerLoad {
    /// Written on its core, and where handlers are dropped.
    running: AtomicU32,
    running_max: u32,
    /// Calls of it that may wait on this core.
    pub(crate) queued_max: u32,
}

impl ServerLoad {
    /// One for each core: equal parts of the limits, rounded up, so that no core needs to ask another.
    pub(crate) fn for_cores(limits: &ServerLimits, cores: u32) -> Option<Arc<[Arc<Self>]>> {
        let calls_max = limits.calls_max?;
        let load = || {
            Arc::new(Self {
                running: AtomicU32::new(0),
                running_max: calls_max.div_ceil(cores.max(1)),
                queued_max: limits.calls_queued_max.div_ceil(cores.max(1)),
            })
        };
        Some((0..cores).map(|_| load()).collect())
    }

    /// Takes a handler's place, if there is one.
    pub(crate) fn try_take(self: &Arc<Self>) -> Option<Place> {
        let free = |running| (running < self.running_max).then_some(running + 1);
        self.running.fetch_update(Ordering::AcqRel, Ordering::Acquire, free).ok()?;
        Some(Place(Arc::clone(self)))
    }

    /// In words, for a caller that is refused.
    pub(crate) fn full(&self) -> String {
        format!(
            "{} calls run on this core of the server and {} wait, as many as may: retry later, elsewhere, or \
             raise the server's calls_max or calls_queued_max",
            self.running_max, self.queued_max
        )
    }
}

/// A handler's place; dropped with the handler.
#[derive(Debug)]
pub(crate) struct Place(Arc<ServerLoad>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::AcqRel);
    }
}
