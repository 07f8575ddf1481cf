use std::io::ErrorKind;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;

use rustix::event::{Timespec, epoll};

use super::core::Core;
use super::env::{Env, TOKEN_SIGNAL};
use super::link::{Link, Stream};
use super::newcomers::{Heard, Newcomers, TOKEN_HALF_OPEN, TOKEN_LISTENER};
use super::requester::PeerDevice;
use super::rx::Ended;
use super::table::{Id, Table};
use crate::Time;
use crate::verbs::VerbsError;

/// Bytes taken from one link in one poll, so that a fast peer does not keep the core from its
/// handlers: about 100 µs of copying.
const READ_BYTES_TURN: usize = 1 << 20;

/// Bytes given to one link in one poll, for the same reason.
const WRITE_BYTES_TURN: usize = 1 << 20;

/// What is read from links at once, before it goes to its place.
const STAGE_BYTES: usize = 64 << 10;

/// Sockets that epoll reports in one poll. The others come with the next.
const EVENTS_TURN: usize = 64;

/// With a single link, its socket is read without asking epoll; the listener is asked for only in
/// one poll of so many.
const LISTEN_EVERY: u32 = 64;

/// Links of one device: a device per process and core it talks to. One more takes the place of the
/// oldest that no QP uses.
const LINKS_MAX: u32 = 4096;

/// Polls after an arm that must ask epoll: the one that follows, and the one after the sleep.
const ASK_AFTER_ARM: u32 = 2;

/// Everything of a device, under one lock that each verb takes once.
pub(super) struct State {
    pub(super) guid: u64,
    pub(super) core: Core,
    pub(super) links: Table<Link>,
    mem: Vec<Id>,
    tcp: Vec<Id>,
    /// Links to pump before the verb ends.
    dirty: Vec<Id>,
    /// Links that owe acknowledgements.
    ack_links: Vec<Id>,
    ready: Vec<Id>,
    pub(super) newcomers: Newcomers,
    stage: Vec<u8>,
    polls: u32,
    /// Polls that must ask epoll, because the owner went to sleep.
    must_ask: u32,
}

impl State {
    pub(super) fn new(guid: u64, env: Env) -> Self {
        Self {
            guid,
            core: Core::new(env),
            links: Table::new(),
            mem: Vec::new(),
            tcp: Vec::new(),
            dirty: Vec::new(),
            ack_links: Vec::new(),
            ready: Vec::new(),
            newcomers: Newcomers::new(),
            stage: vec![0; STAGE_BYTES],
            polls: 0,
            must_ask: 0,
        }
    }

    /// Everything a device does by itself, in this order: acknowledgements that found no other
    /// packet to ride with, what came in, timers, what goes out.
    pub(super) fn progress(&mut self) {
        let last_before_sleep = self.must_ask == ASK_AFTER_ARM;
        self.core.env.signals.wake.clear();
        self.flush_acks();
        self.find_ready();
        while let Some(id) = self.ready.pop() {
            self.read_link(id);
        }
        let now = self.core.env.now();
        self.newcomers.on_time(&self.core.env.signals.epoll, now);
        self.core.fire_timers(now);
        if last_before_sleep {
            // What came since the arm used the wake-up that it asked for, and may have completed
            // nothing that keeps the owner awake.
            self.watch_mem_links();
        }
        self.judge_overdue();
        self.finish();
    }

    /// The end of every verb: what it left to do for links.
    pub(super) fn finish(&mut self) {
        loop {
            self.core.end_qps_of_lost_cqs();
            self.distribute();
            if std::mem::take(&mut self.core.env.settle) {
                self.settle();
            }
            let Some(id) = self.dirty.pop() else { break };
            self.pump(id);
        }
    }

    /// Lets nothing wait for another packet to ride with.
    pub(super) fn say_everything(&mut self) {
        self.finish();
        self.flush_acks();
    }

    /// Before the owner sleeps: nothing stays unsaid, and every link can wake it.
    pub(super) fn prepare_sleep(&mut self) {
        self.say_everything();
        self.watch_mem_links();
        self.must_ask = ASK_AFTER_ARM;
    }

