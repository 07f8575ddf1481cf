use super::ConnectError;
use crate::{Execution, Status};

/// The one table from connecting errors to codes is [`ConnectError::code`]. Nothing was sent.
impl From<ConnectError> for Status {
    fn from(error: ConnectError) -> Self {
        Self::new(error.code(), error.to_string())
            .with_execution(Execution::NotExecuted)
            .with_source(error)
    }
}
