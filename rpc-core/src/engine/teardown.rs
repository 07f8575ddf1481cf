//! The end of a connection, in the one order that is safe.
//!
//! QP to ERR, then every request that was outstanding is flushed and the completion queue polled dry,
//! then its windows are deallocated (a QP in error cannot invalidate them), then the QP is destroyed,
//! and only then is any memory that the device could have touched free again.

use std::sync::atomic::Ordering;
use std::time::Duration;

use rustc_hash::FxHashMap;

use super::connection::{Connection, Stage, Waiting};
use super::drive::Turn;
use super::engine::Engine;
use super::send_queue::Holds;
use super::submission::ConnectionKey;
use super::wr_id::WrId;
use crate::protocol::{GoawayReason, LossKind, LossReason, Violation};
use crate::verbs::{AsyncEvent, Device, Qp, SendBatch, SendFlags, VerbsError, WcFailure};
use crate::{Code, Execution, Peer, Status};

/// Why a connection is lost.
#[derive(Debug)]
pub(super) enum Loss {
    /// A work request failed.
    Completion(WcFailure),
    /// The peer broke the protocol.
    Violation(Violation),
    /// Its peer held memory that others waited for, and let nothing be read into it.
    Stalled,
    /// The device said nothing of what was posted for so long.
    Silent(Duration),
    /// The peer has said nothing for so long, and did not answer a PING.
    Mute(Duration),
    /// The control connection closed: the peer's process has gone, or closed in order.
    Control,
    /// The state machine has finished.
    Closed(String),
    /// The same, because the peer's first SEND did not come.
    Unconfirmed(String),
    /// The device refused something.
    Device(String),
    /// This runtime stops.
    Shutdown,
}

/// A connection whose QP is destroyed: what it holds is free when that is done.
pub(super) struct Dying<D: Device> {
    connection: Connection<D>,
    /// What peers could read through its windows.
    memory: Vec<bytes::Bytes>,
}

/// The device's objects of a connection, dropped in this order: a QP with a window bound to it is
/// slow to destroy, or cannot be.
struct Remains<D: Device> {
    windows: Vec<D::Mw>,
    qp: Option<D::Qp>,
}

/// A QP that the control thread has not yet moved to ERR is looked for again after this long.
const DRAIN_CHECK: Duration = Duration::from_millis(100);

/// Flushes come from our own device; this bounds the wait for one that is broken.
const DRAIN: Duration = Duration::from_secs(2);

impl Loss {
    fn text(&self, peer: &Peer) -> String {
        match self {
            Self::Completion(failure) => format!(
                "the connection failed: {failure}; likely the peer's process or host has gone, or \
                 the network between lost it"
            ),
            Self::Violation(Violation::Reported { message, .. }) => {
                format!("the peer ended the connection: {message}")
            }
            Self::Violation(violation) => {
                format!("the peer broke the protocol and was disconnected: {violation}")
            }
            Self::Stalled => "none of the peer's memory could be read for too long while others \
                              waited for the memory it was to be read into; likely its core is \
                              blocked, or it holds back on purpose"
                .to_owned(),
            Self::Silent(limit) => format!(
                "the device has neither completed nor failed a request for {} s, which is longer than \
                 it may try; a fault of the device or its driver",
                limit.as_secs()
            ),
            Self::Mute(silence) => format!(
                "{} has said nothing for {:.1} s, though it was asked for a sign of life: its process is \
                 stopped, its core is blocked, or the network between is cut; look at that process (a \
                 debugger, a stop signal, a handler that blocks), or allow it more time by \
                 Runtime::builder().pings()",
                named(peer),
                silence.as_secs_f64()
            ),
            Self::Control => "the peer closed the connection, or its process ended".to_owned(),
            Self::Closed(reason) | Self::Unconfirmed(reason) => reason.clone(),
            Self::Device(error) => format!("the local device failed: {error}"),
            Self::Shutdown => "this runtime was shut down".to_owned(),
        }
    }

    fn kind(&self) -> LossKind {
        match self {
            Self::Completion(_) | Self::Device(_) => LossKind::QueuePair,
            Self::Violation(_) => LossKind::Violation,
            Self::Stalled | Self::Silent(_) | Self::Mute(_) => LossKind::Silence,
            Self::Control | Self::Closed(_) | Self::Unconfirmed(_) => LossKind::Control,
            Self::Shutdown => LossKind::Shutdown,
        }
    }

