use std::sync::Arc;

use super::lane::Lane;
use crate::engine::{ConnectionKey, Negotiated, Observer, Terms};
use crate::{Peer, Status};

/// One attempt of a lane to connect, and the connection that it led to. What is heard of an earlier one, whose
/// time was over, is not taken for news of the present one.
pub(super) struct Attempt {
    lane: Arc<Lane>,
    number: u64,
}

impl Attempt {
    pub(super) fn new(lane: &Arc<Lane>, number: u64) -> Self {
        Self { lane: Arc::clone(lane), number }
    }
}

impl Observer for Attempt {
    fn ready(&self, key: ConnectionKey, negotiated: Negotiated, peer: &Arc<Peer>, terms: Terms) {
        self.lane.ready(self.number, key, negotiated, peer, terms);
    }

    fn retiring(&self, key: ConnectionKey) {
        self.lane.retiring(key);
    }

    fn lost(&self, key: ConnectionKey, why: Status, way_failed: bool) {
        self.lane.lost(self.number, key, why, way_failed);
    }
}
