//! Programs of others that measure the same device: perftest, and UCX at the level of its transports.

use std::io::{self, Read};
use std::net::{IpAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use rustix::process::{Pid, Signal, kill_process_group};

use super::place::Place;
use crate::compare::cells::Value;
use crate::compare::machine;
use crate::failure::Failure;

/// One of their runs takes so many seconds at most: on a machine whose CPUs are emulated, tens.
const SECONDS_MAX: &str = "120";
/// A server listens by then, or it has failed.
const LISTENING_WITHIN: Duration = Duration::from_secs(60);
/// Between two looks at what may have happened.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// What perftest calls MB.
const MEBIBYTE: f64 = (1 << 20) as f64;

/// A program, what it is called with beside the place, and which of its numbers count.
pub(super) struct Tool {
    pub(super) program: &'static str,
    /// The Debian package that it is in.
    pub(super) package: &'static str,
    args: &'static [&'static str],
    /// The values of its last line of numbers.
    read: fn(&[f64]) -> Option<Vec<Value>>,
}

/// One-way latency, as a value of the round trip's name: both of its ways.
fn both_ways(name: &str, one_way: f64) -> Value {
    (name.to_owned(), 2.0 * one_way)
}

/// Depths are those of this framework: 64 requests on a send queue, receives shared; completions as rare.
pub(super) const TOOLS: [Tool; 4] = [
    Tool {
        program: "ib_send_lat",
        package: "perftest",
        args: &["-F", "-s", "64", "-n", "4000"],
        // bytes, iterations, least, most, typical, mean, deviation, 99 %, 99.9 %
        read: |line| {
            let (typical, p99) = (*line.get(4)?, *line.get(7)?);
            Some(vec![both_ways("raw SEND p50 us", typical), both_ways("raw SEND p99 us", p99)])
        },
    },
    Tool {
        program: "ib_send_bw",
        package: "perftest",
        args: &["-F", "-s", "64", "-n", "8000", "-t", "64", "-r", "512", "--use-srq"],
        // bytes, iterations, peak, mean, million messages/s
        read: |line| Some(vec![("raw SENDs/s".to_owned(), *line.get(4)? * 1e6)]),
    },
    Tool {
        program: "ib_read_bw",
        package: "perftest",
        args: &["-F", "-s", "1048576", "-n", "40", "-t", "4"],
        read: |line| Some(vec![("raw READ MB/s".to_owned(), *line.get(3)? * MEBIBYTE / 1e6)]),
    },
    Tool {
        program: "ucx_perftest",
        package: "ucx-utils",
        args: &["-x", "rc_verbs", "-t", "am_lat", "-s", "64", "-n", "2000"],
        // iterations, typical, mean, …
        read: |line| Some(vec![both_ways("UCX uct p50 us", *line.get(1)?)]),
    },
];

impl Tool {
    /// Whether it is on this machine.
    pub(super) fn is_there(&self) -> bool {
        is_there(self.program)
    }

    /// One run of it: a server and a client, each kept to a CPU.
    pub(super) fn run(
        &self,
        place: &Place,
        [client, server]: [usize; 2],
    ) -> Result<Vec<Value>, Failure> {
        let port = free_port()?;
        let mut serving = spawn(&mut self.command(place, port, false), server)?;
        until_listening(port, &mut serving.0, self.program)?;
        let output = spawn(&mut self.command(place, port, true), client)?.output()?;
        let ended = serving.0.wait()?;
        if !output.status.success() || !ended.success() {
            return Err(self.failed(&output));
        }
        let text = String::from_utf8_lossy(&output.stdout);
        numbers(&text).and_then(|line| (self.read)(&line)).ok_or_else(|| self.failed(&output))
    }

