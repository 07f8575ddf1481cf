use super::body::{OutAnswer, OutCall};
use super::config::Role;
use super::ids::{CallId, TransferId, wire_id};
use super::table::Table;
use crate::Time;
use crate::wire::CALL_FROM_ACCEPTING;

/// The initiator bit of calls that this side begins.
pub(crate) const fn initiator_bit(role: Role) -> u64 {
    match role {
        Role::Connecting => 0,
        Role::Accepting => CALL_FROM_ACCEPTING,
    }
}

/// How far a call of ours has come.
#[derive(Debug)]
pub(crate) enum OutState {
    /// It waits to be sent.
    Queued(OutCall),
    /// It was put into a SEND.
    Posted,
    /// It was answered, and the answer's pieces are being fetched.
    Fetching(TransferId),
}

/// A call of ours.
#[derive(Debug)]
pub(crate) struct OutSlot {
    /// The owner's name for it.
    pub token: u64,
    pub deadline: Option<Time>,
    /// Its id on the wire; 0 until it is posted.
    pub wire: u64,
    pub state: OutState,
}

/// The calls that this side began.
///
/// Ids on the wire only grow in the order of the REQUESTs, and an urgent call may overtake others: so a
/// call has its id on the wire when it is posted, a count of posted calls over the slot of its table key.
#[derive(Debug)]
pub(crate) struct Outgoing {
    table: Table<OutSlot>,
    bit: u64,
    /// Calls posted so far.
    posted: u64,
}

impl Outgoing {
    pub(crate) fn new(role: Role, max: u32) -> Self {
        Self { table: Table::new(max), bit: initiator_bit(role), posted: 0 }
    }

    pub(crate) fn len(&self) -> u32 {
        self.table.len()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.table.is_full()
    }

    /// Whether an id on the wire is one that this side could have given.
    pub(crate) fn is_ours(&self, wire: u64) -> bool {
        wire & CALL_FROM_ACCEPTING == self.bit
    }

    #[expect(clippy::result_large_err, reason = "the call goes back where it came from, unboxed")]
    pub(crate) fn insert(&mut self, token: u64, call: OutCall) -> Result<CallId, OutCall> {
        let deadline = call.deadline;
        let slot = OutSlot { token, deadline, wire: 0, state: OutState::Queued(call) };
        match self.table.insert(slot) {
            Ok(key) => Ok(CallId(key | self.bit)),
            Err(OutSlot { state: OutState::Queued(call), .. }) => Err(call),
            Err(_) => unreachable!("the slot that comes back is the one given"),
        }
    }

    pub(crate) fn get_mut(&mut self, id: CallId) -> Option<&mut OutSlot> {
        let ours = self.is_ours(id.0);
        self.table.get_mut(id.key()).filter(|_| ours)
    }

    pub(crate) fn get(&self, id: CallId) -> Option<&OutSlot> {
        self.table.get(id.key()).filter(|_| self.is_ours(id.0))
    }

    /// The id on the wire that the call will have if it is posted next: above all before it.
    pub(crate) fn next_wire(&self, id: CallId) -> u64 {
        wire_id(self.posted + 1, id.slot()) | self.bit
    }

    /// The call was put into a SEND, with its [`next_wire`](Self::next_wire).
    pub(crate) fn post(&mut self, id: CallId) {
        let wire = self.next_wire(id);
        if let Some(slot) = self.get_mut(id) {
            (slot.wire, slot.state) = (wire, OutState::Posted);
            self.posted += 1;
        }
    }

    /// The call with this id on the wire, if it waits for its answer.
    pub(crate) fn waiting(&self, wire: u64) -> Option<CallId> {
        let id = CallId(self.table.key_of_slot(CallId(wire).slot())? | self.bit);
        let slot = self.get(id)?;
        (slot.wire == wire && matches!(slot.state, OutState::Posted)).then_some(id)
    }

    pub(crate) fn is_queued(&self, id: CallId) -> bool {
        self.get(id).is_some_and(|slot| matches!(slot.state, OutState::Queued(_)))
    }

    pub(crate) fn remove(&mut self, id: CallId) -> Option<OutSlot> {
        if !self.is_ours(id.0) {
            return None;
        }
        self.table.remove(id.key())
    }

    /// Takes a call out of which nothing is needed any more but its token.
    pub(crate) fn finish(&mut self, id: CallId) -> Option<u64> {
        let token = self.get(id)?.token;
        self.table.discard(id.key()).then_some(token)
    }

    /// All of them, oldest first.
    pub(crate) fn ids(&self) -> Vec<CallId> {
        self.table.keys().into_iter().map(|key| CallId(key | self.bit)).collect()
    }
}

/// How far a call of the peer has come.
#[derive(Debug)]
pub(crate) enum InState {
    /// Its request's pieces are being fetched; nobody knows of it yet.
    Fetching(TransferId),
    /// It was announced.
    Running,
    /// It was announced and then cancelled; its handler has not ended yet.
    Cancelled,
    /// Its answer waits to be sent.
    Answered(OutAnswer),
}

/// A call of the peer.
#[derive(Debug)]
pub(crate) struct InSlot {
    /// Its id on the wire.
    pub wire: u64,
    /// Its answer passes others.
    pub urgent: bool,
    pub state: InState,
}

/// The calls that the peer began. Their ids here are of our own making, so that no choice of ids by
/// the peer makes finding one slow; on the wire they have the peer's.
#[derive(Debug)]
pub(crate) struct Incoming {
    table: Table<InSlot>,
    /// The peer's initiator bit.
    bit: u64,
    /// The peer's last id.
    last: u64,
    /// Where the call whose id on the wire has these low bits probably is: a peer that numbers its
    /// calls as we do is always right here.
    hints: Vec<u64>,
}

