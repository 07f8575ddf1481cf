use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;

use super::answer::{ConnectDone, ListenDone};
use super::control::{Notice, QUEUE_MAX, Request};
use super::dial::{Dial, Dialled};
use super::listener::{Accepted, Listener};
use super::log::LogLimit;
use super::poller::Interest;
use super::shake::{Farewell, Origin, Shake, Shaken, Tools};
use super::socket::{system, tune};
use super::{Address, ConnectError, ControlStream, DeviceChoice, EventSource, Step, Target};
use crate::world;

/// Handshakes with peers that connect, at once. One more takes the place of the oldest that has not
/// said a whole hello, so peers that say nothing cannot keep others out; if all have, it is refused.
pub const HANDSHAKES_MAX: usize = 1024;

/// Connections that this process opens at once.
pub const CONNECTS_MAX: usize = 1024;

/// The state of the control thread: sockets and timers, each under the key of its entry. Keys are
/// never used twice, so an event or an answer that comes too late finds nothing.
pub(super) struct Driver {
    pub(super) tools: Tools,
    requested: Receiver<Request>,
    noticed: Receiver<Notice>,
    handshake_timeout: Duration,
    entries: BTreeMap<u64, Entry>,
    timers: BTreeSet<(Instant, u64)>,
    next_key: u64,
    /// Entries of peers that connected, farewells included.
    accepting: usize,
    /// Entries of connections that this process opens; inside the process, of both ends.
    connecting: usize,
    accept_log: LogLimit,
    handshake_log: LogLimit,
    /// Keys that a wait found ready; empty between turns.
    keys: Vec<u64>,
    stopped: bool,
}

enum Entry {
    Listener(Listener),
    Dial(Dial),
    Shake(Box<Shake>),
    /// Asynchronous events of a device.
    Events(Arc<dyn EventSource>),
    /// A refusal on its way; whether to a peer that connected.
    Farewell(Farewell, bool),
}

impl Entry {
    fn timer(&self) -> Option<Instant> {
        match self {
            Self::Listener(listener) => listener.timer(),
            Self::Dial(dial) => Some(dial.timer()),
            Self::Shake(shake) => Some(shake.deadline),
            Self::Farewell(farewell, _) => Some(farewell.timer()),
            Self::Events(_) => None,
        }
    }

    /// The counter it is counted by.
    fn counter<'a>(
        &self,
        accepting: &'a mut usize,
        connecting: &'a mut usize,
    ) -> Option<&'a mut usize> {
        match self {
            Self::Listener(_) | Self::Events(_) => None,
            Self::Dial(_) | Self::Farewell(_, false) => Some(connecting),
            Self::Farewell(_, true) => Some(accepting),
            Self::Shake(shake) => Some(if shake.is_of_peer() { accepting } else { connecting }),
        }
    }

    /// Whether a peer that connected can make room for another.
    fn is_evictable(&self) -> bool {
        match self {
            Self::Shake(shake) => shake.is_evictable(),
            Self::Farewell(_, accepted) => *accepted,
            _ => false,
        }
    }
}

impl Driver {
    pub(super) fn new(
        tools: Tools,
        requested: Receiver<Request>,
        noticed: Receiver<Notice>,
        handshake_timeout: Duration,
    ) -> Self {
        Self {
            tools,
            requested,
            noticed,
            handshake_timeout,
            entries: BTreeMap::new(),
            timers: BTreeSet::new(),
            next_key: 0,
            accepting: 0,
            connecting: 0,
            accept_log: LogLimit::default(),
            handshake_log: LogLimit::default(),
            keys: Vec::new(),
            stopped: false,
        }
    }

    /// Works until it is told to stop.
    pub(super) fn run(mut self) {
        while !self.stopped {
            if let Err(error) = self.turn(self.timeout()) {
                tracing::error!(%error, "the control thread cannot wait for events");
                // The kernel refuses only what is wrong in this code, and there is no event to wait
                // for then; any length keeps it from burning a CPU.
                thread::sleep(Duration::from_millis(10));
            }
        }
    }

    /// Waits for something to do, for no longer than `timeout`, and does what there is. Once it has been
    /// told to stop it does nothing more.
    ///
    /// # Errors
    /// The wait failed; everything else was done.
    pub(super) fn turn(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let mut keys = std::mem::take(&mut self.keys);
        let waited = self.tools.poller.wait(timeout, &mut keys);
        while let Ok(notice) = self.noticed.try_recv() {
            match notice {
                Notice::Installed(key, result) => self.on_installed(key, result),
                Notice::Unlisten(server) => self.unlisten(server),
                Notice::Run(job) => job(),
                #[cfg(any(test, feature = "test-util"))]
                Notice::Dialled(dialled) => self.on_dialled_in(dialled),
                Notice::Shutdown => {
                    self.shutdown();
                    return Ok(());
                }
            }
        }
        for key in keys.drain(..) {
            self.on_ready(key);
        }
        self.keys = keys;
        for _ in 0..QUEUE_MAX {
            let Ok(request) = self.requested.try_recv() else { break };
            self.on_request(request);
        }
        self.on_timers();
        self.watch_devices();
        waited
    }

