use std::collections::VecDeque;

use super::submission::ConnectionKey;

/// What a connection may ask for in one turn: a READ of the usual length, so that each turn moves
/// something.
pub(super) const READ_QUANTUM: u64 = 128 << 10;

/// The bytes that one core has asked for by READ, shared out among its connections by deficit round robin
/// (M. Shreedhar and G. Varghese, "Efficient Fair Queueing using Deficit Round Robin", 1995).
///
/// As long as all that is wanted fits under the bound, everybody asks at once. Beyond it connections wait
/// in a line, each gets a quantum when its turn comes, and what it could not use for the next READ is
/// kept for its next turn: so they share by bytes, whatever the lengths of their messages.
#[derive(Debug)]
pub(super) struct ReadShare {
    max: u64,
    outstanding: u64,
    /// Given to connections that stand in no line, and not yet asked for.
    granted: u64,
    line: VecDeque<ConnectionKey>,
}

/// One connection's part of a [`ReadShare`].
#[derive(Debug, Default)]
pub(super) struct ReadTurn {
    outstanding: u64,
    deficit: u64,
    waits: bool,
}

impl ReadShare {
    /// `max`: bytes outstanding at most, and less than a quantum more, which is what a turn may bring from
    /// the one before it. One READ is always let through, whatever its length.
    pub(super) fn new(max: u64) -> Self {
        Self { max, outstanding: 0, granted: 0, line: VecDeque::new() }
    }

    /// Whether a READ of `len` bytes may be posted now. If not, the connection stands in the line.
    pub(super) fn take(&mut self, key: ConnectionKey, turn: &mut ReadTurn, len: u32) -> bool {
        let len = u64::from(len);
        if turn.waits {
            return false;
        }
        if turn.deficit >= len {
            turn.deficit -= len;
            self.granted -= len;
        } else if !self.line.is_empty() || !self.has_room(len) {
            // What is left of its turn is kept, but holds no room meanwhile.
            self.granted -= turn.deficit;
            turn.waits = true;
            self.line.push_back(key);
            return false;
        }
        self.outstanding += len;
        turn.outstanding += len;
        true
    }

    /// The connection asks for no more now: what is left of its turn is for others.
    pub(super) fn pass(&mut self, turn: &mut ReadTurn) {
        if !turn.waits {
            self.granted -= turn.deficit;
            turn.deficit = 0;
        }
    }

    /// Whose turn it is, if there is room for it. It stands in the line no more.
    pub(super) fn next(&mut self) -> Option<ConnectionKey> {
        if self.has_turn() { self.line.pop_front() } else { None }
    }

    /// Whether there is one.
    pub(super) fn has_turn(&self) -> bool {
        !self.line.is_empty() && self.has_room(READ_QUANTUM)
    }

    /// Gives the connection its turn.
    pub(super) fn grant(&mut self, turn: &mut ReadTurn) {
        turn.waits = false;
        turn.deficit += READ_QUANTUM;
        self.granted += turn.deficit;
    }

    /// A READ has ended, or was not posted after all.
    pub(super) fn done(&mut self, turn: &mut ReadTurn, len: u32) {
        let len = u64::from(len);
        debug_assert!(len <= turn.outstanding, "a READ has ended that took no share");
        let len = len.min(turn.outstanding);
        turn.outstanding -= len;
        self.outstanding -= len;
    }

    /// The connection is gone, and all that it had asked for.
    pub(super) fn forget(&mut self, key: ConnectionKey, turn: &mut ReadTurn) {
        if turn.waits {
            self.line.retain(|other| *other != key);
        } else {
            self.granted -= turn.deficit;
        }
        self.outstanding -= turn.outstanding;
        *turn = ReadTurn::default();
    }

    fn has_room(&self, len: u64) -> bool {
        let used = self.outstanding + self.granted;
        used == 0 || used + len <= self.max
    }
}

impl ReadTurn {
    /// Bytes that READs of the connection were posted for, and that have not come.
    pub(super) fn outstanding(&self) -> u64 {
        self.outstanding
    }

