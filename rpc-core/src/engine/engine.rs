use std::any::Any;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::Waker;
use std::time::Duration;

use rustc_hash::FxHashMap;

use super::arrivals::{Arrived, Queue};
use super::capacity::{
    COMPLETIONS_PER_TURN, Capacity, EAGER_BYTES, EAGER_CHUNK_SLOTS, INLINE_BYTES_MAX, Lending,
    SEND_WRS_CONTROL,
};
use super::cell::CallCell;
use super::connection::{Connection, Stage};
use super::drive::{Drive, Turn};
use super::executor::Joining;
use super::fetches::Stalls;
use super::install::Install;
use super::offload::{Awaited, Offload};
use super::queue_counters::QueueCounters;
use super::read_share::ReadShare;
use super::receives::Reposting;
use super::shared::Totals;
use super::shortage::Shortage;
use super::sleep::Sleeper;
use super::slots::Slots;
use super::submission::{ConnectionKey, HandlerEnd};
use super::teardown::Dying;
use crate::cm::InstallDone;
use crate::mem::{CoreCache, EagerConfig, EagerSlab, EagerSlot, Pool, Regions, Registrar, SlotId};
use crate::verbs::{Cq, Device, QpInit, SrqInit, VerbsError, Wc};
use crate::{Pings, Time};

/// A core's work on one device: one CQ, one SRQ, its QPs and its eager buffers.
///
/// Nothing here is shared or locked. The state machines decide; this turns what they say into work
/// requests and what completes into their events.
pub(crate) struct Engine<D: Device> {
    pub(super) control: Arc<EngineControl<D>>,
    pub(super) cq: D::Cq,
    pub(super) srq: D::Srq,
    pub(super) capacity: Capacity,
    pub(super) slab: EagerSlab,
    pub(super) registrar: Registrar<D>,
    pub(super) pool: Pool,
    pub(super) cache: CoreCache,
    pub(super) connections: Slots<Connection<D>>,
    pub(super) by_qp: FxHashMap<u32, u32>,
    pub(super) windows: Vec<D::Mw>,
    pub(super) windows_made: u32,
    /// Where what may block is done; `None`: in place.
    pub(super) offload: Option<Offload>,
    pub(super) awaited: Awaited,
    /// Connections that came and wait for eager buffers.
    pub(super) installs: Vec<(Install<D>, InstallDone)>,
    /// Connections whose QP is being destroyed, by a number of their own.
    pub(super) dying: FxHashMap<u64, Dying<D>>,
    pub(super) deaths: u64,
    /// Connections with something to say.
    pub(super) dirty: VecDeque<u32>,
    /// Connections that could not say it for want of an eager buffer.
    pub(super) starved: Vec<u32>,
    /// Receives that were consumed in this turn, with the connection each belongs to.
    pub(super) consumed: Vec<(EagerSlot, Option<u32>)>,
    pub(super) reposting: Reposting,
    /// Receives in the SRQ that belonged to connections that have gone.
    pub(super) receives_orphaned: u32,
    pub(super) receives_posted: u32,
    pub(super) receives_lent: u32,
    /// Connections that are short of receives while none is left to lend.
    pub(super) shortage: Shortage,
    /// Calls that arrived in this turn.
    pub(super) arrived: Vec<Arrived>,
    /// Calls that wait for a handler of their server to end.
    pub(super) queued: Vec<Queue>,
    /// Connections whose messages wait for memory, in turn.
    pub(super) fetches: VecDeque<ConnectionKey>,
    /// What may be asked for by READ at once.
    pub(super) reads: ReadShare,
    /// When READs that bring nothing end their connection.
    pub(super) stalls: Stalls,
    /// How long the device may say nothing of what is posted.
    pub(super) silence_max: Option<Duration>,
    /// Whether the device takes binds and invalidations only by themselves.
    pub(super) local_ops_alone: bool,
    /// When peers are asked for a sign of life.
    pub(super) pings: Pings,
    pub(super) silence_seen: Time,
    /// Whether the device is this engine's alone, which then fetches its asynchronous events. Those of
    /// a shared one are handed to its engines.
    pub(super) own_device: bool,
    pub(super) async_seen: Time,
    /// The device or a queue is lost, and with it every connection.
    pub(super) failed: bool,
    /// Whether the last poll left nothing in it.
    pub(super) caught_up: bool,
    /// How often a poll left nothing in the completion queue.
    pub(super) polls_dry: u64,
    pub(super) timers: BinaryHeap<Reverse<(Time, u32)>>,
    /// Wakes this core: memory came back.
    pub(super) waker: Waker,
    /// Buffers of inline SENDs in the chain that is being built.
    pub(super) copied: Vec<SlotId>,
    pub(super) completions: Vec<Wc>,
    pub(super) counters: EngineCounters,
}

