//! The same client from every kind of thread and executor.

use std::future::Future;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use rpc_core::{JoinError, LocalRuntime, Runtime, Server, block_on};
use rpc_tests::{Place, Quiescence};
use rustix::event::epoll;

use crate::fixture::{
    Number, PAYLOADS, ProbeClient, ProbeServer, Served, blob, idle_probing, let_connections_end,
    together,
};
use rpc_tests::devices::counters;

/// Small and large calls, one after the other; each answer is checked.
async fn calls(probe: ProbeClient, count: u64) {
    for index in 0..count {
        let len = if index % 4 == 3 { 40_000 } else { 300 };
        let got = probe.echo(blob(index, len)).await.unwrap().into_inner().data;
        assert_eq!(PAYLOADS.check(index, len, &got), Ok(()));
    }
}

/// A server and a client of it, in two runtimes; the client's has as many cores as are asked for.
fn pair(quiescence: &mut Quiescence, cores: usize) -> (Served, ProbeClient, Runtime) {
    let server = quiescence.runtime(Runtime::builder());
    let client = quiescence.runtime(Runtime::builder().cores(cores));
    let served = Served::start(&server);
    let probe = served.client(&client);
    (served, probe, client)
}

/// A server in a runtime of its own, and a core that this thread turns.
fn beside_this_thread(quiescence: &mut Quiescence) -> (Runtime, Served, LocalRuntime) {
    let server = quiescence.runtime(Runtime::builder());
    let served = Served::start(&server);
    let local = Runtime::builder().rnr_retry(0).on_this_thread().unwrap();
    quiescence.watch(local.runtime());
    (server, served, local)
}

#[test]
fn calls_work_from_a_tokio_runtime_with_many_threads() {
    let mut quiescence = Quiescence::begin();
    let (served, probe, _) = pair(&mut quiescence, 2);
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    tokio.block_on(async {
        let tasks: Vec<_> = (0..8).map(|_| tokio::spawn(calls(probe.clone(), 20))).collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
    drop((tokio, probe, served));
    quiescence.end();
}

#[test]
fn calls_work_from_a_tokio_runtime_on_the_current_thread() {
    let mut quiescence = Quiescence::begin();
    let (served, probe, _) = pair(&mut quiescence, 1);
    let tokio = tokio::runtime::Builder::new_current_thread().build().unwrap();
    tokio.block_on(async {
        let tasks: Vec<_> = (0..8).map(|_| tokio::spawn(calls(probe.clone(), 20))).collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
    drop((tokio, probe, served));
    quiescence.end();
}

#[test]
fn calls_work_from_an_executor_that_is_not_tokio() {
    let mut quiescence = Quiescence::begin();
    let (served, probe, _) = pair(&mut quiescence, 1);
    let executor = async_executor::Executor::new();
    let tasks: Vec<_> = (0..8).map(|_| executor.spawn(calls(probe.clone(), 20))).collect();
    futures_lite::future::block_on(executor.run(async {
        for task in tasks {
            task.await;
        }
    }));
    drop((executor, probe, served));
    quiescence.end();
}

#[test]
fn calls_work_from_plain_threads() {
    let mut quiescence = Quiescence::begin();
    let (served, probe, _) = pair(&mut quiescence, 2);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| block_on(calls(probe.clone(), 20)));
        }
    });
    drop((probe, served));
    quiescence.end();
}

#[test]
fn calls_work_from_tasks_of_cores_without_a_send_future() {
    let mut quiescence = Quiescence::begin();
    let (served, probe, client) = pair(&mut quiescence, 2);
    let tasks: Vec<_> = (0..8)
        .map(|task| {
            let probe = probe.clone();
            client.spawn_on(task % 2, move || async move {
                let not_send = std::rc::Rc::new(probe);
                calls((*not_send).clone(), 20).await;
                thread::current().name().map(str::to_owned)
            })
        })
        .collect();
    for (number, task) in tasks.into_iter().enumerate() {
        let ran_on = block_on(task).unwrap();
        assert_eq!(ran_on, Some(format!("rpc-core-{}", number % 2)));
    }
    drop((probe, served, client));
    quiescence.end();
}

