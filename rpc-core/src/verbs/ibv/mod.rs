//! RDMA devices through libibverbs: NICs, and the kernel's soft-RoCE.
//!
//! One file per object. Each object holds what it needs alive (context, domain, region and queues,
//! QP), so they can be dropped in any order; what the library then still refuses to destroy is
//! logged, counted and left. `ffi` alone knows the binding crate.
//!
//! **Threads.** libibverbs' objects may be used by several threads at once. So the control thread
//! makes QPs with the queues of a core that polls them, by their names ([`IbvCqRef`],
//! [`IbvSrqRef`]).
//!
//! **Asynchronous events** come to the context, not to a core: one thread waits for
//! [`async_fd`](super::Device::async_fd), takes events until there is none, and passes those of a QP
//! to the core that has it. Each is acknowledged where it is fetched, since the library does not
//! destroy an object that has one outstanding.
//!
//! **Fork.** `ibv_fork_init` is not called. Linux copies the pages that a device has pinned when a
//! process forks, since 5.12, so the parent's stay where the device knows them; and
//! `std::process::Command` starts its child without copying pages at all. With an older kernel, a
//! program that forks and goes on in both processes calls `ibv_fork_init` itself before it makes a
//! runtime, or is started with `RDMAV_FORK_SAFE=1`. No child may use a runtime of its parent.
//!
//! **Counting.** The library has no counters of a process: [`counters`](super::Device::counters) is
//! what was posted and completed here, [`usage`](super::Device::usage) our own tables.

mod address;
mod batch;
mod chain;
mod config;
mod context;
mod cq;
mod device;
mod events;
mod ffi;
mod gid;
mod limits;
mod list;
mod mr;
mod mw;
mod pd;
mod port;
mod qp;
mod srq;
mod survey;
mod tables;
mod wc;

#[cfg(test)]
mod tests;

pub use batch::IbvBatch;
pub use config::IbvConfig;
pub use cq::{IbvCq, IbvCqRef};
pub use device::IbvDevice;
pub use list::device_names;
pub use mr::IbvMr;
pub use mw::IbvMw;
pub use pd::IbvPd;
pub use qp::IbvQp;
pub use srq::{IbvRecvBatch, IbvSrq, IbvSrqRef};
pub use survey::{PortSurvey, Survey};
