//! Each thing that can go wrong before or beside a call has its own sentence.

use std::error::Error;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use rpc_core::codec::CodecError;
use rpc_core::mem::MemError;
use rpc_core::wire::handshake::frame_len;
use rpc_core::wire::{ControlMessage, Hello, Role};
use rpc_core::{Channel, Code, Execution, Runtime, Server, Status, block_on};
use rpc_tests::Quiescence;

use crate::fixture::{
    LONG, Number, ProbeClient, ProbeServer, Served, blob, expect_served, idle_probing,
};

fn connect(runtime: &Runtime, address: &str) -> Status {
    let channel = Channel::builder(address).runtime(runtime).connect_timeout(LONG).connect();
    block_on(channel).expect_err("nothing can be reached there")
}

#[track_caller]
fn assert_says(status: &Status, code: Code, execution: Execution, words: &[&str]) {
    assert_eq!((status.code(), status.execution()), (code, execution), "{status}");
    for word in words {
        assert!(status.message().contains(word), "no {word:?} in {:?}", status.message());
    }
}

/// A port on which nothing listens, at least just now.
fn free_port() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

#[test]
fn a_port_in_use_is_named_with_what_to_do() {
    let mut quiescence = Quiescence::begin();
    let runtime = quiescence.runtime(Runtime::builder());
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let server = Server::builder().runtime(&runtime).add_service(ProbeServer::new(idle_probing()));
    let failed = block_on(server.bind(&format!("soft://127.0.0.1:{port}"))).unwrap_err();
    let words = [&*format!("port {port} on 127.0.0.1"), "in use", "choose another port, or 0"];
    assert_says(&failed, Code::FailedPrecondition, Execution::NotExecuted, &words);
    drop((runtime, taken));
    quiescence.end();
}

#[test]
fn two_servers_of_one_runtime_cannot_share_a_port() {
    let mut quiescence = Quiescence::begin();
    let runtime = quiescence.runtime(Runtime::builder());
    let served = Served::start(&runtime);
    let server = Server::builder().runtime(&runtime).add_service(ProbeServer::new(idle_probing()));
    let failed = block_on(server.bind(&served.address)).unwrap_err();
    assert_says(&failed, Code::FailedPrecondition, Execution::NotExecuted, &["is in use"]);
    drop((runtime, served));
    quiescence.end();
}

#[test]
fn a_name_that_does_not_resolve_is_named() {
    let mut quiescence = Quiescence::begin();
    let runtime = quiescence.runtime(Runtime::builder());
    let failed = connect(&runtime, "soft://no-such-host.invalid:7471");
    let words = ["no-such-host.invalid", "does not resolve", "check its spelling"];
    assert_says(&failed, Code::Unavailable, Execution::NotExecuted, &words);
    drop(runtime);
    quiescence.end();
}

#[test]
fn nothing_that_listens_is_said_with_the_address() {
    let mut quiescence = Quiescence::begin();
    let runtime = quiescence.runtime(Runtime::builder());
    let nobody = free_port();
    let failed = connect(&runtime, &format!("soft://{nobody}"));
    let words = [&*format!("nothing listens on {nobody}"), "is the server running"];
    assert_says(&failed, Code::Unavailable, Execution::NotExecuted, &words);
    // A call on a channel that was to connect later says the same.
    let lazy = Channel::builder(&format!("soft://{nobody}")).runtime(&runtime).connect_lazy();
    let failed = block_on(ProbeClient::new(lazy.unwrap()).echo(blob(0, 1))).unwrap_err();
    assert_says(&failed, Code::Unavailable, Execution::NotExecuted, &words);
    drop(runtime);
    quiescence.end();
}