    /// Whether it is anything but an orderly end.
    fn is_error(&self) -> bool {
        !matches!(self, Self::Closed(_) | Self::Unconfirmed(_) | Self::Control | Self::Shutdown)
    }

    /// Whether another device, or another path of the packets, may do better.
    fn is_of_the_way(&self) -> bool {
        matches!(self, Self::Completion(_) | Self::Device(_) | Self::Unconfirmed(_))
    }

    /// What the peer is told, if it is still there to hear it: in words about itself, which name nothing of
    /// this machine or of where it is seen.
    fn for_peer(&self) -> Option<String> {
        match self {
            Self::Stalled => Some(
                "nothing could be read from you for too long while others waited for the memory that it was to \
                 go to; your core is blocked, or your process gets too little processor time"
                    .to_owned(),
            ),
            Self::Mute(silence) => Some(format!(
                "you have said nothing for {:.1} s, though you were asked for a sign of life",
                silence.as_secs_f64()
            )),
            _ => None,
        }
    }
}

/// The peer, as people know it. Its name is its own choice, and this ends in logs and on terminals.
fn named(peer: &Peer) -> String {
    let mut named = "the peer".to_owned();
    if !peer.name.is_empty() {
        named.push_str(&format!(" '{}'", peer.name.escape_debug()));
    }
    if let Some(remote) = peer.remote_addr {
        named.push_str(&format!(" at {remote}"));
    }
    named
}

/// Empties a map in the order of its keys: a hasher's order is no order at all, and what ends with
/// a connection is seen by handlers and by the device.
fn in_order<K: Ord, V>(map: &mut FxHashMap<K, V>) -> Vec<V> {
    let mut entries: Vec<(K, V)> = map.drain().collect();
    entries.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    entries.into_iter().map(|(_, value)| value).collect()
}

impl<D: Device> Engine<D> {
    /// Ends a connection: every call of it ends now, its resources when the device has let go.
    pub(super) fn lose(&mut self, turn: &Turn<'_>, slot: u32, loss: Loss) {
        let Some(connection) = self.connections.at(slot).filter(|c| c.is_alive()) else { return };
        let text = loss.text(&connection.peer);
        let last_words = loss.for_peer();
        if let Some(words) = &last_words {
            connection.protocol.give_up(words);
        }
        if last_words.is_some() || matches!(loss, Loss::Violation(_)) {
            // The state machine has an ERROR frame for the peer, if there is a credit for it.
            self.flush_connection(turn, slot);
        }
        // To say it may have failed, and that is a loss too.
        let Some(connection) = self.connections.at(slot).filter(|c| c.is_alive()) else { return };
        if loss.is_error() {
            self.counters.errors += 1;
            tracing::warn!(slot, peer = ?connection.peer.remote_addr, "{text}");
        } else {
            tracing::debug!(slot, peer = ?connection.peer.remote_addr, "{text}");
        }
        let until = turn.now + DRAIN;
        connection.stage = Stage::Draining { until };
        turn.shared.sleeper.unwatch(connection.control.fd());
        connection.control.close();
        let reason = LossReason { kind: loss.kind(), message: text.as_str().into() };
        connection.protocol.on_lost(turn.now, reason);
        for waiting in std::mem::take(&mut connection.waiting) {
            if let Waiting::Call { cell, .. } = waiting {
                cell.complete(Err(
                    Status::unavailable(&*text).with_execution(Execution::NotExecuted)
                ));
            }
        }
        let key = connection.key;
        if let Some(mut qp) = connection.qp.take() {
            self.off_core(
                turn,
                move || {
                    let moved = qp.to_err();
                    (qp, moved)
                },
                move |engine, turn, (qp, moved)| engine.is_in_error(turn, key, qp, moved),
            );
        }
        self.tell_observer(slot, &text, loss.is_of_the_way());
        self.pump_lost(turn, slot);
        self.schedule_at(slot, until);
        self.mark_dirty(slot);
    }

    /// The QP of a lost connection is in ERR: what is outstanding on it will be flushed.
    fn is_in_error(
        &mut self,
        turn: &Turn<'_>,
        key: ConnectionKey,
        qp: D::Qp,
        moved: Result<(), VerbsError>,
    ) {
        let Some(connection) = self.connections.get(key) else { return };
        connection.qp = Some(qp);
        // Flushing begins now, however late the control thread was.
        let until = turn.now + DRAIN;
        connection.stage = Stage::Draining { until };
        if let Err(error) = moved {
            tracing::error!(
                slot = key.slot,
                %error,
                "the queue pair could not be moved to ERR; it is destroyed after a while"
            );
        }
        self.post_drain_marker(key.slot);
        self.schedule_at(key.slot, until);
        self.mark_dirty(key.slot);
    }

