use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use rpc_core::bytes::Bytes;

use crate::limits::COPY_SLICE;

/// What a call has copied and hashed since its core last saw to others.
#[derive(Default)]
pub(super) struct Turn {
    bytes: usize,
}

impl Turn {
    /// Counts some bytes of work, and lets the core turn when they are [`COPY_SLICE`] together.
    pub(super) async fn spend(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes >= COPY_SLICE {
            self.bytes = 0;
            YieldOnce::default().await;
        }
    }

    /// A copy of a value in heap memory, so that a stored value pins no payload memory.
    ///
    /// `rpc_core::detach` copies in one go, which for 64 MiB would keep this core from its other calls for
    /// tens of milliseconds; so longer values are copied in slices.
    pub(super) async fn copy_out(&mut self, value: Bytes) -> Bytes {
        if value.len() <= COPY_SLICE {
            let copy = rpc_core::detach(value);
            self.spend(copy.len()).await;
            return copy;
        }
        let mut copy = Vec::with_capacity(value.len());
        for slice in value.chunks(COPY_SLICE) {
            copy.extend_from_slice(slice);
            self.spend(slice.len()).await;
        }
        copy.into()
    }
}

/// Pending once, and ready when it is polled again: lets whatever else is ready run.
#[derive(Default)]
struct YieldOnce(bool);

impl Future for YieldOnce {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.0, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

/// Polls a future to its end: what it gives, and how often it let its core turn.
#[cfg(test)]
pub(super) fn turns<T>(future: impl Future<Output = T>) -> (T, usize) {
    let mut future = Box::pin(future);
    let mut context = Context::from_waker(std::task::Waker::noop());
    let mut turns = 0;
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return (output, turns),
            Poll::Pending => turns += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_value_is_copied_whole_and_in_slices() {
        let value: Bytes =
            (0..3 * COPY_SLICE + 1).map(|i| (i % 251) as u8).collect::<Vec<_>>().into();
        let (copy, turns) = turns(Turn::default().copy_out(value.clone()));
        assert_eq!(turns, 3);
        assert_eq!(copy, value);
        assert_ne!(copy.as_ptr(), value.as_ptr());
    }
}
