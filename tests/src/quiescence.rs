use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rpc_core::{Runtime, RuntimeBuilder, RuntimeStats};

use crate::devices::usage_of;
use crate::{Place, ProcSelf, Watchdog, eventually};

/// A test has this long, on a machine that is busy with other things.
const LIMIT: Duration = Duration::from_secs(60);
/// What a test used is back within this.
const SETTLE: Duration = Duration::from_secs(20);

/// Which device of libibverbs the software device is treated like, by every runtime. With `nic`, what may
/// block is done on the control thread; with `soft-roce`, binds and invalidations stand by themselves as
/// well. The same tests then hold for those paths.
const LIKE: &str = "RPC_TEST_LIKE";

/// Whether binds and invalidations stand by themselves here, so that every flush ends with a completion.
pub fn local_ops_stand_alone() -> bool {
    !Place::here().is_soft() || std::env::var(LIKE).is_ok_and(|like| like == "soft-roce")
}

/// Descriptors and threads are counted for the whole process, so tests that use this take turns.
static ALONE: Mutex<()> = Mutex::new(());

/// Whether everything that a test used came back.
///
/// It starts before the test's first runtime and makes its runtimes, on which a SEND that finds no
/// receive is an error at once (`rnr_retry(0)`). At its [`end`](Self::end) it waits until the devices'
/// own tables, payload memory, and the process's threads and descriptors are what they were. The
/// counts come from the devices and the kernel, not from the code that gives things back; what only
/// the runtime can count is looked at beside them.
#[derive(Debug)]
pub struct Quiescence {
    runtimes: Vec<Runtime>,
    before: ProcSelf,
    _watchdog: Watchdog,
    _alone: MutexGuard<'static, ()>,
}

impl Quiescence {
    /// Begins a test of a minute at most.
    ///
    /// # Panics
    /// If /proc cannot be read.
    pub fn begin() -> Self {
        Self::within(LIMIT)
    }

    /// Begins a test that ends within `limit` (longer in the guest), or the process does.
    ///
    /// # Panics
    /// If /proc cannot be read.
    pub fn within(limit: Duration) -> Self {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        Self {
            runtimes: Vec::new(),
            before: ProcSelf::read().expect("/proc/self is readable"),
            _watchdog: Watchdog::start(Place::here().within(limit)),
            _alone: alone,
        }
    }

    /// A runtime of these settings, and without RNR retries. It lives to the end of the test.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn runtime(&mut self, builder: RuntimeBuilder) -> Runtime {
        let runtime = self.stopping(builder);
        self.watch(&runtime);
        runtime
    }

    /// The same for one that stops before the test ends: with the last handle that the test drops.
    /// Only its threads and descriptors are looked for at the end.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn stopping(&self, builder: RuntimeBuilder) -> Runtime {
        let like = std::env::var(LIKE).unwrap_or_default();
        let (like_nic, like_soft_roce) = match like.as_str() {
            "" => (false, false),
            "nic" => (true, false),
            "soft-roce" => (true, true),
            other => panic!("{LIKE}={other}: it is nic or soft-roce"),
        };
        // What the test itself asked for stays.
        let mut builder = builder.rnr_retry(0);
        if like_nic {
            builder = builder.verbs_on_control_thread(true).local_ops_alone(like_soft_roce);
        }
        builder.build().expect("a runtime starts")
    }

    /// Looks at this runtime too at the end.
    pub fn watch(&mut self, runtime: &Runtime) {
        self.runtimes.push(runtime.clone());
    }

    /// Waits until everything is back, then stops the runtimes and waits for their threads and
    /// descriptors.
    ///
    /// The test has dropped its servers, channels and messages by now.
    ///
    /// # Panics
    /// With what is left, if it stays.
    pub fn end(mut self) {
        let left = || -> Vec<String> {
            self.runtimes.iter().flat_map(|runtime| left_of(&runtime.stats())).collect()
        };
        assert!(eventually(SETTLE, || left().is_empty()), "left of the test: {:#?}", left());
        self.runtimes.clear();
        let before = &self.before;
        let left = || before.not_back();
        assert!(eventually(SETTLE, || left().is_empty()), "left of the test: {:#?}", left());
    }
}

/// What a runtime at rest holds that it should not.
pub(crate) fn left_of(stats: &RuntimeStats) -> Vec<String> {
    let memory = &stats.memory;
    let mut left = Vec::new();
    note(&mut left, "bytes of inbound payload memory", memory.inbound);
    note(&mut left, "bytes of outbound payload memory", memory.outbound);
    note(&mut left, "bytes of payloads held by users", memory.held_by_users);
    for device in &stats.devices {
        let mut of_device = Vec::new();
        note(&mut of_device, "queue pairs", device.usage.qps);
        note(&mut of_device, "windows that are bound", device.usage.mws_bound);
        left.extend(of_device.into_iter().map(|what| format!("{}: {what}", device.name)));
    }
    for (index, core) in stats.cores.iter().enumerate() {
        let mut of_core = Vec::new();
        note(&mut of_core, "queue pairs in the device's table", core.usage.qps);
        note(&mut of_core, "windows that are bound in the device's table", core.usage.mws_bound);
        note(&mut of_core, "connections", core.connections);
        note(&mut of_core, "leases", core.leases);
        note(&mut of_core, "eager buffers of SENDs", core.send_buffers);
        note(&mut of_core, "credits of no connection", core.credits_granted);
        left.extend(of_core.into_iter().map(|what| format!("core {index}: {what}")));
    }
    left
}

fn note(left: &mut Vec<String>, what: &str, count: impl Into<u64>) {
    let count = count.into();
    if count > 0 {
        left.push(format!("{count} {what}"));
    }
}

/// Whether the connections of a runtime's first core have credits and every one is backed: receives are
/// what the device's own table says, and peers may use some, but no more than are posted.
pub fn credits_are_backed(stats: &RuntimeStats) -> bool {
    let (core, usage) = (&stats.cores[0], usage_of(stats));
    core.receives_posted == usage.srq_wrs
        && core.credits_granted > 0
        && core.credits_granted <= usage.srq_wrs
}

impl ProcSelf {
    /// Threads of runtimes and descriptors that are more than they were when `self` was read.
    fn not_back(&self) -> Vec<String> {
        let now = Self::read().expect("/proc/self is readable");
        let mut left = Vec::new();
        let (threads, were) = (now.threads_named("rpc-"), self.threads_named("rpc-"));
        if threads > were {
            left.push(format!("{} threads: {:?}", threads - were, now.threads));
        }
        for (what, count) in &now.descriptors {
            let was = self.descriptors.get(what).copied().unwrap_or(0);
            if *count > was {
                left.push(format!("{} descriptors of {what}", count - was));
            }
        }
        left
    }
}
