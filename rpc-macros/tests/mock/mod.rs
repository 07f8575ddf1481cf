//! A stand-in for `rpc_core` under another path, with just the names that generated code may use.
//! Its calls stay in the process and end at their first poll, so stubs run without a runtime.

// Each test uses a part of it.
#![allow(dead_code, unused_imports, unreachable_pub, missing_docs)]

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

pub use rpc_core::{
    Idempotency, IntoRequest, MethodDescriptor, Request, Response, Status, bytes, prost,
    prost_types, service,
};

pub mod __private {
    pub mod v1 {
        pub use rpc_core::__private::v1::{
            Arc, Clone, Future, Idempotency, IntoRequest, MethodDescriptor, MethodKind, Request,
            Response, Result, Send, Status, Sync, fmt,
        };

        pub use super::super::{Call, Caller, Channel, Handler, Service};
    }
}

pub type Handler = Pin<Box<dyn Future<Output = Result<Vec<u8>, Status>> + Send>>;

pub trait Service: Send + Sync + 'static {
    fn name(&self) -> &'static str;
    fn methods(&self) -> &'static [MethodDescriptor];
    fn call(&self, method: usize, call: Call) -> Handler;
}

/// A call as it comes to a server.
pub struct Call {
    body: Vec<u8>,
}

impl Call {
    pub fn unary<Q, R, F, Fut>(self, handler: F) -> Handler
    where
        F: FnOnce(Request<Q>) -> Fut + Send + 'static,
        Fut: Future<Output = Result<Response<R>, Status>> + Send + 'static,
        Q: prost::Message + Default + 'static,
        R: prost::Message + 'static,
    {
        Box::pin(async move {
            let request = Q::decode(self.body.as_slice())
                .map_err(|error| Status::internal(error.to_string()))?;
            Ok(handler(Request::new(request)).await?.into_inner().encode_to_vec())
        })
    }

    pub fn unimplemented(self) -> Handler {
        Box::pin(async { Err(Status::unimplemented("no such method")) })
    }
}

pub trait Caller: Clone + Send + Sync + 'static {
    fn unary<Q: prost::Message + 'static, R: prost::Message + Default + 'static>(
        &self,
        method: &'static MethodDescriptor,
        request: Request<Q>,
    ) -> impl Future<Output = Result<Response<R>, Status>> + Send;
}

/// Calls a service in this process, by the names on the wire.
#[derive(Clone)]
pub struct Channel {
    service: Arc<dyn Service>,
}

impl Channel {
    pub fn to(service: impl Service) -> Self {
        Self { service: Arc::new(service) }
    }
}

impl Caller for Channel {
    async fn unary<Q: prost::Message + 'static, R: prost::Message + Default + 'static>(
        &self,
        method: &'static MethodDescriptor,
        request: Request<Q>,
    ) -> Result<Response<R>, Status> {
        let call = Call { body: request.into_inner().encode_to_vec() };
        if method.service() != self.service.name() {
            return Err(Status::unimplemented(method.path()));
        }
        let methods = self.service.methods();
        let index = methods.iter().position(|known| known.path() == method.path());
        let handler = self.service.call(index.unwrap_or(methods.len()), call);
        let response = R::decode(handler.await?.as_slice())
            .map_err(|error| Status::internal(error.to_string()))?;
        Ok(Response::new(response))
    }
}

/// The result of a future that is ready at once.
pub fn ready<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("calls of this stand-in end at their first poll"),
    }
}