    /// How long to wait. What came while this turn ran has woken the poller, so it ends at once then.
    pub(super) fn timeout(&self) -> Option<Duration> {
        if !self.requested.is_empty() {
            return Some(Duration::ZERO);
        }
        let (first, _) = self.timers.first()?;
        Some(first.saturating_duration_since(world::now()))
    }

    fn on_request(&mut self, request: Request) {
        match request {
            Request::Listen { address, server, done } => self.listen(&address, server, done),
            Request::Connect { deadline, done, .. } if world::now() >= deadline => {
                done.fail(ConnectError::TimedOut { step: Step::Queue });
            }
            Request::Connect { done, .. } if self.connecting >= CONNECTS_MAX => {
                done.fail(ConnectError::TooManyHandshakes { max: CONNECTS_MAX });
            }
            Request::Connect { target: Target::Address(address), core, deadline, done } => {
                self.dial(&address, core, deadline, done);
            }
            Request::Connect { target: Target::InProcess { server }, core, deadline, done } => {
                self.connect_in_process(server, core, deadline, done);
            }
        }
    }

    fn listen(&mut self, address: &Address, server: u64, done: ListenDone) {
        #[cfg(any(test, feature = "test-util"))]
        if let Some(network) = self.tools.network.clone() {
            return self.listen_on(&*network, address, server, done);
        }
        let key = self.new_key();
        match Listener::new(&self.tools.poller, key, address, server) {
            Ok((listener, at)) => {
                let ip = Some(at.ip()).filter(|ip| !ip.is_unspecified());
                match self.tools.host.prepare(&listener.device, ip, None) {
                    Ok(()) => {
                        self.insert(key, Entry::Listener(listener));
                        done.answer(Ok(at));
                    }
                    // The listener closes as it is dropped.
                    Err(error) => done.answer(Err(error)),
                }
            }
            Err(error) => done.answer(Err(error)),
        }
    }

    fn dial(&mut self, address: &Address, core: usize, deadline: Instant, done: ConnectDone) {
        #[cfg(any(test, feature = "test-util"))]
        if let Some(network) = self.tools.network.clone() {
            return self.dial_on(&*network, address, core, deadline, done);
        }
        let key = self.new_key();
        match Dial::new(address, core, deadline, done) {
            Ok(mut dial) => {
                // The peer counts the time from the connection on, and opening a device takes some.
                // With auto:// it is the server that says whether one is needed.
                let host = &self.tools.host;
                let insists = !matches!(dial.device, DeviceChoice::Auto(_));
                if insists
                    && let Err(error) = host.prepare(&dial.device, dial.local_ip(), Some(core))
                {
                    return dial.done.fail(error);
                }
                // Resolving may have taken long.
                let failure = ConnectError::TimedOut { step: Step::Connect };
                let dialled = dial.advance(&self.tools.poller, key, world::now(), failure);
                self.on_dialled(key, dial, dialled);
            }
            Err((done, error)) => done.fail(error),
        }
    }

    fn on_dialled(&mut self, key: u64, dial: Dial, dialled: Dialled) {
        match dialled {
            Dialled::Waiting => self.insert(key, Entry::Dial(dial)),
            Dialled::Failed(error) => dial.done.fail(error),
            Dialled::Open(socket) => {
                if let Err(error) = tune(&socket) {
                    return dial.done.fail(system("setting a socket's options", error));
                }
                let (core, device, done) = (dial.core, dial.device, dial.done);
                let origin = Origin::Connect { core, device, done };
                self.shake(key, ControlStream::tcp(socket), dial.deadline, origin);
            }
        }
    }

    /// Both ends, on a socket pair.
    fn connect_in_process(
        &mut self,
        server: u64,
        core: usize,
        deadline: Instant,
        done: ConnectDone,
    ) {
        match ControlStream::pair() {
            Ok((one, other)) => {
                let (connecting, accepting) = (self.new_key(), self.new_key());
                self.shake(
                    connecting,
                    one,
                    deadline,
                    Origin::Connect { core, device: DeviceChoice::Soft, done },
                );
                self.shake(
                    accepting,
                    other,
                    deadline,
                    Origin::Accept { server, device: DeviceChoice::Soft },
                );
            }
            Err(error) => done.fail(system("making a socket pair", error)),
        }
    }

