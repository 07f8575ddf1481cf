//! The command line: its help, its options, and how they are read.

mod args;
mod values;

use clap::{Parser, Subcommand};

pub(crate) use args::*;

const EXAMPLES: &str = "\
Try it:
  kv demo                                   a server, every file of this folder in and out, a report
  kv serve auto://127.0.0.1:7471            a server in memory; stop it with Ctrl-C
  kv serve auto://127.0.0.1:7471 --data d   a server whose values outlive it, in the folder d
  kv put auto://127.0.0.1:7471 greeting hello
  kv get auto://127.0.0.1:7471 greeting
  kv list auto://127.0.0.1:7471 --json
  kv stats auto://127.0.0.1:7471
  kv get --help                             what a command does, with examples

Addresses:
  auto://host:port   RDMA where both ends have it, the software device otherwise; kv stats says which and why
  soft://host:port   the software device: any machine, no RDMA hardware needed
  rdma://host:port   RDMA hardware, where this build and both machines have it
  Port 0 lets the system choose one; the server prints the address it has.

Exit codes:
  0  done
  1  failed, or a byte came back wrong
  2  the command line is not understood, or ADDR can be no address
  3  there is no value under the key
  4  the key has another version than was expected
  5  demo, load, verify: what was done is right, but some files could not be read or kept changing
  129, 130, 143  serve: a second signal (SIGHUP, SIGINT, SIGTERM) ended it at once";

/// A key-value service over RDMA verbs, or over a software device where there is no RDMA hardware.
///
/// Keys and values are any bytes; a value has 0 bytes to 64 MiB. They are held in memory and are gone
/// when the server ends, unless it has a folder for them.
#[derive(Debug, Parser)]
#[command(name = "kv", version, after_help = EXAMPLES)]
pub(crate) struct Cli {
    /// Log more to standard error than warnings: -v connections, devices and the store, -vv all there is
    ///
    /// RUST_LOG, if set, says it in more detail, such as `RUST_LOG=rpc_core=debug`.
    #[arg(short, long, global = true, display_order = 1000, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a server until SIGINT (Ctrl-C), SIGTERM or SIGHUP
    ///
    /// It prints `listening on ADDR` once it does. The first signal lets calls that run come to their
    /// end; the second ends the process.
    #[command(after_help = "\
Examples:
  kv serve auto://0.0.0.0:7471 --store 2GiB         in memory, 2 GiB of it at most
  kv serve auto://127.0.0.1:7471 --data /var/lib/kv  in a file; what is acknowledged is on the disk")]
    Serve(ServeArgs),
    /// Write the value under a key to standard output
    #[command(after_help = "\
Examples:
  kv get auto://127.0.0.1:7471 greeting > greeting
  kv get auto://127.0.0.1:7471 photo --file photo.jpg
  kv get auto://127.0.0.1:7471 greeting --json      {\"key\":\"greeting\",\"value\":\"hello\",\"version\":1}

Ends with 3 if there is no value under the key.")]
    Get(GetArgs),
    /// Store a value under a key, replacing what was there
    #[command(
        override_usage = "kv put [OPTIONS] <ADDR> <KEY> <VALUE|-|--file <F>>",
        after_help = "\
Examples:
  kv put auto://127.0.0.1:7471 greeting hello
  kv put auto://127.0.0.1:7471 photo --file photo.jpg
  date | kv put auto://127.0.0.1:7471 now -
  kv put auto://127.0.0.1:7471 greeting bonjour --expect 1   only if its version is still 1
  kv put auto://127.0.0.1:7471 lock me --expect 0            only if it has no value

Ends with 4, and has changed nothing, if the key has another version than expected."
    )]
    Put(PutArgs),
    /// Remove a key and its value
    #[command(after_help = "\
Examples:
  kv delete auto://127.0.0.1:7471 greeting
  kv delete auto://127.0.0.1:7471 greeting --expect 2   only if its version is still 2

Ends with 3 if there was no value, with 4 if the key has another version than expected.")]
    Delete(DeleteArgs),
    /// Print the values under several keys, one JSON object a line
    ///
    /// They are as they were at one moment, up to 1,024 keys and 64 MiB of values. Beyond that it takes
    /// several calls, each with a moment of its own.
    #[command(after_help = "\
Example:
  kv mget auto://127.0.0.1:7471 a b c

Ends with 3 if one of the keys has no value; the others are printed.")]
    Mget(MgetArgs),
    /// Store several values: all, or, if one is refused, none
    #[command(after_help = "\
