use std::collections::VecDeque;

use bytes::Bytes;

use super::body::{InBody, InSegment};
use super::connection::Read;
use super::event::InCall;
use super::ids::{CallId, ReadId, TransferId};
use super::table::Table;
use crate::wire::{PayloadDescriptor, ReleaseOutcome, Segment, Segments, WireStatus};

/// What is kept of a message until its pieces are here.
#[derive(Debug)]
pub(crate) enum Held {
    /// The request of a call of the peer.
    Call(InCall),
    /// The answer to a call of ours.
    Answer { call: CallId, status: Option<WireStatus>, metadata: Bytes, body: InBody },
}

#[derive(Debug, PartialEq, Eq)]
enum Phase {
    /// For memory.
    Waiting,
    /// Its READs go on.
    Reading,
    /// Nobody wants it; its outstanding READs go on.
    Abandoned(ReleaseOutcome),
}

#[derive(Debug)]
pub(crate) struct Transfer {
    /// The peer's lease over the pieces.
    pub lease: u64,
    pieces: Vec<PayloadDescriptor>,
    /// `None` once it is abandoned.
    pub held: Option<Held>,
    phase: Phase,
    piece: u32,
    offset: u32,
    /// READs given out.
    issued: u32,
    outstanding: u32,
}

/// What the end of a READ means for its transfer.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "it is taken apart where it is returned to")]
pub(crate) enum Progress {
    /// No READ like this was outstanding.
    Unknown,
    /// Others are outstanding or still to be given out.
    More,
    /// All pieces are here.
    Complete(Transfer),
    /// The first failure of a transfer that is still wanted: abandon it.
    Failed,
    /// An abandoned transfer has ended: tell the peer this outcome.
    Ended { lease: u64, outcome: ReleaseOutcome },
}

/// The transfers of one connection and the READs that they need.
#[derive(Debug)]
pub(crate) struct Transfers {
    table: Table<Transfer>,
    /// Those that have READs to give out, in turn: a small one does not wait for the end of a large.
    ready: VecDeque<TransferId>,
    outstanding: u32,
    reads_max: u32,
    chunk: u32,
}

impl Transfers {
    /// `max`: one for each call that can be outstanding either way, and one for each READ, since what
    /// is abandoned stays until its READs are done.
    pub(crate) fn new(max: u32, reads_max: u32, chunk: u32) -> Self {
        Self {
            table: Table::new(max),
            ready: VecDeque::new(),
            outstanding: 0,
            reads_max,
            chunk: chunk.max(1),
        }
    }

    pub(crate) fn len(&self) -> u32 {
        self.table.len()
    }

    pub(crate) fn outstanding(&self) -> u32 {
        self.outstanding
    }

    pub(crate) fn is_waiting(&self, id: TransferId) -> bool {
        self.table.get(id.0).is_some_and(|transfer| transfer.phase == Phase::Waiting)
    }

    pub(crate) fn get_mut(&mut self, id: TransferId) -> Option<&mut Transfer> {
        self.table.get_mut(id.0)
    }

    /// Those that are still wanted.
    pub(crate) fn wanted(&self) -> Vec<TransferId> {
        let wanted = |id: &TransferId| self.table.get(id.0).is_some_and(|t| t.held.is_some());
        self.table.keys().into_iter().map(TransferId).filter(wanted).collect()
    }

    /// Begins a transfer of checked segments. `None`: the table is full, which the caller's own
    /// bounds exclude.
    pub(crate) fn begin(&mut self, segments: &Segments<'_>) -> Option<TransferId> {
        let transfer = Transfer {
            lease: segments.lease().unwrap_or(0),
            pieces: segments.payloads().collect(),
            held: None,
            phase: Phase::Waiting,
            piece: 0,
            offset: 0,
            issued: 0,
            outstanding: 0,
        };
        self.table.insert(transfer).ok().map(TransferId)
    }

    /// Its buffers exist.
    pub(crate) fn ready(&mut self, id: TransferId) -> bool {
        match self.table.get_mut(id.0) {
            Some(transfer) if transfer.phase == Phase::Waiting => {
                transfer.phase = Phase::Reading;
                self.ready.push_back(id);
                true
            }
            _ => false,
        }
    }

