use std::fmt;
use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What [`raise_nofile_limit`] found and did. Its text is one line for a log.
#[derive(Debug)]
#[non_exhaustive]
pub struct NofileLimit {
    /// Descriptors allowed before; `None`: no limit.
    pub before: Option<u64>,
    /// Descriptors allowed now; `None`: no limit.
    pub now: Option<u64>,
    /// Why it could not be raised.
    pub error: Option<io::Error>,
}

/// Raises the soft limit of open descriptors (`RLIMIT_NOFILE`) to the hard limit. Each connection
/// holds one descriptor, and the usual soft limit of 1,024 is for programs that use `select`.
pub fn raise_nofile_limit() -> NofileLimit {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return NofileLimit { before: current, now: current, error: None };
    }
    match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => NofileLimit { before: current, now: maximum, error: None },
        Err(error) => NofileLimit { before: current, now: current, error: Some(error.into()) },
    }
}

impl fmt::Display for NofileLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown =
            |limit: Option<u64>| limit.map_or_else(|| "no limit".to_owned(), |n| n.to_string());
        let (before, now) = (shown(self.before), shown(self.now));
        match &self.error {
            Some(error) => write!(
                f,
                "open descriptors: limited to {now}, which could not be raised ({error}); each \
                 connection needs one"
            ),
            None if self.before == self.now => {
                write!(f, "open descriptors: limited to {now}, the hard limit")
            }
            None => {
                write!(f, "open descriptors: limit raised from {before} to the hard limit, {now}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_ends_at_the_hard_limit_and_says_so() {
        let first = raise_nofile_limit();
        assert!(first.error.is_none(), "{first}");
        assert_eq!(getrlimit(Resource::Nofile).current, getrlimit(Resource::Nofile).maximum);
        let second = raise_nofile_limit();
        assert_eq!(second.before, second.now);
        assert!(second.to_string().ends_with("the hard limit"), "{second}");
    }
}
