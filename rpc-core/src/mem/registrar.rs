use std::fmt;

use super::eager::{ChunkId, EagerSlab};
use super::pool::Pool;
use super::range::ArenaId;
use crate::verbs::{Access, Device, Lkey, Mr, VerbsError};

/// Which memory one device knows: registers arenas and eager chunks when they are first used.
///
/// Regions are kept until the registrar is dropped, which must be after the last QP and queue that
/// use them. It keeps the pool alive.
pub struct Registrar<D: Device> {
    device: D,
    pd: D::Pd,
    pool: Pool,
    payload_access: Access,
    /// By arena.
    arenas: Vec<Option<D::Mr>>,
    /// By chunk of the engine's one slab.
    chunks: Vec<Option<D::Mr>>,
}

impl<D: Device> Registrar<D> {
    /// A registrar for `device`, whose objects are in `pd`.
    ///
    /// Payload memory is opened to windows only, and carries no remote access itself. A device
    /// without windows can do no better than REMOTE_READ: whoever learns such a key can read every
    /// payload of that arena, whatever message it belongs to.
    pub fn new(device: D, pd: D::Pd, pool: Pool) -> Self {
        let payload_access = payload_access(device.limits().windows);
        Self { device, pd, pool, payload_access, arenas: Vec::new(), chunks: Vec::new() }
    }

    /// The region of an arena. Registers it the first time, which may block.
    pub fn mr(&mut self, arena: ArenaId) -> Result<&D::Mr, VerbsError> {
        let cell = cell(&mut self.arenas, arena.index());
        let mr = match cell.take() {
            Some(mr) => mr,
            None => self.device.register(&self.pd, self.pool.region(arena), self.payload_access)?,
        };
        Ok(cell.insert(mr))
    }

    /// The region of an arena, if it is registered already.
    pub fn registered(&self, arena: ArenaId) -> Option<&D::Mr> {
        self.arenas.get(arena.index())?.as_ref()
    }

    /// The local key of an arena. Registers it the first time, which may block.
    pub fn lkey(&mut self, arena: ArenaId) -> Result<Lkey, VerbsError> {
        self.mr(arena).map(Mr::lkey)
    }

    /// The local key of a chunk of `slab`, which must be the same slab at every call. Registers it
    /// the first time, with no remote access, which may block.
    pub fn eager_lkey(&mut self, slab: &EagerSlab, chunk: ChunkId) -> Result<Lkey, VerbsError> {
        let cell = cell(&mut self.chunks, chunk.index());
        let mr = match cell.take() {
            Some(mr) => mr,
            None => self.device.register(&self.pd, slab.region(chunk), Access::LOCAL_WRITE)?,
        };
        Ok(cell.insert(mr).lkey())
    }

    /// Regions registered.
    pub fn regions(&self) -> usize {
        self.arenas.iter().chain(&self.chunks).flatten().count()
    }
}

/// What payload memory allows on a device with or without windows: see [`Registrar::new`].
const fn payload_access(windows: bool) -> Access {
    Access::LOCAL_WRITE.and(if windows { Access::MW_BIND } else { Access::REMOTE_READ })
}

/// The cell of `index`, in a table that grows to hold it.
fn cell<T>(table: &mut Vec<Option<T>>, index: usize) -> &mut Option<T> {
    if table.len() <= index {
        table.resize_with(index + 1, || None);
    }
    &mut table[index]
}

impl<D: Device> fmt::Debug for Registrar<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Registrar({} regions of {})", self.regions(), self.device.name())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::Time;
    use crate::mem::{EagerConfig, PoolConfig, Share, Use};
    use crate::verbs::soft::{SoftConfig, SoftDevice};

    #[test]
    fn payload_memory_is_open_to_windows_only_where_there_are_windows() {
        assert!(!payload_access(true).has(Access::REMOTE_READ));
        assert!(payload_access(true).has(Access::MW_BIND));
        assert!(payload_access(false).has(Access::REMOTE_READ));
    }

    #[test]
    #[cfg_attr(miri, ignore = "opens a device")]
    fn memory_is_registered_once_and_when_it_is_first_used() {
        let config = SoftConfig::new(Arc::new(|| Time::ZERO)).seed(1);
        let device = SoftDevice::open(config).unwrap();
        let pd = device.alloc_pd().unwrap();
        let pool = Pool::new(PoolConfig::new(64 << 20)).unwrap();
        let mut registrar = Registrar::new(device.clone(), pd, pool.clone());
        assert_eq!(device.usage().mrs, 0);

        let take = |len| pool.alloc(Share::Outbound, Use::Request, len).unwrap();
        let (small, large) = (take(4096), take(8 << 20));
        assert!(registrar.registered(small.arena()).is_none());
        let key = registrar.lkey(small.arena()).unwrap();
        assert_eq!(registrar.lkey(small.arena()).unwrap(), key);
        assert_ne!(registrar.lkey(large.arena()).unwrap(), key);
        assert_eq!((device.usage().mrs, device.usage().mr_bytes), (2, 10 << 20));

        let config = EagerConfig { slot_bytes: 9216, chunk_slots: 16, slots_max: 32 };
        let slab = EagerSlab::new(config).unwrap();
        for chunk in slab.chunks() {
            let key = registrar.eager_lkey(&slab, chunk).unwrap();
            assert_eq!(registrar.eager_lkey(&slab, chunk).unwrap(), key);
        }
        assert_eq!((device.usage().mrs, registrar.regions()), (3, 3));
        drop(registrar);
        assert_eq!(device.usage().mrs, 0);
    }
}
