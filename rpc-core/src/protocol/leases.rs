use super::ids::{CallId, LeaseId};
use super::table::{SLOT_BITS, Table};

/// What a lease is attached to while its message waits to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// A request of ours.
    Outgoing(CallId),
    /// An answer of ours.
    Incoming(CallId),
}

/// How far a lease has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaseState {
    /// Nothing uses it yet.
    Reserved,
    /// Its message waits to be sent.
    Queued(Side),
    /// Its message was sent.
    Advertised,
    /// It is over; its windows are being closed.
    Revoking,
}

#[derive(Debug)]
struct Lease {
    ranges: u8,
    bytes: u64,
    state: LeaseState,
}

/// What a RELEASE means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Released {
    /// This lease is over.
    Over(LeaseId),
    /// It was one of ours and is over already.
    Late,
    /// It never was one that the peer was told of.
    Unknown,
}

/// The leases of one connection.
#[derive(Debug)]
pub(crate) struct Leases {
    table: Table<Lease>,
    bytes: u64,
    bytes_max: u64,
    seed: u64,
}

/// Bits of a lease id below its check bits: slot and the low 32 bits of the table's counter.
const NAME_BITS: u32 = SLOT_BITS + 32;
const NAME_MASK: u64 = (1 << NAME_BITS) - 1;

impl Leases {
    pub(crate) fn new(max: u32, bytes_max: u64, seed: u64) -> Self {
        Self { table: Table::new(max), bytes: 0, bytes_max, seed }
    }

    pub(crate) fn len(&self) -> u32 {
        self.table.len()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn reserve(&mut self, ranges: u8, bytes: u64) -> Option<LeaseId> {
        let total = self.bytes.checked_add(bytes).filter(|total| *total <= self.bytes_max)?;
        let lease = Lease { ranges, bytes, state: LeaseState::Reserved };
        let key = self.table.insert(lease).ok()?;
        self.bytes = total;
        let name = key & NAME_MASK;
        Some(LeaseId(name | u64::from(self.check_bits(name)) << NAME_BITS))
    }

    pub(crate) fn state(&self, id: LeaseId) -> Option<LeaseState> {
        self.table.get(self.key(id)?).map(|lease| lease.state)
    }

    /// Windows that its SEND binds.
    pub(crate) fn ranges(&self, id: LeaseId) -> u32 {
        self.key(id).and_then(|key| self.table.get(key)).map_or(0, |lease| u32::from(lease.ranges))
    }

    /// Moves a lease on, if it is in state `from`.
    pub(crate) fn step(&mut self, id: LeaseId, from: LeaseState, to: LeaseState) -> bool {
        let Some(lease) = self.key(id).and_then(|key| self.table.get_mut(key)) else {
            return false;
        };
        let fits = lease.state == from;
        if fits {
            lease.state = to;
        }
        fits
    }

    /// Begins the end of a lease, whatever it was doing; false if it had begun, or is no lease.
    pub(crate) fn revoke(&mut self, id: LeaseId) -> bool {
        match self.key(id).and_then(|key| self.table.get_mut(key)) {
            Some(lease) if lease.state != LeaseState::Revoking => {
                lease.state = LeaseState::Revoking;
                true
            }
            _ => false,
        }
    }

    /// A RELEASE came with this number.
    pub(crate) fn release(&mut self, number: u64) -> Released {
        if number >> NAME_BITS != u64::from(self.check_bits(number & NAME_MASK)) {
            return Released::Unknown;
        }
        let id = LeaseId(number);
        match self.state(id) {
            Some(LeaseState::Advertised) => {
                self.revoke(id);
                Released::Over(id)
            }
            Some(LeaseState::Reserved | LeaseState::Queued(_)) => Released::Unknown,
            Some(LeaseState::Revoking) | None => Released::Late,
        }
    }

    /// The end of a lease; false if it is still in use, or is no lease.
    pub(crate) fn remove(&mut self, id: LeaseId) -> bool {
        let ended = matches!(self.state(id), Some(LeaseState::Revoking | LeaseState::Reserved));
        let lease = self.key(id).filter(|_| ended).and_then(|key| self.table.remove(key));
        self.bytes -= lease.as_ref().map_or(0, |lease| lease.bytes);
        lease.is_some()
    }

    /// The connection is gone, and all of them with it.
    pub(crate) fn clear(&mut self) {
        for key in self.table.keys() {
            self.table.remove(key);
        }
        self.bytes = 0;
    }

    /// The table's key: the counter's upper bits are not in the id, those of the slot's entry are.
    fn key(&self, id: LeaseId) -> Option<u64> {
        let key = self.table.key_of_slot(id.slot())?;
        let known = id.0 >> NAME_BITS == u64::from(self.check_bits(id.0 & NAME_MASK));
        (known && key & NAME_MASK == id.0 & NAME_MASK).then_some(key)
    }

    /// 16 bits that follow from the rest of the id and from the seed.
    fn check_bits(&self, name: u64) -> u16 {
        // The finalizer of splitmix64: each bit of the input changes half of the output. This keeps
        // a confused peer out; what keeps a hostile one out is that its RELEASE can only end leases
        // of its own connection, and that guesses are counted.
        let mut x = name ^ self.seed;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^= self.seed.rotate_left(32);
        x = (x ^ (x >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (x >> 48) as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advertised(leases: &mut Leases) -> LeaseId {
        let id = leases.reserve(1, 10).unwrap();
        assert!(leases.step(id, LeaseState::Reserved, LeaseState::Advertised));
        id
    }

    #[test]
    fn both_caps_hold_and_count_until_the_windows_are_closed() {
        let mut leases = Leases::new(2, 100, 7);
        assert_eq!(leases.reserve(1, 101), None);
        assert_eq!(leases.reserve(1, u64::MAX), None);
        let a = leases.reserve(1, 60).unwrap();
        assert_eq!(leases.reserve(1, 41), None);
        let b = leases.reserve(1, 40).unwrap();
        assert_eq!(leases.reserve(1, 0), None);
        assert!(leases.revoke(a) && !leases.revoke(a));
        assert_eq!((leases.len(), leases.bytes()), (2, 100));
        assert!(leases.remove(a) && !leases.remove(a));
        assert!(leases.remove(b), "a lease that was never used just ends");
        assert_eq!((leases.len(), leases.bytes()), (0, 0));
    }

    #[test]
    fn a_release_ends_a_lease_once_and_late_ones_are_told_from_made_up_ones() {
        let mut leases = Leases::new(4, 1000, 0xdead_beef_0123_4567);
        let a = advertised(&mut leases);
        assert_eq!(leases.release(a.0), Released::Over(a));
        assert_eq!(leases.release(a.0), Released::Late);
        assert!(leases.remove(a));
        let b = advertised(&mut leases);
        assert_eq!(b.slot(), a.slot());
        assert_eq!(leases.release(a.0), Released::Late, "the slot's next lease is another");
        let c = leases.reserve(1, 1).unwrap();
        assert_eq!(leases.release(c.0), Released::Unknown, "the peer was not told of it");
        let unknown = (1..=64).filter(|n| leases.release(b.0 ^ (n << 16)) == Released::Unknown);
        assert!(unknown.count() >= 62, "16 check bits");
        assert_eq!(leases.state(b), Some(LeaseState::Advertised));
        assert!(!leases.remove(b), "the peer may be reading");
    }
}
