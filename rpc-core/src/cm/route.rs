use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// After so long a way that failed is tried again, at the next connection that has to be made.
const AGAIN_AFTER: Duration = Duration::from_secs(60);

/// Which kind of device carries a connection, and why that was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Path {
    /// `"soft"` or `"rdma"`.
    pub device: &'static str,
    /// Why, for people.
    pub reason: Arc<str>,
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.device, self.reason)
    }
}

/// What is known of the ways to one server, between one attempt to connect and the next: a way that was
/// offered and did not lead to a connection is passed over for a while.
#[derive(Debug, Default)]
pub struct Route(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Ways at the head of the server's list that are passed over…
    skip: usize,
    /// …until then…
    skip_until: Option<Instant>,
    /// …and why.
    why: Option<Arc<str>>,
    tried: Option<Tried>,
    path: Option<Path>,
}

/// The way that the attempt in progress takes.
#[derive(Clone, Copy, Debug)]
struct Tried {
    index: usize,
    is_last: bool,
}

impl Route {
    /// The way of the connection that was made last.
    pub fn path(&self) -> Option<Path> {
        self.lock().path.clone()
    }

    /// An attempt begins: how many of the server's ways it passes over, and why.
    pub(super) fn begin(&self, now: Instant) -> (usize, Option<Arc<str>>) {
        let mut state = self.lock();
        if state.skip_until.is_some_and(|until| until <= now) {
            (state.skip, state.skip_until, state.why) = (0, None, None);
        }
        (state.skip, state.why.clone())
    }

    /// The attempt takes this way.
    pub(super) fn take(&self, index: usize, is_last: bool, path: Path) {
        let mut state = self.lock();
        state.tried = Some(Tried { index, is_last });
        state.path = Some(path);
    }

    /// The attempt led to a connection. Returns its way if there was another, or there is one that failed.
    pub fn connected(&self) -> Option<Path> {
        let mut state = self.lock();
        let tried = state.tried.take()?;
        let chosen = tried.index > 0 || !tried.is_last;
        chosen.then(|| state.path.clone()).flatten()
    }

    /// The attempt failed. True: there is another way, and the next attempt takes it.
    pub fn failed(&self, why: &str, now: Instant) -> bool {
        let mut state = self.lock();
        match state.tried.take() {
            Some(Tried { index, is_last: false }) => {
                state.skip = index + 1;
                state.skip_until = Some(now + AGAIN_AFTER);
                state.why = Some(why.into());
                true
            }
            // The server itself is not there, or all that it offers failed: from the first again.
            _ => {
                (state.skip, state.skip_until, state.why) = (0, None, None);
                false
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(device: &'static str) -> Path {
        Path { device, reason: "a test".into() }
    }

    #[test]
    fn a_way_that_failed_is_passed_over_for_a_while_and_a_lost_server_is_none() {
        let (route, now) = (Route::default(), Instant::now());
        assert!(!route.failed("nobody listens", now), "no way was tried");
        assert_eq!(route.begin(now), (0, None));
        route.take(0, false, path("rdma"));
        assert!(route.failed("no confirmation", now));
        assert_eq!(route.begin(now), (1, Some("no confirmation".into())));
        route.take(1, true, path("soft"));
        assert_eq!(route.connected(), Some(path("soft")));
        assert_eq!(route.path(), Some(path("soft")));
        // A later connection to the same server, before and after the time.
        assert_eq!(route.begin(now + AGAIN_AFTER / 2).0, 1);
        assert_eq!(route.begin(now + AGAIN_AFTER), (0, None));
        route.take(0, false, path("rdma"));
        assert!(route.failed("no confirmation", now));
        assert!(!route.failed("nobody listens", now), "the server went away");
        assert_eq!(route.begin(now), (0, None));
    }
}
