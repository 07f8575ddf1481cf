use std::time::Duration;

use rpc_core::{Request, Response, Status};

use crate::echo::Blob;

/// A method that answers at once, and one that takes its time.
#[rpc_core::service(name = "bench.Crowd")]
pub(super) trait Crowd {
    /// The message itself.
    async fn fast(&self, request: Request<Blob>) -> Result<Response<Blob>, Status>;
    /// The message itself, after [`SLOW`].
    async fn slow(&self, request: Request<Blob>) -> Result<Response<Blob>, Status>;
}

/// How long a slow handler waits: as for a disk with a queue.
pub(super) const SLOW: Duration = Duration::from_millis(20);

/// Serves [`Crowd`]; tokio has the timers.
pub(super) struct Crowding(pub(super) tokio::runtime::Handle);

impl Crowd for Crowding {
    async fn fast(&self, request: Request<Blob>) -> Result<Response<Blob>, Status> {
        Ok(Response::new(request.into_inner()))
    }

    async fn slow(&self, request: Request<Blob>) -> Result<Response<Blob>, Status> {
        let waited = {
            let _tokio = self.0.enter();
            tokio::time::sleep(SLOW) // what a slow handler is: nobody waits for it but its caller
        };
        waited.await;
        Ok(Response::new(request.into_inner()))
    }
}
