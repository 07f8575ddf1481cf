use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::bench::mix::{Distribution, Mix};
use crate::limits::VALUE_BYTES_MAX;

const EXAMPLES: &str = "\
Try it:
  kv demo                                   a server, every file of this folder in and out, a report
  kv serve soft://127.0.0.1:7471            a server in memory; stop it with Ctrl-C
  kv serve soft://127.0.0.1:7471 --data d   a server whose values outlive it, in the folder d
  kv put soft://127.0.0.1:7471 greeting hello
  kv get soft://127.0.0.1:7471 greeting
  kv list soft://127.0.0.1:7471 --json
  kv stats soft://127.0.0.1:7471
  kv get --help                             what a command does, with examples

Addresses:
  soft://host:port   the software device: any machine, no RDMA hardware needed
  rdma://host:port   RDMA hardware, where this build and both machines have it
  Port 0 lets the system choose one; the server prints the address it has.

Exit codes:
  0  done
  1  failed, or a byte came back wrong
  2  the command line is not understood
  3  there is no value under the key
  4  the key has another version than was expected
  5  demo, load, verify: what was done is right, but some files could not be read or kept changing";

/// A key-value service over RDMA verbs, or over a software device where there is no RDMA hardware.
///
/// Keys and values are any bytes; a value has 0 bytes to 64 MiB. They are held in memory and are gone
/// when the server ends, unless it has a folder for them.
#[derive(Debug, Parser)]
#[command(name = "kv", version, after_help = EXAMPLES)]
pub(crate) struct Cli {
    /// Log more to standard error: -v what happens, -vv how, -vvv everything [default: warnings]
    ///
    /// RUST_LOG, if set, says it in more detail, such as `RUST_LOG=rpc_core=debug`.
    #[arg(short, long, global = true, display_order = 1000, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a server until SIGINT (Ctrl-C) or SIGTERM
    ///
    /// It prints `listening on ADDR` once it does. The first signal lets calls that run come to their
    /// end; the second ends the process.
    #[command(after_help = "\
Examples:
  kv serve soft://0.0.0.0:7471 --store 2GiB         in memory, 2 GiB of it at most
  kv serve soft://127.0.0.1:7471 --data /var/lib/kv  in a file; what is acknowledged is on the disk")]
    Serve(ServeArgs),
    /// Write the value under a key to standard output
    #[command(after_help = "\
Examples:
  kv get soft://127.0.0.1:7471 greeting > greeting
  kv get soft://127.0.0.1:7471 photo --file photo.jpg
  kv get soft://127.0.0.1:7471 greeting --json      {\"key\":\"greeting\",\"value\":\"hello\",\"version\":1}

Ends with 3 if there is no value under the key.")]
    Get(GetArgs),
    /// Store a value under a key, replacing what was there
    #[command(
        override_usage = "kv put [OPTIONS] <ADDR> <KEY> <VALUE|-|--file <F>>",
        after_help = "\
Examples:
  kv put soft://127.0.0.1:7471 greeting hello
  kv put soft://127.0.0.1:7471 photo --file photo.jpg
  date | kv put soft://127.0.0.1:7471 now -
  kv put soft://127.0.0.1:7471 greeting bonjour --expect 1   only if its version is still 1
  kv put soft://127.0.0.1:7471 lock me --expect 0            only if it has no value

Ends with 4, and has changed nothing, if the key has another version than expected."
    )]
    Put(PutArgs),
    /// Remove a key and its value
    #[command(after_help = "\
Examples:
  kv delete soft://127.0.0.1:7471 greeting
  kv delete soft://127.0.0.1:7471 greeting --expect 2   only if its version is still 2

Ends with 3 if there was no value, with 4 if the key has another version than expected.")]
    Delete(DeleteArgs),
    /// Print the values under several keys, one JSON object a line; as they were at one moment, up to 1,024 keys and 64 MiB
    #[command(after_help = "\
Example:
  kv mget soft://127.0.0.1:7471 a b c

Ends with 3 if one of the keys has no value; the others are printed.")]
    Mget(MgetArgs),
    /// Store several values: all, or, if one is refused, none
    #[command(after_help = "\
Example:
  kv mput soft://127.0.0.1:7471 a=1 b=2 c=3")]
    Mput(MputArgs),
    /// Print the keys that begin with a prefix, in order
    #[command(after_help = "\
Examples:
  kv list soft://127.0.0.1:7471                 all keys, one a line
  kv list soft://127.0.0.1:7471 user/ --json    with version and length, one JSON object a line
  kv list soft://127.0.0.1:7471 --limit 10      the first ten

Keys are printed as they are. A key that has a line end or is no text can be told apart by --json.")]
    List(ListArgs),
    /// Store every file of a folder under its relative path, many at a time
    ///
    /// Names, what is skipped and how long files are stored is as in `kv demo --help`.
    #[command(after_help = "\
Examples:
  kv load soft://127.0.0.1:7471 ~/photos
  kv load soft://127.0.0.1:7471 ~/photos --resume photos.journal   run it again to go on where it ended

Ends with 5 if some files could not be read or kept changing; the others are stored.")]
    Load(TransferArgs),
    /// Compare every file of a folder, byte for byte, with what a server has under its relative path
    #[command(after_help = "\
Examples:
  kv verify soft://127.0.0.1:7471 ~/photos
  kv verify soft://127.0.0.1:7471 ~/photos --json

