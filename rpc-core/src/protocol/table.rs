//! Slots with ids that never repeat.

/// Bits of a key that name a slot; the rest is a counter.
pub(crate) const SLOT_BITS: u32 = 16;

const SLOT_MASK: u64 = (1 << SLOT_BITS) - 1;

/// The most entries a table can have.
pub(crate) const SLOTS_MAX: u32 = 1 << SLOT_BITS;

/// A slab whose keys hold a slot and a counter that grows with every insertion: finding an entry is an
/// index and a compare, and the key of an entry that is gone finds nothing.
///
/// It grows to the most entries it ever held at once, at most to its bound.
#[derive(Debug)]
pub(crate) struct Table<T> {
    entries: Vec<Entry<T>>,
    free: Vec<u32>,
    counter: u64,
    max: u32,
}

#[derive(Debug)]
struct Entry<T> {
    /// The counter of the key of what is or was last here.
    counter: u64,
    value: Option<T>,
}

impl<T> Table<T> {
    /// A table of at most `max` entries, and never more than [`SLOTS_MAX`].
    pub(crate) fn new(max: u32) -> Self {
        Self { entries: Vec::new(), free: Vec::new(), counter: 0, max: max.min(SLOTS_MAX) }
    }

    pub(crate) fn len(&self) -> u32 {
        (self.entries.len() - self.free.len()) as u32
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len() >= self.max
    }

    /// Adds an entry; gives the value back if the table is full. Keys are below 2⁶³ for as long as a
    /// machine lives: 2⁴⁷ insertions.
    pub(crate) fn insert(&mut self, value: T) -> Result<u64, T> {
        if self.is_full() {
            return Err(value);
        }
        self.counter += 1;
        let entry = Entry { counter: self.counter, value: Some(value) };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.entries[slot as usize] = entry;
                slot
            }
            None => {
                self.entries.push(entry);
                (self.entries.len() - 1) as u32
            }
        };
        Ok(self.counter << SLOT_BITS | u64::from(slot))
    }

    pub(crate) fn get(&self, key: u64) -> Option<&T> {
        let entry = self.entries.get((key & SLOT_MASK) as usize)?;
        if entry.counter != key >> SLOT_BITS {
            return None;
        }
        entry.value.as_ref()
    }

    pub(crate) fn get_mut(&mut self, key: u64) -> Option<&mut T> {
        let entry = self.entries.get_mut((key & SLOT_MASK) as usize)?;
        if entry.counter != key >> SLOT_BITS {
            return None;
        }
        entry.value.as_mut()
    }

    pub(crate) fn remove(&mut self, key: u64) -> Option<T> {
        let slot = key & SLOT_MASK;
        let entry = self.entries.get_mut(slot as usize)?;
        if entry.counter != key >> SLOT_BITS {
            return None;
        }
        let value = entry.value.take()?;
        self.free.push(slot as u32);
        Some(value)
    }

    /// Drops an entry where it lies; says whether there was one. What is in it may be large, and whoever
    /// does not need it need not move it.
    pub(crate) fn discard(&mut self, key: u64) -> bool {
        let slot = key & SLOT_MASK;
        let entry = self.entries.get_mut(slot as usize);
        let Some(entry) = entry.filter(|e| e.counter == key >> SLOT_BITS && e.value.is_some())
        else {
            return false;
        };
        entry.value = None;
        self.free.push(slot as u32);
        true
    }

    /// The key of what is in a slot now.
    pub(crate) fn key_of_slot(&self, slot: usize) -> Option<u64> {
        let entry = self.entries.get(slot)?;
        entry.value.as_ref()?;
        Some(entry.counter << SLOT_BITS | slot as u64)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.entries.iter().enumerate().filter_map(|(slot, entry)| {
            let value = entry.value.as_ref()?;
            Some((entry.counter << SLOT_BITS | slot as u64, value))
        })
    }

    /// The keys of all entries, oldest first.
    pub(crate) fn keys(&self) -> Vec<u64> {
        let mut keys: Vec<u64> = self.iter().map(|(key, _)| key).collect();
        keys.sort_unstable();
        keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_finds_its_own_entry_and_nothing_once_that_is_gone() {
        let mut table = Table::new(2);
        let a = table.insert('a').unwrap();
        let b = table.insert('b').unwrap();
        assert_eq!(table.insert('c'), Err('c'));
        assert_eq!((table.get(a), table.get(b)), (Some(&'a'), Some(&'b')));
        assert_eq!(table.remove(a), Some('a'));
        assert_eq!((table.remove(a), table.get(a)), (None, None));
        let c = table.insert('c').unwrap();
        assert!(c > b && c & SLOT_MASK == a & SLOT_MASK);
        assert_eq!((table.get(a), table.get(c)), (None, Some(&'c')));
        assert_eq!(table.keys(), [b, c]);
        assert!(table.discard(b) && !table.discard(b) && !table.discard(a));
        let d = table.insert('d').unwrap();
        assert_eq!((table.get(b), table.get(d), table.len()), (None, Some(&'d'), 2));
    }
}
