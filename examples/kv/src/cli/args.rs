use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};

pub(crate) use super::values::Pair;
use super::values::{Trimmed, address, byte_count, pair, seconds, value_len};
use crate::bench::mix::{Distribution, Mix};

/// Which server, and how long to wait for it.
#[derive(Clone, Debug, Args)]
pub(crate) struct ServerArgs {
    /// The server's address, such as auto://127.0.0.1:7471
    #[arg(value_parser = address)]
    pub(crate) addr: String,
    #[command(flatten)]
    pub(crate) wait: WaitArgs,
}

/// How long to wait for a server.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct WaitArgs {
    /// Give up connecting, or a call, after so many seconds; at most 10 are spent on connecting
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    pub(crate) timeout: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Where to listen, such as auto://127.0.0.1:7471; with port 0 the system chooses
    #[arg(value_parser = address)]
    pub(crate) addr: String,
    /// Keep keys and values in this folder, which is made if need be: a write is answered once it is on
    /// the disk, and a server that is started again has all of them
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Room for keys and values, such as 2GiB [default: half of this machine's memory; with --data, as
    /// much as the disk has]
    #[arg(long, value_name = "BYTES", value_parser = byte_count)]
    pub(crate) store: Option<u64>,
    #[command(flatten)]
    pub(crate) runtime: RuntimeArgs,
    /// Stop when standard input closes: for a parent process that wants no server left behind
    #[arg(long, hide = true)]
    pub(crate) until_stdin_closes: bool,
}

/// How a server's runtime is set up.
#[derive(Clone, Debug, Args)]
pub(crate) struct RuntimeArgs {
    /// Threads that serve calls
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) cores: u16,
    /// Payload memory for messages on their way, such as 512MiB [default: the runtime's choice]
    #[arg(long, value_name = "BYTES", value_parser = byte_count)]
    pub(crate) memory: Option<u64>,
    /// How many microseconds an idle core spins before it sleeps [default: the runtime's choice]
    #[arg(long, value_name = "US", value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub(crate) spin: Option<u32>,
}

#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    /// The key, any bytes
    pub(crate) key: OsString,
    /// Write the value to a file instead
    #[arg(long, value_name = "F", conflicts_with = "json")]
    pub(crate) file: Option<PathBuf>,
    /// Print a JSON object with key, value and version; what is no text is in hexadecimal digits, under
    /// a name that ends in `_hex`
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("what").required(true).args(["value", "file"]))]
pub(crate) struct PutArgs {
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    /// The key, any bytes
    pub(crate) key: OsString,
    /// The value, any bytes; `-` reads it from standard input
    pub(crate) value: Option<OsString>,
    /// Read the value from a file
    #[arg(long, value_name = "F")]
    pub(crate) file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) write: WriteArgs,
}

/// What writes have in common.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct WriteArgs {
    /// Only if the key has this version now; 0: only if it has no value
    #[arg(long, value_name = "VERSION")]
    pub(crate) expect: Option<u64>,
    /// Print a JSON object that tells what was there before, and the new version if there is one
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DeleteArgs {
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    /// The key, any bytes
    pub(crate) key: OsString,
    #[command(flatten)]
    pub(crate) write: WriteArgs,
}

