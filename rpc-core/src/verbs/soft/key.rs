use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::dma::Span;
use super::random::Random;
use super::rule::{Rule, Rules};
use super::table::Id;
use crate::verbs::{Access, Region, Sge, VerbsError};

/// Regions and windows one device can hold: half of the 24-bit index space, so that a free random
/// index is found in two tries on average.
const KEYS_MAX: u64 = 1 << 23;

/// What a key names.
pub(super) enum Entry {
    Mr(MrState),
    Mw(MwState),
}

/// A registered region.
pub(super) struct MrState {
    pub(super) region: Region,
    pub(super) pd: Id,
    pub(super) access: Access,
    pub(super) lkey: u32,
    pub(super) rkey: u32,
    /// Windows bound over it now; it cannot be deregistered before they are gone.
    pub(super) windows: u32,
}

/// A type-2 memory window.
pub(super) struct MwState {
    pub(super) pd: Id,
    /// The key of the last bind, or of the allocation.
    pub(super) key: u32,
    pub(super) binding: Option<Binding>,
}

/// What a bound window opens, and to whom.
#[derive(Clone, Copy)]
pub(super) struct Binding {
    pub(super) qp: Id,
    /// The region's index.
    pub(super) mr: u32,
    pub(super) addr: u64,
    pub(super) len: u64,
}

/// Why a bind or an invalidation was refused. The caller turns it into a completion status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refused;

/// All keys of a device: a random 24-bit index, and an 8-bit tag.
pub(super) struct KeyTable {
    entries: HashMap<u32, Entry, BuildHasherDefault<KeyHasher>>,
    pub(super) mrs: u32,
    pub(super) mr_bytes: u64,
    pub(super) mws: u32,
    pub(super) mws_bound: u32,
}

const fn index_of(key: u32) -> u32 {
    key >> 8
}

impl KeyTable {
    pub(super) fn new() -> Self {
        Self { entries: HashMap::default(), mrs: 0, mr_bytes: 0, mws: 0, mws_bound: 0 }
    }

    fn free_key(&self, random: &mut Random) -> Result<u32, VerbsError> {
        if self.entries.len() as u64 >= KEYS_MAX {
            return Err(VerbsError::Limit { what: "regions and windows", max: KEYS_MAX });
        }
        loop {
            let key = random.next()? as u32;
            // Index 0 stays free: a zeroed key names nothing.
            if index_of(key) != 0 && !self.entries.contains_key(&index_of(key)) {
                return Ok(key);
            }
        }
    }

    /// Registers a region; returns its lkey and rkey. They differ, so that one used for the other
    /// is found out.
    pub(super) fn add_mr(
        &mut self,
        random: &mut Random,
        pd: Id,
        region: Region,
        access: Access,
    ) -> Result<(u32, u32), VerbsError> {
        let lkey = self.free_key(random)?;
        let rkey = lkey ^ 0x80;
        let mr = MrState { region, pd, access, lkey, rkey, windows: 0 };
        self.entries.insert(index_of(lkey), Entry::Mr(mr));
        self.mrs += 1;
        self.mr_bytes += region.len() as u64;
        Ok((lkey, rkey))
    }

    /// Deregisters a region; refused while windows are bound over it.
    pub(super) fn remove_mr(&mut self, lkey: u32) -> Result<Id, Refused> {
        match self.entries.get(&index_of(lkey)) {
            Some(Entry::Mr(mr)) if mr.lkey == lkey && mr.windows == 0 => {
                let (pd, bytes) = (mr.pd, mr.region.len() as u64);
                self.entries.remove(&index_of(lkey));
                self.mrs -= 1;
                self.mr_bytes -= bytes;
                Ok(pd)
            }
            _ => Err(Refused),
        }
    }

    /// Allocates a window; returns its key, which opens nothing yet.
    pub(super) fn add_mw(&mut self, random: &mut Random, pd: Id) -> Result<u32, VerbsError> {
        let key = self.free_key(random)?;
        self.entries.insert(index_of(key), Entry::Mw(MwState { pd, key, binding: None }));
        self.mws += 1;
        Ok(key)
    }

    /// Deallocates the window that has this key's index, bound or not.
    pub(super) fn remove_mw(&mut self, key: u32) -> Option<Id> {
        if !matches!(self.entries.get(&index_of(key)), Some(Entry::Mw(_))) {
            return None;
        }
        let Some(Entry::Mw(mw)) = self.entries.remove(&index_of(key)) else { return None };
        self.mws -= 1;
        if let Some(binding) = mw.binding {
            self.unbind(binding);
        }
        Some(mw.pd)
    }

    fn unbind(&mut self, binding: Binding) {
        self.mws_bound -= 1;
        if let Some(Entry::Mr(mr)) = self.entries.get_mut(&binding.mr) {
            mr.windows -= 1;
        }
    }

