use std::ops::Range;
use std::time::Duration;

/// What goes wrong in a simulation, and how often: the rest is drawn from the seed.
///
/// Times are virtual. Rates are means: "a kill each second" is a time between nothing and two seconds.
/// From [`until`](Self::until) on no node is killed or stopped, and nothing cut or parted; then every node that is down
/// or stopped comes back at its time, and every partition ends at its own. Messages and notifications that are
/// late or lost, and verbs that fail, go on until [`Sim::calm`](super::Sim::calm).
#[derive(Clone, Debug)]
#[must_use = "a plan does nothing until a Sim is made from it"]
pub struct Faults {
    pub(super) delay: Range<Duration>,
    pub(super) slow_per_million: u32,
    pub(super) slow: Range<Duration>,
    pub(super) late_per_million: u32,
    pub(super) lost_per_million: u32,
    pub(super) verbs_per_million: u32,
    pub(super) kills: Option<Duration>,
    pub(super) down: Range<Duration>,
    pub(super) stops: Option<Duration>,
    pub(super) stopped: Range<Duration>,
    pub(super) cuts: Option<Duration>,
    pub(super) partitions: Option<Duration>,
    pub(super) parted: Range<Duration>,
    pub(super) until: Duration,
}

const fn us(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

impl Faults {
    /// Nothing goes wrong: messages take 2 to 30 µs.
    pub const fn none() -> Self {
        Self {
            delay: us(2)..us(30),
            slow_per_million: 0,
            slow: ms(1)..ms(20),
            late_per_million: 0,
            lost_per_million: 0,
            verbs_per_million: 0,
            kills: None,
            down: ms(1)..ms(800),
            stops: None,
            stopped: ms(1)..ms(12_000),
            cuts: None,
            partitions: None,
            parted: ms(1)..ms(3_000),
            until: Duration::MAX,
        }
    }

    /// Everything goes wrong now and then, for `until` from the start.
    pub const fn all(until: Duration) -> Self {
        Self {
            slow_per_million: 20_000,
            late_per_million: 50_000,
            lost_per_million: 20_000,
            verbs_per_million: 200,
            kills: Some(ms(800)),
            stops: Some(ms(3_000)),
            cuts: Some(ms(1_500)),
            partitions: Some(ms(1_500)),
            until,
            ..Self::none()
        }
    }

    /// How long a message is on its way, in each direction of a link by itself and in order.
    pub fn delay(mut self, range: Range<Duration>) -> Self {
        self.delay = range;
        self
    }

    /// So many messages in a million take 1 to 20 ms.
    pub const fn slow(mut self, per_million: u32) -> Self {
        self.slow_per_million = per_million;
        self
    }

    /// So many in a million of the events that end a node's sleep do so up to 5 ms late.
    pub const fn late(mut self, per_million: u32) -> Self {
        self.late_per_million = per_million;
        self
    }

    /// So many in a million of the notifications of completions are lost, where the node looks again by
    /// itself: while calls of it are outstanding.
    pub const fn lost(mut self, per_million: u32) -> Self {
        self.lost_per_million = per_million;
        self
    }

    /// So many verbs in a million fail with ENOMEM: see [`Verb`](super::Verb).
    pub const fn verbs(mut self, per_million: u32) -> Self {
        self.verbs_per_million = per_million;
        self
    }

    /// A node is killed once in `mean`, which is at least a millisecond, and stays down for as long as [`down`](Self::down) says.
    pub const fn kills(mut self, mean: Duration) -> Self {
        self.kills = Some(mean);
        self
    }

    /// No node is killed by itself.
    pub const fn no_kills(mut self) -> Self {
        self.kills = None;
        self
    }

    /// How long a node that was killed stays down. Default: 1 to 800 ms.
    pub fn down(mut self, range: Range<Duration>) -> Self {
        self.down = range;
        self
    }

    /// A node is stopped once in `mean`, as by SIGSTOP, for a time of `range`.
    pub fn stops(mut self, mean: Duration, range: Range<Duration>) -> Self {
        (self.stops, self.stopped) = (Some(mean), range);
        self
    }

    /// Everything between two nodes is cut once in `mean`, connections and all; both live on and may
    /// connect again.
    pub const fn cuts(mut self, mean: Duration) -> Self {
        self.cuts = Some(mean);
        self
    }

    /// Nothing passes between two nodes once in `mean`, for a time of `range`; then all of it does.
    pub fn partitions(mut self, mean: Duration, range: Range<Duration>) -> Self {
        (self.partitions, self.parted) = (Some(mean), range);
        self
    }

    /// When the last node is killed or stopped, and the last link cut. Default: never.
    pub const fn until(mut self, until: Duration) -> Self {
        self.until = until;
        self
    }
}

impl Default for Faults {
    fn default() -> Self {
        Self::none()
    }
}

/// How often what went wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FaultCounts {
    /// Nodes killed.
    pub kills: u64,
    /// Nodes stopped.
    pub stops: u64,
    /// Pairs of nodes cut off from each other for good.
    pub cuts: u64,
    /// Pairs of nodes between which nothing passed for a while.
    pub partitions: u64,
    /// Verbs that failed.
    pub verbs: u64,
    /// Notifications that came late.
    pub late: u64,
    /// Notifications that never came.
    pub lost: u64,
}

impl FaultCounts {
    /// Those that may end a connection: without any of them none may be lost.
    pub const fn that_end_connections(&self) -> u64 {
        self.kills + self.stops + self.cuts + self.partitions + self.verbs
    }
}
