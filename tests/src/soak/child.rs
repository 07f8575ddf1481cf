use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::args::{Args, with_port};
use super::{PATIENCE, server};

/// The option that children share.
fn found(args: &Args) -> Vec<String> {
    let words = |found: Duration| vec!["--found-ms".to_owned(), found.as_millis().to_string()];
    args.found.map(words).unwrap_or_default()
}

/// A process of this program that another one started.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    name: &'static str,
}

impl Process {
    fn start(name: &'static str, words: &[String]) -> Result<Self, String> {
        let failed = |error| format!("the {name} cannot be started: {error}");
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        let input = child.stdin.take();
        let (sender, lines) = mpsc::channel();
        if let Some(output) = child.stdout.take() {
            thread::spawn(move || {
                let lines = BufReader::new(output).lines().map_while(Result::ok);
                lines.for_each(|line| drop(sender.send(line)));
            });
        }
        Ok(Self { child, input, lines, name })
    }

    /// A server at an address, and the port that it took.
    pub(super) fn server(args: &Args, address: &str) -> Result<(Self, u16), String> {
        let mut words = vec!["serve".to_owned(), address.to_owned()];
        words.extend(found(args));
        let server = Self::start("server", &words)?;
        let line = server.line(server::LISTENING, PATIENCE)?;
        let port = line.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
        let port = port.ok_or_else(|| format!("no port in {line:?}"))?;
        Ok((server, port))
    }

    /// A client that calls for ever the server at this port.
    pub(super) fn rider(args: &Args, port: u16, seed: u64) -> Result<Self, String> {
        let address = with_port(args.client.as_ref().unwrap_or(&args.address), port);
        let seed = seed.to_string();
        let (bytes_max, at_once) = (args.bytes_max.to_string(), args.at_once.to_string());
        let words =
            ["ride", &address, "--seed", &seed, "--bytes-max", &bytes_max, "--at-once", &at_once];
        let mut words = words.map(str::to_owned).to_vec();
        words.extend(found(args));
        Self::start("client", &words)
    }

    /// Waits for a line that begins so; what follows. Lines before it that begin otherwise are
    /// passed over.
    pub(super) fn line(&self, begins: &str, within: Duration) -> Result<String, String> {
        let end = Instant::now() + within;
        loop {
            match self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    if let Some(rest) = line.strip_prefix(begins) {
                        return Ok(rest.to_owned());
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    return Err(format!("the {} does not say {begins:?} in {within:?}", self.name));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(format!(
                        "the {} ended before it said {begins:?}; its own words are above",
                        self.name
                    ));
                }
            }
        }
    }

    /// Forgets what it said until now.
    pub(super) fn skip(&self) {
        while self.lines.try_recv().is_ok() {}
    }

    /// Waits until a server holds nothing of any client.
    pub(super) fn at_rest(&mut self) -> Result<(), String> {
        let end = Instant::now() + PATIENCE;
        loop {
            let left = self.holds()?;
            if left == server::REST {
                return Ok(());
            }
            if Instant::now() >= end {
                return Err(format!("left of a client that is gone: {left}"));
            }
            thread::sleep(Duration::from_millis(20)); // Paces the questions.
        }
    }

    /// Has it stand still, or go on, as `kill -STOP` and `kill -CONT` do.
    pub(super) fn signal(&self, signal: Signal) -> Result<(), String> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or("a process without a number")?;
        kill_process(pid, signal).map_err(|error| format!("the {}: {error}", self.name))
    }

    /// What a server holds of its clients now, in words.
    pub(super) fn holds(&mut self) -> Result<String, String> {
        let input = self.input.as_mut().ok_or("its input is closed")?;
        let asked = writeln!(input).and_then(|()| input.flush());
        asked.map_err(|error| format!("the {} cannot be asked: {error}", self.name))?;
        self.line("", PATIENCE)
    }

    /// Kills it as `kill -9` does. It must live until then.
    pub(super) fn kill(&mut self) -> Result<(), String> {
        match self.child.try_wait() {
            Ok(None) => {}
            ended => return Err(format!("the {} had ended: {ended:?}", self.name)),
        }
        let killed = self.child.kill().and_then(|()| self.child.wait());
        killed.map(drop).map_err(|error| format!("the {} cannot be killed: {error}", self.name))
    }

    /// Asks it to end, and waits until it has, in order.
    pub(super) fn end(mut self) -> Result<(), String> {
        drop(self.input.take());
        let ended = self.child.wait();
        match ended {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!("the {} did not end in order: {status}", self.name)),
            Err(error) => Err(format!("the {} cannot be waited for: {error}", self.name)),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
