//! libibverbs as this crate calls it, and what the binding crate gets wrong about it.
//!
//! No other file names the binding crate, so another one can take its place here. What is odd in it:
//! its extended verbs find no context on 64-bit systems, so only the classic ones are used;
//! `ibv_alloc_mw` answers `Some(null)` when it fails; `ibv_query_port` asks for an opaque type;
//! `ibv_event_type` is an enum, which a number that it does not know may not even be read as.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::io;
use std::ptr::{NonNull, null_mut};

use rdma_sys::{
    bind_mw_t, bind_mw_tso_union_t, ibv_access_flags, ibv_ah_attr, ibv_async_event,
    ibv_device_cap_flags, ibv_gid, ibv_global_route, ibv_mw_bind_info, ibv_mw_type,
    ibv_qp_attr_mask, ibv_qp_state, ibv_qp_type, ibv_send_flags, ibv_srq_attr_mask, ibv_wc_opcode,
    ibv_wc_status, ibv_wr_opcode, imm_data_invalidated_rkey_union_t, qp_type_t, rdma_t, wr_t,
    xrc_t,
};
pub(super) use rdma_sys::{
    ibv_ack_cq_events, ibv_alloc_pd, ibv_close_device, ibv_comp_channel, ibv_context, ibv_cq,
    ibv_create_comp_channel, ibv_create_cq, ibv_create_qp, ibv_create_srq, ibv_dealloc_mw,
    ibv_dealloc_pd, ibv_dereg_mr, ibv_destroy_comp_channel, ibv_destroy_cq, ibv_destroy_qp,
    ibv_destroy_srq, ibv_device, ibv_device_attr, ibv_free_device_list, ibv_get_cq_event,
    ibv_get_device_list, ibv_get_device_name, ibv_modify_qp, ibv_modify_srq, ibv_mr, ibv_mw,
    ibv_open_device, ibv_pd, ibv_poll_cq, ibv_port_attr, ibv_post_send, ibv_post_srq_recv, ibv_qp,
    ibv_qp_attr, ibv_qp_init_attr, ibv_query_device, ibv_query_pkey, ibv_query_qp, ibv_recv_wr,
    ibv_reg_mr, ibv_req_notify_cq, ibv_send_wr, ibv_sge, ibv_srq, ibv_srq_attr, ibv_srq_init_attr,
    ibv_wc,
};

use crate::verbs::{Access, Gid, Opcode, QpState, RemoteRange, SendFlags, VerbsError};

/// ENOMEM: memory, or room in a queue.
pub(super) const ENOMEM: i32 = 12;
/// EINVAL: the state or the request is wrong.
pub(super) const EINVAL: i32 = 22;

/// An object of libibverbs. What it points to lives until its owner destroys it.
pub(super) struct Handle<T>(NonNull<T>);

impl<T> Clone for Handle<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Handle<T> {}

// SAFETY: libibverbs' objects may be used from any thread, several at once; a Handle is a name.
unsafe impl<T> Send for Handle<T> {}
// SAFETY: as for Send.
unsafe impl<T> Sync for Handle<T> {}

impl<T> Handle<T> {
    /// What a creating verb answered; NULL is the failure that errno tells.
    pub(super) fn created(ptr: *mut T, operation: &'static str) -> Result<Self, VerbsError> {
        match NonNull::new(ptr) {
            Some(ptr) => Ok(Self(ptr)),
            None => Err(system(operation, io::Error::last_os_error())),
        }
    }

    pub(super) const fn ptr(self) -> *mut T {
        self.0.as_ptr()
    }
}

pub(super) const fn system(operation: &'static str, source: io::Error) -> VerbsError {
    VerbsError::System { operation, source }
}

/// The error number of a verb's answer: most answer it, some answer -1 and set errno, a few answer
/// its negative.
pub(super) fn errno(code: c_int) -> i32 {
    match code {
        -1 => io::Error::last_os_error().raw_os_error().unwrap_or(EINVAL),
        code => code.abs(),
    }
}

/// What a verb answered that gives 0 for success.
pub(super) fn done(code: c_int, operation: &'static str) -> Result<(), VerbsError> {
    match code {
        0 => Ok(()),
        code => Err(system(operation, io::Error::from_raw_os_error(errno(code)))),
    }
}

/// Allocates a window of type 2.
///
/// # Safety
/// `pd` must be alive.
pub(super) unsafe fn alloc_mw(pd: Handle<ibv_pd>) -> Result<Handle<ibv_mw>, VerbsError> {
    // SAFETY: passed on to the caller.
    let mw = unsafe { rdma_sys::ibv_alloc_mw(pd.ptr(), ibv_mw_type::IBV_MW_TYPE_2) };
    Handle::created(mw.unwrap_or(null_mut()), "allocating a memory window (ibv_alloc_mw)")
}