impl Incoming {
    pub(crate) fn new(role: Role, max: u32) -> Self {
        Self {
            table: Table::new(max),
            bit: initiator_bit(role) ^ CALL_FROM_ACCEPTING,
            last: 0,
            hints: Vec::new(),
        }
    }

    pub(crate) fn len(&self) -> u32 {
        self.table.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.table.is_full()
    }

    /// Whether an id on the wire is one that the peer may give.
    pub(crate) fn is_theirs(&self, wire: u64) -> bool {
        wire & CALL_FROM_ACCEPTING == self.bit
    }

    /// The peer's last id, 0 if there is none.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// Takes the id of a new call; false if it is not above the last one.
    pub(crate) fn advance(&mut self, wire: u64) -> bool {
        let above = wire > self.last && wire != self.bit;
        if above {
            self.last = wire;
        }
        above
    }

    pub(crate) fn insert(&mut self, wire: u64, urgent: bool, state: InState) -> Option<CallId> {
        let key = self.table.insert(InSlot { wire, urgent, state }).ok()?;
        // As many hints as there are slots, to the next power of two: at most 65,536.
        let slots = (CallId(key).slot() + 1).next_power_of_two();
        if self.hints.len() < slots {
            self.hints.resize(slots, 0);
        }
        let hint = self.hint_of(wire);
        if let Some(place) = self.hints.get_mut(hint) {
            *place = key;
        }
        Some(CallId(key | self.bit))
    }

    /// The call with this id on the wire.
    pub(crate) fn find(&self, wire: u64) -> Option<CallId> {
        let is_it = |key: &u64| self.table.get(*key).is_some_and(|slot| slot.wire == wire);
        let hinted = self.hints.get(self.hint_of(wire)).copied().filter(is_it);
        let key = hinted.or_else(|| {
            self.table.iter().find(|(_, slot)| slot.wire == wire).map(|(key, _)| key)
        })?;
        Some(CallId(key | self.bit))
    }

    pub(crate) fn get(&self, id: CallId) -> Option<&InSlot> {
        self.table.get(id.key()).filter(|_| self.is_theirs(id.0))
    }

    pub(crate) fn get_mut(&mut self, id: CallId) -> Option<&mut InSlot> {
        let theirs = self.is_theirs(id.0);
        self.table.get_mut(id.key()).filter(|_| theirs)
    }

    pub(crate) fn is_answered(&self, id: CallId) -> bool {
        self.get(id).is_some_and(|slot| matches!(slot.state, InState::Answered(_)))
    }

    pub(crate) fn remove(&mut self, id: CallId) -> Option<InSlot> {
        if !self.is_theirs(id.0) {
            return None;
        }
        self.table.remove(id.key())
    }

    /// The same for a call of which nothing is needed any more.
    pub(crate) fn discard(&mut self, id: CallId) {
        if self.is_theirs(id.0) {
            self.table.discard(id.key());
        }
    }

    /// All of them, oldest first.
    pub(crate) fn ids(&self) -> Vec<CallId> {
        self.table.keys().into_iter().map(|key| CallId(key | self.bit)).collect()
    }

    fn hint_of(&self, wire: u64) -> usize {
        CallId(wire).slot() & self.hints.len().wrapping_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_the_wrong_side_find_nothing() {
        let mut calls = Outgoing::new(Role::Accepting, 4);
        let call = OutCall {
            method: "a/b",
            deadline: None,
            metadata: bytes::Bytes::new(),
            priority: 0,
            body: super::super::OutBody::default(),
        };
        let id = calls.insert(1, call).unwrap();
        assert!(calls.is_queued(id));
        let other = CallId(id.key());
        assert!(calls.get(other).is_none() && calls.remove(other).is_none());
        assert!(calls.remove(id).is_some());
    }

    #[test]
    fn ids_on_the_wire_grow_in_the_order_of_posting_and_find_their_call_alone() {
        let mut calls = Outgoing::new(Role::Accepting, 4);
        let call = || OutCall {
            method: "a/b",
            deadline: None,
            metadata: bytes::Bytes::new(),
            priority: 0,
            body: super::super::OutBody::default(),
        };
        let (early, late) = (calls.insert(1, call()).unwrap(), calls.insert(2, call()).unwrap());
        let [first, second] = [late, early].map(|call| {
            let wire = calls.next_wire(call);
            calls.post(call);
            wire
        });
        assert!(second > first && calls.is_ours(first) && calls.is_ours(second));
        assert_eq!((calls.waiting(first), calls.waiting(second)), (Some(late), Some(early)));
        calls.remove(late);
        let again = calls.insert(3, call()).unwrap();
        assert_eq!((again.slot(), calls.waiting(first)), (late.slot(), None));
        assert!(calls.next_wire(again) > second);
    }

    #[test]
    fn calls_are_found_by_wire_id_whatever_ids_the_peer_chooses() {
        let mut calls = Incoming::new(Role::Accepting, 64);
        // All with the same low bits, so the hints are of no use.
        let wires: Vec<u64> = (1..=40).map(|n| n << 20).collect();
        let ids: Vec<_> =
            wires.iter().map(|w| calls.insert(*w, false, InState::Running).unwrap()).collect();
        for (wire, id) in wires.iter().zip(&ids) {
            assert_eq!(calls.find(*wire), Some(*id));
        }
        calls.remove(ids[3]);
        assert_eq!((calls.find(wires[3]), calls.find(5)), (None, None));
        assert!(calls.advance(7) && !calls.advance(7) && !calls.advance(6) && calls.advance(8));
    }
}
