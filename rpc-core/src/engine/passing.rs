#![cfg_attr(
    not(feature = "failpoints"),
    allow(clippy::needless_pass_by_ref_mut, reason = "without the feature it holds nothing")
)]

#[cfg(feature = "failpoints")]
use crate::failpoint;
use crate::failpoint::Point;
#[cfg(feature = "failpoints")]
use crate::wire::{FrameType, SendFlags, SendHeader};

/// Points that a chain of work requests passes once it is posted.
#[derive(Debug, Default)]
pub(super) struct Passing {
    #[cfg(feature = "failpoints")]
    points: Vec<Point>,
}

impl Passing {
    /// A SEND is in the chain.
    #[cfg(feature = "failpoints")]
    pub(super) fn send(&mut self, bytes: &[u8]) {
        frames(bytes, |point| self.points.push(point));
    }

    /// Another point.
    #[inline(always)]
    pub(super) fn add(&mut self, point: Point) {
        #[cfg(feature = "failpoints")]
        self.points.push(point);
        #[cfg(not(feature = "failpoints"))]
        let _ = point;
    }

    /// The chain was posted.
    #[inline(always)]
    pub(super) fn posted(self) {
        #[cfg(feature = "failpoints")]
        self.points.into_iter().for_each(failpoint::pass);
    }
}

/// The points that a SEND with these bytes passes.
#[cfg(feature = "failpoints")]
fn frames(bytes: &[u8], mut pass: impl FnMut(Point)) {
    let Ok((header, frames)) = SendHeader::decode(bytes) else { return };
    for frame in frames.map_while(Result::ok) {
        match frame.kind {
            FrameType::Request => pass(Point::RequestSent),
            FrameType::Response => pass(Point::ReplySent),
            FrameType::Release => pass(Point::ReleaseSent),
            FrameType::Cancel => pass(Point::CancelSent),
            FrameType::GoAway => pass(Point::Draining),
            _ => {}
        }
    }
    if header.flags.has(SendFlags::WANTS_CREDIT) {
        pass(Point::NoCredits);
    }
}
