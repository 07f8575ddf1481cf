//! Outbound payloads: each range is advertised through a window of its own.

use std::sync::Arc;

use super::connection::{Lease, LeaseStage, Range};
use super::drive::Turn;
use super::engine::Engine;
use super::offload::Known;
use super::outbound::has_pieces;
use crate::codec::{OutSegment, Outbound};
use crate::protocol::{LeaseId, OutBody};
use crate::verbs::{Device, Mw};
use crate::wire;
use crate::{Status, Time};

/// A message that cannot be advertised now.
pub(super) enum NotNow {
    /// It must wait for windows or a lease.
    Wait(Outbound),
    /// The device does not take its memory.
    Refused(Status),
}

fn refused(why: &str) -> Status {
    Status::resource_exhausted(format!("the payload's memory could not be registered: {why}"))
}

impl<D: Device> Engine<D> {
    /// Prepares a message to be sent: its large pieces get windows and a lease.
    ///
    /// # Errors
    /// [`NotNow`]: windows or the connection's leases are used up, or the device refused the memory.
    pub(super) fn advertise(
        &mut self,
        turn: &Turn<'_>,
        slot: u32,
        outbound: Outbound,
        expires: Time,
    ) -> Result<OutBody, NotNow> {
        if !has_pieces(&outbound) {
            let inline = outbound.inline;
            return Ok(OutBody { inline, segments: Vec::new(), lease: None });
        }
        let mut ranges = match self.windows_for(turn, &outbound) {
            Ok(Some(ranges)) => ranges,
            Ok(None) => return Err(NotNow::Wait(outbound)),
            Err(why) => return Err(NotNow::Refused(refused(&why))),
        };
        let bytes = ranges.iter().map(|range| u64::from(range.sge.len())).sum();
        let Some(connection) = self.connections.at(slot) else {
            return Err(NotNow::Wait(outbound));
        };
        let count = ranges.len() as u8;
        let Ok(lease) = connection.protocol.reserve_lease(turn.now, count, bytes, expires) else {
            self.windows.extend(ranges.drain(..).map(|range| range.window));
            return Err(NotNow::Wait(outbound));
        };
        let mut descriptors = ranges.iter().map(|range| {
            wire::Segment::Payload(wire::PayloadDescriptor {
                addr: range.sge.addr(),
                len: range.sge.len(),
                // The key that the bind will give the window, in the chain of the SEND.
                rkey: range.window.next_rkey().0,
                lease: lease.as_u64(),
            })
        });
        let segments = outbound
            .segments
            .iter()
            .filter_map(|segment| match segment {
                OutSegment::Inline(len) => Some(wire::Segment::Inline(*len)),
                OutSegment::Piece(_) => descriptors.next(),
            })
            .collect();
        drop(descriptors);
        connection
            .leases
            .insert(lease, Lease { ranges, stage: LeaseStage::Reserved, allowed: None });
        Ok(OutBody { inline: outbound.inline, segments, lease: Some(lease) })
    }

    /// A window for each piece of a message; `None` if there are not enough now.
    ///
    /// # Errors
    /// Why the device does not take the memory.
    fn windows_for(
        &mut self,
        turn: &Turn<'_>,
        outbound: &Outbound,
    ) -> Result<Option<Vec<Range<D>>>, Arc<str>> {
        let mut ranges = Vec::new();
        for segment in &outbound.segments {
            let OutSegment::Piece(bytes) = segment else { continue };
            let placement = self.pool.locate(bytes);
            let known = placement.map(|placement| self.know_arena(turn, placement.arena));
            if let Some(Known::No(why)) = known {
                self.windows.extend(ranges.drain(..).map(|range: Range<D>| range.window));
                return Err(why);
            }
            let registered =
                placement.filter(|_| known == Some(Known::Yes)).and_then(|placement| {
                    Some((placement, self.registrar.lkey(placement.arena).ok()?))
                });
            let window = registered.as_ref().and_then(|_| self.take_window(turn));
            let (Some((placement, lkey)), Some(window)) = (registered, window) else {
                self.windows.extend(ranges.drain(..).map(|range: Range<D>| range.window));
                return Ok(None);
            };
            let Some(sge) = placement.sge(0, placement.len, lkey) else {
                self.windows.push(window);
                continue;
            };
            ranges.push(Range { window, arena: placement.arena, sge, bytes: bytes.clone() });
        }
        Ok(Some(ranges))
    }

    /// A lease ends: its windows are closed with the next flush, if they were ever bound.
    pub(super) fn revoke_lease(&mut self, turn: &Turn<'_>, slot: u32, id: LeaseId) {
        let Some(connection) = self.connections.at(slot) else { return };
        let Some(lease) = connection.leases.get_mut(&id) else { return };
        match lease.stage {
            LeaseStage::Reserved => self.lease_revoked(turn, slot, id),
            LeaseStage::Bound => {
                lease.stage = LeaseStage::Revoking;
                connection.revoking.push_back(id);
                self.mark_dirty(slot);
            }
            LeaseStage::Revoking => {}
        }
    }

    /// Nobody can read the lease's ranges any more: its memory and windows are free.
    pub(super) fn lease_revoked(&mut self, turn: &Turn<'_>, slot: u32, id: LeaseId) {
        let Some(connection) = self.connections.at(slot) else { return };
        let Some(lease) = connection.leases.remove(&id) else { return };
        connection.protocol.on_lease_revoked(id);
        self.windows.extend(lease.ranges.into_iter().map(|range| range.window));
        self.retry_waiting(turn, slot);
    }
}
