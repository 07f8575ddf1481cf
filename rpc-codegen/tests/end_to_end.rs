//! The committed output of `kv.proto`, with nothing said to the builder, on the real runtime.

#![deny(warnings, missing_docs)]

use std::sync::Mutex;

use kv::{
    BatchGetRequest, BatchGetResponse, BatchPutRequest, BatchPutResponse, DeleteRequest,
    DeleteResponse, GetRequest, GetResponse, Kv, KvClient, KvServer, ListRequest, ListResponse,
    PutRequest, PutResponse, StatsRequest, StatsResponse,
};
use rpc_core::bytes::Bytes;
use rpc_core::{Code, Request, Response, Server, Status, block_on};

/// The key-value service.
pub mod kv {
    include!("snapshots/kv/kv.v1.rs");
}

/// Holds one value, whatever its key.
#[derive(Default)]
struct One {
    value: Mutex<Option<Bytes>>,
}

impl Kv for One {
    async fn get(&self, _: Request<GetRequest>) -> Result<Response<GetResponse>, Status> {
        let value = self.value.lock().expect("no holder panics").clone();
        let (found, value) = (value.is_some(), value.unwrap_or_default());
        Ok(Response::new(GetResponse { found, value, version: 1 }))
    }

    async fn put(&self, request: Request<PutRequest>) -> Result<Response<PutResponse>, Status> {
        let value = Bytes::copy_from_slice(&request.into_inner().value);
        let before = self.value.lock().expect("no holder panics").replace(value);
        Ok(Response::new(PutResponse { replaced: before.is_some(), version: 1 }))
    }

    async fn delete(&self, _: Request<DeleteRequest>) -> Result<Response<DeleteResponse>, Status> {
        Err(Status::permission_denied("it stays"))
    }

    async fn batch_get(
        &self,
        _: Request<BatchGetRequest>,
    ) -> Result<Response<BatchGetResponse>, Status> {
        Ok(Response::default())
    }

    async fn batch_put(
        &self,
        _: Request<BatchPutRequest>,
    ) -> Result<Response<BatchPutResponse>, Status> {
        Ok(Response::default())
    }

    async fn list(&self, _: Request<ListRequest>) -> Result<Response<ListResponse>, Status> {
        Ok(Response::default())
    }

    async fn stats(&self, _: Request<StatsRequest>) -> Result<Response<StatsResponse>, Status> {
        Ok(Response::new(StatsResponse { keys: 1, ..Default::default() }))
    }
}

#[test]
fn stubs_call_each_other_through_every_layer() {
    block_on(async {
        let server = Server::builder().add_service(KvServer::new(One::default()));
        let kv = KvClient::new(server.in_process().await.unwrap());

        let (key, value) = (Bytes::from_static(b"k"), Bytes::from_static(b"v"));
        let put = PutRequest { key, value, expected_version: None };
        assert!(!kv.put(put.clone()).await.unwrap().into_inner().replaced);
        assert!(kv.put(Request::new(put)).await.unwrap().into_inner().replaced);
        let got = kv.get(GetRequest::default()).await.unwrap().into_inner();
        assert_eq!((got.found, got.value.as_ref()), (true, b"v".as_slice()));
        let status = kv.delete(DeleteRequest::default()).await.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::PermissionDenied, "it stays"));
        let stats = kv.clone().stats(StatsRequest {}).await.unwrap().into_inner();
        assert_eq!(stats.keys, 1);
    });
}