/// What an engine counts for its core.
#[derive(Default)]
pub(super) struct EngineCounters {
    pub(super) calls_made: u64,
    pub(super) calls_served: u64,
    pub(super) errors: u64,
    pub(super) credits_recalled: u64,
    pub(super) credits_returned: u64,
    pub(super) queues: QueueCounters,
}

/// The part of an engine that the control thread uses: it makes QPs that the engine will drive.
pub(crate) struct EngineControl<D: Device> {
    pub(crate) index: u16,
    pub(crate) device: D,
    pub(crate) pd: D::Pd,
    pub(crate) cq: D::CqRef,
    pub(crate) srq: D::SrqRef,
    pub(crate) capacity: Capacity,
    /// The longest SEND that is posted inline.
    pub(super) inline_bytes_max: u32,
    /// Connections that exist or are being made.
    pub(crate) connections: AtomicU32,
    /// Its device or a queue is lost: it takes no connections.
    pub(super) failed: AtomicBool,
}

impl<D: Device> EngineControl<D> {
    /// Takes a place for a connection, if there is one: its guaranteed receives are then its own.
    pub(crate) fn reserve(self: &Arc<Self>) -> Option<Reservation<D>> {
        if self.failed.load(Ordering::Relaxed) {
            return None;
        }
        self.connections
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |have| {
                (have < self.capacity.connections_max).then_some(have + 1)
            })
            .ok()
            .map(|_| Reservation(Arc::clone(self)))
    }

    /// A QP on this engine's queues, as deep as they have room for: whoever makes one has a
    /// [`Reservation`] for it.
    pub(crate) fn qp_init(&self) -> QpInit<'_, D> {
        debug_assert!(self.capacity.send_wrs > SEND_WRS_CONTROL);
        QpInit {
            pd: &self.pd,
            send_cq: &self.cq,
            recv_cq: &self.cq,
            srq: &self.srq,
            send_wr_max: self.capacity.send_wrs,
            send_sge_max: 1,
            inline_bytes_max: self.inline_bytes_max,
            remote_read: true,
        }
    }
}

/// A connection's place in an engine; dropping it gives the place back.
pub(crate) struct Reservation<D: Device>(Arc<EngineControl<D>>);

