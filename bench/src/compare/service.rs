//! The service that is compared: the same messages and the same handler for each framework.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rpc_core::bytes::Bytes;
use rpc_core::{Request, Response, Status};

pub(crate) use crate::echo::Blob;

/// How many bytes of payloads the server, or the client, keeps.
#[derive(Clone, Copy, PartialEq, rpc_core::prost::Message)]
#[prost(prost_path = "::rpc_core::prost")]
pub(crate) struct Keep {
    #[prost(uint64, tag = "1")]
    pub(crate) bytes: u64,
}

/// Small calls and large ones.
#[rpc_core::service(name = "bench.Bulk")]
pub(crate) trait Bulk {
    /// The message itself.
    async fn echo(&self, request: Request<Blob>) -> Result<Response<Blob>, Status>;
    /// Keeps the message, answers with an empty one.
    async fn put(&self, request: Request<Blob>) -> Result<Response<Blob>, Status>;
    /// The next of the messages that are kept.
    async fn get(&self, request: Request<Blob>) -> Result<Response<Blob>, Status>;
    /// Forgets all messages, and keeps so many bytes of new ones.
    async fn keep(&self, request: Request<Keep>) -> Result<Response<Blob>, Status>;
}

/// The payloads that were received last, so that the next one does not land where one just was.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    kept: VecDeque<Bytes>,
    bytes: usize,
    bytes_max: usize,
    next: usize,
}

impl Ring {
    /// Keeps so many bytes.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { bytes_max, ..Self::default() }
    }

    /// Keeps one, and the last one whatever its length.
    pub(crate) fn push(&mut self, bytes: Bytes) {
        self.bytes += bytes.len();
        self.kept.push_back(bytes);
        while self.bytes > self.bytes_max && self.kept.len() > 1 {
            self.bytes -= self.kept.pop_front().map_or(0, |old| old.len());
        }
    }

    /// The next in turn.
    pub(crate) fn next(&mut self) -> Bytes {
        self.next += 1;
        let count = self.kept.len().max(1);
        self.kept.get(self.next % count).cloned().unwrap_or_default()
    }
}

/// What both frameworks' handlers do.
#[derive(Debug, Default)]
pub(crate) struct Handling(Mutex<Ring>);

impl Handling {
    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn put(&self, blob: Blob) -> Blob {
        self.ring().push(blob.data);
        Blob::default()
    }

    pub(crate) fn get(&self) -> Blob {
        Blob { data: self.ring().next() }
    }

    pub(crate) fn keep(&self, keep: Keep) -> Blob {
        *self.ring() = Ring::new(keep.bytes as usize);
        Blob::default()
    }
}

impl Bulk for Handling {
    async fn echo(&self, request: Request<Blob>) -> Result<Response<Blob>, Status> {
        Ok(Response::new(request.into_inner()))
    }

    async fn put(&self, request: Request<Blob>) -> Result<Response<Blob>, Status> {
        Ok(Response::new(self.put(request.into_inner())))
    }

    async fn get(&self, _request: Request<Blob>) -> Result<Response<Blob>, Status> {
        Ok(Response::new(self.get()))
    }

    async fn keep(&self, request: Request<Keep>) -> Result<Response<Blob>, Status> {
        Ok(Response::new(self.keep(request.into_inner())))
    }
}
