use rpc_core::protocol::{
    CallId, Event, FailureKind, InBody, InCall, InSegment, LeaseId, TransferId,
};
use rpc_core::wire::PIECES_MAX;
use rpc_core::{Execution, Time};

/// What is looked at of an event. It owns nothing.
#[derive(Clone, Copy, Debug)]
pub(super) enum Seen {
    Confirmed,
    Fetch { transfer: TransferId, pieces: Pieces, deadline: Time },
    Call { call: CallId, method: u32, named: bool, body: Body },
    Answer { token: u64, body: Body },
    Failed { token: u64, kind: FailureKind, execution: Execution },
    Cancelled { call: CallId },
    Revoke { lease: LeaseId },
    Discard { transfer: TransferId },
    Lend { wanted: u32 },
    GoingAway,
    Silent,
    Closed,
}

/// The lengths of a message's pieces.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pieces {
    lens: [u32; PIECES_MAX],
    count: usize,
}

/// A message that came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Body {
    pub(super) transfer: Option<TransferId>,
    /// Pieces that its segments name.
    pub(super) pieces: usize,
}

impl Pieces {
    fn new(lens: &[u32]) -> Self {
        assert!((1..=PIECES_MAX).contains(&lens.len()), "{} pieces", lens.len());
        let mut all = [0; PIECES_MAX];
        all[..lens.len()].copy_from_slice(lens);
        Self { lens: all, count: lens.len() }
    }

    pub(super) fn lens(&self) -> &[u32] {
        &self.lens[..self.count]
    }
}

impl Body {
    /// The segments name each piece once, in order, and all of the inline bytes.
    fn new(body: &InBody) -> Self {
        let (mut inline, mut pieces) = (0, 0);
        for segment in &body.segments {
            match segment {
                InSegment::Inline(len) => inline += *len as usize,
                InSegment::Piece(piece) => {
                    assert_eq!(*piece, pieces, "pieces come in order");
                    pieces += 1;
                }
            }
        }
        assert!(body.segments.is_empty() || inline == body.inline.len());
        assert_eq!(pieces > 0, body.transfer.is_some());
        Self { transfer: body.transfer, pieces: pieces as usize }
    }
}

impl Seen {
    pub(super) fn new(event: &Event) -> Self {
        match event {
            Event::Confirmed => Self::Confirmed,
            Event::Fetch { transfer, pieces, deadline, .. } => Self::Fetch {
                transfer: *transfer,
                pieces: Pieces::new(pieces),
                deadline: *deadline,
            },
            Event::Call(InCall { call, method, name, body, .. }) => {
                let named = name.is_some();
                Self::Call { call: *call, method: *method, named, body: Body::new(body) }
            }
            Event::Answer { token, body, .. } => {
                Self::Answer { token: *token, body: Body::new(body) }
            }
            Event::Failed { token, failure } => {
                assert!(!failure.message.is_empty(), "a call fails without a word");
                let (kind, execution) = (failure.kind, failure.execution);
                Self::Failed { token: *token, kind, execution }
            }
            Event::Cancelled { call, .. } => Self::Cancelled { call: *call },
            Event::Revoke { lease, .. } => Self::Revoke { lease: *lease },
            Event::Discard { transfer } => Self::Discard { transfer: *transfer },
            Event::Lend { wanted } => Self::Lend { wanted: *wanted },
            Event::GoingAway => Self::GoingAway,
            Event::Silent { .. } => Self::Silent,
            Event::Closed { .. } => Self::Closed,
            other => panic!("an event that this does not know: {other:?}"),
        }
    }
}
