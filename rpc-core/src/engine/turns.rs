use std::collections::{HashMap, VecDeque};

use super::submission::ConnectionKey;

/// Things that wait, by the connection they came from: connections take turns, and those of one keep their
/// order. So a connection with a long backlog does not keep those of others behind all of it.
///
/// What is urgent goes before all that is not, in the same way.
#[derive(Debug)]
pub(super) struct Turns<T> {
    lines: HashMap<ConnectionKey, Line<T>>,
    /// Whose turn comes when, for each lane: those that have something waiting in it, each once.
    rings: Lanes<VecDeque<ConnectionKey>>,
    len: usize,
    /// No line is longer.
    longest: usize,
}

/// What of one connection waits.
type Line<T> = Lanes<VecDeque<T>>;

#[derive(Debug)]
struct Lanes<T> {
    urgent: T,
    usual: T,
}

impl<T: Default> Default for Lanes<T> {
    fn default() -> Self {
        Self { urgent: T::default(), usual: T::default() }
    }
}

impl<T> Lanes<T> {
    fn lane(&mut self, urgent: bool) -> &mut T {
        if urgent { &mut self.urgent } else { &mut self.usual }
    }
}

impl<T> Line<T> {
    fn len(&self) -> usize {
        self.urgent.len() + self.usual.len()
    }
}

impl<T> Default for Turns<T> {
    fn default() -> Self {
        Self { lines: HashMap::new(), rings: Lanes::default(), len: 0, longest: 0 }
    }
}

impl<T> Turns<T> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn push(&mut self, from: ConnectionKey, urgent: bool, item: T) {
        let line = self.lines.entry(from).or_default();
        let lane = line.lane(urgent);
        if lane.is_empty() {
            self.rings.lane(urgent).push_back(from);
        }
        lane.push_back(item);
        self.longest = self.longest.max(line.len());
        self.len += 1;
    }

    /// The next, of the connection whose turn it is.
    pub(super) fn pop(&mut self) -> Option<T> {
        let urgent = !self.rings.urgent.is_empty();
        let from = self.rings.lane(urgent).pop_front()?;
        let line = self.lines.get_mut(&from)?;
        let item = line.lane(urgent).pop_front();
        if !line.lane(urgent).is_empty() {
            self.rings.lane(urgent).push_back(from);
        } else if line.len() == 0 {
            self.lines.remove(&from);
        }
        self.len -= usize::from(item.is_some());
        item
    }

    /// As many wait as may, and one more of `from` wants to: takes out what has to give way to it, with the
    /// connection that this is of. `None`: nothing does, it is itself one of the most.
    ///
    /// That is the newest of the longest line, unless it would only change places with that; and of its own
    /// line, if it is urgent, the newest that is not. So whoever floods is refused, and not who comes later.
    pub(super) fn give_way(
        &mut self,
        from: ConnectionKey,
        urgent: bool,
    ) -> Option<(ConnectionKey, T)> {
        let own = self.lines.get(&from).map_or(0, Line::len);
        // Mostly it is the flood that comes, which costs no search.
        if own + 2 <= self.longest {
            let rings = self.rings.usual.iter().chain(&self.rings.urgent);
            let lengths = rings.filter_map(|key| Some((*key, self.lines.get(key)?.len())));
            // In the order of the rings, so that it is the same for the same calls.
            let (key, longest) = lengths.max_by_key(|(_, len)| *len)?;
            self.longest = longest;
            if own + 2 <= longest {
                return Some((key, self.take_newest(key)?));
            }
        }
        let gives = urgent && self.lines.get(&from).is_some_and(|line| !line.usual.is_empty());
        if gives { Some((from, self.take_newest(from)?)) } else { None }
    }

    /// The newest of a line; what is urgent only if nothing else waits in it.
    fn take_newest(&mut self, from: ConnectionKey) -> Option<T> {
        let line = self.lines.get_mut(&from)?;
        let urgent = line.usual.is_empty();
        let newest = line.lane(urgent).pop_back()?;
        self.len -= 1;
        self.tidy(from);
        Some(newest)
    }

    /// Takes out those of a connection that are `gone`.
    pub(super) fn forget(&mut self, from: ConnectionKey, gone: impl Fn(&T) -> bool) {
        let Some(line) = self.lines.get_mut(&from) else { return };
        let before = line.len();
        line.urgent.retain(|item| !gone(item));
        line.usual.retain(|item| !gone(item));
        self.len -= before - line.len();
        self.tidy(from);
    }

    /// A connection takes no turns in a lane in which nothing of it is left.
    fn tidy(&mut self, from: ConnectionKey) {
        let Some(line) = self.lines.get_mut(&from) else { return };
        for urgent in [true, false] {
            if line.lane(urgent).is_empty() {
                self.rings.lane(urgent).retain(|other| *other != from);
            }
        }
        if line.len() == 0 {
            self.lines.remove(&from);
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

    #[test]
    fn when_all_places_are_taken_the_newest_of_the_longest_line_gives_way() {
        let mut turns = Turns::default();
        for item in 0..5 {
            turns.push(key(1), false, item);
        }
        turns.push(key(2), false, 10);
        assert_eq!(turns.give_way(key(1), false), None, "the flood itself");
        assert_eq!(turns.give_way(key(3), false), Some((key(1), 4)));
        turns.push(key(3), false, 20);
        assert_eq!(turns.give_way(key(2), false), Some((key(1), 3)));
        turns.push(key(2), false, 11);
        assert_eq!(turns.give_way(key(2), false), None, "it would be the longest itself");
        let order: Vec<i32> = std::iter::from_fn(|| turns.pop()).collect();
        assert_eq!(order, [0, 10, 20, 1, 11, 2]);
        assert_eq!(turns.give_way(key(1), false), None, "nothing waits");
    }

    #[test]
    fn an_urgent_one_takes_the_place_of_a_usual_one_of_its_own_line() {
        let mut turns = Turns::default();
        for (from, item) in [(1, 0), (1, 1), (2, 10), (2, 11)] {
            turns.push(key(from), false, item);
        }
        turns.push(key(1), true, 100);
        turns.push(key(2), true, 110);
        assert_eq!(turns.give_way(key(1), true), Some((key(1), 1)));
        turns.push(key(1), true, 101);
        assert_eq!(turns.give_way(key(1), true), Some((key(1), 0)));
        turns.push(key(1), true, 102);
        assert_eq!(turns.give_way(key(1), true), None, "all of its own are urgent");
        let order: Vec<i32> = std::iter::from_fn(|| turns.pop()).collect();
        assert_eq!(order, [100, 110, 101, 102, 10, 11]);
    }
}
