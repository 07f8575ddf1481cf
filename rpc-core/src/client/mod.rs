//! Clients: channels and the calls made on them.

mod builder;
mod call;
mod channel;
mod lane;

pub use builder::ChannelBuilder;
pub use channel::{Channel, ChannelState};