Ends with 1 if a byte differs or a file is not stored.")]
    Verify(TransferArgs),
    /// Measure a server with the mixes of YCSB, and end by itself
    ///
    /// It stores --records values under `bench/…`, and leaves them there, with what it inserts. Then each
    /// mix runs at full speed for --seconds: so many calls are outstanding all the time. With --svg the
    /// first mix runs once more at seven steps of offered load, where calls are made when they are due,
    /// whether earlier ones have ended or not, and a latency counts from then.
    ///
    /// A mix or step waits for its calls as long again, or 10 seconds. What has no answer then, and what
    /// was due and not sent, has failed. A server that is gone, or does nothing at all, ends the run.
    #[command(after_help = "\
Examples:
  kv bench soft://127.0.0.1:7471
  kv bench soft://127.0.0.1:7471 --mix C --value 64KiB --outstanding 8
  kv bench soft://127.0.0.1:7471 --mix B --svg b.svg --json

Mixes:
  A  half reads, half updates          D  95 % reads of what is new, 5 % inserts
  B  95 % reads, 5 % updates           E  95 % scans, 5 % inserts
  C  reads                             F  half reads, half reads with a write if nothing came between")]
    Bench(BenchArgs),
    /// Show what a server's cores, devices, memory and store have done so far
    #[command(after_help = "\
Examples:
  kv stats soft://127.0.0.1:7471
  kv stats soft://127.0.0.1:7471 --json | jq .store.commits")]
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
    #[command(after_help = "\
Examples:
  kv demo                                        what git tracks in this folder
  kv demo ~/photos --calls 16
  kv demo --server soft://10.0.0.1:7471          with a server that runs already")]
    Demo(DemoArgs),
    /// Print a script that completes this program's command line in a shell
    #[command(after_help = "\
Examples:
  kv completions bash > /etc/bash_completion.d/kv
  kv completions zsh > ~/.zfunc/_kv
  kv completions fish > ~/.config/fish/completions/kv.fish")]
    Completions(CompletionsArgs),
    /// Make a folder of files whose sizes are the hard ones, the same for the same seed
    #[command(hide = true)]
    MakeTree(MakeTreeArgs),
}

/// Which server, and how long to wait for it.
#[derive(Clone, Debug, Args)]
pub(crate) struct ServerArgs {
    /// The server's address, such as soft://127.0.0.1:7471
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
    /// Where to listen, such as soft://127.0.0.1:7471; with port 0 the system chooses
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
}

#[derive(Debug, Args)]
pub(crate) struct MputArgs {
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    /// Keys and values, any bytes; the key ends at the first `=`
    #[arg(required = true, value_name = "KEY=VALUE")]
    pub(crate) pairs: Vec<OsString>,
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
pub(crate) struct BenchArgs {
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    /// Which mixes, such as A,C
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        ignore_case = true,
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
pub(crate) struct CompletionsArgs {
    /// Which shell
    pub(crate) shell: clap_complete::Shell,
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

/// The length of a value.
fn value_len(text: &str) -> Result<u64, String> {
    match byte_count(text)? {
        len if len > VALUE_BYTES_MAX as u64 => {
            Err(format!("a value has at most {VALUE_BYTES_MAX} bytes"))
        }
        len => Ok(len),
    }
}

/// A time in seconds, which may have a fraction.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "a number of seconds, such as 2.5")?;
    if !(0.001..=86_400.0).contains(&seconds) {
        return Err("from 0.001 to 86400 seconds".into());
    }
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    /// The page has a section for each command, which names each of its options and no other.
    #[test]
    fn the_manual_has_every_command_and_every_option_and_no_others() {
        let manual = include_str!("../../../docs/kv.md");
        let (common, sections) = manual.split_once("## Commands").unwrap();
        let sections: Vec<&str> = sections.split("### kv ").skip(1).collect();
        let cli = Cli::command();
        let commands: Vec<_> = cli.get_subcommands().filter(|sub| !sub.is_hide_set()).collect();
        assert_eq!(sections.len(), commands.len());
        for command in commands {
            let name = command.get_name();
            let section = sections.iter().find(|text| text.split_whitespace().next() == Some(name));
            let section = section.unwrap_or_else(|| panic!("no section for kv {name}"));
            let options: Vec<&str> = command
                .get_arguments()
                .filter(|arg| !arg.is_hide_set())
                .filter_map(|arg| arg.get_long())
                .collect();
            for option in &options {
                let text = format!("`--{option}");
                let everywhere = ["timeout", "verbose"].contains(option) && common.contains(&text);
                assert!(everywhere || section.contains(&text), "kv {name}: {text}`");
            }
            for told in section.split("`--").skip(1) {
                let told = told.split([' ', '`']).next().unwrap();
                assert!(options.contains(&told), "kv {name} has no --{told}");
            }
        }
        for line in EXAMPLES.lines().skip_while(|line| !line.starts_with("Exit")).skip(1) {
            let (code, meaning) = line.trim().split_once("  ").unwrap();
            assert!(manual.contains(&format!("| {code} | {} |", meaning.trim())), "{line}");
        }
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
    fn timeouts_are_seconds_within_bounds() {
        assert_eq!(seconds("2.5"), Ok(Duration::from_millis(2_500)));
        for wrong in ["0", "-1", "nan", "inf", "1e9", "soon", ""] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
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
