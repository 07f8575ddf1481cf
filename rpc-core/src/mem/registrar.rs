use std::fmt;
use std::sync::Arc;

use super::eager::{ChunkId, EagerSlab};
use super::range::ArenaId;
use super::regions::Regions;
use crate::verbs::{Device, Lkey, Mr, VerbsError};

/// Which memory one engine uses: the device's payload regions, looked up without a lock once they
/// have been met, and the chunks of the engine's own eager slab.
pub struct Registrar<D: Device> {
    regions: Arc<Regions<D>>,
    /// By arena: those met so far.
    arenas: Vec<Option<Arc<D::Mr>>>,
    /// By chunk of the engine's one slab.
    chunks: Vec<Option<D::Mr>>,
}

impl<D: Device> Registrar<D> {
    /// A registrar over a device's regions.
    pub fn new(regions: Arc<Regions<D>>) -> Self {
        Self { regions, arenas: Vec::new(), chunks: Vec::new() }
    }

    /// The device's regions.
    pub fn regions(&self) -> &Arc<Regions<D>> {
        &self.regions
    }

    /// The region of an arena. Registers it the first time, which may block.
    ///
    /// # Errors
    /// As [`Regions::register`].
    pub fn mr(&mut self, arena: ArenaId) -> Result<&D::Mr, VerbsError> {
        let cell = cell(&mut self.arenas, arena.index());
        let mr = match cell.take() {
            Some(mr) => mr,
            None => self.regions.register(arena)?,
        };
        Ok(cell.insert(mr))
    }

    /// The region of an arena, if it is registered already.
    pub fn registered(&mut self, arena: ArenaId) -> Option<&D::Mr> {
        let cell = cell(&mut self.arenas, arena.index());
        if cell.is_none() {
            *cell = self.regions.known(arena);
        }
        cell.as_deref()
    }

    /// The local key of an arena. Registers it the first time, which may block.
    ///
    /// # Errors
    /// As [`Regions::register`].
    pub fn lkey(&mut self, arena: ArenaId) -> Result<Lkey, VerbsError> {
        self.mr(arena).map(Mr::lkey)
    }

    /// The local key of a chunk of `slab`, which must be the same slab at every call. Registers it
    /// the first time, with no remote access, which may block.
    ///
    /// # Errors
    /// As [`Regions::register`].
    pub fn eager_lkey(&mut self, slab: &EagerSlab, chunk: ChunkId) -> Result<Lkey, VerbsError> {
        let cell = cell(&mut self.chunks, chunk.index());
        if let Some(mr) = cell {
            return Ok(mr.lkey());
        }
        Ok(cell.insert(self.regions.register_chunk(slab.region(chunk))?).lkey())
    }

    /// Notes the region of a chunk that was registered elsewhere.
    pub fn add_chunk(&mut self, chunk: ChunkId, region: D::Mr) {
        *cell(&mut self.chunks, chunk.index()) = Some(region);
    }
}

fn cell<T>(table: &mut Vec<Option<T>>, index: usize) -> &mut Option<T> {
    if table.len() <= index {
        table.resize_with(index + 1, || None);
    }
    &mut table[index]
}

impl<D: Device> fmt::Debug for Registrar<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let chunks = self.chunks.iter().flatten().count();
        write!(f, "Registrar({chunks} eager chunks, {:?})", self.regions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Time;
    use crate::mem::{EagerConfig, Pool, PoolConfig, Share, Use};
    use crate::verbs::soft::{SoftConfig, SoftDevice};

    #[test]
    #[cfg_attr(miri, ignore = "opens a device")]
    fn memory_is_registered_once_for_all_engines_and_when_it_is_first_used() {
        let config = SoftConfig::new(Arc::new(|| Time::ZERO)).seed(1);
        let device = SoftDevice::open(config).unwrap();
        let pd = device.alloc_pd().unwrap();
        let pool = Pool::new(PoolConfig::new(64 << 20)).unwrap();
        let regions = Arc::new(Regions::new(device.clone(), pd, pool.clone()));
        let mut registrar = Registrar::new(Arc::clone(&regions));
        let mut other = Registrar::new(regions);
        assert_eq!(device.usage().mrs, 0);

        let take = |len| pool.alloc(Share::Outbound, Use::Request, len).unwrap();
        let (small, large) = (take(4096), take(8 << 20));
        assert!(registrar.registered(small.arena()).is_none());
        let key = registrar.lkey(small.arena()).unwrap();
        assert_eq!(registrar.lkey(small.arena()).unwrap(), key);
        assert_eq!(other.registered(small.arena()).map(Mr::lkey), Some(key));
        assert_ne!(other.lkey(large.arena()).unwrap(), key);
        assert!(registrar.registered(large.arena()).is_some());
        assert_eq!((device.usage().mrs, device.usage().mr_bytes), (2, 10 << 20));

        let config = EagerConfig { slot_bytes: 9216, chunk_slots: 16, slots_max: 32 };
        let slab = EagerSlab::new(config).unwrap();
        for chunk in slab.chunks() {
            let key = registrar.eager_lkey(&slab, chunk).unwrap();
            assert_eq!(registrar.eager_lkey(&slab, chunk).unwrap(), key);
        }
        assert_eq!((device.usage().mrs, registrar.regions().len()), (3, 2));
        drop((registrar, other));
        assert_eq!(device.usage().mrs, 0);
    }
}
