use std::fmt;
use std::sync::Arc;

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
