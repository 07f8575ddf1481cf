//! What travels beside a message, and calls of calls.

use rpc_core::bytes::Bytes;
use rpc_core::{Code, Execution, Request, Response, Runtime, Status, block_on};
use rpc_tests::Quiescence;

use crate::fixture::{
    Blob, LONG, PAYLOADS, ProbeClient, Served, blob, failure_metadata, links, together,
};
use rpc_tests::devices::usage;

/// A method that servers of today do not have.
#[rpc_core::service(name = "e2e.Probe")]
trait NewerProbe {
    /// Comes with the next version.
    async fn added_later(&self, request: Request<Blob>) -> Result<Response<Blob>, Status>;
}

/// A service that servers of today do not have.
#[rpc_core::service(name = "e2e.Unheard")]
trait Unheard {
    /// Nobody serves it.
    async fn echo(&self, request: Request<Blob>) -> Result<Response<Blob>, Status>;
}

#[test]
fn metadata_travels_both_ways_beside_small_and_large_messages() {
    for &tcp in links() {
        let mut quiescence = Quiescence::begin();
        let server = quiescence.runtime(Runtime::builder().tcp_links(tcp));
        let client = quiescence.runtime(Runtime::builder().tcp_links(tcp));
        let served = Served::start(&server);
        let probe = served.client(&client);
        for len in [0, 8_000, 200_000] {
            let mut request = Request::new(blob(1, len));
            let metadata = request.metadata_mut();
            metadata.append("Trace-Id", "abc").unwrap();
            metadata.append("trace-id", "def").unwrap();
            metadata.append("raw", &[0_u8, 255][..]).unwrap();
            metadata.append("long", vec![b'x'; 3_000]).unwrap();
            let sent = metadata.clone();
            let response = block_on(probe.echo(request)).unwrap();
            assert_eq!(response.metadata(), &sent);
            assert_eq!(PAYLOADS.check(1, len, &response.get_ref().data), Ok(()));
        }
        drop((probe, served, server, client));
        quiescence.end();
    }
}

#[test]
fn a_failed_call_brings_its_words_details_and_metadata() {
    let mut quiescence = Quiescence::begin();
    let server = quiescence.runtime(Runtime::builder());
    let client = quiescence.runtime(Runtime::builder());
    let served = Served::start(&server);
    let probe = served.client(&client);
    let details = Bytes::from_static(b"\0what a program reads\xff");
    let failed = block_on(probe.fail(Blob { data: details.clone() })).unwrap_err();
    assert_eq!(failed.code(), Code::FailedPrecondition);
    assert_eq!(failed.message(), "the probe fails as asked");
    assert_eq!(failed.details(), &details);
    assert_eq!(failed.metadata(), &failure_metadata());
    assert_eq!(failed.execution(), Execution::Executed);
    drop((probe, served, failed, server, client));
    quiescence.end();
}

#[test]
fn unknown_methods_and_services_are_unimplemented_for_that_call_alone() {
    let mut quiescence = Quiescence::begin();
    let server = quiescence.runtime(Runtime::builder());
    let client = quiescence.runtime(Runtime::builder());
    let served = Served::start(&server);
    let channel = served.channel(&client);
    let (newer, unheard) =
        (NewerProbeClient::new(channel.clone()), UnheardClient::new(channel.clone()));
    let probe = ProbeClient::new(channel);
    // Twice: the second time the connection knows the name's number.
    for _ in 0..2 {
        for (failed, name) in [
            (block_on(newer.added_later(blob(0, 5))).unwrap_err(), "e2e.Probe/AddedLater"),
            (block_on(unheard.echo(blob(0, 40_000))).unwrap_err(), "e2e.Unheard/Echo"),
        ] {
            assert_eq!(failed.code(), Code::Unimplemented, "{name}: {failed}");
            assert_eq!(failed.execution(), Execution::NotExecuted, "{name}: {failed}");
        }
        block_on(probe.echo(blob(0, 17))).unwrap();
    }
    assert_eq!(usage(&server).qps, 1, "the connection stayed");
    drop((probe, newer, unheard, served, server, client));
    quiescence.end();
}

