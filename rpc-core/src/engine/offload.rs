//! What may block is done elsewhere.
//!
//! Registering memory, allocating windows, moving a QP to ERR and destroying it are system calls of
//! a kernel's device: milliseconds at times. They run on the control thread, in the order in which a
//! core asks; what comes of them returns to the engine as a job of its core. A software device does
//! all this at once, so there the same code runs in place.

use std::sync::Arc;
use std::time::Duration;

use super::capacity::{EAGER_LOW_SLOTS, WINDOWS_AHEAD, WINDOWS_MAX, WINDOWS_STEP};
use super::drive::Turn;
use super::engine::{Engine, EngineError};
use super::shared::CoreShared;
use crate::Time;
use crate::cm::Control;
use crate::mem::{ArenaId, EagerChunk};
use crate::verbs::{Device, VerbsError};

/// What the device refused is asked for again after this long: not so soon that a core and the
/// control thread do nothing else, not so late that memory which others gave back stays unused.
/// Until then messages that need an arena which could not be registered are refused.
const ASK_AGAIN: Duration = Duration::from_millis(500);

/// The way from a core to the control thread and back.
pub(crate) struct Offload {
    pub(crate) control: Control,
    pub(crate) core: Arc<CoreShared>,
}

/// What an engine has asked for and does not have yet.
#[derive(Default)]
pub(super) struct Awaited {
    windows: u32,
    /// Windows were refused: not to be asked for before this.
    windows_again: Time,
    chunk: bool,
    /// A chunk was refused: not to be asked for before this.
    chunk_again: Time,
    /// The chunk that was mapped and could not be registered.
    spare: Option<EagerChunk>,
    arenas: Vec<AwaitedArena>,
}

struct AwaitedArena {
    arena: ArenaId,
    /// `None`: being registered. Otherwise why it failed, and when to try again.
    failed: Option<(Time, Arc<str>)>,
}

/// Whether an arena can be named in a request now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// It can.
    Yes,
    /// It is being registered.
    Soon,
    /// The device refused it, with this reason.
    No(Arc<str>),
}

impl<D: Device> Engine<D> {
    /// Does `work`, which may block, and then `then` with what came of it. In place without an
    /// offload; otherwise on the control thread, and `then` in a later turn of this core. When the
    /// runtime ends first, both may be dropped instead.
    pub(super) fn off_core<T: Send + 'static>(
        &mut self,
        turn: &Turn<'_>,
        work: impl FnOnce() -> T + Send + 'static,
        then: impl FnOnce(&mut Self, &Turn<'_>, T) + Send + 'static,
    ) {
        let Some(offload) = &self.offload else {
            let done = work();
            return then(self, turn, done);
        };
        let core = Arc::clone(&offload.core);
        let index = usize::from(self.control.index);
        offload.control.run(Box::new(move || {
            let done = work();
            core.run_on_core(Box::new(move |core| {
                core.with_engine::<D>(index, |engine, turn| then(engine, turn, done));
            }));
        }));
    }

    /// Whether requests may name this arena; if not yet, it will be registered.
    pub(super) fn know_arena(&mut self, turn: &Turn<'_>, arena: ArenaId) -> Known {
        if self.offload.is_none() || self.registrar.registered(arena).is_some() {
            return Known::Yes;
        }
        if let Some(index) = self.awaited.arenas.iter().position(|one| one.arena == arena) {
            match &self.awaited.arenas[index].failed {
                None => return Known::Soon,
                Some((again, why)) if turn.now < *again => return Known::No(Arc::clone(why)),
                Some(_) => drop(self.awaited.arenas.swap_remove(index)),
            }
        }
        self.awaited.arenas.push(AwaitedArena { arena, failed: None });
        let regions = Arc::clone(self.registrar.regions());
        self.off_core(
            turn,
            move || regions.register(arena).map(drop),
            move |engine, turn, done| engine.arena_registered(turn, arena, done),
        );
        Known::Soon
    }

    fn arena_registered(&mut self, turn: &Turn<'_>, arena: ArenaId, done: Result<(), VerbsError>) {
        match done {
            Ok(()) => self.awaited.arenas.retain(|one| one.arena != arena),
            Err(error) => {
                self.counters.errors += 1;
                tracing::error!(%error, "payload memory could not be registered with the device");
                let failed = (turn.now + ASK_AGAIN, Arc::from(error.to_string()));
                if let Some(one) = self.awaited.arenas.iter_mut().find(|one| one.arena == arena) {
                    one.failed = Some(failed);
                }
            }
        }
        self.retry_all_waiting(turn);
    }

