use std::future::Future;
use std::sync::Arc;

use prost::Message;

use crate::codec::{self, CodecError, Encoded, Outbound, OutboundLimits, Rope};
use crate::engine::{
    Allowance, Allowed, Answer, Answered, Clock, HandlerFuture, IncomingCall, outbound,
};
use crate::mem::{Pool, Use};
use crate::{MethodDescriptor, Request, RequestParts, Response, Status, Time};

/// A set of methods that a server can offer: what `#[service]` makes of a trait.
///
/// Its shape is for generated code and changes with it.
pub trait Service: Send + Sync + 'static {
    /// The service's full proto name.
    #[doc(hidden)]
    fn name(&self) -> &'static str;
    /// Its methods.
    #[doc(hidden)]
    fn methods(&self) -> &'static [MethodDescriptor];
    /// Begins a call of the method with this index in [`methods`](Self::methods).
    #[doc(hidden)]
    fn call(&self, method: usize, call: Call) -> Handler;
}

/// A call on its way to a handler: not decoded yet.
pub struct Call {
    incoming: IncomingCall,
    context: Arc<CallContext>,
}

/// What every call of a server needs of its runtime.
pub(crate) struct CallContext {
    pub(crate) pool: Pool,
    pub(crate) clock: Clock,
}

/// A handler at work.
pub struct Handler(HandlerFuture);

impl Call {
    pub(crate) fn new(incoming: IncomingCall, context: Arc<CallContext>) -> Self {
        Self { incoming, context }
    }

    /// Decodes the request, lets `handler` answer it, encodes the answer.
    #[doc(hidden)]
    pub fn unary<Q, R, F, A>(self, handler: F) -> Handler
    where
        Q: Message + Default + 'static,
        R: Message + 'static,
        F: FnOnce(Request<Q>) -> A + Send + 'static,
        A: Future<Output = Result<Response<R>, Status>> + Send + 'static,
    {
        Handler(Box::pin(async move {
            let Self { incoming, context } = self;
            let limits = Limits::of(&incoming);
            let allowance = Arc::clone(&incoming.allowance);
            let request = decode::<Q>(incoming, &context)?;
            let response = handler(request).await?;
            encode(response, &context, limits, &allowance).await
        }))
    }

    /// The answer to a method that the service does not have.
    #[doc(hidden)]
    pub fn unimplemented(self) -> Handler {
        Handler(Box::pin(std::future::ready(Err(Status::unimplemented(
            "the service does not implement this method",
        )))))
    }
}

impl Handler {
    pub(crate) fn into_future(self) -> HandlerFuture {
        self.0
    }
}

/// What the peer takes.
#[derive(Clone, Copy)]
struct Limits {
    message_bytes_max: u64,
    eager_bytes: u32,
    deadline: Option<Time>,
}

impl Limits {
    fn of(incoming: &IncomingCall) -> Self {
        Self {
            message_bytes_max: incoming.message_bytes_max,
            eager_bytes: incoming.eager_bytes,
            deadline: incoming.deadline,
        }
    }
}

fn decode<Q: Message + Default>(
    incoming: IncomingCall,
    context: &CallContext,
) -> Result<Request<Q>, Status> {
    let metadata = outbound::decode_metadata(&incoming.metadata).map_err(|error| {
        Status::invalid_argument(format!("the call's metadata is damaged: {error}"))
    })?;
    let message = codec::decode(incoming.body.into_segments()).map_err(|error| {
        Status::invalid_argument(format!(
            "the request is no message of the method's type: {error}; caller and server may have \
             been built from different .proto files"
        ))
    })?;
    let parts = RequestParts {
        metadata,
        deadline: incoming.deadline.and_then(|deadline| context.clock.instant(deadline)),
        peer: Some(incoming.peer),
        urgent: incoming.urgent,
        ..RequestParts::default()
    };
    Ok(Request::from_parts(message, parts))
}

/// Encodes an answer. Most travel in a frame and are ready at once; what a longer one needs is in a box
/// of its own, so that a handler that never makes one is small.
async fn encode<R: Message>(
    response: Response<R>,
    context: &CallContext,
    limits: Limits,
    allowance: &Arc<Allowance>,
) -> Answer {
    let (message, metadata, _) = response.into_parts();
    let deadline = limits.deadline;
    let limits =
        outbound::limits(limits.eager_bytes, metadata.encoded_len(), limits.message_bytes_max);
    let encoded = Encoded::new(&message, &limits).map_err(unsendable)?;
    // Whatever the message held is held by what was encoded, if it is still needed.
    drop(message);
    match encoded {
        Encoded::Eager(outbound) => Ok(Answered { outbound, metadata, allowed: None, deadline }),
        Encoded::Large(rope) => {
            let placed = Box::pin(place(rope, context, limits, allowance)).await;
            let (outbound, allowed) = placed?;
            Ok(Answered { outbound, metadata, allowed: Some(allowed), deadline })
        }
    }
}

/// Brings an answer into payload memory, when its connection may have more of it.
async fn place(
    rope: Rope,
    context: &CallContext,
    limits: OutboundLimits,
    allowance: &Arc<Allowance>,
) -> Result<(Outbound, Allowed), Status> {
    // Before memory is taken: a peer that does not release its answers waits for itself.
    let taken = allowance.take(rope.len() as u64).await;
    let allowed = taken.map_err(|error| Status::resource_exhausted(error.to_string()))?;
    let outbound = rope.place(&context.pool, Use::Response, &limits).await.map_err(unsendable)?;
    Ok((outbound, allowed))
}

fn unsendable(error: CodecError) -> Status {
    Status::resource_exhausted(format!("the answer cannot be sent: {error}")).with_source(error)
}