impl<D: Device> Drop for Reservation<D> {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Why an engine could not be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EngineError {
    #[error(transparent)]
    TooSmall(#[from] super::capacity::TooSmall),
    #[error(transparent)]
    Verbs(#[from] VerbsError),
    #[error(transparent)]
    Memory(#[from] crate::mem::MemError),
}

/// What an engine is made from.
pub(crate) struct EngineParts<D: Device> {
    /// Its place among its core's engines.
    pub(crate) index: u16,
    pub(crate) device: D,
    pub(crate) pd: D::Pd,
    /// The payload memory that the device knows.
    pub(crate) regions: Arc<Regions<D>>,
    pub(crate) pool: Pool,
    /// Wakes its core.
    pub(crate) waker: Waker,
    /// How many receives it lends.
    pub(crate) lending: Lending,
    /// Bytes that its connections together have asked for by READ at most.
    pub(crate) read_bytes_max: u64,
    /// When peers are asked for a sign of life.
    pub(crate) pings: Pings,
    /// Where what may block is done; `None`: in place.
    pub(crate) offload: Option<Offload>,
}

impl<D: Device> Engine<D> {
    /// An engine, its queues made and nothing posted. With an offload this may block, so it is called
    /// on the control thread.
    pub(crate) fn new(parts: EngineParts<D>) -> Result<Self, EngineError> {
        let EngineParts { index, device, pd, regions, pool, waker, offload, .. } = parts;
        let limits = device.limits();
        let capacity = Capacity::for_limits(&limits)?.lending(parts.lending);
        let cq = device.create_cq(capacity.cqe)?;
        let srq = device.create_srq(&pd, SrqInit { wr_max: capacity.srq_wrs, sge_max: 1 })?;
        let (slab, registrar) = Self::buffers(capacity.slots_max, regions, offload.is_some())?;
        let control = EngineControl {
            index,
            cq: device.cq_ref(&cq),
            srq: device.srq_ref(&srq),
            inline_bytes_max: limits.inline_bytes_max.min(INLINE_BYTES_MAX),
            device,
            pd,
            capacity,
            connections: AtomicU32::new(0),
            failed: AtomicBool::new(false),
        };
        Ok(Self {
            control: Arc::new(control),
            cq,
            srq,
            capacity,
            slab,
            registrar,
            cache: pool.core_cache(),
            pool,
            connections: Slots::new(index),
            by_qp: FxHashMap::default(),
            windows: Vec::new(),
            windows_made: 0,
            own_device: offload.is_none(),
            offload,
            awaited: Awaited::default(),
            installs: Vec::new(),
            dying: FxHashMap::default(),
            deaths: 0,
            dirty: VecDeque::new(),
            starved: Vec::new(),
            consumed: Vec::new(),
            reposting: Reposting::default(),
            receives_orphaned: 0,
            receives_posted: 0,
            receives_lent: 0,
            shortage: Shortage::default(),
            arrived: Vec::new(),
            queued: Vec::new(),
            fetches: VecDeque::new(),
            reads: ReadShare::new(parts.read_bytes_max),
            stalls: Stalls::new(&limits),
            silence_max: limits.silence_max,
            local_ops_alone: limits.local_ops_alone,
            pings: parts.pings.on_device(limits.ack_timeout()),
            silence_seen: Time::ZERO,
            async_seen: Time::ZERO,
            failed: false,
            caught_up: true,
            polls_dry: 0,
            timers: BinaryHeap::new(),
            waker,
            copied: Vec::new(),
            completions: vec![Wc::default(); COMPLETIONS_PER_TURN],
            counters: EngineCounters::default(),
        })
    }

    /// Its eager buffers; registered at once where that may block.
    fn buffers(
        slots_max: u32,
        regions: Arc<Regions<D>>,
        now: bool,
    ) -> Result<(EagerSlab, Registrar<D>), EngineError> {
        let chunk_slots = EAGER_CHUNK_SLOTS;
        let slab = EagerSlab::new(EagerConfig { slot_bytes: EAGER_BYTES, chunk_slots, slots_max })?;
        let mut registrar = Registrar::new(regions);
        if now {
            for chunk in slab.chunks() {
                registrar.eager_lkey(&slab, chunk)?;
            }
        }
        Ok((slab, registrar))
    }

    /// Has what may block done on the control thread from now on.
    pub(crate) fn offload_to(&mut self, offload: Offload) {
        self.offload = Some(offload);
    }

    pub(crate) fn control(&self) -> Arc<EngineControl<D>> {
        Arc::clone(&self.control)
    }

    /// Puts a connection into the list of those to flush.
    pub(super) fn mark_dirty(&mut self, slot: u32) {
        if let Some(connection) = self.connections.at(slot)
            && !connection.dirty
        {
            connection.dirty = true;
            self.dirty.push_back(slot);
        }
    }
}

/// The epoll source of the completion channel; connections' control sockets use their slots.
pub(super) const SOURCE_COMPLETIONS: u32 = u32::MAX - 1;

impl<D: Device> Drive for Engine<D> {
    fn watch(&self, index: usize, sleeper: &Sleeper) -> std::io::Result<()> {
        debug_assert_eq!(index, usize::from(self.control.index));
        sleeper.watch(self.cq.fd(), Turn::key(self.control.index, SOURCE_COMPLETIONS))
    }

    fn poll(&mut self, turn: &Turn<'_>) -> usize {
        let mut work = self.poll_completions(turn);
        if self.cache.has_returns() {
            self.cache.collect();
        }
        self.repost_receives(turn);
        self.relieve_shortage(turn);
        work += self.begin_arrived(turn);
        work += self.retry_fetches(turn);
        work
    }

    fn submit(&mut self, turn: &Turn<'_>, call: Arc<CallCell>) {
        self.start_call(turn, call);
    }

    fn abandon(&mut self, turn: &Turn<'_>, cell: &Arc<CallCell>) {
        self.cancel_call(turn, cell);
    }

    fn handler_ended(&mut self, turn: &Turn<'_>, end: HandlerEnd) {
        self.end_handler(turn, end);
    }

    fn fire_timers(&mut self, turn: &Turn<'_>) -> usize {
        self.fire_due(turn)
    }

    fn flush(&mut self, turn: &Turn<'_>) -> usize {
        let posted = self.flush_shared(turn);
        self.keep_buffers(turn);
        posted
    }

    fn is_quiet(&self, now: Time) -> bool {
        self.dirty.is_empty()
            && !self.reads.has_turn()
            && !self.wants_buffers(now)
            && self.timers.peek().is_none_or(|Reverse((at, _))| *at > now)
    }

    fn count(&self, totals: &mut Totals) {
        totals.calls_made += self.counters.calls_made;
        totals.calls_served += self.counters.calls_served;
        totals.errors += self.counters.errors;
        totals.connections += self.connections.len();
        totals.receives_posted += self.receives_posted;
        totals.credits_granted +=
            self.connections.iter().map(|c| c.protocol.credits().granted).sum::<u32>();
        totals.credits_recalled += self.counters.credits_recalled;
        totals.credits_returned += self.counters.credits_returned;
        totals.queues = totals.queues.plus(&self.counters.queues);
        let held = self.slab.slots() - self.slab.slots_free();
        let receives = self.receives_posted + self.reposting.waiting();
        totals.send_buffers += held.saturating_sub(receives);
        totals.leases += self.connections.iter().map(|c| c.leases.len() as u32).sum::<u32>();
    }

    fn next_timer(&self) -> Option<Time> {
        let own = self.timers.peek().map(|Reverse((at, _))| *at);
        let own = own.into_iter().chain(self.cq.next_deadline());
        let own = own.chain(self.shortage.next_look());
        own.chain(self.next_fetch_retry()).chain(self.next_buffers()).min()
    }

    fn is_unused(&self) -> bool {
        self.control.connections.load(Ordering::Relaxed) == 0
            && self.connections.len() == 0
            && self.dying.is_empty()
    }

    fn needs_cpu(&self) -> bool {
        self.control.device.limits().needs_cpu
    }

    fn arm(&mut self) -> bool {
        if self.failed {
            return true; // nothing comes any more
        }
        self.counters.queues.arms += 1;
        if let Err(error) = self.cq.arm() {
            tracing::error!(%error, "the completion queue could not be armed");
            return false;
        }
        true
    }

    fn has_outstanding(&self) -> bool {
        self.connections.iter().any(|c| {
            !c.calls.is_empty()
                || !c.leases.is_empty()
                || c.send_queue.awaits()
                || c.stage != Stage::Open
        })
    }

    fn socket_ready(&mut self, turn: &Turn<'_>, source: u32) {
        if source == SOURCE_COMPLETIONS {
            if let Err(error) = self.cq.drain_events() {
                tracing::error!(%error, "the completion channel failed");
            }
            return;
        }
        let lost = self.connections.at(source).is_some_and(|c| c.control.is_lost());
        if lost {
            self.lose(turn, source, super::teardown::Loss::Control);
        }
    }

    fn close(&mut self, turn: &Turn<'_>, key: ConnectionKey) {
        if self.connections.get(key).is_some() {
            self.close_in_order(turn, key.slot, "the client has closed its channel");
        }
    }

    fn close_server(&mut self, turn: &Turn<'_>, server: u64, closed: Arc<Joining<()>>) {
        for slot in self.connections.in_use() {
            let Some(connection) = self.connections.at(slot) else { continue };
            if connection.server.as_ref().is_some_and(|side| side.server == server) {
                connection.closing = Some(Arc::clone(&closed));
                self.close_in_order(turn, slot, "the server shuts down");
            }
        }
    }

    fn shut_down(&mut self, turn: &Turn<'_>) {
        // The control thread has ended, and nobody waits for this core any more.
        self.offload = None;
        for slot in self.connections.in_use() {
            self.lose(turn, slot, super::teardown::Loss::Shutdown);
            self.destroy(turn, slot);
        }
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}