#[test]
fn a_small_call_that_overtakes_the_large_first_call_of_its_method_is_understood() {
    for &tcp in links() {
        let mut quiescence = Quiescence::begin();
        let server = quiescence.runtime(Runtime::builder().tcp_links(tcp));
        let client = quiescence.runtime(Runtime::builder().tcp_links(tcp));
        let served = Served::start(&server);
        let probe = served.client(&client);
        // The method's name travels with the first; its payload is READ while the others arrive.
        let large = blob(0, 200_000);
        let calls = [large].into_iter().chain((1..50).map(|index| blob(index, 17)));
        for answer in block_on(together(calls.map(|request| probe.echo(request)))) {
            answer.unwrap();
        }
        drop((probe, served, server, client));
        quiescence.end();
    }
}

#[test]
fn an_unknown_methods_name_is_in_the_message() {
    let mut quiescence = Quiescence::begin();
    let server = quiescence.runtime(Runtime::builder());
    let served = Served::start(&server);
    let newer = NewerProbeClient::new(served.channel(&server));
    let failed = block_on(newer.added_later(blob(0, 5))).unwrap_err();
    assert!(failed.message().contains("no method 'e2e.Probe/AddedLater'"), "{failed}");
    drop((newer, served, server));
    quiescence.end();
}

#[test]
fn a_handler_can_call_a_server_of_its_own_core() {
    let mut quiescence = Quiescence::begin();
    let runtime = quiescence.runtime(Runtime::builder());
    let client = quiescence.runtime(Runtime::builder());
    let (front, back) = (Served::start(&runtime), Served::start(&runtime));
    front.relay_to(back.client(&runtime));
    let probe = front.client(&client);
    for len in [17, 40_000, 1 << 20] {
        let mut request = Request::new(blob(3, len));
        request.set_timeout(LONG);
        let got = block_on(probe.relay(request)).unwrap().into_inner().data;
        assert_eq!(PAYLOADS.check(3, len, &got), Ok(()), "{len} bytes");
    }
    let many = block_on(together((0..100).map(|index| probe.relay(blob(index, 300)))));
    for (index, answer) in (0..).zip(many) {
        assert_eq!(PAYLOADS.check(index, 300, &answer.unwrap().get_ref().data), Ok(()));
    }
    drop((probe, front, back, runtime, client));
    quiescence.end();
}

#[test]
fn a_handler_can_call_its_own_server() {
    let mut quiescence = Quiescence::begin();
    let runtime = quiescence.runtime(Runtime::builder());
    let served = Served::start(&runtime);
    let probe = served.client(&runtime);
    served.relay_to(probe.clone());
    let got = block_on(probe.relay(blob(4, 40_000))).unwrap().into_inner().data;
    assert_eq!(PAYLOADS.check(4, 40_000, &got), Ok(()));
    drop((got, probe, served, runtime));
    quiescence.end();
}

#[test]
fn a_buffer_of_payload_memory_goes_out_as_it_lies() {
    let mut quiescence = Quiescence::begin();
    let server = quiescence.runtime(Runtime::builder());
    let client = quiescence.runtime(Runtime::builder());
    let served = Served::start(&server);
    let channel = served.channel(&client);
    let mut buffer = channel.alloc(1 << 20).unwrap();
    PAYLOADS.fill(9, &mut buffer);
    let before = client.stats().memory.outbound;
    let data = buffer.freeze();
    let (at, probe) = (data.as_ptr(), ProbeClient::new(channel));
    let taken = block_on(probe.sink(Blob { data: data.clone() })).unwrap();
    assert_eq!(taken.get_ref().value, 1 << 20);
    assert_eq!(data.as_ptr(), at);
    assert!(client.stats().memory.peak <= before, "no second buffer was taken for it");
    drop((data, probe, served, server, client));
    quiescence.end();
}
