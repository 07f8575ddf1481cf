use std::time::{Duration, Instant};

use super::ConnectError;

/// The time between two lines about the same kind of thing, so that no peer can fill a disk.
const INTERVAL: Duration = Duration::from_secs(1);

/// Lets one line through per second, and counts the others.
#[derive(Default)]
pub(super) struct LogLimit {
    last: Option<Instant>,
    held_back: u64,
}

impl LogLimit {
    /// How many lines were held back since the last, if one may be written now.
    fn pass(&mut self, now: Instant) -> Option<u64> {
        if self.last.is_some_and(|last| now.saturating_duration_since(last) < INTERVAL) {
            self.held_back += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.held_back))
    }

    /// A listener could not accept.
    pub(super) fn accept_failed(&mut self, now: Instant, error: &std::io::Error) {
        if let Some(held_back) = self.pass(now) {
            tracing::warn!(
                %error, held_back,
                "a connection could not be accepted; the listener goes on. If descriptors are \
                 short, raise the limit of open files (ulimit -n)"
            );
        }
    }

    /// A handshake with a peer that came to a server failed.
    pub(super) fn handshake_failed(&mut self, now: Instant, server: u64, error: &ConnectError) {
        if let Some(held_back) = self.pass(now) {
            tracing::warn!(server, %error, held_back, "a peer that connected was turned away");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_second_passes_and_the_rest_is_counted() {
        let start = Instant::now();
        let mut limit = LogLimit::default();
        assert_eq!(limit.pass(start), Some(0));
        for _ in 0..5 {
            assert_eq!(limit.pass(start + INTERVAL / 2), None);
        }
        assert_eq!(limit.pass(start + INTERVAL), Some(5));
        assert_eq!(limit.pass(start + INTERVAL), None);
    }
}