/// Reads a port's attributes; those that are newer than the library's first version stay zero.
///
/// # Safety
/// `context` must be alive.
pub(super) unsafe fn query_port(
    context: Handle<ibv_context>,
    port: u8,
) -> Result<ibv_port_attr, VerbsError> {
    // SAFETY: a plain struct of integers, for which zeros are valid.
    let mut attr: ibv_port_attr = unsafe { std::mem::zeroed() };
    // SAFETY: `attr` is at least as long as the older struct that this verb fills.
    let code = unsafe { rdma_sys::ibv_query_port(context.ptr(), port, (&raw mut attr).cast()) };
    done(code, "reading a port's attributes (ibv_query_port)")?;
    Ok(attr)
}

/// Reads one entry of a port's GID table.
///
/// # Safety
/// `context` must be alive.
pub(super) unsafe fn query_gid(
    context: Handle<ibv_context>,
    port: u8,
    index: u8,
) -> Result<Gid, VerbsError> {
    let mut gid = ibv_gid { raw: [0; 16] };
    // SAFETY: the caller keeps the context alive, and `gid` is where the answer goes.
    let code = unsafe { rdma_sys::ibv_query_gid(context.ptr(), port, index.into(), &raw mut gid) };
    done(code, "reading a GID (ibv_query_gid)")?;
    // SAFETY: every bit pattern is a valid array of bytes, and all of it was written above.
    Ok(Gid(unsafe { gid.raw }))
}

/// An asynchronous event, laid out as `ibv_async_event` with its number as a number.
#[repr(C)]
pub(super) struct RawEvent {
    pub(super) element: *mut c_void,
    pub(super) number: u32,
}

const _: () = assert!(
    size_of::<RawEvent>() == size_of::<ibv_async_event>()
        && align_of::<RawEvent>() == align_of::<ibv_async_event>()
        && std::mem::offset_of!(RawEvent, number)
            == std::mem::offset_of!(ibv_async_event, event_type)
);

/// Fetches an event.
///
/// # Errors
/// What the system says when there is none: that it would block, or that the device is gone.
///
/// # Safety
/// `context` must be alive. The event must go to [`ack_async_event`].
pub(super) unsafe fn get_async_event(context: Handle<ibv_context>) -> io::Result<RawEvent> {
    let mut event = RawEvent { element: null_mut(), number: 0 };
    // SAFETY: the layouts agree, see above, and the binding's type is never read.
    let code = unsafe { rdma_sys::ibv_get_async_event(context.ptr(), (&raw mut event).cast()) };
    if code == 0 { Ok(event) } else { Err(io::Error::last_os_error()) }
}

/// Acknowledges an event, so that the object it is about can be destroyed.
///
/// # Safety
/// `event` must come from [`get_async_event`], and go here once.
pub(super) unsafe fn ack_async_event(mut event: RawEvent) {
    // SAFETY: as above; the library reads the number as a number.
    unsafe { rdma_sys::ibv_ack_async_event((&raw mut event).cast()) };
}