    /// The connection, which [`ReadShare::next`] named, wants no turn.
    pub(super) fn leave(&mut self) {
        self.waits = false;
        self.deficit = 0;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(slot: u32) -> ConnectionKey {
        ConnectionKey { engine: 0, slot, generation: 1 }
    }

    #[test]
    fn what_fits_is_asked_for_at_once_and_one_read_always_is() {
        let mut share = ReadShare::new(100);
        let mut turns = [ReadTurn::default(), ReadTurn::default()];
        assert!(share.take(key(0), &mut turns[0], 1_000));
        assert!(!share.take(key(1), &mut turns[1], 1));
        assert_eq!(share.next(), None);
        share.done(&mut turns[0], 1_000);
        assert_eq!(share.next(), Some(key(1)));
        share.grant(&mut turns[1]);
        assert!(share.take(key(1), &mut turns[1], 1));
    }

    #[test]
    fn one_that_comes_later_does_not_pass_those_in_the_line() {
        let mut share = ReadShare::new(READ_QUANTUM);
        let mut turns: Vec<_> = (0..3).map(|_| ReadTurn::default()).collect();
        assert!(share.take(key(0), &mut turns[0], READ_QUANTUM as u32));
        assert!(!share.take(key(1), &mut turns[1], READ_QUANTUM as u32));
        share.done(&mut turns[0], READ_QUANTUM as u32);
        assert!(!share.take(key(2), &mut turns[2], 1));
        assert_eq!([share.next(), share.next()], [Some(key(1)), Some(key(2))]);
    }

    #[test]
    fn a_turn_that_is_not_used_is_the_next_ones_and_one_that_has_gone_holds_nothing() {
        let mut share = ReadShare::new(READ_QUANTUM);
        let mut turns: Vec<_> = (0..4).map(|_| ReadTurn::default()).collect();
        let full = READ_QUANTUM as u32;
        assert!(share.take(key(0), &mut turns[0], full));
        for slot in 1..4 {
            assert!(!share.take(key(slot), &mut turns[slot as usize], full));
        }
        share.forget(key(0), &mut turns[0]);
        share.forget(key(2), &mut turns[2]);
        assert_eq!(share.next(), Some(key(1)));
        share.grant(&mut turns[1]);
        assert_eq!(share.next(), None);
        share.pass(&mut turns[1]);
        assert_eq!(share.next(), Some(key(3)));
    }

    /// Serves connections that always want more, each READs of its own length, for some rounds; returns the
    /// bytes that each was let ask for.
    fn serve(lens: &[u32], max: u64, rounds: usize) -> Vec<u64> {
        let mut share = ReadShare::new(max);
        let mut turns: Vec<_> = lens.iter().map(|_| ReadTurn::default()).collect();
        let (mut posted, mut bytes) = (VecDeque::new(), vec![0; lens.len()]);
        let mut ask = |share: &mut ReadShare,
                       turns: &mut Vec<ReadTurn>,
                       posted: &mut VecDeque<usize>,
                       slot: usize| {
            while share.take(key(slot as u32), &mut turns[slot], lens[slot]) {
                bytes[slot] += u64::from(lens[slot]);
                posted.push_back(slot);
                let usual = share.outstanding + share.granted < max + READ_QUANTUM;
                assert!(usual || posted.len() == 1, "{share:?}");
            }
        };
        for slot in 0..lens.len() {
            ask(&mut share, &mut turns, &mut posted, slot);
        }
        for _ in 0..rounds {
            let Some(slot) = posted.pop_front() else { panic!("nobody is served: {share:?}") };
            share.done(&mut turns[slot], lens[slot]);
            while let Some(next) = share.next() {
                share.grant(&mut turns[next.slot as usize]);
                ask(&mut share, &mut turns, &mut posted, next.slot as usize);
            }
        }
        bytes
    }

    proptest! {
        #[test]
        fn connections_share_by_bytes_whatever_the_lengths_of_their_reads(
            lens in proptest::collection::vec(4_096..=READ_QUANTUM as u32, 2..20),
            max in READ_QUANTUM..32 * READ_QUANTUM,
        ) {
            // Each wants more than the bound at first: so much is one connection's alone.
            let rounds = lens.len() * 2_000;
            let bytes = serve(&lens, max, rounds);
            let (least, most) = (bytes.iter().min().unwrap(), bytes.iter().max().unwrap());
            prop_assert!(most - least <= max + 2 * READ_QUANTUM, "{bytes:?}");
        }
    }
}