    /// Bytes of the next READ.
    pub(crate) fn next_read_len(&self) -> Option<u32> {
        if self.outstanding >= self.reads_max {
            return None;
        }
        let transfer = self.table.get(self.ready.front()?.0)?;
        let descriptor = transfer.pieces.get(transfer.piece as usize)?;
        Some(self.chunk.min(descriptor.len - transfer.offset))
    }

    /// The next READ.
    pub(crate) fn next_read(&mut self) -> Option<Read> {
        if self.outstanding >= self.reads_max {
            return None;
        }
        let id = self.ready.pop_front()?;
        let transfer = self.table.get_mut(id.0)?;
        let read = transfer.next_read(id, self.chunk)?;
        if !read.last {
            self.ready.push_back(id);
        }
        self.outstanding += 1;
        Some(read)
    }

    /// A READ has ended.
    pub(crate) fn done(&mut self, id: ReadId, ok: bool) -> Progress {
        let Some(transfer) = self.table.get_mut(id.transfer.0) else {
            return Progress::Unknown;
        };
        if transfer.outstanding == 0 || id.number >= transfer.issued {
            return Progress::Unknown;
        }
        transfer.outstanding -= 1;
        self.outstanding -= 1;
        let idle = transfer.outstanding == 0;
        match &transfer.phase {
            Phase::Abandoned(outcome) if idle => {
                let (lease, outcome) = (transfer.lease, *outcome);
                self.table.remove(id.transfer.0);
                Progress::Ended { lease, outcome }
            }
            Phase::Reading if !ok => Progress::Failed,
            Phase::Reading if idle && transfer.is_issued() => {
                self.table.remove(id.transfer.0).map_or(Progress::Unknown, Progress::Complete)
            }
            _ => Progress::More,
        }
    }

    /// Nobody wants it any more. `Some`: no READ is outstanding, so it has ended; tell the peer.
    /// `None`: it ends with its last READ, or it had been abandoned before.
    pub(crate) fn abandon(
        &mut self,
        id: TransferId,
        outcome: ReleaseOutcome,
    ) -> Option<(u64, ReleaseOutcome)> {
        let transfer = self.table.get_mut(id.0)?;
        if let Phase::Abandoned(_) = transfer.phase {
            return None;
        }
        transfer.held = None;
        transfer.phase = Phase::Abandoned(outcome);
        self.ready.retain(|other| *other != id);
        if transfer.outstanding > 0 {
            return None;
        }
        self.table.remove(id.0).map(|transfer| (transfer.lease, outcome))
    }
}

impl Transfer {
    /// Bytes of each piece.
    pub(crate) fn piece_lens(&self) -> Vec<u32> {
        self.pieces.iter().map(|descriptor| descriptor.len).collect()
    }

    fn is_issued(&self) -> bool {
        self.piece as usize >= self.pieces.len()
    }

    fn next_read(&mut self, id: TransferId, chunk: u32) -> Option<Read> {
        let descriptor = self.pieces.get(self.piece as usize)?;
        let (piece, offset) = (self.piece, self.offset);
        let len = chunk.min(descriptor.len - offset);
        // The descriptor was checked not to wrap.
        let (addr, rkey) = (descriptor.addr + u64::from(offset), descriptor.rkey);
        self.offset += len;
        if self.offset == descriptor.len {
            (self.piece, self.offset) = (piece + 1, 0);
        }
        let id = ReadId { transfer: id, number: self.issued };
        self.issued += 1;
        self.outstanding += 1;
        let last = self.is_issued();
        Some(Read { id, transfer: id.transfer, piece, offset, len, addr, rkey, last })
    }
}

/// The message as its receiver sees it.
pub(crate) fn in_body(
    segments: &Segments<'_>,
    inline: &[u8],
    transfer: Option<TransferId>,
) -> InBody {
    let mut piece = 0;
    let as_received = |segment| match segment {
        Segment::Inline(len) => InSegment::Inline(len),
        Segment::Payload(_) => {
            piece += 1;
            InSegment::Piece(piece - 1)
        }
    };
    let segments = segments.iter().map(as_received).collect();
    InBody { inline: copied(inline), segments, transfer }
}