#[test]
fn a_device_that_says_nothing_of_a_request_loses_the_connection_and_ends_its_calls() {
    if Place::here().skips("its device answers for a process that stands still") {
        return;
    }
    let mut quiescence = Quiescence::begin();
    let mut server = Runtime::builder().on_this_thread().unwrap();
    quiescence.watch(server.runtime());
    let service = ProbeServer::from_arc(Arc::new(idle_probing()));
    let builder = Server::builder().runtime(server.runtime()).add_service(service);
    let bound = server.block_on(builder.bind(&Place::here().address(0))).unwrap();
    let address = Place::here().address(bound.local_addr().port());
    let limit = Duration::from_millis(300);
    let client = quiescence.runtime(Runtime::builder().silence_max(limit));
    // The server turns until it has answered a first call, and then no more.
    let probe = thread::scope(|scope| {
        let calling = scope.spawn(|| {
            let channel = rpc_core::Channel::builder(&address).runtime(&client);
            let probe = ProbeClient::new(block_on(channel.connect()).unwrap());
            block_on(probe.echo(blob(0, 17))).unwrap();
            probe
        });
        while !calling.is_finished() {
            let _ = server.turn();
        }
        calling.join().unwrap()
    });
    // Longer than what is posted inline, so its completion is asked for.
    let lost = block_on(probe.echo(blob(0, 1700))).unwrap_err();
    assert_eq!(lost.code(), rpc_core::Code::Unavailable, "{lost}");
    assert_eq!(lost.execution(), rpc_core::Execution::MaybeExecuted, "{lost}");
    assert!(lost.message().contains("neither completed nor failed"), "{lost}");
    drop((probe, client, bound));
    let_connections_end(&mut server);
    drop(server);
    quiescence.end();
}

#[test]
fn a_thread_can_be_the_core_itself() {
    let mut quiescence = Quiescence::begin();
    let (server, served, mut local) = beside_this_thread(&mut quiescence);
    let address = served.address.clone();
    let runtime = local.runtime().clone();
    let channel =
        local.block_on(rpc_core::Channel::builder(&address).runtime(&runtime).connect()).unwrap();
    let probe = ProbeClient::new(channel);
    local.block_on(calls(probe.clone(), 40));
    // Another thread may use it while this one drives it.
    let elsewhere = local.spawn_local(calls(probe.clone(), 8));
    local.block_on(elsewhere).unwrap();
    drop((probe, runtime));
    let_connections_end(&mut local);
    drop((local, served, server));
    quiescence.end();
}

#[test]
fn a_burst_of_calls_leaves_in_parts_so_that_the_peer_begins_before_it_is_all_there() {
    const BURST: u64 = 64;
    /// What a core sends at once, at most.
    const CALLS_PER_SEND: u64 = 16;
    let mut quiescence = Quiescence::begin();
    let (server, served, mut local) = beside_this_thread(&mut quiescence);
    let runtime = local.runtime().clone();
    let channel = rpc_core::Channel::builder(&served.address).runtime(&runtime);
    let probe = ProbeClient::new(local.block_on(channel.connect()).unwrap());
    let mut sends = 0;
    // The first bursts have few credits and ask for more; of a later one's, some may not be back yet.
    for _ in 0..100 {
        if sends >= BURST / CALLS_PER_SEND {
            break;
        }
        let probe = probe.clone();
        let burst = local.spawn_local(async move {
            let calls = (0..BURST).map(|index| probe.echo(blob(index, 17)));
            for answer in together(calls).await {
                answer.unwrap();
            }
        });
        let before = counters(&runtime).sends;
        let _ = local.turn();
        sends = counters(&runtime).sends - before;
        local.block_on(burst).unwrap();
    }
    assert!(sends >= BURST / CALLS_PER_SEND, "{BURST} calls left in {sends} SENDs");
    drop((probe, runtime));
    let_connections_end(&mut local);
    drop((local, served, server));
    quiescence.end();
}