    pub(super) fn shake(
        &mut self,
        key: u64,
        stream: ControlStream,
        deadline: Instant,
        origin: Origin,
    ) {
        match Shake::new(stream, &*self.tools.host, deadline, origin) {
            Ok(mut shake) => {
                let shaken = shake.turn(&self.tools, key);
                self.on_shaken(key, Box::new(shake), shaken);
            }
            Err(failed) => {
                let (origin, error) = *failed;
                self.failed(origin, error);
            }
        }
    }

    fn on_shaken(&mut self, key: u64, shake: Box<Shake>, shaken: Shaken) {
        match shaken {
            Shaken::Waiting => self.insert(key, Entry::Shake(shake)),
            Shaken::Done => {
                if let Origin::Connect { done, .. } = shake.origin {
                    done.succeed();
                }
            }
            Shaken::Failed(error) => {
                let accepted = shake.is_of_peer();
                let (origin, rest) = shake.end(&self.tools.poller, key, &error, world::now());
                if let Some(farewell) = rest {
                    self.insert(key, Entry::Farewell(farewell, accepted));
                }
                self.failed(origin, error);
            }
        }
    }

    fn failed(&mut self, origin: Origin, error: ConnectError) {
        match origin {
            Origin::Connect { done, .. } => done.fail(error),
            Origin::Accept { server, .. } => {
                self.handshake_log.handshake_failed(world::now(), server, &error);
            }
        }
    }

    fn on_installed(&mut self, key: u64, result: Result<(), ConnectError>) {
        // Without an entry the deadline came first; its core has seen the socket close.
        if let Some(Entry::Shake(mut shake)) = self.remove(key) {
            let shaken = shake.on_installed(&self.tools, key, result);
            self.on_shaken(key, shake, shaken);
        }
    }

    fn on_ready(&mut self, key: u64) {
        match self.remove(key) {
            // An event of this turn for an entry that an earlier one ended.
            None => {}
            Some(Entry::Listener(listener)) => self.accept(key, listener),
            Some(Entry::Dial(mut dial)) => {
                let dialled = dial.on_ready(&self.tools.poller, key, world::now());
                self.on_dialled(key, dial, dialled);
            }
            Some(Entry::Shake(mut shake)) => {
                let shaken = shake.turn(&self.tools, key);
                self.on_shaken(key, shake, shaken);
            }
            Some(Entry::Events(source)) => {
                if source.on_ready() {
                    self.insert(key, Entry::Events(source));
                } else if let Some(fd) = source.fd() {
                    self.tools.poller.delete(fd);
                }
            }
            Some(Entry::Farewell(farewell, accepted)) => {
                if let Some(farewell) = farewell.turn(&self.tools.poller, key) {
                    self.insert(key, Entry::Farewell(farewell, accepted));
                }
            }
        }
    }

    fn accept(&mut self, key: u64, mut listener: Listener) {
        let (now, server, device) = (world::now(), listener.server, listener.device.clone());
        let mut sockets = Vec::new();
        if let Accepted::Refused(error) = listener.accept(&self.tools.poller, now, &mut sockets) {
            self.accept_log.accept_failed(now, &error);
        }
        self.insert(key, Entry::Listener(listener));
        for socket in sockets {
            self.accepted(socket, server, device.clone(), now);
        }
    }

    fn accepted(&mut self, socket: TcpStream, server: u64, device: DeviceChoice, now: Instant) {
        let origin = Origin::Accept { server, device };
        if let Err(error) = tune(&socket) {
            return self.failed(origin, system("setting a socket's options", error));
        }
        self.admit(ControlStream::tcp(socket), origin, now);
    }

    /// Begins the handshake with a peer that connected, if there is room for it.
    pub(super) fn admit(&mut self, stream: ControlStream, origin: Origin, now: Instant) {
        let error = ConnectError::TooManyHandshakes { max: HANDSHAKES_MAX };
        let has_room = self.accepting < HANDSHAKES_MAX || self.evict(&error);
        let (key, deadline) = (self.new_key(), now + self.handshake_timeout);
        if has_room {
            return self.shake(key, stream, deadline, origin);
        }
        // No room even for a farewell: what fits the socket's buffer is said, and it closes.
        if let Ok(shake) = Shake::new(stream, &*self.tools.host, deadline, origin) {
            let (origin, farewell) = shake.end(&self.tools.poller, key, &error, now);
            if let Some(farewell) = farewell {
                farewell.close(&self.tools.poller);
            }
            self.failed(origin, error);
        }
    }