#[test]
fn addresses_that_cannot_be_used_say_why() {
    let mut quiescence = Quiescence::begin();
    let runtime = quiescence.runtime(Runtime::builder());
    let mut said = Vec::new();
    for address in
        ["", "nonsense", "http://127.0.0.1:1", "soft://127.0.0.1", "soft://:1", "soft://a:99999"]
    {
        let failed = connect(&runtime, address);
        assert_says(&failed, Code::InvalidArgument, Execution::NotExecuted, &[]);
        assert!(failed.message().len() > 20, "{address:?}: {failed}");
        said.push(failed.message().to_owned());
    }
    said.sort();
    said.dedup();
    assert!(said.len() >= 4, "each mistake has its own sentence: {said:#?}");
    if !cfg!(feature = "verbs") {
        let failed = connect(&runtime, "rdma://127.0.0.1:7471");
        let words = ["rdma://", "feature `verbs`", "auto:// or soft://"];
        assert_says(&failed, Code::FailedPrecondition, Execution::NotExecuted, &words);
    }
    drop(runtime);
    quiescence.end();
}

#[test]
fn a_service_that_is_added_twice_is_named() {
    let mut quiescence = Quiescence::begin();
    let runtime = quiescence.runtime(Runtime::builder());
    let server = Server::builder()
        .runtime(&runtime)
        .add_service(ProbeServer::new(idle_probing()))
        .add_service(ProbeServer::new(idle_probing()));
    let failed = block_on(server.bind("soft://127.0.0.1:0")).unwrap_err();
    assert_eq!(failed.code(), Code::InvalidArgument);
    assert!(failed.message().contains("'e2e.Probe' was added to the server twice"), "{failed}");
    drop(runtime);
    quiescence.end();
}

#[test]
fn a_request_over_the_limit_is_not_sent_and_its_error_can_be_matched() {
    let mut quiescence = Quiescence::begin();
    let server = quiescence.runtime(Runtime::builder().message_bytes_max(100_000));
    let client = quiescence.runtime(Runtime::builder());
    let served = Served::start(&server);
    let too_large = |probe: &ProbeClient, len: usize, max: u64| {
        let failed = block_on(probe.sink(blob(0, len))).unwrap_err();
        let words =
            ["the request cannot be sent", &*format!("{max} are allowed"), "message_bytes_max"];
        assert_says(&failed, Code::ResourceExhausted, Execution::NotExecuted, &words);
        let source = failed.source().and_then(|source| source.downcast_ref::<CodecError>());
        assert!(matches!(source, Some(CodecError::TooLarge { max: found, .. }) if *found == max));
    };
    // The server's limit, which the client knows before it sends.
    let probe = served.client(&client);
    too_large(&probe, 100_000, 100_000);
    block_on(probe.sink(blob(0, 99_000))).unwrap();
    // The channel's own.
    let channel = Channel::builder(&served.address).runtime(&client).message_bytes_max(1_000);
    let careful = ProbeClient::new(block_on(channel.connect()).unwrap());
    too_large(&careful, 1_000, 1_000);
    block_on(careful.sink(blob(0, 990))).unwrap();
    expect_served(&server, 2); // the others never left
    drop((probe, careful, served, server, client));
    quiescence.end();
}

#[test]
fn an_answer_over_the_callers_limit_ends_the_call_with_its_sentence() {
    let mut quiescence = Quiescence::begin();
    let server = quiescence.runtime(Runtime::builder());
    let client = quiescence.runtime(Runtime::builder().message_bytes_max(100_000));
    let served = Served::start(&server);
    let probe = served.client(&client);
    let failed = block_on(probe.source(Number { value: 100_000 })).unwrap_err();
    let words = ["the answer cannot be sent", "100000 are allowed"];
    assert_says(&failed, Code::ResourceExhausted, Execution::Executed, &words);
    let got = block_on(probe.source(Number { value: 99_000 })).unwrap();
    assert_eq!(got.get_ref().data.len(), 99_000);
    drop((got, probe, served, server, client));
    quiescence.end();
}

