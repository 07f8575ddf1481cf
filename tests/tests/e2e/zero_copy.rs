//! Large fields are never copied, and small ones pin nothing: by the allocator's count, the memory that
//! each side has in use at its worst moment, and where fields lie.
//!
//! Client and server are cores of this thread, so the allocator's count of the thread is that of both.

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Mutex;
use std::time::Duration;

use rpc_core::bytes::Bytes;
use rpc_core::{
    Bound, Channel, LocalRuntime, Request, Response, Runtime, RuntimeStats, Server, Status,
};
use rpc_tests::devices::usage;
use rpc_tests::{Place, Quiescence};

use crate::fixture::{PAYLOADS, SLOW_TO_REGISTER, links, together};

const MIB: usize = 1 << 20;
/// One value of the greatest size.
const VALUE_BYTES: usize = 64 * MIB;
/// Memory for one such value each way, of which users may hold half.
const BUDGET_BYTES: u64 = 512 << 20;
/// Smaller than any field that must not be copied.
const HEAP_BYTES_MAX: u64 = 1 << 20;
/// How long a test may take: it moves a few hundred MiB without optimisation.
const LIMIT: Duration = Duration::from_secs(120);

/// A `bytes` field in every place a field can have.
#[derive(Clone, PartialEq, rpc_core::prost::Message)]
#[prost(prost_path = "::rpc_core::prost")]
pub(crate) struct Shapes {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) plain: Bytes,
    #[prost(message, optional, tag = "2")]
    pub(crate) nested: Option<Nested>,
    #[prost(bytes = "bytes", repeated, tag = "3")]
    pub(crate) repeated: Vec<Bytes>,
    #[prost(map = "uint32, message", tag = "4")]
    pub(crate) map: HashMap<u32, Nested>,
    #[prost(oneof = "Choice", tags = "5, 6")]
    pub(crate) choice: Option<Choice>,
}

/// A message in a message.
#[derive(Clone, PartialEq, rpc_core::prost::Message)]
#[prost(prost_path = "::rpc_core::prost")]
pub(crate) struct Nested {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) inner: Bytes,
}

/// One of two.
#[derive(Clone, PartialEq, rpc_core::prost::Oneof)]
#[prost(prost_path = "::rpc_core::prost")]
pub(crate) enum Choice {
    #[prost(bytes = "bytes", tag = "5")]
    Value(Bytes),
    #[prost(uint64, tag = "6")]
    Number(u64),
}

impl Shapes {
    fn fields(&self) -> Vec<&Bytes> {
        let mut fields = vec![&self.plain];
        fields.extend(self.nested.iter().map(|nested| &nested.inner));
        fields.extend(&self.repeated);
        fields.extend(self.map.values().map(|nested| &nested.inner));
        if let Some(Choice::Value(value)) = &self.choice {
            fields.push(value);
        }
        fields
    }
}

/// Keeps what it is given.
#[rpc_core::service(name = "e2e.Keep")]
pub(crate) trait Keep {
    /// Keeps the message, and sends it back.
    async fn echo(&self, request: Request<Shapes>) -> Result<Response<Shapes>, Status>;
    /// Keeps the message.
    async fn put(&self, request: Request<Shapes>) -> Result<Response<Shapes>, Status>;
    /// Sends the message that was put.
    async fn get(&self, request: Request<Shapes>) -> Result<Response<Shapes>, Status>;
    /// Keeps the plain field alone.
    async fn put_plain(&self, request: Request<Shapes>) -> Result<Response<Shapes>, Status>;
    /// Keeps the repeated fields, each for itself.
    async fn put_repeated(&self, request: Request<Shapes>) -> Result<Response<Shapes>, Status>;
}

#[derive(Default)]
struct Keeping {
    message: Mutex<Shapes>,
    fields: Mutex<Vec<Bytes>>,
}

impl Keeping {
    fn keep(&self, request: Request<Shapes>) -> Shapes {
        let message = request.into_inner();
        *self.message.lock().unwrap() = message.clone();
        message
    }
}

impl Keep for Keeping {
    async fn echo(&self, request: Request<Shapes>) -> Result<Response<Shapes>, Status> {
        Ok(Response::new(self.keep(request)))
    }

    async fn put(&self, request: Request<Shapes>) -> Result<Response<Shapes>, Status> {
        self.keep(request);
        Ok(Response::new(Shapes::default()))
    }

