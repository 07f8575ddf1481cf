use super::submission::ConnectionKey;

/// Connections by slot, with a generation that tells a connection from the one before it in its slot.
pub(super) struct Slots<T> {
    engine: u16,
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    len: u32,
}

struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

/// Generations wrap here: they share a `wr_id` with a slot and a sequence number.
const GENERATION_MASK: u32 = 0xffff;

impl<T> Slots<T> {
    pub(super) fn new(engine: u16) -> Self {
        Self { engine, slots: Vec::new(), free: Vec::new(), len: 0 }
    }

    pub(super) fn len(&self) -> u32 {
        self.len
    }

    /// Adds what `make` returns for its key.
    pub(super) fn insert(&mut self, make: impl FnOnce(ConnectionKey) -> T) -> ConnectionKey {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, value: None });
            self.slots.len() as u32 - 1
        });
        let entry = &mut self.slots[slot as usize];
        let key = ConnectionKey { engine: self.engine, slot, generation: entry.generation };
        entry.value = Some(make(key));
        self.len += 1;
        key
    }

    /// The value of a slot, whatever its generation.
    pub(super) fn at(&mut self, slot: u32) -> Option<&mut T> {
        self.slots.get_mut(slot as usize)?.value.as_mut()
    }

    /// The value of a key, if it is still that one.
    pub(super) fn get(&mut self, key: ConnectionKey) -> Option<&mut T> {
        let entry = self.slots.get_mut(key.slot as usize)?;
        if entry.generation != key.generation {
            return None;
        }
        entry.value.as_mut()
    }

    /// The slot's key today.
    pub(super) fn key(&self, slot: u32) -> Option<ConnectionKey> {
        let entry = self.slots.get(slot as usize)?;
        entry.value.as_ref()?;
        Some(ConnectionKey { engine: self.engine, slot, generation: entry.generation })
    }

    /// Takes a value out; its key is stale from now on.
    pub(super) fn remove(&mut self, slot: u32) -> Option<T> {
        let entry = self.slots.get_mut(slot as usize)?;
        let value = entry.value.take()?;
        entry.generation = (entry.generation + 1) & GENERATION_MASK;
        self.free.push(slot);
        self.len -= 1;
        Some(value)
    }

    /// The slots in use.
    pub(super) fn in_use(&self) -> Vec<u32> {
        (0..self.slots.len() as u32).filter(|&slot| self.key(slot).is_some()).collect()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|slot| slot.value.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_stale_once_its_slot_was_given_up() {
        let mut slots = Slots::new(0);
        let first = slots.insert(|_| "first");
        assert_eq!(slots.remove(first.slot), Some("first"));
        let second = slots.insert(|_| "second");
        assert_eq!(second.slot, first.slot);
        assert_eq!(slots.get(first), None);
        assert_eq!(slots.get(second), Some(&mut "second"));
        assert_eq!(slots.len(), 1);
    }
}
