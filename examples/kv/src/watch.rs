use std::future::ready;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rpc_core::Runtime;

use crate::failure::Failure;
use crate::stop::Stop;

/// How often the cores are asked. It costs each of them some microseconds; and clients of a core that has
/// ended wait no longer than this for the process to end.
const INTERVAL: Duration = Duration::from_secs(5);

/// Watches a runtime's cores from a thread of its own, until it is dropped.
///
/// While a runtime is held, none of its threads ends in order. One that panicked has taken its connections
/// with it, and the process would live on without serving their clients. The runtime does not tell, but
/// a core that is gone refuses a task.
pub(crate) struct Watch {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Watches; `ended` is asked for once a core has ended.
    pub(crate) fn start(runtime: &Runtime, ended: Stop) -> Result<Self, Failure> {
        Self::every(INTERVAL, runtime, ended)
    }

    fn every(interval: Duration, runtime: &Runtime, ended: Stop) -> Result<Self, Failure> {
        let (stop, stopped) = mpsc::channel();
        let runtime = runtime.clone();
        let watch = move || {
            while stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                for core in 0..runtime.cores() {
                    // A core that is busy answers late, and is waited for.
                    if rpc_core::block_on(runtime.spawn_on(core, || ready(()))).is_err() {
                        tracing::error!(core, "the thread of a core has ended");
                        ended.ask();
                        return;
                    }
                }
            }
        };
        let thread = thread::Builder::new().name("kv-watch".into()).spawn(watch);
        let thread = thread.map_err(|error| Failure::because("no thread can be started", error))?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Watch {
    /// Waits for the thread, which holds the runtime: with it the store is closed in order.
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::sync::Arc;
    use std::task::{Context, Poll, Wake, Waker};

    use futures_util::future::FutureExt;
    use rpc_core::{Channel, Server};

    use super::*;
    use crate::proto::{GetRequest, KvClient, KvServer};
    use crate::service::Service;
    use crate::store::Store;

    /// What a core meets when it tells who waits for a call.
    struct Panics;

    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            std::panic::resume_unwind(Box::new("a test ends this thread"));
        }
    }

    #[test]
    fn a_core_that_panicked_is_noticed_and_one_that_runs_is_not() {
        let runtime = Runtime::builder().cores(2).budget_bytes(64 << 20).build().unwrap();
        let caller = Runtime::builder().budget_bytes(64 << 20).build().unwrap();
        let (servers, callers) = (Stop::default(), Stop::default());
        let often = Duration::from_millis(1);
        let _servers = Watch::every(often, &runtime, servers.clone()).unwrap();
        let _callers = Watch::every(often, &caller, callers.clone()).unwrap();
        let store = Arc::new(Store::in_memory(1 << 20).unwrap());
        let service = KvServer::new(Service::new(store, runtime.clone()));
        let bound = rpc_core::block_on(
            Server::builder().runtime(&runtime).add_service(service).bind("soft://127.0.0.1:0"),
        );
        let bound = bound.unwrap();
        let addr = format!("soft://{}", bound.local_addr());
        let channel = rpc_core::block_on(Channel::builder(&addr).runtime(&caller).connect());
        let client = KvClient::new(channel.unwrap());
        assert!(rpc_core::block_on(client.get(GetRequest::default())).is_ok());
        assert!(callers.asked().now_or_never().is_none());
        let waker = Waker::from(Arc::new(Panics));
        let mut context = Context::from_waker(&waker);
        // An answer may be faster than this thread: then nobody is to be woken.
        let _waits = loop {
            let mut call = Box::pin(client.get(GetRequest::default()));
            if !matches!(call.as_mut().poll(&mut context), Poll::Ready(Ok(_))) {
                break call;
            }
        };
        let (told, telling) = mpsc::channel();
        let asked = callers.asked();
        thread::spawn(move || {
            rpc_core::block_on(asked);
            _ = told.send("asked");
        });
        assert_eq!(telling.recv_timeout(Duration::from_secs(60)), Ok("asked"));
        assert!(!servers.is_asked());
    }
}