    /// Ends the oldest peer that has not said a whole hello, or whose refusal is still on its way.
    fn evict(&mut self, error: &ConnectError) -> bool {
        let oldest = self.entries.iter().find(|(_, entry)| entry.is_evictable());
        let Some(key) = oldest.map(|(key, _)| *key) else {
            return false;
        };
        match self.remove(key) {
            Some(Entry::Shake(shake)) => {
                let poller = &self.tools.poller;
                let (_, farewell) = shake.end(poller, key, error, world::now());
                if let Some(farewell) = farewell {
                    farewell.close(&self.tools.poller);
                }
            }
            Some(Entry::Farewell(farewell, _)) => farewell.close(&self.tools.poller),
            _ => {}
        }
        true
    }

    /// Watches the devices that the host has opened since the last look.
    fn watch_devices(&mut self) {
        for source in self.tools.host.new_event_sources() {
            let key = self.new_key();
            let Some(fd) = source.fd() else { continue };
            match self.tools.poller.add(fd, key, Interest::Read) {
                Ok(()) => self.insert(key, Entry::Events(source)),
                // Its failures are still seen: they also fail the requests that they concern.
                Err(error) => tracing::warn!(%error, "a device's events cannot be watched"),
            }
        }
    }

    fn on_timers(&mut self) {
        let now = world::now();
        while let Some((due, key)) = self.timers.first().copied() {
            if due > now {
                return;
            }
            match self.remove(key) {
                None => drop(self.timers.pop_first()),
                Some(Entry::Listener(mut listener)) => {
                    listener.on_timer(&self.tools.poller, key, now);
                    self.insert(key, Entry::Listener(listener));
                }
                Some(Entry::Dial(mut dial)) => {
                    let dialled = dial.on_timer(&self.tools.poller, key, now);
                    self.on_dialled(key, dial, dialled);
                }
                Some(Entry::Shake(shake)) => {
                    let error = ConnectError::TimedOut { step: shake.step() };
                    self.on_shaken(key, shake, Shaken::Failed(error));
                }
                Some(Entry::Farewell(farewell, _)) => farewell.close(&self.tools.poller),
                Some(events @ Entry::Events(_)) => self.insert(key, events),
            }
        }
    }

    fn unlisten(&mut self, server: u64) {
        #[cfg(any(test, feature = "test-util"))]
        if let Some(network) = &self.tools.network {
            network.unlisten(server);
        }
        let of_server = |entry: &Entry| match entry {
            Entry::Listener(listener) => listener.server == server,
            Entry::Shake(shake) => shake.server() == Some(server),
            Entry::Dial(_) | Entry::Farewell(..) | Entry::Events(_) => false,
        };
        let keys = self.entries.iter().filter(|(_, entry)| of_server(entry)).map(|(key, _)| *key);
        for key in keys.collect::<Vec<_>>() {
            // A listener closes as it is dropped.
            if let Some(Entry::Shake(shake)) = self.remove(key) {
                self.on_shaken(key, shake, Shaken::Failed(ConnectError::NoServer));
            }
        }
    }

    /// Tells the peers, as far as that does not wait. Every caller is answered as its entry, or its
    /// request in the queue, is dropped.
    fn shutdown(&mut self) {
        self.stopped = true;
        for (key, entry) in std::mem::take(&mut self.entries) {
            if let Entry::Shake(shake) = entry {
                let error = ConnectError::ShutDown;
                let (origin, _) = shake.end(&self.tools.poller, key, &error, world::now());
                self.failed(origin, error);
            }
        }
        // What cores have asked for is done to the end: it takes connections down in order.
        while let Ok(notice) = self.noticed.try_recv() {
            if let Notice::Run(job) = notice {
                job();
            }
        }
    }

    pub(super) fn new_key(&mut self) -> u64 {
        self.next_key += 1;
        self.next_key
    }

    fn insert(&mut self, key: u64, entry: Entry) {
        if let Some(counter) = entry.counter(&mut self.accepting, &mut self.connecting) {
            *counter += 1;
        }
        if let Some(timer) = entry.timer() {
            self.timers.insert((timer, key));
        }
        self.entries.insert(key, entry);
    }

    fn remove(&mut self, key: u64) -> Option<Entry> {
        let entry = self.entries.remove(&key)?;
        if let Some(counter) = entry.counter(&mut self.accepting, &mut self.connecting) {
            *counter -= 1;
        }
        if let Some(timer) = entry.timer() {
            self.timers.remove(&(timer, key));
        }
        Some(entry)
    }
}
