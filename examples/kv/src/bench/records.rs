use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use rpc_core::bytes::Bytes;
use rpc_core::{Response, Status};

use crate::bench::drive::Outcome;
use crate::bench::mix::Op;
use crate::failure::Failure;
use crate::patience::repeated;
use crate::proto::{GetRequest, KvClient, ListRequest, PutRequest};

/// What all records' keys begin with.
const PREFIX: &str = "bench/";

/// Digits of a record's number in its key.
const DIGITS: usize = 12;

/// Keys of a scan.
const SCAN_KEYS: u32 = 100;

/// The key of a record.
pub(crate) fn key(record: u64) -> Bytes {
    format!("{PREFIX}{record:0DIGITS$}").into()
}

/// Stores the first `records`, so many calls at a time.
pub(crate) async fn fill(
    client: &KvClient,
    records: u64,
    value: &Bytes,
    outstanding: usize,
    patience: Duration,
) -> Result<(), Failure> {
    let puts = (0..records).map(|record| {
        let put = move || {
            let request =
                PutRequest { key: key(record), value: value.clone(), expected_version: None };
            client.put(request)
        };
        repeated(patience, put)
    });
    let mut puts = stream::iter(puts).buffer_unordered(outstanding);
    while let Some(stored) = puts.next().await {
        stored?;
    }
    Ok(())
}

/// The number after that of the last record that is stored, by whomever: what is inserted from there on
/// replaces nothing.
pub(crate) async fn end(client: &KvClient) -> Result<u64, Failure> {
    let mut digits = String::new();
    while digits.len() < DIGITS {
        let mut found = None;
        for digit in ('0'..='9').rev() {
            let prefix = format!("{PREFIX}{digits}{digit}");
            let request =
                ListRequest { prefix: prefix.into(), page_size: 1, ..ListRequest::default() };
            if !client.list(request).await?.into_inner().entries.is_empty() {
                found = Some(digit);
                break;
            }
        }
        match found {
            Some(digit) => digits.push(digit),
            None => return Ok(0),
        }
    }
    digits
        .parse::<u64>()
        .map(|last| last + 1)
        .map_err(|error| Failure::because("a record's number cannot be read", error))
}

/// Does an operation.
pub(crate) async fn perform(client: KvClient, op: Op, value: Bytes) -> Result<Outcome, Status> {
    let done = |_: Response<_>| Outcome::Done;
    match op {
        Op::Read(record) => {
            let found = client.get(GetRequest { key: key(record) }).await?.into_inner().found;
            Ok(if found { Outcome::Done } else { Outcome::NotFound })
        }
        Op::Update(record) => {
            let request = PutRequest { key: key(record), value, expected_version: None };
            client.put(request).await.map(done)
        }
        Op::Insert(record) => {
            // Another bench may have been faster: then it is a conflict, and nothing is replaced.
            let request = PutRequest { key: key(record), value, expected_version: Some(0) };
            client.put(request).await.map(done)
        }
        Op::Scan(record) => {
            // All whose last two digits may be any: the keys around a record.
            let key = key(record);
            let prefix = key.slice(..key.len() - 2);
            let request = ListRequest { prefix, page_size: SCAN_KEYS, ..ListRequest::default() };
            client.list(request).await.map(|_| Outcome::Done)
        }
        Op::ReadModifyWrite(record) => {
            let found = client.get(GetRequest { key: key(record) }).await?.into_inner();
            if !found.found {
                return Ok(Outcome::NotFound);
            }
            let expected_version = Some(found.version);
            let request = PutRequest { key: key(record), value, expected_version };
            client.put(request).await.map(done)
        }
    }
}