    fn mr(&self, lkey: u32) -> Option<&MrState> {
        match self.entries.get(&index_of(lkey)) {
            Some(Entry::Mr(mr)) if mr.lkey == lkey => Some(mr),
            _ => None,
        }
    }

    /// The memory of a local entry, if its key, domain, bounds and rights are in order.
    pub(super) fn local(&self, rules: Rules, pd: Id, sge: Sge, write: bool) -> Option<Span> {
        let mr = self.mr(sge.lkey.0)?;
        let right = !write || mr.access.has(Access::LOCAL_WRITE);
        if !rules.hold(Rule::LocalPd, mr.pd == pd) || !rules.hold(Rule::LocalWrite, right) {
            return None;
        }
        Span::within(&mr.region, sge.addr, sge.len.into())
    }

    /// Binds the window of `key`'s index, which takes `key` as its new key.
    pub(super) fn bind(
        &mut self,
        rules: Rules,
        qp_pd: Id,
        key: u32,
        lkey: u32,
        to: Binding,
    ) -> Result<(), Refused> {
        let mr = self.mr(lkey).ok_or(Refused)?;
        let inside = to.len > 0 && Span::within(&mr.region, to.addr, to.len).is_some();
        let (mr_pd, may_bind) = (mr.pd, mr.access.has(Access::MW_BIND));
        let Some(Entry::Mw(mw)) = self.entries.get_mut(&index_of(key)) else {
            return Err(Refused);
        };
        let same_pd = mw.pd == qp_pd && mr_pd == qp_pd;
        let kept = rules.hold(Rule::WindowFree, mw.binding.is_none())
            && rules.hold(Rule::WindowPd, same_pd)
            && rules.hold(Rule::WindowRight, may_bind)
            && rules.hold(Rule::WindowRange, inside)
            && mw.key != key;
        if !kept {
            return Err(Refused);
        }
        mw.key = key;
        let before = mw.binding.replace(to);
        self.mws_bound += 1;
        if let Some(Entry::Mr(mr)) = self.entries.get_mut(&to.mr) {
            mr.windows += 1;
        }
        if let Some(before) = before {
            self.unbind(before);
        }
        Ok(())
    }

    /// Closes a bound window: `key` must be its present key, bound on `qp`.
    pub(super) fn invalidate(
        &mut self,
        rules: Rules,
        rule: Rule,
        qp: Id,
        key: u32,
    ) -> Result<(), Refused> {
        let Some(Entry::Mw(mw)) = self.entries.get_mut(&index_of(key)) else {
            return Err(Refused);
        };
        let bound_here = mw.key == key && mw.binding.is_some_and(|binding| binding.qp == qp);
        if !rules.hold(rule, bound_here) {
            return Err(Refused);
        }
        if let Some(binding) = mw.binding.take() {
            self.unbind(binding);
        }
        Ok(())
    }

    /// The memory a peer asks for by a remote key through `qp`, if everything allows it.
    pub(super) fn remote(
        &self,
        rules: Rules,
        (qp, qp_pd): (Id, Id),
        key: u32,
        addr: u64,
        len: u64,
    ) -> Option<Span> {
        match self.entries.get(&index_of(key))? {
            Entry::Mr(mr) => {
                let kept = rules.hold(Rule::KeyTag, mr.rkey == key)
                    && rules.hold(Rule::RemoteReadRight, mr.access.has(Access::REMOTE_READ))
                    && rules.hold(Rule::RemotePd, mr.pd == qp_pd);
                if kept { Span::within(&mr.region, addr, len) } else { None }
            }
            Entry::Mw(mw) => {
                let binding = mw.binding?;
                let end = addr.checked_add(len)?;
                let inside =
                    addr >= binding.addr && end <= binding.addr.saturating_add(binding.len);
                let kept = rules.hold(Rule::KeyTag, mw.key == key)
                    && rules.hold(Rule::WindowQp, binding.qp == qp)
                    && rules.hold(Rule::RemoteBounds, inside);
                let Some(Entry::Mr(mr)) = self.entries.get(&binding.mr) else { return None };
                if kept { Span::within(&mr.region, addr, len) } else { None }
            }
        }
    }

    /// Whether `key` opens anything to `qp` at this moment.
    pub(super) fn is_open(&self, qp: Id, key: u32) -> bool {
        match self.entries.get(&index_of(key)) {
            Some(Entry::Mr(mr)) => mr.rkey == key,
            Some(Entry::Mw(mw)) => mw.key == key && mw.binding.is_some_and(|to| to.qp == qp),
            None => false,
        }
    }

    /// The index of the region `lkey` names, for a [`Binding`].
    pub(super) const fn mr_index(lkey: u32) -> u32 {
        index_of(lkey)
    }
}

/// Keys are random already, and peers cannot choose which are inserted: one multiplication spreads
/// them well enough.
#[derive(Default)]
pub(super) struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32((*byte).into());
        }
    }

    fn write_u32(&mut self, value: u32) {
        let mixed = (self.0 ^ u64::from(value)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }
}
