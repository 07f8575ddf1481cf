//! A key-value service: `kv serve`, the commands that call it, and `kv demo`, which shows it at work.
//!
//! The program is all in here, so that tests can have the service without it: a [`Service`] over a
//! [`Store`], and the messages and stubs of [`proto`].

mod bench;
mod check;
mod cli;
mod demo;
mod doctor;
mod failure;
mod files;
mod limits;
mod log;
mod ops;
mod patience;
mod program;
mod random;
mod serve;
mod service;
mod stats;
mod stop;
mod store;
mod text;
mod token;
mod transfer;
mod tree;
mod watch;

pub use failure::Failure;
pub use program::main;
pub use service::Service;
pub use store::Store;

/// The messages and stubs that the build makes from the `.proto`.
#[allow(missing_docs)]
pub mod proto {
    rpc_core::include_proto!("kv.v1");
}
