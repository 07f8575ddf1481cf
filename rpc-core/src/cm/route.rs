use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::path::Path;
use crate::wire::candidate::CANDIDATES_MAX;
use crate::wire::{Candidate, DeviceKind};

/// After so long a way that failed is tried again, at the next connection that has to be made.
const AGAIN_AFTER: Duration = Duration::from_secs(60);

/// What tells one way to a server from another, whatever number the server gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WayId {
    kind: DeviceKind,
    gid: [u8; 16],
}

impl WayId {
    pub(super) const SOFT: Self = Self { kind: DeviceKind::Soft, gid: [0; 16] };
    /// By RDMA, to a server that names no devices.
    pub(super) const RDMA: Self = Self { kind: DeviceKind::Ibv, gid: [0; 16] };

    pub(super) const fn of(candidate: &Candidate) -> Self {
        Self { kind: candidate.kind, gid: candidate.gid }
    }
}

/// What one connection to a server knows of the ways to it, between one attempt and the next. A way that was
/// offered and did not lead to a connection, for a reason that concerns the way, is passed over for a
/// while, by all routes that share what they know.
#[derive(Debug, Default)]
pub struct Route {
    passed: Arc<Mutex<Passed>>,
    attempt: Mutex<Attempt>,
}

/// Ways that are passed over, at most [`CANDIDATES_MAX`].
#[derive(Debug, Default)]
struct Passed {
    ways: Vec<WayId>,
    until: Option<Instant>,
    why: Option<Arc<str>>,
}

#[derive(Debug, Default)]
struct Attempt {
    tried: Option<Tried>,
    /// The way of the connection that was made last.
    path: Option<Path>,
    /// Why software is taken in place of what the address chooses, as it was said last.
    said: Option<Arc<str>>,
}

/// The way that the attempt in progress takes.
#[derive(Clone, Debug)]
struct Tried {
    way: WayId,
    /// Whether it was one of several.
    chosen: bool,
    /// Whether there is another one behind it.
    more: bool,
    path: Path,
}

impl Route {
    /// Another one to the same server: ways that fail for one are passed over by both.
    pub fn beside(&self) -> Self {
        Self { passed: Arc::clone(&self.passed), attempt: Mutex::default() }
    }

    /// The way of the connection that was made last, if one was.
    pub fn path(&self) -> Option<Path> {
        lock(&self.attempt).path.clone()
    }

    /// An attempt begins: which of these ways are left, and why others are not. All of them, if none would be.
    pub(super) fn left(&self, ways: &[WayId], now: Instant) -> (Vec<usize>, Option<Arc<str>>) {
        let mut passed = lock(&self.passed);
        if passed.until.is_some_and(|until| until <= now) {
            *passed = Passed::default();
        }
        let left: Vec<usize> =
            (0..ways.len()).filter(|index| !passed.ways.contains(&ways[*index])).collect();
        match left.is_empty() {
            false => (left, passed.why.clone()),
            true => ((0..ways.len()).collect(), None),
        }
    }

    /// The attempt takes this way, one of several if it is `chosen`; `more`: there are others behind it.
    pub(super) fn take(&self, way: WayId, chosen: bool, more: bool, path: Path) {
        lock(&self.attempt).tried = Some(Tried { way, chosen, more, path });
    }

    /// Whether this reason was not said yet: it is said once, however often the connection is made anew.
    pub(super) fn is_news(&self, reason: &Arc<str>) -> bool {
        lock(&self.attempt).said.replace(Arc::clone(reason)).as_ref() != Some(reason)
    }

    /// The attempt led to a connection. Returns its way if there was a choice.
    pub fn connected(&self) -> Option<Path> {
        let mut attempt = lock(&self.attempt);
        let tried = attempt.tried.take()?;
        attempt.path = Some(tried.path.clone());
        tried.chosen.then_some(tried.path)
    }

    /// The attempt failed. `way_failed`: for a reason that concerns its way, and not the server or this process as
    /// a whole. True: there is another way, which the next attempt takes.
    pub fn failed(&self, why: &str, way_failed: bool, now: Instant) -> bool {
        let tried = lock(&self.attempt).tried.take();
        let Some(tried) = tried.filter(|_| way_failed) else { return false };
        let mut passed = lock(&self.passed);
        if !tried.more || passed.ways.len() >= CANDIDATES_MAX {
            // All that the server offers failed, or it offers something else each time: from the first again.
            *passed = Passed::default();
            return false;
        }
        if !passed.ways.contains(&tried.way) {
            passed.ways.push(tried.way);
        }
        passed.until = Some(now + AGAIN_AFTER);
        passed.why = Some(why.into());
        true
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(device: &'static str) -> Path {
        Path { device, reason: "a test".into() }
    }

    const fn rdma(last: u8) -> WayId {
        let mut gid = [0; 16];
        gid[15] = last;
        WayId { kind: DeviceKind::Ibv, gid }
    }

    #[test]
    fn a_reason_is_news_once() {
        let route = Route::default();
        let reason: Arc<str> = "none".into();
        assert!(route.is_news(&reason) && !route.is_news(&reason));
        assert!(route.is_news(&"other".into()) && route.is_news(&reason));
    }

    #[test]
    fn a_way_that_failed_is_passed_over_for_a_while_by_all_who_share_the_route() {
        let (route, now) = (Route::default(), Instant::now());
        let other = route.beside();
        let ways = [rdma(1), WayId::SOFT];
        assert_eq!(route.left(&ways, now), (vec![0, 1], None));
        route.take(ways[0], true, true, path("rdma"));
        assert!(route.path().is_none(), "nothing is connected yet");
        assert!(route.failed("no confirmation", true, now));
        for route in [&route, &other] {
            assert_eq!(route.left(&ways, now), (vec![1], Some("no confirmation".into())));
        }
        // In another order it is the same way.
        assert_eq!(route.left(&[WayId::SOFT, rdma(1)], now).0, [0]);
        route.take(ways[1], true, false, path("soft"));
        assert_eq!(route.connected(), Some(path("soft")));
        assert_eq!(route.path(), Some(path("soft")));
        assert_eq!(route.left(&ways, now + AGAIN_AFTER).0, [0, 1]);
    }

    #[test]
    fn a_failure_that_does_not_concern_the_way_passes_nothing_over() {
        let (route, now) = (Route::default(), Instant::now());
        assert!(!route.failed("nobody listens", true, now), "no way was tried");
        route.take(rdma(1), true, true, path("rdma"));
        assert!(!route.failed("the server is full", false, now));
        assert_eq!(route.left(&[rdma(1), WayId::SOFT], now).0, [0, 1]);
    }

    #[test]
    fn a_server_that_offers_something_else_each_time_is_not_dialled_for_ever() {
        let (route, now) = (Route::default(), Instant::now());
        let again = (0..u8::MAX).take_while(|number| {
            route.take(rdma(*number), true, true, path("rdma"));
            route.failed("no", true, now)
        });
        assert_eq!(again.count(), CANDIDATES_MAX);
        // Two devices that it calls the same are one.
        route.take(WayId::SOFT, true, true, path("soft"));
        assert!(route.failed("no", true, now));
        assert_eq!(route.left(&[WayId::SOFT, WayId::SOFT, rdma(1)], now).0, [2]);
    }
}