/// A device's or a state's name.
///
/// # Safety
/// `text` must be a string of libibverbs that lives for the call, or NULL.
pub(super) unsafe fn text(text: *const std::ffi::c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller says that it is a string.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// A port's state in words.
pub(super) fn port_state(state: u32) -> String {
    // SAFETY: the library answers any number with a static string.
    let words = unsafe { rdma_sys::ibv_port_state_str(state) };
    // SAFETY: as above.
    unsafe { text(words) }
}

pub(super) const PORT_ACTIVE: u32 = rdma_sys::ibv_port_state::IBV_PORT_ACTIVE;
pub(super) const LINK_LAYER_ETHERNET: u8 = 2;
pub(super) const QPT_RC: u32 = ibv_qp_type::IBV_QPT_RC;
pub(super) const SRQ_LIMIT: c_int = ibv_srq_attr_mask::IBV_SRQ_LIMIT.0 as c_int;
/// Windows of type 1, which are bound by another verb than ours.
pub(super) const CAP_WINDOWS_1: c_uint = ibv_device_cap_flags::IBV_DEVICE_MEM_WINDOW.0;
pub(super) const CAP_WINDOWS_2A: c_uint = ibv_device_cap_flags::IBV_DEVICE_MEM_WINDOW_TYPE_2A.0;
pub(super) const CAP_WINDOWS_2B: c_uint = ibv_device_cap_flags::IBV_DEVICE_MEM_WINDOW_TYPE_2B.0;
/// Windows of either kind of type 2.
pub(super) const CAP_WINDOWS: c_uint = CAP_WINDOWS_2A | CAP_WINDOWS_2B;

use ibv_qp_attr_mask as Mask;
pub(super) const TO_INIT: c_int = (Mask::IBV_QP_STATE.0
    | Mask::IBV_QP_PKEY_INDEX.0
    | Mask::IBV_QP_PORT.0
    | Mask::IBV_QP_ACCESS_FLAGS.0) as c_int;
pub(super) const TO_RTR: c_int = (Mask::IBV_QP_STATE.0
    | Mask::IBV_QP_AV.0
    | Mask::IBV_QP_PATH_MTU.0
    | Mask::IBV_QP_DEST_QPN.0
    | Mask::IBV_QP_RQ_PSN.0
    | Mask::IBV_QP_MAX_DEST_RD_ATOMIC.0
    | Mask::IBV_QP_MIN_RNR_TIMER.0) as c_int;
pub(super) const TO_RTS: c_int = (Mask::IBV_QP_STATE.0
    | Mask::IBV_QP_TIMEOUT.0
    | Mask::IBV_QP_RETRY_CNT.0
    | Mask::IBV_QP_RNR_RETRY.0
    | Mask::IBV_QP_SQ_PSN.0
    | Mask::IBV_QP_MAX_QP_RD_ATOMIC.0) as c_int;
pub(super) const STATE_ONLY: c_int = Mask::IBV_QP_STATE.0 as c_int;

pub(super) const ACCESS_REMOTE_READ: c_uint = ibv_access_flags::IBV_ACCESS_REMOTE_READ.0;
pub(super) const ACCESS_MW_BIND: c_uint = ibv_access_flags::IBV_ACCESS_MW_BIND.0;

/// The flags of a region.
pub(super) const fn access_flags(access: Access) -> c_int {
    let mut flags = 0;
    if access.has(Access::LOCAL_WRITE) {
        flags |= ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0;
    }
    if access.has(Access::REMOTE_READ) {
        flags |= ACCESS_REMOTE_READ;
    }
    if access.has(Access::MW_BIND) {
        flags |= ACCESS_MW_BIND;
    }
    flags as c_int
}

pub(super) const fn state_number(state: QpState) -> u32 {
    match state {
        QpState::Reset => ibv_qp_state::IBV_QPS_RESET,
        QpState::Init => ibv_qp_state::IBV_QPS_INIT,
        QpState::Rtr => ibv_qp_state::IBV_QPS_RTR,
        QpState::Rts => ibv_qp_state::IBV_QPS_RTS,
        QpState::Sqd => ibv_qp_state::IBV_QPS_SQD,
        QpState::Err => ibv_qp_state::IBV_QPS_ERR,
    }
}

/// A state that this crate does not use, SQE above all, is as good as ERR.
pub(super) const fn state_of(number: u32) -> QpState {
    match number {
        ibv_qp_state::IBV_QPS_RESET => QpState::Reset,
        ibv_qp_state::IBV_QPS_INIT => QpState::Init,
        ibv_qp_state::IBV_QPS_RTR => QpState::Rtr,
        ibv_qp_state::IBV_QPS_RTS => QpState::Rts,
        ibv_qp_state::IBV_QPS_SQD => QpState::Sqd,
        _ => QpState::Err,
    }
}

/// How packets get to a peer's port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AddressHandle {
    pub(super) lid: u16,
    pub(super) service_level: u8,
    /// Where they leave this device.
    pub(super) port: u8,
    /// The global header; RoCE needs one.
    pub(super) global: Option<GlobalRoute>,
}

/// The global part of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GlobalRoute {
    pub(super) gid: Gid,
    /// The entry of this side's GID table.
    pub(super) index: u8,
    pub(super) hop_limit: u8,
    pub(super) traffic_class: u8,
}

impl AddressHandle {
    pub(super) fn to_raw(self) -> ibv_ah_attr {
        let none = GlobalRoute { gid: Gid([0; 16]), index: 0, hop_limit: 0, traffic_class: 0 };
        let global = self.global.unwrap_or(none);
        ibv_ah_attr {
            grh: ibv_global_route {
                dgid: ibv_gid { raw: global.gid.0 },
                flow_label: 0,
                sgid_index: global.index,
                hop_limit: global.hop_limit,
                traffic_class: global.traffic_class,
            },
            dlid: self.lid,
            sl: self.service_level,
            src_path_bits: 0,
            static_rate: 0,
            is_global: self.global.is_some().into(),
            port_num: self.port,
        }
    }
}

