use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::dice::Dice;
use super::faults::Faults;
use super::wire::{CHUNK_BYTES, Wire};
use crate::cm::{Address, ConnectError, ControlStream, Door, HostName, Network};
use crate::verbs::soft::Cable;

/// Everything between the nodes: names, listeners, and the streams with what is on its way in them.
pub(super) struct Net {
    faults: Faults,
    pub(super) dice: Dice,
    now: Duration,
    names: Vec<String>,
    /// The device of each node that runs.
    devices: BTreeMap<u64, usize>,
    doors: BTreeMap<(usize, u16), Door>,
    wires: Vec<Wire>,
    dials: Vec<Dialling>,
    parted: Vec<Parted>,
    next_port: u16,
    buffer: Vec<u8>,
}

/// A connection that has not reached its server.
struct Dialling {
    at: Duration,
    to: (usize, u16),
    from: SocketAddr,
    /// Its place among the wires.
    wire: usize,
}

struct Parted {
    nodes: [usize; 2],
    until: Duration,
}

/// Ports that listeners get who ask for any.
const FIRST_FREE_PORT: u16 = 40_000;

/// The net, as all nodes of a simulation share it; they are all on one thread.
#[derive(Clone)]
pub(super) struct SharedNet(Arc<Mutex<Net>>);

impl SharedNet {
    pub(super) fn new(faults: Faults, dice: Dice) -> Self {
        Self(Arc::new(Mutex::new(Net {
            faults,
            dice,
            now: Duration::ZERO,
            names: Vec::new(),
            devices: BTreeMap::new(),
            doors: BTreeMap::new(),
            wires: Vec::new(),
            dials: Vec::new(),
            parted: Vec::new(),
            next_port: FIRST_FREE_PORT,
            buffer: vec![0; CHUNK_BYTES],
        })))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Net> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The net as this node sees it.
    pub(super) fn seen_by(&self, node: usize) -> Arc<dyn Network> {
        Arc::new(Seen { net: self.clone(), node })
    }
}

impl Net {
    /// Gives a name its node, which is the next.
    pub(super) fn add_name(&mut self, name: &str) {
        assert!(!self.names.iter().any(|known| known == name), "two nodes are named {name}");
        self.names.push(name.to_owned());
    }

    /// A node runs, with this device.
    pub(super) fn started(&mut self, node: usize, device: u64) {
        self.devices.insert(device, node);
    }

    pub(super) fn set_now(&mut self, now: Duration) {
        self.now = now;
        self.parted.retain(|parted| parted.until > now);
    }

    /// Takes links that were made, and what the node that has turned wrote. Returns the bytes.
    pub(super) fn collect(&mut self, node: usize, cables: Vec<Cable>) -> usize {
        for cable in cables {
            let of = |guid: u64| self.devices.get(&guid).copied().unwrap_or(node);
            let nodes = cable.guids.map(of);
            self.wires.push(Wire::link(nodes, cable));
        }
        let Self { wires, dice, faults, now, buffer, .. } = self;
        let mut bytes = 0;
        for wire in wires.iter_mut().filter(|wire| wire.touches(node)) {
            wire.look_for_room(node);
            bytes += wire.collect(node, *now, faults, dice, buffer);
        }
        bytes
    }

    /// Delivers what has arrived. Returns the bytes that came to each node.
    pub(super) fn deliver(&mut self) -> Vec<usize> {
        let mut given = vec![0; self.names.len()];
        self.connect();
        let Self { wires, parted, now, .. } = self;
        for wire in wires.iter_mut() {
            if held(parted, wire.nodes) {
                continue;
            }
            let bytes = wire.deliver(*now);
            for side in 0..2 {
                given[wire.nodes[side]] += bytes[side];
            }
        }
        if self.dials.is_empty() {
            self.wires.retain(|wire| !wire.is_over());
        }
        given
    }

    /// Dials that have reached their servers, or found none there.
    fn connect(&mut self) {
        let mut waiting = Vec::new();
        for dial in std::mem::take(&mut self.dials) {
            let nodes = self.wires[dial.wire].nodes;
            if self.wires[dial.wire].is_over() {
                continue;
            }
            if dial.at > self.now || held(&self.parted, nodes) {
                waiting.push(dial);
                continue;
            }
            let end = self.doors.get(&dial.to).and_then(|door| {
                let at = SocketAddr::new(address_of(dial.to.0), dial.to.1);
                let (stream, middle) = ControlStream::simulated(at, dial.from).ok()?;
                door.enter(stream);
                Some(middle)
            });
            match end {
                Some(middle) => self.wires[dial.wire].attach(middle),
                None => self.wires[dial.wire].cut(),
            }
        }
        self.dials = waiting;
    }

