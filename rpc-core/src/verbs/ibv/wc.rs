use std::sync::atomic::Ordering::Relaxed;

use super::ffi::{self, ibv_wc};
use super::tables::Counts;
use crate::verbs::{Completed, Opcode, QpNum, Rkey, Wc, WcStatus};

/// The completion's flag for a key that was invalidated (IBV_WC_WITH_INV).
const WITH_INV: u32 = 1 << 3;

/// Soft-RoCE hands the kernel's number of that flag to programs. It is what programs know as
/// IP_CSUM_OK, which means nothing on an RC queue pair.
const WITH_INV_OF_SOFT_ROCE: u32 = 1 << 2;

/// Makes completions of those of libibverbs.
pub(super) struct Reader {
    with_inv: u32,
    // Since the last `count`.
    recvs: u64,
    recv_bytes: u64,
    access_errors: u64,
}

impl Reader {
    pub(super) const fn new(soft_roce: bool) -> Self {
        let with_inv = if soft_roce { WITH_INV | WITH_INV_OF_SOFT_ROCE } else { WITH_INV };
        Self { with_inv, recvs: 0, recv_bytes: 0, access_errors: 0 }
    }

    /// Of a failed completion nothing but `wr_id`, `status`, `qp_num` and `vendor_err` is read.
    pub(super) fn read(&mut self, wc: &ibv_wc) -> Wc {
        let qp = QpNum(wc.qp_num);
        if wc.status != 0 {
            let status = WcStatus::from_code(wc.status);
            self.access_errors += u64::from(status == WcStatus::RemAccessErr);
            return Wc::failed(wc.wr_id, qp, status, wc.vendor_err);
        }
        let opcode = ffi::opcode(wc.opcode);
        let mut completed = Completed { opcode, byte_len: 0, invalidated: None };
        if opcode == Opcode::Recv {
            self.recvs += 1;
            self.recv_bytes += u64::from(wc.byte_len);
            if wc.wc_flags & self.with_inv != 0 {
                completed.invalidated = Some(Rkey(ffi::invalidated(wc)));
            }
        }
        if matches!(opcode, Opcode::Recv | Opcode::Read) {
            completed.byte_len = wc.byte_len;
        }
        Wc::completed(wc.wr_id, qp, completed)
    }

    /// Adds what was read since the last call.
    pub(super) fn count(&mut self, counts: &Counts) {
        if self.recvs > 0 {
            counts.recvs.fetch_add(std::mem::take(&mut self.recvs), Relaxed);
            counts.recv_bytes.fetch_add(std::mem::take(&mut self.recv_bytes), Relaxed);
        }
        if self.access_errors > 0 {
            counts.access_errors.fetch_add(std::mem::take(&mut self.access_errors), Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(status: u32, opcode: u32) -> ibv_wc {
        let mut wc = ffi::empty_wc();
        wc.wr_id = 7;
        wc.qp_num = 9;
        wc.vendor_err = 0x55;
        wc.byte_len = 100;
        wc.wc_flags = WITH_INV;
        wc.status = status;
        wc.opcode = opcode;
        wc
    }

    #[test]
    fn a_failure_says_its_status_and_nothing_else() {
        let mut reader = Reader::new(false);
        let wc = reader.read(&raw(10, 128));
        assert_eq!((wc.wr_id(), wc.qp_num()), (7, QpNum(9)));
        let failure = wc.outcome().unwrap_err();
        assert_eq!((failure.status, failure.vendor_err), (WcStatus::RemAccessErr, 0x55));
        let failure = reader.read(&raw(999, 0)).outcome().unwrap_err();
        assert_eq!(failure.status, WcStatus::Unknown(999));
        let counts = Counts::default();
        reader.count(&counts);
        reader.count(&counts);
        assert_eq!(counts.access_errors.load(Relaxed), 1);
        assert_eq!(counts.recvs.load(Relaxed), 0);
    }

    #[test]
    fn a_receive_says_its_length_and_what_it_closed() {
        let mut reader = Reader::new(false);
        let completed = reader.read(&raw(0, 128)).outcome().unwrap();
        assert_eq!((completed.opcode, completed.byte_len), (Opcode::Recv, 100));
        assert!(completed.invalidated.is_some());
        let mut odd = raw(0, 128);
        odd.wc_flags = WITH_INV_OF_SOFT_ROCE;
        assert!(reader.read(&odd).outcome().unwrap().invalidated.is_none());
        assert!(Reader::new(true).read(&odd).outcome().unwrap().invalidated.is_some());
    }

    #[test]
    fn no_number_of_an_opcode_is_taken_for_another() {
        let mut reader = Reader::new(false);
        let send = reader.read(&raw(0, 0)).outcome().unwrap();
        assert_eq!((send.opcode, send.byte_len, send.invalidated), (Opcode::Send, 0, None));
        for number in [1, 3, 9, 129, 137, 255, 256, 258, 1 << 20] {
            let opcode = reader.read(&raw(0, number)).outcome().unwrap().opcode;
            assert!(matches!(opcode, Opcode::Unknown(_)), "{number} is {opcode:?}");
        }
    }
}
