use std::time::Duration;

/// How long a channel waits between attempts to connect: twice as long after each failure, up to a bound,
/// and a random part of that less, so that many clients of one server do not come back in step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Backoff {
    first: Duration,
    most: Duration,
}

/// A wait shorter than this would be none.
const LEAST: Duration = Duration::from_millis(1);

/// A longer wait is no reconnecting.
const MOST: Duration = Duration::from_secs(3600);

impl Default for Backoff {
    /// A restarted server is back within a second or two; whoever calls meanwhile costs the network
    /// little, and finds it within 3 s of its return.
    fn default() -> Self {
        Self { first: Duration::from_millis(50), most: Duration::from_secs(3) }
    }
}

impl Backoff {
    pub(super) fn new(first: Duration, most: Duration) -> Self {
        let first = first.clamp(LEAST, MOST);
        Self { first, most: most.clamp(first, MOST) }
    }

    /// The wait after so many failures in a row, from half of its whole length to all of it; `random` says
    /// where.
    pub(super) fn after(&self, failures: u32, random: u32) -> Duration {
        let doubled = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
        let whole = self.first.saturating_mul(doubled).min(self.most);
        whole / 2 + (whole / 2).mul_f64(f64::from(random) / f64::from(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_their_bound_and_stay_between_half_and_whole() {
        let backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(3));
        for (failures, whole) in [(1, 50), (2, 100), (3, 200), (6, 1600), (7, 3000), (4000, 3000)] {
            let whole = Duration::from_millis(whole);
            assert_eq!(backoff.after(failures, 0), whole / 2);
            assert_eq!(backoff.after(failures, u32::MAX), whole);
            let middle = backoff.after(failures, u32::MAX / 3);
            assert!(middle > whole / 2 && middle < whole);
        }
    }

    #[test]
    fn bounds_are_kept_whatever_is_asked_for() {
        let backoff = Backoff::new(Duration::ZERO, Duration::ZERO);
        assert_eq!(backoff.after(9, u32::MAX), LEAST);
        let backoff = Backoff::new(Duration::MAX, Duration::MAX);
        assert_eq!(backoff.after(u32::MAX, u32::MAX), MOST);
    }
}
