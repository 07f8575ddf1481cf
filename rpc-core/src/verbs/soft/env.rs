use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::event::epoll;

use super::config::{Clock, SoftConfig};
use super::cq::{CqState, Pushed};
use super::key::KeyTable;
use super::qp::QpParts;
use super::random::Random;
use super::rule::Rules;
use super::signal::Signal;
use super::srq::SrqState;
use super::table::{Id, Table};
use crate::Time;
use crate::verbs::{AsyncEvent, DeviceCounters, VerbsError, Wc};

/// Asynchronous events that wait at most. The oldest are kept: the first error is the cause.
const EVENTS_MAX: usize = 1024;

/// The descriptors of a device.
pub(super) struct Signals {
    /// Every link's socket, the listener, `wake` and `completions`: the completion channel.
    pub(super) epoll: OwnedFd,
    /// A memory link has bytes, or room, for a device that sleeps. Shared with the links' far ends.
    pub(super) wake: Arc<Signal>,
    /// An armed CQ has an event.
    pub(super) completions: Signal,
    /// Asynchronous events wait.
    pub(super) events: Signal,
}

/// epoll's number for [`Signals::wake`] and [`Signals::completions`], which need no reading there.
pub(super) const TOKEN_SIGNAL: u64 = u64::MAX;

impl Signals {
    pub(super) fn new() -> Result<Self, VerbsError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|error| VerbsError::System { operation: "epoll", source: error.into() })?;
        let signals = Self {
            epoll,
            wake: Arc::new(Signal::new()?),
            completions: Signal::new()?,
            events: Signal::new()?,
        };
        for signal in [&*signals.wake, &signals.completions] {
            // Miri knows epoll only with edges; a device that nobody sleeps on needs none.
            if cfg!(miri) {
                break;
            }
            let token = epoll::EventData::new_u64(TOKEN_SIGNAL);
            epoll::add(&signals.epoll, signal, token, epoll::EventFlags::IN)
                .map_err(|error| VerbsError::System { operation: "epoll", source: error.into() })?;
        }
        Ok(signals)
    }
}

/// A protection domain.
pub(super) struct PdState {
    /// Regions, windows, SRQs and QPs in it.
    pub(super) users: u32,
}

/// Everything of a device but its QPs and links: what a QP's work needs at hand.
pub(super) struct Env {
    pub(super) config: SoftConfig,
    pub(super) rules: Rules,
    pub(super) random: Random,
    pub(super) signals: Arc<Signals>,
    pub(super) pds: Table<PdState>,
    pub(super) keys: KeyTable,
    pub(super) cqs: Table<CqState>,
    pub(super) srqs: Table<SrqState>,
    pub(super) counters: DeviceCounters,
    /// Packets that were dropped: for no QP, out of order, from another device, or late.
    pub(super) packets_dropped: u64,
    events: VecDeque<AsyncEvent>,
    /// QPs that have something to put on their link.
    pub(super) wants: Vec<Id>,
    /// QPs that owe an acknowledgement which should not wait long.
    pub(super) acks: Vec<Id>,
    /// QPs whose retry timer ran out.
    pub(super) overdue: Vec<Id>,
    /// CQs that overran since the last look.
    pub(super) lost_cqs: Vec<Id>,
    /// Memory may change hands: what a link still lends of it must be copied before the verb ends.
    pub(super) settle: bool,
}

impl Env {
    pub(super) fn new(config: SoftConfig, random: Random, signals: Arc<Signals>) -> Self {
        Self {
            config,
            rules: Rules::default(),
            random,
            signals,
            pds: Table::new(),
            keys: KeyTable::new(),
            cqs: Table::new(),
            srqs: Table::new(),
            counters: DeviceCounters::default(),
            packets_dropped: 0,
            events: VecDeque::new(),
            wants: Vec::new(),
            acks: Vec::new(),
            overdue: Vec::new(),
            lost_cqs: Vec::new(),
            settle: false,
        }
    }

    /// The time, for a new timer.
    pub(super) fn now(&self) -> Time {
        let clock: &Clock = &self.config.clock;
        clock()
    }

    /// Adds a completion to a CQ.
    pub(super) fn complete(&mut self, cq: Id, wc: Wc) {
        let Some(queue) = self.cqs.get_mut(cq) else { return };
        match queue.push(self.rules, wc) {
            Pushed::Quiet => {}
            Pushed::Announced => self.signals.completions.raise(),
            Pushed::Overrun => {
                self.lost_cqs.push(cq);
                self.event(AsyncEvent::CqError);
                self.signals.completions.raise();
            }
        }
    }

    /// Takes a CQ's events off the completion channel, which stays readable for those of others.
    pub(super) fn take_cq_events(&mut self, cq: Id) -> u32 {
        let Some(queue) = self.cqs.get_mut(cq) else { return 0 };
        let count = queue.take_events();
        self.signals.completions.clear();
        if self.cqs.iter().any(|(_, other)| other.events() > 0) {
            self.signals.completions.raise();
        }
        count
    }

    /// Adds an asynchronous event.
    pub(super) fn event(&mut self, event: AsyncEvent) {
        if self.events.len() < EVENTS_MAX {
            self.events.push_back(event);
            self.signals.events.raise();
        }
    }

    /// Takes the oldest asynchronous event.
    pub(super) fn take_event(&mut self) -> Option<AsyncEvent> {
        let event = self.events.pop_front();
        if self.events.is_empty() {
            self.signals.events.clear();
        }
        event
    }

    /// Takes a share of a protection domain for a new object.
    pub(super) fn hold_pd(&mut self, pd: Id) -> Result<(), VerbsError> {
        match self.pds.get_mut(pd) {
            Some(state) => {
                state.users += 1;
                Ok(())
            }
            None => Err(VerbsError::State {
                operation: "using a protection domain",
                why: "it belongs to another device",
            }),
        }
    }

    /// Counts a QP in or out at the queues it uses, which cannot be destroyed before it.
    pub(super) fn count_qp(&mut self, parts: &QpParts, change: i32) {
        for cq in [parts.send_cq, parts.recv_cq] {
            if let Some(cq) = self.cqs.get_mut(cq) {
                cq.users = cq.users.saturating_add_signed(change);
            }
        }
        if let Some(srq) = self.srqs.get_mut(parts.srq) {
            srq.users = srq.users.saturating_add_signed(change);
        }
    }

    /// Gives that share back.
    pub(super) fn release_pd(&mut self, pd: Id) {
        if let Some(state) = self.pds.get_mut(pd) {
            state.users -= 1;
        }
    }
}
