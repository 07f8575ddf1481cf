use super::super::ids::{ReadId, TransferId};
use super::Connection;
use crate::Time;

impl Connection {
    /// The destination buffers of a `Fetch` exist. Ignored if the transfer has ended meanwhile: then
    /// its `Discard` is among the events.
    pub fn on_fetch_ready(&mut self, now: Time, transfer: TransferId) {
        let _ = (now, transfer);
    }

    /// There is no memory for a `Fetch`: the peer is told, the call ends RESOURCE_EXHAUSTED, and the
    /// transfer ends in `Discard`.
    pub fn on_fetch_refused(&mut self, now: Time, transfer: TransferId) {
        let _ = (now, transfer);
    }

    /// A READ that [`poll_read`](Self::poll_read) gave has completed, or will never be posted
    /// (`ok` is false). Once for each, also after `on_lost`.
    pub fn on_read_done(&mut self, now: Time, read: ReadId, ok: bool) {
        let _ = (now, read, ok);
    }
}
