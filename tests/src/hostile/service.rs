use std::sync::atomic::{AtomicU64, Ordering};

use rpc_core::bytes::Bytes;
use rpc_core::{Request, Response, Status};

/// A message with one `bytes` field.
#[derive(Clone, PartialEq, rpc_core::prost::Message)]
#[prost(prost_path = "::rpc_core::prost")]
pub struct Blob {
    /// Anything.
    #[prost(bytes = "bytes", tag = "1")]
    pub data: Bytes,
}

/// How long an answer is wanted.
#[derive(Clone, PartialEq, rpc_core::prost::Message)]
#[prost(prost_path = "::rpc_core::prost")]
pub struct Size {
    /// Bytes.
    #[prost(uint64, tag = "1")]
    pub bytes: u64,
}

/// A message in itself, as deep as one likes.
#[derive(Clone, PartialEq, rpc_core::prost::Message)]
#[prost(prost_path = "::rpc_core::prost")]
pub struct Tree {
    /// One level more.
    #[prost(message, optional, boxed, tag = "1")]
    pub child: Option<Box<Self>>,
}

/// What the hostile peer attacks.
#[rpc_core::service(name = "hostile.Target")]
pub trait Target {
    /// The same bytes.
    async fn echo(&self, request: Request<Blob>) -> Result<Response<Blob>, Status>;
    /// As many bytes as are asked for.
    async fn produce(&self, request: Request<Size>) -> Result<Response<Blob>, Status>;
    /// Never ends by itself.
    async fn hang(&self, request: Request<Blob>) -> Result<Response<Blob>, Status>;
    /// Nothing: the tree is dropped.
    async fn nest(&self, request: Request<Tree>) -> Result<Response<Blob>, Status>;
}

/// The most that `produce` makes.
const PRODUCED_MAX: u64 = 32 << 20;

/// Handlers that hang now, and calls whose requests were whole and read.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) hanging: AtomicU64,
    pub(super) handled: AtomicU64,
}

pub(super) struct Victim(pub(super) std::sync::Arc<Counts>);

impl Victim {
    fn handled(&self) {
        self.0.handled.fetch_add(1, Ordering::SeqCst);
    }
}

impl Target for Victim {
    async fn echo(&self, request: Request<Blob>) -> Result<Response<Blob>, Status> {
        self.handled();
        Ok(Response::new(request.into_inner()))
    }

    async fn produce(&self, request: Request<Size>) -> Result<Response<Blob>, Status> {
        self.handled();
        let bytes = request.into_inner().bytes.min(PRODUCED_MAX);
        Ok(Response::new(Blob { data: vec![7; bytes as usize].into() }))
    }

    async fn hang(&self, _request: Request<Blob>) -> Result<Response<Blob>, Status> {
        self.handled();
        let _hanging = Hanging::new(&self.0.hanging);
        std::future::pending().await
    }

    async fn nest(&self, _request: Request<Tree>) -> Result<Response<Blob>, Status> {
        self.handled();
        Ok(Response::new(Blob::default()))
    }
}

/// Counts while it lives.
struct Hanging<'a>(&'a AtomicU64);

impl<'a> Hanging<'a> {
    fn new(count: &'a AtomicU64) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for Hanging<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
