//! Statuses on their way between the wire, the state machine and the program.

use bytes::Bytes;

use super::outbound::{decode_metadata, encode_metadata};
use crate::protocol::{CallFailure, OutAnswer, OutBody, WireStatus};
use crate::{Execution, Status};

/// What the peer's handler answered.
pub(super) fn from_peer(status: WireStatus, metadata: &Bytes) -> Status {
    // The status counts more than what came beside it.
    let metadata = decode_metadata(metadata).unwrap_or_default();
    status.into_status(Execution::Executed).with_metadata(metadata)
}

/// A call that ended without an answer.
pub(super) fn from_failure(failure: CallFailure) -> Status {
    Status::new(failure.kind.code(), failure.message).with_execution(failure.execution)
}

/// A deadline that passed while the call waited for a lease.
pub(super) fn deadline_before_sent() -> Status {
    Status::deadline_exceeded("the deadline passed before the call could be sent")
        .with_execution(Execution::NotExecuted)
}

/// A handler's failure on its way to the peer.
pub(super) fn to_answer(failed: &Status) -> OutAnswer {
    OutAnswer {
        status: Some(WireStatus::from_status(failed)),
        metadata: encode_metadata(failed.metadata()),
        body: OutBody::default(),
    }
}
