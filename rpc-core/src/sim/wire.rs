use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::dice::Dice;
use super::faults::Faults;
use crate::verbs::soft::Cable;

/// Bytes of one direction that are on their way at most; beyond it the sender waits, as it does for a
/// full window.
const IN_FLIGHT_MAX: usize = 4 << 20;

/// Taken from a stream at once.
pub(super) const CHUNK_BYTES: usize = 64 << 10;

/// A stream between two nodes, carried here: what comes out of one end goes into the other later.
pub(super) struct Wire {
    /// The nodes at its ends; both of it may be one node.
    pub(super) nodes: [usize; 2],
    ends: Ends,
    /// What is on its way from each side.
    flows: [Flow; 2],
}

enum Ends {
    /// Of a link between devices.
    Link(Cable),
    /// Of a control connection.
    Control([Option<UnixStream>; 2]),
}

#[derive(Default)]
struct Flow {
    chunks: VecDeque<(Duration, Vec<u8>)>,
    bytes: usize,
    /// When the last byte arrives: what follows is no earlier.
    last: Duration,
    /// The sender has closed its end; the receiver learns of it then.
    ends_at: Option<Duration>,
    /// Nothing is taken from the sender any more, and nothing given to the receiver.
    over: bool,
    /// The receiver has no room; it must turn before more is given to it.
    full: bool,
}

impl Wire {
    pub(super) fn link(nodes: [usize; 2], cable: Cable) -> Self {
        Self { nodes, ends: Ends::Link(cable), flows: Default::default() }
    }

    pub(super) fn control(nodes: [usize; 2], sockets: [Option<UnixStream>; 2]) -> Self {
        Self { nodes, ends: Ends::Control(sockets), flows: Default::default() }
    }

    /// Whether it has an end on this node.
    pub(super) fn touches(&self, node: usize) -> bool {
        self.nodes.contains(&node)
    }

    /// Whether it runs between these two.
    pub(super) fn is_between(&self, one: usize, other: usize) -> bool {
        self.touches(one) && self.touches(other) && (one != other || self.nodes == [one; 2])
    }

    /// Whether nothing will come out of it any more.
    pub(super) fn is_over(&self) -> bool {
        self.flows.iter().all(|flow| flow.over)
    }

    /// The far end of a control connection that has reached its server.
    pub(super) fn attach(&mut self, socket: UnixStream) {
        if let Ends::Control(sockets) = &mut self.ends {
            sockets[1] = Some(socket);
        }
    }

    /// Takes what a node has written, and draws when it arrives. Returns the bytes.
    /// `buffer` is where they lie between.
    pub(super) fn collect(
        &mut self,
        node: usize,
        now: Duration,
        faults: &Faults,
        dice: &mut Dice,
        buffer: &mut [u8],
    ) -> usize {
        let mut taken = 0;
        for side in 0..2 {
            let has_end = self.nodes[side] == node && self.ends.is_there(side);
            let Self { ends, flows, .. } = self;
            let flow = &mut flows[side];
            while has_end && !flow.over && flow.ends_at.is_none() && flow.bytes < IN_FLIGHT_MAX {
                let read = ends.read(side, buffer);
                if matches!(&read, Err(error) if error.kind() == ErrorKind::WouldBlock) {
                    break;
                }
                let at = flow.last.max(now + delay(faults, dice));
                flow.last = at;
                match read {
                    Ok(count @ 1..) => {
                        taken += count;
                        flow.bytes += count;
                        flow.chunks.push_back((at, buffer[..count].to_vec()));
                    }
                    _ => flow.ends_at = Some(at),
                }
            }
        }
        taken
    }