    fn watch_mem_links(&self) {
        for id in &self.mem {
            if let Some(Link { stream: Stream::Mem(end), blocked, .. }) = self.links.get(*id) {
                end.watch(*blocked);
            }
        }
    }

    /// When a poll is needed though nothing arrives.
    pub(super) fn next_deadline(&mut self) -> Option<Time> {
        [self.core.next_deadline(), self.newcomers.next_deadline()].into_iter().flatten().min()
    }

    /// The link to a device, if there is one.
    pub(super) fn link_to(&self, guid: u64) -> Option<Id> {
        self.links.iter().find(|(_, link)| link.guid == guid).map(|(id, _)| id)
    }

    /// Takes a new link into use, also for the QPs that waited for it.
    pub(super) fn add_link(&mut self, guid: u64, stream: Stream) -> Result<Id, VerbsError> {
        if self.links.len() >= LINKS_MAX && !self.drop_idle_link() {
            return Err(VerbsError::Limit { what: "links of one device", max: LINKS_MAX.into() });
        }
        let is_mem = matches!(stream, Stream::Mem(_));
        let id = self.links.insert_with(|_| Link::new(guid, stream));
        if let Some(Link { stream: Stream::Tcp(end), .. }) = self.links.get(id) {
            let token = epoll::EventData::new_u64(id.as_u64());
            let added = self.watch(end, token);
            if let Err(error) = added {
                self.links.remove(id);
                return Err(error);
            }
        }
        if is_mem {
            self.mem.push(id)
        } else {
            self.tcp.push(id)
        }
        for (_, qp) in self.core.qps.iter_mut() {
            if qp.link.is_none() && !qp.lost && qp.peer.is_some_and(|peer| peer.guid == guid) {
                qp.link = Some(id);
                qp.loss_at = None;
                qp.advance(&mut self.core.env);
            }
        }
        self.finish();
        Ok(id)
    }

    fn watch(&self, what: impl AsFd, token: epoll::EventData) -> Result<(), VerbsError> {
        epoll::add(&self.core.env.signals.epoll, what, token, epoll::EventFlags::IN)
            .map_err(|error| VerbsError::System { operation: "epoll", source: error.into() })
    }

    fn flush_acks(&mut self) {
        while let Some(id) = self.ack_links.pop() {
            if self.links.get(id).is_some_and(|link| !link.acks.is_empty()) {
                self.pump(id);
            }
        }
    }

    /// Hands QPs that have something to say to their links.
    fn distribute(&mut self) {
        let Self { core, links, dirty, ack_links, .. } = self;
        while let Some(id) = core.env.wants.pop() {
            core.sync_timer(id);
            let Some(qp) = core.qps.get_mut(id) else { continue };
            match qp.link.and_then(|link| Some((link, links.get_mut(link)?))) {
                None => qp.active = false,
                Some((at, link)) => {
                    link.active.push_back(id);
                    if !link.dirty {
                        link.dirty = true;
                        dirty.push(at);
                    }
                }
            }
        }
        while let Some(id) = core.env.acks.pop() {
            let Some(qp) = core.qps.get_mut(id) else { continue };
            match qp.link.and_then(|link| Some((link, links.get_mut(link)?))) {
                None => qp.ack_listed = false,
                Some((at, link)) => {
                    if link.acks.is_empty() {
                        ack_links.push(at);
                    }
                    link.acks.push(id);
                }
            }
        }
    }

    /// Ends all lending of memory that is, or may be, no longer the peers' to read.
    fn settle(&mut self) {
        let Self { core, links, .. } = self;
        for (_, link) in links.iter_mut() {
            link.tx.settle(|lender| !core.may_lend(lender));
        }
    }

