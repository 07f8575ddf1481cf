use std::sync::Arc;

use super::bound::Bound;
use super::router::Router;
use super::service::{CallContext, Service};
use crate::cm::{Address, ConnectError, ListenRequest};
use crate::engine::{JoinHandle, ServerSide};
use crate::{Runtime, Status};

/// Collects services, then binds them to an address.
#[derive(Default)]
#[must_use = "a server does nothing until it is bound and served"]
pub struct ServerBuilder {
    runtime: Option<Runtime>,
    services: Vec<Arc<dyn Service>>,
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
        let server = runtime.add_server(|server| ServerSide { server, dispatch: Arc::new(router) });
        Ok((runtime, server))
    }
}
