//! A service that is written by hand, served and called.

use rpc_core::{Request, Response, Server, Status, block_on};

/// Answers with what it was asked.
#[rpc_core::service(name = "echo.v1.Echo")]
pub trait Echo {
    /// The same text.
    #[method(idempotency = NoSideEffects)]
    async fn echo(&self, request: Request<String>) -> Result<Response<String>, Status>;

    /// Implementations may leave it out.
    async fn length(&self, request: Request<String>) -> Result<Response<u64>, Status> {
        Ok(Response::new(request.get_ref().len() as u64))
    }
}

struct Here;

impl Echo for Here {
    async fn echo(&self, request: Request<String>) -> Result<Response<String>, Status> {
        Ok(Response::new(request.into_inner()))
    }
}

fn main() {
    block_on(async {
        let server = Server::builder().add_service(EchoServer::new(Here));
        let echo = EchoClient::new(server.in_process().await.unwrap());
        assert_eq!(echo.echo("a".to_owned()).await.unwrap().into_inner(), "a");
        assert_eq!(echo.length("four".to_owned()).await.unwrap().into_inner(), 4);
    });
}
