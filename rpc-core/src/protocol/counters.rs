/// What a connection has counted since it began. Only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// SENDs given out, credit-only ones included.
    pub sends: u64,
    /// Credit-only SENDs among them.
    pub sends_credit_only: u64,
    /// Frames in them.
    pub frames_out: u64,
    /// SENDs received, credit-only ones included.
    pub receives: u64,
    /// Frames in them.
    pub frames_in: u64,
    /// Calls of ours that were sent.
    pub calls_out: u64,
    /// Calls of the peer that were accepted.
    pub calls_in: u64,
    /// Calls of the peer refused here because `calls_in_max` was reached.
    pub calls_in_over_max: u64,
    /// Answers and refusals for calls that had ended here.
    pub answers_late: u64,
    /// CANCELs for calls that had ended here.
    pub cancels_late: u64,
    /// RELEASEs for leases that had expired here.
    pub releases_late: u64,
    /// RELEASEs that named no lease of ours.
    pub releases_unknown: u64,
    /// RELEASEs that say that a message was not read, or that reading it failed.
    pub releases_unread: u64,
    /// Leases that expired unreleased.
    pub leases_expired: u64,
    /// READs given out.
    pub reads: u64,
    /// Bytes in them.
    pub read_bytes: u64,
    /// READs that failed.
    pub reads_failed: u64,
    /// Messages dropped because there was no memory for them.
    pub fetches_refused: u64,
    /// Frames of unknown types that may be skipped.
    pub frames_skipped: u64,
    /// PINGs of ours that were sent.
    pub pings: u64,
    /// PINGs answered by the PONG of a later one.
    pub pings_merged: u64,
    /// Credits that the peer was asked to give back.
    pub credits_recalled: u64,
    /// Credits that it gave back.
    pub credits_returned: u64,
    /// Times that something waited to be sent and no credit was left.
    pub credit_stalls: u64,
    /// Reports of the owner about things that had ended or never were: a bug here or there.
    pub misuses: u64,
}

/// A connection's credits, both ways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CreditCounts {
    /// SENDs that we may issue now.
    pub available: u32,
    /// SENDs that the peer may issue by what we have told it.
    pub granted: u32,
    /// Receives that stand for the peer and that we have not told it of, the credit-only slot's not
    /// counted.
    pub owed: u32,
    /// Receives that stand for this connection, all told.
    pub standing: u32,
    /// Whether our credit-only slot at the peer is free.
    pub slot_free: bool,
}
