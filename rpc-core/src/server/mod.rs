//! Servers: services behind an address.

mod bound;
mod builder;
mod in_process;
mod router;
mod service;

pub use bound::Bound;
pub use builder::ServerBuilder;
pub use service::{Call, Handler, Service};

/// Where servers begin: [`Server::builder`].
#[derive(Debug)]
pub struct Server(());

impl Server {
    /// Begins a server.
    pub fn builder() -> ServerBuilder {
        ServerBuilder::new()
    }
}