#[derive(Debug, Args)]
pub(crate) struct MgetArgs {
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    /// The keys, any bytes
    #[arg(required = true, value_name = "KEY")]
    pub(crate) keys: Vec<OsString>,
    /// Print JSON, which it does in any case
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct MputArgs {
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    /// Keys and values, any bytes; the key ends at the first `=`
    #[arg(required = true, value_name = "KEY=VALUE", value_parser = OsStringValueParser::new().try_map(pair))]
    pub(crate) pairs: Vec<Pair>,
    /// Print a JSON object with the new version and how many keys had a value before
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    /// What the keys begin with, any bytes [default: all keys]
    #[arg(default_value = "", hide_default_value = true)]
    pub(crate) prefix: OsString,
    /// How many keys to print at most [default: all]
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<u64>,
    /// How many keys to ask for at a time
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) page: u32,
    /// Print a JSON object a line, with key, version and length of the value
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TransferArgs {
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    /// The folder [default: the files that git tracks in this one]
    pub(crate) dir: Option<PathBuf>,
    /// Keep a journal of the files that are through, and pass over those that it has: after an end of
    /// any kind the same command goes on where it ended. It counts only for the same folder and the
    /// same store, and not for files that have changed since
    #[arg(long, value_name = "F")]
    pub(crate) resume: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) window: WindowArgs,
    /// Print a JSON object instead of a sentence
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// The folder
    pub(crate) dir: PathBuf,
    /// Print a JSON object with the counts and the first 1,000 damaged keys
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    /// Which mixes, such as A,C
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        ignore_case = true,
        value_parser = Trimmed,
        default_value = "A,B,C,D,E,F"
    )]
    pub(crate) mix: Vec<Mix>,
    /// Which records are asked for
    #[arg(long, value_name = "HOW", default_value = "zipfian")]
    pub(crate) distribution: Distribution,
    /// How many records are stored before
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub(crate) records: u64,
    /// How long a value is
    #[arg(long, value_name = "BYTES", default_value = "1000", value_parser = value_len)]
    pub(crate) value: u64,
    /// How many calls are outstanding at full speed, if --bytes allows
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) outstanding: u16,
    /// Bytes of values outstanding at most; one call is always allowed
    #[arg(long, value_name = "BYTES", default_value = "64MiB", value_parser = byte_count)]
    pub(crate) bytes: u64,
    /// How long each mix and each step runs
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    pub(crate) seconds: Duration,
    /// The same seed draws the same records in the same order
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Draw latency against load of the first mix into this file
    #[arg(long, value_name = "F")]
    pub(crate) svg: Option<PathBuf>,
    /// Print JSON; times are in microseconds
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StatsArgs {
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    /// Print JSON, with the names of kv.proto
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// A server to connect to, such as auto://127.0.0.1:7471
    #[arg(value_parser = address)]
    pub(crate) addr: Option<String>,
    #[command(flatten)]
    pub(crate) wait: WaitArgs,
    /// Payload memory that a program will have, such as 512MiB: whether the limits allow it [default: the runtime's
    /// choice]
    #[arg(long, value_name = "BYTES", value_parser = byte_count)]
    pub(crate) memory: Option<u64>,
    /// Print JSON: `facts`, `problems`, `healthy`
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// Which shell
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// The folder to load [default: the files that git tracks in this one]
    pub(crate) dir: Option<PathBuf>,
    /// Where its server listens, such as rdma://10.0.0.1:0
    #[arg(long, value_name = "ADDR", value_parser = address, default_value = "auto://127.0.0.1:0")]
    pub(crate) listen: String,
    /// Use a server that runs already, here or on another host, instead of one of its own
    #[arg(long, value_name = "ADDR", value_parser = address, conflicts_with = "listen")]
    pub(crate) server: Option<String>,
    #[command(flatten)]
    pub(crate) runtime: RuntimeArgs,
    #[command(flatten)]
    pub(crate) wait: WaitArgs,
    #[command(flatten)]
    pub(crate) window: WindowArgs,
}

/// How much is in flight at once.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct WindowArgs {
    /// Calls in flight at most
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub(crate) calls: u16,
    /// Bytes of values in flight at most; one value is always allowed
    #[arg(long, value_name = "BYTES", default_value = "64MiB", value_parser = byte_count)]
    pub(crate) bytes: u64,
}

#[derive(Debug, Args)]
pub(crate) struct MakeTreeArgs {
    /// The folder to make; it must not exist, or be empty
    pub(crate) dir: PathBuf,
    /// The same seed makes the same folder
    #[arg(long)]
    pub(crate) seed: u64,
    /// How many files
    #[arg(long, default_value_t = 5_000)]
    pub(crate) files: u32,
    /// How many bytes in all
    #[arg(long, default_value = "200MB", value_parser = byte_count)]
    pub(crate) bytes: u64,
}
