use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

use rpc_core::bytes::Bytes;

use crate::limits::ENTRY_BYTES;

/// Maps behind locks of their own, so that cores seldom meet at one: more of them than a server is
/// given cores.
const SHARDS: usize = 32;

/// Values under keys, in memory, within a bound.
///
/// Keys and values are heap memory: a `Bytes` as received lies in payload memory, and a store that
/// kept those would eat the budget that calls need. A lock is held for a look-up or an exchange of
/// pointers, never while bytes are copied or freed.
pub(crate) struct Store {
    shards: [RwLock<HashMap<Bytes, Bytes>>; SHARDS],
    hasher: RandomState,
    bytes_max: u64,
    /// Keys, values and [`ENTRY_BYTES`] each: what counts against `bytes_max`.
    bytes: AtomicU64,
    keys: AtomicU64,
    value_bytes: AtomicU64,
}

/// What a store holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Keys.
    pub(crate) keys: u64,
    /// The sum of all values' lengths.
    pub(crate) value_bytes: u64,
}

/// The store's bound would be passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full {
    /// What the store may hold in bytes, keys and values and some memory for each entry together.
    pub(crate) bytes_max: u64,
}

/// Room for one entry, taken before its value is copied; given back unless the entry is stored.
pub(crate) struct Room<'a> {
    store: &'a Store,
    bytes: u64,
}

impl Store {
    /// An empty store of at most `bytes_max` bytes.
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self {
            shards: std::array::from_fn(|_| RwLock::default()),
            hasher: RandomState::new(),
            bytes_max,
            bytes: AtomicU64::new(0),
            keys: AtomicU64::new(0),
            value_bytes: AtomicU64::new(0),
        }
    }

    /// The value under a key.
    pub(crate) fn get(&self, key: &[u8]) -> Option<Bytes> {
        let shard = self.shard(key).read().unwrap_or_else(PoisonError::into_inner);
        shard.get(key).cloned()
    }

    /// Takes room for an entry. Replacing a value needs room for both while it happens.
    pub(crate) fn room(&self, key_len: usize, value_len: usize) -> Result<Room<'_>, Full> {
        let bytes = cost(key_len, value_len);
        let take = |used: u64| used.checked_add(bytes).filter(|used| *used <= self.bytes_max);
        match self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
            Ok(_) => Ok(Room { store: self, bytes }),
            Err(_) => Err(Full { bytes_max: self.bytes_max }),
        }
    }

    /// Removes a key; true if it had a value.
    pub(crate) fn delete(&self, key: &[u8]) -> bool {
        let removed = {
            let mut shard = self.shard(key).write().unwrap_or_else(PoisonError::into_inner);
            shard.remove(key)
        };
        let Some(value) = removed else { return false };
        self.keys.fetch_sub(1, Ordering::Relaxed);
        self.forget(key.len(), value.len());
        true
    }

    /// What it holds now.
    pub(crate) fn usage(&self) -> Usage {
        Usage {
            keys: self.keys.load(Ordering::Relaxed),
            value_bytes: self.value_bytes.load(Ordering::Relaxed),
        }
    }

    fn forget(&self, key_len: usize, value_len: usize) {
        self.value_bytes.fetch_sub(value_len as u64, Ordering::Relaxed);
        self.bytes.fetch_sub(cost(key_len, value_len), Ordering::Relaxed);
    }

    fn shard(&self, key: &[u8]) -> &RwLock<HashMap<Bytes, Bytes>> {
        &self.shards[self.hasher.hash_one(key) as usize % SHARDS]
    }
}

impl Room<'_> {
    /// Stores a value of at most the length that the room was taken for; true if it replaced one.
    pub(crate) fn put(mut self, key: Bytes, value: Bytes) -> bool {
        let store = self.store;
        let key_len = key.len();
        let excess = self.bytes.saturating_sub(cost(key_len, value.len()));
        store.bytes.fetch_sub(excess, Ordering::Relaxed);
        self.bytes = 0; // the entry has it now
        store.value_bytes.fetch_add(value.len() as u64, Ordering::Relaxed);
        let before = {
            let mut shard = store.shard(&key).write().unwrap_or_else(PoisonError::into_inner);
            shard.insert(key, value)
        };
        match &before {
            Some(before) => store.forget(key_len, before.len()),
            None => _ = store.keys.fetch_add(1, Ordering::Relaxed),
        }
        before.is_some()
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.store.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

fn cost(key_len: usize, value_len: usize) -> u64 {
    (key_len as u64).saturating_add(value_len as u64).saturating_add(ENTRY_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(store: &Store, key: &'static [u8], value: &'static [u8]) -> Result<bool, Full> {
        let room = store.room(key.len(), value.len())?;
        Ok(room.put(Bytes::from_static(key), Bytes::from_static(value)))
    }

    #[test]
    fn a_value_is_replaced_read_and_removed() {
        let store = Store::new(1 << 20);
        assert_eq!(store.get(b"a"), None);
        assert_eq!(put(&store, b"a", b"one"), Ok(false));
        assert_eq!(put(&store, b"a", b"three"), Ok(true));
        assert_eq!(store.get(b"a").as_deref(), Some(&b"three"[..]));
        assert_eq!(store.usage(), Usage { keys: 1, value_bytes: 5 });
        assert!(store.delete(b"a"));
        assert!(!store.delete(b"a"));
        assert_eq!(store.usage(), Usage::default());
        assert_eq!(store.bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn an_empty_value_is_a_value() {
        let store = Store::new(1 << 20);
        assert_eq!(put(&store, b"", b""), Ok(false));
        assert_eq!(store.get(b"").as_deref(), Some(&b""[..]));
    }

    #[test]
    fn a_full_store_refuses_and_room_not_used_comes_back() {
        let store = Store::new(cost(1, 4));
        let room = store.room(1, 4).unwrap();
        assert_eq!(store.room(0, 0).err(), Some(Full { bytes_max: cost(1, 4) }));
        drop(room);
        assert_eq!(put(&store, b"a", b"full"), Ok(false));
        assert_eq!(put(&store, b"a", b"full").err(), Some(Full { bytes_max: cost(1, 4) }));
        assert!(store.delete(b"a"));
        assert_eq!(put(&store, b"b", b"full"), Ok(false));
    }
}