    async fn get(&self, _request: Request<Shapes>) -> Result<Response<Shapes>, Status> {
        Ok(Response::new(self.message.lock().unwrap().clone()))
    }

    async fn put_plain(&self, request: Request<Shapes>) -> Result<Response<Shapes>, Status> {
        self.fields.lock().unwrap().push(request.into_inner().plain);
        Ok(Response::new(Shapes::default()))
    }

    async fn put_repeated(&self, request: Request<Shapes>) -> Result<Response<Shapes>, Status> {
        self.fields.lock().unwrap().extend(request.into_inner().repeated);
        Ok(Response::new(Shapes::default()))
    }
}

/// A server whose core is this thread.
struct Serving {
    core: LocalRuntime,
    keeping: std::sync::Arc<Keeping>,
    bound: Option<Bound>,
}

impl Serving {
    fn start(quiescence: &mut Quiescence, tcp: bool) -> Self {
        let mut core = local(quiescence, tcp);
        let keeping = std::sync::Arc::new(Keeping::default());
        let service = KeepServer::from_arc(std::sync::Arc::clone(&keeping));
        let server = Server::builder().runtime(core.runtime()).add_service(service);
        let bound = core.block_on(server.bind(&Place::here().address(0))).unwrap();
        Self { core, keeping, bound: Some(bound) }
    }

    fn address(&self) -> String {
        Place::here().address(self.bound.as_ref().unwrap().local_addr().port())
    }

    fn stats(&self) -> RuntimeStats {
        self.core.runtime().stats()
    }
}

fn local(quiescence: &mut Quiescence, tcp: bool) -> LocalRuntime {
    let builder = Runtime::builder().tcp_links(tcp).budget_bytes(BUDGET_BYTES).rnr_retry(0);
    let core = builder.on_this_thread().unwrap();
    quiescence.watch(core.runtime());
    core
}

/// A client whose core is this thread too, and its servers.
struct Cores {
    client: LocalRuntime,
    servers: Vec<Serving>,
}

impl Cores {
    fn start(quiescence: &mut Quiescence, servers: usize, tcp: bool) -> Self {
        let servers = (0..servers).map(|_| Serving::start(quiescence, tcp)).collect();
        Self { client: local(quiescence, tcp), servers }
    }

    /// Turns every core until the client's task has ended.
    fn run<T: 'static>(&mut self, task: impl Future<Output = T> + 'static) -> T {
        let result = Rc::new(Cell::new(None));
        let ended = Rc::clone(&result);
        let _task = self.client.spawn_local(async move { ended.set(Some(task.await)) });
        loop {
            self.turn();
            if let Some(result) = result.take() {
                return result;
            }
        }
    }

    fn turn(&mut self) {
        let _ = self.client.turn();
        for server in &mut self.servers {
            let _ = server.core.turn();
        }
    }

    fn connect(&mut self, server: usize) -> (Channel, KeepClient) {
        let (address, runtime) = (self.servers[server].address(), self.client.runtime().clone());
        let channel = self
            .run(async move { Channel::builder(&address).runtime(&runtime).connect().await })
            .unwrap();
        (channel.clone(), KeepClient::new(channel))
    }

    /// Turns until all memory that messages took is back, but for what users hold.
    fn settle(&mut self) {
        let used = |runtime: &Runtime| {
            let memory = runtime.stats().memory;
            memory.inbound - memory.held_by_users
        };
        while used(self.client.runtime()) > 0
            || self.servers.iter().any(|server| used(server.core.runtime()) > 0)
        {
            self.turn();
        }
    }

    /// Lets the connections end, whose channels are gone.
    fn end(mut self) {
        for server in &mut self.servers {
            server.bound = None;
            server.keeping.fields.lock().unwrap().clear();
            *server.keeping.message.lock().unwrap() = Shapes::default();
        }
        // A core shows its counters to others before it sleeps.
        let mut alive = true;
        while alive {
            self.turn();
            alive = !is_at_rest(&mut self.client);
            for server in &mut self.servers {
                alive |= !is_at_rest(&mut server.core);
            }
        }
    }
}

fn is_at_rest(core: &mut LocalRuntime) -> bool {
    core.prepare_to_sleep() && usage(core.runtime()).qps == 0
}

