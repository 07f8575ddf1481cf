use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, btree_map};
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::ops::Bound;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::task::{Context, Poll};

use rpc_core::bytes::Bytes;

use super::{Change, Listed, Page, Range, Refused, Usage, Versioned, Write, Written};
use super::{cost, load, random_id};
use crate::failure::Failure;
use crate::limits::COPY_SLICE;

/// Maps behind locks of their own, so that cores seldom meet at one: more of them than a server is
/// usually given cores.
const SHARDS: usize = 32;

type Map = BTreeMap<Bytes, Versioned>;

/// Values under keys, in memory, within a bound.
///
/// Keys and values are heap memory: a `Bytes` as received lies in payload memory, and a store that
/// kept those would eat the budget that calls need. Locks are held for look-ups and exchanges of
/// pointers, never while bytes are copied or freed. Who needs several takes them in order.
pub(crate) struct Memory {
    shards: [RwLock<Map>; SHARDS],
    hasher: RandomState,
    id: Bytes,
    bytes_max: u64,
    /// What counts against `bytes_max`.
    bytes: AtomicU64,
    keys: AtomicU64,
    value_bytes: AtomicU64,
    /// The last version given. Taken under the locks of the keys that get it, so theirs only grow.
    version: AtomicU64,
    writes: AtomicU64,
}

/// Room for some entries, taken before their values are copied; given back unless they are stored.
struct Room<'a> {
    store: &'a Memory,
    bytes: u64,
}

impl Memory {
    /// An empty store of at most `bytes_max` bytes.
    pub(crate) fn new(bytes_max: u64) -> Result<Self, Failure> {
        Ok(Self {
            shards: std::array::from_fn(|_| RwLock::default()),
            hasher: RandomState::new(),
            id: random_id()?,
            bytes_max,
            bytes: AtomicU64::new(0),
            keys: AtomicU64::new(0),
            value_bytes: AtomicU64::new(0),
            version: AtomicU64::new(0),
            writes: AtomicU64::new(0),
        })
    }

    /// The value under a key.
    pub(crate) fn get(&self, key: &[u8]) -> Option<Versioned> {
        self.read(self.shard(key)).get(key).cloned()
    }

