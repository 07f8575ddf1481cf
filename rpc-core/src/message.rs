//! [`Request`] and [`Response`]: a message and what travels beside it.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::{Metadata, world};

/// Values of any type that stay in this process, one of each type: for layers and interceptors.
#[derive(Default)]
pub struct Extensions {
    /// Most messages have none: then nothing is allocated, and no hasher is seeded.
    values: Option<Box<Values>>,
}

type Values = HashMap<TypeId, Box<dyn Any + Send + Sync>>;

impl Extensions {
    /// No values.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the value of its type; returns the one that was there.
    pub fn insert<T: Send + Sync + 'static>(&mut self, value: T) -> Option<T> {
        let before =
            self.values.get_or_insert_default().insert(TypeId::of::<T>(), Box::new(value))?;
        before.downcast().ok().map(|before| *before)
    }

    /// The value of a type.
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.values.as_ref()?.get(&TypeId::of::<T>())?.downcast_ref()
    }

    /// The value of a type, to change.
    pub fn get_mut<T: Send + Sync + 'static>(&mut self) -> Option<&mut T> {
        self.values.as_mut()?.get_mut(&TypeId::of::<T>())?.downcast_mut()
    }

    /// Takes the value of a type out.
    pub fn remove<T: Send + Sync + 'static>(&mut self) -> Option<T> {
        self.values.as_mut()?.remove(&TypeId::of::<T>())?.downcast().ok().map(|value| *value)
    }
}

impl fmt::Debug for Extensions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Extensions({})", self.values.as_ref().map_or(0, |values| values.len()))
    }
}

/// Who is at the other end of a connection, as it said in its hello.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Peer {
    /// The name it gave, empty if none. Nobody has checked it.
    pub name: String,
    /// A number drawn anew each time the peer's runtime starts.
    pub boot_id: u128,
    /// The remote end of the control connection; `None` inside one process.
    pub remote_addr: Option<SocketAddr>,
    /// This end of the control connection; `None` inside one process.
    pub local_addr: Option<SocketAddr>,
    /// What carries the connection: `"soft"` or `"rdma"`.
    pub device: &'static str,
}

/// What travels beside a request.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct RequestParts {
    /// Metadata for the handler.
    pub metadata: Metadata,
    /// Values that stay in this process.
    pub extensions: Extensions,
    /// When the call ends at the latest.
    pub deadline: Option<Instant>,
    /// Who sent it; `None` on the calling side.
    pub peer: Option<Arc<Peer>>,
    /// Whether the call waits for a connection; `None`: as its channel says.
    pub wait_for_ready: Option<bool>,
    /// Whether the call and its answer pass those that are not urgent.
    pub urgent: bool,
}

/// A message on its way to a handler.
#[derive(Debug, Default)]
pub struct Request<T> {
    message: T,
    parts: RequestParts,
}

impl<T> Request<T> {
    /// A request with nothing beside it.
    pub fn new(message: T) -> Self {
        Self { message, parts: RequestParts::default() }
    }

    /// A request of its two halves.
    pub fn from_parts(message: T, parts: RequestParts) -> Self {
        Self { message, parts }
    }

    /// The message.
    pub fn into_inner(self) -> T {
        self.message
    }

    /// The message and what came beside it.
    pub fn into_parts(self) -> (T, RequestParts) {
        (self.message, self.parts)
    }

    /// The message.
    pub fn get_ref(&self) -> &T {
        &self.message
    }

