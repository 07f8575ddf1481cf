use super::super::body::{OutAnswer, OutCall};
use super::{Connection, Transmit};
use crate::Time;
use crate::wire::{RequestFrame, ResponseFrame, Segments, WireStatus};

impl Connection {
    /// Fills one SEND with as many frames as are ready and fit into `buf` (and `eager_bytes`).
    ///
    /// At most `ranges_max` ranges of leases are advertised in it for the first time; what needs more
    /// waits for the next. `None`: there is nothing to say, or no credit to say it with.
    pub fn poll_transmit(
        &mut self,
        now: Time,
        buf: &mut [u8],
        ranges_max: u32,
    ) -> Option<Transmit> {
        let _ = (now, buf, ranges_max);
        None
    }

    /// Whether [`poll_transmit`](Self::poll_transmit) is worth calling.
    pub fn wants_transmit(&self) -> bool {
        false
    }
}

pub(super) fn request_frame(
    call: &OutCall,
    method: u32,
    named: bool,
    now: Option<Time>,
) -> RequestFrame<'_> {
    RequestFrame {
        method,
        name: named.then_some(call.method),
        timeout: now.and_then(|now| call.deadline.map(|deadline| deadline.since(now))),
        priority: call.priority,
        metadata: &call.metadata,
        segments: Segments::new(&call.body.segments),
        inline: &call.body.inline,
        ..RequestFrame::default()
    }
}

pub(super) fn response_frame(answer: &OutAnswer) -> ResponseFrame<'_> {
    ResponseFrame {
        status: answer.status.as_ref().map(WireStatus::as_block),
        metadata: &answer.metadata,
        segments: Segments::new(&answer.body.segments),
        inline: &answer.body.inline,
    }
}