/// A future's waker that only notes it.
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Drives `local` until `future` is ready as a loop that is not ours would: by its turns, its
/// descriptor in an epoll of the program's own, and its next timer. Returns how often that epoll
/// said that the descriptor was readable.
fn drive<F: Future>(local: &mut LocalRuntime, future: F) -> (F::Output, u32) {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    let data = epoll::EventData::new_u64(7);
    epoll::add(&epoll, local.fd(), data, epoll::EventFlags::IN).unwrap();
    let flag = Arc::new(Flag(AtomicBool::new(true)));
    let waker = Waker::from(Arc::clone(&flag));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    let mut readable = 0;
    loop {
        if flag.0.swap(false, Ordering::SeqCst)
            && let Poll::Ready(output) = future.as_mut().poll(&mut context)
        {
            return (output, readable);
        }
        if local.turn().is_idle() && local.prepare_to_sleep() && !flag.0.load(Ordering::SeqCst) {
            readable += u32::from(wait(&epoll, local.next_timer()));
        }
    }
}

/// Waits in the program's own epoll; whether the core's descriptor ended it.
fn wait(epoll: impl AsFd, timeout: Option<Duration>) -> bool {
    let timeout = timeout.map(|timeout| timeout.try_into().unwrap());
    let mut events = Vec::with_capacity(4);
    match epoll::wait(epoll, rustix::buffer::spare_capacity(&mut events), timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => !events.is_empty(),
        Err(error) => panic!("epoll failed: {error}"),
    }
}

#[test]
fn a_core_can_be_driven_from_a_foreign_loop_by_its_turns_descriptor_and_timer_alone() {
    let mut quiescence = Quiescence::begin();
    let (server, served, mut local) = beside_this_thread(&mut quiescence);
    let runtime = local.runtime().clone();
    let address = served.address.clone();
    let task = local.spawn_local(async move {
        let channel = rpc_core::Channel::builder(&address).runtime(&runtime).connect().await;
        let probe = ProbeClient::new(channel.unwrap());
        calls(probe.clone(), 40).await;
        // The loop sleeps while the handler waits, until the deadline that only a timer tells.
        let mut request = rpc_core::Request::new(blob(0, 1));
        request.set_timeout(Duration::from_millis(50));
        let late = probe.never(request).await.unwrap_err();
        assert_eq!(late.code(), rpc_core::Code::DeadlineExceeded);
    });
    let (finished, readable) = drive(&mut local, task);
    finished.unwrap();
    assert!(readable > 0, "it must have slept and been woken");
    let_connections_end(&mut local);
    drop((local, served, server));
    quiescence.end();
}

#[test]
fn block_on_a_core_panics_with_its_sentence() {
    let mut quiescence = Quiescence::begin();
    let runtime = quiescence.runtime(Runtime::builder());
    let said = runtime.spawn_on(0, || async {
        let panic = catch_unwind(|| block_on(async {})).unwrap_err();
        panic.downcast_ref::<&str>().map(|said| (*said).to_owned())
    });
    let said = block_on(said).unwrap().expect("the panic says something");
    assert!(said.contains("block_on was called on a runtime's core"), "{said}");
    assert!(said.contains("use .await"), "it says what to do: {said}");
    drop(runtime);
    quiescence.end();
}

#[test]
fn block_on_the_thread_that_is_a_core_panics_inside_its_tasks_alone() {
    let quiescence = Quiescence::begin();
    let mut local = Runtime::builder().rnr_retry(0).on_this_thread().unwrap();
    let inside =
        local.block_on(async { catch_unwind(AssertUnwindSafe(|| block_on(async { 1 }))).is_err() });
    assert!(inside);
    assert_eq!(block_on(async { 2 }), 2, "outside its turns the thread is a plain one");
    drop(local);
    quiescence.end();
}

#[test]
fn a_task_that_panics_is_lost_alone_and_its_core_goes_on() {
    let mut quiescence = Quiescence::begin();
    let (served, probe, client) = pair(&mut quiescence, 1);
    let lost = client.spawn_on(0, || async { panic!("a task panics as asked") });
    assert_eq!(block_on(lost), Err::<(), _>(JoinError));
    let value = Number { value: 40_000 };
    let got = block_on(probe.source(value)).unwrap().into_inner().data;
    assert_eq!(PAYLOADS.check(0, 40_000, &got), Ok(()));
    drop((got, probe, served, client));
    quiescence.end();
}
