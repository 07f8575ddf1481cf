use rpc_core::{Request, Response, Status};

#[rpc_core::service]
pub trait Kv {
    async fn get(&self, request: Request<String>) -> Result<Response<String>, Status>;
    #[method(name = "Get")]
    async fn read(&self, request: Request<String>) -> Result<Response<String>, Status>;
}

fn main() {
    // The trait is there all the same, so nothing is said about names that are missing.
    let _ = KvServer::new(());
}
