//! The processes that stand beside the one that measures.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::stream::{FuturesUnordered, StreamExt};
use rpc_core::{Channel, Runtime, Server};
use serde_json::{Value as Json, json};

use super::service::{CrowdClient, CrowdServer, Crowding};
use crate::echo::Blob;
use crate::failure::Failure;

/// Calls that a flood has outstanding.
const FLOOD: usize = 256;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// The server's address: this floods it. Without one, this is a server.
    #[arg(long)]
    flood: Option<String>,
    /// Where a server listens.
    #[arg(long, default_value = "soft://127.0.0.1:0")]
    listen: String,
    /// Its cores.
    #[arg(long, default_value_t = 1)]
    cores: usize,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    match &options.flood {
        Some(address) => flood(address),
        None => serve(options),
    }
}

/// Answers each line of its input with what it holds, and ends with its input.
fn serve(options: &Options) -> Result<(), Failure> {
    let runtime = Runtime::builder().cores(options.cores).spin(Duration::ZERO).build()?;
    let tokio =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let service = CrowdServer::new(Crowding(tokio.handle().clone()));
    let server = Server::builder().runtime(&runtime).add_service(service);
    let bound = rpc_core::block_on(server.bind(&options.listen))?;
    println!("soft://{}", bound.local_addr());
    for line in std::io::stdin().lock().lines() {
        line?;
        println!("{}", held(&runtime)?);
    }
    drop(bound);
    Ok(())
}

/// What a server holds of its clients.
fn held(runtime: &Runtime) -> Result<Json, Failure> {
    let stats = runtime.stats();
    let sum = |count: fn(&rpc_core::CoreStats) -> u64| stats.cores.iter().map(count).sum::<u64>();
    Ok(json!({
        "receives": sum(|core| core.usage.srq_wrs.into()),
        "registered": sum(|core| core.usage.mr_bytes),
        "rnr": sum(|core| core.device.rnr_naks_sent),
        "qps": stats.cores.iter().map(|core| core.usage.qps).collect::<Vec<_>>(),
        "resident": resident()?,
    }))
}

/// Bytes of this process that are in memory.
pub(super) fn resident() -> Result<u64, Failure> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    let pages = pages.ok_or_else(|| Failure::new("the kernel tells of no memory of processes"))?;
    Ok(pages * rustix::param::page_size() as u64)
}

/// Keeps slow calls outstanding until its input ends; then says how they ended.
fn flood(address: &str) -> Result<(), Failure> {
    static OVER: AtomicBool = AtomicBool::new(false);
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        OVER.store(true, Ordering::Relaxed);
    });
    let runtime = Runtime::builder().spin(Duration::ZERO).build()?;
    let (mut done, mut failed) = (0_u64, 0_u64);
    let mut full = None;
    rpc_core::block_on(async {
        let channel = Channel::builder(address).runtime(&runtime).connect().await?;
        let client = CrowdClient::new(channel);
        let call = || client.slow(Blob { data: vec![7; 64].into() });
        let mut calls: FuturesUnordered<_> = (0..FLOOD).map(|_| call()).collect();
        while let Some(ended) = calls.next().await {
            match ended {
                Ok(_) => done += 1,
                Err(_) => failed += 1,
            }
            if done + failed == FLOOD as u64 {
                full = Some(Instant::now());
                println!("flooding"); // each was outstanding once
            }
            if !OVER.load(Ordering::Relaxed) {
                calls.push(call());
            }
        }
        Ok::<_, rpc_core::Status>(())
    })?;
    let seconds = full.map_or(f64::NAN, |full| full.elapsed().as_secs_f64());
    let rate = done.saturating_sub(FLOOD as u64) as f64 / seconds;
    println!("{}", json!({ "rate": rate, "failed": failed }));
    Ok(())
}

/// A process of this program.
pub(super) struct Process {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Process {
    fn start(words: &[&str]) -> Result<Self, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("crowd-child").args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let input = child.stdin.take();
        let output = child.stdout.take().ok_or_else(|| Failure::new("a process without output"))?;
        Ok(Self { child, input, output: BufReader::new(output) })
    }

    /// A server, and its address.
    pub(super) fn server(cores: usize, listen: &str) -> Result<(Self, String), Failure> {
        let mut server = Self::start(&["--cores", &cores.to_string(), "--listen", listen])?;
        let address = server.line()?;
        Ok((server, address))
    }

    /// One that floods a server by now.
    pub(super) fn flood(address: &str) -> Result<Self, Failure> {
        let mut flood = Self::start(&["--flood", address])?;
        flood.line()?;
        Ok(flood)
    }

    fn line(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            return Err(Failure::new("a process beside this one ended too early"));
        }
        Ok(line.trim_end().to_owned())
    }

    /// What a server holds now.
    pub(super) fn held(&mut self) -> Result<Json, Failure> {
        if let Some(input) = &mut self.input {
            writeln!(input)?;
            input.flush()?;
        }
        Ok(serde_json::from_str(&self.line()?)?)
    }

    /// Ends a flood; what it says.
    pub(super) fn end(&mut self) -> Result<Json, Failure> {
        drop(self.input.take());
        Ok(serde_json::from_str(&self.line()?)?)
    }

    /// As `kill -9`.
    pub(super) fn kill(mut self) -> Result<(), Failure> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.kill(); // it may have ended by itself
        let _ = self.child.wait();
    }
}
