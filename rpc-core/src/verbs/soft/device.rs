use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::config::SoftConfig;
use super::cq::{CqState, SoftCq, SoftCqRef};
use super::env::{Env, PdState, Signals};
use super::fabric::On;
use super::failing::{Failing, Verb};
use super::link::{Hello, Stream, connect};
use super::mr::SoftMr;
use super::mw::SoftMw;
use super::pd::SoftPd;
use super::qp::{QpInner, QpParts};
use super::queue_pair::SoftQp;
use super::random::Random;
use super::srq::{SoftSrq, SoftSrqRef, SrqState};
use super::state::State;
use super::table::Id;
use crate::verbs::{
    Access, AsyncEvent, Device, DeviceCounters, DeviceUsage, Limits, QpInit, QpNum, Region,
    SrqInit, VerbsError,
};

/// QPs one device can hold: an eighth of the 24-bit number space, so that a random number is free.
const QPS_MAX: u32 = 1 << 21;

/// What all handles of one device share.
pub(super) struct Shared {
    pub(super) guid: u64,
    pub(super) limits: Limits,
    pub(super) mem_link_bytes: usize,
    pub(super) signals: Arc<Signals>,
    name: String,
    mem_links: bool,
    on: On,
    pub(super) failing: Failing,
    state: Mutex<State>,
    /// One dial at a time, so that two QPs to one peer make one link.
    dialling: Mutex<()>,
}

impl Shared {
    /// Everything of the device. A panic under the lock is a bug of this crate; what it left is
    /// still the best there is to tear down by.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The link to a peer device: the present one, one in memory, or one that is dialled now.
    /// `None`: the peer dials.
    pub(super) fn link_to(
        self: &Arc<Self>,
        guid: u64,
        dial: Option<SocketAddr>,
    ) -> Result<Option<Id>, VerbsError> {
        let _one = self.dialling.lock().unwrap_or_else(PoisonError::into_inner);
        let present = {
            let mut state = self.lock();
            // A link that is gone already must not be taken for present.
            state.progress();
            state.link_to(guid)
        };
        if present.is_some() {
            return Ok(present);
        }
        if self.mem_links || guid == self.guid {
            let made = self.on.fabric().link(self, guid)?;
            if made.is_some() {
                return Ok(made);
            }
        }
        let Some(to) = dial else { return Ok(None) };
        let end = connect(to, Hello { from: self.guid, to: guid }).map_err(|source| {
            VerbsError::System { operation: "dialling the peer's device", source }
        })?;
        self.lock().add_link(guid, Stream::Tcp(end)).map(Some)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.on.fabric().remove(self.guid);
    }
}

/// Says that an object is not destroyed because of the order, and stays until the process ends.
pub(super) fn refuse_destroy(what: &'static str, why: &'static str) {
    tracing::error!("a {what} was dropped too early and is leaked: {why}");
}

/// An open software device.
#[derive(Clone)]
pub struct SoftDevice {
    shared: Arc<Shared>,
}

impl SoftDevice {
    /// Opens a device.
    ///
    /// # Errors
    /// A value of `config` beyond its bound; no descriptors left; no random numbers.
    pub fn open(config: SoftConfig) -> Result<Self, VerbsError> {
        config.check()?;
        let mut random = Random::new(config.seed);
        let guid = random.next()?;
        let signals = Arc::new(Signals::new()?);
        let shared = Arc::new(Shared {
            guid,
            limits: config.limits,
            mem_link_bytes: config.mem_link_bytes,
            signals: Arc::clone(&signals),
            name: config.name.clone(),
            mem_links: config.mem_links,
            on: config.on.clone(),
            failing: config.failing.clone(),
            state: Mutex::new(State::new(guid, Env::new(config, random, signals))),
            dialling: Mutex::new(()),
        });
        if shared.mem_links {
            shared.on.fabric().add(&shared);
        }
        Ok(Self { shared })
    }

