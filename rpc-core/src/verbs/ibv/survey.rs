use std::sync::Arc;

use super::context::Context;
use super::cq::IbvCq;
use super::ffi::{self, ibv_device_attr};
use super::limits::{inline_bytes_max, is_soft_roce, positive};
use super::list::{DeviceList, file_trouble};
use super::pd::IbvPd;
use super::port::PortState;
use super::wc::Reader;
use crate::verbs::{OpenError, VerbsError};

/// What a device says of itself, whether its ports can be used or not: for people, and not for connecting, where
/// [`Limits`](crate::verbs::Limits) has what this crate makes of it.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Survey {
    /// Queue pairs.
    pub qps: u32,
    /// Requests of one queue of a queue pair.
    pub qp_wrs: u32,
    /// Bytes that a request may carry in itself.
    pub inline_bytes: u32,
    /// Completion queues.
    pub cqs: u32,
    /// Entries of one.
    pub cqes: u32,
    /// Shared receive queues.
    pub srqs: u32,
    /// Receives of one.
    pub srq_wrs: u32,
    /// Memory regions.
    pub mrs: u32,
    /// Bytes of one.
    pub mr_bytes: u64,
    /// Memory windows.
    pub windows: u32,
    /// The types of windows that it has, such as `1, 2A`.
    pub window_types: &'static str,
    /// Whether this crate can use them.
    pub windows_usable: bool,
    /// READs that a queue pair may ask for at a time.
    pub reads_asked: u32,
    /// READs that a queue pair may answer at a time.
    pub reads_answered: u32,
    /// Its ports, from the first.
    pub ports: Vec<PortSurvey>,
}

/// What a device says of a port.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PortSurvey {
    /// From 1.
    pub number: u8,
    /// What a packet carries now, bytes.
    pub mtu: u32,
    /// What a packet could carry, bytes.
    pub mtu_max: u32,
}

impl Survey {
    /// Opens the device of this name, asks it, and closes it. May block.
    ///
    /// # Errors
    /// [`VerbsError::Open`] with the reason and what to do about it, or what a verb that failed said.
    pub fn of(name: &str) -> Result<Self, VerbsError> {
        let list = DeviceList::get()?;
        let Some(index) = list.names().iter().position(|listed| listed == name) else {
            // The library leaves out those whose file is missing, and those it has no driver for.
            let why = file_trouble(name.to_owned());
            return Err(why.unwrap_or_else(|| OpenError::NoProvider { have: name.into() }).into());
        };
        let context = Arc::new(Context::open(&list, index)?);
        let attr = context.attributes()?;
        // Some devices pin memory for a queue.
        let inline_bytes = {
            let cq = IbvCq::create(&context, 1, Reader::new(is_soft_roce(&attr)))?;
            inline_bytes_max(&IbvPd::alloc(&context)?, &cq)?
        };
        let ports = (1..=attr.phys_port_cnt)
            .map(|number| {
                let PortState { mtu, mtu_max, .. } = PortState::query(&context, number)?;
                Ok(PortSurvey { number, mtu, mtu_max })
            })
            .collect::<Result<_, VerbsError>>()?;
        Ok(Self::from_attributes(&attr, inline_bytes, ports))
    }

    fn from_attributes(attr: &ibv_device_attr, inline_bytes: u32, ports: Vec<PortSurvey>) -> Self {
        Self {
            qps: positive(attr.max_qp),
            qp_wrs: positive(attr.max_qp_wr),
            inline_bytes,
            cqs: positive(attr.max_cq),
            cqes: positive(attr.max_cqe),
            srqs: positive(attr.max_srq),
            srq_wrs: positive(attr.max_srq_wr),
            mrs: positive(attr.max_mr),
            mr_bytes: attr.max_mr_size,
            windows: positive(attr.max_mw),
            window_types: window_types(attr.device_cap_flags),
            windows_usable: attr.device_cap_flags & ffi::CAP_WINDOWS != 0 && attr.max_mw > 0,
            reads_asked: positive(attr.max_qp_init_rd_atom),
            reads_answered: positive(attr.max_qp_rd_atom),
            ports,
        }
    }
}

const fn window_types(flags: u32) -> &'static str {
    let has = (
        flags & ffi::CAP_WINDOWS_1 != 0,
        flags & ffi::CAP_WINDOWS_2A != 0,
        flags & ffi::CAP_WINDOWS_2B != 0,
    );
    match has {
        (true, true, true) => "1, 2A and 2B",
        (true, true, false) => "1 and 2A",
        (true, false, true) => "1 and 2B",
        (true, false, false) => "1",
        (false, true, true) => "2A and 2B",
        (false, true, false) => "2A",
        (false, false, true) => "2B",
        (false, false, false) => "none",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_types_of_windows_are_those_that_the_flags_say() {
        assert_eq!(window_types(0), "none");
        assert_eq!(window_types(1 << 17), "1");
        assert_eq!(window_types(1 << 17 | 1 << 23), "1 and 2A");
        assert_eq!(window_types(1 << 24 | 1), "2B");
    }
}