    /// As [`super::Store::get_many`].
    pub(crate) fn get_many(&self, keys: &[Bytes], bytes_max: usize) -> Vec<Option<Versioned>> {
        let mut bytes = 0;
        let mut values = Vec::with_capacity(keys.len());
        let guards = self.shards_of(keys.iter()).into_iter().map(|shard| (shard, self.read(shard)));
        let guards: Vec<(usize, RwLockReadGuard<'_, Map>)> = guards.collect();
        for key in keys {
            let shard = self.shard(key);
            let guard = guards.iter().find(|(index, _)| *index == shard);
            let value = guard.and_then(|(_, map)| map.get(key)).cloned();
            if let Some(found) = &value {
                bytes += found.value.len();
                if bytes > bytes_max && !values.is_empty() {
                    break;
                }
            }
            values.push(value);
        }
        values
    }

    /// As [`super::Store::write`].
    pub(crate) async fn write(&self, writes: Vec<Write>) -> Result<Written, Refused> {
        let room = self.room(&writes)?;
        let mut copies = Vec::with_capacity(writes.len());
        for Write { key, expected, change } in writes {
            let change = match change {
                Change::Put(value) => Change::Put(copy_out(value).await),
                Change::Delete => Change::Delete,
            };
            copies.push(Write { key: rpc_core::detach(key), expected, change });
        }
        let mut before = Vec::with_capacity(copies.len());
        let written = self.apply(copies, room, &mut before)?;
        drop(before); // values that were replaced are freed here, where no lock is held
        Ok(written)
    }

    fn apply(
        &self,
        writes: Vec<Write>,
        mut room: Room<'_>,
        before: &mut Vec<Versioned>,
    ) -> Result<Written, Refused> {
        let shards = self.shards_of(writes.iter().map(|write| &write.key));
        let mut guards: Vec<(usize, RwLockWriteGuard<'_, Map>)> =
            shards.into_iter().map(|shard| (shard, self.write_shard(shard))).collect();
        let place = |key: &[u8]| {
            let shard = self.shard(key);
            guards.iter().position(|(index, _)| *index == shard)
        };
        let places: Vec<usize> =
            writes.iter().map(|write| place(&write.key).unwrap_or_default()).collect();
        for (index, (write, place)) in writes.iter().zip(&places).enumerate() {
            let Some(expected) = write.expected else { continue };
            let current = guards[*place].1.get(&write.key).map_or(0, |found| found.version);
            if current != expected {
                return Err(Refused::Mismatch { index, expected, current });
            }
        }
        let version = self.version.fetch_add(1, Ordering::Relaxed) + 1;
        let mut written = Written { version, existed: 0 };
        self.writes.fetch_add(writes.len() as u64, Ordering::Relaxed);
        for (Write { key, change, .. }, place) in writes.into_iter().zip(places) {
            let (key_len, map) = (key.len(), &mut guards[place].1);
            let replaced = match change {
                Change::Put(value) => {
                    room.bytes = room.bytes.saturating_sub(cost(key_len, value.len() as u64));
                    self.value_bytes.fetch_add(value.len() as u64, Ordering::Relaxed);
                    self.keys.fetch_add(1, Ordering::Relaxed);
                    map.insert(key, Versioned { version, value })
                }
                Change::Delete => map.remove(&key),
            };
            if let Some(replaced) = replaced {
                let value_len = replaced.value.len() as u64;
                self.keys.fetch_sub(1, Ordering::Relaxed);
                self.value_bytes.fetch_sub(value_len, Ordering::Relaxed);
                self.bytes.fetch_sub(cost(key_len, value_len), Ordering::Relaxed);
                written.existed += 1;
                before.push(replaced);
            }
        }
        Ok(written)
    }

    /// As [`super::Store::list`]. A page is as the store is at one moment.
    pub(crate) fn list(&self, range: &Range) -> Page {
        let guards: Vec<_> = (0..SHARDS).map(|shard| self.read(shard)).collect();
        let bounds = (range.begin(), Bound::Unbounded);
        let mut shards: Vec<_> = guards.iter().map(|map| map.range::<[u8], _>(bounds)).collect();
        let next = |shard: usize, of: &mut btree_map::Range<'_, Bytes, Versioned>| {
            let (key, found) = of.next().filter(|(key, _)| key.starts_with(&range.prefix))?;
            Some(Reverse((key.clone(), shard, found.version, found.value.len() as u64)))
        };
        let heads = shards.iter_mut().enumerate();
        let mut heads: BinaryHeap<_> = heads.filter_map(|(shard, of)| next(shard, of)).collect();
        let mut page = Page::default();
        let mut bytes = 0;
        while let Some(Reverse((key, shard, version, value_len))) = heads.pop() {
            if !range.has_room(&page, bytes) {
                page.more = true;
                break;
            }
            bytes += key.len();
            page.entries.push(Listed { key, version, value_len });
            heads.extend(next(shard, &mut shards[shard]));
        }
        page
    }

    /// What it holds now.
    pub(crate) fn usage(&self) -> Usage {
        Usage {
            keys: load(&self.keys),
            value_bytes: load(&self.value_bytes),
            id: self.id.clone(),
            writes: load(&self.writes),
            ..Usage::default()
        }
    }

    /// Takes room for what some writes store. Replacing a value needs room for both while it happens.
    fn room(&self, writes: &[Write]) -> Result<Room<'_>, Refused> {
        let cost_of = |write: &Write| match &write.change {
            Change::Put(value) => cost(write.key.len(), value.len() as u64),
            Change::Delete => 0,
        };
        let bytes = writes.iter().map(cost_of).fold(0, u64::saturating_add);
        let take = |used: u64| used.checked_add(bytes).filter(|used| *used <= self.bytes_max);
        match self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
            Err(_) if bytes > 0 => Err(Refused::Full { bytes_max: self.bytes_max }),
            _ => Ok(Room { store: self, bytes }),
        }
    }

    fn shard(&self, key: &[u8]) -> usize {
        self.hasher.hash_one(key) as usize % SHARDS
    }

    /// The shards of some keys, each once, in order.
    fn shards_of<'k>(&self, keys: impl Iterator<Item = &'k Bytes>) -> Vec<usize> {
        let mut shards: Vec<usize> = keys.map(|key| self.shard(key)).collect();
        shards.sort_unstable();
        shards.dedup();
        shards
    }

    fn read(&self, shard: usize) -> RwLockReadGuard<'_, Map> {
        self.shards[shard].read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_shard(&self, shard: usize) -> RwLockWriteGuard<'_, Map> {
        self.shards[shard].write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.store.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A copy of a value in heap memory, so that a stored value pins no payload memory.
