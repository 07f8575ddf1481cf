//! What the service answers to programs: codes, and details that they can read.

// Helpers of tests are outside `#[test]` functions, where clippy does not know them for tests.
#![allow(clippy::unwrap_used)]

mod common;

/// The messages and stubs that the build makes from the `.proto`.
#[allow(missing_docs)]
pub mod kv {
    rpc_core::include_proto!("kv.v1");
}

use common::Server;
use kv::error_detail::Reason;
use kv::{
    BatchGetRequest, BatchPutRequest, DeleteRequest, ErrorDetail, GetRequest, KvClient,
    ListRequest, PutRequest, StoreFull, VersionMismatch,
};
use rpc_core::bytes::Bytes;
use rpc_core::prost::Message;
use rpc_core::{Channel, Code, Execution, Status};

/// A server in memory and one on a disk, with little room.
fn on_each(test: impl AsyncFn(&KvClient)) {
    let folder = tempfile::tempdir().unwrap();
    let data = ["--data", folder.path().to_str().unwrap()];
    for args in [&[][..], &data] {
        let server = Server::start(&[&["--store", "100kB"], args].concat());
        rpc_core::block_on(async {
            let client = KvClient::new(Channel::connect(&server.addr).await.unwrap());
            test(&client).await;
        });
        assert!(server.stop().success());
    }
}

fn put(key: &[u8], value: Vec<u8>, expected_version: Option<u64>) -> PutRequest {
    PutRequest { key: Bytes::copy_from_slice(key), value: value.into(), expected_version }
}

fn reason(status: &Status) -> Option<Reason> {
    assert_eq!(status.execution(), Execution::Executed, "{status}");
    ErrorDetail::decode(&status.details()[..]).unwrap().reason
}

#[test]
fn another_version_is_aborted_with_the_present_one_in_its_details() {
    on_each(async |client| {
        let first = client.put(put(b"k", vec![1], Some(0))).await.unwrap().into_inner();
        assert!(!first.replaced && first.version > 0);
        let puts = vec![put(b"a", vec![], None), put(b"k", vec![], Some(first.version + 7))];
        let status = client.batch_put(BatchPutRequest { puts }).await.unwrap_err();
        assert_eq!(status.code(), Code::Aborted);
        let (expected, current) = (first.version + 7, first.version);
        let mismatch = VersionMismatch { index: 1, expected, current };
        assert_eq!(reason(&status), Some(Reason::VersionMismatch(mismatch)));
        let keys = vec![Bytes::from_static(b"a"), Bytes::from_static(b"k")];
        let values = client.batch_get(BatchGetRequest { keys }).await.unwrap().into_inner().values;
        assert_eq!((values[0].found, values[1].version), (false, first.version));
    });
}

#[test]
fn a_full_store_is_resource_exhausted_and_says_how_much_it_may_hold() {
    on_each(async |client| {
        let status = client.put(put(b"k", vec![0; 100_000], None)).await.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted);
        let full = StoreFull { bytes_max: 100_000 };
        assert_eq!(reason(&status), Some(Reason::StoreFull(full)));
    });
}

#[test]
fn keys_and_prefixes_over_their_bound_are_invalid_arguments_of_every_method() {
    on_each(async |client| {
        let key = Bytes::from(vec![b'k'; 8_193]);
        let (short, short_ok) = (Bytes::from_static(b"s"), key.slice(1..));
        let refused = |what: &str, status: Option<Status>| {
            let status = status.unwrap_or_else(|| panic!("{what} was answered"));
            assert_eq!(status.code(), Code::InvalidArgument, "{what}: {status}");
            assert!(status.message().contains("8193 bytes"), "{what}: {status}");
        };
        let get = |key: &Bytes| client.get(GetRequest { key: key.clone() });
        refused("get", get(&key).await.err());
        let delete = DeleteRequest { key: key.clone(), expected_version: None };
        refused("delete", client.delete(delete).await.err());
        refused("put", client.put(put(&key, vec![], None)).await.err());
        let keys = vec![short, key.clone()];
        refused("batch_get", client.batch_get(BatchGetRequest { keys }).await.err());
        let puts = vec![put(b"s", vec![], None), put(&key, vec![], None)];
        refused("batch_put", client.batch_put(BatchPutRequest { puts }).await.err());
        let list = |prefix: &Bytes| {
            let prefix = prefix.clone();
            client.list(ListRequest { prefix, page_size: 1, page_token: Bytes::new() })
        };
        refused("list", list(&key).await.err());
        assert!(!get(&short_ok).await.unwrap().get_ref().found);
        assert!(list(&short_ok).await.unwrap().get_ref().entries.is_empty());
    });
}

#[test]
fn hostile_tokens_and_batches_without_bounds_are_invalid_arguments() {
    on_each(async |client| {
        let puts: Vec<_> = (0..10_u8).map(|i| put(&[b'k', i], vec![], None)).collect();
        client.batch_put(BatchPutRequest { puts: puts.clone() }).await.unwrap();
        let list = |prefix: &'static [u8], page_token: Bytes| {
            let prefix = Bytes::from_static(prefix);
            client.list(ListRequest { prefix, page_size: 3, page_token })
        };
        let first = list(b"k", Bytes::new()).await.unwrap().into_inner();
        assert_eq!(first.entries.len(), 3);
        let token = first.next_page_token;
        assert_eq!(
            list(b"k", token.clone()).await.unwrap().get_ref().entries[0].key,
            &b"k\x03"[..]
        );
        let mut changed = token.to_vec();
        *changed.last_mut().unwrap() ^= 1;
        for hostile in [changed, vec![0xff; 9_000], vec![1], token[..5].to_vec()] {
            let status = list(b"k", hostile.into()).await.unwrap_err();
            assert_eq!(status.code(), Code::InvalidArgument, "{status}");
        }
        let elsewhere = list(b"", token).await.unwrap_err();
        assert_eq!(elsewhere.code(), Code::InvalidArgument);
        let all = ListRequest { page_size: u32::MAX, ..ListRequest::default() };
        assert_eq!(client.list(all).await.unwrap().get_ref().entries.len(), 10);

        let keys = (0..1_025_u32).map(|i| Bytes::copy_from_slice(&i.to_le_bytes())).collect();
        let status = client.batch_get(BatchGetRequest { keys }).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        let twice = vec![puts[0].clone(), puts[0].clone()];
        let status = client.batch_put(BatchPutRequest { puts: twice }).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        let none = client.batch_put(BatchPutRequest { puts: vec![] }).await.unwrap();
        assert_eq!(none.get_ref().version, 0);
    });
}
