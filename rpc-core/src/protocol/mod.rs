//! One connection's protocol as a state machine: no clock, no I/O, no verbs.
//!
//! ```text
//!  commands                    +------------------------------+   poll_event ---> what happened
//!  start_call, answer, ... --> |          Connection          |   poll_transmit -> one SEND
//!                              |  outbox   calls    methods   |   poll_read ----> one READ
//!  on_message, on_read_done -> |  credits  leases   transfers |   poll_timeout -> when to call
//!  on_timer, on_lost, ...      |  deadlines                   |                   on_timer
//!                              +------------------------------+
//! ```
//!
//! The owner (the engine, the simulator, a test) calls `on_*` for what happened, commands for what
//! users want, and then takes what is to be done until each `poll_*` says that there is nothing left:
//! events first, since they may lead to commands; then READs; then SENDs; then the timeout.
//!
//! What is promised:
//! - each call ends exactly once: `Answer` or `Failed`, or `cancel_call` and then nothing;
//! - each call of the peer that was announced ends by `answer`, `refuse` or `end_incoming`;
//! - each lease ends by one `Revoke` and `on_lease_revoked`, or with the connection;
//! - each `Fetch` ends in one `Call` or `Answer` that carries its transfer, or one `Discard`;
//! - no SEND is given out that the peer has not posted a receive for.
//!
//! The rules, and why they are so, are in `docs/wire-format.md`.
#![forbid(unsafe_code)]

mod body;
mod calls;
mod config;
mod connection;
mod counters;
mod credits;
mod deadlines;
mod event;
mod ids;
mod leases;
mod liveness;
mod methods;
mod outbox;
mod table;
mod transfers;
mod violation;

#[cfg(any(test, feature = "test-util"))]
pub mod pair;
#[cfg(test)]
mod tests;

pub use crate::wire::WireStatus;
pub use body::{InBody, InSegment, OutAnswer, OutBody, OutCall};
pub use config::{ConnectionConfig, Role};
pub use connection::{CallRefused, Connection, LeaseFull, Read, Transmit};
pub use counters::{Counters, CreditCounts};
pub use event::{
    CallFailure, CancelReason, CloseReason, Event, FailureKind, GoawayReason, InCall, LossKind,
    LossReason,
};
pub use ids::{CallId, LeaseId, ReadId, TransferId};
pub use violation::Violation;

/// Short method ids that one side of a connection may hand out. The receiving side keeps a few bytes
/// for each, so this bounds what a peer can make it keep.
pub const METHODS_MAX: u32 = 4096;
