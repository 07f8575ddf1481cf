use std::path::Path;
use std::time::Duration;

use super::attacker::{Attacker, PATIENCE};
use super::honest::Honest;
use super::server::{Server, Stats};
use crate::{ProcSelf, eventually};

/// What a server's resident memory may be above its level before an attack. Its payload memory is
/// never unmapped, and its allocator keeps what it had once.
const RESIDENT_SLACK: u64 = 192 << 20;

/// What must come back to its level.
const LEVELS: [&str; 9] = [
    "connections",
    "leases",
    "qps",
    "windows_bound",
    "links",
    "outbound",
    "held",
    "hanging",
    "lost_wakeups",
];

/// A server under attack and an honest client of it.
#[derive(Debug)]
pub struct World {
    /// The server.
    pub server: Server,
    /// The honest client.
    pub honest: Honest,
    stats: Stats,
    kernel: ProcSelf,
}

impl World {
    /// Starts both, and takes the levels that everything must come back to.
    ///
    /// # Panics
    /// If they do not start.
    pub fn start(program: &str) -> Self {
        Self::with_descriptors(program, None)
    }

    /// The same, with a server that may have so many descriptors.
    ///
    /// # Panics
    /// If they do not start.
    pub fn with_descriptors(program: &str, max: Option<u32>) -> Self {
        let mut server = Server::start(Path::new(program), max);
        let honest = Honest::start(server.port());
        honest.goes_on();
        let (stats, kernel) = (server.stats(), server.kernel());
        Self { server, honest, stats, kernel }
    }

    /// The server's port.
    pub fn port(&self) -> u16 {
        self.server.port()
    }

    /// A peer that has shaken hands and confirmed.
    pub fn attacker(&self) -> Attacker {
        let mut attacker = Attacker::connect(self.port());
        attacker.confirm();
        attacker
    }

    /// Waits until the server counts what it must.
    ///
    /// # Panics
    /// If it does not.
    pub fn reaches(&mut self, what: &str, mut holds: impl FnMut(&Stats) -> bool) {
        let mut last = self.server.stats();
        eventually(PATIENCE, || {
            last = self.server.stats();
            holds(&last)
        });
        assert!(holds(&last), "{what} is not reached: {last:?}");
    }

    /// The honest client is undisturbed, and everything that the attackers held has come back.
    ///
    /// # Panics
    /// If not.
    pub fn is_at_rest(&mut self) {
        self.honest.goes_on();
        let before = self.stats.clone();
        let mut late = Vec::new();
        eventually(PATIENCE + Duration::from_secs(5), || {
            let now = self.server.stats();
            late = LEVELS
                .into_iter()
                // The honest client has at most one call at a time, with one payload each way.
                .filter(|level| now.get(level) > before.get(level) + self.slack(level))
                .map(|level| format!("{level}: {} after {}", now.get(level), before.get(level)))
                .collect();
            // Each connection owns two receives, and everything granted is posted.
            let (posted, connections) = (now.get("srq_wrs"), now.get("connections"));
            if posted < 2 * connections {
                late.push(format!("{posted} receives stand for {connections} connections"));
            }
            let kernel = self.server.kernel();
            let (now, before) = (kernel.descriptor_count(), self.kernel.descriptor_count());
            if now > before {
                late.push(format!("{now} descriptors after {before}: {:?}", kernel.descriptors));
            }
            late.is_empty()
        });
        assert!(late.is_empty(), "not back: {late:#?}; before: {before:?}");
        let resident = self.server.kernel().resident_bytes;
        let bound = self.kernel.resident_bytes + RESIDENT_SLACK;
        assert!(resident <= bound, "{resident} bytes are resident, the bound is {bound}");
        assert_eq!(self.server.kernel().thread_count(), self.kernel.thread_count());
        self.honest.goes_on();
    }

    /// What the honest client itself may hold in the moment of a look.
    fn slack(&self, level: &str) -> u64 {
        match level {
            "leases" | "windows_bound" => 1,
            "outbound" | "held" => 1 << 20,
            _ => 0,
        }
    }

    /// Ends both.
    ///
    /// # Panics
    /// If the server panicked, or a call of the honest client failed.
    pub fn end(mut self) {
        self.is_at_rest();
        let Self { mut server, honest, .. } = self;
        assert!(honest.end() > 0);
        server.end();
    }
}
