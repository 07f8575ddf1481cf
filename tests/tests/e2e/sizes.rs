//! Messages of every size, both ways, over both kinds of link.

use rpc_core::{Runtime, block_on};
use rpc_tests::{Payloads, Quiescence, credits_are_backed, eventually};

use crate::fixture::{Event, Number, PAYLOADS, SETTLE, Served, blob, links, together};

/// More than fit one READ, and not a multiple of anything.
const MORE_SIZES: [usize; 3] = [(1 << 20) - 1, 3_000_001, 5 << 20];

fn sizes() -> impl Iterator<Item = usize> {
    Payloads::SIZES.into_iter().chain(MORE_SIZES)
}

#[test]
fn messages_of_every_size_come_back_whole_over_both_kinds_of_link() {
    for &tcp in links() {
        let mut quiescence = Quiescence::begin();
        let server = quiescence.runtime(Runtime::builder().tcp_links(tcp));
        let client = quiescence.runtime(Runtime::builder().tcp_links(tcp));
        let served = Served::start(&server);
        let probe = served.client(&client);
        for (index, len) in sizes().enumerate() {
            let sent = blob(index as u64, len);
            let got = block_on(probe.echo(sent)).unwrap().into_inner().data;
            assert_eq!(PAYLOADS.check(index as u64, len, &got), Ok(()), "tcp {tcp}, {len} bytes");
        }
        drop((probe, served, server, client));
        quiescence.end();
    }
}

#[test]
fn large_requests_and_large_answers_pass_alone_too() {
    for &tcp in links() {
        let mut quiescence = Quiescence::begin();
        let server = quiescence.runtime(Runtime::builder().tcp_links(tcp));
        let client = quiescence.runtime(Runtime::builder().tcp_links(tcp));
        let served = Served::start(&server);
        let probe = served.client(&client);
        for len in sizes() {
            let taken = block_on(probe.sink(blob(0, len))).unwrap().into_inner().value;
            assert_eq!(taken, len as u64, "tcp {tcp}");
            let got = block_on(probe.source(Number { value: len as u64 })).unwrap().into_inner();
            assert_eq!(PAYLOADS.check(0, len, &got.data), Ok(()), "tcp {tcp}, {len} bytes");
        }
        drop((probe, served, server, client));
        quiescence.end();
    }
}

#[test]
fn sixty_four_calls_are_in_flight_at_once_and_each_gets_its_own_answer() {
    for &tcp in links() {
        let mut quiescence = Quiescence::begin();
        let server = quiescence.runtime(Runtime::builder().tcp_links(tcp));
        let client = quiescence.runtime(Runtime::builder().tcp_links(tcp));
        let served = Served::start(&server);
        let probe = served.client(&client);
        let len = |index: u64| Payloads::SIZES[index as usize % Payloads::SIZES.len()];
        let answers = std::thread::scope(|scope| {
            let calls = scope.spawn(|| {
                block_on(together((0..64).map(|index| probe.gated(blob(index, len(index))))))
            });
            // All of them wait in their handlers before any is answered.
            served.expect(Event::Started, 64);
            served.gate.open();
            calls.join().unwrap()
        });
        for (index, answer) in (0..).zip(answers) {
            let got = answer.unwrap().into_inner().data;
            assert_eq!(PAYLOADS.check(index, len(index), &got), Ok(()), "tcp {tcp}, call {index}");
        }
        drop((probe, served, server, client));
        quiescence.end();
    }
}

#[test]
fn connections_spread_evenly_over_the_servers_cores() {
    let mut quiescence = Quiescence::begin();
    let server = quiescence.runtime(Runtime::builder().cores(2));
    let client = quiescence.runtime(Runtime::builder().cores(2));
    let served = Served::start(&server);
    let mut probes = Vec::new();
    for channels in 1..=5_u32 {
        probes.push(served.client(&client)); // one connection for each of the client's cores
        let counts: Vec<u32> = server.stats().cores.iter().map(|core| core.connections).collect();
        assert_eq!(counts.iter().sum::<u32>(), 2 * channels, "{counts:?}");
        assert!(counts[0].abs_diff(counts[1]) <= 1, "{counts:?}");
    }
    std::thread::scope(|scope| {
        for probe in &probes {
            scope.spawn(move || {
                for index in 0..50 {
                    let got = block_on(probe.echo(blob(index, 300))).unwrap().into_inner().data;
                    assert_eq!(PAYLOADS.check(index, 300, &got), Ok(()));
                }
            });
        }
    });
    let all_serve = || server.stats().cores.iter().all(|core| core.calls_served > 0);
    assert!(eventually(SETTLE, all_serve), "each core serves: {:?}", server.stats());
    drop((probes, served, server, client));
    quiescence.end();
}

#[test]
fn an_idle_connection_has_credits_and_each_is_backed_by_a_posted_receive() {
    let mut quiescence = Quiescence::begin();
    let server = quiescence.runtime(Runtime::builder());
    let client = quiescence.runtime(Runtime::builder());
    let served = Served::start(&server);
    let probe = served.client(&client);
    for index in 0..100 {
        block_on(probe.echo(blob(index, 17))).unwrap();
    }
    // At rest once the last credits and acknowledgements have passed. A core's counters and its
    // device's table are read one after the other, so only what lasts counts.
    let backed = || [&server, &client].iter().all(|runtime| credits_are_backed(&runtime.stats()));
    assert!(eventually(SETTLE, backed), "{:?} {:?}", server.stats(), client.stats());
    drop((probe, served, server, client));
    quiescence.end();
}
