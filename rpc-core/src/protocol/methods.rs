//! Method names get short ids on first use, each direction by itself.
//!
//! The caller numbers its methods 1, 2, 3 … in the order in which their names first travel; since
//! SENDs arrive in order, the other side needs to remember no more than how many it has seen. Id 0
//! is a method that has no short id: its name travels with every call.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::METHODS_MAX;
use super::violation::Violation;

/// The ids that we have given out.
#[derive(Debug)]
pub(crate) struct MethodsOut {
    ids: HashMap<Name, u32, BuildHasherDefault<PointerHasher>>,
    max: u32,
}

/// A static name, known by where it lies: two copies of one name get two ids, which does no harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Name(usize, usize);

impl std::hash::Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_usize(self.0);
    }
}

/// Spreads a pointer over the bits; names are ours, so nobody can aim for collisions.
#[derive(Default)]
struct PointerHasher(u64);

impl Hasher for PointerHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_usize(usize::from(*byte)));
    }

    fn write_usize(&mut self, n: usize) {
        self.0 = (self.0 ^ n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl MethodsOut {
    pub(crate) fn new(max: u32) -> Self {
        Self { ids: HashMap::default(), max: max.min(METHODS_MAX) }
    }

    /// The id to send, and whether the name must travel with it.
    pub(crate) fn id(&self, name: &'static str) -> (u32, bool) {
        match self.ids.get(&Name::of(name)) {
            Some(&id) => (id, false),
            None if (self.ids.len() as u32) < self.max => (self.ids.len() as u32 + 1, true),
            None => (0, true),
        }
    }

    /// A request with this name and id was put into a SEND.
    pub(crate) fn sent(&mut self, name: &'static str, id: u32) {
        if id != 0 {
            self.ids.insert(Name::of(name), id);
        }
    }
}

impl Name {
    fn of(name: &'static str) -> Self {
        Self(name.as_ptr().addr(), name.len())
    }
}

/// The ids that the peer has given out.
///
/// The name of an id travels once, with a call that may never be handed out: it may be refused, or
/// cancelled while its payloads are READ, and a smaller call of the same method may overtake it. So
/// the name waits here for the first call of its id that is.
#[derive(Debug, Default)]
pub(crate) struct MethodsIn {
    /// By id, from 1; `None` where the name was handed out. [`METHODS_MAX`] names at most, each no
    /// longer than a frame may carry.
    names: Vec<Option<Box<str>>>,
}

impl MethodsIn {
    /// Takes the id of a request, and its name if that came along.
    pub(crate) fn take(&mut self, id: u32, name: Option<&str>) -> Result<(), Violation> {
        let seen = self.names.len() as u32;
        match (id, name) {
            (0, Some(_)) => Ok(()),
            (1.., None) if id <= seen => Ok(()),
            (1..=METHODS_MAX, Some(name)) if id == seen + 1 => {
                self.names.push(Some(name.into()));
                Ok(())
            }
            _ => Err(Violation::Method(id)),
        }
    }

    /// The name of an id, for the first call of it that is handed out.
    pub(crate) fn first_name(&mut self, id: u32) -> Option<Box<str>> {
        self.names.get_mut(id.checked_sub(1)? as usize)?.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_travel_once_each_and_always_when_ids_are_used_up() {
        let mut methods = MethodsOut::new(2);
        let mut peer = MethodsIn::default();
        let expected = [("a", 1, true), ("b", 2, true), ("a", 1, false), ("c", 0, true)];
        for (name, id, named) in expected {
            assert_eq!(methods.id(name), (id, named));
            methods.sent(name, id);
            assert_eq!(peer.take(id, named.then_some(name)), Ok(()));
        }
        assert_eq!(methods.id("c"), (0, true));
    }

    #[test]
    fn an_id_never_introduced_or_introduced_wrongly_is_a_violation() {
        let mut peer = MethodsIn::default();
        for (id, name) in [(1, None), (0, None), (2, Some("a")), (u32::MAX, Some("a"))] {
            assert_eq!(peer.take(id, name), Err(Violation::Method(id)));
        }
        assert_eq!(peer.take(1, Some("a")), Ok(()));
        assert_eq!(peer.take(1, Some("a")), Err(Violation::Method(1)));
        for id in 2..=METHODS_MAX {
            assert_eq!(peer.take(id, Some("a")), Ok(()));
        }
        assert_eq!(peer.take(METHODS_MAX + 1, Some("a")), Err(Violation::Method(METHODS_MAX + 1)));
    }

    #[test]
    fn a_name_waits_for_the_first_call_of_its_id_that_is_handed_out() {
        let mut peer = MethodsIn::default();
        peer.take(1, Some("a")).unwrap();
        peer.take(2, Some("b")).unwrap();
        peer.take(1, None).unwrap();
        assert_eq!(peer.first_name(2).as_deref(), Some("b"));
        assert_eq!(peer.first_name(1).as_deref(), Some("a"));
        assert_eq!(
            (peer.first_name(1), peer.first_name(0), peer.first_name(3)),
            (None, None, None)
        );
    }
}