    /// Lets a link's QPs write in turn, and hands over as much as the link takes.
    fn pump(&mut self, id: Id) {
        let Self { core, links, .. } = self;
        let Some(link) = links.get_mut(id) else { return };
        link.dirty = false;
        let mut budget = WRITE_BYTES_TURN;
        let ended = loop {
            while link.tx.has_room() {
                let Some(qp) = link.active.pop_front() else { break };
                if core.produce(qp, &mut link.tx) {
                    link.active.push_back(qp);
                }
            }
            for qp in link.acks.drain(..) {
                core.produce_ack(qp, &mut link.tx);
            }
            link.push_probes();
            let buffered = link.tx.buffered();
            if buffered == 0 {
                break None;
            }
            let written = link.tx.write(&mut link.stream);
            link.moved += buffered.saturating_sub(link.tx.buffered()) as u64;
            match written {
                Ok(true) if link.active.is_empty() => break None,
                Ok(true) if budget > buffered => budget -= buffered,
                Ok(_) => break None,
                Err(error) => break Some(Ended::Failed(error.kind())),
            }
        };
        let unfinished = !link.tx.is_empty() || !link.active.is_empty();
        match ended {
            Some(why) => {
                // What the peer said before it left still counts.
                self.read_link(id);
                self.lose_link(id, why);
            }
            None => self.set_blocked(id, unfinished),
        }
    }

    /// Has the descriptor tell when a link that is not done takes more.
    fn set_blocked(&mut self, id: Id, blocked: bool) {
        let Some(link) = self.links.get_mut(id) else { return };
        if link.blocked == blocked {
            return;
        }
        link.blocked = blocked;
        if let Stream::Tcp(end) = &link.stream {
            let flags = epoll::EventFlags::IN
                | if blocked { epoll::EventFlags::OUT } else { epoll::EventFlags::empty() };
            let token = epoll::EventData::new_u64(id.as_u64());
            let _ = epoll::modify(&self.core.env.signals.epoll, end, token, flags);
        }
    }

    /// Collects the links that have something, and those that may take more.
    fn find_ready(&mut self) {
        self.polls = self.polls.wrapping_add(1);
        for index in 0..self.mem.len() {
            let id = self.mem[index];
            let Some(Link { stream: Stream::Mem(end), blocked, .. }) = self.links.get(id) else {
                continue;
            };
            let (ready, blocked) = (end.is_ready(), *blocked);
            if ready {
                self.ready.push(id);
            }
            if blocked {
                self.make_dirty(id);
            }
        }
        let (may_come, have_come) = self.newcomers.expected();
        let newcomers = have_come
            || (may_come && (self.must_ask > 0 || self.polls.is_multiple_of(LISTEN_EVERY)));
        self.must_ask = self.must_ask.saturating_sub(1);
        match self.tcp.as_slice() {
            [] if !newcomers => {}
            [only] if !newcomers => {
                let only = *only;
                self.ready.push(only);
                if self.links.get(only).is_some_and(|link| link.blocked) {
                    self.make_dirty(only);
                }
            }
            _ => self.ask_epoll(),
        }
    }

    fn make_dirty(&mut self, id: Id) {
        if let Some(link) = self.links.get_mut(id).filter(|link| !link.dirty) {
            link.dirty = true;
            self.dirty.push(id);
        }
    }

    fn ask_epoll(&mut self) {
        let mut space = [const { MaybeUninit::uninit() }; EVENTS_TURN];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let found = epoll::wait(&self.core.env.signals.epoll, &mut space, Some(&now));
        // An interrupted wait found nothing; the next poll asks again.
        let Ok((events, _)) = found else { return };
        for event in events {
            match event.data.u64() {
                TOKEN_SIGNAL => {}
                TOKEN_LISTENER => self.accept(),
                token if token & TOKEN_HALF_OPEN != 0 => {
                    self.hear(Id::from_u64(token & !TOKEN_HALF_OPEN));
                }
                token => {
                    let id = Id::from_u64(token);
                    let flags = event.flags;
                    if flags.contains(epoll::EventFlags::OUT) {
                        self.make_dirty(id);
                    }
                    if flags != epoll::EventFlags::OUT {
                        self.ready.push(id);
                    }
                }
            }
        }
    }

