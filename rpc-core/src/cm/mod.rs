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
mod confirm;
mod control;
mod driver;
mod error;
mod host;
mod poller;
mod stream;

pub use address::{Address, AddressError, HostName, Path, RdmaOptions, Scheme};
pub use confirm::{ConfirmKeys, NONCE_BYTES};
pub use control::{Control, ControlThread, QUEUE_MAX};
pub use error::{ConnectError, Step};
pub use host::{
    ConnectFailure, ConnectRequest, Context, Established, Host, InstallDone, ListenRequest,
    LocalHello, OpenRequest, PendingQp, Role, Target,
};
pub use stream::ControlStream;