    /// Closes a connection: no new calls, those in progress may end, then it is taken down.
    pub(super) fn close_in_order(&mut self, turn: &Turn<'_>, slot: u32, why: &'static str) {
        let Some(connection) = self.connections.at(slot).filter(|c| c.is_open()) else { return };
        let reason = GoawayReason { code: Code::Unavailable as u32, message: why.into() };
        connection.protocol.close(turn.now, reason);
        self.pump(turn, slot);
        self.mark_dirty(slot);
    }

    /// The state machine has finished: lets its last SENDs arrive, so that no answer is lost that
    /// was given.
    pub(super) fn finish(&mut self, turn: &Turn<'_>, slot: u32, text: String) {
        let Some(connection) = self.connections.at(slot).filter(|c| c.is_open()) else { return };
        let until = turn.now + DRAIN;
        connection.stage = Stage::Finishing { until };
        connection.finished = Some(text);
        self.schedule_at(slot, until);
        self.mark_dirty(slot);
    }

    /// Goes on with the end of a connection that has finished, if all that it said has arrived.
    pub(super) fn go_on_finishing(&mut self, turn: &Turn<'_>, slot: u32) {
        let Some(connection) = self.connections.at(slot) else { return };
        let Stage::Finishing { until } = connection.stage else { return };
        if connection.send_queue.is_empty() || turn.now >= until {
            let text = connection.finished.take().unwrap_or_default();
            self.lose(turn, slot, Loss::Closed(text));
        } else {
            self.schedule_at(slot, until);
        }
    }

    /// The last request of the queue: its flush says that the others are done.
    fn post_drain_marker(&mut self, slot: u32) {
        let Some(connection) = self.connections.at(slot) else { return };
        if connection.send_queue.free() == 0 {
            return; // what is in it is flushed all the same
        }
        let Some(qp) = connection.qp.as_mut() else { return };
        let sequence = connection.send_queue.push(Holds::Drain, SendFlags::SIGNALED);
        let (slot, generation) = (connection.key.slot as u16, connection.key.generation as u16);
        let wr_id = WrId::SendQueue { slot, generation, sequence }.encode();
        let mut batch = qp.batch();
        let added = batch.send(wr_id, &[], SendFlags::SIGNALED);
        if added.is_err() || batch.post().is_err() {
            connection.send_queue.pop_refused();
        }
    }

    /// The events of a lost connection: calls that failed, handlers to drop. Its leases end with
    /// its QP, so a revocation needs nothing here.
    fn pump_lost(&mut self, turn: &Turn<'_>, slot: u32) {
        self.pump(turn, slot);
        let Some(connection) = self.connections.at(slot) else { return };
        connection.revoking.clear();
        // Dropping a task wakes it once more, and that run drops its future: in the order of the calls.
        drop(in_order(&mut connection.handlers));
    }

    /// Destroys the connection if the device has let go of everything.
    pub(super) fn destroy_if_drained(&mut self, turn: &Turn<'_>, slot: u32) {
        if self.own_device {
            self.poll_async(turn); // it may say that the last receive was taken
        }
        let waits_for_last = self.control.device.limits().last_wqe_event;
        let Some(connection) = self.connections.at(slot) else { return };
        let Stage::Draining { until } = connection.stage else { return };
        let drained = connection.send_queue.is_empty() && (connection.last_wqe || !waits_for_last);
        if connection.qp.is_none() {
            // It is still on its way to ERR, which is the control thread's to do.
            self.schedule_at(slot, until.max(turn.now + DRAIN_CHECK));
        } else if drained && connection.drained_at.is_some_and(|at| at < self.polls_dry) {
            self.destroy(turn, slot);
        } else if drained {
            // What completed before the device said so may still stand in the completion queue, and
            // some devices take it out as they destroy the QP: its receives would be lost.
            connection.drained_at.get_or_insert(self.polls_dry);
            self.mark_dirty(slot);
        } else if turn.now >= until {
            tracing::error!(slot, "requests of a queue pair in ERR were not flushed in time");
            self.destroy(turn, slot);
        } else {
            self.schedule_at(slot, until);
        }
    }

