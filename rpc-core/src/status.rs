use std::error::Error;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::Metadata;

macro_rules! codes {
    ($($name:ident = $code:literal, $fn:ident, $text:literal;)*) => {
        /// How a call ended; numbers and meanings are those of gRPC.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Code {
            $(#[doc = $text] $name = $code,)*
        }

        impl Code {
            /// The code of a number; what is not one of the seventeen is [`Code::Unknown`].
            pub const fn from_u32(code: u32) -> Self {
                match code { $($code => Self::$name,)* _ => Self::Unknown }
            }

            /// What the code means, in words.
            pub const fn description(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }

        impl Status {
            $(
                #[doc = concat!("A status with [`Code::", stringify!($name), "`]: ", $text)]
                pub fn $fn(message: impl Into<String>) -> Self {
                    Self::new(Code::$name, message)
                }
            )*
        }
    };
}

codes! {
    Ok = 0, ok, "the call succeeded";
    Cancelled = 1, cancelled, "the call was cancelled";
    Unknown = 2, unknown, "an error of unknown kind";
    InvalidArgument = 3, invalid_argument, "an argument is not valid, whatever the state of the system";
    DeadlineExceeded = 4, deadline_exceeded, "the deadline passed before the call ended";
    NotFound = 5, not_found, "something asked for does not exist";
    AlreadyExists = 6, already_exists, "something to be created exists already";
    PermissionDenied = 7, permission_denied, "the caller may not do this";
    ResourceExhausted = 8, resource_exhausted, "a limit, quota or memory budget is used up";
    FailedPrecondition = 9, failed_precondition, "the system is not in the state that the call needs";
    Aborted = 10, aborted, "the call was aborted, as by a conflict";
    OutOfRange = 11, out_of_range, "an argument is past the valid range in the present state";
    Unimplemented = 12, unimplemented, "the method does not exist here";
    Internal = 13, internal, "an invariant is broken";
    Unavailable = 14, unavailable, "the service cannot be reached now";
    DataLoss = 15, data_loss, "data is lost or damaged";
    Unauthenticated = 16, unauthenticated, "the caller has not said who it is";
}

/// Whether the method of a failed call ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Execution {
    /// It did not and will not: the request never left, or the peer said that it refused it. Safe to
    /// repeat, whatever the method does.
    NotExecuted,
    /// It may have, it may be running still, and nobody here can know.
    MaybeExecuted,
    /// It ran and answered; the status is its answer.
    Executed,
}

/// A failed call: a code, a message for people, and whether the method ran.
///
/// One pointer wide, so that `Result<T, Status>` costs little beside `T`.
#[derive(Clone)]
pub struct Status(Box<Inner>);

#[derive(Clone)]
struct Inner {
    code: Code,
    execution: Execution,
    message: String,
    details: Bytes,
    metadata: Metadata,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

impl Status {
    /// A status. Handlers return it as their answer; its execution is [`Execution::Executed`].
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            code,
            execution: Execution::Executed,
            message: message.into(),
            details: Bytes::new(),
            metadata: Metadata::new(),
            source: None,
        }))
    }

    /// Adds bytes that describe the error to a program.
    #[must_use]
    pub fn with_details(mut self, details: impl Into<Bytes>) -> Self {
        self.0.details = details.into();
        self
    }

    /// Adds metadata, which travels with it.
    #[must_use]
    pub fn with_metadata(mut self, metadata: Metadata) -> Self {
        self.0.metadata = metadata;
        self
    }

    /// Adds the error that caused it. It stays in this process.
    #[must_use]
    pub fn with_source(mut self, source: impl Error + Send + Sync + 'static) -> Self {
        self.0.source = Some(Arc::new(source));
        self
    }

    /// Sets whether the method ran; only the runtime knows.
    #[must_use]
    pub(crate) fn with_execution(mut self, execution: Execution) -> Self {
        self.0.execution = execution;
        self
    }

    /// The code.
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// The message for people.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Bytes that describe the error to a program; often none.
    pub fn details(&self) -> &Bytes {
        &self.0.details
    }

    /// Metadata that came with it.
    pub fn metadata(&self) -> &Metadata {
        &self.0.metadata
    }

    /// Whether the method ran.
    pub fn execution(&self) -> Execution {
        self.0.execution
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Status");
        shown.field("code", &self.0.code).field("message", &self.0.message);
        shown.field("execution", &self.0.execution);
        if !self.0.details.is_empty() {
            shown.field("details", &format_args!("{} bytes", self.0.details.len()));
        }
        if !self.0.metadata.is_empty() {
            shown.field("metadata", &self.0.metadata);
        }
        if let Some(source) = &self.0.source {
            shown.field("source", source);
        }
        shown.finish()
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let message = if self.0.message.is_empty() {
            self.0.code.description()
        } else {
            self.0.message.as_str()
        };
        write!(f, "{:?}: {message}", self.0.code)
    }
}

impl Error for Status {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source.as_ref().map(|source| &**source as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_at_most_16_bytes_larger_than_its_value() {
        assert!(size_of::<Result<u64, Status>>() <= size_of::<u64>() + 16);
        assert!(size_of::<Result<[u64; 9], Status>>() <= size_of::<[u64; 9]>() + 16);
        assert_eq!(size_of::<Status>(), size_of::<usize>());
    }

    #[test]
    fn every_number_has_a_code_and_unknown_numbers_are_unknown() {
        for number in 0..=16 {
            assert_eq!(Code::from_u32(number) as u32, number);
        }
        assert_eq!(Code::from_u32(17), Code::Unknown);
        assert_eq!(Code::from_u32(u32::MAX), Code::Unknown);
    }
}
