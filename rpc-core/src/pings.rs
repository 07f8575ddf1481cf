use std::time::Duration;

/// When a connection asks its peer for a sign of life, and how long it waits for one.
///
/// A peer whose process is stopped, or whose cable is cut, may say nothing for ever: its device can
/// still acknowledge what it is sent, and a connection that sends nothing fails at nothing. So a side
/// that has heard nothing for a while sends a PING, which the peer's core answers, and gives the
/// connection up if no answer comes. A peer that waits for something is found within
/// [`busy_after`](Self::busy_after) and [`timeout`](Self::timeout) together, an idle one within one and a
/// half times [`idle_after`](Self::idle_after) and the timeout. Both come up to 0.6 s late, since an idle
/// core wakes for many connections at once.
///
/// Everything heard counts as a sign of life, not only the answer. A core that stood still itself gives
/// its peers the whole timeout again before it judges them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pings {
    on: bool,
    busy_after: Duration,
    idle_after: Duration,
    timeout: Duration,
    /// Whether the timeout was set; otherwise a slow device may raise it.
    timeout_is_set: bool,
}

/// ACK timeouts of a device that the peer may take for an answer, at least: a PING or its answer may be
/// lost with what stands before it, again and again, and that says nothing of the peer.
const ACK_TIMEOUTS: u32 = 8;

/// Below this a busy machine's scheduler decides who lives.
const LEAST: Duration = Duration::from_millis(100);

/// A longer wait is as good as none: [`Pings::off`] says so.
const MOST: Duration = Duration::from_secs(3600);

impl Pings {
    /// The default times: see each.
    pub const fn new() -> Self {
        Self {
            on: true,
            busy_after: Duration::from_secs(2),
            idle_after: Duration::from_secs(30),
            timeout: Duration::from_secs(5),
            timeout_is_set: false,
        }
    }

    /// No PING is sent and no silence is judged: for a peer that stands in a debugger. Those of the peer
    /// are answered all the same.
    pub const fn off() -> Self {
        let mut pings = Self::new();
        pings.on = false;
        pings
    }

    /// Silence after which a connection sends a PING while its peer has something to do for it: calls to
    /// answer, answers to read, memory to read and release, or reads to serve. 0.1 s to an hour; default: 2 s, far longer
    /// than a core that works says nothing.
    #[must_use]
    pub fn busy_after(mut self, silence: Duration) -> Self {
        self.busy_after = silence.clamp(LEAST, MOST);
        self
    }

    /// Silence after which an idle connection sends a PING. The accepting side waits half as long again,
    /// so that usually one side alone asks. 0.1 s to an hour; default: 30 s.
    #[must_use]
    pub fn idle_after(mut self, silence: Duration) -> Self {
        self.idle_after = silence.clamp(LEAST, MOST);
        self
    }

    /// How long the peer may take for a sign of life after that, before the connection ends. 0.1 s to an
    /// hour; default: 5 s, since handlers that block may keep a core that long, and 17 s on soft-RoCE, which
    /// takes two seconds to notice that a packet was lost.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout.clamp(LEAST, MOST);
        self.timeout_is_set = true;
        self
    }

    /// For connections of a device that transmits again what was not acknowledged for so long.
    pub(crate) fn on_device(mut self, ack_timeout: Duration) -> Self {
        if !self.timeout_is_set {
            self.timeout = self.timeout.max(ACK_TIMEOUTS * ack_timeout);
        }
        self
    }

    /// In words.
    pub(crate) fn describe(&self) -> String {
        if !self.on {
            return "not asked for".to_owned();
        }
        let Self { busy_after, idle_after, timeout, .. } = self;
        format!("asked for after {busy_after:?}, idle {idle_after:?}; waited for {timeout:?}")
    }

    pub(crate) fn is_on(&self) -> bool {
        self.on
    }

    /// Silence after which to ask.
    pub(crate) fn after(&self, busy: bool, accepting: bool) -> Duration {
        match (busy, accepting) {
            (true, _) => self.busy_after,
            (false, false) => self.idle_after,
            (false, true) => self.idle_after + self.idle_after / 2,
        }
    }

    pub(crate) fn answer_within(&self) -> Duration {
        self.timeout
    }
}

impl Default for Pings {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_is_slow_to_transmit_again_has_longer_unless_a_time_was_set() {
        let slow = Duration::from_secs(2);
        assert_eq!(Pings::new().on_device(slow).answer_within(), ACK_TIMEOUTS * slow);
        let quick = Duration::from_millis(67);
        assert_eq!(Pings::new().on_device(quick).answer_within(), Duration::from_secs(5));
        let set = Pings::new().timeout(Duration::from_secs(3)).on_device(slow);
        assert_eq!(set.answer_within(), Duration::from_secs(3));
    }
}