#[test]
fn a_message_larger_than_its_share_of_memory_says_how_much_memory_it_needs() {
    let mut quiescence = Quiescence::begin();
    let server = quiescence.runtime(Runtime::builder());
    let client = quiescence.runtime(Runtime::builder().budget_bytes(4 << 20));
    let served = Served::start(&server);
    let probe = served.client(&client);
    let failed = block_on(probe.sink(blob(0, 4 << 20))).unwrap_err();
    let words = ["outbound memory", "set the runtime's budget_bytes to"];
    assert_says(&failed, Code::ResourceExhausted, Execution::NotExecuted, &words);
    let source = failed.source().and_then(|source| source.downcast_ref::<CodecError>());
    let larger =
        |error: &CodecError| matches!(error, CodecError::Memory(MemError::LargerThanShare { .. }));
    assert!(source.is_some_and(larger), "{failed:?}");
    block_on(probe.sink(blob(0, 1 << 20))).unwrap();
    drop((probe, served, server, client));
    quiescence.end();
}

#[test]
fn a_request_that_the_server_can_never_take_says_what_it_would_need() {
    let mut quiescence = Quiescence::begin();
    let server = quiescence.runtime(Runtime::builder().budget_bytes(4 << 20));
    let client = quiescence.runtime(Runtime::builder());
    let served = Served::start(&server);
    let probe = served.client(&client);
    let failed = block_on(probe.sink(blob(0, 4 << 20))).unwrap_err();
    let words = ["can never take", "4194304 bytes", "set the runtime's budget_bytes to"];
    assert_says(&failed, Code::ResourceExhausted, Execution::NotExecuted, &words);
    block_on(probe.sink(blob(0, 1 << 20))).unwrap();
    drop((probe, served, server, client));
    quiescence.end();
}

#[test]
fn an_answer_that_the_caller_has_no_memory_for_ends_the_call() {
    let mut quiescence = Quiescence::begin();
    let server = quiescence.runtime(Runtime::builder());
    let client = quiescence.runtime(Runtime::builder().budget_bytes(4 << 20));
    let served = Served::start(&server);
    let probe = served.client(&client);
    let failed = block_on(probe.source(Number { value: 4 << 20 })).unwrap_err();
    let words = ["can never take", "inbound memory", "set the runtime's budget_bytes to"];
    assert_says(&failed, Code::ResourceExhausted, Execution::Executed, &words);
    let got = block_on(probe.source(Number { value: 1 << 20 })).unwrap();
    assert_eq!(got.get_ref().data.len(), 1 << 20);
    drop((got, probe, served, server, client));
    quiescence.end();
}

/// Reads one message of the control connection.
fn read_control(stream: &mut TcpStream) -> ControlMessage {
    let mut bytes = Vec::new();
    loop {
        if let Some(len) = frame_len(&bytes).unwrap()
            && bytes.len() == len
        {
            return ControlMessage::decode(&bytes).unwrap();
        }
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        bytes.push(byte[0]);
    }
}

/// A hello as of a program that is six versions ahead.
fn hello_of_the_future(role: Role) -> Vec<u8> {
    let mut hello = Hello::new(role, 1, [7; 32]);
    (hello.version_min, hello.version_max) = (7, 9);
    ControlMessage::Hello(hello).encode().unwrap()
}

/// Answers one connection by `answer`; returns where.
fn impostor(
    answer: impl FnOnce(&mut TcpStream) + Send + 'static,
) -> (SocketAddr, thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let thread = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        answer(&mut stream);
        // Until the other side has closed it.
        let _ = stream.read_to_end(&mut Vec::new());
    });
    (at, thread)
}

#[test]
fn a_server_of_other_versions_is_refused_with_both_ranges_and_the_side_to_upgrade() {
    let mut quiescence = Quiescence::begin();
    let runtime = quiescence.runtime(Runtime::builder());
    let (at, thread) = impostor(|stream| {
        assert!(matches!(read_control(stream), ControlMessage::Hello(_)));
        stream.write_all(&hello_of_the_future(Role::Accepting)).unwrap();
    });
    let failed = connect(&runtime, &format!("soft://{at}"));
    let words = ["no common protocol version", "1 to 1", "7 to 9", "upgrade this program"];
    assert_says(&failed, Code::FailedPrecondition, Execution::NotExecuted, &words);
    thread.join().unwrap();
    drop(runtime);
    quiescence.end();
}

