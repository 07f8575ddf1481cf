use std::fmt;
use std::sync::Arc;
use std::task::Waker;

use super::MemError;
use crate::sync::AtomicWaker;
use crate::sync::atomic::{AtomicU64, Ordering};

/// The two shares of the budget are equal: a peer that is as busy as we are needs as much for what
/// it reads from us as for what we read from it.
const SHARES: u64 = 2;

/// The part of each share that only responses may use, as a divisor: a quarter. Requests that fill
/// their three quarters on both sides still leave room for the responses that end them, so two
/// full peers cannot wait for each other for ever.
const RESPONSE_ONLY_DIVISOR: u64 = 4;

/// Cores that can wait for memory at once; one bit each in a word.
pub const WAITERS_MAX: usize = 64;

/// Which half of the budget memory is taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Share {
    /// Destinations of READs: what arrives.
    Inbound,
    /// What peers may read: what leaves, and buffers that users fill.
    Outbound,
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Inbound => "inbound",
            Self::Outbound => "outbound",
        })
    }
}

/// What memory is taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Use {
    /// A request, or anything that does not end a call.
    Request,
    /// A response: it ends a call and so frees memory; it may use all of its share.
    Response,
}

/// The share is used up now: back-pressure, not a failure. Memory that comes back makes room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{wanted} bytes of {share} memory are not free now ({used} of {share_bytes} are in use): \
     retry when calls in progress have ended, or raise the runtime's budget_bytes"
)]
#[non_exhaustive]
pub struct BudgetFull {
    /// Bytes asked for.
    pub wanted: u64,
    /// Of which share.
    pub share: Share,
    /// Bytes of it that this use may have.
    pub share_bytes: u64,
    /// Bytes of it in use.
    pub used: u64,
}

/// One share: `requests <= requests_max` and `used <= bytes_max` at every moment, where `used`
/// counts requests and responses.
struct Account {
    bytes_max: u64,
    requests_max: u64,
    used: AtomicU64,
    requests: AtomicU64,
}

impl Account {
    fn new(bytes_max: u64) -> Self {
        Self {
            bytes_max,
            requests_max: bytes_max - bytes_max / RESPONSE_ONLY_DIVISOR,
            used: AtomicU64::new(0),
            requests: AtomicU64::new(0),
        }
    }

    const fn limit(&self, purpose: Use) -> u64 {
        match purpose {
            Use::Request => self.requests_max,
            Use::Response => self.bytes_max,
        }
    }

    /// Takes `bytes`, or answers how many are in use.
    fn take(&self, purpose: Use, bytes: u64) -> Result<(), u64> {
        if purpose == Use::Request {
            add_below(&self.requests, bytes, self.requests_max)?;
        }
        add_below(&self.used, bytes, self.bytes_max).inspect_err(|_| {
            if purpose == Use::Request {
                self.requests.fetch_sub(bytes, Ordering::SeqCst);
            }
        })
    }

    fn give(&self, purpose: Use, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::SeqCst);
        if purpose == Use::Request {
            self.requests.fetch_sub(bytes, Ordering::SeqCst);
        }
    }
}

/// Adds `bytes` unless the sum would exceed `max`.
fn add_below(counter: &AtomicU64, bytes: u64, max: u64) -> Result<(), u64> {
    counter
        .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |used| {
            used.checked_add(bytes).filter(|sum| *sum <= max)
        })
        .map(|_| ())
}

/// How many bytes of payload memory may be handed out: one number per runtime, in two shares.
///
/// Counts blocks (what a message really occupies), not message bytes.
pub struct Budget {
    bytes: u64,
    inbound: Account,
    outbound: Account,
    peak: AtomicU64,
    /// Bit n: `wakers[n]` wants to know when memory comes back.
    waiting: AtomicU64,
    wakers: [AtomicWaker; WAITERS_MAX],
}

impl Budget {
    /// A budget of `bytes`, half of it for each share.
    pub fn new(bytes: u64) -> Arc<Self> {
        Arc::new(Self {
            bytes,
            inbound: Account::new(bytes / SHARES),
            outbound: Account::new(bytes / SHARES),
            peak: AtomicU64::new(0),
            waiting: AtomicU64::new(0),
            wakers: std::array::from_fn(|_| AtomicWaker::new()),
        })
    }

    const fn account(&self, share: Share) -> &Account {
        match share {
            Share::Inbound => &self.inbound,
            Share::Outbound => &self.outbound,
        }
    }

    /// The whole budget in bytes.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The most that one use may have of a share, in bytes.
    pub const fn limit(&self, share: Share, purpose: Use) -> u64 {
        self.account(share).limit(purpose)
    }

    /// Bytes of a share in use.
    pub fn used(&self, share: Share) -> u64 {
        self.account(share).used.load(Ordering::Relaxed)
    }

    /// Bytes of a share that responses use. Exact only while nothing changes.
    pub fn used_by_responses(&self, share: Share) -> u64 {
        let account = self.account(share);
        account
            .used
            .load(Ordering::Relaxed)
            .saturating_sub(account.requests.load(Ordering::Relaxed))
    }

    /// The most that was in use at once since the start, in bytes.
    pub fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    /// Refuses a message of `len` bytes whose blocks (`needed` bytes) could never fit, before
    /// anything is taken or advertised for it.
    pub fn check(&self, share: Share, purpose: Use, len: u64, needed: u64) -> Result<(), MemError> {
        let share_bytes = self.limit(share, purpose);
        if needed <= share_bytes {
            return Ok(());
        }
        let of_share = match purpose {
            Use::Request => {
                needed.saturating_mul(RESPONSE_ONLY_DIVISOR) / (RESPONSE_ONLY_DIVISOR - 1)
            }
            Use::Response => needed,
        };
        // One more granule hides every rounding of the divisions above.
        let budget_bytes_min = of_share.saturating_mul(SHARES).saturating_add(2 << 20);
        Err(MemError::LargerThanShare { len, needed, share, share_bytes, budget_bytes_min })
    }

