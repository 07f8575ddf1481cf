use std::future::Future;
use std::net::SocketAddr;

use crate::engine::JoinHandle;
use crate::{Runtime, Status};

/// A server that is bound: it accepts connections and serves calls until it is dropped.
#[derive(Debug)]
#[must_use = "a server ends when this is dropped; await serve()"]
pub struct Bound {
    runtime: Runtime,
    server: u64,
    local_addr: Option<SocketAddr>,
}

impl Bound {
    pub(crate) fn new(runtime: Runtime, server: u64, local_addr: Option<SocketAddr>) -> Self {
        Self { runtime, server, local_addr }
    }

    pub(super) fn at(mut self, local: SocketAddr) -> Self {
        self.local_addr = Some(local);
        self
    }

    /// The address it is bound to, with the port that was taken.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr.unwrap_or_else(|| SocketAddr::from(([0, 0, 0, 0], 0)))
    }

    /// Serves for ever. Dropping the future closes the server: it takes no new calls, and those in
    /// progress have some seconds to end.
    ///
    /// # Errors
    /// None today; the type leaves room for a listener that is lost.
    pub async fn serve(self) -> Result<(), Status> {
        self.serve_with_shutdown(std::future::pending()).await
    }

    /// Serves until `shutdown` is ready; then takes no new connections and calls, lets those in
    /// progress end (nine seconds at most, whatever peers do), and closes.
    ///
    /// # Errors
    /// None today, as for [`serve`](Self::serve).
    pub async fn serve_with_shutdown(
        self,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), Status> {
        shutdown.await;
        self.runtime.control().unlisten(self.server);
        let mut closing = Vec::new();
        for core in self.runtime.core_handles() {
            let (closed, joining) = JoinHandle::new();
            let server = self.server;
            core.shared.run_on_core(Box::new(move |core| core.close_server(server, joining)));
            closing.push(closed);
        }
        for closed in closing {
            // A core that has stopped has closed everything.
            let _ = closed.await;
        }
        Ok(())
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        self.runtime.control().unlisten(self.server);
        self.runtime.remove_server(self.server);
        for core in self.runtime.core_handles() {
            let (closed, joining) = JoinHandle::new();
            let server = self.server;
            core.shared.run_on_core(Box::new(move |core| core.close_server(server, joining)));
            drop(closed);
        }
    }
}
