//! Messages of many pieces, several at once: each piece takes a window and a slot of the send queue.

use rpc_core::bytes::Bytes;
use rpc_core::{Channel, Request, Response, Runtime, Server, Status, block_on};
use rpc_tests::{Place, Quiescence};

use crate::fixture::{PAYLOADS, together};

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