    fn read_link(&mut self, id: Id) {
        let Self { core, links, stage, .. } = self;
        let Some(link) = links.get_mut(id) else { return };
        let mut budget = READ_BYTES_TURN;
        let ended = loop {
            match link.rx.read(&mut link.stream, core, link.guid, stage) {
                Ok((count, more)) => {
                    link.moved += count as u64;
                    if !more || count >= budget {
                        break None;
                    }
                    budget -= count;
                }
                Err(why) => break Some(why),
            }
        };
        let owes = link.rx.probes.owed.is_some();
        match ended {
            Some(why) => self.lose_link(id, why),
            None if owes => self.make_dirty(id),
            None => {}
        }
    }

    /// Decides on QPs whose peer was silent for the time of their retry timer.
    fn judge_overdue(&mut self) {
        let Self { core, links, dirty, .. } = self;
        while let Some(id) = core.env.overdue.pop() {
            let Some(qp) = core.qps.get_mut(id) else { continue };
            let Some(at) = qp.link else { continue };
            let Some(link) = links.get_mut(at) else { continue };
            let peer = match qp.req.probe {
                None => PeerDevice::Unknown,
                Some(number) if number <= link.rx.probes.answered => PeerDevice::Polled,
                Some(_) => PeerDevice::Busy,
            };
            if qp.on_overdue(&mut core.env, peer) {
                link.probe = true;
                qp.req.probe = Some(link.rx.probes.asked + 1);
                if !link.dirty {
                    link.dirty = true;
                    dirty.push(at);
                }
            }
            core.sync_timer(id);
        }
    }

    /// A link is gone. Its QPs notice by their own requests, as on hardware.
    pub(super) fn lose_link(&mut self, id: Id, why: Ended) {
        let Some(link) = self.links.remove(id) else { return };
        self.mem.retain(|other| *other != id);
        self.tcp.retain(|other| *other != id);
        match why {
            // A process that ends resets what it has not read.
            Ended::Closed | Ended::Failed(ErrorKind::ConnectionReset) => {
                tracing::debug!("a device link was closed by the peer");
            }
            Ended::Failed(kind) => tracing::warn!("a device link failed: {kind}"),
            Ended::Garbage => {
                tracing::warn!("a device link was closed: the peer sent what is no packet");
            }
        }
        // Closing the socket takes it out of epoll.
        drop(link);
        let at = self.core.env.now() + self.core.env.config.link_loss_delay;
        let mut touched = Vec::new();
        for (qp_id, qp) in self.core.qps.iter_mut() {
            if qp.link == Some(id) {
                qp.lose_link(at);
                touched.push(qp_id);
            }
        }
        for qp in touched {
            self.core.sync_timer(qp);
        }
    }

    fn accept(&mut self) {
        let now = self.core.env.now();
        let accepted = self.newcomers.accept(&self.core.env.signals.epoll, now);
        for id in accepted.new {
            self.hear(id);
        }
        if accepted.short {
            self.drop_idle_link();
        }
    }

    fn hear(&mut self, id: Id) {
        match self.newcomers.hear(&self.core.env.signals.epoll, id, self.guid) {
            Heard::Nothing => {}
            Heard::Hello(hello, end) => {
                if let Ok(id) = self.add_link(hello.from, Stream::Tcp(end)) {
                    self.ready.push(id);
                }
            }
            Heard::Garbage => {
                tracing::debug!("a socket on the link port was closed: no hello for this device");
            }
        }
    }

    /// Closes the oldest link that no QP uses: a stranger's, or one that its peers have left. Whoever
    /// still wants it dials again. False: there is none.
    pub(super) fn drop_idle_link(&mut self) -> bool {
        let Self { core, tcp, .. } = self;
        // Links stand in the order in which they came.
        let is_idle = |id: &Id| core.qps.iter().all(|(_, qp)| qp.link != Some(*id));
        let Some(id) = tcp.iter().copied().find(is_idle) else { return false };
        tracing::debug!("a device link that no queue pair uses was closed to make room");
        self.lose_link(id, Ended::Closed);
        true
    }
}
