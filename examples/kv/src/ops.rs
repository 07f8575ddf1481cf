use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::time::Duration;

use rpc_core::bytes::Bytes;
use rpc_core::{Channel, ChannelBuilder};
use serde_json::{Value, json};

use crate::cli::{
    DeleteArgs, GetArgs, ListArgs, MgetArgs, MputArgs, Pair, PutArgs, ServerArgs, WaitArgs,
    WriteArgs,
};
use crate::failure::{Exit, Failure, err, out};
use crate::files::{self, ReadError};
use crate::limits::{BATCH_KEYS_MAX, CONNECT_SECONDS, VALUE_BYTES_MAX};
use crate::patience::{repeated, repeated_read};
use crate::proto::{
    BatchGetRequest, BatchPutRequest, DeleteRequest, GetRequest, GetResponse, KvClient, ListEntry,
    ListRequest, PutRequest,
};
use crate::text;

/// Connects to a server, over the process's default runtime.
pub(crate) async fn connect(server: &ServerArgs) -> Result<Channel, Failure> {
    Ok(settings(&server.addr, server.wait).connect().await?)
}

/// How channels of this program are made.
pub(crate) fn settings(addr: &str, wait: WaitArgs) -> ChannelBuilder {
    let connect = wait.timeout.min(Duration::from_secs(CONNECT_SECONDS));
    Channel::builder(addr).connect_timeout(connect).timeout(wait.timeout)
}

/// `kv get`
pub(crate) fn get(args: &GetArgs) -> Result<Exit, Failure> {
    let key = bytes(&args.key);
    let found = rpc_core::block_on(async {
        let client = KvClient::new(connect(&args.server).await?);
        let get = || client.get(GetRequest { key: key.clone() });
        Ok::<_, Failure>(repeated_read(args.server.wait.timeout, get).await?)
    })?;
    if !found.found {
        if args.json {
            let mut object = json!({ "version": 0 });
            text::set_bytes(&mut object, "key", &key);
            out(line(&object).as_bytes())?;
        }
        return Ok(no_value(&args.key));
    }
    match &args.file {
        None if args.json => out(line(&found_json(&key, &found)).as_bytes())?,
        None => out(&found.value)?,
        Some(path) => files::replace(path, &found.value).map_err(|error| {
            Failure::because(format!("writing the value to {} failed", path.display()), error)
        })?,
    }
    Ok(Exit::Done)
}

/// `kv put`
pub(crate) fn put(args: &PutArgs) -> Result<Exit, Failure> {
    let answer = rpc_core::block_on(async {
        let channel = connect(&args.server).await?;
        let (key, value) = (bytes(&args.key), value(args, &channel)?);
        let request = PutRequest { key, value, expected_version: args.write.expect };
        let client = KvClient::new(channel);
        let put = || client.put(request.clone());
        Ok::<_, Failure>(repeated(args.server.wait.timeout, put).await?)
    });
    let answer = answer.or_else(|failure| conflict(args.write, failure))?;
    if args.write.json {
        let json =
            json!({ "written": true, "replaced": answer.replaced, "version": answer.version });
        out(line(&json).as_bytes())?;
    }
    Ok(Exit::Done)
}

/// `kv delete`
pub(crate) fn delete(args: &DeleteArgs) -> Result<Exit, Failure> {
    let request = DeleteRequest { key: bytes(&args.key), expected_version: args.write.expect };
    let deleted = rpc_core::block_on(async {
        let client = KvClient::new(connect(&args.server).await?);
        let delete = || client.delete(request.clone());
        Ok::<_, Failure>(repeated(args.server.wait.timeout, delete).await?)
    });
    let deleted = deleted.or_else(|failure| conflict(args.write, failure))?;
    if args.write.json {
        out(line(&json!({ "existed": deleted.existed })).as_bytes())?;
    }
    Ok(if deleted.existed { Exit::Done } else { no_value(&args.key) })
}

/// A failed write, told to a script if it is one that expected another version: it can go on from that.
fn conflict<T>(write: WriteArgs, failure: Failure) -> Result<T, Failure> {
    if let Some(version) = failure.current_version().filter(|_| write.json) {
        out(line(&json!({ "written": false, "version": version })).as_bytes())?;
    }
    Err(failure)
}

/// `kv mget`
pub(crate) fn mget(args: &MgetArgs) -> Result<Exit, Failure> {
    let mut keys: &[OsString] = &args.keys;
    let mut exit = Exit::Done;
    rpc_core::block_on(async {
        let client = KvClient::new(connect(&args.server).await?);
        while !keys.is_empty() {
            let asked = &keys[..keys.len().min(BATCH_KEYS_MAX)];
            let request = BatchGetRequest { keys: asked.iter().map(bytes).collect() };
            let batch_get = || client.batch_get(request.clone());
            let values = repeated_read(args.server.wait.timeout, batch_get).await?.values;
            if values.is_empty() || values.len() > asked.len() {
                return Err(Failure::new("the server answered with another number of values"));
            }
            for (key, found) in asked.iter().zip(&values) {
                if found.found {
                    out(line(&found_json(&bytes(key), found)).as_bytes())?;
                } else {
                    exit = no_value(key);
                }
            }
            keys = &keys[values.len()..];
        }
        Ok(exit)
    })
}

