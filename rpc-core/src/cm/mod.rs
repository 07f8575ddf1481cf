//! Connecting: control connections, their handshakes, and the thread that does what may block.
//!
//! One thread per runtime, `rpc-control`, resolves names, connects, accepts and shakes hands, and
//! asks the [`Host`] (the runtime) to make queue pairs; cores get finished connections. A control
//! connection is plain TCP (or a socket pair inside one process) and stays open for the QP's life:
//! its loss ends the QP.
//!
//! ```text
//! connecting                                    accepting
//!     hello (nonce, epoch)            ─────────▶  negotiate
//!     negotiate, Host::open           ◀─────────  hello (nonce) or refusal
//!     blob (QP address)               ─────────▶  Host::open, RTR, RTS, receives posted
//!     RTR, RTS, install on the core   ◀─────────  blob or refusal
//!     first SEND: CONFIRM             ━━━━━━━━━▶  first SEND: CONFIRM
//! ```
//!
//! [`Handshake`] is that exchange as a state machine without I/O; [`Control`] is the thread.

mod address;
mod answer;
mod confirm;
mod control;
mod convert;
mod dial;
mod driver;
mod error;
mod handshake;
mod host;
mod listener;
mod log;
#[cfg(any(test, feature = "test-util"))]
mod network;
mod nofile;
mod path;
mod poller;
mod route;
mod shake;
mod socket;
mod status;
mod stream;
mod ways;

#[cfg(test)]
mod tests;

pub use address::{Address, AddressError, DeviceChoice, HostName, RdmaOptions, Scheme};
pub use confirm::{ConfirmKeys, NONCE_BYTES};
#[cfg(any(test, feature = "test-util"))]
pub(crate) use control::ControlLoop;
pub use control::{Control, ControlThread, HANDSHAKE_TIMEOUT, Job, QUEUE_MAX};
pub use driver::{CONNECTS_MAX, HANDSHAKES_MAX};
pub use error::{ConnectError, Step};
pub use handshake::{Handshake, Need, Outcome};
pub use host::{
    ConnectCallback, ConnectFailure, ConnectRequest, Context, Established, EventSource, Host,
    InstallDone, ListenCallback, ListenRequest, LocalHello, OpenRequest, PendingQp, Target,
};
#[cfg(any(test, feature = "test-util"))]
pub(crate) use network::{Door, Network};
pub use nofile::{NofileLimit, raise_nofile_limit};
pub use path::Path;
pub use route::Route;
pub use stream::ControlStream;
pub use ways::Offer;

pub use crate::wire::Role;
