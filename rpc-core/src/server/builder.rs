use std::sync::Arc;

use super::bound::Bound;
use super::router::Router;
use super::service::{CallContext, Service};
use crate::cm::{Address, ConnectError, ListenRequest};
use crate::engine::{JoinHandle, ServerLimits, ServerLoad, ServerSide};
use crate::{Runtime, Status};

/// Collects services, then binds them to an address.
#[must_use = "a server does nothing until it is bound and served"]
pub struct ServerBuilder {
    runtime: Option<Runtime>,
    services: Vec<Arc<dyn Service>>,
    limits: ServerLimits,
}

/// Calls of one connection, running or queued, that a server takes at most: as many as a client begins.
const CALLS_PER_CONNECTION_MAX: u32 = 4096;

/// Handlers of one server that any setting allows: each is a task with its request in memory.
const CALLS_MAX: u32 = 1 << 20;

/// Calls of one server that any setting lets wait.
const CALLS_QUEUED_MAX: u32 = 1 << 16;

/// Default of [`ServerBuilder::calls_queued_max`]: a burst of some dozen clients.
const CALLS_QUEUED: u32 = 1024;

impl Default for ServerBuilder {
    fn default() -> Self {
        let limits = ServerLimits {
            calls_per_connection_max: CALLS_PER_CONNECTION_MAX,
            calls_max: None,
            calls_queued_max: CALLS_QUEUED,
        };
        Self { runtime: None, services: Vec::new(), limits }
    }
}

impl ServerBuilder {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// Uses this runtime instead of the process's default one.
    pub fn runtime(mut self, runtime: &Runtime) -> Self {
        self.runtime = Some(runtime.clone());
        self
    }

    /// Offers a service. Its methods run on the core that the caller's connection belongs to.
    pub fn add_service(mut self, service: impl Service) -> Self {
        self.services.push(Arc::new(service));
        self
    }

    /// Calls of one connection that may be in progress, those whose cancelled handlers still run included;
    /// more are refused, RESOURCE_EXHAUSTED and not executed. 1 to 4096, which is the default.
    pub fn calls_max_per_connection(mut self, calls: u32) -> Self {
        self.limits.calls_per_connection_max = calls.clamp(1, CALLS_PER_CONNECTION_MAX);
        self
    }

    /// Handlers of this server that may be at work, all connections together; further calls wait, those of a
    /// connection in their order and connections in turn, or are refused: see
    /// [`calls_queued_max`](Self::calls_queued_max). Each core
    /// has an equal part of both, rounded up. 1 to 2²⁰. Default: only connections have a limit.
    pub fn calls_max(mut self, calls: u32) -> Self {
        self.limits.calls_max = Some(calls.clamp(1, CALLS_MAX));
        self
    }

    /// Calls that may wait for a handler of this server to end; for one more, the newest of the connection that
    /// has most waiting is refused, RESOURCE_EXHAUSTED and not executed: the flood's, not that of who comes
    /// later. A call that waits ends with its deadline; urgent ones wait before the others. 0 to 65,536; default: 1024. Of no meaning
    /// without [`calls_max`](Self::calls_max).
    pub fn calls_queued_max(mut self, calls: u32) -> Self {
        self.limits.calls_queued_max = calls.min(CALLS_QUEUED_MAX);
        self
    }

    /// Binds to `scheme://host:port`; port 0 takes any free port, which
    /// [`Bound::local_addr`] then tells. Connections are accepted from now on.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for an address that cannot be understood or is not this host's, and for a
    /// service that was added twice; FAILED_PRECONDITION for a port in use. Dropping the
    /// future may leave the port bound until the runtime ends.
    pub async fn bind(self, address: &str) -> Result<Bound, Status> {
        let address: Address = address.parse().map_err(ConnectError::from)?;
        let (runtime, server) = self.register()?;
        let (bound, joining) = JoinHandle::new();
        let guard = Bound::new(runtime.clone(), server, None);
        let address = address.with_defaults(runtime.rdma_options());
        runtime.control().listen(ListenRequest {
            address,
            server,
            done: Box::new(move |result| joining.finish(result)),
        });
        match bound.await {
            Ok(Ok(local)) => Ok(guard.at(local)),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(Status::unavailable("the runtime was shut down")),
        }
    }

    /// Makes the server known to the runtime's cores.
    pub(super) fn register(self) -> Result<(Runtime, u64), Status> {
        let runtime = match self.runtime {
            Some(runtime) => runtime,
            None => Runtime::shared()?,
        };
        let context = CallContext { pool: runtime.pool().clone(), clock: runtime.clock() };
        let router = Router::new(self.services, Arc::new(context)).map_err(|name| {
            Status::invalid_argument(format!("the service '{name}' was added to the server twice"))
        })?;
        let limits = self.limits;
        let loads = ServerLoad::for_cores(&limits, runtime.cores() as u32);
        let dispatch = Arc::new(router);
        let server = runtime.add_server(|server| ServerSide { server, dispatch, limits, loads });
        Ok((runtime, server))
    }
}
