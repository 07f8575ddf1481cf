use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use super::device::Shared;
use super::failing::Verb;
use super::rule::{Rule, Rules};
use super::table::Id;
use crate::Time;
use crate::verbs::{Cq, VerbsError, Wc};

/// A completion queue in the device's tables.
pub(super) struct CqState {
    ring: VecDeque<Wc>,
    cqe: u32,
    armed: bool,
    events: u32,
    pub(super) overrun: bool,
    /// QPs made with it.
    pub(super) users: u32,
}

/// What adding a completion did.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Pushed {
    Quiet,
    /// It was armed: the completion channel has an event.
    Announced,
    /// It is full: lost, with every QP on it.
    Overrun,
}

impl CqState {
    pub(super) fn new(cqe: u32) -> Self {
        let ring = VecDeque::with_capacity(cqe as usize);
        Self { ring, cqe, armed: false, events: 0, overrun: false, users: 0 }
    }

    pub(super) fn push(&mut self, rules: Rules, wc: Wc) -> Pushed {
        if self.overrun {
            return Pushed::Quiet;
        }
        if !rules.hold(Rule::CqOverrun, self.ring.len() < self.cqe as usize) {
            self.overrun = true;
            self.announce(rules);
            return Pushed::Overrun;
        }
        self.ring.push_back(wc);
        if self.announce(rules) { Pushed::Announced } else { Pushed::Quiet }
    }

    fn announce(&mut self, rules: Rules) -> bool {
        let armed = self.armed;
        self.armed &= rules.hold(Rule::ArmOnce, false);
        self.events += u32::from(armed);
        armed
    }

    pub(super) fn len(&self) -> usize {
        self.ring.len()
    }

    pub(super) fn take(&mut self, wcs: &mut [Wc]) -> Result<usize, VerbsError> {
        if self.overrun {
            return Err(VerbsError::CqOverrun);
        }
        let count = wcs.len().min(self.ring.len());
        for (wc, done) in wcs.iter_mut().zip(self.ring.drain(..count)) {
            *wc = done;
        }
        Ok(count)
    }

    pub(super) const fn arm(&mut self) {
        self.armed = true;
    }

    pub(super) const fn events(&self) -> u32 {
        self.events
    }

    pub(super) const fn take_events(&mut self) -> u32 {
        std::mem::replace(&mut self.events, 0)
    }
}

/// A completion queue of a software device. Polling it is what makes the device progress.
///
/// All CQs of one device share one descriptor: it is readable when any of them has an event, or
/// when a link has something that only a poll can take.
pub struct SoftCq {
    shared: Arc<Shared>,
    id: Id,
}

/// The name of a [`SoftCq`].
#[derive(Clone)]
pub struct SoftCqRef {
    pub(super) guid: u64,
    pub(super) id: Id,
}

impl SoftCq {
    pub(super) const fn new(shared: Arc<Shared>, id: Id) -> Self {
        Self { shared, id }
    }

    pub(super) fn name(&self) -> SoftCqRef {
        SoftCqRef { guid: self.shared.guid, id: self.id }
    }
}

impl Cq for SoftCq {
    fn poll(&mut self, wcs: &mut [Wc]) -> Result<usize, VerbsError> {
        let mut state = self.shared.lock();
        if state.core.env.cqs.get(self.id).is_some_and(|cq| cq.len() < wcs.len()) {
            state.progress();
        }
        match state.core.env.cqs.get_mut(self.id) {
            Some(cq) => cq.take(wcs),
            None => Ok(0),
        }
    }

    fn arm(&mut self) -> Result<(), VerbsError> {
        self.shared.failing.check(Verb::Arm, "arming a completion queue")?;
        let mut state = self.shared.lock();
        state.prepare_sleep();
        match state.core.env.cqs.get_mut(self.id) {
            Some(cq) if cq.overrun => Err(VerbsError::CqOverrun),
            Some(cq) => {
                cq.arm();
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn drain_events(&mut self) -> Result<u32, VerbsError> {
        let mut state = self.shared.lock();
        Ok(state.core.env.take_cq_events(self.id))
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.shared.signals.epoll.as_fd()
    }

    fn next_deadline(&self) -> Option<Time> {
        self.shared.lock().next_deadline()
    }
}

impl Drop for SoftCq {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        let env = &mut state.core.env;
        let unused = env.cqs.get(self.id).is_none_or(|cq| cq.users == 0);
        if !env.rules.hold(Rule::DestroyOrder, unused) {
            super::device::refuse_destroy("completion queue", "queue pairs still use it");
        } else {
            env.cqs.remove(self.id);
        }
    }
}
