use std::collections::HashSet;
use std::sync::Arc;

use rpc_core::bytes::Bytes;
use rpc_core::prost::Message;
use rpc_core::{Request, Response, Runtime, Status};

use crate::limits::{
    BATCH_BYTES_MAX, BATCH_KEYS_MAX, KEY_BYTES_MAX, PAGE_BYTES_MAX, PAGE_KEYS_DEFAULT,
    PAGE_KEYS_MAX, READS_BYTES_MAX, READS_WAITING_MAX, VALUE_BYTES_MAX, WAITING_BYTES_MAX,
    WRITES_WAITING_MAX,
};
use crate::proto::error_detail::Reason;
use crate::proto::{
    BatchGetRequest, BatchGetResponse, BatchPutRequest, BatchPutResponse, DeleteRequest,
    DeleteResponse, DiskFailed, ErrorDetail, GetRequest, GetResponse, Kv, ListEntry, ListRequest,
    ListResponse, PutRequest, PutResponse, QueueFull, ReadQueueFull, StatsRequest, StatsResponse,
    StoreFull, ValueDamaged, VersionMismatch,
};
use crate::store::{Change, Range, Refused, Store, Versioned, Write};
use crate::text::abridged;
use crate::{stats, token};

/// The service over a store, with the runtime whose work `Stats` tells of.
pub struct Service {
    store: Arc<Store>,
    runtime: Runtime,
}

impl Service {
    /// Serves a store.
    pub fn new(store: Arc<Store>, runtime: Runtime) -> Self {
        Self { store, runtime }
    }
}

impl Kv for Service {
    async fn get(&self, request: Request<GetRequest>) -> Result<Response<GetResponse>, Status> {
        let GetRequest { key } = request.into_inner();
        check_key(&key)?;
        let found = self.store.get(key).await.map_err(refusal)?;
        Ok(Response::new(get_response(found)))
    }

    async fn put(&self, request: Request<PutRequest>) -> Result<Response<PutResponse>, Status> {
        let PutRequest { key, value, expected_version: expected } = request.into_inner();
        check(&key, &value)?;
        let write = Write { key, expected, change: Change::Put(value) };
        let written = self.store.write(vec![write]).await.map_err(refusal)?;
        let replaced = written.existed > 0;
        Ok(Response::new(PutResponse { replaced, version: written.version }))
    }

    async fn delete(
        &self,
        request: Request<DeleteRequest>,
    ) -> Result<Response<DeleteResponse>, Status> {
        let DeleteRequest { key, expected_version: expected } = request.into_inner();
        check_key(&key)?;
        let write = Write { key, expected, change: Change::Delete };
        let written = self.store.write(vec![write]).await.map_err(refusal)?;
        Ok(Response::new(DeleteResponse { existed: written.existed > 0 }))
    }

    async fn batch_get(
        &self,
        request: Request<BatchGetRequest>,
    ) -> Result<Response<BatchGetResponse>, Status> {
        let keys = request.into_inner().keys;
        check_count(keys.len())?;
        keys.iter().try_for_each(|key| check_key(key))?;
        let found = self.store.get_many(keys, BATCH_BYTES_MAX).await.map_err(refusal)?;
        let values = found.into_iter().map(get_response).collect();
        Ok(Response::new(BatchGetResponse { values }))
    }

    async fn batch_put(
        &self,
        request: Request<BatchPutRequest>,
    ) -> Result<Response<BatchPutResponse>, Status> {
        let puts = request.into_inner().puts;
        check_batch(&puts)?;
        if puts.is_empty() {
            return Ok(Response::default());
        }
        let write = |put: PutRequest| Write {
            key: put.key,
            expected: put.expected_version,
            change: Change::Put(put.value),
        };
        let writes = puts.into_iter().map(write).collect();
        let written = self.store.write(writes).await.map_err(refusal)?;
        let (replaced, version) = (written.existed, written.version);
        Ok(Response::new(BatchPutResponse { replaced, version }))
    }

    async fn list(&self, request: Request<ListRequest>) -> Result<Response<ListResponse>, Status> {
        let ListRequest { prefix, page_size, page_token } = request.into_inner();
        check_prefix(&prefix)?;
        let after = match &page_token[..] {
            [] => None,
            _ => Some(token::check(&prefix, &page_token).map_err(|wrong| {
                Status::invalid_argument(format!(
                    "the page token is not valid: {wrong}; begin again without one",
                ))
            })?),
        };
        let keys_max = match page_size as usize {
            0 => PAGE_KEYS_DEFAULT,
            asked => asked.min(PAGE_KEYS_MAX),
        };
        let range = Range { prefix: prefix.clone(), after, keys_max, bytes_max: PAGE_BYTES_MAX };
        let page = self.store.list(range).await.map_err(refusal)?;
        let next_page_token = match page.entries.last() {
            Some(last) if page.more => token::make(&prefix, &last.key),
            _ => Bytes::new(),
        };
        let entries = page.entries.into_iter().map(|listed| ListEntry {
            key: listed.key,
            version: listed.version,
            value_bytes: listed.value_len,
        });
        Ok(Response::new(ListResponse { entries: entries.collect(), next_page_token }))
    }

