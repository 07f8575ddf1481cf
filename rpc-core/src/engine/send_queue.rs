use std::collections::VecDeque;

use super::capacity::{MESSAGE_WRS_MAX, SEND_SIGNAL_EVERY};
use super::wr_id::SEQUENCE_MASK;
use crate::mem::SlotId;
use crate::protocol::{LeaseId, ReadId};
use crate::verbs::SendFlags;

/// The books of one connection's send queue: what is posted, in order, and what each request holds.
///
/// An RC send queue completes in order, so the completion of one signaled request is that of every
/// one before it. A request's slot is free again only then: this is the second window beside
/// credits, and it is never guessed from the peer's answers.
#[derive(Debug)]
pub(super) struct SendQueue {
    depth: u32,
    next: u32,
    posted: VecDeque<Posted>,
    /// Signaled requests among those posted.
    awaited: u32,
    tail: Tail,
}

/// The requests since the last signaled one: nothing tells that they are done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tail {
    requests: u32,
    sends: u32,
    /// SENDs that hold a buffer.
    buffers: u32,
}

impl Tail {
    fn add(&mut self, posted: &Posted) {
        if posted.signaled {
            *self = Self::default();
            return;
        }
        self.requests += 1;
        self.sends += u32::from(matches!(posted.holds, Holds::Send(_) | Holds::Inline));
        self.buffers += u32::from(matches!(posted.holds, Holds::Send(_)));
    }
}

/// A request that the device may still be working on.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Posted {
    sequence: u32,
    signaled: bool,
    pub(super) holds: Holds,
}

/// What comes back when a request completes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Holds {
    /// The eager buffer of a SEND.
    Send(SlotId),
    /// Nothing: the device has copied an inline SEND.
    Inline,
    /// Nothing: the lease that a bind belongs to ends by its own rules.
    Bind,
    /// The destination of a READ, and so many bytes of what the core may ask for.
    Read(ReadId, u32),
    /// One window of a lease; with the last one the lease is revoked.
    Invalidate { lease: LeaseId, last: bool },
    /// Nothing: it marks the end of a queue in error.
    Drain,
}

impl SendQueue {
    pub(super) fn new(depth: u32) -> Self {
        Self {
            depth,
            next: 0,
            posted: VecDeque::with_capacity(depth as usize),
            awaited: 0,
            tail: Tail::default(),
        }
    }

    /// Slots that no request holds.
    pub(super) fn free(&self) -> u32 {
        self.depth - self.posted.len() as u32
    }

    pub(super) fn is_empty(&self) -> bool {
        self.posted.is_empty()
    }

    /// Whether a completion is to come, if nothing fails. Unsignaled requests at the end of the queue have
    /// none: those of a connection that has nothing more to say stay in it until it has.
    pub(super) fn awaits(&self) -> bool {
        self.awaited > 0
    }

    /// Whether a local operation is outstanding.
    pub(super) fn has_local(&self) -> bool {
        self.posted
            .iter()
            .any(|posted| matches!(posted.holds, Holds::Bind | Holds::Invalidate { .. }))
    }

    /// Enters a request with these flags; returns the number its `wr_id` carries.
    pub(super) fn push(&mut self, holds: Holds, flags: SendFlags) -> u32 {
        let (sequence, signaled) = (self.next, flags.has(SendFlags::SIGNALED));
        self.next = (self.next + 1) & SEQUENCE_MASK;
        self.awaited += u32::from(signaled);
        let posted = Posted { sequence, signaled, holds };
        self.tail.add(&posted);
        self.posted.push_back(posted);
        sequence
    }

    fn left(&mut self, posted: Posted) -> Holds {
        self.awaited -= u32::from(posted.signaled);
        if self.posted.is_empty() {
            self.tail = Tail::default();
        }
        posted.holds
    }

    /// Whether the next SEND must be signaled because too much would stay in the queue with it: the largest
    /// message must fit beside that.
    pub(super) fn signal_due(&self) -> bool {
        self.tail.sends + 1 >= SEND_SIGNAL_EVERY
            || self.tail.requests + 1 + MESSAGE_WRS_MAX > self.depth
    }

    /// Whether buffers are held by SENDs of which no completion tells.
    pub(super) fn holds_untold(&self) -> bool {
        self.tail.buffers > 0
    }

    /// Whether whatever there is to say finds room, now or when a completion comes.
    pub(super) fn can_go_on(&self) -> bool {
        self.awaits() || self.free() >= MESSAGE_WRS_MAX.min(self.depth)
    }

    /// Takes the oldest request if it is complete because `sequence` is.
    pub(super) fn pop_through(&mut self, sequence: u32) -> Option<Holds> {
        let oldest = self.posted.front()?;
        // Distance on a circle of 2^24; the queue is far shorter than half of it.
        let behind = sequence.wrapping_sub(oldest.sequence) & SEQUENCE_MASK;
        if behind >= self.depth {
            return None;
        }
        let posted = self.posted.pop_front()?;
        Some(self.left(posted))
    }

