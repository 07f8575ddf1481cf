//! The service that is measured. Its handler decodes and encodes one message.

use rpc_core::bytes::Bytes;
use rpc_core::{Request, Response, Status};

/// A message with one `bytes` field.
#[derive(Clone, PartialEq, rpc_core::prost::Message)]
#[prost(prost_path = "::rpc_core::prost")]
pub(crate) struct Blob {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) data: Bytes,
}

/// Sends back what it gets.
#[rpc_core::service(name = "bench.Echo")]
pub(crate) trait Echo {
    /// The message itself.
    async fn echo(&self, request: Request<Blob>) -> Result<Response<Blob>, Status>;
}

/// Serves [`Echo`].
pub(crate) struct Echoing;

impl Echo for Echoing {
    async fn echo(&self, request: Request<Blob>) -> Result<Response<Blob>, Status> {
        Ok(Response::new(request.into_inner()))
    }
}
