//! Two connections, a network that keeps order, and virtual time, for tests of the protocol alone.
//!
//! Each side is a [`Peer`]: a connection and a small engine that does at once what the connection
//! asks for, unless it is told to hold something back. The device between them does what a reliable
//! connection does, and panics on what would break one: a SEND that finds no receive.

use std::collections::VecDeque;
use std::time::Duration;

use super::{ConnectionConfig, LossKind, LossReason, Role};
use crate::Time;

mod peer;

pub use peer::{Ended, Ending, Peer, content};

/// SENDs and READs under way from one side.
#[derive(Debug, Default)]
struct Wire {
    sends: VecDeque<(Time, Vec<u8>)>,
    /// Answers to READs, on their way back; `None`: the READ failed.
    reads: VecDeque<(Time, peer::Posted)>,
}

/// Two peers.
#[derive(Debug)]
pub struct Pair {
    /// What both sides' clocks say.
    pub now: Time,
    /// One way.
    pub latency: Duration,
    /// Whether a failed READ takes the connection down, as it does on hardware.
    pub failed_read_kills: bool,
    /// The connecting and the accepting side.
    pub peers: [Peer; 2],
    wires: [Wire; 2],
    /// Sides that have yet to learn that the connection is gone.
    dying: Vec<(Time, usize)>,
    dead: bool,
}

impl Pair {
    /// Steps that [`drive`](Self::drive) may take: more than any test needs, few enough to fail fast.
    pub const STEPS_MAX: usize = 1_000_000;

    /// A pair that has not confirmed yet. `configure` may change what each side uses, and `windows`
    /// are the ordinary receives that each posts.
    pub fn new(windows: [u32; 2], mut configure: impl FnMut(&mut ConnectionConfig)) -> Self {
        let now = Time::from_nanos(1_000_000_000);
        let mut config = |role| {
            let (own, peer) = match role {
                Role::Connecting => ([1; 32], [2; 32]),
                Role::Accepting => ([2; 32], [1; 32]),
            };
            let mut config = ConnectionConfig {
                role,
                epoch: 77,
                confirm_own: own,
                confirm_peer: peer,
                confirm_deadline: now + Duration::from_secs(5),
                ..ConnectionConfig::default()
            };
            configure(&mut config);
            config
        };
        let configs = [config(Role::Connecting), config(Role::Accepting)];
        let mut index = 0;
        let peers = configs.map(|config| {
            index += 1;
            Peer::new(now, config, windows[index - 1], index as u64)
        });
        Self {
            now,
            latency: Duration::from_micros(5),
            failed_read_kills: true,
            peers,
            wires: [Wire::default(), Wire::default()],
            dying: Vec::new(),
            dead: false,
        }
    }

    /// A pair that has confirmed, with one ordinary receive each.
    pub fn connected() -> Self {
        let mut pair = Self::new([1, 1], |_| {});
        pair.drive();
        assert!(pair.peers.iter().all(|peer| peer.connection.is_confirmed()));
        pair
    }

    /// Begins a call of `len` bytes; returns its token, or `None` if the connection refused it.
    pub fn call(&mut self, side: usize, len: usize, timeout: Option<Duration>) -> Option<u64> {
        let deadline = timeout.map(|timeout| self.now + timeout);
        self.peers[side].call(self.now, len, deadline)
    }

    /// Does what both sides can do now, then goes to the next moment at which something happens.
    /// False if nothing ever will, timeouts left aside.
    pub fn step(&mut self) -> bool {
        self.pump();
        let Some(next) = self.next_arrival() else {
            return false;
        };
        self.advance_to(next);
        true
    }

    /// Steps until nothing is under way.
    pub fn drive(&mut self) {
        let mut steps = 0;
        while self.step() {
            steps += 1;
            assert!(steps < Self::STEPS_MAX, "the two do not come to rest");
        }
    }

    /// Lets time pass, with all that happens in it.
    pub fn pass(&mut self, span: Duration) {
        let until = self.now + span;
        loop {
            self.pump();
            let running = self.peers.iter().filter(|peer| !peer.stopped);
            let timeouts = running.filter_map(|peer| peer.connection.poll_timeout());
            let next = timeouts.chain(self.next_arrival()).min();
            match next {
                Some(next) if next <= until => self.advance_to(next.max(self.now)),
                _ => break,
            }
        }
        self.advance_to(until);
        self.pump();
    }

