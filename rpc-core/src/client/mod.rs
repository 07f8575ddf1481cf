//! Clients: channels and the calls made on them.

mod backoff;
mod builder;
mod call;
mod channel;
mod lane;
mod watch;

pub use builder::ChannelBuilder;
pub use channel::{Channel, ChannelState};
