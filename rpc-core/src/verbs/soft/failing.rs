use super::srq::ERRNO_FULL;
use crate::verbs::VerbsError;
#[cfg(any(test, feature = "test-util"))]
pub(crate) use chosen::FailsWhen;

/// Verbs that a test can let fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
#[cfg_attr(
    not(any(test, feature = "test-util")),
    allow(unreachable_pub, reason = "public where tests choose")
)]
pub enum Verb {
    /// Registering memory: out of memory.
    Register,
    /// Allocating a window: out of memory.
    AllocMw,
    /// Creating a queue pair: out of memory.
    CreateQp,
    /// A queue pair to RTR.
    ToRtr,
    /// A queue pair to RTS.
    ToRts,
    /// Posting a chain of send requests: the first half of it is taken, and the rest is not.
    PostSend,
    /// Posting a chain of receives, in the same way.
    PostRecv,
    /// Asking for a notification of the next completion.
    Arm,
    /// A queue pair to ERR: it stays as it is.
    ToErr,
}

/// Which verbs of a device fail, though nothing is wrong.
#[derive(Clone, Default)]
pub(super) struct Failing {
    #[cfg(any(test, feature = "test-util"))]
    when: Option<FailsWhen>,
}

impl Failing {
    /// Whether this one does.
    fn hits(&self, verb: Verb) -> bool {
        #[cfg(any(test, feature = "test-util"))]
        if let Some(when) = &self.when {
            return when(verb);
        }
        let _ = verb;
        false
    }

    /// The error that a control verb fails with.
    pub(super) fn check(&self, verb: Verb, operation: &'static str) -> Result<(), VerbsError> {
        if !self.hits(verb) {
            return Ok(());
        }
        let source = std::io::Error::from_raw_os_error(ERRNO_FULL);
        Err(VerbsError::System { operation, source })
    }

    /// How many requests of a chain of `count` are taken; fewer than all: it failed.
    pub(super) fn taken(&self, verb: Verb, count: usize) -> usize {
        if count > 0 && self.hits(verb) { count / 2 } else { count }
    }
}

#[cfg(any(test, feature = "test-util"))]
mod chosen {
    use std::sync::Arc;

    use super::{Failing, Verb};

    /// Asked at each verb whether it fails.
    pub(crate) type FailsWhen = Arc<dyn Fn(Verb) -> bool + Send + Sync>;

    impl Failing {
        pub(in super::super) fn when(when: FailsWhen) -> Self {
            Self { when: Some(when) }
        }
    }
}
