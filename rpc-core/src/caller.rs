use std::future::Future;

use prost::Message;

use crate::{Request, Response, Status, Streaming};

/// How many messages flow each way in one call of a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MethodKind {
    /// One request, one response.
    Unary,
    /// Many requests, one response.
    ClientStreaming,
    /// One request, many responses.
    ServerStreaming,
    /// Many requests, many responses.
    BidiStreaming,
}

/// What a method's proto says about running it twice (`option idempotency_level`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Idempotency {
    /// Nothing is known: a call that may have been executed is never repeated.
    #[default]
    Unknown,
    /// Running it again changes nothing anywhere (`NO_SIDE_EFFECTS`).
    NoSideEffects,
    /// Running it again has the effect of running it once (`IDEMPOTENT`).
    Idempotent,
}

/// What a stub knows of its method. Generated code keeps one static table of them per service.
#[derive(Debug)]
pub struct MethodDescriptor {
    path: &'static str,
    kind: MethodKind,
    idempotency: Idempotency,
}

impl MethodDescriptor {
    /// `path` is the name on the wire, `package.Service/Method`, taken from the proto names.
    pub const fn new(path: &'static str, kind: MethodKind) -> Self {
        Self { path, kind, idempotency: Idempotency::Unknown }
    }

    /// Sets what the proto says about repetition.
    #[must_use]
    pub const fn with_idempotency(mut self, idempotency: Idempotency) -> Self {
        self.idempotency = idempotency;
        self
    }

    /// The name on the wire, `package.Service/Method`.
    pub const fn path(&self) -> &'static str {
        self.path
    }

    /// The part before the slash: `package.Service`.
    pub fn service(&self) -> &'static str {
        self.path.split_once('/').map_or(self.path, |(service, _)| service)
    }

    /// The part after the slash.
    pub fn method(&self) -> &'static str {
        self.path.split_once('/').map_or("", |(_, method)| method)
    }

    /// How many messages flow each way.
    pub const fn kind(&self) -> MethodKind {
        self.kind
    }

    /// What the proto says about repetition.
    pub const fn idempotency(&self) -> Idempotency {
        self.idempotency
    }
}

/// Something calls can be made on: a [`Channel`](crate::Channel), or one wrapped in layers.
///
/// Generated clients are generic over it, so a direct channel pays nothing for layers it has not.
/// It is sealed and its methods are for generated code: dropping a returned future cancels the call.
pub trait Caller: Clone + Send + Sync + 'static + sealed::Sealed {
    /// One request, one response.
    #[doc(hidden)]
    fn unary<Q, R>(
        &self,
        method: &'static MethodDescriptor,
        request: Request<Q>,
    ) -> impl Future<Output = Result<Response<R>, Status>> + Send
    where
        Q: Message + 'static,
        R: Message + Default + 'static;

    /// Many requests, one response.
    #[doc(hidden)]
    fn client_streaming<Q, R>(
        &self,
        method: &'static MethodDescriptor,
        requests: Request<Streaming<Q>>,
    ) -> impl Future<Output = Result<Response<R>, Status>> + Send
    where
        Q: Message + 'static,
        R: Message + Default + 'static;

    /// One request, many responses.
    #[doc(hidden)]
    fn server_streaming<Q, R>(
        &self,
        method: &'static MethodDescriptor,
        request: Request<Q>,
    ) -> impl Future<Output = Result<Response<Streaming<R>>, Status>> + Send
    where
        Q: Message + 'static,
        R: Message + Default + 'static;

    /// Many requests, many responses.
    #[doc(hidden)]
    fn bidi_streaming<Q, R>(
        &self,
        method: &'static MethodDescriptor,
        requests: Request<Streaming<Q>>,
    ) -> impl Future<Output = Result<Response<Streaming<R>>, Status>> + Send
    where
        Q: Message + 'static,
        R: Message + Default + 'static;
}

pub(crate) mod sealed {
    /// Keeps [`Caller`](super::Caller) ours, so methods can be added to it.
    pub trait Sealed {}
}