/// Out of the receive buffer; nothing is allocated for nothing.
pub(crate) fn copied(bytes: &[u8]) -> Bytes {
    if bytes.is_empty() { Bytes::new() } else { Bytes::copy_from_slice(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(lens: &[u32]) -> Vec<Segment> {
        let at = |len: &u32| PayloadDescriptor { addr: 1000, len: *len, rkey: 5, lease: 9 };
        lens.iter().map(|len| Segment::Payload(at(len))).collect()
    }

    fn begin(transfers: &mut Transfers, lens: &[u32]) -> TransferId {
        let list = pieces(lens);
        let id = transfers.begin(&Segments::new(&list)).unwrap();
        assert!(transfers.ready(id) && !transfers.ready(id));
        id
    }

    #[test]
    fn pieces_are_read_in_chunks_that_cover_each_exactly_once() {
        let mut transfers = Transfers::new(4, u32::MAX, 10);
        let id = begin(&mut transfers, &[25, 10, 1]);
        let mut seen = Vec::new();
        while let (next, Some(read)) = (transfers.next_read_len(), transfers.next_read()) {
            assert_eq!(read.addr, 1000 + u64::from(read.offset));
            assert_eq!(next, Some(read.len));
            seen.push((read.piece, read.offset, read.len, read.last));
        }
        let expected = [
            (0, 0, 10, false),
            (0, 10, 10, false),
            (0, 20, 5, false),
            (1, 0, 10, false),
            (2, 0, 1, true),
        ];
        assert_eq!(seen, expected);
        for number in 0..4 {
            let more = transfers.done(ReadId { transfer: id, number }, true);
            assert!(matches!(more, Progress::More));
        }
        let done = transfers.done(ReadId { transfer: id, number: 4 }, true);
        assert!(matches!(done, Progress::Complete(_)));
        assert!(matches!(
            transfers.done(ReadId { transfer: id, number: 4 }, true),
            Progress::Unknown
        ));
        assert_eq!((transfers.len(), transfers.outstanding()), (0, 0));
    }

    #[test]
    fn outstanding_reads_are_bounded_and_shared_in_turn() {
        let mut transfers = Transfers::new(4, 3, 10);
        let large = begin(&mut transfers, &[1000]);
        let small = begin(&mut transfers, &[10]);
        let order: Vec<_> =
            std::iter::from_fn(|| transfers.next_read()).map(|r| r.transfer).collect();
        assert_eq!(order, [large, small, large]);
        assert!(matches!(
            transfers.done(ReadId { transfer: small, number: 0 }, true),
            Progress::Complete(_)
        ));
        assert!(transfers.next_read().is_some());
        assert!(transfers.next_read().is_none());
    }

    #[test]
    fn an_abandoned_transfer_ends_with_its_last_read_and_reads_no_more() {
        let mut transfers = Transfers::new(4, 2, 10);
        let id = begin(&mut transfers, &[1000]);
        let reads: Vec<_> = std::iter::from_fn(|| transfers.next_read()).collect();
        assert_eq!(reads.len(), 2);
        assert_eq!(transfers.abandon(id, ReleaseOutcome::Skipped), None);
        assert!(matches!(transfers.done(reads[0].id, false), Progress::More));
        assert!(transfers.next_read().is_none());
        let Progress::Ended { lease: 9, outcome: ReleaseOutcome::Skipped } =
            transfers.done(reads[1].id, true)
        else {
            panic!("the last READ ends it");
        };
        let idle = begin(&mut transfers, &[5]);
        let ended = transfers.abandon(idle, ReleaseOutcome::Failed);
        assert_eq!(ended, Some((9, ReleaseOutcome::Failed)));
        assert_eq!(transfers.abandon(idle, ReleaseOutcome::Failed), None);
        assert_eq!(transfers.len(), 0);
    }
}
