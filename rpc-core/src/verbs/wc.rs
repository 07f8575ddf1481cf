use super::{QpNum, Rkey};

/// A work completion, 32 bytes.
///
/// Of a failed one only `wr_id`, `qp_num`, the status and `vendor_err` mean anything
/// (ibv_poll_cq(3)), so the rest is reachable only through [`outcome`](Self::outcome).
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Wc {
    wr_id: u64,
    qp_num: u32,
    status: u32,
    vendor_err: u32,
    byte_len: u32,
    invalidated: u32,
    opcode: u8,
    flags: u8,
    reserved: u16,
}

const _: () = assert!(size_of::<Wc>() == 32);

const FLAG_INVALIDATED: u8 = 1;

impl Wc {
    /// A success.
    pub fn completed(wr_id: u64, qp_num: QpNum, completed: Completed) -> Self {
        Self {
            wr_id,
            qp_num: qp_num.0,
            byte_len: completed.byte_len,
            invalidated: completed.invalidated.map_or(0, |key| key.0),
            opcode: completed.opcode.code(),
            flags: if completed.invalidated.is_some() { FLAG_INVALIDATED } else { 0 },
            ..Self::default()
        }
    }

    /// A failure.
    pub fn failed(wr_id: u64, qp_num: QpNum, status: WcStatus, vendor_err: u32) -> Self {
        Self { wr_id, qp_num: qp_num.0, status: status.code(), vendor_err, ..Self::default() }
    }

    /// The number its request was posted with.
    pub fn wr_id(&self) -> u64 {
        self.wr_id
    }

    /// The QP it belongs to. It may be destroyed already.
    pub fn qp_num(&self) -> QpNum {
        QpNum(self.qp_num)
    }

    /// What became of the request.
    pub fn outcome(&self) -> Result<Completed, WcFailure> {
        if self.status != 0 {
            return Err(WcFailure {
                status: WcStatus::from_code(self.status),
                vendor_err: self.vendor_err,
            });
        }
        Ok(Completed {
            opcode: Opcode::from_code(self.opcode),
            byte_len: self.byte_len,
            invalidated: (self.flags & FLAG_INVALIDATED != 0).then_some(Rkey(self.invalidated)),
        })
    }
}

/// The rest of a successful completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completed {
    /// What completed.
    pub opcode: Opcode,
    /// Bytes received or read.
    pub byte_len: u32,
    /// The window that this received SEND_WITH_INV closed.
    pub invalidated: Option<Rkey>,
}

/// The rest of a failed completion: the connection is finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{status} (vendor code {vendor_err})")]
pub struct WcFailure {
    /// Why.
    pub status: WcStatus,
    /// The vendor's own code.
    pub vendor_err: u32,
}

/// What a completion completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the specification's names")]
pub enum Opcode {
    Send,
    Read,
    BindMw,
    LocalInv,
    Recv,
    Unknown(u8),
}

impl Opcode {
    const fn code(self) -> u8 {
        match self {
            Self::Send => 0,
            Self::Read => 2,
            Self::BindMw => 5,
            Self::LocalInv => 6,
            Self::Recv => 128,
            Self::Unknown(code) => code,
        }
    }

    const fn from_code(code: u8) -> Self {
        match code {
            0 => Self::Send,
            2 => Self::Read,
            5 => Self::BindMw,
            6 => Self::LocalInv,
            128 => Self::Recv,
            other => Self::Unknown(other),
        }
    }
}

macro_rules! wc_status {
    ($($name:ident = $code:literal, $text:literal;)*) => {
        /// A completion's status; numbers as in libibverbs.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum WcStatus {
            $(#[doc = $text] $name,)*
            /// A code this crate does not know: fatal for the connection, never for the process.
            Unknown(u32),
        }

        impl WcStatus {
            /// The number libibverbs gives it.
            pub const fn code(self) -> u32 {
                match self { $(Self::$name => $code,)* Self::Unknown(code) => code }
            }

            /// The status of a number. Zero, success, is no status of a failure and is unknown here.
            pub const fn from_code(code: u32) -> Self {
                match code { $($code => Self::$name,)* other => Self::Unknown(other) }
            }
        }

        impl std::fmt::Display for WcStatus {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self {
                    $(Self::$name => f.write_str($text),)*
                    Self::Unknown(code) => write!(f, "completion status {code}, unknown to this version"),
                }
            }
        }
    };
}

wc_status! {
    LocLenErr = 1, "a message was longer than the receive it met (LOC_LEN_ERR)";
    LocQpOpErr = 2, "the request was malformed for its queue pair (LOC_QP_OP_ERR)";
    LocProtErr = 4, "a local key, bound or right was wrong (LOC_PROT_ERR)";
    WrFlushErr = 5, "flushed: the queue pair is in error (WR_FLUSH_ERR)";
    MwBindErr = 6, "a memory window could not be bound (MW_BIND_ERR)";
    BadRespErr = 7, "the peer's device answered with something unexpected (BAD_RESP_ERR)";
    LocAccessErr = 8, "a local access violation while receiving (LOC_ACCESS_ERR)";
    RemInvReqErr = 9, "the peer's device found the request invalid (REM_INV_REQ_ERR)";
    RemAccessErr = 10, "the peer's device refused access to its memory (REM_ACCESS_ERR)";
    RemOpErr = 11, "the peer's device could not complete the request (REM_OP_ERR)";
    RetryExcErr = 12, "the peer's device did not answer (RETRY_EXC_ERR)";
    RnrRetryExcErr = 13, "the peer had no receive posted for too long (RNR_RETRY_EXC_ERR)";
    FatalErr = 19, "the device failed (FATAL_ERR)";
    RespTimeoutErr = 20, "the peer's device did not respond in time (RESP_TIMEOUT_ERR)";
    GeneralErr = 21, "the device reports a general error (GENERAL_ERR)";
}