    /// Listens for peers that dial, on a free port of `ip`. From then on the addresses of this
    /// device's QPs say where. `ip` is one that peers can reach, so never the unspecified one. Once
    /// per device: later calls answer with the first one's place.
    ///
    /// # Errors
    /// The system refused, or `ip` is unspecified.
    pub fn listen(&self, ip: IpAddr) -> Result<SocketAddr, VerbsError> {
        if ip.is_unspecified() {
            return Err(VerbsError::Address(
                "links need an address that peers can dial, not the unspecified one".to_owned(),
            ));
        }
        if self.shared.on.is_all() {
            return Ok(SocketAddr::new(ip, 0)); // nobody dials
        }
        let mut state = self.shared.lock();
        let State { newcomers, core, .. } = &mut *state;
        newcomers.listen(&core.env.signals.epoll, ip)
    }

    /// The device's random name.
    pub fn guid(&self) -> u64 {
        self.shared.guid
    }

    /// Packets that were dropped: for no QP, out of order, late, or from another device.
    pub fn packets_dropped(&self) -> u64 {
        self.shared.lock().core.env.packets_dropped
    }

    /// Closes the oldest link that no QP uses, as when sockets are short.
    #[cfg(test)]
    pub(super) fn drop_idle_link(&self) -> bool {
        self.shared.lock().drop_idle_link()
    }

    /// Switches one rule off, to see that a test of it notices.
    #[cfg(any(test, feature = "test-util"))]
    pub fn break_rule(&self, rule: super::Rule) {
        self.shared.lock().core.env.rules.break_rule(rule);
    }

    /// Bytes of its own memory in which packets wait for links.
    #[cfg(test)]
    pub(super) fn waiting_bytes(&self) -> usize {
        self.shared.lock().links.iter().map(|(_, link)| link.tx.copied()).sum()
    }

    fn pd(&self, pd: &SoftPd) -> Result<Id, VerbsError> {
        pd.id_in(&self.shared).ok_or(VerbsError::State {
            operation: "using a protection domain",
            why: "it belongs to another device",
        })
    }
}

fn bounded(what: &'static str, value: u32, max: u32) -> Result<(), VerbsError> {
    if value <= max { Ok(()) } else { Err(VerbsError::Limit { what, max: max.into() }) }
}

fn unknown(why: &'static str) -> VerbsError {
    VerbsError::State { operation: "creating a queue pair", why }
}

impl Device for SoftDevice {
    type Pd = SoftPd;
    type Mr = SoftMr;
    type Mw = SoftMw;
    type Cq = SoftCq;
    type CqRef = SoftCqRef;
    type Srq = SoftSrq;
    type SrqRef = SoftSrqRef;
    type Qp = SoftQp;

    fn name(&self) -> &str {
        &self.shared.name
    }

    fn limits(&self) -> Limits {
        self.shared.limits
    }

    fn alloc_pd(&self) -> Result<SoftPd, VerbsError> {
        let id = self.shared.lock().core.env.pds.insert_with(|_| PdState { users: 0 });
        Ok(SoftPd::new(Arc::clone(&self.shared), id))
    }

    fn register(&self, pd: &SoftPd, region: Region, access: Access) -> Result<SoftMr, VerbsError> {
        let pd = self.pd(pd)?;
        if region.is_empty() {
            return Err(VerbsError::State { operation: "registering", why: "the region is empty" });
        }
        self.shared.failing.check(Verb::Register, "registering memory")?;
        let mut state = self.shared.lock();
        let env = &mut state.core.env;
        env.hold_pd(pd)?;
        match env.keys.add_mr(&mut env.random, pd, region, access) {
            Ok(keys) => Ok(SoftMr::new(Arc::clone(&self.shared), keys)),
            Err(error) => {
                env.release_pd(pd);
                Err(error)
            }
        }
    }

    fn alloc_mw(&self, pd: &SoftPd) -> Result<SoftMw, VerbsError> {
        if !self.shared.limits.windows {
            return Err(VerbsError::Limit { what: "memory windows", max: 0 });
        }
        self.shared.failing.check(Verb::AllocMw, "allocating a memory window")?;
        let pd = self.pd(pd)?;
        let mut state = self.shared.lock();
        let env = &mut state.core.env;
        env.hold_pd(pd)?;
        match env.keys.add_mw(&mut env.random, pd) {
            Ok(key) => Ok(SoftMw::new(Arc::clone(&self.shared), key)),
            Err(error) => {
                env.release_pd(pd);
                Err(error)
            }
        }
    }

