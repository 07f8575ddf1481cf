//! A connection that the control thread has made arrives at its core.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;
use slab::Slab;

use super::allowance::Allowance;
use super::attention::Seen;
use super::capacity::{
    ANSWERS_DIVISOR, CALLS_MAX, LEASES_MAX, METHODS_MAX, READS_MAX, RECEIVES_GUARANTEED,
};
use super::connection::{Connection, ServerSide, Stage};
use super::drive::Turn;
use super::engine::{Engine, Reservation};
use super::load::ServerLoad;
use super::read_share::ReadTurn;
use super::send_queue::SendQueue;
use super::silence::Moved;
use super::submission::{Observer, Terms};
use crate::cm::{self, ConnectError, Established, InstallDone};
use crate::protocol::{self, ConnectionConfig};
use crate::verbs::{Device, Qp, VerbsError};
use crate::world;

/// The peer's CONFIRM must come within this.
const CONFIRM_WAIT: Duration = Duration::from_secs(5);
/// CONFIRM is longer than one MTU by this much, so that a path which drops full packets is found
/// before any call is.
const CONFIRM_BEYOND_MTU: u32 = 256;
/// How long after its call's deadline a lease is taken back from a peer that has not released it.
const LEASE_GRACE: Duration = Duration::from_secs(2);

/// A QP in RTS and what was agreed for it.
pub(crate) struct Install<D: Device> {
    pub(crate) qp: D::Qp,
    pub(crate) established: Established,
    pub(crate) server: Option<ServerSide>,
    pub(crate) observer: Option<Arc<dyn Observer>>,
    /// The path MTU, bytes.
    pub(crate) mtu: u32,
    /// That of this side's port.
    pub(crate) mtu_own: u32,
    /// READs that this side may have outstanding.
    pub(crate) reads_max: u32,
    /// The longest message taken here.
    pub(crate) message_bytes_max: u64,
    /// The place reserved for it.
    pub(crate) place: Reservation<D>,
}

impl<D: Device> Install<D> {
    fn terms(&self, reads_max: u32) -> Terms {
        let Established { version, peer_address, .. } = &self.established;
        Terms {
            version: *version,
            mtu: self.mtu,
            mtus: [self.mtu_own, peer_address.mtu],
            reads_max,
        }
    }
}

/// For the part of lease ids that a peer cannot guess. Without random numbers ids are still unique.
fn random_seed() -> u64 {
    world::random_u64().unwrap_or_else(|error| {
        tracing::warn!(%error, "no random numbers for lease ids");
        0
    })
}

/// What a server's handlers take up on this core, if they are limited.
fn load_of(turn: &Turn<'_>, server: Option<&ServerSide>) -> Option<Arc<ServerLoad>> {
    server?.loads.as_ref()?.get(turn.shared.index).map(Arc::clone)
}

impl<D: Device> Engine<D> {
    /// Takes a connection over. Its guaranteed receives are posted when `done` is told so; the place
    /// for it was reserved when its QP was made. It waits for eager buffers that are on their way.
    pub(crate) fn install(&mut self, turn: &Turn<'_>, install: Install<D>, done: InstallDone) {
        self.keep_buffers(turn);
        if self.slab.slots_free() < RECEIVES_GUARANTEED && self.awaits_buffers() {
            self.installs.push((install, done));
        } else {
            self.install_now(turn, install, done);
        }
    }

