use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};

use rpc_core::{Runtime, block_on};

use super::service::{Counts, TargetServer, Victim};
use crate::devices::{counters, usage_of};
use crate::{Place, ProcSelf};

/// Payload memory of the server.
const BUDGET_BYTES: u64 = 256 << 20;

/// What the server's process does: it binds, says its port, and answers each line of its input with
/// its numbers, until its input ends.
///
/// # Panics
/// If it cannot be a server: the test that started it sees its process end.
pub fn serve() {
    let runtime = Runtime::builder().budget_bytes(BUDGET_BYTES).build().expect("a runtime");
    let counts = Arc::new(Counts::default());
    let server = rpc_core::Server::builder()
        .runtime(&runtime)
        .add_service(TargetServer::new(Victim(Arc::clone(&counts))));
    let bound = block_on(server.bind(&Place::here().address(0))).expect("a free port");
    say(&format!("{}", bound.local_addr().port()));
    for line in std::io::stdin().lock().lines() {
        if line.is_err() {
            break;
        }
        say(&numbers(&runtime, &counts));
    }
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // A parent that is gone closes the input too.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

fn numbers(runtime: &Runtime, counts: &Counts) -> String {
    let stats = runtime.stats();
    let core = stats.cores[0];
    let (usage, memory) = (usage_of(&stats), stats.memory);
    let numbers: [(&str, u64); 17] = [
        ("connections", core.connections.into()),
        ("credits", core.credits_granted.into()),
        ("receives", core.receives_posted.into()),
        ("leases", core.leases.into()),
        ("errors", core.errors),
        ("lost_wakeups", core.lost_wakeups),
        ("qps", usage.qps.into()),
        ("srq_wrs", usage.srq_wrs.into()),
        ("windows_bound", usage.mws_bound.into()),
        ("links", usage.links.into()),
        ("inbound", memory.inbound),
        ("outbound", memory.outbound),
        ("held", memory.held_by_users),
        ("peak", memory.peak),
        ("hanging", counts.hanging.load(Ordering::SeqCst)),
        ("handled", counts.handled.load(Ordering::SeqCst)),
        ("read_bytes", counters(runtime).read_bytes),
    ];
    numbers.map(|(name, number)| format!("{name}={number}")).join(" ")
}

/// What the server counts, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stats(BTreeMap<String, u64>);

impl Stats {
    fn parse(line: &str) -> Self {
        let number = |pair: &str| {
            let (name, number) = pair.split_once('=')?;
            Some((name.to_owned(), number.parse().ok()?))
        };
        Self(line.split_whitespace().filter_map(number).collect())
    }

    /// One number.
    ///
    /// # Panics
    /// If the server does not count it.
    pub fn get(&self, name: &str) -> u64 {
        *self.0.get(name).unwrap_or_else(|| panic!("the server does not count {name}: {self:?}"))
    }
}

/// The server, in its own process.
#[derive(Debug)]
pub struct Server {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    complaints: Option<JoinHandle<String>>,
    port: u16,
}

impl Server {
    /// Starts it. `descriptors_max`: as many as it may have open.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start(program: &Path, descriptors_max: Option<u32>) -> Self {
        let mut command = match descriptors_max {
            None => Command::new(program),
            Some(max) => {
                let mut shell = Command::new("sh");
                shell.arg("-c").arg(format!("ulimit -n {max} && exec \"$0\"")).arg(program);
                shell
            }
        };
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = pipes.spawn().expect("the server's process starts");
        let input = child.stdin.take();
        let mut output = BufReader::new(child.stdout.take().expect("its output is piped"));
        let mut stderr = child.stderr.take().expect("its errors are piped");
        let complaints = thread::spawn(move || {
            let mut text = String::new();
            let _ = stderr.read_to_string(&mut text);
            text
        });
        let mut line = String::new();
        output.read_line(&mut line).expect("the server speaks");
        let port = line.trim().parse().expect("the server says its port");
        Self { child, input, output, complaints: Some(complaints), port }
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it counts now.
    ///
    /// # Panics
    /// If it has died.
    pub fn stats(&mut self) -> Stats {
        let input = self.input.as_mut().expect("the server runs");
        writeln!(input).and_then(|()| input.flush()).expect("the server listens to its test");
        let mut line = String::new();
        let read = self.output.read_line(&mut line).expect("the server answers its test");
        if read == 0 {
            panic!("the server has died: {}", self.end());
        }
        Stats::parse(&line)
    }

    /// What the kernel counts of it.
    ///
    /// # Panics
    /// If it has died.
    pub fn kernel(&self) -> ProcSelf {
        ProcSelf::read_of(self.child.id()).expect("the server runs")
    }

    /// Kills it at once, as `kill -9` does.
    ///
    /// # Panics
    /// If it had ended already.
    pub fn kill(&mut self) {
        assert!(self.child.try_wait().expect("it can be asked").is_none(), "{}", self.end());
        self.child.kill().expect("it can be killed");
        let _ = self.child.wait();
    }

    /// Ends it in order; what it complained of.
    ///
    /// # Panics
    /// If it panicked, or ended in any other way than well: a sanitizer ends it so when it found
    /// something.
    pub fn end(&mut self) -> String {
        drop(self.input.take());
        let status = self.child.wait().expect("it can be waited for");
        let text = self.complaints.take().map(|thread| thread.join().unwrap_or_default());
        let text = text.unwrap_or_default();
        assert!(!text.contains("panicked"), "the server panicked: {text}");
        assert!(status.success(), "the server ended with {status}: {text}");
        text
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
