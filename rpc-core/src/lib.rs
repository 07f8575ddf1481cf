//! RPC for distributed databases over RDMA verbs, and over a software device where there is no NIC.

#![deny(unsafe_code)]

mod client;
pub mod cm;
pub mod verbs;

pub mod codec;
mod engine;
pub mod mem;
pub mod protocol;
mod runtime;
mod server;
pub mod sync;
pub mod wire;

#[doc(hidden)]
#[path = "private.rs"]
pub mod __private;

mod caller;
mod detach;
mod include;
mod message;
mod metadata;
mod status;
mod time;

pub use caller::{Caller, Idempotency, MethodDescriptor, MethodKind};
pub use client::{Channel, ChannelBuilder, ChannelState};
pub use detach::detach;
pub use engine::{JoinError, JoinHandle, Progress};
pub use message::{Extensions, IntoRequest, Peer, Request, RequestParts, Response, Streaming};
pub use metadata::{Metadata, MetadataError};
pub use runtime::{
    CoreStats, DeviceStats, LocalRuntime, Runtime, RuntimeBuilder, RuntimeStats, block_on,
};
pub use server::{Bound, Server, ServerBuilder};
pub use status::{Code, Execution, Status};
pub use time::Time;

/// Turns a trait into client and server stubs.
pub use rpc_macros::service;

// Types of these crates are in public signatures and in generated code, so users need no line of
// their own for them.
pub use {bytes, prost, prost_types};
