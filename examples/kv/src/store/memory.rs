use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use rpc_core::bytes::Bytes;

use super::turn::Turn;
use super::{Change, Listed, Page, Range, Refused, Usage, Versioned, Write, Written};
use super::{cost, load, random_id};
use crate::failure::Failure;
use crate::limits::ENTRY_BYTES;

/// Maps behind locks of their own, so that cores seldom meet at one: more of them than a server is
/// usually given cores.
const SHARDS: usize = 32;

/// Keys of a page that are looked up under one lock: some microseconds.
const LIST_STEP: usize = 64;

/// What a key of a page counts as in a [`Turn`], whose measure is bytes copied: some 200 ns.
const LISTED_WORK: usize = 1 << 10;

type Map = BTreeMap<Bytes, Versioned>;

/// Values under keys, in memory, within a bound.
///
/// Keys and values are heap memory: a `Bytes` as received lies in payload memory, and a store that
/// kept those would eat the budget that calls need. Locks are held for look-ups and exchanges of
/// pointers, never while values are copied or freed. Who needs several takes them in order.
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
    pub(crate) async fn get_many(
        &self,
        keys: &[Bytes],
        bytes_max: usize,
    ) -> Vec<Option<Versioned>> {
        let mut turn = Turn::default();
        let mut shards = Vec::with_capacity(keys.len());
        for key in keys {
            shards.push(self.shard(key));
            turn.spend(key.len()).await;
        }
        self.get_at_once(keys, &shards, bytes_max)
    }

    /// Looks keys up whose shards are known, at one moment.
    fn get_at_once(
        &self,
        keys: &[Bytes],
        shards: &[usize],
        bytes_max: usize,
    ) -> Vec<Option<Versioned>> {
        let mut bytes = 0;
        let mut values = Vec::with_capacity(keys.len());
        let guards = in_order(shards).into_iter().map(|shard| (shard, self.read(shard)));
        let guards: Vec<(usize, RwLockReadGuard<'_, Map>)> = guards.collect();
        for (key, shard) in keys.iter().zip(shards) {
            let guard = guards.iter().find(|(index, _)| index == shard);
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
        let mut shards = Vec::with_capacity(writes.len());
        let mut turn = Turn::default();
        for Write { key, expected, change } in writes {
            let change = match change {
                Change::Put(value) => Change::Put(turn.copy_out(value).await),
                Change::Delete => Change::Delete,
            };
            shards.push(self.shard(&key));
            turn.spend(key.len() + ENTRY_BYTES as usize).await;
            copies.push(Write { key: rpc_core::detach(key), expected, change });
        }
        let mut before = Vec::with_capacity(copies.len());
        let written = self.apply(copies, &shards, room, &mut before)?;
        drop(before); // values that were replaced are freed here, where no lock is held
        Ok(written)
    }

    fn apply(
        &self,
        writes: Vec<Write>,
        shards: &[usize],
        mut room: Room<'_>,
        before: &mut Vec<Versioned>,
    ) -> Result<Written, Refused> {
        let mut guards: Vec<(usize, RwLockWriteGuard<'_, Map>)> =
            in_order(shards).into_iter().map(|shard| (shard, self.write_shard(shard))).collect();
        let place = |shard: &usize| guards.iter().position(|(index, _)| index == shard);
        let places: Vec<usize> =
            shards.iter().map(|shard| place(shard).unwrap_or_default()).collect();
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

    /// As [`super::Store::list`]. A key that is there all the while is in the page; one that is written
    /// meanwhile may be.
    ///
    /// One lock is held at a time, for some keys: who writes must not wait for a long page.
    pub(crate) async fn list(&self, range: &Range) -> Page {
        let step = (range.keys_max / SHARDS + 1).min(LIST_STEP);
        let mut turn = Turn::default();
        let mut ahead = Vec::with_capacity(SHARDS);
        for shard in 0..SHARDS {
            ahead.push(self.step(shard, range, range.begin(), step));
            turn.spend(step * LISTED_WORK).await;
        }
        let mut heads: BinaryHeap<Reverse<(Bytes, usize)>> = BinaryHeap::with_capacity(SHARDS);
        heads.extend(ahead.iter().enumerate().filter_map(head));
        let mut page = Page::default();
        let mut bytes = 0;
        while let Some(Reverse((key, shard))) = heads.pop() {
            if !range.has_room(&page, bytes) {
                page.more = true;
                break;
            }
            bytes += key.len();
            let listed = &mut ahead[shard];
            page.entries.extend(listed.pop_front());
            if listed.is_empty() {
                *listed = self.step(shard, range, Bound::Excluded(&key), step);
                turn.spend(step * LISTED_WORK).await;
            }
            heads.extend(head((shard, &ahead[shard])));
        }
        page
    }

    /// The next keys of one shard.
    fn step(
        &self,
        shard: usize,
        range: &Range,
        begin: Bound<&[u8]>,
        keys_max: usize,
    ) -> VecDeque<Listed> {
        let map = self.read(shard);
        let found = map.range::<[u8], _>((begin, Bound::Unbounded));
        let found = found.take_while(|(key, _)| key.starts_with(&range.prefix)).take(keys_max);
        let listed = |(key, found): (&Bytes, &Versioned)| Listed {
            key: key.clone(),
            version: found.version,
            value_len: found.value.len() as u64,
        };
        found.map(listed).collect()
    }

    /// What it holds now.
    pub(crate) fn usage(&self) -> Usage {
        Usage {
            keys: load(&self.keys),
            value_bytes: load(&self.value_bytes),
            id: self.id.clone(),
            writes: load(&self.writes),
            version: load(&self.version),
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

    fn read(&self, shard: usize) -> RwLockReadGuard<'_, Map> {
        self.shards[shard].read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_shard(&self, shard: usize) -> RwLockWriteGuard<'_, Map> {
        self.shards[shard].write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Each shard once, in the order in which their locks are taken.
fn in_order(shards: &[usize]) -> Vec<usize> {
    let mut shards = shards.to_vec();
    shards.sort_unstable();
    shards.dedup();
    shards
}

/// The first key of what a shard has ready.
fn head((shard, listed): (usize, &VecDeque<Listed>)) -> Option<Reverse<(Bytes, usize)>> {
    Some(Reverse((listed.front()?.key.clone(), shard)))
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.store.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::task::{Context, Poll, Waker};

    use super::*;
    use crate::limits::COPY_SLICE;
    use crate::store::turn::turns;

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
    fn a_batch_lets_its_core_turn_between_values_that_are_short_each() {
        let store = Memory::new(u64::MAX).unwrap();
        let value = Bytes::from(vec![7; COPY_SLICE / 4]);
        let write = |i: u32| Write {
            key: Bytes::copy_from_slice(&i.to_le_bytes()),
            expected: None,
            change: Change::Put(value.clone()),
        };
        let (written, writing) = turns(store.write((0..64).map(write).collect()));
        assert_eq!(written.unwrap().existed, 0);
        assert!(writing >= 16, "{writing}");
        let keys = |count: usize| vec![Bytes::from(vec![1; COPY_SLICE / 8]); count];
        let (found, reading) = turns(store.get_many(&keys(64), usize::MAX));
        assert_eq!(found.len(), 64);
        assert!(reading >= 8, "{reading}");
    }

    #[test]
    fn a_long_list_lets_its_core_turn_and_holds_no_lock_meanwhile() {
        let store = Memory::new(u64::MAX).unwrap();
        let key = |i: u32| Bytes::copy_from_slice(&i.to_be_bytes());
        let write =
            |i: u32| Write { key: key(i), expected: None, change: Change::Put(Bytes::new()) };
        for batch in 0..10 {
            let writes = (batch * 1000..batch * 1000 + 1000).map(write).collect();
            rpc_core::block_on(store.write(writes)).unwrap();
        }
        let range =
            Range { prefix: Bytes::new(), after: None, keys_max: 10_000, bytes_max: 1 << 20 };
        let mut listing = Box::pin(store.list(&range));
        let mut context = Context::from_waker(Waker::noop());
        let mut turns = 0;
        let page = loop {
            match listing.as_mut().poll(&mut context) {
                Poll::Ready(page) => break page,
                Poll::Pending => turns += 1,
            }
            assert!(store.shards.iter().all(|shard| shard.try_write().is_ok()));
        };
        assert!(turns >= 10, "{turns}");
        let keys: Vec<Bytes> = page.entries.into_iter().map(|listed| listed.key).collect();
        assert!(keys == (0..10_000).map(key).collect::<Vec<_>>());
        assert!(!page.more);
    }
}
