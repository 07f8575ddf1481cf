use rpc_core::Time;
use rpc_core::protocol::{Connection, ConnectionConfig};

use crate::heap;

/// A connection, and what it holds of the heap.
///
/// It is used only through [`with`](Self::with), and nothing that it made is taken out of that, so
/// the sum of what each use took and gave back is what it holds.
pub(super) struct Metered {
    connection: Connection,
    live: i64,
}

impl Metered {
    pub(super) fn new(now: Time, config: ConnectionConfig, seed: u64) -> Self {
        let (connection, heap) = heap::measured(|| Connection::new(now, config, seed));
        Self { connection, live: heap.held }
    }

    /// Uses it. What comes out must own no heap, hence `Copy`.
    pub(super) fn with<T: Copy>(&mut self, code: impl FnOnce(&mut Connection) -> T) -> T {
        let connection = &mut self.connection;
        let (value, heap) = heap::measured(|| code(connection));
        self.live += heap.held;
        value
    }

    /// To look at. Allocates nothing.
    pub(super) fn get(&self) -> &Connection {
        &self.connection
    }

    /// Bytes that it holds.
    pub(super) fn live(&self) -> i64 {
        self.live
    }

    /// Drops it. Returns the bytes that are still held then.
    pub(super) fn end(self) -> i64 {
        let Self { connection, live } = self;
        let ((), heap) = heap::measured(|| drop(connection));
        live + heap.held
    }
}