#[test]
fn a_client_of_other_versions_is_told_so_and_the_server_goes_on() {
    let mut quiescence = Quiescence::begin();
    let server = quiescence.runtime(Runtime::builder());
    let client = quiescence.runtime(Runtime::builder());
    let served = Served::start(&server);
    let mut stream = TcpStream::connect(served.bound.local_addr()).unwrap();
    stream.write_all(&hello_of_the_future(Role::Connecting)).unwrap();
    let refusal = loop {
        match read_control(&mut stream) {
            ControlMessage::Refused(refusal) => break refusal,
            ControlMessage::Hello(_) => {}
            other => panic!("{other:?} instead of a refusal"),
        }
    };
    assert_eq!(Code::from_u32(refusal.code), Code::FailedPrecondition);
    assert!(refusal.text.contains("you speak 7 to 9, this side 1 to 1"), "{}", refusal.text);
    drop(stream);
    let probe = served.client(&client);
    block_on(probe.echo(blob(0, 17))).unwrap();
    drop((probe, served, server, client));
    quiescence.end();
}

#[test]
fn a_server_of_another_protocol_is_recognised() {
    let mut quiescence = Quiescence::begin();
    let runtime = quiescence.runtime(Runtime::builder());
    let (at, thread) = impostor(|stream| {
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
    });
    let failed = connect(&runtime, &format!("soft://{at}"));
    let words = ["does not speak this protocol", "check the port"];
    assert_says(&failed, Code::FailedPrecondition, Execution::NotExecuted, &words);
    thread.join().unwrap();
    drop(runtime);
    quiescence.end();
}

#[test]
fn a_client_of_another_protocol_does_not_disturb_the_server() {
    let mut quiescence = Quiescence::begin();
    let server = quiescence.runtime(Runtime::builder());
    let client = quiescence.runtime(Runtime::builder());
    let served = Served::start(&server);
    let mut stream = TcpStream::connect(served.bound.local_addr()).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    // It is told, or only hung up on; either way the connection ends.
    let _ = stream.read_to_end(&mut Vec::new());
    drop(stream);
    let probe = served.client(&client);
    block_on(probe.echo(blob(0, 17))).unwrap();
    drop((probe, served, server, client));
    quiescence.end();
}

#[test]
fn a_server_that_says_nothing_times_out_with_the_step_it_was_at() {
    let mut quiescence = Quiescence::begin();
    let runtime = quiescence.runtime(Runtime::builder());
    let (at, thread) = impostor(|_| {});
    let channel = Channel::builder(&format!("soft://{at}"))
        .runtime(&runtime)
        .connect_timeout(std::time::Duration::from_millis(200))
        .connect();
    let failed = block_on(channel).unwrap_err();
    let words = ["timed out while waiting for the peer's hello"];
    assert_says(&failed, Code::DeadlineExceeded, Execution::NotExecuted, &words);
    thread.join().unwrap();
    drop(runtime);
    quiescence.end();
}

#[test]
fn an_in_process_channel_needs_no_port_and_leaves_nothing() {
    let mut quiescence = Quiescence::begin();
    let runtime = quiescence.runtime(Runtime::builder());
    let server = Server::builder()
        .runtime(&runtime)
        .add_service(ProbeServer::from_arc(Arc::new(idle_probing())));
    let probe = ProbeClient::new(block_on(server.in_process()).unwrap());
    let got = block_on(probe.echo(blob(0, 40_000))).unwrap().into_inner();
    assert_eq!(got, blob(0, 40_000));
    drop((probe, runtime, got));
    quiescence.end();
}
