use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use async_task::Task;
use rustc_hash::FxHashMap;
use slab::Slab;

use super::allowance::{Allowance, Allowed};
use super::apart::BehindBinds;
use super::attention::{Missed, Seen};
use super::capacity::RECEIVES_GUARANTEED;
use super::cell::CallCell;
use super::engine::Reservation;
use super::executor::Joining;
use super::fetches::WaitingFetch;
use super::load::{ServerLimits, ServerLoad};
use super::read_share::ReadTurn;
use super::send_queue::SendQueue;
use super::silence::Moved;
use super::submission::{
    Answer, ConnectionKey, Dispatch, Method, Negotiated, Observer, OutgoingCall, ReceivedBody,
    Terms,
};
use crate::cm::ControlStream;
use crate::codec::InSegment as Part;
use crate::mem::{ArenaId, PayloadMut, Pool};
use crate::protocol::{self, CallId, InBody, InSegment, LeaseId, TransferId};
use crate::verbs::{Device, Qp, Sge};
use crate::{Peer, Time};

/// What a device moves for a connection is a sign of life from here on: more than control frames and their
/// answers come to in many times the bound on silence.
const MOVING_BYTES: u64 = 64 << 10;

/// One connection of an engine: the state machine, the QP, and everything that ends with them.
pub(super) struct Connection<D: Device> {
    pub(super) key: ConnectionKey,
    /// `None` while it is on its way to ERR, or is being destroyed.
    pub(super) qp: Option<D::Qp>,
    pub(super) protocol: protocol::Connection,
    /// Stays open for the QP's life; its loss ends the connection.
    pub(super) control: ControlStream,
    pub(super) send_queue: SendQueue,
    /// The last flush left something for which there was no room in the send queue, or which waits for the
    /// queue to run empty.
    pub(super) queue_full: bool,
    pub(super) peer: Arc<Peer>,
    pub(super) message_bytes_max: u64,
    pub(super) eager_bytes: u32,
    pub(super) terms: Terms,
    /// Who serves the peer's calls; nobody on a connection that this side asked for.
    pub(super) server: Option<ServerSide>,
    /// What that server's handlers take up on this core, if it is limited.
    pub(super) load: Option<Arc<ServerLoad>>,
    /// What answers to the peer may keep of payload memory.
    pub(super) allowance: Arc<Allowance>,
    pub(super) observer: Option<Arc<dyn Observer>>,
    /// Calls of this side; the key is the token that the state machine gives back.
    pub(super) calls: Slab<Arc<CallCell>>,
    /// Handlers that became tasks. Dropping a task drops its future on this core.
    pub(super) handlers: FxHashMap<CallId, Task<()>>,
    /// What the peer's method numbers mean: filled as it names them.
    pub(super) methods: Vec<Option<Method>>,
    pub(super) leases: FxHashMap<LeaseId, Lease<D>>,
    /// Leases to invalidate with the next flush.
    pub(super) revoking: VecDeque<LeaseId>,
    /// A SEND whose windows must be bound first, on a device that needs that done apart.
    pub(super) behind_binds: Option<BehindBinds>,
    /// Whether what was posted last on such a device were binds or invalidations.
    pub(super) local_last: bool,
    /// Destinations of READs that are posted or may be posted.
    pub(super) transfers: FxHashMap<TransferId, Vec<PayloadMut>>,
    /// What of its core's READs are its own.
    pub(super) reads: ReadTurn,
    /// When a READ last brought something, or the first of those that are outstanding was posted.
    pub(super) read_at: Seen,
    /// What its device had moved when that last counted as a sign of life.
    pub(super) moved_bytes: u64,
    /// When its send queue last moved.
    pub(super) moved: Moved,
    /// Messages whose payloads have no destination yet.
    pub(super) fetches: VecDeque<WaitingFetch>,
    /// Messages with payloads that wait for a lease.
    pub(super) waiting: VecDeque<Waiting>,
    /// Receives that stand in the SRQ, or are being parsed, for this connection.
    pub(super) receives: u32,
    pub(super) stage: Stage,
    /// The earliest timer that is queued for it.
    pub(super) timer: Option<Time>,
    /// Whether it is in the engine's list of connections to flush.
    pub(super) dirty: bool,
    /// Whether the device has said that its QP, in ERR, takes no receive any more.
    pub(super) last_wqe: bool,
    /// How often the completion queue had been polled dry when its QP was drained.
    pub(super) drained_at: Option<u64>,
    /// Why it has finished, once it has.
    pub(super) finished: Option<String>,
    /// Whoever waits for its end: dropping this tells them.
    pub(super) closing: Option<Arc<Joining<()>>>,
    /// Its place in the engine, given back last.
    pub(super) _place: Reservation<D>,
}

/// The server that accepted a connection.
#[derive(Clone)]
pub(crate) struct ServerSide {
    pub(crate) server: u64,
    pub(crate) dispatch: Arc<dyn Dispatch>,
    pub(crate) limits: ServerLimits,
    /// One for each core, if its handlers are limited.
    pub(crate) loads: Option<Arc<[Arc<ServerLoad>]>>,
}

