/// A place in a [`Table`]: an index, and a generation that tells a later tenant from an earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Id {
    pub(super) index: u32,
    pub(super) generation: u32,
}

impl Id {
    /// As one number, for epoll.
    pub(super) const fn as_u64(self) -> u64 {
        ((self.generation as u64) << 32) | self.index as u64
    }

    /// The reverse of [`as_u64`](Self::as_u64).
    pub(super) const fn from_u64(value: u64) -> Self {
        Self { index: value as u32, generation: (value >> 32) as u32 }
    }
}

/// Objects of one kind. An [`Id`] of a removed object finds nothing, whoever has its place now.
pub(super) struct Table<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    alive: u32,
}

struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Table<T> {
    pub(super) const fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), alive: 0 }
    }

    /// Adds what `make` builds from the place it gets. Table sizes are bounded by the callers.
    pub(super) fn insert_with(&mut self, make: impl FnOnce(Id) -> T) -> Id {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, value: None });
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        // 24 bits: epoll's numbers carry a kind above them.
        slot.generation = slot.generation.wrapping_add(1) & 0x00ff_ffff;
        let id = Id { index, generation: slot.generation };
        slot.value = Some(make(id));
        self.alive += 1;
        id
    }

    pub(super) fn get(&self, id: Id) -> Option<&T> {
        let slot = self.slots.get(id.index as usize)?;
        if slot.generation == id.generation { slot.value.as_ref() } else { None }
    }

    pub(super) fn get_mut(&mut self, id: Id) -> Option<&mut T> {
        let slot = self.slots.get_mut(id.index as usize)?;
        if slot.generation == id.generation { slot.value.as_mut() } else { None }
    }

    pub(super) fn remove(&mut self, id: Id) -> Option<T> {
        let slot = self.slots.get_mut(id.index as usize)?;
        if slot.generation != id.generation {
            return None;
        }
        let value = slot.value.take()?;
        self.free.push(id.index);
        self.alive -= 1;
        Some(value)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Id, &T)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| {
            let id = Id { index: index as u32, generation: slot.generation };
            slot.value.as_ref().map(|value| (id, value))
        })
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (Id, &mut T)> {
        self.slots.iter_mut().enumerate().filter_map(|(index, slot)| {
            let id = Id { index: index as u32, generation: slot.generation };
            slot.value.as_mut().map(|value| (id, value))
        })
    }

    pub(super) const fn len(&self) -> u32 {
        self.alive
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_of_a_removed_object_finds_nothing_after_reuse() {
        let mut table = Table::new();
        let first = table.insert_with(|_| 'a');
        assert_eq!(table.remove(first), Some('a'));
        let second = table.insert_with(|_| 'b');
        assert_eq!(second.index, first.index);
        assert_eq!(table.get(first), None);
        assert_eq!(table.remove(first), None);
        assert_eq!(table.get(second), Some(&'b'));
        assert_eq!(Id::from_u64(second.as_u64()), second);
        assert_eq!(table.len(), 1);
    }
}