    async fn stats(
        &self,
        _request: Request<StatsRequest>,
    ) -> Result<Response<StatsResponse>, Status> {
        Ok(Response::new(stats::snapshot(&self.runtime, self.store.usage())))
    }
}

fn get_response(found: Option<Versioned>) -> GetResponse {
    found.map_or_else(GetResponse::default, |Versioned { version, value }| GetResponse {
        found: true,
        value,
        version,
    })
}

/// First in every method that takes a key: its length is work and memory before anything is known of it.
fn check_key(key: &[u8]) -> Result<(), Status> {
    if key.len() > KEY_BYTES_MAX {
        return Err(Status::invalid_argument(format!(
            "the key has {} bytes and a key has at most {KEY_BYTES_MAX}; use a shorter one, such as a hash of it",
            key.len(),
        )));
    }
    Ok(())
}

fn check_prefix(prefix: &[u8]) -> Result<(), Status> {
    if prefix.len() > KEY_BYTES_MAX {
        return Err(Status::invalid_argument(format!(
            "the prefix has {} bytes and a key has at most {KEY_BYTES_MAX}; no key begins with it",
            prefix.len(),
        )));
    }
    Ok(())
}

fn check(key: &[u8], value: &[u8]) -> Result<(), Status> {
    check_key(key)?;
    if value.len() > VALUE_BYTES_MAX {
        return Err(Status::invalid_argument(format!(
            "the value has {} bytes and a value has at most {VALUE_BYTES_MAX}; store it in parts under several keys",
            value.len(),
        )));
    }
    Ok(())
}

fn check_count(keys: usize) -> Result<(), Status> {
    if keys > BATCH_KEYS_MAX {
        return Err(Status::invalid_argument(format!(
            "the batch has {keys} keys and a batch has at most {BATCH_KEYS_MAX}; make several batches",
        )));
    }
    Ok(())
}

fn check_batch(puts: &[PutRequest]) -> Result<(), Status> {
    check_count(puts.len())?;
    let mut keys = HashSet::with_capacity(puts.len());
    let mut bytes = 0;
    for (index, put) in puts.iter().enumerate() {
        check(&put.key, &put.value)?;
        bytes += put.key.len() + put.value.len();
        if !keys.insert(&put.key) {
            return Err(Status::invalid_argument(format!(
                "put {index} of the batch (from 0) names a key that an earlier one names; name each once",
            )));
        }
    }
    if bytes > BATCH_BYTES_MAX {
        return Err(Status::invalid_argument(format!(
            "the batch has {bytes} bytes and a batch has at most {BATCH_BYTES_MAX}; make several batches",
        )));
    }
    Ok(())
}

/// A refusal for people, and in its details for programs.
fn refusal(refused: Refused) -> Status {
    let (status, reason) = match refused {
        Refused::Mismatch { index, expected, current } => {
            let now = match current {
                0 => "it has no value now".to_owned(),
                _ => format!("it has version {current} now"),
            };
            let which = if index == 0 { String::new() } else { format!(" of put {index}") };
            let status = Status::aborted(format!(
                "the key{which} was expected to have version {expected} and {now}; read it again and decide anew",
            ));
            let index = index as u32;
            (status, Reason::VersionMismatch(VersionMismatch { index, expected, current }))
        }
        Refused::QueueFull => {
            let (writes_max, bytes_max) = (WRITES_WAITING_MAX as u64, WAITING_BYTES_MAX);
            let status = Status::resource_exhausted(format!(
                "too many writes wait for the server's disk: {writes_max} calls or {bytes_max} bytes; retry when some are done",
            ));
            (status, Reason::QueueFull(QueueFull { writes_max, bytes_max }))
        }
        Refused::ReadsFull => {
            let (reads_max, bytes_max) = (READS_WAITING_MAX as u64, READS_BYTES_MAX);
            let status = Status::resource_exhausted(format!(
                "too many reads wait for the server's disk: {reads_max} calls or {bytes_max} bytes of keys; retry when some are done",
            ));
            (status, Reason::ReadQueueFull(ReadQueueFull { reads_max, bytes_max }))
        }
        Refused::Full { bytes_max } => {
            let status = Status::resource_exhausted(format!(
                "the store is full: it may hold {bytes_max} bytes; delete keys, or start the server with a larger --store",
            ));
            (status, Reason::StoreFull(StoreFull { bytes_max }))
        }
        Refused::DiskFull { bytes } => {
            let status = Status::resource_exhausted(format!(
                "the server's disk is full: the store has {bytes} bytes on it; make room there, or delete keys",
            ));
            (status, Reason::StoreFull(StoreFull { bytes_max: bytes }))
        }
        Refused::Disk(error) => {
            let status = Status::unknown(format!(
                "the server's disk failed: {error}; what is stored shows when the server has been started again",
            ));
            (status, Reason::DiskFailed(DiskFailed { maybe_written: true }))
        }
        Refused::Damaged(what) => {
            let status = Status::data_loss(format!(
                "the server's data file is damaged: {what}; take it from a copy, or store the value under another key",
            ));
            (status, Reason::DiskFailed(DiskFailed { maybe_written: false }))
        }
        Refused::ValueDamaged { index, key } => {
            let key = abridged(&key);
            tracing::error!(
                key,
                "what lies in the data file under a key is not what was written there"
            );
            let status = Status::data_loss(format!(
                "what the server's file has under the key {key} is damaged; store the value again, or delete the key, without expecting a version; kv check finds all such keys",
            ));
            (status, Reason::ValueDamaged(ValueDamaged { index: index as u32 }))
        }
    };
    status.with_details(ErrorDetail { reason: Some(reason) }.encode_to_vec())
}

