use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use rpc_core::bytes::Bytes;
use rpc_core::{Request, Response, Runtime, Status};

use crate::kv::{
    DeleteRequest, DeleteResponse, GetRequest, GetResponse, Kv, PutRequest, PutResponse,
    StatsRequest, StatsResponse,
};
use crate::limits::{COPY_SLICE, KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::stats;
use crate::store::{Full, Store};

/// The service over a store, with the runtime whose work `Stats` tells of.
pub(crate) struct Service {
    store: Store,
    runtime: Runtime,
}

impl Service {
    /// Serves a store.
    pub(crate) fn new(store: Store, runtime: Runtime) -> Self {
        Self { store, runtime }
    }
}

impl Kv for Service {
    async fn get(&self, request: Request<GetRequest>) -> Result<Response<GetResponse>, Status> {
        let value = self.store.get(&request.get_ref().key);
        let found = value.is_some();
        Ok(Response::new(GetResponse { found, value: value.unwrap_or_default() }))
    }

    async fn put(&self, request: Request<PutRequest>) -> Result<Response<PutResponse>, Status> {
        let PutRequest { key, value } = request.into_inner();
        check(&key, &value)?;
        let room = self.store.room(key.len(), value.len()).map_err(refusal)?;
        let key = rpc_core::detach(key);
        let value = copy_out(value).await;
        Ok(Response::new(PutResponse { replaced: room.put(key, value) }))
    }

    async fn delete(
        &self,
        request: Request<DeleteRequest>,
    ) -> Result<Response<DeleteResponse>, Status> {
        let existed = self.store.delete(&request.get_ref().key);
        Ok(Response::new(DeleteResponse { existed }))
    }

    async fn stats(
        &self,
        _request: Request<StatsRequest>,
    ) -> Result<Response<StatsResponse>, Status> {
        Ok(Response::new(stats::snapshot(&self.runtime, self.store.usage())))
    }
}

fn check(key: &[u8], value: &[u8]) -> Result<(), Status> {
    if key.len() > KEY_BYTES_MAX {
        return Err(Status::invalid_argument(format!(
            "the key has {} bytes and a key has at most {KEY_BYTES_MAX}; use a shorter one, such as a hash of it",
            key.len(),
        )));
    }
    if value.len() > VALUE_BYTES_MAX {
        return Err(Status::invalid_argument(format!(
            "the value has {} bytes and a value has at most {VALUE_BYTES_MAX}; store it in parts under several keys",
            value.len(),
        )));
    }
    Ok(())
}

fn refusal(full: Full) -> Status {
    Status::resource_exhausted(format!(
        "the store is full: it may hold {} bytes; delete keys, or start the server with a larger --store",
        full.bytes_max,
    ))
}

/// A copy of a value in heap memory, so that a stored value pins no payload memory.
///
/// `rpc_core::detach` copies in one go, which for 64 MiB would keep this core from its other calls for
/// tens of milliseconds; so longer values are copied in slices, and between two slices the core turns.
async fn copy_out(value: Bytes) -> Bytes {
    if value.len() <= COPY_SLICE {
        return rpc_core::detach(value);
    }
    let mut copy = Vec::with_capacity(value.len());
    for slice in value.chunks(COPY_SLICE) {
        copy.extend_from_slice(slice);
        YieldOnce::default().await;
    }
    copy.into()
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

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    #[test]
    fn a_long_value_is_copied_whole_and_in_slices() {
        let value: Bytes =
            (0..3 * COPY_SLICE + 1).map(|i| (i % 251) as u8).collect::<Vec<_>>().into();
        let mut copying = Box::pin(copy_out(value.clone()));
        let mut context = Context::from_waker(Waker::noop());
        let mut pending = 0;
        let copy = loop {
            match copying.as_mut().poll(&mut context) {
                Poll::Ready(copy) => break copy,
                Poll::Pending => pending += 1,
            }
        };
        assert_eq!(pending, 4);
        assert_eq!(copy, value);
        assert_ne!(copy.as_ptr(), value.as_ptr());
    }

    #[test]
    fn keys_and_values_over_their_bounds_are_refused_in_words() {
        let key = vec![0; KEY_BYTES_MAX + 1];
        assert!(check(&key, b"").unwrap_err().message().contains("8193 bytes"));
        let value = vec![0; VALUE_BYTES_MAX + 1];
        assert!(check(b"", &value).unwrap_err().message().contains("in parts"));
        assert!(check(&key[1..], &value[1..]).is_ok());
    }
}