/// Runs `code` and counts the bytes that it takes from the heap on this thread, given back or not.
fn heap_bytes<T>(code: impl FnOnce() -> T) -> (T, u64) {
    let mut result = None;
    let info = allocation_counter::measure(|| result = Some(code()));
    (result.unwrap(), info.bytes_total)
}

/// A field in payload memory.
fn placed(channel: &Channel, index: u64, len: usize) -> Bytes {
    let mut buffer = channel.alloc(len).unwrap();
    PAYLOADS.fill(index, &mut buffer);
    buffer.freeze()
}

/// A message with a field of this length in every place.
fn every_shape(field: impl Fn(u64) -> Bytes) -> Shapes {
    Shapes {
        plain: field(0),
        nested: Some(Nested { inner: field(1) }),
        repeated: vec![field(2), field(3)],
        map: HashMap::from([(7, Nested { inner: field(4) })]),
        choice: Some(Choice::Value(field(5))),
    }
}

#[test]
fn fields_of_every_shape_travel_aligned_and_uncopied_both_ways() {
    for &tcp in links() {
        let mut quiescence = Quiescence::within(LIMIT);
        let mut cores = Cores::start(&mut quiescence, 1, tcp);
        let (channel, keep) = cores.connect(0);
        let sent = every_shape(|index| placed(&channel, index, MIB));
        let fields_bytes = (sent.fields().len() * MIB) as u64;
        let message = sent.clone();
        let client = keep.clone();
        let (answer, heap) =
            heap_bytes(|| cores.run(async move { client.echo(message).await.unwrap() }));
        let answer = answer.into_inner();
        assert!(heap < HEAP_BYTES_MAX, "tcp {tcp}: {heap} bytes of the heap");
        let kept = cores.servers[0].keeping.message.lock().unwrap().clone();
        for (side, message) in [("request", &kept), ("answer", &answer)] {
            assert!(*message == sent, "tcp {tcp}: the {side} has other bytes");
            for field in message.fields() {
                assert_eq!(field.as_ptr().addr() % 4096, 0, "tcp {tcp}: a field of the {side}");
            }
        }
        // Neither the heap nor payload memory had room for another copy: the client had its request
        // and the answer, the server what it received, which is what it answered with.
        let (client, server) = (cores.client.runtime().stats().memory, cores.servers[0].stats());
        assert_eq!(client.peak, 2 * fields_bytes, "tcp {tcp}");
        assert_eq!(server.memory.peak, fields_bytes, "tcp {tcp}");
        assert_eq!(server.memory.outbound, 0, "tcp {tcp}");
        drop((sent, answer, kept, keep, channel));
        cores.end();
        quiescence.end();
    }
}

#[test]
fn a_value_of_64_mib_is_put_and_got_with_one_block_of_its_size_on_each_side() {
    if Place::here().skips(SLOW_TO_REGISTER) {
        return;
    }
    for &tcp in links() {
        let mut quiescence = Quiescence::within(LIMIT);
        let mut cores = Cores::start(&mut quiescence, 1, tcp);
        let (channel, keep) = cores.connect(0);
        let value = channel.alloc(VALUE_BYTES).unwrap().freeze();
        let client = keep.clone();
        let (got, heap) = heap_bytes(|| {
            cores.run(async move {
                let put = Shapes { plain: value, ..Shapes::default() };
                client.put(put).await.unwrap();
                client.get(Shapes::default()).await.unwrap().into_inner().plain
            })
        });
        assert_eq!(got.len(), VALUE_BYTES);
        assert!(heap < HEAP_BYTES_MAX, "tcp {tcp}: {heap} bytes of the heap");
        for runtime in [cores.client.runtime(), cores.servers[0].core.runtime()] {
            let memory = runtime.stats().memory;
            assert_eq!(memory.peak, VALUE_BYTES as u64, "tcp {tcp}: {memory:?}");
            assert_eq!(memory.delivered_as_copies, 0, "tcp {tcp}");
        }
        drop((got, keep, channel));
        cores.end();
        quiescence.end();
    }
}

