use super::config::SGE_MAX;
use crate::verbs::{Lkey, Sge, VerbsError};

/// The entries of one request, in place.
#[derive(Clone, Copy)]
pub(super) struct SgeList {
    sges: [Sge; SGE_MAX],
    count: u8,
}

impl SgeList {
    pub(super) const EMPTY: Self = Self { sges: [Sge::new(0, 0, Lkey(0)); SGE_MAX], count: 0 };

    /// At most `max` entries, itself at most [`SGE_MAX`].
    pub(super) fn new(sges: &[Sge], max: u32) -> Result<Self, VerbsError> {
        if sges.len() > (max as usize).min(SGE_MAX) {
            return Err(VerbsError::Limit {
                what: "scatter entries of a request",
                max: max.into(),
            });
        }
        let mut list = Self::EMPTY;
        list.sges[..sges.len()].copy_from_slice(sges);
        list.count = sges.len() as u8;
        Ok(list)
    }

    pub(super) fn as_slice(&self) -> &[Sge] {
        &self.sges[..self.count as usize]
    }

    /// Bytes of all entries.
    pub(super) fn len(&self) -> u64 {
        self.as_slice().iter().map(|sge| u64::from(sge.len)).sum()
    }

    /// The entry that holds byte `offset` of the list, cut to what follows it.
    pub(super) fn at(&self, offset: u64) -> Option<Sge> {
        let mut skip = offset;
        for sge in self.as_slice() {
            if skip < u64::from(sge.len) {
                let rest = sge.len - skip as u32;
                return Some(Sge::new(sge.addr.checked_add(skip)?, rest, sge.lkey));
            }
            skip -= u64::from(sge.len);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offset_finds_its_entry() {
        let list = SgeList::new(
            &[Sge::new(100, 10, Lkey(1)), Sge::new(0, 0, Lkey(2)), Sge::new(200, 5, Lkey(3))],
            8,
        )
        .unwrap();
        assert_eq!(list.len(), 15);
        assert!(list.at(0) == Some(Sge::new(100, 10, Lkey(1))));
        assert!(list.at(9) == Some(Sge::new(109, 1, Lkey(1))));
        assert!(list.at(10) == Some(Sge::new(200, 5, Lkey(3))));
        assert!(list.at(15).is_none());
    }

    #[test]
    fn more_entries_than_asked_for_are_refused() {
        assert!(SgeList::new(&[Sge::new(0, 0, Lkey(0)); 3], 2).is_err());
        assert!(SgeList::new(&[Sge::new(0, 0, Lkey(0)); SGE_MAX + 1], 99).is_err());
    }
}
