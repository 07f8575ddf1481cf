use crate::mem::MemError;

/// Why a message could not be made ready to send. Nothing of it was sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// It is longer than a message may be.
    #[error(
        "the message is {len} bytes long and {max} are allowed: send it in parts, or raise \
         Runtime::builder().message_bytes_max(..) on both sides"
    )]
    TooLarge {
        /// Bytes of the encoded message.
        len: u64,
        /// Bytes allowed.
        max: u64,
    },
    /// There is no payload memory for its large parts.
    #[error(transparent)]
    Memory(#[from] MemError),
}
