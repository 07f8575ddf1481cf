//! `hello serve auto://0.0.0.0:7471`, and elsewhere `hello greet auto://HOST:7471 Ada`.

use std::process::ExitCode;

use rpc_core::{Channel, Request, Response, Server, Status};

/// What `build.rs` made.
pub mod greet {
    rpc_core::include_proto!("greet.v1");
}
use greet::{GreetRequest, GreetResponse, Greeter, GreeterClient, GreeterServer};

struct English;

impl Greeter for English {
    async fn greet(&self, call: Request<GreetRequest>) -> Result<Response<GreetResponse>, Status> {
        let name = call.into_inner().name;
        if name.is_empty() {
            return Err(Status::invalid_argument("the name is empty; say who is to be greeted"));
        }
        Ok(Response::new(GreetResponse { text: format!("Hello, {name}!") }))
    }
}

async fn serve(address: &str) -> Result<(), Status> {
    let server = Server::builder().add_service(GreeterServer::new(English)).bind(address).await?;
    println!("listening on auto://{}", server.local_addr());
    server.serve().await
}

async fn greet(address: &str, name: &str) -> Result<(), Status> {
    let greeter = GreeterClient::new(Channel::connect(address).await?);
    let answer = greeter.greet(GreetRequest { name: name.to_owned() }).await?;
    println!("{}", answer.get_ref().text);
    Ok(())
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match args[..] {
        ["serve", address] => rpc_core::block_on(serve(address)),
        ["greet", address, name] => rpc_core::block_on(greet(address, name)),
        _ => Err(Status::invalid_argument("use: hello serve ADDRESS, or hello greet ADDRESS NAME")),
    };
    if let Err(status) = &done {
        eprintln!("{status}");
    }
    ExitCode::from(u8::from(done.is_err()))
}
