//! Messages of many pieces, several at once: each piece takes a window and a slot of the send queue.

use std::thread;
use std::time::Duration;

use rpc_core::bytes::Bytes;
use rpc_core::{Channel, LocalRuntime, Request, Response, Runtime, Server, Status, block_on};
use rpc_tests::{Place, Quiescence, eventually, local_ops_stand_alone};

use crate::fixture::{PAYLOADS, begin, let_connections_end, together};

/// A message with as many `bytes` fields as one likes.
#[derive(Clone, PartialEq, rpc_core::prost::Message)]
#[prost(prost_path = "::rpc_core::prost")]
pub(crate) struct Many {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub(crate) parts: Vec<Bytes>,
}

/// Sends back what it gets.
#[rpc_core::service(name = "e2e.Pieces")]
pub(crate) trait Pieces {
    /// The same parts.
    async fn echo(&self, request: Request<Many>) -> Result<Response<Many>, Status>;
}

struct Echoing;

impl Pieces for Echoing {
    async fn echo(&self, request: Request<Many>) -> Result<Response<Many>, Status> {
        Ok(Response::new(request.into_inner()))
    }
}

/// The shortest part that travels by a descriptor of its own.
const PART_BYTES: usize = 16 << 10;

#[test]
fn calls_of_many_pieces_at_once_all_end_whatever_the_send_queue_holds() {
    let mut quiescence = Quiescence::begin();
    let server = quiescence.runtime(Runtime::builder());
    let client = quiescence.runtime(Runtime::builder());
    let builder = Server::builder().runtime(&server).add_service(PiecesServer::new(Echoing));
    let bound = block_on(builder.bind(&Place::here().address(0))).unwrap();
    let address = Place::here().address(bound.local_addr().port());
    let channel = block_on(Channel::builder(&address).runtime(&client).connect()).unwrap();
    let pieces = PiecesClient::new(channel);
    for parts in [7, 8, 11, 16] {
        let message = |index: u64| Many {
            parts: (0..parts).map(|n| PAYLOADS.bytes(index * 16 + n, PART_BYTES).into()).collect(),
        };
        let answers = block_on(together((0..8).map(|index| pieces.echo(message(index)))));
        for (index, answer) in (0..).zip(answers) {
            assert_eq!(answer.unwrap().into_inner(), message(index), "{parts} parts, call {index}");
        }
    }
    drop((pieces, bound, server, client));
    quiescence.end();
}

/// Turns the server for as long as `work` takes.
fn serving<T: Send>(server: &mut LocalRuntime, work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let working = scope.spawn(work);
        while !working.is_finished() {
            let _ = server.turn();
        }
        working.join().unwrap()
    })
}

#[test]
fn messages_that_each_leave_alone_do_not_fill_the_send_queue_before_the_peer_says_anything() {
    /// Places of a send queue that are certainly free.
    const PLACES: u64 = 40;
    if local_ops_stand_alone() {
        println!("skipped messages_that_each_leave_alone: each waits for its binds here");
        return;
    }
    let mut quiescence = Quiescence::begin();
    let mut server = Runtime::builder().rnr_retry(0).on_this_thread().unwrap();
    quiescence.watch(server.runtime());
    let client = quiescence.runtime(Runtime::builder());
    let builder = Server::builder().runtime(server.runtime());
    let builder = builder.add_service(PiecesServer::new(Echoing));
    let bound = server.block_on(builder.bind(&Place::here().address(0))).unwrap();
    let address = Place::here().address(bound.local_addr().port());
    let pieces = serving(&mut server, || {
        let channel = block_on(Channel::builder(&address).runtime(&client).connect()).unwrap();
        PiecesClient::new(channel)
    });
    let many = |parts| Many { parts: vec![vec![7; PART_BYTES].into(); parts] };
    // How far the last signaled request is behind differs from round to round.
    for (parts, small) in
        [1, 2, 3, 4, 5].into_iter().flat_map(|parts| (0..16).map(move |n| (parts, n)))
    {
        let few = serving(&mut server, || {
            // Whoever fills one SEND after the other is lent credits.
            let full = Many { parts: vec![vec![7; 7_000].into()] };
            for _ in 0..4 {
                block_on(together((0..64).map(|_| pieces.echo(full.clone()))));
            }
            for _ in 0..small {
                block_on(pieces.echo(many(0))).unwrap();
            }
            client.stats().cores[0].queues.requests
        });
        let posted = || client.stats().cores[0].queues.requests - few;
        let mut calls: Vec<_> = (0..14).map(|_| Box::pin(pieces.echo(many(parts)))).collect();
        for (index, call) in (1..).zip(&mut calls) {
            begin(call.as_mut());
            // Each leaves alone while there is room: a peer that stands still acknowledges nothing.
            let each = parts as u64 + 1;
            let all = index.min(PLACES / each) * each;
            assert!(eventually(Duration::from_secs(10), || posted() >= all), "{}", posted());
        }
        let answers = serving(&mut server, || block_on(together(calls)));
        for answer in answers {
            assert_eq!(answer.unwrap().into_inner(), many(parts), "{parts} behind {small}");
        }
    }
    drop((pieces, client, bound));
    let_connections_end(&mut server);
    drop(server);
    quiescence.end();
}
