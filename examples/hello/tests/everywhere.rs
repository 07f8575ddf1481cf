//! One service, called from tokio, from a plain thread and from a task on a core.

use rpc_core::{Channel, Request, Response, Runtime, Server, Status};

/// What `build.rs` made.
pub mod greet {
    rpc_core::include_proto!("greet.v1");
}
use greet::{GreetRequest, GreetResponse, Greeter, GreeterClient, GreeterServer};

/// Handlers run on cores, where tokio's timers, files and sockets do not work. What needs them is
/// spawned on tokio, and awaited here.
struct OnTokio(tokio::runtime::Handle);

impl Greeter for OnTokio {
    async fn greet(&self, call: Request<GreetRequest>) -> Result<Response<GreetResponse>, Status> {
        let name = call.into_inner().name;
        let text = self.0.spawn(async move { format!("Hello, {name}!") }).await;
        let text = text.map_err(|error| Status::internal(error.to_string()))?;
        Ok(Response::new(GreetResponse { text }))
    }
}

/// The same from everywhere: a client's future runs on any executor.
async fn ask(channel: Channel, name: &str) -> Result<String, Status> {
    let request = GreetRequest { name: name.to_owned() };
    Ok(GreeterClient::new(channel).greet(request).await?.into_inner().text)
}

#[test]
fn it_is_called_from_everywhere() -> Result<(), Status> {
    let tokio = tokio::runtime::Runtime::new().expect("tokio starts");
    let runtime = Runtime::builder().cores(2).build()?;

    // A server that ends in order when it is told to, served by a task on core 0.
    let server = Server::builder()
        .runtime(&runtime)
        .add_service(GreeterServer::new(OnTokio(tokio.handle().clone())));
    let server = rpc_core::block_on(server.bind("auto://127.0.0.1:0"))?;
    let address = format!("auto://{}", server.local_addr());
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serving = runtime.spawn_on(0, || {
        server.serve_with_shutdown(async {
            let _ = stopped.await;
        })
    });

    // From a plain thread.
    let channel = rpc_core::block_on(Channel::builder(&address).runtime(&runtime).connect())?;
    assert_eq!(rpc_core::block_on(ask(channel.clone(), "thread"))?, "Hello, thread!");

    // From tokio.
    assert_eq!(tokio.block_on(ask(channel.clone(), "tokio"))?, "Hello, tokio!");

    // From a task on a core, which takes no hop to another thread.
    let asked = runtime.spawn_on(1, move || async move { ask(channel, "core").await });
    assert_eq!(rpc_core::block_on(asked).expect("the task ran")?, "Hello, core!");

    let _ = stop.send(());
    rpc_core::block_on(serving).expect("the task ran")
}

/// A service needs no port in its tests.
#[test]
fn it_is_called_inside_one_process() -> Result<(), Status> {
    let tokio = tokio::runtime::Runtime::new().expect("tokio starts");
    let service = GreeterServer::new(OnTokio(tokio.handle().clone()));
    let answer = rpc_core::block_on(async {
        ask(Server::builder().add_service(service).in_process().await?, "test").await
    });
    assert_eq!(answer?, "Hello, test!");
    Ok(())
}
