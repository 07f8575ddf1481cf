use std::fmt;
use std::sync::Arc;

use super::lock;
use super::pool::Pool;
use super::range::ArenaId;
use crate::sync::Mutex;
use crate::verbs::{Access, Device, Region, VerbsError};

/// The payload memory that one device knows, for all engines on it: an arena is registered once,
/// when the first of them uses it.
///
/// Regions are kept until this is dropped, which must be after the last QP and queue that use them.
/// It keeps the pool alive.
pub struct Regions<D: Device> {
    device: D,
    pd: D::Pd,
    pool: Pool,
    payload_access: Access,
    /// By arena. Held only to look or to put, never while a region is being registered.
    arenas: Mutex<Vec<Option<Arc<D::Mr>>>>,
}

impl<D: Device> Regions<D> {
    /// For `device`, whose objects are in `pd`.
    ///
    /// Payload memory is opened to windows only, and carries no remote access itself. A device
    /// without windows can do no better than REMOTE_READ: whoever learns such a key can read every
    /// payload of that arena, whatever message it belongs to.
    pub fn new(device: D, pd: D::Pd, pool: Pool) -> Self {
        let payload_access = payload_access(device.limits().windows);
        Self { device, pd, pool, payload_access, arenas: Mutex::default() }
    }

    /// The region of an arena, if it is registered. Never blocks for longer than a table lookup.
    pub fn known(&self, arena: ArenaId) -> Option<Arc<D::Mr>> {
        lock(&self.arenas).get(arena.index())?.clone()
    }

    /// The region of an arena. Registers it the first time, which may block while pages are pinned.
    ///
    /// # Errors
    /// The device's, above all that the process may not lock that much memory.
    pub fn register(&self, arena: ArenaId) -> Result<Arc<D::Mr>, VerbsError> {
        if let Some(region) = self.known(arena) {
            return Ok(region);
        }
        let region = self.pool.region(arena);
        let region = Arc::new(self.device.register(&self.pd, region, self.payload_access)?);
        let mut arenas = lock(&self.arenas);
        if arenas.len() <= arena.index() {
            arenas.resize_with(arena.index() + 1, || None);
        }
        // Another thread may have been faster; its region stays, and this one goes.
        Ok(Arc::clone(arenas[arena.index()].get_or_insert(region)))
    }

    /// Registers a chunk of eager buffers, with no remote access. May block.
    ///
    /// # Errors
    /// As [`register`](Self::register).
    pub fn register_chunk(&self, chunk: Region) -> Result<D::Mr, VerbsError> {
        self.device.register(&self.pd, chunk, Access::LOCAL_WRITE)
    }

    /// Arenas registered.
    pub fn len(&self) -> usize {
        lock(&self.arenas).iter().flatten().count()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What payload memory allows on a device with or without windows: see [`Regions::new`].
const fn payload_access(windows: bool) -> Access {
    Access::LOCAL_WRITE.and(if windows { Access::MW_BIND } else { Access::REMOTE_READ })
}

impl<D: Device> fmt::Debug for Regions<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Regions({} arenas on {})", self.len(), self.device.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_memory_is_open_to_windows_only_where_there_are_windows() {
        assert!(!payload_access(true).has(Access::REMOTE_READ));
        assert!(payload_access(true).has(Access::MW_BIND));
        assert!(payload_access(false).has(Access::REMOTE_READ));
    }
}
