use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::CoreHandle;
use crate::cm::{
    ConnectError, Established, Host, InstallDone, LocalHello, OpenRequest, PendingQp, Role,
};
use crate::engine::capacity::{EAGER_BYTES, SEND_WRS_CONTROL};
use crate::engine::{CoreShared, EngineControl, Install, Observer, Reservation, ServerSide};
use crate::verbs::soft::SoftDevice;
use crate::verbs::{Device, Psn, Qp, QpAddress, QpAttr, QpInit, VerbsError};

/// The runtime as its control thread sees it: who we are, and how a QP is made for a core.
pub(super) struct RuntimeHost {
    pub(super) cores: Vec<CoreHandle>,
    pub(super) boot_id: u128,
    pub(super) name: String,
    pub(super) message_bytes_max: u64,
    pub(super) rnr_retry: u8,
    servers: Mutex<HashMap<u64, ServerSide>>,
    next_server: AtomicU64,
}

impl RuntimeHost {
    pub(super) fn new(
        cores: Vec<CoreHandle>,
        boot_id: u128,
        name: String,
        message_bytes_max: u64,
        rnr_retry: u8,
    ) -> Self {
        Self {
            cores,
            boot_id,
            name,
            message_bytes_max,
            rnr_retry,
            servers: Mutex::default(),
            next_server: AtomicU64::new(1),
        }
    }

    pub(super) fn add_server(&self, make: impl FnOnce(u64) -> ServerSide) -> u64 {
        let server = self.next_server.fetch_add(1, Ordering::Relaxed);
        let side = make(server);
        self.servers.lock().unwrap_or_else(PoisonError::into_inner).insert(server, side);
        server
    }

    pub(super) fn remove_server(&self, server: u64) {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner).remove(&server);
    }

    fn server(&self, server: u64) -> Option<ServerSide> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner).get(&server).cloned()
    }

    /// The core for a new connection: the one asked for, or the one with the fewest.
    fn place(&self, wanted: Option<usize>) -> Option<&CoreHandle> {
        match wanted {
            Some(core) => self.cores.get(core),
            None => {
                self.cores.iter().min_by_key(|core| core.engine.connections.load(Ordering::Relaxed))
            }
        }
    }
}

impl Host for RuntimeHost {
    fn hello(&self) -> LocalHello {
        LocalHello {
            boot_id: self.boot_id,
            name: self.name.clone(),
            eager_bytes: EAGER_BYTES,
            message_bytes_max: self.message_bytes_max,
        }
    }

    fn open(&self, request: &OpenRequest) -> Result<Box<dyn PendingQp>, ConnectError> {
        let server = match request.server {
            None => None,
            Some(server) => Some(self.server(server).ok_or(ConnectError::NoServer)?),
        };
        let core = self.place(request.core).ok_or(ConnectError::ShutDown)?;
        let place = core.engine.reserve().ok_or_else(no_place)?;
        let mut pending = Pending {
            core: Arc::clone(&core.shared),
            engine: Arc::clone(&core.engine),
            qp: None,
            address: None,
            server,
            mtu: 0,
            reads_max: 0,
            rnr_retry: self.rnr_retry,
            message_bytes_max: self.message_bytes_max,
            place: Some(place),
        };
        let listen_at = (request.role == Role::Accepting && !request.in_process)
            .then_some(request.local_ip)
            .flatten();
        pending.open(listen_at)?;
        Ok(Box::new(pending))
    }
}

fn no_place() -> ConnectError {
    let what =
        "the core has as many connections as its device's queues can hold; give the runtime \
                more cores"
            .to_owned();
    ConnectError::NoMemory { what }
}

/// A QP for a core that has no peer yet.
struct Pending {
    core: Arc<CoreShared>,
    engine: Arc<EngineControl<SoftDevice>>,
    qp: Option<<SoftDevice as Device>::Qp>,
    address: Option<QpAddress>,
    server: Option<ServerSide>,
    mtu: u32,
    reads_max: u32,
    rnr_retry: u8,
    message_bytes_max: u64,
    place: Option<Reservation<SoftDevice>>,
}

impl Pending {
    fn open(&mut self, listen_at: Option<IpAddr>) -> Result<(), ConnectError> {
        let engine = &self.engine;
        if let Some(ip) = listen_at {
            engine.device.listen(ip)?;
        }
        let qp = engine.device.create_qp(&QpInit {
            pd: &engine.pd,
            send_cq: &engine.cq,
            recv_cq: &engine.cq,
            srq: &engine.srq,
            send_wr_max: engine.capacity.send_wrs,
            send_sge_max: 1,
            inline_bytes_max: 0,
            remote_read: true,
        })?;
        let mut psn = [0; 4];
        getrandom::fill(&mut psn).map_err(|error| VerbsError::System {
            operation: "drawing a random PSN",
            source: std::io::Error::other(error),
        })?;
        self.address = Some(qp.address(Psn::new(u32::from_ne_bytes(psn)))?);
        self.qp = Some(qp);
        debug_assert!(engine.capacity.send_wrs > SEND_WRS_CONTROL);
        Ok(())
    }
}

impl PendingQp for Pending {
    fn address(&self) -> QpAddress {
        // `open` has set it before anyone could ask.
        self.address.clone().unwrap_or_else(|| unreachable!("a pending QP has an address"))
    }

    fn connect(&mut self, peer: &QpAddress) -> Result<(), ConnectError> {
        let limits = self.engine.device.limits();
        self.mtu = limits.mtu.min(peer.mtu);
        let max_rd_atomic = limits.max_rd_atomic.min(peer.max_dest_rd_atomic);
        self.reads_max = u32::from(max_rd_atomic);
        let attr = QpAttr {
            mtu: self.mtu,
            max_rd_atomic,
            max_dest_rd_atomic: limits.max_dest_rd_atomic,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: self.rnr_retry,
            min_rnr_timer: 12,
        };
        let qp = self.qp.as_mut().ok_or(ConnectError::ShutDown)?;
        qp.to_rtr(peer, &attr)?;
        Ok(qp.to_rts(&attr)?)
    }

    fn install(mut self: Box<Self>, mut established: Established, done: InstallDone) {
        let (Some(qp), Some(place)) = (self.qp.take(), self.place.take()) else {
            return done(Err(ConnectError::ShutDown));
        };
        let observer = established
            .context
            .take()
            .and_then(|context| context.downcast::<Arc<dyn Observer>>().ok())
            .map(|observer| *observer);
        let install = Install {
            qp,
            established,
            server: self.server.take(),
            observer,
            mtu: self.mtu,
            reads_max: self.reads_max,
            message_bytes_max: self.message_bytes_max,
            place,
        };
        let index = usize::from(self.engine.index);
        let core = Arc::clone(&self.core);
        drop(self);
        core.run_on_core(Box::new(move |core| {
            core.with_engine::<SoftDevice>(index, |engine, turn| {
                engine.install(turn, install, done);
            });
        }));
    }
}
