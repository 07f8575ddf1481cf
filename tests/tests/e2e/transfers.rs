//! Payloads that travel by READ: counted by the devices, and given back whatever happens.

use std::time::Duration;

use rpc_core::bytes::Bytes;
use rpc_core::{Runtime, block_on};
use rpc_tests::devices::{counters, is_read_from, usage};
use rpc_tests::{Place, Quiescence, eventually};

use crate::fixture::{
    Blob, Number, PAYLOADS, SETTLE, SLOW_TO_REGISTER, Served, begin, blob, links, together,
};

/// One value of the greatest size.
const VALUE_BYTES: usize = 64 << 20;
/// Memory for one of them each way, and for an answer beside it.
const BUDGET_BYTES: u64 = 512 << 20;

fn builder(tcp: bool) -> rpc_core::RuntimeBuilder {
    Runtime::builder().tcp_links(tcp).budget_bytes(BUDGET_BYTES)
}

#[test]
fn a_value_of_64_mib_travels_by_read_each_way_and_little_else_is_sent() {
    if Place::here().skips(SLOW_TO_REGISTER) {
        return;
    }
    for &tcp in links() {
        let mut quiescence = Quiescence::within(Duration::from_secs(120));
        let server = quiescence.runtime(builder(tcp));
        let client = quiescence.runtime(builder(tcp));
        let served = Served::start(&server);
        let probe = served.client(&client);
        let sent = value();
        let got = block_on(probe.echo(Blob { data: sent.clone() })).unwrap().into_inner().data;
        assert!(got == sent, "tcp {tcp}: other bytes came back");
        for runtime in [&client, &server] {
            let device = counters(runtime);
            let eager = [device.send_bytes, device.recv_bytes];
            assert!(eager.iter().all(|bytes| *bytes < 64 << 10), "tcp {tcp}: {device:?}");
            assert_eq!(device.read_bytes, VALUE_BYTES as u64, "tcp {tcp}: {device:?}");
            if Place::here().is_soft() {
                assert_eq!(device.read_bytes_served, VALUE_BYTES as u64, "tcp {tcp}: {device:?}");
            }
            assert_eq!((device.rnr_naks_sent, device.remote_access_errors), (0, 0));
        }
        drop((got, probe, served, server, client));
        quiescence.end();
    }
}

/// A value of the greatest size in which each MiB is another.
fn value() -> Bytes {
    let mut bytes = PAYLOADS.bytes(5, 1 << 20).repeat(VALUE_BYTES >> 20);
    for (index, mib) in (0..=u8::MAX).zip(bytes.chunks_mut(1 << 20)) {
        mib[..16].fill(index);
    }
    bytes.into()
}

#[test]
fn a_message_below_the_eager_limit_travels_without_a_read() {
    let mut quiescence = Quiescence::begin();
    let server = quiescence.runtime(Runtime::builder());
    let client = quiescence.runtime(Runtime::builder());
    let served = Served::start(&server);
    let probe = served.client(&client);
    for _ in 0..10 {
        block_on(probe.echo(blob(0, 8_192))).unwrap();
    }
    let device = counters(&client);
    assert_eq!((device.reads, device.reads_served, device.binds), (0, 0, 0), "{device:?}");
    drop((probe, served, server, client));
    quiescence.end();
}

#[test]
fn a_large_payload_lands_aligned_to_a_page() {
    let mut quiescence = Quiescence::begin();
    let server = quiescence.runtime(Runtime::builder());
    let client = quiescence.runtime(Runtime::builder());
    let served = Served::start(&server);
    let probe = served.client(&client);
    for len in [40_000, 1 << 20, 3_000_001] {
        let got = block_on(probe.source(Number { value: len })).unwrap().into_inner().data;
        assert_eq!(got.as_ptr().addr() % 4096, 0, "{len} bytes");
    }
    drop((probe, served, server, client));
    quiescence.end();
}