#[cfg(test)]
mod tests {
    use rpc_core::Code;

    use super::*;

    #[test]
    fn keys_and_values_over_their_bounds_are_refused_in_words() {
        let key = vec![0; KEY_BYTES_MAX + 1];
        assert!(check(&key, b"").unwrap_err().message().contains("8193 bytes"));
        let value = vec![0; VALUE_BYTES_MAX + 1];
        assert!(check(b"", &value).unwrap_err().message().contains("in parts"));
        assert!(check(&key[1..], &value[1..]).is_ok());
    }

    #[test]
    fn batches_over_their_bounds_or_with_a_key_twice_are_refused_in_words() {
        let put = |key: &[u8], len: usize| PutRequest {
            key: Bytes::copy_from_slice(key),
            value: vec![0; len].into(),
            expected_version: None,
        };
        let twice = [put(b"a", 0), put(b"b", 0), put(b"a", 0)];
        assert!(check_batch(&twice).unwrap_err().message().contains("put 2"));
        assert!(check_batch(&twice[..2]).is_ok());
        let long = [put(b"a", BATCH_BYTES_MAX - 1), put(b"b", 0)];
        assert!(check_batch(&long).unwrap_err().message().contains("several"));
        let many: Vec<_> = (0..=BATCH_KEYS_MAX as u32).map(|i| put(&i.to_le_bytes(), 0)).collect();
        assert!(check_batch(&many).unwrap_err().message().contains("1025 keys"));
    }

    #[test]
    fn refusals_fit_into_a_status_and_tell_programs_why() {
        let refused = Refused::Mismatch { index: 1023, expected: u64::MAX, current: u64::MAX - 1 };
        let status = refusal(refused);
        assert!(status.message().len() < 1024, "{}", status.message());
        let detail = ErrorDetail::decode(&status.details()[..]).unwrap();
        let mismatch = VersionMismatch { index: 1023, expected: u64::MAX, current: u64::MAX - 1 };
        assert_eq!(detail.reason, Some(Reason::VersionMismatch(mismatch)));
        let told = |refused: Refused| {
            let status = refusal(refused);
            assert!(status.message().len() < 1024, "{}", status.message());
            let detail = ErrorDetail::decode(&status.details()[..]).unwrap();
            (status.code(), detail.reason.unwrap())
        };
        let (code, reason) = told(Refused::QueueFull);
        assert!(code == Code::ResourceExhausted && matches!(reason, Reason::QueueFull(_)));
        let (code, reason) = told(Refused::ReadsFull);
        assert!(code == Code::ResourceExhausted && matches!(reason, Reason::ReadQueueFull(_)));
        let full = told(Refused::DiskFull { bytes: 7 });
        assert_eq!(full, (Code::ResourceExhausted, Reason::StoreFull(StoreFull { bytes_max: 7 })));
        let failed = |maybe_written| Reason::DiskFailed(DiskFailed { maybe_written });
        assert_eq!(told(Refused::Disk("why".into())), (Code::Unknown, failed(true)));
        assert_eq!(told(Refused::Damaged("why".into())), (Code::DataLoss, failed(false)));
        let key = Bytes::from(vec![7; KEY_BYTES_MAX]);
        let value = told(Refused::ValueDamaged { index: 3, key });
        assert_eq!(value, (Code::DataLoss, Reason::ValueDamaged(ValueDamaged { index: 3 })));
    }
}
