use rpc_core::wire::{Frame, FrameType, GoAway, Nonce, Notice, Releases, ResponseFrame};

/// What the server said in one frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// The server's CONFIRM.
    Confirm,
    /// An answer.
    Answer {
        /// The call.
        call: u64,
        /// Code and message of its status; `None` if it succeeded.
        status: Option<(u32, String)>,
        /// The inline bytes.
        inline: Vec<u8>,
        /// The lease of its pieces.
        lease: Option<u64>,
    },
    /// A call that was not executed.
    Refused {
        /// The call.
        call: u64,
        /// A code's number.
        code: u32,
        /// Why.
        text: String,
    },
    /// The connection ends.
    Error(String),
    /// The server goes away.
    GoAway(String),
    /// The server needs these leases no longer.
    Released(Vec<u64>),
    /// The answer to a PING.
    Pong(u64),
    /// Anything else.
    Other(FrameType),
}

impl Heard {
    /// Reads a frame.
    ///
    /// # Panics
    /// If the server says what cannot be decoded.
    pub(super) fn new(frame: &Frame<'_>) -> Self {
        let read = "the server's frames can be decoded";
        match frame.kind {
            FrameType::Confirm => Self::Confirm,
            FrameType::Response => {
                let response = ResponseFrame::decode(frame.body).expect(read);
                Self::Answer {
                    call: frame.call,
                    status: response.status.map(|status| (status.code, status.message.to_owned())),
                    inline: response.inline.to_vec(),
                    lease: response.segments.lease(),
                }
            }
            FrameType::Refused => {
                let Notice { code, text } = Notice::decode("REFUSED", frame.body).expect(read);
                Self::Refused { call: frame.call, code, text: text.to_owned() }
            }
            FrameType::Error => {
                Self::Error(Notice::decode("ERROR", frame.body).expect(read).text.to_owned())
            }
            FrameType::GoAway => {
                Self::GoAway(GoAway::decode(frame.body).expect(read).notice.text.to_owned())
            }
            FrameType::Release => {
                let releases = Releases::decode(frame.body).expect(read);
                Self::Released(releases.map(|release| release.lease).collect())
            }
            FrameType::Pong => Self::Pong(Nonce::decode("PONG", frame.body).expect(read).nonce),
            other => Self::Other(other),
        }
    }

    /// Whether it ends this call.
    pub fn ends(&self, of: u64) -> bool {
        match self {
            Self::Answer { call, .. } | Self::Refused { call, .. } => *call == of,
            _ => false,
        }
    }
}
