//! The service that simulated nodes serve and call.

use std::time::Duration;

use rpc_core::bytes::Bytes;
use rpc_core::{Request, Response, Status, sim};

use crate::ledger::Ledger;

/// A call: what is sent, what is asked for, and how long the handler takes.
#[derive(Clone, PartialEq, rpc_core::prost::Message)]
#[prost(prost_path = "::rpc_core::prost")]
pub(crate) struct Ask {
    #[prost(uint64, tag = "1")]
    pub(crate) id: u64,
    #[prost(uint32, tag = "2")]
    pub(crate) answer_bytes: u32,
    #[prost(uint64, tag = "3")]
    pub(crate) micros: u64,
    #[prost(bytes = "bytes", tag = "4")]
    pub(crate) data: Bytes,
}

#[derive(Clone, PartialEq, rpc_core::prost::Message)]
#[prost(prost_path = "::rpc_core::prost")]
pub(crate) struct Answer {
    #[prost(uint64, tag = "1")]
    pub(crate) sum: u64,
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) data: Bytes,
}

#[rpc_core::service(name = "sim.Work")]
pub(crate) trait Work {
    /// Takes its time, then answers with so many bytes, and the sum of those it got.
    async fn ask(&self, request: Request<Ask>) -> Result<Response<Answer>, Status>;
}

/// Serves [`Work`], and tells the ledger.
pub(crate) struct Worker(pub(crate) Ledger);

impl Work for Worker {
    async fn ask(&self, request: Request<Ask>) -> Result<Response<Answer>, Status> {
        let ask = request.into_inner();
        self.0.executed(ask.id);
        if ask.micros > 0 {
            sim::sleep(Duration::from_micros(ask.micros)).await;
        }
        Ok(Response::new(answer_to(&ask)))
    }
}

/// What an answer to `ask` must be.
pub(crate) fn answer_to(ask: &Ask) -> Answer {
    let sum = ask.data.len() as u64 ^ ask.data.last().copied().map_or(0, u64::from);
    Answer { sum, data: pattern(ask.id, ask.answer_bytes as usize) }
}

/// Bytes that no other id has.
pub(crate) fn pattern(id: u64, len: usize) -> Bytes {
    let word = id.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    Bytes::from(word.repeat(len / 8 + 1)).slice(..len)
}
