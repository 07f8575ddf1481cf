use std::collections::{HashMap, VecDeque};

use super::submission::ConnectionKey;

/// Things that wait, by the connection they came from: connections take turns, and those of one keep their
/// order. So a connection with a long backlog does not keep those of others behind all of it.
///
/// What is urgent goes before all that is not, in the same way.
#[derive(Debug)]
pub(super) struct Turns<T> {
    urgent: Ring<T>,
    others: Ring<T>,
}

/// Every connection in `ring` has something in `waiting`, and the reverse.
#[derive(Debug)]
struct Ring<T> {
    ring: VecDeque<ConnectionKey>,
    waiting: HashMap<ConnectionKey, VecDeque<T>>,
    len: usize,
}

impl<T> Default for Turns<T> {
    fn default() -> Self {
        let ring = || Ring { ring: VecDeque::new(), waiting: HashMap::new(), len: 0 };
        Self { urgent: ring(), others: ring() }
    }
}

impl<T> Turns<T> {
    pub(super) fn len(&self) -> usize {
        self.urgent.len + self.others.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn push(&mut self, from: ConnectionKey, urgent: bool, item: T) {
        let ring = if urgent { &mut self.urgent } else { &mut self.others };
        ring.push(from, item);
    }

    /// The next, of the connection whose turn it is.
    pub(super) fn pop(&mut self) -> Option<T> {
        self.urgent.pop().or_else(|| self.others.pop())
    }

    /// Takes out those of a connection that are `gone`.
    pub(super) fn forget(&mut self, from: ConnectionKey, gone: impl Fn(&T) -> bool) {
        self.urgent.forget(from, &gone);
        self.others.forget(from, &gone);
    }
}

impl<T> Ring<T> {
    fn push(&mut self, from: ConnectionKey, item: T) {
        let waiting = self.waiting.entry(from).or_insert_with(|| {
            self.ring.push_back(from);
            VecDeque::new()
        });
        waiting.push_back(item);
        self.len += 1;
    }

    fn pop(&mut self) -> Option<T> {
        let from = self.ring.pop_front()?;
        let waiting = self.waiting.get_mut(&from)?;
        let item = waiting.pop_front();
        if waiting.is_empty() {
            self.waiting.remove(&from);
        } else {
            self.ring.push_back(from);
        }
        self.len -= usize::from(item.is_some());
        item
    }

    fn forget(&mut self, from: ConnectionKey, gone: impl Fn(&T) -> bool) {
        let Some(waiting) = self.waiting.get_mut(&from) else { return };
        let before = waiting.len();
        waiting.retain(|item| !gone(item));
        self.len -= before - waiting.len();
        if waiting.is_empty() {
            self.waiting.remove(&from);
            self.ring.retain(|other| *other != from);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn key(slot: u32) -> ConnectionKey {
        ConnectionKey { engine: 0, slot, generation: 1 }
    }

    #[test]
    fn connections_take_turns_and_each_keeps_its_order() {
        let mut turns = Turns::default();
        for item in 0..4 {
            turns.push(key(1), false, item);
        }
        turns.push(key(2), false, 10);
        turns.push(key(3), false, 20);
        turns.push(key(2), false, 11);
        turns.push(key(1), true, 100);
        let order: Vec<i32> = std::iter::from_fn(|| turns.pop()).collect();
        assert_eq!(order, [100, 0, 10, 20, 1, 11, 2, 3]);
        assert!(turns.is_empty());
    }

    #[test]
    fn what_is_forgotten_takes_no_turn() {
        let mut turns = Turns::default();
        for (from, item) in [(1, 0), (1, 1), (2, 2), (3, 3)] {
            turns.push(key(from), false, item);
        }
        turns.forget(key(2), |item| *item == 2);
        turns.forget(key(1), |item| *item == 0);
        turns.forget(key(1), |item| *item == 7);
        turns.forget(key(9), |_| true);
        assert_eq!(turns.len(), 2);
        assert_eq!([turns.pop(), turns.pop(), turns.pop()], [Some(1), Some(3), None]);
    }
}
