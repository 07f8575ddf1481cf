use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use super::capacity::RECEIVES_LENT_STEP;
use super::submission::ConnectionKey;
use crate::Time;

/// How long a connection must have said nothing to be asked for what it was lent. One that says more often spends
/// its credits, and is not given them again while it has more than its share.
pub(super) const IDLE: Duration = Duration::from_millis(10);

/// Connections are looked through this often while any is short: so long it takes one to become idle.
const LOOK_EVERY: Duration = IDLE;

/// Connections that are short of receives while their core has none left to lend.
///
/// What was lent comes back in two ways: by not renewing it, to a connection that has more than its share, once
/// it is spent; and by RECALL, from one that says nothing. Both only while somebody waits here.
#[derive(Debug, Default)]
pub(super) struct Shortage {
    /// In turn; each once, as a connection asks again only when it was given something or has spent it all.
    wanting: VecDeque<ConnectionKey>,
    /// Those in it, for there may be as many as there are connections.
    listed: HashSet<ConnectionKey>,
    /// What each borrower may keep while others are short; `None` until it is known.
    fair: Option<u32>,
    /// When to look next.
    look_at: Time,
}

impl Shortage {
    /// A connection that was lent so many is short of more.
    pub(super) fn wants(&mut self, key: ConnectionKey, lent: u32) {
        if self.room(lent) > 0 && self.listed.insert(key) {
            self.wanting.push_back(key);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.wanting.len()
    }

    /// Who is short for the longest time.
    pub(super) fn first(&self) -> Option<ConnectionKey> {
        self.wanting.front().copied()
    }

    /// It is not short any more.
    pub(super) fn drop_first(&mut self) {
        if let Some(first) = self.wanting.pop_front() {
            self.listed.remove(&first);
        }
        if self.wanting.is_empty() {
            self.fair = None;
        }
    }

    /// How many more one that was lent so many may have now.
    pub(super) fn room(&self, lent: u32) -> u32 {
        self.fair
            .map_or(RECEIVES_LENT_STEP, |fair| fair.saturating_sub(lent).min(RECEIVES_LENT_STEP))
    }

    /// Whether somebody is short, and one that was lent so many has more than its share.
    pub(super) fn is_over(&self, lent: u32) -> bool {
        !self.wanting.is_empty() && self.fair.is_some_and(|fair| lent > fair)
    }

    /// When to look for what can be had back.
    pub(super) fn next_look(&self) -> Option<Time> {
        (!self.wanting.is_empty()).then_some(self.look_at)
    }

    pub(super) fn is_due(&self, now: Time) -> bool {
        self.next_look().is_some_and(|at| at <= now)
    }

    /// Learns how many may be lent in all and to how many connections they are. `lent` says how many to one,
    /// `None` of one that is not there any more. Returns how many receives those that are short could use.
    pub(super) fn look(
        &mut self,
        now: Time,
        surplus: u32,
        borrowers: u32,
        mut lent: impl FnMut(ConnectionKey) -> Option<u32>,
    ) -> u32 {
        let without = self.wanting.iter().filter(|key| lent(**key) == Some(0)).count() as u32;
        let fair = (surplus / (borrowers + without).max(1)).max(1);
        self.fair = Some(fair);
        self.look_at = now + LOOK_EVERY;
        let mut wanted = 0;
        // Who has its share already is not short of it.
        let mut wanting = std::mem::take(&mut self.wanting);
        wanting.retain(|key| {
            let room = lent(*key).map_or(0, |lent| self.room(lent));
            wanted += room;
            if room == 0 {
                self.listed.remove(key);
            }
            room > 0
        });
        self.wanting = wanting;
        if self.wanting.is_empty() {
            self.fair = None;
        }
        wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(slot: u32) -> ConnectionKey {
        ConnectionKey { engine: 0, slot, generation: 0 }
    }

    #[test]
    fn who_has_more_than_its_share_gives_it_up_only_while_somebody_is_short() {
        let now = Time::from_nanos(1_000_000_000);
        let mut shortage = Shortage::default();
        assert!(!shortage.is_due(now) && !shortage.is_over(u32::MAX));
        shortage.wants(key(1), 0);
        shortage.wants(key(1), 0);
        shortage.wants(key(2), 3);
        assert!(shortage.is_due(now));
        // 64 for 15 borrowers and one without: 4 each.
        let lent = |key: ConnectionKey| Some([0, 0, 3][key.slot as usize]);
        assert_eq!(shortage.look(now, 64, 15, lent), 4 + 1);
        assert_eq!(shortage.next_look(), Some(now + LOOK_EVERY));
        assert!(shortage.is_over(5) && !shortage.is_over(4));
        assert_eq!((shortage.room(0), shortage.room(3), shortage.room(9)), (4, 1, 0));
        shortage.wants(key(3), 4); // has its share
        let next = [(); 3].map(|()| {
            let first = shortage.first();
            shortage.drop_first();
            first
        });
        assert_eq!(next, [Some(key(1)), Some(key(2)), None]);
        assert!(!shortage.is_over(u32::MAX) && shortage.next_look().is_none());
    }

    #[test]
    fn who_is_alone_gone_or_has_its_share_is_not_short() {
        let now = Time::from_nanos(1);
        let mut shortage = Shortage::default();
        shortage.wants(key(1), 8);
        assert_eq!(shortage.look(now, 8, 1, |_| Some(8)), 0);
        assert!(!shortage.is_over(u32::MAX) && shortage.next_look().is_none());
        shortage.wants(key(2), 0);
        assert_eq!(shortage.look(now, 8, 1, |_| None), 0);
        assert_eq!(shortage.len(), 0);
    }

    #[test]
    fn with_more_connections_than_receives_each_may_still_have_one() {
        let mut shortage = Shortage::default();
        shortage.wants(key(1), 0);
        assert_eq!(shortage.look(Time::from_nanos(1), 8, 900, |_| Some(0)), 1);
        assert_eq!((shortage.room(0), shortage.room(1)), (1, 0));
    }
}