    /// Messages that waited for windows or for an arena are tried again.
    fn retry_all_waiting(&mut self, turn: &Turn<'_>) {
        for slot in self.connections.in_use() {
            if self.connections.at(slot).is_some_and(|c| !c.waiting.is_empty()) {
                self.retry_waiting(turn, slot);
                self.mark_dirty(slot);
            }
        }
    }

    /// A window for a range that is to be advertised. With an offload they are allocated ahead;
    /// otherwise when there is none.
    pub(super) fn take_window(&mut self, turn: &Turn<'_>) -> Option<D::Mw> {
        let window = self.windows.pop();
        let (low, step) = match self.offload {
            Some(_) => (self.windows.len() < WINDOWS_AHEAD as usize, WINDOWS_STEP),
            None => (window.is_none(), 1),
        };
        if low {
            self.more_windows(turn, step);
        }
        window.or_else(|| self.windows.pop())
    }

    fn more_windows(&mut self, turn: &Turn<'_>, step: u32) {
        let count = step.min(WINDOWS_MAX.saturating_sub(self.windows_made));
        if count == 0 || self.awaited.windows > 0 || turn.now < self.awaited.windows_again {
            return;
        }
        self.awaited.windows = count;
        let (device, pd) = (self.control.device.clone(), self.control.pd.clone());
        self.off_core(
            turn,
            move || -> Vec<_> { (0..count).map(|_| device.alloc_mw(&pd)).collect() },
            |engine, turn, windows| {
                engine.awaited.windows = 0;
                for window in windows {
                    match window {
                        Ok(window) => {
                            engine.windows_made += 1;
                            engine.windows.push(window);
                        }
                        Err(error) => {
                            tracing::warn!(%error, "no further memory window can be allocated");
                            engine.awaited.windows_again = turn.now + ASK_AGAIN;
                            break;
                        }
                    }
                }
                // In place, whoever asked for one takes it now.
                if engine.offload.is_some() {
                    engine.retry_all_waiting(turn);
                }
            },
        );
    }

    /// Whether eager buffers are to be asked for.
    pub(super) fn wants_buffers(&self, now: Time) -> bool {
        self.offload.is_some()
            && !self.awaited.chunk
            && now >= self.awaited.chunk_again
            && self.slab.slots_free() < EAGER_LOW_SLOTS
            && self.slab.can_grow()
    }

    /// With an offload the slab does not grow by itself: the next chunk is asked for before the last
    /// buffers are used.
    pub(super) fn keep_buffers(&mut self, turn: &Turn<'_>) {
        if !self.wants_buffers(turn.now) {
            return;
        }
        self.awaited.chunk = true;
        let (config, spare) = (self.slab.config(), self.awaited.spare.take());
        let regions = Arc::clone(self.registrar.regions());
        self.off_core(
            turn,
            move || -> Result<_, (Option<EagerChunk>, EngineError)> {
                let mapped = spare.map_or_else(|| EagerChunk::map(config), Ok);
                let chunk = mapped.map_err(|error| (None, error.into()))?;
                match regions.register_chunk(chunk.region()) {
                    Ok(region) => Ok((chunk, region)),
                    Err(error) => Err((Some(chunk), error.into())),
                }
            },
            |engine, turn, made| engine.buffers_came(turn, made),
        );
    }

    /// When connections that have no buffer to send from can be helped, if that has to be waited for.
    pub(super) fn next_buffers(&self) -> Option<Time> {
        let waits = self.offload.is_some() && !self.awaited.chunk && !self.starved.is_empty();
        (waits && self.slab.can_grow()).then_some(self.awaited.chunk_again)
    }

    /// Whether buffers have been asked for and not come.
    pub(super) fn awaits_buffers(&self) -> bool {
        self.awaited.chunk
    }

    fn buffers_came(
        &mut self,
        turn: &Turn<'_>,
        made: Result<(EagerChunk, D::Mr), (Option<EagerChunk>, EngineError)>,
    ) {
        self.awaited.chunk = false;
        match made {
            Ok((chunk, region)) => {
                if let Some(id) = self.slab.add(chunk) {
                    self.registrar.add_chunk(id, region);
                }
            }
            Err((spare, error)) => {
                self.counters.errors += 1;
                self.awaited.spare = spare;
                self.awaited.chunk_again = turn.now + ASK_AGAIN;
                tracing::error!(%error, "no further eager buffers");
            }
        }
        self.feed_starved();
        // One chunk may be too small for all that wait: the rest waits for the next.
        for (install, done) in std::mem::take(&mut self.installs) {
            self.install(turn, install, done);
        }
    }
}
