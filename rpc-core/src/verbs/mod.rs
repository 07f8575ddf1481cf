//! The device layer, shaped like libibverbs: what it offers and no more.
//!
//! [`Device`] is the control half: it is shared between threads and may block (create, modify,
//! destroy, register). [`Cq`], [`Srq`] and [`Qp`] are the data half: each belongs to one thread at a
//! time and never blocks. Nothing here knows of messages, calls or credits.
//!
//! Two devices implement it: [`soft`], a software device that is stricter than hardware, and, with
//! the feature `verbs`, `ibv`: libibverbs.

#[cfg(test)]
mod conformance;
mod device;
mod error;
#[cfg(feature = "verbs")]
pub mod ibv;
pub mod soft;
mod types;
mod wc;

pub use device::{
    AsyncEvent, Cq, Device, Mr, Mw, PostError, Qp, QpAttr, QpInit, QpState, RecvBatch, SendBatch,
    SendFlags, Srq, SrqInit,
};
pub use error::{OpenError, VerbsError};
pub use types::{
    Access, DeviceCounters, DeviceUsage, Gid, GidType, Limits, Link, LinkLayer, Lkey, Port, Psn,
    QpAddress, QpNum, Region, RemoteRange, Rkey, Sge,
};
pub use wc::{Completed, Opcode, Wc, WcFailure, WcStatus};