    /// The connection breaks; `first` learns of it now, the other one a little later.
    pub fn kill(&mut self, first: usize) {
        if !self.dead {
            self.dead = true;
            self.dying.clear();
            self.dying.push((self.now, first));
            self.dying.push((self.now + self.latency * 3, 1 - first));
        }
    }

    /// Whether it was killed, by a test or by a failed READ.
    pub fn is_dead(&self) -> bool {
        self.dead
    }

    /// What must be true whenever nothing is under way and nothing is held back.
    ///
    /// # Panics
    /// If something is left, or credits are lost or made.
    pub fn assert_quiescent(&self) {
        for (side, peer) in self.peers.iter().enumerate() {
            peer.assert_at_rest();
            if peer.connection.is_closed() {
                continue;
            }
            let (own, other) = (peer.connection.credits(), &self.peers[1 - side]);
            assert_eq!(own.standing, peer.receives, "the connection and the device disagree");
            assert_eq!(own.standing, own.granted + own.owed + 1, "a receive is unaccounted for");
            if !other.connection.is_closed() {
                let available = other.connection.credits().available;
                assert_eq!(available, own.granted, "a credit was lost or made");
            }
        }
    }

    fn next_arrival(&self) -> Option<Time> {
        let arrivals = (0..2).flat_map(|side| {
            let (own, other) = (&self.wires[side], &self.wires[1 - side]);
            let running = !self.peers[side].stopped;
            let arrivals = other.sends.front().map(|s| s.0).into_iter();
            arrivals.chain(own.reads.front().map(|r| r.0)).filter(move |_| running)
        });
        arrivals.chain(self.dying.iter().map(|d| d.0)).min()
    }

    fn pump(&mut self) {
        for side in 0..2 {
            if self.peers[side].stopped {
                continue;
            }
            let (sends, reads) = self.peers[side].pump(self.now);
            for send in sends {
                self.wires[side].sends.push_back((self.now + self.latency, send));
            }
            for read in reads {
                self.wires[side].reads.push_back((self.now + self.latency * 2, read));
            }
        }
        self.follow_close();
    }

    fn advance_to(&mut self, to: Time) {
        self.now = to;
        for side in 0..2 {
            if self.peers[side].stopped {
                continue;
            }
            while self.wires[side].reads.front().is_some_and(|read| read.0 <= to) {
                let Some((_, read)) = self.wires[side].reads.pop_front() else { break };
                let bytes = if self.dead { None } else { self.peers[1 - side].serve(&read) };
                let failed = bytes.is_none();
                self.peers[side].read_done(to, &read, bytes);
                if failed && self.failed_read_kills {
                    self.kill(side);
                }
            }
            while self.wires[1 - side].sends.front().is_some_and(|send| send.0 <= to) {
                let Some((_, bytes)) = self.wires[1 - side].sends.pop_front() else { break };
                if !self.dead {
                    self.peers[side].receive(to, &bytes);
                    self.peers[side].act(to);
                }
            }
        }
        let (due, later) = self.dying.drain(..).partition(|(at, _)| *at <= to);
        self.dying = later;
        let due: Vec<(Time, usize)> = due;
        for (_, side) in due {
            self.dead = true;
            let message = "the queue pair failed: retries exceeded".into();
            let reason = LossReason { kind: LossKind::QueuePair, message };
            self.peers[side].connection.on_lost(to, reason);
        }
        for peer in self.peers.iter_mut().filter(|peer| !peer.stopped) {
            if peer.connection.poll_timeout().is_some_and(|timeout| timeout <= to) {
                peer.connection.on_timer(to, true);
                let next = peer.connection.poll_timeout();
                assert!(next.is_none_or(|next| next > to), "a timeout that does not go away");
            }
            peer.act(to);
        }
    }

    /// A side that closed in good order takes its QP down once its SENDs are through.
    fn follow_close(&mut self) {
        if self.dead || !self.dying.is_empty() {
            return;
        }
        if let Some(side) = self.peers.iter().position(|peer| peer.closed.is_some()) {
            self.dying.push((self.now + self.latency * 3, 1 - side));
        }
    }
}
