use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::args::{Args, with_port};
use super::{PATIENCE, server};
use crate::eventually;

/// The options that children share.
fn shared(args: &Args) -> Vec<String> {
    let mut words = Vec::new();
    if let Some(found) = args.found {
        words.extend(["--found-ms".to_owned(), found.as_millis().to_string()]);
    }
    if let Some(log) = &args.log {
        words.extend(["--log".to_owned(), log.display().to_string()]);
    }
    words
}

/// Where a process is to kill itself, by the failpoint's name, and how often it passes that before.
pub(super) type Dies = Option<(&'static str, u64)>;

/// What a process holds of the system.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outside {
    pub(super) descriptors: usize,
    pub(super) threads: usize,
}

/// A process of this program that another one started.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    input: Option<ChildStdin>,
    /// What it says, and when.
    lines: Receiver<(Instant, String)>,
    name: &'static str,
}

impl Process {
    fn start(name: &'static str, words: &[String], dies: Dies) -> Result<Self, String> {
        let failed = |error| format!("the {name} cannot be started: {error}");
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
        if let Some((point, times)) = dies {
            command.env("RPC_FAILPOINT", format!("{point}:{times}"));
        }
        let mut child = command.spawn().map_err(failed)?;
        let input = child.stdin.take();
        let (sender, lines) = mpsc::channel();
        if let Some(output) = child.stdout.take() {
            thread::spawn(move || {
                let lines = BufReader::new(output).lines().map_while(Result::ok);
                lines.for_each(|line| drop(sender.send((Instant::now(), line))));
            });
        }
        Ok(Self { child, input, lines, name })
    }

    /// A server at an address, and the port that it took.
    pub(super) fn server(args: &Args, address: &str) -> Result<(Self, u16), String> {
        Self::server_that(args, address, None)
    }

    /// One that kills itself where that says.
    pub(super) fn server_that(
        args: &Args,
        address: &str,
        dies: Dies,
    ) -> Result<(Self, u16), String> {
        let mut words = vec!["serve".to_owned(), address.to_owned()];
        words.extend(shared(args));
        let server = Self::start("server", &words, dies)?;
        let line = server.line(server::LISTENING, PATIENCE)?;
        let port = line.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
        let port = port.ok_or_else(|| format!("no port in {line:?}"))?;
        Ok((server, port))
    }

    /// A server, a client that calls it for ever, and the address of both with the server's port.
    pub(super) fn server_and_rider(args: &Args) -> Result<(Self, Self, String), String> {
        let (server, port) = Self::server(args, &args.address)?;
        let client = Self::rider(args, port, args.seed)?;
        Ok((server, client, with_port(&args.address, port)))
    }

    /// A client that calls for ever the server at this port.
    pub(super) fn rider(args: &Args, port: u16, seed: u64) -> Result<Self, String> {
        Self::rider_that(args, port, seed, None)
    }

    /// One that kills itself where that says.
    pub(super) fn rider_that(
        args: &Args,
        port: u16,
        seed: u64,
        dies: Dies,
    ) -> Result<Self, String> {
        let address = with_port(args.client.as_ref().unwrap_or(&args.address), port);
        let seed = seed.to_string();
        let (bytes_max, at_once) = (args.bytes_max.to_string(), args.at_once.to_string());
        let words =
            ["ride", &address, "--seed", &seed, "--bytes-max", &bytes_max, "--at-once", &at_once];
        let mut words = words.map(str::to_owned).to_vec();
        words.extend(shared(args));
        if args.cancels {
            words.extend(["--cancels", "1"].map(str::to_owned));
        }
        Self::start("client", &words, dies)
    }

    /// Waits for a line that begins so; what follows. Lines before it that begin otherwise are
    /// passed over.
    pub(super) fn line(&self, begins: &str, within: Duration) -> Result<String, String> {
        let end = Instant::now() + within;
        loop {
            let (_, line) = self.next(begins, end, within)?;
            if let Some(rest) = line.strip_prefix(begins) {
                return Ok(rest.to_owned());
            }
        }
    }

    /// Waits for a line that begins so and was said after some moment; it, all lines before it, and when each
    /// was said.
    #[cfg_attr(not(feature = "failpoints"), allow(dead_code))]
    pub(super) fn all_until(
        &self,
        begins: &str,
        after: Instant,
        within: Duration,
    ) -> Result<Vec<(Instant, String)>, String> {
        let end = Instant::now() + within;
        let mut said = Vec::new();
        loop {
            let (at, line) = self.next(begins, end, within)?;
            let found = at > after && line.starts_with(begins);
            said.push((at, line));
            if found {
                return Ok(said);
            }
        }
    }

    fn next(
        &self,
        begins: &str,
        end: Instant,
        within: Duration,
    ) -> Result<(Instant, String), String> {
        let left = end.saturating_duration_since(Instant::now());
        self.lines.recv_timeout(left).map_err(|error| match error {
            RecvTimeoutError::Timeout => {
                format!("the {} does not say {begins:?} in {within:?}", self.name)
            }
            RecvTimeoutError::Disconnected => format!(
                "the {} ended before it said {begins:?}; its own words are above",
                self.name
            ),
        })
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

    /// Its descriptors and threads now, counted from outside.
    #[cfg_attr(not(feature = "failpoints"), allow(dead_code))]
    pub(super) fn outside(&self) -> Result<Outside, String> {
        let count = |of: &str| {
            let path = format!("/proc/{}/{of}", self.child.id());
            let entries = std::fs::read_dir(&path).map_err(|error| format!("{path}: {error}"))?;
            Ok::<_, String>(entries.count())
        };
        Ok(Outside { descriptors: count("fd")?, threads: count("task")? })
    }

    /// Waits until it has no more descriptors and threads than it had.
    #[cfg_attr(not(feature = "failpoints"), allow(dead_code))]
    pub(super) fn is_back_to(&self, before: Outside) -> Result<(), String> {
        let mut now = self.outside()?;
        let back =
            |now: Outside| now.descriptors <= before.descriptors && now.threads <= before.threads;
        if eventually(PATIENCE, || {
            now = self.outside().unwrap_or(now);
            back(now)
        }) {
            return Ok(());
        }
        Err(format!("the {} has {now:?} left, and had {before:?}", self.name))
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

    /// Asks it to end.
    #[cfg_attr(not(feature = "failpoints"), allow(dead_code))]
    pub(super) fn ask_to_end(&mut self) {
        drop(self.input.take());
    }

    /// Waits until it has killed itself.
    #[cfg_attr(not(feature = "failpoints"), allow(dead_code))]
    pub(super) fn has_killed_itself(&mut self, within: Duration) -> Result<(), String> {
        let mut ended = None;
        eventually(within, || {
            ended = self.child.try_wait().ok().flatten();
            ended.is_some()
        });
        match ended {
            Some(status) if status.signal() == Some(Signal::KILL.as_raw()) => Ok(()),
            Some(status) => Err(format!("the {} did not kill itself: {status}", self.name)),
            None => Err(format!("the {} did not kill itself in {within:?}", self.name)),
        }
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
