//! Who may send how much.
//!
//! A credit is one posted receive of the peer; a SEND spends one, however many frames it carries. A
//! SEND header carries three numbers, all cumulative and compared by serial arithmetic, so nothing is
//! lost or counted twice:
//! - `sequence`: the number of this SEND, from 1, credit-only ones included;
//! - `limit`: how many SENDs, credit-only ones not counted, the receiver of this header may have
//!   issued in all; 1 before any header came, as one receive is guaranteed;
//! - `received`: the `sequence` up to which the SENDs of the receiver of this header are accounted
//!   for, their receives posted again where that matters (see `slot_unposted`).
//!
//! One receive beyond what is granted is always kept standing for a *credit-only* SEND, which spends
//! no credit: whoever has something to grant can say so even when it may send nothing else. At most
//! one is under way that `received` does not cover. It asks for no answer and is sent only when the
//! peer has nothing left, so credit-only SENDs do not chase each other.

use super::counters::CreditCounts;
use super::violation::Violation;

#[cfg(test)]
mod search;

/// SENDs that each side may issue before it has heard anything: one is guaranteed, posted before the
/// hello is answered.
const GUARANTEED: u32 = 1;

/// The most receives that can stand for one connection, and so the most that one header can add. A
/// device's largest SRQ is smaller (32,768 on common NICs).
pub(crate) const WINDOW_MAX: u32 = 1 << 16;

/// How far `a` is ahead of `b`, which may be negative.
fn ahead(a: u32, b: u32) -> i32 {
    a.wrapping_sub(b) as i32
}

/// What a SEND header says about credits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct CreditHeader {
    /// The number of this SEND, from 1, credit-only ones included.
    pub sequence: u32,
    /// SENDs, credit-only ones not counted, that the receiver of this may have issued in all.
    pub limit: u32,
    /// The last SEND of the receiver of this that the sender accounts for.
    pub received: u32,
    /// Whether it is credit-only.
    pub credit_only: bool,
}

/// Both directions' credits of one connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Credits {
    // What we send.
    /// All SENDs issued.
    sequence: u32,
    /// SENDs issued that spent a credit.
    spent: u32,
    /// The most that we may have spent.
    limit: u32,
    /// The last SEND that the peer has accounted for.
    accounted: u32,
    /// The last SEND that it shall account for though nothing else is asked of it.
    to_read: u32,
    /// Our last credit-only SEND's number, while the peer has not accounted for it.
    slot_used: Option<u32>,
    // What we receive.
    /// All SENDs received.
    received: u32,
    /// SENDs received that spent a credit.
    spent_peer: u32,
    /// The limit that we last told.
    limit_told: u32,
    /// The `received` that we last told.
    received_told: u32,
    /// The peer's last credit-only SEND's number, until we have told that we account for it.
    slot_taken: Option<u32>,
    /// Receives that stand posted for this connection.
    standing: u32,
}

impl Credits {
    pub(crate) const fn new() -> Self {
        Self {
            sequence: 0,
            spent: 0,
            limit: GUARANTEED,
            accounted: 0,
            to_read: 0,
            slot_used: None,
            received: 0,
            spent_peer: 0,
            limit_told: GUARANTEED,
            received_told: 0,
            slot_taken: None,
            standing: 0,
        }
    }

    /// Receives were posted. They are granted from now on.
    pub(crate) fn posted(&mut self, n: u32) {
        self.standing = self.standing.saturating_add(n).min(WINDOW_MAX);
    }

    /// SENDs that we may issue now.
    pub(crate) fn available(&self) -> u32 {
        self.limit.wrapping_sub(self.spent)
    }

    /// SENDs that the peer may still issue by what it was told.
    fn granted(&self) -> u32 {
        self.limit_told.wrapping_sub(self.spent_peer)
    }

    /// Receives that stand beyond those granted and the one of the credit-only slot.
    fn owed(&self) -> u32 {
        self.standing.saturating_sub(self.granted().saturating_add(1))
    }

    /// Whether the receive of the peer's last credit-only SEND has not been replaced yet.
    fn slot_unposted(&self) -> bool {
        self.slot_taken.is_some() && self.standing < self.granted().saturating_add(1)
    }

