use super::super::violation::Violation;
use super::Connection;
use crate::Time;

/// Frames for calls that had ended here.
#[derive(Debug, Default)]
pub(super) struct Stray {
    answers: u64,
    cancels: u64,
}

impl Stray {
    pub(super) fn expect_answer(&mut self) {
        self.answers += 1;
    }

    pub(super) fn expect_cancel(&mut self) {
        self.cancels += 1;
    }
}

impl Connection {
    /// A SEND came. What is needed of `bytes` is copied, so its buffer may be posted again at once.
    ///
    /// After a `Violation` take what [`poll_transmit`](Self::poll_transmit) still gives (one ERROR
    /// frame if there is a credit), then close and say [`on_lost`](Self::on_lost).
    pub fn on_message(&mut self, now: Time, bytes: &[u8]) -> Result<(), Violation> {
        let _ = (now, bytes);
        Ok(())
    }

    /// `n` more receives stand in the SRQ for this connection: first the guaranteed two, later one
    /// for each SEND that was parsed, and loans. Only these are granted to the peer.
    pub fn on_receives_posted(&mut self, n: u32) {
        self.credits.posted(n);
    }
}
