/// Bytes of a peer that break a rule of the wire format.
///
/// Each names the field as `docs/wire-format.md` does. None holds an address or an R_Key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// A field needs more bytes than are left.
    #[error(
        "the peer's {field} needs {need} bytes and {have} are left: the message was cut short, or a \
         length in it is wrong"
    )]
    Truncated {
        /// The field.
        field: &'static str,
        /// Bytes it needs.
        need: usize,
        /// Bytes that are left.
        have: usize,
    },
    /// Bytes are left over where a structure must end.
    #[error("the peer's {field} is followed by {extra} bytes that belong to nothing")]
    Trailing {
        /// The structure that should have ended.
        field: &'static str,
        /// Bytes that follow it.
        extra: usize,
    },
    /// A length, count or number is above its bound.
    #[error("the peer's {field} is {value}, and at most {max} is allowed")]
    TooLarge {
        /// The field.
        field: &'static str,
        /// What it says.
        value: u64,
        /// What it may say.
        max: u64,
    },
    /// A length, count or number is below its bound.
    #[error("the peer's {field} is {value}, and at least {min} is needed")]
    TooSmall {
        /// The field.
        field: &'static str,
        /// What it says.
        value: u64,
        /// What it must say at least.
        min: u64,
    },
    /// Two statements about the same thing differ, as a sum and its parts.
    #[error("the peer's {field} says {stated}, and {found} was found")]
    Mismatch {
        /// The field that makes the statement.
        field: &'static str,
        /// What it says.
        stated: u64,
        /// What is there.
        found: u64,
    },
    /// A number that has no meaning in the agreed version.
    #[error(
        "the peer's {field} is {value}, which has no meaning in this version: it speaks a newer \
         protocol than was agreed, or another one"
    )]
    Unknown {
        /// The field.
        field: &'static str,
        /// What it says.
        value: u64,
    },
    /// A field must be a multiple of a number, and is not.
    #[error("the peer's {field} is {value}, and must be a multiple of {of}")]
    Unaligned {
        /// The field.
        field: &'static str,
        /// What it says.
        value: u64,
        /// What it must be a multiple of.
        of: u64,
    },
    /// Text that is not UTF-8.
    #[error("the peer's {field} is not UTF-8")]
    NotUtf8 {
        /// The field.
        field: &'static str,
    },
    /// A field that breaks a rule of its own.
    #[error("the peer's {field} {rule}")]
    Invalid {
        /// The field.
        field: &'static str,
        /// The rule, as the end of a sentence.
        rule: &'static str,
    },
    /// A field that may come once came twice.
    #[error("the peer's {field} came twice")]
    Duplicate {
        /// The field.
        field: &'static str,
    },
    /// A field that must be there is not.
    #[error("the peer sent no {field}")]
    Missing {
        /// The field.
        field: &'static str,
    },
    /// The control connection does not begin with this protocol's magic.
    #[error(
        "the peer does not speak this protocol: what it sent does not begin with the magic; check \
         that the address and port are those of a server of this framework"
    )]
    Magic,
}

/// `value` if it is at most `max`.
pub(crate) fn at_most(field: &'static str, value: u64, max: u64) -> Result<(), DecodeError> {
    if value > max {
        return Err(DecodeError::TooLarge { field, value, max });
    }
    Ok(())
}

/// `value` if it is at least `min`.
pub(crate) fn at_least(field: &'static str, value: u64, min: u64) -> Result<(), DecodeError> {
    if value < min {
        return Err(DecodeError::TooSmall { field, value, min });
    }
    Ok(())
}
