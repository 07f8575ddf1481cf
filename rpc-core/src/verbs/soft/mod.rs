//! A software device: RDMA verbs for laptops, CI and hosts without a NIC.
//!
//! It is strict: what the specification forbids fails here, even where a NIC is lax. It starts no
//! thread and makes progress only inside verbs, above all [`Cq::poll`](super::Cq::poll); while its
//! owner does something else, its memory cannot be read by peers. Everything else about timing is
//! not imitated either.
//!
//! One lock holds everything of a device, and each verb takes it once. A runtime opens a device per
//! core, so the lock is not contended: only control verbs come from other threads.
//!
//! Who does what:
//! - `state` owns the links and runs a poll: acknowledgements, what came in, timers, what goes out.
//! - `core` owns the QPs and takes packets apart; `requester` and `responder` are a QP's two halves,
//!   `sending` makes a requester's packets.
//! - `env` is what all QPs share: keys, queues, counters, events.
//! - `rx` and `tx` are a link's two directions; `link` the kinds of link; `packet` the bytes on it.
//! - `dma` alone touches registered memory.
//!
//! An SRQ that several QPs use hands out its receives out of order, drawn from the device's seed.
//!
//! What may wait, and how much: a link buffers `tx::TX_BYTES_MAX` bytes and one packet; READ
//! answers wait as requests, never as bytes; acknowledgements and NAKs wait as one value per QP. So
//! reading from a link never has to wait for writing to one, and two devices cannot block each
//! other.

mod batch;
mod config;
mod core;
mod cq;
mod device;
mod dma;
mod env;
mod fabric;
mod failing;
mod key;
mod link;
#[cfg(all(loom, test))]
mod models;
mod mr;
mod mw;
mod newcomers;
mod packet;
mod pd;
mod qp;
mod queue_pair;
mod random;
mod requester;
mod responder;
mod rule;
mod rx;
mod sending;
mod sge;
mod signal;
mod srq;
mod state;
mod table;
mod timers;
mod tx;

#[cfg(test)]
pub(super) mod test_memory;
#[cfg(test)]
pub(super) mod tests;

pub use batch::SoftBatch;
pub use config::{Clock, SGE_MAX, SoftConfig};
pub use cq::{SoftCq, SoftCqRef};
pub use device::SoftDevice;
#[cfg(any(test, feature = "test-util"))]
pub(crate) use fabric::{Cable, Fabric};
#[cfg(any(test, feature = "test-util"))]
pub(crate) use failing::FailsWhen;
#[cfg(any(test, feature = "test-util"))]
pub use failing::Verb;
pub use mr::SoftMr;
pub use mw::SoftMw;
pub use pd::SoftPd;
pub use queue_pair::SoftQp;
pub use rule::Rule;
pub use srq::{SoftRecvBatch, SoftSrq, SoftSrqRef};