    /// The message, to change.
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.message
    }

    /// The same with another message.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Request<U> {
        Request { message: f(self.message), parts: self.parts }
    }

    /// Metadata.
    pub fn metadata(&self) -> &Metadata {
        &self.parts.metadata
    }

    /// Metadata, to change.
    pub fn metadata_mut(&mut self) -> &mut Metadata {
        &mut self.parts.metadata
    }

    /// Values that stay in this process.
    pub fn extensions(&self) -> &Extensions {
        &self.parts.extensions
    }

    /// Values that stay in this process, to change.
    pub fn extensions_mut(&mut self) -> &mut Extensions {
        &mut self.parts.extensions
    }

    /// Ends the call `timeout` from now at the latest. It holds at both ends, and for calls that the
    /// handler makes with this deadline.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.parts.deadline = world::now().checked_add(timeout);
    }

    /// When the call ends at the latest.
    pub fn deadline(&self) -> Option<Instant> {
        self.parts.deadline
    }

    /// Ends the call at `deadline` at the latest, as when passing on a caller's deadline.
    pub fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.parts.deadline = deadline;
    }

    /// Whether the call waits, until its deadline, while its server cannot be reached, instead of failing
    /// at once; also if the server goes away before it has the call, which then is made anew (16 times at most)
    /// and keeps its message until it ends. Default: as its channel says
    /// ([`ChannelBuilder::wait_for_ready`](crate::ChannelBuilder::wait_for_ready)).
    pub fn set_wait_for_ready(&mut self, wait: bool) {
        self.parts.wait_for_ready = Some(wait);
    }

    /// Has the call pass those of its connection that wait and are not urgent: on the way there, before a
    /// handler of a server that limits them is free, and its answer on the way back. For heartbeats and
    /// the like, small and few: calls that are all urgent pass nothing but the rest, which then waits.
    ///
    /// A handler sees what its caller set, and passes it on only if it says so.
    pub fn set_urgent(&mut self, urgent: bool) {
        self.parts.urgent = urgent;
    }

    /// Whether it passes those that are not urgent.
    pub fn is_urgent(&self) -> bool {
        self.parts.urgent
    }

    /// The remote end of the control connection; `None` on the calling side and inside one process.
    pub fn remote_addr(&self) -> Option<SocketAddr> {
        self.parts.peer.as_ref()?.remote_addr
    }

    /// This end of the control connection; `None` on the calling side and inside one process.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.parts.peer.as_ref()?.local_addr
    }

    /// Who sent it; `None` on the calling side.
    pub fn peer(&self) -> Option<&Peer> {
        self.parts.peer.as_deref()
    }
}

/// A message on its way back.
#[derive(Debug, Default)]
pub struct Response<T> {
    message: T,
    metadata: Metadata,
    extensions: Extensions,
}

impl<T> Response<T> {
    /// A response with nothing beside it.
    pub fn new(message: T) -> Self {
        Self { message, metadata: Metadata::new(), extensions: Extensions::new() }
    }

    /// A response of its parts.
    pub fn from_parts(message: T, metadata: Metadata, extensions: Extensions) -> Self {
        Self { message, metadata, extensions }
    }

    /// The message.
    pub fn into_inner(self) -> T {
        self.message
    }

    /// The message and what came beside it.
    pub fn into_parts(self) -> (T, Metadata, Extensions) {
        (self.message, self.metadata, self.extensions)
    }

    /// The message.
    pub fn get_ref(&self) -> &T {
        &self.message
    }

    /// The message, to change.
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.message
    }

    /// The same with another message.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Response<U> {
        Response::from_parts(f(self.message), self.metadata, self.extensions)
    }

    /// Metadata.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Metadata, to change.
    pub fn metadata_mut(&mut self) -> &mut Metadata {
        &mut self.metadata
    }

    /// Values that stay in this process.
    pub fn extensions(&self) -> &Extensions {
        &self.extensions
    }

    /// Values that stay in this process, to change.
    pub fn extensions_mut(&mut self) -> &mut Extensions {
        &mut self.extensions
    }
}

impl<T> From<T> for Response<T> {
    fn from(message: T) -> Self {
        Self::new(message)
    }
}

/// What a generated client takes: a message, or a [`Request`] around one.
pub trait IntoRequest<T>: sealed::Sealed<T> {
    /// The request.
    fn into_request(self) -> Request<T>;
}

impl<T> IntoRequest<T> for T {
    fn into_request(self) -> Request<T> {
        Request::new(self)
    }
}

impl<T> IntoRequest<T> for Request<T> {
    fn into_request(self) -> Self {
        self
    }
}

mod sealed {
    /// Keeps [`IntoRequest`](super::IntoRequest) to the two it is for.
    pub trait Sealed<T> {}
    impl<T> Sealed<T> for T {}
    impl<T> Sealed<T> for super::Request<T> {}
}

/// A stream of messages, in or out.
///
/// Streaming methods are part of the traits so that their shape is fixed; nothing makes a
/// `Streaming` yet, and a `.proto` that declares a streaming method is a build error that says so.
#[derive(Debug)]
pub struct Streaming<T> {
    never: std::convert::Infallible,
    items: PhantomData<fn() -> T>,
}

impl<T> Streaming<T> {
    /// There is none yet, so this can never be reached.
    pub(crate) fn absurd(self) -> std::convert::Infallible {
        self.never
    }
}