    /// Takes the oldest request because the QP is destroyed.
    pub(super) fn pop_any(&mut self) -> Option<Holds> {
        let posted = self.posted.pop_front()?;
        Some(self.left(posted))
    }

    /// Takes the newest request: the device refused it.
    pub(super) fn pop_refused(&mut self) -> Option<Holds> {
        let posted = self.posted.pop_back()?;
        self.next = posted.sequence;
        let holds = self.left(posted);
        self.tail = Tail::default();
        for posted in &self.posted {
            self.tail.add(posted);
        }
        Some(holds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_completion_frees_all_before_it_across_the_wrap() {
        let mut queue = SendQueue::new(8);
        queue.next = SEQUENCE_MASK - 1;
        let sequences: Vec<u32> =
            (0..4).map(|_| queue.push(Holds::Bind, SendFlags::SIGNALED)).collect();
        assert_eq!(sequences, [SEQUENCE_MASK - 1, SEQUENCE_MASK, 0, 1]);
        assert_eq!(queue.free(), 4);
        let mut freed = 0;
        while queue.pop_through(sequences[2]).is_some() {
            freed += 1;
        }
        assert_eq!((freed, queue.free()), (3, 7));
    }

    #[test]
    fn a_stale_or_foreign_completion_frees_nothing() {
        let mut queue = SendQueue::new(8);
        let first = queue.push(Holds::Bind, SendFlags::SIGNALED);
        while queue.pop_through(first).is_some() {}
        let second = queue.push(Holds::Drain, SendFlags::SIGNALED);
        assert_eq!(queue.pop_through(first), None);
        assert_eq!(queue.pop_through(second + 100), None);
        assert_eq!(queue.pop_through(second), Some(Holds::Drain));
    }

    #[test]
    fn only_signaled_requests_have_a_completion_to_come() {
        let mut queue = SendQueue::new(8);
        queue.push(Holds::Inline, SendFlags::NONE);
        assert!(!queue.awaits() && !queue.is_empty());
        let signaled = queue.push(Holds::Bind, SendFlags::SIGNALED);
        queue.push(Holds::Inline, SendFlags::NONE);
        assert!(queue.awaits());
        while queue.pop_through(signaled).is_some() {}
        assert!(!queue.awaits() && !queue.is_empty(), "the last is not complete");
        queue.push(Holds::Drain, SendFlags::SIGNALED);
        queue.pop_refused();
        assert!(!queue.awaits());
        assert_eq!(queue.pop_any(), Some(Holds::Inline));
    }

    #[test]
    fn beside_requests_of_which_nothing_tells_the_largest_message_fits() {
        for depth in 7..200 {
            for pieces in 0..=16 {
                let mut queue = SendQueue::new(depth);
                for _ in 0..3 * depth {
                    if pieces + 1 > queue.free() {
                        break;
                    }
                    for _ in 0..pieces {
                        queue.push(Holds::Bind, SendFlags::NONE);
                    }
                    let due = queue.signal_due();
                    let flags = if due { SendFlags::SIGNALED } else { SendFlags::NONE };
                    let sequence = queue.push(Holds::Inline, flags);
                    assert!(queue.can_go_on(), "{pieces} pieces in {depth}");
                    if due {
                        while queue.pop_through(sequence).is_some() {}
                    }
                }
            }
        }
    }

    #[test]
    fn a_refused_request_is_no_part_of_the_tail() {
        let mut queue = SendQueue::new(64);
        let mut slab = crate::mem::EagerSlab::new(crate::mem::EagerConfig {
            slot_bytes: 64,
            chunk_slots: 1,
            slots_max: 1,
        })
        .unwrap();
        let buffer = slab.alloc().unwrap();
        let (id, _) = slab.lend(buffer, 64, crate::verbs::Lkey(1));
        queue.push(Holds::Inline, SendFlags::NONE);
        let before = queue.tail;
        queue.push(Holds::Send(id), SendFlags::NONE);
        assert!(queue.holds_untold());
        queue.pop_refused();
        assert_eq!(queue.tail, before);
        queue.push(Holds::Bind, SendFlags::SIGNALED);
        assert_eq!(queue.tail, Tail::default());
    }

    #[test]
    fn refused_requests_give_their_numbers_back() {
        let mut queue = SendQueue::new(4);
        queue.push(Holds::Bind, SendFlags::SIGNALED);
        let refused = queue.push(Holds::Drain, SendFlags::SIGNALED);
        assert_eq!(queue.pop_refused(), Some(Holds::Drain));
        assert_eq!(queue.push(Holds::Bind, SendFlags::SIGNALED), refused);
    }
}