    /// Windows, then the QP, then memory.
    pub(super) fn destroy(&mut self, turn: &Turn<'_>, slot: u32) {
        let Some(mut connection) = self.connections.remove(slot) else { return };
        self.fetches.retain(|key| *key != connection.key);
        self.reads.forget(connection.key, &mut connection.reads);
        let mut remains: Remains<D> = Remains { windows: Vec::new(), qp: connection.qp.take() };
        let mut memory = Vec::new();
        for lease in in_order(&mut connection.leases) {
            for range in lease.ranges {
                remains.windows.push(range.window);
                memory.push(range.bytes);
            }
        }
        self.deaths += 1;
        let death = self.deaths;
        if let Some(qp) = &remains.qp {
            self.by_qp.remove(&Qp::num(qp).0);
        }
        self.dying.insert(death, Dying { connection, memory });
        let windows = remains.windows.len() as u32;
        let device = self.control.device.clone();
        self.off_core(
            turn,
            move || {
                let leaks = device.leaks();
                drop(remains);
                device.leaks() == leaks
            },
            move |engine, turn, gone| engine.bury(turn, death, windows, gone),
        );
    }

    /// The device has nothing of a connection any more: its memory is free. If it may still have
    /// something (`gone` is false), a window or the QP, the memory stays where it is for ever.
    fn bury(&mut self, turn: &Turn<'_>, death: u64, windows: u32, gone: bool) {
        let Some(Dying { mut connection, memory }) = self.dying.remove(&death) else { return };
        if !gone {
            tracing::error!(
                "a connection's device objects could not be destroyed: its memory is lost"
            );
            std::mem::forget((memory, std::mem::take(&mut connection.transfers)));
            return;
        }
        self.windows_made -= windows;
        drop((memory, in_order(&mut connection.transfers)));
        while let Some(holds) = connection.send_queue.pop_any() {
            if let Holds::Send(id) = holds
                && let Some(buffer) = self.slab.reclaim(id)
            {
                self.slab.free(buffer);
            }
        }
        if let Some(behind) = connection.behind_binds.take()
            && let Some(buffer) = self.slab.reclaim(behind.slot)
        {
            self.slab.free(buffer);
        }
        self.take_receives_back(connection.receives);
        self.feed_starved();
        tracing::debug!(
            slot = connection.key.slot,
            core = turn.shared.index,
            "connection destroyed"
        );
    }

    /// The device, or a queue that every connection uses, is lost: so are the connections, and the
    /// engine takes no others.
    pub(super) fn fail(&mut self, turn: &Turn<'_>, why: &str) {
        if self.failed {
            return;
        }
        self.failed = true;
        self.control.failed.store(true, Ordering::Relaxed);
        tracing::error!(core = turn.shared.index, "a device's engine has failed: {why}");
        for slot in self.connections.in_use() {
            self.lose(turn, slot, Loss::Device(why.to_owned()));
        }
    }

    /// Asynchronous events of a device that only this engine uses.
    pub(super) fn poll_async(&mut self, turn: &Turn<'_>) {
        while let Some(event) = self.control.device.poll_async() {
            self.on_async_event(turn, event);
        }
    }

    /// Something happened to the device, or to one of its objects, which may be another engine's.
    pub(crate) fn on_async_event(&mut self, turn: &Turn<'_>, event: AsyncEvent) {
        match event {
            AsyncEvent::QpFatal(qp)
            | AsyncEvent::QpRequestError(qp)
            | AsyncEvent::QpAccessError(qp) => {
                if let Some(slot) = self.by_qp.get(&qp.0).copied() {
                    self.lose(turn, slot, Loss::Device(format!("{event:?}")));
                }
            }
            AsyncEvent::LastWqeReached(qp) => {
                let slot = self.by_qp.get(&qp.0).copied();
                if let Some(connection) = slot.and_then(|slot| self.connections.at(slot)) {
                    connection.last_wqe = true;
                    let slot = connection.key.slot;
                    self.mark_dirty(slot);
                }
            }
            // Whose queue it is, the event does not say; the core that polls it is told there.
            AsyncEvent::CqError => {}
            AsyncEvent::DeviceFatal | AsyncEvent::SrqError => {
                self.fail(turn, &format!("{event:?}"));
            }
            other => tracing::debug!(event = ?other, "device event"),
        }
    }
}