    /// Whether an ordinary SEND may leave.
    ///
    /// Not while the slot's receive is gone: such a SEND could spend our last credit without giving
    /// the peer its slot back, and if the peer did the same, both would wait for ever.
    pub(crate) fn may_send(&self) -> bool {
        self.available() > 0 && !self.slot_unposted()
    }

    /// Whether a credit-only SEND is due: the peer has nothing left, we owe it some, and our slot at
    /// the peer is free.
    pub(crate) fn credit_only_due(&self) -> bool {
        self.granted() == 0 && self.owed() > 0 && self.slot_used.is_none() && !self.slot_unposted()
    }

    /// Spends what a SEND spends and gives what its header says. The caller has asked `may_send` or
    /// `credit_only_due`.
    pub(crate) fn send(&mut self, credit_only: bool) -> CreditHeader {
        self.sequence = self.sequence.wrapping_add(1);
        if credit_only {
            self.slot_used = Some(self.sequence);
        } else {
            self.spent = self.spent.wrapping_add(1);
        }
        self.limit_told = self.limit_told.wrapping_add(self.owed());
        // Neither kind leaves while the slot's receive is missing, so everything is accounted for.
        self.received_told = self.received;
        self.slot_taken = None;
        CreditHeader {
            sequence: self.sequence,
            limit: self.limit_told,
            received: self.received_told,
            credit_only,
        }
    }

    /// The last SEND carried something that the peer must have read before this side forgets it.
    pub(crate) fn expect_read(&mut self) {
        self.to_read = self.sequence;
    }

    /// Whether the peer has yet to say that it has read such a SEND.
    pub(crate) fn expects_read(&self) -> bool {
        ahead(self.to_read, self.accounted) > 0
    }

    /// Takes a received header into account, or finds what is wrong with it.
    pub(crate) fn receive(&mut self, header: CreditHeader) -> Result<(), Violation> {
        let want = self.received.wrapping_add(1);
        if header.sequence != want {
            return Err(Violation::Sequence { want, got: header.sequence });
        }
        if header.credit_only {
            if self.slot_taken.is_some() {
                return Err(Violation::CreditOnly);
            }
        } else if self.granted() == 0 {
            return Err(Violation::Overdraft);
        }
        let acknowledged = ahead(header.received, self.sequence);
        if acknowledged > 0 {
            return Err(Violation::Counters("it has received SENDs that were not sent"));
        }
        let raised = ahead(header.limit, self.limit);
        if raised > 0 && header.limit.wrapping_sub(self.spent) > WINDOW_MAX {
            return Err(Violation::Counters("it grants more than any receive queue holds"));
        }
        if ahead(header.received, self.accounted) > 0 {
            self.accounted = header.received;
            if !self.expects_read() {
                // It moves along, so that the numbers never come round to it again.
                self.to_read = self.accounted;
            }
        }
        self.received = want;
        self.standing = self.standing.saturating_sub(1);
        if header.credit_only {
            self.slot_taken = Some(want);
        } else {
            self.spent_peer = self.spent_peer.wrapping_add(1);
        }
        if raised > 0 {
            self.limit = header.limit;
        }
        if self.slot_used.is_some_and(|used| ahead(header.received, used) >= 0) {
            self.slot_used = None;
        }
        Ok(())
    }

    /// Gives up credits, as the peer's RECALL asks, but never the last one; returns how many. They
    /// count as spent, so a later limit means the same to both sides.
    pub(crate) fn give_back(&mut self, wanted: u32) -> u32 {
        let given = self.available().saturating_sub(1).min(wanted);
        self.spent = self.spent.wrapping_add(given);
        given
    }

    /// Takes back up to `most` receives that the peer was not told of; how many.
    pub(crate) fn withdraw(&mut self, most: u32) -> u32 {
        let taken = self.owed().min(most);
        self.standing -= taken;
        taken
    }

    /// The peer has given up credits, and their receives are nobody's now. False: it had not so many.
    pub(crate) fn take_back(&mut self, given: u32) -> bool {
        if given > self.granted() {
            return false;
        }
        self.spent_peer = self.spent_peer.wrapping_add(given);
        self.standing = self.standing.saturating_sub(given);
        true
    }

    /// What is where.
    pub(crate) fn counts(&self) -> CreditCounts {
        CreditCounts {
            available: self.available(),
            granted: self.granted(),
            owed: self.owed(),
            standing: self.standing,
            slot_free: self.slot_used.is_none(),
        }
    }
}
