//! Unary calls from end to end: the macro's stubs, the engine, the software device.

use rpc_core::bytes::Bytes;
use rpc_core::{Channel, Code, Execution, Request, Response, Runtime, Server, Status, block_on};

/// A message with one `bytes` field.
#[derive(Clone, PartialEq, rpc_core::prost::Message)]
#[prost(prost_path = "::rpc_core::prost")]
pub struct Blob {
    /// Anything.
    #[prost(bytes = "bytes", tag = "1")]
    pub data: Bytes,
}

/// Sends back what it gets.
#[rpc_core::service(name = "test.Echo")]
pub trait Echo {
    /// The same bytes.
    async fn echo(&self, request: Request<Blob>) -> Result<Response<Blob>, Status>;
    /// Fails with what it gets as its message.
    async fn fail(&self, request: Request<Blob>) -> Result<Response<Blob>, Status>;
}

struct Echoing;

impl Echo for Echoing {
    async fn echo(&self, request: Request<Blob>) -> Result<Response<Blob>, Status> {
        Ok(Response::new(request.into_inner()))
    }

    async fn fail(&self, request: Request<Blob>) -> Result<Response<Blob>, Status> {
        let text = String::from_utf8_lossy(&request.get_ref().data).into_owned();
        Err(Status::failed_precondition(text))
    }
}

fn runtime() -> Runtime {
    Runtime::builder().rnr_retry(0).build().expect("a runtime of default size")
}

fn bytes(len: usize) -> Bytes {
    (0..len).map(|i| (i * 7 + i / 251) as u8).collect::<Vec<u8>>().into()
}

#[test]
fn in_process_call_of_every_size_comes_back_whole() {
    let runtime = runtime();
    block_on(async {
        let channel = Server::builder()
            .runtime(&runtime)
            .add_service(EchoServer::new(Echoing))
            .in_process()
            .await
            .unwrap();
        let echo = EchoClient::new(channel);
        for len in
            [0, 1, 17, 4000, 8191, 8192, 8193, 9215, 9216, 9217, 16384, 40_000, 1 << 20, 5 << 20]
        {
            let data = bytes(len);
            let got = echo.echo(Blob { data: data.clone() }).await.unwrap().into_inner();
            assert_eq!(got.data, data, "{len} bytes");
        }
    });
}

#[test]
fn a_handlers_status_arrives_with_its_words_and_was_executed() {
    let runtime = runtime();
    block_on(async {
        let bound = Server::builder()
            .runtime(&runtime)
            .add_service(EchoServer::new(Echoing))
            .bind("soft://127.0.0.1:0")
            .await
            .unwrap();
        let address = format!("soft://{}", bound.local_addr());
        let channel = Channel::builder(&address).runtime(&runtime).connect().await.unwrap();
        let failed = EchoClient::new(channel).fail(Blob { data: "no".into() }).await.unwrap_err();
        assert_eq!((failed.code(), failed.message()), (Code::FailedPrecondition, "no"));
        assert_eq!(failed.execution(), Execution::Executed);
        drop(bound);
    });
}