    fn command(&self, place: &Place, port: u16, client: bool) -> Command {
        let is_ucx = self.program == "ucx_perftest";
        let (tcp_port, port) = (port.to_string(), place.port.to_string());
        let gid = place.gid_index.map(|index| index.to_string());
        let mut command = Command::new("timeout");
        command.args([SECONDS_MAX, self.program]).args(self.args).args(["-p", &tcp_port]);
        if is_ucx {
            command.args(["-d", &format!("{}:{port}", place.device)]);
            command.envs(gid.map(|gid| ("UCX_IB_GID_INDEX", gid)));
        } else {
            command.args(["-d", &place.device, "-i", &port]);
            command.args(gid.iter().flat_map(|gid| ["-x", gid]));
        }
        if client {
            command.arg(place.host().to_string());
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn failed(&self, output: &Output) -> Failure {
        let said = [&output.stdout, &output.stderr]
            .map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        let last: Vec<&str> = said.iter().flat_map(|text| text.lines()).rev().take(5).collect();
        Failure::new(format!(
            "{} ended with {}, and said: {}",
            self.program,
            output.status,
            last.join(" / ")
        ))
    }
}

/// Whether a program is on this machine.
pub(super) fn is_there(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--help").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok()
}

/// What it says of its version, for who has to know.
pub(super) fn version(program: &str) -> String {
    let output = Command::new(program).arg("--version").stdin(Stdio::null()).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    text.ok().and_then(|text| Some(text.lines().next()?.to_owned())).unwrap_or_default()
}

/// A process that ends with this value, and with it whatever it has started: it leads a group of its own, and
/// what `timeout` or strace runs is in that.
pub(super) struct Ends(pub(super) Child);

impl Ends {
    /// Waits until it has ended by itself.
    pub(super) fn wait_within(&mut self, limit: Duration) -> Result<(), Failure> {
        let end = Instant::now() + limit;
        while self.0.try_wait()?.is_none() {
            if Instant::now() >= end {
                return Err(Failure::new(format!("a process did not end within {limit:?}")));
            }
            thread::sleep(LOOK_EVERY); // between two looks at what the kernel says
        }
        Ok(())
    }

    /// What it prints until it ends.
    fn output(mut self) -> io::Result<Output> {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let (out, err) = (self.0.stdout.take(), self.0.stderr.take());
        // At the same time, or it might wait with one until the other is read.
        thread::scope(|scope| {
            let reading = scope.spawn(|| err.map_or(Ok(0), |mut err| err.read_to_end(&mut stderr)));
            out.map_or(Ok(0), |mut out| out.read_to_end(&mut stdout))?;
            reading.join().unwrap_or_else(|_| Err(io::Error::other("a thread that reads panicked")))
        })?;
        Ok(Output { status: self.0.wait()?, stdout, stderr })
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        // The number of one that was waited for may be another's by now.
        if !matches!(self.0.try_wait(), Ok(None)) {
            return;
        }
        // It may end by itself meanwhile.
        let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
        let _ = self.0.wait();
    }
}

/// Starts a process on one CPU. It takes over which CPUs the thread that starts it may use.
pub(super) fn spawn(command: &mut Command, cpu: usize) -> Result<Ends, Failure> {
    command.process_group(0);
    thread::scope(|scope| {
        let starting = scope.spawn(|| {
            machine::pin(&[cpu])?;
            command.spawn().map(Ends).map_err(|error| {
                Failure::new(format!("{} cannot be run: {error}", command.get_program().display()))
            })
        });
        starting.join().map_err(|_| Failure::new("the thread that starts a process panicked"))?
    })
}

/// A port that nobody listens at.
fn free_port() -> Result<u16, Failure> {
    Ok(TcpListener::bind((IpAddr::from([127, 0, 0, 1]), 0))?.local_addr()?.port())
}

/// Waits until somebody listens at a port.
fn until_listening(port: u16, server: &mut Child, program: &str) -> Result<(), Failure> {
    let end = Instant::now() + LISTENING_WITHIN;
    while !is_listening(port) {
        if let Some(status) = server.try_wait()? {
            return Err(Failure::new(format!("{program}, as server, ended at once with {status}")));
        }
        if Instant::now() >= end {
            return Err(Failure::new(format!("{program} does not listen at port {port}")));
        }
        thread::sleep(LOOK_EVERY); // between two looks at what the kernel says
    }
    Ok(())
}

fn is_listening(port: u16) -> bool {
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().any(|path| {
        let sockets = fs::read_to_string(path).unwrap_or_default();
        sockets.lines().any(|line| listens_at(line, port))
    })
}

/// Whether a line of the kernel's table of TCP sockets is one that listens at this port.
fn listens_at(line: &str, port: u16) -> bool {
    const LISTEN: &str = "0A";
    let mut fields = line.split_whitespace().skip(1);
    let (Some(local), _, Some(state)) = (fields.next(), fields.next(), fields.next()) else {
        return false;
    };
    let at = local.rsplit_once(':').and_then(|(_, port)| u16::from_str_radix(port, 16).ok());
    state == LISTEN && at == Some(port)
}

/// The last line that is numbers, but for a word before them.
fn numbers(text: &str) -> Option<Vec<f64>> {
    text.lines().rev().find_map(|line| {
        let line = line.trim().strip_prefix("Final:").unwrap_or(line);
        let numbers: Option<Vec<f64>> =
            line.split_whitespace().map(|word| word.parse().ok()).collect();
        numbers.filter(|numbers| numbers.len() >= 3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(tool: usize, text: &str) -> Vec<Value> {
        numbers(text).and_then(|line| (TOOLS[tool].read)(&line)).unwrap()
    }

    #[test]
    fn perftest_and_ucx_are_read_as_they_print() {
        let latency = "#bytes #iterations t_min[usec]\n 64      2000          34.78          4193.92      \
                       36.57    \t       78.20       \t268.40 \t\t2142.84 \t\t3119.34\n-----\n";
        let expected =
            [("raw SEND p50 us".to_owned(), 73.14), ("raw SEND p99 us".to_owned(), 4285.68)];
        assert_eq!(read(0, latency), expected);
        let rate = " 64         5000             1.01               0.42   \t\t   0.006911\n---\n";
        assert_eq!(read(1, rate), [("raw SENDs/s".to_owned(), 6911.0)]);
        let reads = " 1048576    40               27.88              25.00  \t\t   0.000025\n---\n";
        assert_eq!(read(2, reads), [("raw READ MB/s".to_owned(), 26.2144)]);
        let ucx = "[thread 0]   203   2008.500\nFinal:                  2000     18.500  2532.518 2492.599 0.02 0.02\n";
        assert_eq!(read(3, ucx), [("UCX uct p50 us".to_owned(), 37.0)]);
    }

    #[test]
    fn a_listening_socket_is_known_by_port_and_state() {
        let line = "   0: 00000000:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  0";
        assert!(listens_at(line, 8080));
        assert!(!listens_at(line, 8081));
        assert!(!listens_at(&line.replace(" 0A ", " 01 "), 8080));
        assert!(!listens_at("  sl  local_address rem_address   st", 8080));
    }

    #[test]
    fn what_a_process_has_started_ends_with_it() {
        let mut command = Command::new("timeout");
        command.args(["600", "sh", "-c", "echo begun; sleep 600; echo ended"]);
        let cpu = machine::cpus().unwrap()[0];
        let mut running = spawn(command.stdin(Stdio::null()).stdout(Stdio::piped()), cpu).unwrap();
        let mut output = running.0.stdout.take().unwrap();
        let mut begun = [0; 6];
        output.read_exact(&mut begun).unwrap();
        drop(running);
        // It ends when nobody holds its other end any more: not `timeout`, not the shell, not what that runs.
        let (said, heard) = std::sync::mpsc::channel();
        thread::spawn(move || said.send(output.read_to_end(&mut Vec::new()).unwrap()));
        assert_eq!(heard.recv_timeout(Duration::from_secs(60)), Ok(0));
    }

    #[test]
    fn both_streams_of_a_process_are_read_to_their_ends() {
        let mut command = Command::new("sh");
        // More than either pipe holds.
        command.args(["-c", "head -c 200000 /dev/zero >&2; head -c 300000 /dev/zero; exit 3"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = spawn(&mut command, machine::cpus().unwrap()[0]).unwrap().output().unwrap();
        assert_eq!((output.stdout.len(), output.stderr.len()), (300_000, 200_000));
        assert_eq!(output.status.code(), Some(3));
    }
}