    fn create_cq(&self, cqe: u32) -> Result<SoftCq, VerbsError> {
        bounded("entries of a completion queue", cqe, self.shared.limits.cqe_max)?;
        let id = self.shared.lock().core.env.cqs.insert_with(|_| CqState::new(cqe));
        Ok(SoftCq::new(Arc::clone(&self.shared), id))
    }

    fn cq_ref(&self, cq: &SoftCq) -> SoftCqRef {
        cq.name()
    }

    fn create_srq(&self, pd: &SoftPd, init: SrqInit) -> Result<SoftSrq, VerbsError> {
        bounded("receives of an SRQ", init.wr_max, self.shared.limits.srq_wr_max)?;
        bounded("scatter entries of a receive", init.sge_max, self.shared.limits.sge_max)?;
        let pd = self.pd(pd)?;
        let mut state = self.shared.lock();
        let env = &mut state.core.env;
        let seed = env.random.next()?;
        env.hold_pd(pd)?;
        let id = env.srqs.insert_with(|_| SrqState::new(pd, init, seed));
        Ok(SoftSrq::new(Arc::clone(&self.shared), id, init))
    }

    fn srq_ref(&self, srq: &SoftSrq) -> SoftSrqRef {
        srq.name()
    }

    fn create_qp(&self, init: &QpInit<'_, Self>) -> Result<SoftQp, VerbsError> {
        let limits = &self.shared.limits;
        bounded("requests of a send queue", init.send_wr_max, limits.qp_wr_max)?;
        bounded("gather entries of a request", init.send_sge_max, limits.sge_max)?;
        bounded("inline bytes", init.inline_bytes_max, limits.inline_bytes_max)?;
        self.shared.failing.check(Verb::CreateQp, "creating a queue pair")?;
        let guids = [init.send_cq.guid, init.recv_cq.guid, init.srq.guid];
        if guids != [self.shared.guid; 3] {
            return Err(unknown("a queue belongs to another device"));
        }
        let parts = QpParts {
            pd: self.pd(init.pd)?,
            send_cq: init.send_cq.id,
            recv_cq: init.recv_cq.id,
            srq: init.srq.id,
            send_wr_max: init.send_wr_max,
            remote_read: init.remote_read,
        };
        let mut state = self.shared.lock();
        let core = &mut state.core;
        if core.qps.len() >= QPS_MAX {
            return Err(VerbsError::Limit { what: "queue pairs", max: QPS_MAX.into() });
        }
        let env = &mut core.env;
        if env.srqs.get(parts.srq).is_none() {
            return Err(unknown("its SRQ is gone"));
        }
        if env.cqs.get(parts.send_cq).is_none() || env.cqs.get(parts.recv_cq).is_none() {
            return Err(unknown("its CQ is gone"));
        }
        let num = loop {
            let num = (env.random.next()? & 0x00ff_ffff) as u32;
            // 0 and 1 are reserved for management.
            if num > 1 && !core.by_num.contains_key(&num) {
                break num;
            }
        };
        env.hold_pd(parts.pd)?;
        env.count_qp(&parts, 1);
        let id = core.qps.insert_with(|id| QpInner::new(id, QpNum(num), parts));
        core.by_num.insert(num, id);
        drop(state);
        Ok(SoftQp::new(Arc::clone(&self.shared), id, QpNum(num), init))
    }

    fn async_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.shared.signals.events.as_fd())
    }

    fn poll_async(&self) -> Option<AsyncEvent> {
        self.shared.lock().core.env.take_event()
    }

    fn counters(&self) -> DeviceCounters {
        self.shared.lock().core.env.counters
    }

    fn usage(&self) -> DeviceUsage {
        let state = self.shared.lock();
        let env = &state.core.env;
        DeviceUsage {
            pds: env.pds.len(),
            mrs: env.keys.mrs,
            mr_bytes: env.keys.mr_bytes,
            mws: env.keys.mws,
            mws_bound: env.keys.mws_bound,
            cqs: env.cqs.len(),
            srqs: env.srqs.len(),
            srq_wrs: env.srqs.iter().map(|(_, srq)| srq.len()).sum(),
            qps: state.core.qps.len(),
            links: state.links.len(),
        }
    }
}