/// `kv mput`
pub(crate) fn mput(args: &MputArgs) -> Result<Exit, Failure> {
    let put = |pair: &Pair| {
        let (key, value) = (pair.key.clone().into(), pair.value.clone().into());
        PutRequest { key, value, expected_version: None }
    };
    let request = BatchPutRequest { puts: args.pairs.iter().map(put).collect() };
    let answer = rpc_core::block_on(async {
        let client = KvClient::new(connect(&args.server).await?);
        let batch_put = || client.batch_put(request.clone());
        Ok::<_, Failure>(repeated(args.server.wait.timeout, batch_put).await?)
    })?;
    if args.json {
        let json = json!({ "replaced": answer.replaced, "version": answer.version });
        out(line(&json).as_bytes())?;
    }
    Ok(Exit::Done)
}

/// `kv list`
pub(crate) fn list(args: &ListArgs) -> Result<Exit, Failure> {
    let mut left = args.limit.unwrap_or(u64::MAX);
    let mut page_token = Bytes::new();
    rpc_core::block_on(async {
        let client = KvClient::new(connect(&args.server).await?);
        while left > 0 {
            let page_size = u32::try_from(left).unwrap_or(u32::MAX).min(args.page);
            let request = ListRequest { prefix: bytes(&args.prefix), page_size, page_token };
            let list = || client.list(request.clone());
            let page = repeated_read(args.server.wait.timeout, list).await?;
            left = left.saturating_sub(page.entries.len() as u64);
            out(&listed(&page.entries, args.json))?;
            page_token = page.next_page_token;
            if page_token.is_empty() {
                break;
            }
        }
        Ok(Exit::Done)
    })
}

fn listed(entries: &[ListEntry], json: bool) -> Vec<u8> {
    let mut text = Vec::new();
    for entry in entries {
        if json {
            let mut object = json!({ "version": entry.version, "bytes": entry.value_bytes });
            text::set_bytes(&mut object, "key", &entry.key);
            text.extend_from_slice(line(&object).as_bytes());
        } else {
            text.extend_from_slice(&entry.key);
            text.push(b'\n');
        }
    }
    text
}

fn found_json(key: &[u8], found: &GetResponse) -> Value {
    let mut object = json!({ "version": found.version });
    text::set_bytes(&mut object, "key", key);
    text::set_bytes(&mut object, "value", &found.value);
    object
}

/// One JSON object as one line: no JSON text has a line end in it.
fn line(object: &Value) -> String {
    format!("{object}\n")
}

fn bytes(text: &OsString) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn no_value(key: &OsStr) -> Exit {
    let key = text::shown(key.as_bytes());
    err(format_args!("error: there is no value under the key {key}\n"));
    Exit::NoSuchKey
}

fn value(args: &PutArgs, channel: &Channel) -> Result<Bytes, Failure> {
    match (&args.value, &args.file) {
        (_, Some(path)) => value_of_file(channel, path),
        (Some(value), None) if value == "-" => bounded(io::stdin().lock(), "standard input"),
        (Some(value), None) => Ok(value.clone().into_vec().into()),
        // The parser asks for one of the two.
        (None, None) => Err(Failure::new("no value is given; give one, or --file F")),
    }
}

fn value_of_file(channel: &Channel, path: &Path) -> Result<Bytes, Failure> {
    let name = path.display().to_string();
    let unreadable = |error| Failure::because(format!("{name} cannot be read"), error);
    let file = File::open(path).map_err(unreadable)?;
    let meta = file.metadata().map_err(unreadable)?;
    if !meta.is_file() {
        return bounded(file, &name); // a pipe or a device: no length to go by
    }
    let len = usize::try_from(meta.len()).unwrap_or(usize::MAX);
    if len == 0 {
        return bounded(file, &name); // files of /proc tell no length, and have one
    }
    if len > VALUE_BYTES_MAX {
        return Err(too_long(&name, &meta.len().to_string()));
    }
    match files::read_value(channel, &file, 0, len) {
        Ok(value) => Ok(value),
        // It became shorter, or is one of /sys, which tell a length that they do not have.
        Err(ReadError::Short) => bounded(file, &name),
        Err(ReadError::Io(error)) => Err(unreadable(error)),
        Err(ReadError::Memory(status)) => Err(status.into()),
    }
}

fn bounded(from: impl io::Read, name: &str) -> Result<Bytes, Failure> {
    let value = files::read_bounded(from)
        .map_err(|error| Failure::because(format!("{name} cannot be read"), error))?;
    value.map(Bytes::from).ok_or_else(|| too_long(name, "more"))
}

fn too_long(name: &str, bytes: &str) -> Failure {
    Failure::new(format!(
        "a value has at most {VALUE_BYTES_MAX} bytes and {name} has {bytes}; store it in parts under several keys, as kv demo does",
    ))
}
