#![allow(unsafe_code)]

use std::ptr::null_mut;
use std::time::Duration;

use super::cq::IbvCq;
use super::ffi::{self, ibv_device_attr, ibv_qp_init_attr};
use super::pd::IbvPd;
use super::port::PortState;
use crate::verbs::{Cq as _, Limits, VerbsError};

/// What soft-RoCE calls its vendor.
const VENDOR_SOFT_ROCE: u32 = 0x00ff_ffff;

/// READs that a QP is asked to have outstanding at most, in either direction. Devices offer up to
/// 128; each costs the responder memory, and 16 fill a link.
const READS_MAX: i32 = 16;

/// 4.096 µs × 2^19, about two seconds: an emulated CPU may be away for hundreds of milliseconds.
const SOFT_ROCE_ACK_TIMEOUT: u8 = 19;

/// One less than what it takes for no limit.
const SOFT_ROCE_RETRIES: u8 = 6;

/// A device may take four times as long for each retry as it was told (IBTA 9.7.6.1.3): with 67 ms and
/// seven retries, about two seconds. As long again for a device that is busy, and more.
const SILENCE: Duration = Duration::from_secs(10);

/// Seven times the two seconds, and more: eighteen were seen.
const SOFT_ROCE_SILENCE: Duration = Duration::from_secs(25);

/// Whether a device is the kernel's soft-RoCE.
pub(super) const fn is_soft_roce(attr: &ibv_device_attr) -> bool {
    attr.vendor_id == VENDOR_SOFT_ROCE
}

/// What a device can do, by what it says.
pub(super) fn limits(attr: &ibv_device_attr, port: &PortState, inline_bytes_max: u32) -> Limits {
    let sges = [attr.max_sge, attr.max_sge_rd, attr.max_srq_sge];
    Limits {
        cqe_max: positive(attr.max_cqe),
        srq_wr_max: positive(attr.max_srq_wr),
        qp_wr_max: positive(attr.max_qp_wr),
        // A device that does not limit the entries of a READ apart says 0.
        sge_max: sges.into_iter().filter(|max| *max > 0).map(positive).min().unwrap_or(0),
        inline_bytes_max,
        max_rd_atomic: attr.max_qp_init_rd_atom.clamp(0, READS_MAX) as u8,
        max_dest_rd_atomic: attr.max_qp_rd_atom.clamp(0, READS_MAX) as u8,
        message_bytes_max: port.message_bytes_max,
        mtu: port.mtu,
        windows: attr.device_cap_flags & ffi::CAP_WINDOWS != 0 && attr.max_mw > 0,
        // Soft-RoCE closes windows of QPs that are not meant, and its kernel panics when a key that
        // a peer has invalidated is invalidated again.
        remote_invalidate: !is_soft_roce(attr),
        last_wqe_event: !is_soft_roce(attr) || kernel_release() >= (6, 12),
        local_ops_alone: is_soft_roce(attr),
        needs_cpu: is_soft_roce(attr),
        ack_timeout_min: if is_soft_roce(attr) { SOFT_ROCE_ACK_TIMEOUT } else { 0 },
        retries_max: if is_soft_roce(attr) { SOFT_ROCE_RETRIES } else { 7 },
        silence_max: Some(if is_soft_roce(attr) { SOFT_ROCE_SILENCE } else { SILENCE }),
    }
}

/// The running kernel's first two numbers; zeros if it does not say.
fn kernel_release() -> (u32, u32) {
    version(&rustix::system::uname().release().to_string_lossy())
}

fn version(release: &str) -> (u32, u32) {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    let mut next = || numbers.next().and_then(Result::ok).unwrap_or(0);
    (next(), next())
}

/// A number of libibverbs that counts something.
pub(super) fn positive(value: i32) -> u32 {
    u32::try_from(value).unwrap_or(0)
}

/// The largest inline size, of those that are worth having, with which the device makes a QP. It can
/// only be tried.
pub(super) fn inline_bytes_max(pd: &IbvPd, cq: &IbvCq) -> Result<u32, VerbsError> {
    debug_assert!(cq.next_deadline().is_none());
    let cq = cq.name();
    for bytes in [1024, 512, 256, 128, 64, 32] {
        // SAFETY: a plain struct of numbers and pointers, for which zeros are valid.
        let mut attr: ibv_qp_init_attr = unsafe { std::mem::zeroed() };
        (attr.send_cq, attr.recv_cq) = (cq.0.raw().ptr(), cq.0.raw().ptr());
        (attr.srq, attr.qp_type) = (null_mut(), ffi::QPT_RC);
        (attr.cap.max_send_wr, attr.cap.max_send_sge) = (1, 1);
        (attr.cap.max_recv_wr, attr.cap.max_recv_sge) = (1, 1);
        attr.cap.max_inline_data = bytes;
        // SAFETY: domain and queue are alive, and `attr` is read and written only now.
        let qp = unsafe { ffi::ibv_create_qp(pd.0.raw().ptr(), &raw mut attr) };
        if !qp.is_null() {
            // SAFETY: the QP was made just now, and nobody else knows it.
            let code = unsafe { ffi::ibv_destroy_qp(qp) };
            ffi::done(code, "destroying a queue pair (ibv_destroy_qp)")?;
            return Ok(bytes);
        }
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::version;

    #[test]
    fn a_kernels_release_is_its_first_two_numbers() {
        assert_eq!(version("6.1.0-41-amd64"), (6, 1));
        assert_eq!(version("6.12.57+deb12-amd64"), (6, 12));
        assert_eq!(version("6.12-rc1"), (6, 12));
        assert_eq!(version("7"), (7, 0));
        assert_eq!(version("odd"), (0, 0));
    }
}
