//! How much memory this process may lock: RDMA pins what it uses, and the kernel refuses beyond.

use rustix::process::{Resource, getrlimit};
use rustix::thread::CapabilitySet;

pub(crate) use crate::mem::BUDGET_BYTES_MIN;

#[cfg(feature = "verbs")]
use crate::cm::ConnectError;

/// The part of the limit that payload memory may take; eager buffers and queues need the rest.
const PART: (u64, u64) = (3, 4);

/// The limit of this process; `None`: there is none, or it does not hold for who has CAP_IPC_LOCK.
pub(crate) fn limit() -> Option<u64> {
    let may_lock_all = rustix::thread::capabilities(None)
        .is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK));
    getrlimit(Resource::Memlock).current.filter(|_| !may_lock_all)
}

/// The largest budget below a limit.
pub(crate) const fn budget_max(limit_bytes: u64) -> u64 {
    limit_bytes / PART.1 * PART.0
}

/// The same, if a runtime could be made with so little.
pub(crate) fn budget_that_fits(limit_bytes: u64) -> Option<u64> {
    Some(budget_max(limit_bytes)).filter(|bytes| *bytes >= BUDGET_BYTES_MIN)
}

/// Refuses a budget that cannot be locked, before any of it is.
///
/// # Errors
/// [`ConnectError::Memlock`], which names the limit, the budget that would fit, and the fix.
#[cfg(feature = "verbs")]
pub(super) fn check(budget_bytes: u64) -> Result<(), ConnectError> {
    limit().map_or(Ok(()), |limit| fits(budget_bytes, limit))
}

#[cfg(feature = "verbs")]
fn fits(budget_bytes: u64, limit_bytes: u64) -> Result<(), ConnectError> {
    let max_bytes = budget_max(limit_bytes);
    if budget_bytes <= max_bytes {
        return Ok(());
    }
    Err(ConnectError::Memlock { budget_bytes, limit_bytes, max_bytes })
}

#[cfg(all(test, feature = "verbs"))]
mod tests {
    use super::*;

    #[test]
    fn a_budget_beyond_three_quarters_of_the_limit_is_refused_with_the_fix() {
        assert!(fits(6 << 20, 8 << 20).is_ok());
        let error = fits((6 << 20) + 1, 8 << 20).unwrap_err().to_string();
        for part in ["6291457", "8388608", "6291456", "ulimit -l", "LimitMEMLOCK", "budget_bytes"] {
            assert!(error.contains(part), "{error}");
        }
    }
}
