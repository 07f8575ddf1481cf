use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use super::pattern;

/// What `soak` prints when it is not understood.
pub(super) const USAGE: &str = "\
use: soak serve ADDRESS                a server; each line of its input is answered with what it holds
     soak call ADDRESS [options]       calls that must all succeed
     soak ride ADDRESS [options]       calls for ever, through losses of the server
     soak kill ADDRESS [options]       a server and clients, killed in turn; port 0
     soak stop ADDRESS [options]       a server and clients, stopped and resumed in turn; port 0
     soak outage ADDRESS --cut COMMAND --mend COMMAND [options]
                                       a server and a client; the network between them is cut; port 0
     soak failpoints ADDRESS [options] servers and clients that kill themselves at one point after the other;
                                       port 0, and a build with the feature failpoints
serve and ride end when their standard input closes.
  --calls N        how many [1000]
  --bytes-max N    longest payload, at most 4194304 [4194304]
  --at-once N      calls in flight [8]
  --seed N         the same seed draws the same sizes [1]
  --timeout-ms N   deadline of each call [none]
  --rounds N       how often each side is killed, or the network cut [3]
  --client ADDRESS what clients connect to, with the server's port in place of port 0 [ADDRESS]
  --found-ms N     a peer that stands still with calls is found about so late [7000]
  --log F          servers write which calls they carried out, and clients compare [none]
  --cancels 0|1    clients drop some calls that have begun [0]
  --down-ms N      how long the network stays cut after the calls have ended [1000]";

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    Serve,
    Call,
    Ride,
    Kill,
    Outage,
    Stop,
    Failpoints,
}

/// The command line.
#[derive(Clone, Debug)]
pub(super) struct Args {
    pub(super) command: Command,
    pub(super) address: String,
    pub(super) calls: u64,
    pub(super) bytes_max: usize,
    pub(super) at_once: usize,
    pub(super) seed: u64,
    pub(super) timeout: Option<Duration>,
    pub(super) rounds: u32,
    pub(super) client: Option<String>,
    pub(super) cut: String,
    pub(super) mend: String,
    pub(super) down: Duration,
    pub(super) found: Option<Duration>,
    pub(super) log: Option<PathBuf>,
    pub(super) cancels: bool,
}

/// Calls in flight at most: each has a thread.
const AT_ONCE_MAX: usize = 256;

impl Args {
    /// Reads a command line, without the program's name.
    pub(super) fn parse(words: &[String]) -> Result<Self, String> {
        let [command, address, options @ ..] = words else {
            return Err("a command and an address are needed".into());
        };
        let command = match command.as_str() {
            "serve" => Command::Serve,
            "call" => Command::Call,
            "ride" => Command::Ride,
            "kill" => Command::Kill,
            "outage" => Command::Outage,
            "stop" => Command::Stop,
            "failpoints" => Command::Failpoints,
            _ => return Err(format!("there is no command {command:?}")),
        };
        let mut args = Self {
            command,
            address: address.clone(),
            calls: 1000,
            bytes_max: pattern::BYTES_MAX,
            at_once: 8,
            seed: 1,
            timeout: None,
            rounds: 3,
            client: None,
            cut: String::new(),
            mend: String::new(),
            down: Duration::from_secs(1),
            found: None,
            log: None,
            cancels: false,
        };
        for pair in options.chunks(2) {
            let [option, value] = pair else {
                return Err(format!("{} has no value", pair[0]));
            };
            args.set(option, value)?;
        }
        if command == Command::Outage && (args.cut.is_empty() || args.mend.is_empty()) {
            return Err("--cut and --mend are needed".into());
        }
        Ok(args)
    }

    fn set(&mut self, option: &str, value: &str) -> Result<(), String> {
        match option {
            "--calls" => self.calls = number(value, 1, u64::MAX)?,
            "--bytes-max" => self.bytes_max = number(value, 0, pattern::BYTES_MAX)?,
            "--at-once" => self.at_once = number(value, 1, AT_ONCE_MAX)?,
            "--seed" => self.seed = number(value, 0, u64::MAX)?,
            "--timeout-ms" => {
                self.timeout = Some(Duration::from_millis(number(value, 1, u64::MAX)?));
            }
            "--rounds" => self.rounds = number(value, 1, u32::MAX)?,
            "--client" => self.client = Some(value.into()),
            "--found-ms" => {
                self.found = Some(Duration::from_millis(number(value, 400, 60_000)?));
            }
            "--log" => self.log = Some(value.into()),
            "--cancels" => self.cancels = number(value, 0, 1)? == 1,
            "--cut" => self.cut = value.into(),
            "--mend" => self.mend = value.into(),
            "--down-ms" => self.down = Duration::from_millis(number(value, 0, u64::MAX)?),
            _ => return Err(format!("there is no option {option:?}")),
        }
        Ok(())
    }
}

fn number<T: FromStr + PartialOrd + std::fmt::Display>(
    text: &str,
    least: T,
    most: T,
) -> Result<T, String> {
    match text.parse() {
        Ok(number) if number >= least && number <= most => Ok(number),
        _ => Err(format!("{text:?} is no number from {least} to {most}")),
    }
}

/// The address with the port in place of port 0. Options after a `?` stay.
pub(super) fn with_port(address: &str, port: u16) -> String {
    let (place, options) = match address.find('?') {
        Some(at) => address.split_at(at),
        None => (address, ""),
    };
    match place.strip_suffix(":0") {
        Some(host) => format!("{host}:{port}{options}"),
        None => address.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Args, String> {
        Args::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn options_replace_defaults() {
        let args = parse("call soft://a:1 --calls 7 --bytes-max 10 --timeout-ms 5").unwrap();
        assert_eq!((args.command, args.calls, args.bytes_max), (Command::Call, 7, 10));
        assert_eq!((args.timeout, args.at_once), (Some(Duration::from_millis(5)), 8));
    }

    #[test]
    fn what_is_not_understood_is_named() {
        for (line, word) in [
            ("call", "address"),
            ("sing soft://a:1", "sing"),
            ("call soft://a:1 --loud 1", "--loud"),
            ("call soft://a:1 --calls", "no value"),
            ("call soft://a:1 --calls 0", "from 1"),
            ("call soft://a:1 --bytes-max 4194305", "to 4194304"),
            ("outage soft://a:0 --cut true", "--mend"),
        ] {
            let wrong = parse(line).unwrap_err();
            assert!(wrong.contains(word), "{line}: {wrong}");
        }
    }

    #[test]
    fn a_port_takes_the_place_of_port_zero_only() {
        assert_eq!(with_port("soft://127.0.0.1:0", 7), "soft://127.0.0.1:7");
        assert_eq!(with_port("rdma://10.0.0.1:0?device=rxe0", 7), "rdma://10.0.0.1:7?device=rxe0");
        assert_eq!(with_port("soft://127.0.0.1:80", 7), "soft://127.0.0.1:80");
    }
}
