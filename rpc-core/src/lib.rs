//! RPC for distributed databases over RDMA verbs, and over a software device where there is no NIC.

#![deny(unsafe_code)]

pub mod verbs;

pub mod mem;
pub mod protocol;
pub mod wire;

mod caller;
mod message;
mod metadata;
mod status;
mod time;

pub use caller::{Caller, Idempotency, MethodDescriptor, MethodKind};
pub use message::{Extensions, IntoRequest, Peer, Request, RequestParts, Response, Streaming};
pub use metadata::{Metadata, MetadataError};
pub use status::{Code, Execution, Status};
pub use time::Time;