    /// Takes `bytes` of a share until the reservation is dropped, on whatever thread.
    pub fn try_reserve(
        self: &Arc<Self>,
        share: Share,
        purpose: Use,
        bytes: u64,
    ) -> Result<Reservation, BudgetFull> {
        self.take(share, purpose, bytes)?;
        Ok(Reservation { budget: Arc::clone(self), share, purpose, bytes })
    }

    /// Takes `bytes` for blocks; they come back when dropped, or by [`give`](Self::give) once
    /// [`Charge::settle`] has moved them into a block.
    pub(super) fn charge(
        &self,
        share: Share,
        purpose: Use,
        bytes: u64,
    ) -> Result<Charge<'_>, BudgetFull> {
        self.take(share, purpose, bytes)?;
        Ok(Charge { budget: self, share, purpose, bytes })
    }

    fn take(&self, share: Share, purpose: Use, bytes: u64) -> Result<(), BudgetFull> {
        let account = self.account(share);
        account.take(purpose, bytes).map_err(|used| BudgetFull {
            wanted: bytes,
            share,
            share_bytes: account.limit(purpose),
            used,
        })?;
        let now = self.used(Share::Inbound) + self.used(Share::Outbound);
        // Looked at first: a peak is rare, and a load leaves the line shared.
        if now > self.peak.load(Ordering::Relaxed) {
            self.peak.fetch_max(now, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Gives `bytes` back and wakes whoever waits. Never blocks.
    pub(super) fn give(&self, share: Share, purpose: Use, bytes: u64) {
        self.account(share).give(purpose, bytes);
        // Sequentially consistent with `wait`: who sets its bit and then finds no room is seen here.
        if self.waiting.load(Ordering::SeqCst) != 0 {
            self.wake_all();
        }
    }

    #[cold]
    fn wake_all(&self) {
        let mut waiting = self.waiting.swap(0, Ordering::SeqCst);
        while waiting != 0 {
            self.wakers[waiting.trailing_zeros() as usize].wake();
            waiting &= waiting - 1;
        }
    }

    /// Asks for one wake-up when memory next comes back. `waiter` is the caller's own number below
    /// [`WAITERS_MAX`] (more cores than that share numbers, and the last waker counts). Try once
    /// more after this call, since memory may have come back before it.
    pub fn wait(&self, waiter: usize, waker: &Waker) {
        let waiter = waiter % WAITERS_MAX;
        self.wakers[waiter].register(waker);
        self.waiting.fetch_or(1 << waiter, Ordering::SeqCst);
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget")
            .field("bytes", &self.bytes)
            .field("inbound", &self.used(Share::Inbound))
            .field("outbound", &self.used(Share::Outbound))
            .field("peak", &self.peak())
            .finish()
    }
}

/// Bytes of a share that are taken until this is dropped.
#[must_use = "dropping a reservation gives it back"]
#[derive(Debug)]
pub struct Reservation {
    budget: Arc<Budget>,
    share: Share,
    purpose: Use,
    bytes: u64,
}

impl Reservation {
    /// Bytes held.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.give(self.share, self.purpose, self.bytes);
    }
}

/// Bytes of a share on their way into blocks.
pub(super) struct Charge<'a> {
    budget: &'a Budget,
    share: Share,
    purpose: Use,
    bytes: u64,
}

impl Charge<'_> {
    /// Moves `bytes` of it into a block, which gives them back when it is dropped.
    pub(super) fn settle(&mut self, bytes: u64) -> (Share, Use) {
        assert!(bytes <= self.bytes, "a block is paid for before it is taken");
        self.bytes -= bytes;
        (self.share, self.purpose)
    }
}

impl Drop for Charge<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.budget.give(self.share, self.purpose, self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reservation_is_given_back_from_any_thread() {
        let budget = Budget::new(1000);
        let reservation = budget.try_reserve(Share::Inbound, Use::Request, 375).unwrap();
        assert_eq!(budget.used(Share::Inbound), 375);
        let full = budget.try_reserve(Share::Inbound, Use::Request, 1).unwrap_err();
        assert_eq!((full.share_bytes, full.used), (375, 375));
        std::thread::spawn(move || drop(reservation)).join().unwrap();
        assert_eq!(budget.used(Share::Inbound), 0);
        assert_eq!(budget.peak(), 375);
    }

    #[test]
    fn a_refusal_takes_nothing() {
        let budget = Budget::new(1000);
        let _responses = budget.try_reserve(Share::Inbound, Use::Response, 450).unwrap();
        assert!(budget.try_reserve(Share::Inbound, Use::Request, 51).is_err());
        assert!(budget.try_reserve(Share::Inbound, Use::Response, u64::MAX).is_err());
        assert_eq!(
            (budget.used(Share::Inbound), budget.used_by_responses(Share::Inbound)),
            (450, 450)
        );
        assert!(budget.try_reserve(Share::Inbound, Use::Request, 50).is_ok());
    }

    #[test]
    fn threads_never_take_more_than_the_share_together() {
        let budget = Budget::new(200);
        let rounds = if cfg!(miri) { 20 } else { 5_000 };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..rounds {
                        let taken = budget.try_reserve(Share::Outbound, Use::Response, 30);
                        assert!(budget.used(Share::Outbound) <= 100);
                        drop(taken);
                    }
                });
            }
        });
        assert_eq!(budget.used(Share::Outbound), 0);
        assert!(budget.peak() <= 90);
    }
}