    /// Gives what has arrived. Returns the bytes for each side.
    pub(super) fn deliver(&mut self, now: Duration) -> [usize; 2] {
        let mut given = [0; 2];
        for side in 0..2 {
            let to = 1 - side;
            let Self { ends, flows, .. } = self;
            let flow = &mut flows[side];
            while !flow.over && !flow.full {
                let Some((at, chunk)) = flow.chunks.front_mut() else { break };
                if *at > now || !ends.is_there(to) {
                    break;
                }
                match ends.write(to, chunk) {
                    Ok(count) => {
                        given[to] += count;
                        flow.bytes -= count;
                        chunk.drain(..count);
                        if chunk.is_empty() {
                            flow.chunks.pop_front();
                        }
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => flow.full = true,
                    // The receiver has gone: the sender learns of it as its own end closes.
                    Err(_) => flow.over = true,
                }
            }
            let ended = flow.ends_at.is_some_and(|at| at <= now) && flow.chunks.is_empty();
            if ended && !flow.over {
                flow.over = true;
                ends.close(to);
                // Either half of these streams ends both.
                flows[to].over = true;
                ends.close(side);
            }
        }
        given
    }

    /// When something arrives next.
    pub(super) fn next(&self) -> Option<Duration> {
        let of = |side: usize| {
            let flow = &self.flows[side];
            let stands = flow.over || flow.full || !self.ends.is_there(1 - side);
            let first = flow.chunks.front().map(|(at, _)| *at);
            (!stands).then(|| first.or(flow.ends_at)).flatten()
        };
        of(0).into_iter().chain(of(1)).min()
    }

    /// A node has turned: it may have made room.
    pub(super) fn look_for_room(&mut self, node: usize) {
        for side in 0..2 {
            if self.nodes[1 - side] == node {
                self.flows[side].full = false;
            }
        }
    }

    /// Ends it at both ends, with everything that is on its way.
    pub(super) fn cut(&mut self) {
        for side in 0..2 {
            self.flows[side].over = true;
            self.flows[side].chunks.clear();
            self.ends.close(side);
        }
    }

    /// The process of a node ends: from now on it says nothing here, and what it said last may be lost.
    /// The peer learns of the end as it would have of the next bytes.
    pub(super) fn kill(&mut self, node: usize, now: Duration, faults: &Faults, dice: &mut Dice) {
        if self.nodes == [node; 2] {
            return self.cut();
        }
        for side in 0..2 {
            if self.nodes[side] != node {
                continue;
            }
            let flow = &mut self.flows[side];
            let kept = dice.below(flow.chunks.len() as u64 + 1) as usize;
            flow.chunks.truncate(kept);
            flow.bytes = flow.chunks.iter().map(|(_, chunk)| chunk.len()).sum();
            let last = flow.last.max(now + delay(faults, dice));
            flow.ends_at = flow.ends_at.or(Some(last));
            let towards = &mut self.flows[1 - side];
            towards.over = true;
            towards.chunks.clear();
            self.ends.close(side);
        }
    }
}

impl Ends {
    fn is_there(&self, side: usize) -> bool {
        match self {
            Self::Link(_) => true,
            Self::Control(sockets) => sockets[side].is_some(),
        }
    }

    fn read(&mut self, side: usize, bytes: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Self::Link(cable) => cable.read(side, bytes),
            Self::Control(sockets) => match &mut sockets[side] {
                Some(socket) => socket.read(bytes),
                None => Ok(0),
            },
        }
    }

    fn write(&mut self, side: usize, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Self::Link(cable) => cable.write(side, bytes),
            Self::Control(sockets) => match &mut sockets[side] {
                Some(socket) => socket.write(bytes),
                None => Err(ErrorKind::BrokenPipe.into()),
            },
        }
    }

    fn close(&mut self, side: usize) {
        match self {
            Self::Link(cable) => cable.close(side),
            Self::Control(sockets) => {
                if let Some(socket) = sockets[side].take() {
                    // It fails only if the other end has gone.
                    let _ = socket.shutdown(Shutdown::Both);
                }
            }
        }
    }
}

fn delay(faults: &Faults, dice: &mut Dice) -> Duration {
    let slow = faults.slow_per_million > 0 && dice.chance(faults.slow_per_million);
    dice.span(if slow { &faults.slow } else { &faults.delay })
}
