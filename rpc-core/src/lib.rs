//! RPC for distributed databases over RDMA verbs, and over a software device where there is no NIC.
//!
//! A service is a `.proto` file, or a Rust trait with [`macro@service`]. A build script that calls
//! `rpc_codegen::Builder::compile` turns the file into messages, the trait, a client and a server, and
//! [`include_proto!`] brings them into a crate. Then
//!
//! - [`Server`] serves implementations of the traits: `Server::builder().add_service(..).bind(address)`;
//! - [`Channel`] is what clients call on: `KvClient::new(Channel::connect(address).await?)`;
//! - [`Request`] and [`Response`] carry messages and [`Metadata`]; [`Status`] is every error, and its
//!   [`execution`](Status::execution) says whether the method ran;
//! - [`Runtime`] owns the cores, the devices and the memory. Without one, servers and channels share a
//!   default of one core;
//! - [`block_on`] waits for any of this on a plain thread.
//!
//! Addresses are `soft://host:port`, the software device, `rdma://host:port`, libibverbs (feature
//! `verbs`), and `auto://host:port`, which chooses.
//!
//! The modules ([`verbs`], [`mem`], [`codec`], [`wire`] and others) are the layers below: whoever
//! writes a service needs none of them.

#![deny(unsafe_code)]

mod client;
pub mod cm;
pub mod doctor;
pub mod verbs;

pub mod codec;
mod engine;
pub mod mem;
pub mod protocol;
mod runtime;
mod server;
#[cfg(any(test, feature = "test-util"))]
pub mod sim;
pub mod sync;
pub mod wire;

#[doc(hidden)]
#[path = "private.rs"]
pub mod __private;

mod caller;
mod detach;
#[cfg(feature = "failpoints")]
pub mod failpoint;
#[cfg(not(feature = "failpoints"))]
mod failpoint;
mod include;
mod message;
mod metadata;
mod pings;
mod status;
mod time;
mod world;

pub use caller::{Caller, Idempotency, MethodDescriptor, MethodKind};
pub use client::{Channel, ChannelBuilder, ChannelState, ConnectionInfo};
pub use cm::RdmaOptions;
pub use detach::detach;
pub use engine::{JoinError, JoinHandle, Progress};
pub use message::{Extensions, IntoRequest, Peer, Request, RequestParts, Response, Streaming};
pub use metadata::{Metadata, MetadataError};
pub use pings::Pings;
pub use runtime::{
    CoreStats, DeviceStats, LocalRuntime, QueueCounters, Runtime, RuntimeBuilder, RuntimeStats,
    block_on,
};
pub use server::{Bound, Server, ServerBuilder};
pub use status::{Code, Execution, Status};
pub use time::Time;

/// Turns a trait into client and server stubs.
pub use rpc_macros::service;

// Types of these crates are in public signatures and in generated code, so users need no line of
// their own for them.
pub use {bytes, prost, prost_types};