/// What a send request is, beside its gather entries.
#[derive(Clone, Copy)]
pub(super) enum Work {
    Send,
    SendWithInv(u32),
    Read(RemoteRange),
    LocalInv(u32),
    Bind { mw: Handle<ibv_mw>, key: u32, mr: Handle<ibv_mr>, addr: u64, len: u64 },
}

/// A send request that is not linked yet: `next` and `sg_list` are NULL.
pub(super) fn send_wr(wr_id: u64, work: Work, sges: usize, flags: SendFlags) -> ibv_send_wr {
    let (opcode, key) = match work {
        Work::Send => (ibv_wr_opcode::IBV_WR_SEND, 0),
        Work::SendWithInv(key) => (ibv_wr_opcode::IBV_WR_SEND_WITH_INV, key),
        Work::Read(_) => (ibv_wr_opcode::IBV_WR_RDMA_READ, 0),
        Work::LocalInv(key) => (ibv_wr_opcode::IBV_WR_LOCAL_INV, key),
        Work::Bind { .. } => (ibv_wr_opcode::IBV_WR_BIND_MW, 0),
    };
    let remote = match work {
        Work::Read(RemoteRange { addr, rkey }) => rdma_t { remote_addr: addr, rkey: rkey.0 },
        _ => rdma_t { remote_addr: 0, rkey: 0 },
    };
    let none = bind_mw_t {
        mw: null_mut(),
        rkey: 0,
        bind_info: ibv_mw_bind_info { mr: null_mut(), addr: 0, length: 0, mw_access_flags: 0 },
    };
    let bind_mw = match work {
        Work::Bind { mw, key, mr, addr, len } => bind_mw_t {
            mw: mw.ptr(),
            rkey: key,
            bind_info: ibv_mw_bind_info {
                mr: mr.ptr(),
                addr,
                length: len,
                mw_access_flags: ACCESS_REMOTE_READ,
            },
        },
        _ => none,
    };
    ibv_send_wr {
        wr_id,
        next: null_mut(),
        sg_list: null_mut(),
        num_sge: sges as c_int,
        opcode,
        send_flags: send_flags(flags),
        imm_data_invalidated_rkey_union: imm_data_invalidated_rkey_union_t {
            invalidated_rkey: key,
        },
        wr: wr_t { rdma: remote },
        qp_type: qp_type_t { xrc: xrc_t { remote_srqn: 0 } },
        bind_mw_tso_union: bind_mw_tso_union_t { bind_mw },
    }
}

fn send_flags(flags: SendFlags) -> c_uint {
    [
        (SendFlags::SIGNALED, ibv_send_flags::IBV_SEND_SIGNALED),
        (SendFlags::SOLICITED, ibv_send_flags::IBV_SEND_SOLICITED),
        (SendFlags::INLINE, ibv_send_flags::IBV_SEND_INLINE),
        (SendFlags::FENCE, ibv_send_flags::IBV_SEND_FENCE),
    ]
    .into_iter()
    .filter(|(ours, _)| flags.has(*ours))
    .fold(0, |all, (_, theirs)| all | theirs.0)
}

/// A completion to be overwritten.
pub(super) const fn empty_wc() -> ibv_wc {
    ibv_wc {
        wr_id: 0,
        status: ibv_wc_status::IBV_WC_SUCCESS,
        opcode: ibv_wc_opcode::IBV_WC_SEND,
        vendor_err: 0,
        byte_len: 0,
        imm_data_invalidated_rkey_union: imm_data_invalidated_rkey_union_t { invalidated_rkey: 0 },
        qp_num: 0,
        src_qp: 0,
        wc_flags: 0,
        pkey_index: 0,
        slid: 0,
        sl: 0,
        dlid_path_bits: 0,
    }
}

/// What a completion completes, by its number.
pub(super) const fn opcode(number: u32) -> Opcode {
    match number {
        ibv_wc_opcode::IBV_WC_SEND => Opcode::Send,
        ibv_wc_opcode::IBV_WC_RDMA_READ => Opcode::Read,
        ibv_wc_opcode::IBV_WC_BIND_MW => Opcode::BindMw,
        ibv_wc_opcode::IBV_WC_LOCAL_INV => Opcode::LocalInv,
        ibv_wc_opcode::IBV_WC_RECV => Opcode::Recv,
        1..256 => Opcode::Unknown(number as u8),
        _ => Opcode::Unknown(u8::MAX),
    }
}

/// The key that a received SEND_WITH_INV closed. Means something only with its flag.
pub(super) fn invalidated(wc: &ibv_wc) -> u32 {
    // SAFETY: both fields of the union are numbers of 32 bits, and every pattern is one.
    unsafe { wc.imm_data_invalidated_rkey_union.invalidated_rkey }
}
