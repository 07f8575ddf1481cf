#![allow(unsafe_code)]

use std::io::ErrorKind;

use super::context::Context;
use super::cq::CqInner;
use super::ffi::{self, RawEvent, ibv_qp};
use crate::verbs::{AsyncEvent, QpNum};

/// Fetches one asynchronous event, and acknowledges it: until then the object that it is about
/// cannot be destroyed, and neither can it while this looks at it.
///
/// The system may remove a device without an event; then the descriptor fails, which is told once.
pub(super) fn fetch(context: &Context) -> Option<AsyncEvent> {
    // SAFETY: the context is alive, and the event is acknowledged below.
    let event = match unsafe { ffi::get_async_event(context.raw()) } {
        Ok(event) => event,
        Err(error) => match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::Interrupted => return None,
            _ => return context.is_first_loss().then_some(AsyncEvent::DeviceFatal),
        },
    };
    let what = understand(&event);
    // SAFETY: it was fetched above.
    unsafe { ffi::ack_async_event(event) };
    Some(what)
}

/// The numbers are those of `enum ibv_event_type`, which never change.
fn understand(event: &RawEvent) -> AsyncEvent {
    match event.number {
        0 => {
            // SAFETY: the event is about a queue, one that this crate made with this context, and is
            // not acknowledged yet.
            unsafe { CqInner::mark_overrun(event.element.cast()) };
            AsyncEvent::CqError
        }
        1 => AsyncEvent::QpFatal(qp(event)),
        2 => AsyncEvent::QpRequestError(qp(event)),
        3 => AsyncEvent::QpAccessError(qp(event)),
        8 => AsyncEvent::DeviceFatal,
        9 => AsyncEvent::PortActive(port(event)),
        10 => AsyncEvent::PortError(port(event)),
        14 => AsyncEvent::SrqError,
        15 => AsyncEvent::SrqLimitReached,
        16 => AsyncEvent::LastWqeReached(qp(event)),
        18 => AsyncEvent::GidChange(port(event)),
        other => AsyncEvent::Unknown(other as i32),
    }
}

/// The QP of an event that is about one.
fn qp(event: &RawEvent) -> QpNum {
    let qp: *const ibv_qp = event.element.cast_const().cast();
    // SAFETY: the event is about a QP, and not acknowledged yet, so the QP is alive.
    QpNum(unsafe { (*qp).qp_num })
}

/// The port of an event that is about one: an `int` in the place of the pointer.
fn port(event: &RawEvent) -> u8 {
    let bytes = event.element.addr().to_ne_bytes();
    let number = u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    u8::try_from(number).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_ports_say_which_and_unknown_ones_their_number() {
        let event = |number, element: usize| {
            understand(&RawEvent { element: std::ptr::without_provenance_mut(element), number })
        };
        assert_eq!(event(9, 2), AsyncEvent::PortActive(2));
        assert_eq!(event(10, 1), AsyncEvent::PortError(1));
        assert_eq!(event(18, 3), AsyncEvent::GidChange(3));
        assert_eq!(event(8, 0), AsyncEvent::DeviceFatal);
        assert_eq!(event(99, 0), AsyncEvent::Unknown(99));
    }
}
