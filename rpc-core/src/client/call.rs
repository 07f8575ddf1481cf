use std::future::Future;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use prost::Message;

use super::channel::Channel;
use super::lane::Connection;
use crate::caller::sealed::Sealed;
use crate::codec::{self, CodecError, Encoded, Outbound, OutboundLimits, Rope};
use crate::engine::{CallCell, ConnectionKey, CoreShared, OutgoingCall, Reply, local, outbound};
use crate::mem::Use;
use crate::{
    Caller, Code, Execution, Extensions, Metadata, MethodDescriptor, Request, RequestParts,
    Response, Status, Streaming, world,
};

/// How often a call that waits for its server is begun, each time on a new connection: a server that goes away
/// so often before it has the call is not one to wait for.
const BEGINNINGS_MAX: usize = 16;

impl Sealed for Channel {}

impl Caller for Channel {
    async fn unary<Q, R>(
        &self,
        method: &'static MethodDescriptor,
        request: Request<Q>,
    ) -> Result<Response<R>, Status>
    where
        Q: Message + 'static,
        R: Message + Default + 'static,
    {
        let (message, parts) = request.into_parts();
        let deadline = parts.deadline.or_else(|| {
            self.inner.options.timeout.and_then(|timeout| world::now().checked_add(timeout))
        });
        if parts.wait_for_ready.unwrap_or(self.inner.options.wait_for_ready) {
            // In a box, as what a large message needs below: most calls need neither.
            return Box::pin(self.unary_when_ready(method, message, parts, deadline)).await;
        }
        let lane = self.lane();
        let connection = match lane.ready_connection() {
            Some(connection) => connection,
            None => Box::pin(lane.connection(&self.inner.runtime, deadline, false)).await?,
        };
        let limits = self.limits(&parts.metadata, connection);
        let encoded = Encoded::new(&message, &limits).map_err(not_sent)?;
        // Whatever the message held is held by what was encoded, if it is still needed.
        drop(message);
        let body = match encoded {
            Encoded::Eager(body) => body,
            Encoded::Large(rope) => Box::pin(self.place(rope, &limits)).await?,
        };
        let call = self.outgoing(method, &parts, deadline, body);
        decode(make(&lane.shared, connection.key, call).await?)
    }

    async fn client_streaming<Q, R>(
        &self,
        _method: &'static MethodDescriptor,
        requests: Request<Streaming<Q>>,
    ) -> Result<Response<R>, Status>
    where
        Q: Message + 'static,
        R: Message + Default + 'static,
    {
        match requests.into_inner().absurd() {}
    }

    async fn server_streaming<Q, R>(
        &self,
        method: &'static MethodDescriptor,
        _request: Request<Q>,
    ) -> Result<Response<Streaming<R>>, Status>
    where
        Q: Message + 'static,
        R: Message + Default + 'static,
    {
        Err(Status::unimplemented(format!(
            "{} streams its responses, which this version of the framework cannot carry yet",
            method.path()
        ))
        .with_execution(Execution::NotExecuted))
    }

    async fn bidi_streaming<Q, R>(
        &self,
        _method: &'static MethodDescriptor,
        requests: Request<Streaming<Q>>,
    ) -> Result<Response<Streaming<R>>, Status>
    where
        Q: Message + 'static,
        R: Message + Default + 'static,
    {
        match requests.into_inner().absurd() {}
    }
}

impl Channel {
    /// A call that waits for its server, however often that goes away before it has the call.
    async fn unary_when_ready<Q: Message, R: Message + Default>(
        &self,
        method: &'static MethodDescriptor,
        message: Q,
        parts: RequestParts,
        deadline: Option<Instant>,
    ) -> Result<Response<R>, Status> {
        let mut beginnings = 0;
        loop {
            beginnings += 1;
            let lane = self.lane();
            let connection = match lane.ready_connection() {
                Some(connection) => connection,
                None => lane.connection(&self.inner.runtime, deadline, true).await?,
            };
            let limits = self.limits(&parts.metadata, connection);
            let body = match Encoded::new(&message, &limits).map_err(not_sent)? {
                Encoded::Eager(body) => body,
                Encoded::Large(rope) => self.place(rope, &limits).await?,
            };
            let call = self.outgoing(method, &parts, deadline, body);
            match make(&lane.shared, connection.key, call).await {
                // That the peer refused it, on a connection that is as good as before, is an answer.
                Err(status)
                    if beginnings < BEGINNINGS_MAX
                        && was_not_begun(&status)
                        && lane.ready_connection().is_none_or(|now| now.key != connection.key) => {}
                ended => return decode(ended?),
            }
        }
    }

