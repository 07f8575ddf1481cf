use std::time::Duration;

use super::{LocalRuntime, Runtime};
use crate::cm::RdmaOptions;
use crate::engine::Lending;
use crate::engine::capacity::READ_BYTES_MAX;
use crate::{Execution, Pings, Status};

/// Collects a runtime's settings.
///
/// Every value has a default that suits a laptop; [`Runtime::describe`] prints the effective ones.
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until build() or on_this_thread()"]
pub struct RuntimeBuilder {
    pub(super) cores: usize,
    pub(super) pin: Vec<usize>,
    pub(super) spin: Option<Duration>,
    pub(super) budget_bytes: Option<u64>,
    pub(super) message_bytes_max: u64,
    pub(super) rnr_retry: u8,
    pub(super) lending: Lending,
    pub(super) read_bytes_max: u64,
    pub(super) pings: Pings,
    pub(super) rdma: RdmaOptions,
    pub(super) tcp_links: bool,
    pub(super) verbs_on_control: bool,
    pub(super) silence_max: Option<Duration>,
    pub(super) local_ops_alone: bool,
    pub(super) name: String,
    #[cfg(any(test, feature = "test-util"))]
    pub(super) surroundings: Option<super::Surroundings>,
}

/// Cores of a runtime at most.
const CORES_MAX: usize = 1024;

/// Default of [`RuntimeBuilder::spin`]: about the round trip of a fast network, so that a busy peer's
/// answer is met awake.
const SPIN: Duration = Duration::from_micros(20);

/// Default of [`RuntimeBuilder::message_bytes_max`]: a value of 64 MiB and what describes it.
const MESSAGE_BYTES_MAX: u64 = 65 << 20;

impl RuntimeBuilder {
    pub(super) fn new() -> Self {
        Self {
            cores: 1,
            pin: Vec::new(),
            spin: None,
            budget_bytes: None,
            message_bytes_max: MESSAGE_BYTES_MAX,
            // Rides out a peer that overdraws its credits until its QP is in ERR.
            rnr_retry: 6,
            lending: Lending::USUAL,
            read_bytes_max: READ_BYTES_MAX,
            pings: Pings::new(),
            rdma: RdmaOptions::default(),
            tcp_links: false,
            verbs_on_control: false,
            silence_max: None,
            local_ops_alone: false,
            name: String::new(),
            #[cfg(any(test, feature = "test-util"))]
            surroundings: None,
        }
    }

    /// Threads that serve connections, 1 to 1024. Default: 1.
    pub fn cores(mut self, cores: usize) -> Self {
        self.cores = cores.clamp(1, CORES_MAX);
        self
    }

    /// Pins the cores to these CPUs, in order; cores beyond the list are left to the system.
    pub fn pin(mut self, cpus: impl IntoIterator<Item = usize>) -> Self {
        self.pin = cpus.into_iter().collect();
        self
    }

    /// How long an idle core looks for work before it sleeps. Default: 20 µs; 0 where the process
    /// may use a single CPU, since spinning there only delays the peer.
    pub fn spin(mut self, spin: Duration) -> Self {
        self.spin = Some(spin);
        self
    }

    /// Payload memory of the runtime, both directions together. Default: an eighth of the host's
    /// memory, at most 1 GiB.
    pub fn budget_bytes(mut self, bytes: u64) -> Self {
        self.budget_bytes = Some(bytes);
        self
    }

    /// The longest message that is taken from a peer or sent to one, in bytes; so both ends of a call need it.
    /// Default: 65 MiB. The memory budget bounds it too.
    pub fn message_bytes_max(mut self, bytes: u64) -> Self {
        self.message_bytes_max = bytes;
        self
    }

    /// How often the device repeats a SEND that found no receive, 0 to 7 (7: for ever). Default: 6.
    /// Credits make it needless between honest peers; tests set 0, so that a credit that was never
    /// backed is an error.
    pub fn rnr_retry(mut self, retries: u8) -> Self {
        self.rnr_retry = retries.min(7);
        self
    }

    /// When peers that say nothing are asked for a sign of life, and how long they may take before their
    /// connections end. Default: [`Pings::new`]; [`Pings::off`] for a peer that stands in a debugger.
    pub fn pings(mut self, pings: Pings) -> Self {
        self.pings = pings;
        self
    }

