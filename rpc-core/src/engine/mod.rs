//! Cores and engines: the one layer that sees the state machines, the device and the memory.
//!
//! A [`Core`] is a thread's event loop. It drives one [`Engine`] per device in use: one CQ, one SRQ,
//! its QPs and its eager buffers, shared with nobody. A turn is [`Core::turn`]: completions into the
//! state machines, receives reposted, submissions, timers, ready tasks, and then one chain of work
//! requests for each connection with something to say.
//!
//! Handlers are polled once in place when their call arrives; one that is not ready becomes a task
//! of its core. Payloads never pass through the engine: it hands their buffers on.

mod alarms;
mod allowance;
mod apart;
mod arrivals;
mod attention;
mod calls;
pub(crate) mod capacity;
mod cell;
mod chain;
mod clock;
mod completions;
mod connection;
mod core;
mod drive;
#[allow(clippy::module_inception, reason = "the engine is what this layer is named after")]
mod engine;
mod events;
mod executor;
mod fetches;
mod flush;
mod install;
mod leases;
mod load;
pub(crate) mod local;
#[cfg(all(loom, test))]
mod models;
mod offload;
pub(crate) mod outbound;
mod passing;
mod queue_counters;
mod read_share;
mod receives;
mod send_queue;
mod shared;
mod shortage;
mod silence;
mod sleep;
mod slots;
mod status;
mod submission;
mod teardown;
mod timers;
mod turns;
mod wr_id;

pub use self::core::Progress;
pub use executor::{JoinError, JoinHandle};

pub(crate) use self::core::Core;
pub(crate) use alarms::AlarmId;
pub(crate) use allowance::{Allowance, Allowed};
pub(crate) use capacity::Lending;
pub(crate) use cell::{CallCell, Reply};
pub(crate) use clock::Clock;
pub(crate) use connection::ServerSide;
pub(crate) use engine::{Engine, EngineControl, EngineError, EngineParts, Reservation};
pub(crate) use install::Install;
pub(crate) use load::{ServerLimits, ServerLoad};
pub(crate) use offload::Offload;
pub use queue_counters::QueueCounters;
pub(crate) use shared::CoreShared;
pub(crate) use submission::{
    Answer, Answered, ConnectionKey, Dispatch, HandlerFuture, IncomingCall, Method, Negotiated,
    Observer, OutgoingCall, ReceivedBody, Terms,
};
