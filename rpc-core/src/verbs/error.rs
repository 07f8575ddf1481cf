use std::io;

/// Why a control operation, or building a chain, failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerbsError {
    /// The system refused.
    #[error("{operation} failed: {source}")]
    System {
        /// The verb.
        operation: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The device has no more of this object, or the object is at its size.
    #[error("{what}: the limit of {max} is reached")]
    Limit {
        /// What there would be too much of.
        what: &'static str,
        /// How much there may be.
        max: u64,
    },
    /// The object's state does not allow this.
    #[error("{operation} is not possible: {why}")]
    State {
        /// The verb.
        operation: &'static str,
        /// What is wrong.
        why: &'static str,
    },
    /// The peer's address cannot be used.
    #[error("the peer's device address cannot be used: {0}")]
    Address(String),
    /// The CQ overran: it lost completions and can no longer be trusted.
    #[error("the completion queue overran: more work was outstanding than it has entries")]
    CqOverrun,
}