    pub(super) fn install_now(&mut self, turn: &Turn<'_>, install: Install<D>, done: InstallDone) {
        let role = install.established.role;
        let config = self.connection_config(turn, &install);
        let terms = install.terms(config.reads_max);
        let Install { qp, established, server, observer, message_bytes_max, place, .. } = install;
        let qp_num = qp.num();
        let send_wrs = self.capacity.send_wrs;
        let seed = random_seed();
        let allowance = Allowance::new(self.pool.budget().bytes() / ANSWERS_DIVISOR);
        let key = self.connections.insert(|key| Connection {
            key,
            qp: Some(qp),
            protocol: protocol::Connection::new(turn.now, config, seed),
            control: established.control,
            send_queue: SendQueue::new(send_wrs),
            queue_full: false,
            peer: Arc::new(established.peer),
            message_bytes_max: established.message_bytes_max.min(message_bytes_max),
            eager_bytes: established.eager_bytes,
            terms,
            load: load_of(turn, server.as_ref()),
            server,
            allowance,
            observer,
            calls: Slab::new(),
            handlers: FxHashMap::default(),
            methods: Vec::new(),
            leases: FxHashMap::default(),
            revoking: VecDeque::new(),
            behind_binds: None,
            local_last: false,
            transfers: FxHashMap::default(),
            reads: ReadTurn::default(),
            read_at: Seen::now(turn),
            moved_bytes: 0,
            moved: Moved::at(turn.now),
            fetches: VecDeque::new(),
            waiting: VecDeque::new(),
            receives: 0,
            stage: Stage::Open,
            timer: None,
            dirty: false,
            last_wqe: false,
            drained_at: None,
            finished: None,
            closing: None,
            _place: place,
        });
        self.by_qp.insert(qp_num.0, key.slot);
        if let Err(error) = self.back(turn, key.slot) {
            tracing::warn!(%error, "a connection could not be taken over");
            if let Some(connection) = self.connections.at(key.slot) {
                connection.observer = None; // it hears of it from the one who asked
            }
            self.lose(turn, key.slot, super::teardown::Loss::Shutdown);
            done(Err(error));
            return;
        }
        let peer = self.connections.at(key.slot).map(|connection| connection.peer.remote_addr);
        tracing::debug!(
            slot = key.slot,
            core = turn.shared.index,
            ?role,
            ?peer,
            "connection installed"
        );
        done(Ok(()));
        self.pump(turn, key.slot);
        self.mark_dirty(key.slot);
    }

    /// Posts the guaranteed receives and watches the control connection.
    fn back(&mut self, turn: &Turn<'_>, slot: u32) -> Result<(), ConnectError> {
        let given = self.give_receives(slot, RECEIVES_GUARANTEED)?;
        if given < RECEIVES_GUARANTEED {
            return Err(ConnectError::NoMemory {
                what: "its eager buffers are used up".to_owned(),
            });
        }
        let Some(connection) = self.connections.at(slot) else { return Ok(()) };
        turn.shared
            .sleeper
            .watch(connection.control.fd(), Turn::key(self.control.index, slot))
            .map_err(|source| {
                ConnectError::Device(VerbsError::System { operation: "watching a socket", source })
            })
    }

    fn connection_config(&self, turn: &Turn<'_>, install: &Install<D>) -> ConnectionConfig {
        let established = &install.established;
        let usual = ConnectionConfig::default();
        ConnectionConfig {
            role: match established.role {
                cm::Role::Connecting => protocol::Role::Connecting,
                cm::Role::Accepting => protocol::Role::Accepting,
            },
            epoch: established.epoch,
            eager_bytes: established.eager_bytes,
            confirm_own: established.confirm.own,
            confirm_peer: established.confirm.peer,
            confirm_bytes: (install.mtu + CONFIRM_BEYOND_MTU).min(established.eager_bytes),
            confirm_deadline: turn.now + CONFIRM_WAIT,
            calls_out_max: CALLS_MAX,
            calls_in_max: install
                .server
                .as_ref()
                .map_or(CALLS_MAX, |server| server.limits.calls_per_connection_max.min(CALLS_MAX)),
            message_bytes_max: install.message_bytes_max,
            leases_max: LEASES_MAX,
            // The budget bounds what can be advertised; one message of the greatest length must fit.
            lease_bytes_max: self.pool.budget().bytes().max(install.message_bytes_max),
            lease_grace: LEASE_GRACE,
            reads_max: install.reads_max.clamp(1, READS_MAX),
            methods_max: METHODS_MAX,
            pings: self.pings,
            ..usual
        }
    }
}