#[test]
fn a_field_of_ten_bytes_pins_nothing_of_the_message_it_came_in() {
    let mut quiescence = Quiescence::within(LIMIT);
    let mut cores = Cores::start(&mut quiescence, 1, false);
    let (channel, keep) = cores.connect(0);
    let ten = Bytes::from(PAYLOADS.bytes(9, 10));
    // Beside a large field; and among so many small ones that they travel by READ themselves.
    let large = placed(&channel, 0, MIB);
    let beside = Shapes { plain: ten.clone(), repeated: vec![large], ..Shapes::default() };
    let many = (0..4_000).map(|_| ten.clone()).collect();
    let among = Shapes { plain: ten.clone(), repeated: many, ..Shapes::default() };
    cores.run(async move {
        keep.put_plain(beside).await.unwrap();
        keep.put_plain(among).await.unwrap();
    });
    cores.settle();
    let server = &cores.servers[0];
    assert_eq!(*server.keeping.fields.lock().unwrap(), [ten.clone(), ten]);
    let memory = server.stats().memory;
    assert!(memory.peak >= MIB as u64, "they were received: {memory:?}");
    assert_eq!((memory.inbound, memory.held_by_users), (0, 0), "{memory:?}");
    drop(channel);
    cores.end();
    quiescence.end();
}

#[test]
fn a_hundred_thousand_kept_small_fields_leave_receive_memory_as_it_was() {
    const CALLS: u64 = 100;
    const FIELDS: u64 = 1_000;
    let mut quiescence = Quiescence::within(LIMIT);
    let mut cores = Cores::start(&mut quiescence, 1, false);
    let (channel, keep) = cores.connect(0);
    let message = |call: u64| Shapes {
        repeated: (0..FIELDS).map(|n| PAYLOADS.bytes(call * FIELDS + n, 10).into()).collect(),
        ..Shapes::default()
    };
    let messages: Vec<_> = (0..CALLS).map(message).collect();
    cores.run(async move {
        for message in messages {
            keep.put_repeated(message).await.unwrap();
        }
    });
    cores.settle();
    let server = &cores.servers[0];
    let kept = server.keeping.fields.lock().unwrap().clone();
    assert_eq!(kept.len() as u64, CALLS * FIELDS);
    for (index, field) in (0..).zip(&kept) {
        assert_eq!(PAYLOADS.check(index, 10, field), Ok(()));
    }
    let stats = server.stats();
    assert_eq!((stats.memory.inbound, stats.memory.held_by_users), (0, 0), "{stats:?}");
    // Every receive that a SEND took is posted again: what stands there is what is counted as posted.
    assert_eq!(usage(server.core.runtime()).srq_wrs, stats.cores[0].receives_posted);
    drop((kept, channel));
    cores.end();
    quiescence.end();
}

#[test]
fn one_field_goes_to_three_servers_at_once_from_one_payload() {
    const SERVERS: usize = 3;
    let mut quiescence = Quiescence::within(LIMIT);
    let mut cores = Cores::start(&mut quiescence, SERVERS, false);
    let clients: Vec<_> = (0..SERVERS).map(|server| cores.connect(server)).collect();
    let field = placed(&clients[0].0, 3, MIB);
    let message = Shapes { plain: field.clone(), ..Shapes::default() };
    let keeps: Vec<_> = clients.iter().map(|(_, keep)| keep.clone()).collect();
    // A link's buffer grows once.
    for keep in keeps.clone() {
        let message = message.clone();
        cores.run(async move { keep.put(message).await.unwrap() });
    }
    let done = Rc::new(Cell::new(false));
    let ended = Rc::clone(&done);
    let calls = async move {
        let puts = keeps.iter().map(|keep| keep.put(message.clone()));
        let answers = together(puts).await;
        ended.set(answers.iter().all(Result::is_ok));
    };
    let _task = cores.client.spawn_local(calls);
    // The servers stand still until the payload is advertised to all of them.
    let mut heap = 0;
    while cores.client.runtime().stats().cores[0].leases < SERVERS as u32 {
        heap += heap_bytes(|| cores.client.turn()).1;
    }
    while !done.get() {
        heap += heap_bytes(|| cores.turn()).1;
    }
    assert!(heap < HEAP_BYTES_MAX, "{heap} bytes of the heap");
    for server in &cores.servers {
        assert!(server.keeping.message.lock().unwrap().plain == field);
    }
    let memory = cores.client.runtime().stats().memory;
    assert_eq!(memory.peak, MIB as u64, "one payload, however many read it: {memory:?}");
    drop((field, clients));
    cores.end();
    quiescence.end();
}