    /// The large parts of a request go into payload memory.
    async fn place(&self, rope: Rope, limits: &OutboundLimits) -> Result<Outbound, Status> {
        let pool = self.inner.runtime.pool();
        rope.place(pool, Use::Request, limits).await.map_err(not_sent)
    }

    fn outgoing(
        &self,
        method: &'static MethodDescriptor,
        parts: &RequestParts,
        deadline: Option<Instant>,
        body: Outbound,
    ) -> OutgoingCall {
        OutgoingCall {
            method: method.path(),
            deadline: deadline.map(|deadline| self.inner.runtime.clock().at(deadline)),
            urgent: parts.urgent,
            metadata: outbound::encode_metadata(&parts.metadata),
            body,
        }
    }

    fn limits(&self, metadata: &Metadata, connection: Connection) -> OutboundLimits {
        let negotiated = connection.negotiated;
        let max = self.inner.options.message_bytes_max.min(negotiated.message_bytes_max);
        outbound::limits(negotiated.eager_bytes, metadata.encoded_len(), max)
    }
}

/// Whether a call ended because its connection was lost or closed before the server had the call.
fn was_not_begun(status: &Status) -> bool {
    status.code() == Code::Unavailable && status.execution() == Execution::NotExecuted
}

fn not_sent(error: CodecError) -> Status {
    Status::resource_exhausted(format!("the request cannot be sent: {error}"))
        .with_execution(Execution::NotExecuted)
        .with_source(error)
}

/// Submits a call and waits for its end. Dropping the future cancels the call.
fn make(
    shared: &Arc<CoreShared>,
    connection: ConnectionKey,
    call: OutgoingCall,
) -> impl Future<Output = Result<Reply, Status>> + Send + use<> {
    let cell = CallCell::new(Arc::clone(shared), connection, call);
    let refused = !local::submit_if_current(shared, &cell) && !shared.submit(&cell);
    let mut waits = Waits { cell, refused };
    std::future::poll_fn(move |context| {
        if waits.refused {
            let core = waits.cell.core();
            if !core.submit(&waits.cell) {
                core.wait_for_room(context.waker());
                return Poll::Pending;
            }
            waits.refused = false;
        }
        waits.cell.poll(context)
    })
}

/// A call that its future waits for: cancelled when that is dropped before the end.
struct Waits {
    cell: Arc<CallCell>,
    /// Its core has had no room for it, and knows nothing of it: it ends with its future.
    refused: bool,
}

impl Drop for Waits {
    fn drop(&mut self) {
        if !self.refused {
            self.cell.abandon();
        }
    }
}

fn decode<R: Message + Default>(reply: Reply) -> Result<Response<R>, Status> {
    let message = codec::decode(reply.body.into_segments()).map_err(|error| {
        Status::internal(format!(
            "the answer is no message of the method's type: {error}; caller and server may have \
             been built from different .proto files"
        ))
    })?;
    let metadata = outbound::decode_metadata(&reply.metadata)
        .map_err(|error| Status::internal(format!("the answer's metadata is damaged: {error}")))?;
    Ok(Response::from_parts(message, metadata, Extensions::new()))
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use bytes::Bytes;

    use super::*;

    #[test]
    fn a_call_that_its_core_had_no_room_for_ends_with_its_future() {
        let shared = CoreShared::with_room(0, 1).unwrap();
        let connection = ConnectionKey { engine: 0, slot: 0, generation: 0 };
        let call = |body: &Bytes| OutgoingCall::of(body.clone());
        let (taken, refused) = (Bytes::from(vec![1; 100]), Bytes::from(vec![2; 100]));
        let first = make(&shared, connection, call(&taken));
        {
            let mut second = pin!(make(&shared, connection, call(&refused)));
            let polled = second.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(polled.is_pending() && !refused.is_unique());
        }
        assert!(refused.is_unique(), "what nobody waits for any more keeps no memory");
        assert!(shared.take_abandoned().is_none(), "the core knows nothing of it");
        drop(first);
        assert!(shared.take_abandoned().is_some(), "of this one it does");
    }
}
