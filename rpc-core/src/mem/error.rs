use std::io;

use super::{BudgetFull, Share};

/// Why payload memory could not be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemError {
    /// The message can never fit: its memory is more than the share it must come from. Nothing was
    /// taken; waiting does not help.
    #[error(
        "a message of {len} bytes needs {needed} bytes of {share} memory, but that share of the \
         budget is {share_bytes} bytes: set the runtime's budget_bytes to {budget_bytes_min} or \
         more, or send less"
    )]
    LargerThanShare {
        /// Bytes of the message.
        len: u64,
        /// Bytes of the blocks that would hold it.
        needed: u64,
        /// Which share.
        share: Share,
        /// Bytes of that share which a message of this kind may use.
        share_bytes: u64,
        /// The smallest budget in which it would fit.
        budget_bytes_min: u64,
    },
    /// The share is used up at the moment. Retry when memory comes back.
    #[error(transparent)]
    Full(#[from] BudgetFull),
    /// One buffer cannot be this long; a message of this size travels as several.
    #[error("a buffer of {len} bytes was asked for, and the longest is {max} bytes: use several")]
    TooLong {
        /// Bytes asked for.
        len: u64,
        /// Bytes of the longest buffer.
        max: u64,
    },
    /// The address range is used up, which the sizes of past messages can cause though the budget
    /// is not.
    #[error(
        "the {range_bytes} bytes of address space reserved for payload memory are used up by \
         buffers of other sizes: raise the runtime's budget_bytes"
    )]
    RangeFull {
        /// Bytes reserved.
        range_bytes: u64,
    },
    /// The system refused to map memory.
    #[error(
        "the system refused to {what} {bytes} bytes for payload memory ({source}): check the \
         address space limit (ulimit -v), the memory of the control group, and budget_bytes"
    )]
    Map {
        /// What was tried.
        what: &'static str,
        /// Bytes.
        bytes: u64,
        /// What the system said.
        source: io::Error,
    },
    /// The configuration cannot be used.
    #[error("payload memory cannot be configured so: {0}")]
    Config(&'static str),
}
