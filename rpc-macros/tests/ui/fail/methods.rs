use rpc_core::{Request, Response, Status};

#[rpc_core::service(nam = "kv.v1.Kv", name = "1")]
pub trait Kv<T> {
    const LIMIT: usize;
    async fn new(&self, request: Request<String>) -> Result<Response<String>, Status>;
    async fn get(request: Request<String>) -> Result<Response<String>, Status>;
    async fn put(&mut self, request: String) -> Response<String>;
    async fn two(&self, a: Request<String>, b: u8) -> Result<Response<String>, String>;
    fn sync(&self, request: Request<String>) -> Result<Response<String>, Status>;
    #[method(idempotency = Sometimes, wire = "Ask")]
    async fn ask(&self, request: Request<String>) -> Result<Response<String>, Status>;
}

fn main() {}