/// How far its end has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Calls can be made, or soon can be.
    Open,
    /// The state machine has finished. What it said last is still on its way: the QP goes to ERR
    /// when those SENDs have completed, or at `until`.
    Finishing { until: Time },
    /// The QP is in ERR: its requests are being flushed. After `until` it is destroyed regardless.
    Draining { until: Time },
}

/// An outbound message's payload: what is advertised, and through which windows.
pub(super) struct Lease<D: Device> {
    pub(super) ranges: Vec<Range<D>>,
    pub(super) stage: LeaseStage,
    /// An answer's part of the connection's allowance, given back with the lease.
    pub(super) allowed: Option<Allowed>,
}

/// One advertised range. The bytes stay alive until the range's window is closed.
pub(super) struct Range<D: Device> {
    pub(super) window: D::Mw,
    pub(super) arena: ArenaId,
    pub(super) sge: Sge,
    pub(super) bytes: bytes::Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaseStage {
    /// Its descriptors have not left: no window is bound.
    Reserved,
    /// Its windows were bound in the chain that advertised it.
    Bound,
    /// Its windows are being closed.
    Revoking,
}

/// A message that waits for windows or a lease.
pub(super) enum Waiting {
    Call { cell: Arc<CallCell>, call: OutgoingCall },
    Answer { call: CallId, answer: Answer },
}

impl<D: Device> Connection<D> {
    /// Receives that are lent to it, beside its own.
    pub(super) fn lent(&self) -> u32 {
        self.receives.saturating_sub(RECEIVES_GUARANTEED)
    }

    /// Both sides have confirmed it: tells whoever asked for it.
    pub(super) fn tell_ready(&self) {
        let (slot, device) = (self.key.slot, self.peer.device);
        tracing::debug!(slot, device, "connection confirmed by both sides");
        if let Some(observer) = &self.observer {
            let Self { eager_bytes, message_bytes_max, .. } = *self;
            let negotiated = Negotiated { eager_bytes, message_bytes_max };
            observer.ready(self.key, negotiated, &self.peer, self.terms);
        }
    }

    /// Whether calls can be made.
    pub(super) fn is_open(&self) -> bool {
        self.stage == Stage::Open
    }

    /// When its READs will have brought nothing for `too_long`, for a core that has missed so much by now;
    /// `None` if none is outstanding. READs that wait for their core's share are not the peer's delay.
    pub(super) fn stalls_at(&self, too_long: Duration, missed: Missed) -> Option<Time> {
        let reads = self.is_alive() && self.reads.outstanding() > 0;
        reads.then(|| self.read_at.plus(too_long, missed))
    }

    /// Whether its device has moved bulk since this was last true. Where payloads fill a slow line, what
    /// the peer says stands behind them, and so does what it is asked.
    pub(super) fn is_moving(&mut self) -> bool {
        let moved = self.qp.as_ref().map_or(0, Qp::moved_bytes);
        let moving = moved.saturating_sub(self.moved_bytes) >= MOVING_BYTES;
        if moving {
            self.moved_bytes = moved;
        }
        moving
    }

    /// Whether its QP is in use, and not in ERR.
    pub(super) fn is_alive(&self) -> bool {
        !matches!(self.stage, Stage::Draining { .. })
    }

    /// Notes what a number of the peer means from now on.
    pub(super) fn learn(&mut self, number: u32, name: &str) -> Option<Method> {
        let index = number as usize;
        let found = self.server.as_ref().and_then(|server| server.dispatch.resolve(name));
        // The state machine hands numbers out densely and bounds them.
        if self.methods.len() <= index {
            self.methods.resize(index + 1, None);
        }
        self.methods[index] = found;
        found
    }

    /// The body of a message that arrived, with the pieces that were READ for it.
    pub(super) fn take_body(&mut self, pool: &Pool, body: InBody) -> ReceivedBody {
        if body.segments.is_empty() {
            return ReceivedBody::Inline(body.inline);
        }
        let mut pieces: Vec<Option<PayloadMut>> = body
            .transfer
            .and_then(|transfer| self.transfers.remove(&transfer))
            .unwrap_or_default()
            .into_iter()
            .map(Some)
            .collect();
        let mut inline = body.inline;
        let mut segments = Vec::with_capacity(body.segments.len());
        for segment in body.segments {
            match segment {
                InSegment::Inline(len) => {
                    // The state machine has checked that the lengths sum to the inline part.
                    let len = (len as usize).min(inline.len());
                    segments.push(Part::Inline(inline.split_to(len)));
                }
                InSegment::Piece(index) => {
                    if let Some(piece) = pieces.get_mut(index as usize).and_then(Option::take) {
                        segments.push(Part::deliver(pool, piece));
                    }
                }
            }
        }
        ReceivedBody::Parts(segments)
    }
}
