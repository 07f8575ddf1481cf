use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::cli::RuntimeArgs;
use crate::failure::Failure;
use crate::limits::STOP_SECONDS;
use crate::serve::LISTENING;

/// How long the server may take until it listens.
const START_SECONDS: u64 = 10;

/// The longest line a server may say its address in.
const LINE_BYTES_MAX: u64 = 512;

/// `kv serve` in a process of its own, on a port that the system chose.
///
/// It stops when its standard input closes, so it goes with this process even if that is killed.
pub(crate) struct ServerProcess {
    child: Child,
    stdin: Option<ChildStdin>,
    addr: String,
}

impl ServerProcess {
    /// Starts it at an address and waits until it listens.
    pub(crate) fn start(addr: &str, args: &RuntimeArgs) -> Result<Self, Failure> {
        let failed = |error| Failure::because("the server's process cannot be started", error);
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command.args(["serve", addr, "--until-stdin-closes"]);
        command.arg("--cores").arg(args.cores.to_string());
        if let Some(bytes) = args.memory {
            command.arg("--memory").arg(bytes.to_string());
        }
        if let Some(spin) = args.spin {
            command.arg("--spin").arg(spin.to_string());
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        // From here on a failure drops the server, which ends its process.
        let mut server = Self { child, stdin, addr: String::new() };
        server.addr = listening(stdout)?;
        Ok(server)
    }

    /// Where it listens.
    pub(crate) fn addr(&self) -> &str {
        &self.addr
    }

    /// The number of its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Asks it to stop and waits until it has; an error if it did not stop in order.
    pub(crate) fn stop(mut self) -> Result<(), Failure> {
        drop(self.stdin.take());
        // A little longer than it gives itself.
        let until = Instant::now() + Duration::from_secs(STOP_SECONDS + 2);
        while Instant::now() < until {
            let ended = self.child.try_wait();
            match ended
                .map_err(|error| Failure::because("the server cannot be waited for", error))?
            {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(ended_badly(status)),
                // A child cannot be waited for with a time limit, so it is asked for often.
                None => thread::sleep(Duration::from_millis(5)),
            }
        }
        Err(Failure::new("the server did not stop when it was asked to; it has been killed"))
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // Both fail only if it has ended and been waited for already.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

fn ended_badly(status: ExitStatus) -> Failure {
    Failure::new(format!("the server did not stop in order: {status}"))
}

/// The address from the line in which the server says that it listens.
fn listening(stdout: Option<ChildStdout>) -> Result<String, Failure> {
    let stdout = stdout.ok_or_else(|| Failure::new("the server has no standard output"))?;
    let (sender, receiver) = mpsc::channel();
    // A thread, because a pipe cannot be read with a time limit; it ends with the server's output.
    let read = move || {
        let mut line = String::new();
        let read = BufReader::new(stdout.take(LINE_BYTES_MAX)).read_line(&mut line);
        _ = sender.send(read.map(|_| line));
    };
    let spawned = thread::Builder::new().name("kv-server-line".into()).spawn(read);
    spawned.map_err(|error| Failure::because("no thread can be started", error))?;
    let line = match receiver.recv_timeout(Duration::from_secs(START_SECONDS)) {
        Ok(Ok(line)) => line,
        Ok(Err(error)) => {
            return Err(Failure::because("the server's output cannot be read", error));
        }
        Err(_) => {
            return Err(Failure::new(format!(
                "the server does not listen after {START_SECONDS} s"
            )));
        }
    };
    line.trim_end().strip_prefix(LISTENING).map(str::to_owned).ok_or_else(|| {
        Failure::new("the server ended before it listened; its own words above say why")
    })
}