///
/// `rpc_core::detach` copies in one go, which for 64 MiB would keep this core from its other calls for
/// tens of milliseconds; so longer values are copied in slices, and between two slices the core turns.
async fn copy_out(value: Bytes) -> Bytes {
    if value.len() <= COPY_SLICE {
        return rpc_core::detach(value);
    }
    let mut copy = Vec::with_capacity(value.len());
    for slice in value.chunks(COPY_SLICE) {
        copy.extend_from_slice(slice);
        YieldOnce::default().await;
    }
    copy.into()
}

/// Pending once, and ready when it is polled again: lets whatever else is ready run.
#[derive(Default)]
struct YieldOnce(bool);

impl Future for YieldOnce {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.0, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    fn put(store: &Memory, key: &'static [u8], value: &'static [u8]) -> Result<Written, Refused> {
        let change = Change::Put(Bytes::from_static(value));
        let write = Write { key: Bytes::from_static(key), expected: None, change };
        rpc_core::block_on(store.write(vec![write]))
    }

    fn delete(store: &Memory, key: &'static [u8]) -> u64 {
        let write = Write { key: Bytes::from_static(key), expected: None, change: Change::Delete };
        rpc_core::block_on(store.write(vec![write])).unwrap().existed
    }

    #[test]
    fn what_is_freed_counts_no_longer() {
        let store = Memory::new(1 << 20).unwrap();
        put(&store, b"a", b"one").unwrap();
        put(&store, b"a", b"three").unwrap();
        assert_eq!(load(&store.bytes), cost(1, 5));
        assert_eq!((store.usage().keys, store.usage().value_bytes), (1, 5));
        assert_eq!(delete(&store, b"a"), 1);
        assert_eq!(delete(&store, b"a"), 0);
        assert_eq!((store.usage().keys, store.usage().value_bytes), (0, 0));
        assert_eq!(load(&store.bytes), 0);
    }

    #[test]
    fn a_full_store_refuses_and_room_not_used_comes_back() {
        let full = Refused::Full { bytes_max: cost(1, 4) };
        let store = Memory::new(cost(1, 4)).unwrap();
        put(&store, b"a", b"full").unwrap();
        assert_eq!(put(&store, b"a", b"full"), Err(full));
        assert_eq!(delete(&store, b"a"), 1);
        put(&store, b"b", b"full").unwrap();
        delete(&store, b"b");
        let change = Change::Put(Bytes::from_static(b"full"));
        let write = Write { key: Bytes::from_static(b"c"), expected: Some(7), change };
        let refused = rpc_core::block_on(store.write(vec![write]));
        assert_eq!(refused, Err(Refused::Mismatch { index: 0, expected: 7, current: 0 }));
        assert_eq!(load(&store.bytes), 0);
    }

    #[test]
    fn a_long_value_is_copied_whole_and_in_slices() {
        let value: Bytes =
            (0..3 * COPY_SLICE + 1).map(|i| (i % 251) as u8).collect::<Vec<_>>().into();
        let mut copying = Box::pin(copy_out(value.clone()));
        let mut context = Context::from_waker(Waker::noop());
        let mut pending = 0;
        let copy = loop {
            match copying.as_mut().poll(&mut context) {
                Poll::Ready(copy) => break copy,
                Poll::Pending => pending += 1,
            }
        };
        assert_eq!(pending, 4);
        assert_eq!(copy, value);
        assert_ne!(copy.as_ptr(), value.as_ptr());
    }
}
