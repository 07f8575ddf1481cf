//! The service that these tests call, and short ways to serve and call it.

use std::future::Future;
use std::pin::Pin;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Poll, Waker};
use std::time::Duration;

use rpc_core::bytes::Bytes;
use rpc_core::{
    Bound, Channel, LocalRuntime, Metadata, Request, Response, Runtime, Server, ServerBuilder,
    Status, block_on,
};
use rpc_tests::devices::usage;
use rpc_tests::{Payloads, Place, eventually};

/// A message with one `bytes` field.
#[derive(Clone, PartialEq, rpc_core::prost::Message)]
#[prost(prost_path = "::rpc_core::prost")]
pub(crate) struct Blob {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) data: Bytes,
}

/// A message with a number.
#[derive(Clone, Copy, PartialEq, rpc_core::prost::Message)]
#[prost(prost_path = "::rpc_core::prost")]
pub(crate) struct Number {
    #[prost(uint64, tag = "1")]
    pub(crate) value: u64,
}

/// What a test wants a server to do.
#[rpc_core::service(name = "e2e.Probe")]
pub(crate) trait Probe {
    /// Sends back what it gets, and the request's metadata beside it.
    async fn echo(&self, request: Request<Blob>) -> Result<Response<Blob>, Status>;
    /// So many bytes of [`PAYLOADS`]' first.
    async fn source(&self, request: Request<Number>) -> Result<Response<Blob>, Status>;
    /// How many bytes it got.
    async fn sink(&self, request: Request<Blob>) -> Result<Response<Number>, Status>;
    /// Waits until the gate is open, then sends back what it got.
    async fn gated(&self, request: Request<Blob>) -> Result<Response<Blob>, Status>;
    /// Never answers.
    async fn never(&self, request: Request<Blob>) -> Result<Response<Blob>, Status>;
    /// Fails with a status that has everything a status can have.
    async fn fail(&self, request: Request<Blob>) -> Result<Response<Blob>, Status>;
    /// Panics: at once for 0, otherwise after the gate was opened.
    async fn panic(&self, request: Request<Number>) -> Result<Response<Blob>, Status>;
    /// Calls `echo` of the server that it was told, and answers with its answer.
    async fn relay(&self, request: Request<Blob>) -> Result<Response<Blob>, Status>;
}

/// Why a message of 64 MiB is left out in the guest.
pub(crate) const SLOW_TO_REGISTER: &str =
    "registering 64 MiB takes an emulated machine longer than a message waits for memory";

/// What calls and answers of these tests carry.
pub(crate) const PAYLOADS: Payloads = Payloads::new(0xe2e);

/// The first `len` bytes of payload `index`.
pub(crate) fn blob(index: u64, len: usize) -> Blob {
    Blob { data: PAYLOADS.bytes(index, len).into() }
}

/// A handler's life, told to the test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// It began to wait.
    Started,
    /// It went on and is about to answer.
    Passed,
    /// Its future was dropped while it waited.
    Dropped,
}

/// Handlers wait at it until it is opened.
#[derive(Default)]
pub(crate) struct Gate {
    state: Mutex<(bool, Vec<Waker>)>,
}

