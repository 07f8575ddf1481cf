//! Clients: channels and the calls made on them.

mod attempt;
mod backoff;
mod builder;
mod call;
mod channel;
mod info;
mod lane;
mod watch;

pub use builder::ChannelBuilder;
pub use channel::{Channel, ChannelState};
pub use info::ConnectionInfo;