    /// The RDMA device and path of all servers and channels, where their `rdma://` or `auto://` address does not
    /// say otherwise (`?device=`, `?rdma_ip=` and so on). Default: what follows from the local address of
    /// each connection.
    ///
    /// ```
    /// # use rpc_core::{RdmaOptions, Runtime};
    /// let mut rdma = RdmaOptions::default();
    /// rdma.addresses = vec!["10.1.0.7".parse().unwrap()];
    /// let runtime = Runtime::builder().rdma(rdma);
    /// ```
    pub fn rdma(mut self, options: RdmaOptions) -> Self {
        self.rdma = options;
        self
    }

    /// Bytes that a core has asked for by READ at once, over all its connections, which take turns when they
    /// want more. Default: 16 MiB. One READ, of at most 128 KiB, is always let through.
    pub fn read_bytes_max(mut self, bytes: u64) -> Self {
        self.read_bytes_max = bytes;
        self
    }

    /// Lends each connection no more than this many receives beside its own two; 0 leaves the peer a
    /// window of one SEND. For tests, which show that this is enough to make progress.
    #[doc(hidden)]
    pub fn receives_lent_max(mut self, receives: u32) -> Self {
        self.lending.each_max = receives;
        self
    }

    /// Receives that a core lends to all its connections together, beside the two of each: what peers that
    /// are busy at once may send ahead, each 9 KiB of pinned memory. Default and most: 2,048, what 32 busy
    /// peers use. When they are used up, peers that need more get what others do not use.
    pub fn receives_surplus_max(mut self, receives: u32) -> Self {
        self.lending.core_max = receives;
        self
    }

    /// Uses TCP links even between two runtimes of one process, as between hosts. Default: no.
    pub fn tcp_links(mut self, always: bool) -> Self {
        self.tcp_links = always;
        self
    }

    /// Treats the software device as one whose control verbs may block: they run on the control
    /// thread, as those of libibverbs do. For tests of that path.
    #[doc(hidden)]
    pub fn verbs_on_control_thread(mut self, always: bool) -> Self {
        self.verbs_on_control = always;
        self
    }

    /// Has the software device promise that it completes or fails a request within this time, as a NIC
    /// does. It does not while the peer stands still: for tests of what then happens.
    #[doc(hidden)]
    pub fn silence_max(mut self, limit: Duration) -> Self {
        self.silence_max = Some(limit);
        self
    }

    /// Has the software device take binds and invalidations only by themselves, as soft-RoCE must have
    /// them. For tests of what then waits.
    #[doc(hidden)]
    pub fn local_ops_alone(mut self, alone: bool) -> Self {
        self.local_ops_alone = alone;
        self
    }

    /// A name that peers see in the hello and people in logs, at most 64 bytes.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Starts the runtime: one thread for each core and one for control.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED or INTERNAL, with a sentence, when memory cannot be reserved, a device
    /// cannot be opened or a thread cannot be started.
    pub fn build(self) -> Result<Runtime, Status> {
        Runtime::start(self).map_err(nothing_ran)
    }

    /// Makes this thread the runtime's one core: the control thread is then the only other. For
    /// tests, tools, blocking clients at full speed, and loops of a program's own.
    ///
    /// # Errors
    /// As [`build`](Self::build).
    pub fn on_this_thread(self) -> Result<LocalRuntime, Status> {
        LocalRuntime::start(self).map_err(nothing_ran)
    }

    /// The budget, if none was asked for.
    #[cfg(any(test, feature = "test-util"))]
    pub(crate) fn default_budget_bytes(mut self, bytes: u64) -> Self {
        self.budget_bytes.get_or_insert(bytes);
        self
    }

    pub(super) fn effective_spin(&self) -> Duration {
        let single = std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() == 1);
        self.spin.unwrap_or(if single { Duration::ZERO } else { SPIN })
    }
}

/// A runtime that could not be made has called nothing.
fn nothing_ran(status: Status) -> Status {
    status.with_execution(Execution::NotExecuted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_that_cannot_be_made_has_executed_nothing() {
        let failed = RuntimeBuilder::new().budget_bytes(1).build().unwrap_err();
        assert_eq!(failed.execution(), Execution::NotExecuted);
    }
}