#[test]
fn a_payload_outlives_its_connection_and_its_memory_comes_back_with_it() {
    let mut quiescence = Quiescence::begin();
    let server = quiescence.runtime(Runtime::builder());
    let client = quiescence.runtime(Runtime::builder());
    let served = Served::start(&server);
    let probe = served.client(&client);
    let got: Bytes = block_on(probe.source(Number { value: 1 << 20 })).unwrap().into_inner().data;
    drop((probe, served));
    let closed = || usage(&client).qps == 0;
    assert!(eventually(SETTLE, closed));
    assert!(client.stats().memory.held_by_users >= 1 << 20);
    assert_eq!(PAYLOADS.check(0, 1 << 20, &got), Ok(()));
    // Dropped on a thread that is none of the runtime's.
    std::thread::spawn(move || drop(got)).join().unwrap();
    drop((server, client));
    quiescence.end();
}

#[test]
fn a_request_dropped_while_it_is_read_gives_its_memory_back() {
    for &tcp in links() {
        let mut quiescence = Quiescence::begin();
        let server = quiescence.runtime(builder(tcp));
        let client = quiescence.runtime(builder(tcp));
        let served = Served::start(&server);
        let probe = served.client(&client);
        let data = blob(6, 8 << 20).data;
        for _ in 0..10 {
            let before = counters(&server).reads;
            let mut call = Box::pin(probe.sink(Blob { data: data.clone() }));
            // It yields while it copies, so it is polled until it is on its way.
            let reading = || {
                begin(call.as_mut());
                counters(&server).reads > before
            };
            assert!(eventually(SETTLE, reading));
            drop(call);
        }
        block_on(probe.sink(blob(6, 1 << 20))).unwrap();
        drop((data, probe, served, server, client));
        quiescence.end();
    }
}

#[test]
fn an_answer_dropped_while_it_is_read_gives_its_memory_back() {
    for &tcp in links() {
        let mut quiescence = Quiescence::begin();
        let server = quiescence.runtime(builder(tcp));
        let client = quiescence.runtime(builder(tcp));
        let served = Served::start(&server);
        let probe = served.client(&client);
        for _ in 0..10 {
            let before = counters(&client).reads;
            let mut call = Box::pin(probe.source(Number { value: 8 << 20 }));
            begin(call.as_mut());
            let reading = || counters(&client).reads > before;
            assert!(eventually(SETTLE, reading));
            drop(call);
        }
        let got = block_on(probe.source(Number { value: 1 << 20 })).unwrap().into_inner().data;
        assert_eq!(PAYLOADS.check(0, 1 << 20, &got), Ok(()));
        drop((got, probe, served, server, client));
        quiescence.end();
    }
}

#[test]
fn a_client_that_goes_away_in_the_middle_of_a_large_answer_costs_the_server_nothing() {
    for &tcp in links() {
        let mut quiescence = Quiescence::begin();
        let server = quiescence.runtime(builder(tcp));
        let served = Served::start(&server);
        for _ in 0..3 {
            let client = quiescence.stopping(builder(tcp));
            let probe = served.client(&client);
            let before = counters(&server).read_bytes_served;
            let value = Number { value: 32 << 20 };
            let mut call = Box::pin(async move { probe.source(value).await });
            begin(call.as_mut());
            assert!(eventually(SETTLE, || is_read_from(&server, before)));
            // All of it at once: its connection ends as it lies.
            drop((call, client));
        }
        // While the server serves: nothing of the calls is left.
        let back = || {
            let usage = usage(&server);
            server.stats().memory.outbound == 0 && usage.mws_bound == 0 && usage.qps == 0
        };
        assert!(eventually(SETTLE, back), "{:?}", server.stats());
        drop((served, server));
        quiescence.end();
    }
}

#[test]
fn a_channel_dropped_in_the_middle_of_a_large_answer_gives_everything_back() {
    for &tcp in links() {
        let mut quiescence = Quiescence::begin();
        let server = quiescence.runtime(builder(tcp));
        let client = quiescence.runtime(builder(tcp));
        let served = Served::start(&server);
        for _ in 0..5 {
            let probe = served.client(&client);
            let before = counters(&client).reads;
            let value = Number { value: 16 << 20 };
            let mut call = Box::pin(async move { probe.source(value).await });
            begin(call.as_mut());
            let reading = || counters(&client).reads > before;
            assert!(eventually(SETTLE, reading));
            drop(call);
        }
        drop((served, server, client));
        quiescence.end();
    }
}

