use std::sync::Arc;

use crate::cm::{ConnectError, Established, InstallDone, PendingQp};
use crate::engine::{CoreShared, EngineControl, Install, Observer, Reservation, ServerSide};
use crate::verbs::{Device, Psn, Qp, QpAddress, QpAttr, VerbsError};
use crate::world;

/// Local ACK timeout: 4.096 µs × 2^14, 67 ms.
const ACK_TIMEOUT: u8 = 14;
/// Retries after it, the most there are: with the timeout, about half a second.
const RETRIES: u8 = 7;
/// The pause asked of a peer that found no receive: 0.64 ms.
const RNR_TIMER: u8 = 12;

/// A QP for a core that has no peer yet.
pub(super) struct Pending<D: Device> {
    core: Arc<CoreShared>,
    engine: Arc<EngineControl<D>>,
    qp: Option<D::Qp>,
    address: QpAddress,
    server: Option<ServerSide>,
    mtu: u32,
    reads_max: u32,
    rnr_retry: u8,
    message_bytes_max: u64,
    place: Option<Reservation<D>>,
}

/// What a pending QP is made for.
pub(super) struct Purpose {
    pub(super) server: Option<ServerSide>,
    pub(super) rnr_retry: u8,
    pub(super) message_bytes_max: u64,
}

impl<D: Device> Pending<D> {
    /// Makes a QP on an engine's queues, in INIT. `device` is the engine's, as the handle that knows
    /// the connection's path.
    pub(super) fn open(
        core: &Arc<CoreShared>,
        engine: &Arc<EngineControl<D>>,
        device: &D,
        purpose: Purpose,
    ) -> Result<Self, ConnectError> {
        let place = engine.reserve().ok_or_else(no_place)?;
        let qp = device.create_qp(&engine.qp_init())?;
        let address = qp.address(random_psn()?)?;
        Ok(Self {
            core: Arc::clone(core),
            engine: Arc::clone(engine),
            qp: Some(qp),
            address,
            server: purpose.server,
            mtu: 0,
            reads_max: 0,
            rnr_retry: purpose.rnr_retry,
            message_bytes_max: purpose.message_bytes_max,
            place: Some(place),
        })
    }
}

impl<D: Device> PendingQp for Pending<D> {
    fn address(&self) -> QpAddress {
        self.address.clone()
    }

    fn connect(&mut self, peer: &QpAddress) -> Result<(), ConnectError> {
        let limits = self.engine.device.limits();
        // Of what both sides said, as it is now; the limits are of when the device was opened.
        self.mtu = self.address.mtu.min(peer.mtu);
        let max_rd_atomic = limits.max_rd_atomic.min(peer.max_dest_rd_atomic);
        self.reads_max = u32::from(max_rd_atomic);
        let attr = QpAttr {
            mtu: self.mtu,
            max_rd_atomic,
            max_dest_rd_atomic: limits.max_dest_rd_atomic,
            timeout: ACK_TIMEOUT.max(limits.ack_timeout_min),
            retry_cnt: RETRIES.min(limits.retries_max),
            rnr_retry: self.rnr_retry,
            min_rnr_timer: RNR_TIMER,
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
            mtu_own: self.address.mtu,
            reads_max: self.reads_max,
            message_bytes_max: self.message_bytes_max,
            place,
        };
        let index = usize::from(self.engine.index);
        let core = Arc::clone(&self.core);
        drop(self);
        core.run_on_core(Box::new(move |core| {
            core.with_engine::<D>(index, |engine, turn| {
                engine.install(turn, install, done);
            });
        }));
    }
}

fn random_psn() -> Result<Psn, VerbsError> {
    let mut psn = [0; 4];
    world::fill_random(&mut psn).map_err(|error| VerbsError::System {
        operation: "drawing a random PSN",
        source: std::io::Error::other(error),
    })?;
    Ok(Psn::new(u32::from_ne_bytes(psn)))
}

fn no_place() -> ConnectError {
    let what =
        "the core has as many connections as its device's queues can hold; give the runtime \
                more cores"
            .to_owned();
    ConnectError::NoMemory { what }
}
