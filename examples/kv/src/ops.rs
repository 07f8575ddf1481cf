use std::fs::File;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::time::Duration;

use rpc_core::Channel;
use rpc_core::bytes::Bytes;

use crate::cli::{DeleteArgs, GetArgs, PutArgs};
use crate::failure::{Exit, Failure, out};
use crate::files::{self, ReadError};
use crate::kv::{DeleteRequest, GetRequest, KvClient, PutRequest};
use crate::limits::{CALL_SECONDS, CONNECT_SECONDS, VALUE_BYTES_MAX};

/// Connects to a server, over the process's default runtime.
pub(crate) async fn connect(addr: &str) -> Result<Channel, Failure> {
    let channel = Channel::builder(addr)
        .connect_timeout(Duration::from_secs(CONNECT_SECONDS))
        .timeout(Duration::from_secs(CALL_SECONDS))
        .connect()
        .await?;
    Ok(channel)
}

/// `kv get`
pub(crate) fn get(args: &GetArgs) -> Result<Exit, Failure> {
    let key = Bytes::copy_from_slice(args.key.as_bytes());
    let found = rpc_core::block_on(async {
        let client = KvClient::new(connect(&args.addr).await?);
        Ok::<_, Failure>(client.get(GetRequest { key }).await?.into_inner())
    })?;
    if !found.found {
        eprintln!("error: there is no value under the key {}", args.key.display());
        return Ok(Exit::Failed);
    }
    match &args.file {
        None => out(&found.value)?,
        Some(path) => std::fs::write(path, &found.value).map_err(|error| {
            Failure::because(format!("writing the value to {} failed", path.display()), error)
        })?,
    }
    Ok(Exit::Done)
}

/// `kv put`
pub(crate) fn put(args: &PutArgs) -> Result<Exit, Failure> {
    let key = Bytes::copy_from_slice(args.key.as_bytes());
    rpc_core::block_on(async {
        let channel = connect(&args.addr).await?;
        let value = value(args, &channel)?;
        KvClient::new(channel).put(PutRequest { key, value }).await?;
        Ok(Exit::Done)
    })
}

/// `kv delete`
pub(crate) fn delete(args: &DeleteArgs) -> Result<Exit, Failure> {
    let key = Bytes::copy_from_slice(args.key.as_bytes());
    let deleted = rpc_core::block_on(async {
        let client = KvClient::new(connect(&args.addr).await?);
        Ok::<_, Failure>(client.delete(DeleteRequest { key }).await?.into_inner())
    })?;
    if !deleted.existed {
        eprintln!("error: there is no value under the key {}", args.key.display());
        return Ok(Exit::Failed);
    }
    Ok(Exit::Done)
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
    if len > VALUE_BYTES_MAX {
        return Err(too_long(&name, &meta.len().to_string()));
    }
    files::read_value(channel, &file, 0, len).map_err(|error| match error {
        ReadError::Io(error) => unreadable(error),
        ReadError::Short => Failure::new(format!("{name} became shorter meanwhile; try again")),
        ReadError::Memory(status) => status.into(),
    })
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