#[test]
fn windows_are_closed_and_bound_anew_for_each_transfer() {
    let mut quiescence = Quiescence::begin();
    let server = quiescence.runtime(Runtime::builder());
    let client = quiescence.runtime(Runtime::builder());
    let served = Served::start(&server);
    let probe = served.client(&client);
    for index in 0..50 {
        block_on(probe.sink(blob(index, 100_000))).unwrap();
    }
    // Each was bound once and invalidated once; at rest none is open.
    let closed = || {
        let counters = counters(&client);
        counters.binds == 50 && counters.invalidations == 50 && usage(&client).mws_bound == 0
    };
    assert!(eventually(SETTLE, closed), "{:?}", client.stats().cores[0]);
    drop((probe, served, server, client));
    quiescence.end();
}

#[test]
fn windows_are_opened_and_closed_by_themselves_where_the_device_needs_it() {
    if Place::here().skips("it asks this of the software device") {
        return;
    }
    for &tcp in links() {
        let mut quiescence = Quiescence::begin();
        let server = quiescence.runtime(builder(tcp).local_ops_alone(true));
        let client = quiescence.runtime(builder(tcp).local_ops_alone(true));
        let served = Served::start(&server);
        let probe = served.client(&client);
        // Small calls are behind large ones and before them; the device refuses a chain that mixes
        // windows with anything, and that would end the connection.
        let mut calls: Vec<_> = (0..96_u64)
            .map(|index| {
                let len = [17, 40_000, 9_000, 300_000][index as usize % 4];
                let mut call = Box::pin(probe.gated(blob(index, len)));
                begin(call.as_mut());
                (index, len, call)
            })
            .collect();
        // Some are dropped with their windows opened, about to be, or not yet.
        calls.retain(|(index, ..)| index % 5 != 3);
        served.gate.open();
        for (index, len, call) in calls {
            let got = block_on(call).unwrap().into_inner();
            assert!(got.data == blob(index, len).data, "tcp {tcp}: call {index}");
        }
        for runtime in [&client, &server] {
            let device = counters(runtime);
            assert!(device.binds >= 30, "tcp {tcp}: {device:?}");
            assert_eq!(usage(runtime).qps, 1, "the connection stayed");
        }
        drop((probe, served, server, client));
        quiescence.end();
    }
}

#[test]
fn connections_whose_core_may_ask_for_little_at_once_take_turns_and_all_get_their_bytes() {
    const CALLERS: u64 = 6;
    for &tcp in links() {
        let mut quiescence = Quiescence::begin();
        // Two READs of the usual length for everybody together.
        let server =
            quiescence.runtime(Runtime::builder().tcp_links(tcp).read_bytes_max(256 << 10));
        let client = quiescence.runtime(Runtime::builder().tcp_links(tcp).read_bytes_max(1));
        let served = Served::start(&server);
        let probes: Vec<_> = (0..CALLERS).map(|_| served.client(&client)).collect();
        let mut calls = Vec::new();
        for (index, probe) in (0..).zip(&probes) {
            for len in [1_000_000, 100_000 + index as usize, 300_000] {
                calls.push(Box::pin(async move {
                    let sent = blob(index, len);
                    let got = probe.echo(sent.clone()).await.unwrap().into_inner();
                    assert!(got == sent, "other bytes came back");
                }));
            }
        }
        // Those that are given up take their places in the line with them.
        let mut given_up: Vec<_> =
            probes.iter().map(|probe| Box::pin(probe.echo(blob(7, 1_000_000)))).collect();
        given_up.iter_mut().for_each(|call| begin(call.as_mut()));
        drop(given_up);
        block_on(together(calls));
        drop((probes, served, server, client));
        quiescence.end();
    }
}