    /// When something arrives next.
    pub(super) fn next(&self) -> Option<Duration> {
        let free_at = |nodes: [usize; 2], at: Duration| {
            let of = |parted: &&Parted| same(parted.nodes, nodes);
            self.parted.iter().filter(of).map(|parted| parted.until).fold(at, Duration::max)
        };
        let wires = self.wires.iter().filter_map(|wire| Some(free_at(wire.nodes, wire.next()?)));
        let dials = self.dials.iter().map(|dial| free_at(self.wires[dial.wire].nodes, dial.at));
        wires.chain(dials).min()
    }

    /// The process of a node has ended.
    pub(super) fn kill(&mut self, node: usize, device: u64) {
        self.devices.remove(&device);
        self.doors.retain(|(at, _), _| *at != node);
        let Self { wires, dice, faults, now, .. } = self;
        for wire in wires.iter_mut().filter(|wire| wire.touches(node)) {
            wire.kill(node, *now, faults, dice);
        }
    }

    /// Ends every stream between two nodes.
    pub(super) fn cut(&mut self, one: usize, other: usize) {
        for wire in self.wires.iter_mut().filter(|wire| wire.is_between(one, other)) {
            wire.cut();
        }
    }

    /// Lets nothing pass between two nodes until then.
    pub(super) fn part(&mut self, one: usize, other: usize, until: Duration) {
        self.parted.push(Parted { nodes: [one, other], until });
    }

    /// Ends all partitions. What is sent from now on is late as these say.
    pub(super) fn calm(&mut self, faults: &Faults) {
        self.parted.clear();
        self.faults = faults.clone();
    }

    fn find(&self, address: &Address) -> Result<usize, ConnectError> {
        let found = match address.host() {
            HostName::Name(name) => self.names.iter().position(|known| known == name),
            HostName::Ip(ip) => (0..self.names.len()).find(|node| address_of(*node) == *ip),
        };
        found.ok_or_else(|| ConnectError::Resolve {
            host: format!("{:?}", address.host()),
            reason: "no node of the simulation has this name".to_owned(),
        })
    }
}

fn same(one: [usize; 2], other: [usize; 2]) -> bool {
    one == other || one == [other[1], other[0]]
}

fn held(parted: &[Parted], nodes: [usize; 2]) -> bool {
    parted.iter().any(|parted| same(parted.nodes, nodes))
}

fn address_of(node: usize) -> IpAddr {
    let [_, _, high, low] = (node as u32 + 1).to_be_bytes();
    Ipv4Addr::new(10, 0, high, low).into()
}

struct Seen {
    net: SharedNet,
    node: usize,
}

impl Network for Seen {
    fn dial(&self, address: &Address) -> Result<ControlStream, ConnectError> {
        let mut net = self.net.lock();
        let to = (net.find(address)?, address.port());
        let at = SocketAddr::new(address_of(to.0), to.1);
        let nodes = [self.node, to.0];
        if !net.doors.contains_key(&to) && !held(&net.parted, nodes) {
            return Err(ConnectError::Refused { to: at });
        }
        let from = SocketAddr::new(address_of(self.node), net.free_port());
        let made = ControlStream::simulated(from, at);
        let (stream, middle) = made
            .map_err(|source| ConnectError::System { operation: "making a socket pair", source })?;
        let Net { dice, faults, now, .. } = &mut *net;
        let arrives = *now + dice.span(&faults.delay);
        net.wires.push(Wire::control(nodes, [Some(middle), None]));
        let wire = net.wires.len() - 1;
        net.dials.push(Dialling { at: arrives, to, from, wire });
        Ok(stream)
    }

    fn listen(&self, address: &Address, door: Door) -> Result<SocketAddr, ConnectError> {
        let mut net = self.net.lock();
        let is_any = matches!(address.host(), HostName::Ip(ip) if ip.is_unspecified());
        let port = if address.port() == 0 { net.free_port() } else { address.port() };
        let at = SocketAddr::new(address_of(self.node), port);
        if !is_any && net.find(address)? != self.node {
            return Err(ConnectError::NotLocal { at });
        }
        if net.doors.contains_key(&(self.node, port)) {
            return Err(ConnectError::PortInUse { at });
        }
        net.doors.insert((self.node, port), door);
        Ok(at)
    }

    fn unlisten(&self, server: u64) {
        let node = self.node;
        self.net.lock().doors.retain(|(at, _), door| *at != node || door.server != server);
    }
}

impl Net {
    fn free_port(&mut self) -> u16 {
        self.next_port = self.next_port.checked_add(1).unwrap_or(FIRST_FREE_PORT);
        self.next_port
    }
}