impl Gate {
    pub(crate) fn open(&self) {
        let wakers = {
            let mut state = self.state.lock().unwrap();
            state.0 = true;
            std::mem::take(&mut state.1)
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    async fn opened(&self) {
        std::future::poll_fn(|context| {
            let mut state = self.state.lock().unwrap();
            if state.0 {
                return Poll::Ready(());
            }
            state.1.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

/// Serves [`Probe`].
pub(crate) struct Probing {
    events: Mutex<Sender<Event>>,
    gate: Arc<Gate>,
    next: OnceLock<ProbeClient>,
}

/// Tells of a handler's end if it did not get further.
struct Waiting<'a>(&'a Probing, Event);

impl Probing {
    fn tell(&self, event: Event) {
        // A test that does not listen is not told.
        let _ = self.events.lock().unwrap().send(event);
    }

    fn wait(&self) -> Waiting<'_> {
        self.tell(Event::Started);
        Waiting(self, Event::Dropped)
    }
}

impl Waiting<'_> {
    fn passed(mut self) {
        self.1 = Event::Passed;
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.tell(self.1);
    }
}

/// Metadata that a failure carries.
pub(crate) fn failure_metadata() -> Metadata {
    let mut metadata = Metadata::new();
    metadata.append("retry-in", "17").unwrap();
    metadata.append("raw", &[0_u8, 255, 1][..]).unwrap();
    metadata
}

impl Probe for Probing {
    async fn echo(&self, request: Request<Blob>) -> Result<Response<Blob>, Status> {
        let (message, parts) = request.into_parts();
        let mut response = Response::new(message);
        *response.metadata_mut() = parts.metadata;
        Ok(response)
    }

    async fn source(&self, request: Request<Number>) -> Result<Response<Blob>, Status> {
        Ok(Response::new(blob(0, request.get_ref().value as usize)))
    }

    async fn sink(&self, request: Request<Blob>) -> Result<Response<Number>, Status> {
        Ok(Response::new(Number { value: request.get_ref().data.len() as u64 }))
    }

    async fn gated(&self, request: Request<Blob>) -> Result<Response<Blob>, Status> {
        let waiting = self.wait();
        self.gate.opened().await;
        waiting.passed();
        Ok(Response::new(request.into_inner()))
    }

    async fn never(&self, _request: Request<Blob>) -> Result<Response<Blob>, Status> {
        let _waiting = self.wait();
        std::future::pending().await
    }

    async fn fail(&self, request: Request<Blob>) -> Result<Response<Blob>, Status> {
        Err(Status::failed_precondition("the probe fails as asked")
            .with_details(request.into_inner().data)
            .with_metadata(failure_metadata()))
    }

    async fn panic(&self, request: Request<Number>) -> Result<Response<Blob>, Status> {
        if request.get_ref().value > 0 {
            let waiting = self.wait();
            self.gate.opened().await;
            waiting.passed();
        }
        panic!("the probe panics as asked");
    }

    async fn relay(&self, request: Request<Blob>) -> Result<Response<Blob>, Status> {
        let next = self.next.get().ok_or_else(|| Status::internal("no next server was set"))?;
        let deadline = request.deadline();
        let mut nested = Request::new(request.into_inner());
        nested.set_deadline(deadline);
        next.echo(nested).await
    }
}

/// A server of [`Probe`] at work.
pub(crate) struct Served {
    pub(crate) bound: Bound,
    pub(crate) address: String,
    pub(crate) events: Receiver<Event>,
    pub(crate) gate: Arc<Gate>,
    probing: Arc<Probing>,
}

impl Served {
    /// Serves on a free port of this host.
    pub(crate) fn start(runtime: &Runtime) -> Self {
        Self::start_at(runtime, 0)
    }

    /// Serves on this port.
    pub(crate) fn start_at(runtime: &Runtime, port: u16) -> Self {
        Self::start_with(runtime, port, |server| server)
    }

    /// The same, with settings of the server.
    pub(crate) fn start_with(
        runtime: &Runtime,
        port: u16,
        set: impl FnOnce(ServerBuilder) -> ServerBuilder,
    ) -> Self {
        Self::start_in(runtime, Place::here(), port, set)
    }

    /// Serves this host by another scheme than that of the tests.
    pub(crate) fn start_by(runtime: &Runtime, scheme: &str) -> Self {
        Self::start_in(runtime, &Place::here().by(scheme), 0, |server| server)
    }

    fn start_in(
        runtime: &Runtime,
        place: &Place,
        port: u16,
        set: impl FnOnce(ServerBuilder) -> ServerBuilder,
    ) -> Self {
        let (probing, events) = probing();
        let server = Server::builder()
            .runtime(runtime)
            .add_service(ProbeServer::from_arc(Arc::clone(&probing)));
        let bound = block_on(set(server).bind(&place.address(port))).unwrap();
        let address = place.address(bound.local_addr().port());
        Self { bound, address, events, gate: Arc::clone(&probing.gate), probing }
    }

    /// A channel to it.
    pub(crate) fn channel(&self, runtime: &Runtime) -> Channel {
        block_on(Channel::builder(&self.address).runtime(runtime).connect()).unwrap()
    }

    /// A client of it.
    pub(crate) fn client(&self, runtime: &Runtime) -> ProbeClient {
        ProbeClient::new(self.channel(runtime))
    }

    /// What [`Probe::relay`] calls.
    pub(crate) fn relay_to(&self, client: ProbeClient) {
        assert!(self.probing.next.set(client).is_ok(), "it relays already");
    }

    /// Waits until `count` handlers told `event`, and nothing else.
    pub(crate) fn expect(&self, event: Event, count: usize) {
        for _ in 0..count {
            assert_eq!(self.events.recv(), Ok(event));
        }
    }
}

fn probing() -> (Arc<Probing>, Receiver<Event>) {
    let (events, heard) = mpsc::channel();
    let (gate, next) = (Arc::default(), OnceLock::new());
    (Arc::new(Probing { events: Mutex::new(events), gate, next }), heard)
}

/// A service whose events nobody hears.
pub(crate) fn idle_probing() -> Probing {
    let (events, _) = mpsc::channel();
    let (gate, next) = (Arc::default(), OnceLock::new());
    Probing { events: Mutex::new(events), gate, next }
}

/// The kinds of link between two runtimes: whether they are TCP. RDMA has one.
pub(crate) fn links() -> &'static [bool] {
    if Place::here().is_soft() { &[false, true] } else { &[true] }
}

/// Takes the turns that end a local runtime's last connection; nobody else takes them.
pub(crate) fn let_connections_end(local: &mut LocalRuntime) {
    loop {
        let _ = local.turn();
        if local.prepare_to_sleep() && usage(local.runtime()).qps == 0 {
            return;
        }
    }
}

/// Waits for all of them; they run at the same time.
pub(crate) async fn together<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut running: Vec<_> = futures.into_iter().map(|future| Some(Box::pin(future))).collect();
    let mut outputs: Vec<Option<F::Output>> = running.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        for (slot, output) in running.iter_mut().zip(&mut outputs) {
            let Some(future) = slot else { continue };
            if let Poll::Ready(value) = future.as_mut().poll(context) {
                *output = Some(value);
                *slot = None;
            }
        }
        if running.iter().any(Option::is_some) { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    outputs.into_iter().flatten().collect()
}

/// Polls a future once, so that what it does at once is done. An answer that comes as fast is lost
/// with it: for calls that wait, and for those that are to be dropped.
pub(crate) fn begin<F: Future>(mut future: Pin<&mut F>) {
    block_on(std::future::poll_fn(|context| {
        let _ = future.as_mut().poll(context);
        Poll::Ready(())
    }));
}

/// What a wait is bounded by that ends with a deadline: far longer than it takes.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// What another thread does in its own time is done within this.
pub(crate) const SETTLE: Duration = Duration::from_secs(20);

/// Waits until a runtime's first core has begun so many calls, and no more.
#[track_caller]
pub(crate) fn expect_served(runtime: &Runtime, calls: u64) {
    let served = || runtime.stats().cores[0].calls_served;
    assert!(eventually(SETTLE, || served() == calls), "{} calls were served", served());
}
