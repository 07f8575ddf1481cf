use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use rpc_core::bytes::Bytes;
use rpc_core::{Request, Response, Status};

use super::log::Log;
use super::pattern;

/// A payload to be checked, and how long an answer is wanted.
#[derive(Clone, PartialEq, rpc_core::prost::Message)]
#[prost(prost_path = "::rpc_core::prost")]
pub(super) struct Ask {
    /// Payloads are those of this seed one way, and of its complement the other way.
    #[prost(uint64, tag = "1")]
    pub(super) seed: u64,
    /// Which payload.
    #[prost(uint64, tag = "2")]
    pub(super) index: u64,
    /// Its bytes, as they were sent.
    #[prost(uint64, tag = "3")]
    pub(super) request_bytes: u64,
    /// Bytes of the answer.
    #[prost(uint64, tag = "4")]
    pub(super) answer_bytes: u64,
    /// The payload.
    #[prost(bytes = "bytes", tag = "5")]
    pub(super) data: Bytes,
}

/// A payload.
#[derive(Clone, PartialEq, rpc_core::prost::Message)]
#[prost(prost_path = "::rpc_core::prost")]
pub(super) struct Reply {
    /// The payload.
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) data: Bytes,
}

/// What clients of these programs call.
#[rpc_core::service(name = "soak.Soak")]
pub(super) trait Soak {
    /// Checks the payload, and answers with one.
    async fn exchange(&self, request: Request<Ask>) -> Result<Response<Reply>, Status>;
}

/// Serves [`Soak`].
#[derive(Debug, Default)]
pub(super) struct Checking {
    /// Calls whose payload was right.
    pub(super) right: AtomicU64,
    /// Calls whose payload was not.
    pub(super) wrong: AtomicU64,
    /// Which were carried out, before they are answered.
    pub(super) log: Option<Log>,
}

impl Soak for Checking {
    async fn exchange(&self, request: Request<Ask>) -> Result<Response<Reply>, Status> {
        let ask = request.get_ref();
        let [sent, wanted] = [ask.request_bytes, ask.answer_bytes].map(|len| len as usize);
        if wanted > pattern::BYTES_MAX || sent > pattern::BYTES_MAX {
            return Err(Status::invalid_argument("a payload has at most 4 MiB"));
        }
        if let Err(wrong) = pattern::check(ask.seed, ask.index, sent, &ask.data) {
            self.wrong.fetch_add(1, Ordering::Relaxed);
            return Err(Status::data_loss(wrong));
        }
        if let Some(log) = &self.log {
            log.note(ask.seed, ask.index).map_err(|error| Status::internal(error.to_string()))?;
        }
        if ask.index % 2 == 1 {
            yield_once().await; // as a handler that waits for a disk
        }
        self.right.fetch_add(1, Ordering::Relaxed);
        Ok(Response::new(Reply { data: pattern::payload(!ask.seed, ask.index, wanted) }))
    }
}

/// Lets others have the core.
async fn yield_once() {
    let mut yielded = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
