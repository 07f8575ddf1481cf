#![forbid(unsafe_code)]

use std::pin::Pin;
use std::task::{Context, Poll};

/// Lets other tasks of the executor run once.
pub(super) fn yield_now() -> impl Future<Output = ()> + Send {
    YieldNow(false)
}

struct YieldNow(bool);

impl Future for YieldNow {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.0, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}