Example:
  kv mput auto://127.0.0.1:7471 a=1 b=2 c=3")]
    Mput(MputArgs),
    /// Print the keys that begin with a prefix, in order
    #[command(after_help = "\
Examples:
  kv list auto://127.0.0.1:7471                 all keys, one a line
  kv list auto://127.0.0.1:7471 user/ --json    with version and length, one JSON object a line
  kv list auto://127.0.0.1:7471 --limit 10      the first ten

Keys are printed as they are. A key that has a line end or is no text can be told apart by --json.")]
    List(ListArgs),
    /// Store every file of a folder under its relative path, many at a time
    ///
    /// Names, what is skipped and how long files are stored is as in `kv demo --help`. Keys that a file
    /// does not have any more, because it is longer or shorter than when it was loaded, are deleted. The
    /// keys of a file that is gone from the folder are left as they are.
    #[command(after_help = "\
Examples:
  kv load auto://127.0.0.1:7471 ~/photos
  kv load auto://127.0.0.1:7471 ~/photos --resume photos.journal   run it again to go on where it ended

Ends with 5 if some files could not be read or kept changing; the others are stored.")]
    Load(TransferArgs),
    /// Compare every file of a folder, byte for byte, with what a server has under its relative path
    #[command(after_help = "\
Examples:
  kv verify auto://127.0.0.1:7471 ~/photos
  kv verify auto://127.0.0.1:7471 ~/photos --json

Ends with 1 if a byte differs, a file is not stored, or a key is left that a file does not have any more.
The keys of a file that is gone from the folder are not looked at.")]
    Verify(TransferArgs),
    /// Read every value in the folder of a server that does not run, and name the keys that are damaged
    ///
    /// The folder is that of `kv serve --data`. Nothing in it is changed, but that a file whose server was
    /// killed is put in order first, as its next start would do. A key that is damaged can be stored again
    /// or deleted once the server runs.
    #[command(after_help = "\
Example:
  kv check /var/lib/kv

Ends with 1 if a value is damaged.")]
    Check(CheckArgs),
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
  kv bench auto://127.0.0.1:7471
  kv bench auto://127.0.0.1:7471 --mix C --value 64KiB --outstanding 8
  kv bench auto://127.0.0.1:7471 --mix B --svg b.svg --json

Mixes:
  A  half reads, half updates          D  95 % reads of what is new, 5 % inserts
  B  95 % reads, 5 % updates           E  95 % scans, 5 % inserts
  C  reads                             F  half reads, half reads with a write if nothing came between")]
    Bench(BenchArgs),
    /// Show what a server's cores, devices, memory and store have done so far
    #[command(after_help = "\
Examples:
  kv stats auto://127.0.0.1:7471
  kv stats auto://127.0.0.1:7471 --json | jq .store.commits")]
    Stats(StatsArgs),
    /// Examine this machine, and the way to a server if one is named, for what keeps RDMA from working
    ///
    /// Each problem comes with its cause and what mends it. Nothing is changed, on this machine or on the server.
    #[command(after_help = "\
Examples:
  kv doctor                               what this machine has, and what is wrong with it
  kv doctor auto://10.0.0.1:7471          and what is agreed with that server, with timed calls
  kv doctor rdma://10.0.0.1:7471 --json | jq '.problems[].fix'")]
    Doctor(DoctorArgs),
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

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::bench::mix::Mix;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    /// The page has a section for each command, which names each of its options and no other.
    #[test]
    fn the_manual_has_every_command_and_every_option_and_no_others() {
        let manual = include_str!("../../../../docs/kv.md");
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
    fn a_list_of_mixes_may_have_spaces_and_names_what_is_none() {
        let parse = |mix| Cli::try_parse_from(["kv", "bench", "soft://h:1", "--mix", mix]);
        let Command::Bench(args) = parse("a, C ,f").unwrap().command else { panic!() };
        assert_eq!(args.mix, [Mix::A, Mix::C, Mix::F]);
        let wrong = parse("A, X").unwrap_err().to_string();
        assert!(wrong.contains("possible values: A, B"), "{wrong}");
    }

    #[test]
    fn a_put_takes_a_value_or_a_file_and_not_both() {
        let parse =
            |args: &[&str]| Cli::try_parse_from([&["kv", "put", "soft://h:1", "k"], args].concat());
        assert!(parse(&["value"]).is_ok());
        assert!(parse(&["-"]).is_ok());
        assert!(parse(&["--file", "f"]).is_ok());
        assert!(parse(&[]).is_err());
        assert!(parse(&["value", "--file", "f"]).is_err());
    }
}
