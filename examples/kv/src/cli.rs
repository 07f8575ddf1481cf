use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

const EXAMPLES: &str = "\
Try it:
  kv demo                                   a server, every file of this folder in and out, a report
  kv serve soft://127.0.0.1:7471            a server; stop it with Ctrl-C
  kv put soft://127.0.0.1:7471 greeting hello
  kv get soft://127.0.0.1:7471 greeting
  kv stats soft://127.0.0.1:7471

Addresses:
  soft://host:port   the software device: any machine, no RDMA hardware needed
  rdma://host:port   RDMA hardware, where this build and both machines have it
  Port 0 lets the system choose one; the server prints the address it has.

Exit codes:
  0  done
  1  failed, no such key, or a byte came back wrong
  2  the command line is not understood
  3  kv demo: all that was stored came back right, but some files could not be read or kept changing";

/// A key-value service over RDMA verbs, or over a software device where there is no RDMA hardware.
///
/// Keys and values are any bytes; a value has 0 bytes to 64 MiB. They are held in memory and are gone
/// when the server ends.
#[derive(Debug, Parser)]
#[command(name = "kv", version, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a server until SIGINT (Ctrl-C) or SIGTERM
    Serve(ServeArgs),
    /// Write the value under a key to standard output
    Get(GetArgs),
    /// Store a value under a key, replacing what was there
    #[command(override_usage = "kv put <ADDR> <KEY> <VALUE|-|--file <F>>")]
    Put(PutArgs),
    /// Remove a key and its value
    Delete(DeleteArgs),
    /// Show what a server's cores, devices and memory have done so far
    Stats(StatsArgs),
    /// Start a server, load a folder into it, read it back and compare every byte
    ///
    /// Every file is stored under its path relative to DIR, byte for byte, so names need not be UTF-8.
    /// A file of more than 64 MiB is stored in parts: its path, a zero byte, `part/` and a number
    /// from 0. No path has a zero byte, so a part's key is never a file's.
    ///
    /// `.git`, folders named `target`, symbolic links and what is no regular file are skipped and
    /// counted. A file that changes meanwhile is loaded a second time, and reported if it still
    /// changes.
    ///
    /// The server is a process of its own, unless one is named. It stops when this one ends, however it
    /// ends.
    Demo(DemoArgs),
    /// Make a folder of files whose sizes are the hard ones, the same for the same seed
    #[command(hide = true)]
    MakeTree(MakeTreeArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Where to listen, such as soft://127.0.0.1:7471; with port 0 the system chooses
    pub(crate) addr: String,
    #[command(flatten)]
    pub(crate) runtime: RuntimeArgs,
    /// Memory for keys and values, such as 2GiB [default: half of this machine's]
    #[arg(long, value_name = "BYTES", value_parser = byte_count)]
    pub(crate) store: Option<u64>,
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
    /// The server's address, such as soft://127.0.0.1:7471
    pub(crate) addr: String,
    /// The key, any bytes
    pub(crate) key: OsString,
    /// Write the value to a file instead
    #[arg(long, value_name = "F")]
    pub(crate) file: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("what").required(true).args(["value", "file"]))]
pub(crate) struct PutArgs {
    /// The server's address, such as soft://127.0.0.1:7471
    pub(crate) addr: String,
    /// The key, any bytes
    pub(crate) key: OsString,
    /// The value, any bytes; `-` reads it from standard input
    pub(crate) value: Option<OsString>,
    /// Read the value from a file
    #[arg(long, value_name = "F")]
    pub(crate) file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct DeleteArgs {
    /// The server's address, such as soft://127.0.0.1:7471
    pub(crate) addr: String,
    /// The key, any bytes
    pub(crate) key: OsString,
}

#[derive(Debug, Args)]
pub(crate) struct StatsArgs {
    /// The server's address, such as soft://127.0.0.1:7471
    pub(crate) addr: String,
    /// Print JSON, with the names of kv.proto
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// The folder to load [default: the files that git tracks in this one]
    pub(crate) dir: Option<PathBuf>,
    /// Where its server listens, such as rdma://10.0.0.1:0
    #[arg(long, value_name = "ADDR", default_value = "soft://127.0.0.1:0")]
    pub(crate) listen: String,
    /// Use a server that runs already, here or on another host, instead of one of its own
    #[arg(long, value_name = "ADDR", conflicts_with = "listen")]
    pub(crate) server: Option<String>,
    #[command(flatten)]
    pub(crate) runtime: RuntimeArgs,
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

/// A number of bytes: digits, and a unit of 1,000 (kB, MB, GB) or 1,024 (KiB, MiB, GiB) if wanted.
fn byte_count(text: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit: u64 = match unit.trim_start().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "kib" | "k" => 1 << 10,
        "mib" | "m" => 1 << 20,
        "gib" | "g" => 1 << 30,
        _ => return Err("a number of bytes is digits and B, kB, MB, GB, KiB, MiB or GiB".into()),
    };
    let number: u64 = number.parse().map_err(|_| "a number of bytes starts with digits")?;
    number.checked_mul(unit).ok_or_else(|| "that is more bytes than 64 bits count".into())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn byte_counts_have_units() {
        assert_eq!(byte_count("0"), Ok(0));
        assert_eq!(byte_count("64MiB"), Ok(64 << 20));
        assert_eq!(byte_count("200 MB"), Ok(200_000_000));
        assert_eq!(byte_count("1g"), Ok(1 << 30));
        assert!(byte_count("MiB").unwrap_err().contains("digits"));
        assert!(byte_count("1TiB").unwrap_err().contains("GiB"));
        assert!(byte_count("99999999999GiB").unwrap_err().contains("64 bits"));
    }

    #[test]
    fn a_put_takes_a_value_or_a_file_and_not_both() {
        let parse = |args: &[&str]| Cli::try_parse_from([&["kv", "put", "a", "k"], args].concat());
        assert!(parse(&["value"]).is_ok());
        assert!(parse(&["-"]).is_ok());
        assert!(parse(&["--file", "f"]).is_ok());
        assert!(parse(&[]).is_err());
        assert!(parse(&["value", "--file", "f"]).is_err());
    }
}
