use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rpc_core::{Channel, Request, Runtime, block_on};

use super::attacker::PATIENCE;
use super::service::{Blob, TargetClient};
use crate::{Payloads, Place, eventually};

/// Bytes of its calls in turn: in one SEND, in a full one, by READ, by several READs.
const SIZES: [usize; 5] = [17, 4_000, 8_900, 40_000, 300_000];
/// Rounds of them that must succeed for it to be undisturbed; a guest takes long for one.
const ROUNDS: u64 = 2;
const ROUNDS_IN_GUEST: u64 = 1;

/// A client that calls all the time and expects every call to succeed.
#[derive(Debug)]
pub struct Honest {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    done: AtomicU64,
    failure: Mutex<Option<String>>,
}

impl Honest {
    /// Connects, and begins.
    ///
    /// # Panics
    /// If the first connection fails.
    pub fn start(port: u16) -> Self {
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        let runtime = Runtime::builder().budget_bytes(64 << 20).build().expect("a runtime");
        let channel = connect(&runtime, port).expect("the honest client connects");
        let thread = thread::spawn(move || {
            let client = TargetClient::new(channel);
            let payloads = Payloads::new(5);
            for index in 0_u64.. {
                if of_thread.stop.load(Ordering::SeqCst) {
                    break;
                }
                let len = SIZES[(index % SIZES.len() as u64) as usize];
                if let Err(text) = call(&client, &payloads, index, len) {
                    of_thread.failure.lock().expect("nobody panics with it").get_or_insert(text);
                    break;
                }
                of_thread.done.fetch_add(1, Ordering::SeqCst);
            }
            drop((client, runtime));
        });
        Self { shared, thread: Some(thread) }
    }

    /// Calls that have succeeded so far.
    pub fn done(&self) -> u64 {
        self.shared.done.load(Ordering::SeqCst)
    }

    /// Waits until it has made further rounds of calls.
    ///
    /// # Panics
    /// If one failed, or they took too long.
    pub fn goes_on(&self) {
        let rounds = if Place::here().is_soft() { ROUNDS } else { ROUNDS_IN_GUEST };
        let target = self.done() + rounds * SIZES.len() as u64;
        eventually(PATIENCE, || self.done() >= target || self.failure().is_some());
        assert_eq!(self.failure(), None, "the honest client was disturbed");
        assert!(self.done() >= target, "the honest client's calls do not end");
    }

    fn failure(&self) -> Option<String> {
        self.shared.failure.lock().expect("nobody panics with it").clone()
    }

    /// Ends it; how many calls succeeded.
    ///
    /// # Panics
    /// If one failed.
    pub fn end(mut self) -> u64 {
        self.stop();
        assert_eq!(self.failure(), None, "the honest client was disturbed");
        self.done()
    }

    fn stop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Honest {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A channel to the server.
pub(super) fn connect(runtime: &Runtime, port: u16) -> Result<Channel, String> {
    let channel = Channel::builder(&Place::here().address(port)).runtime(runtime);
    block_on(channel.connect()).map_err(|status| status.to_string())
}

fn call(client: &TargetClient, payloads: &Payloads, index: u64, len: usize) -> Result<(), String> {
    let mut request = Request::new(Blob { data: payloads.bytes(index, len).into() });
    request.set_timeout(PATIENCE.saturating_sub(Duration::from_secs(1)));
    let answer = block_on(client.echo(request))
        .map_err(|status| format!("call {index} of {len} bytes: {status}"))?;
    payloads.check(index, len, &answer.get_ref().data).map_err(|wrong| wrong.to_string())
}

/// What a client's process does that is to be killed: large calls, several at a time.
///
/// # Panics
/// If the server is not there.
pub fn call_until_killed(port: u16) {
    let runtime = Runtime::builder().budget_bytes(128 << 20).build().expect("a runtime");
    let channel = connect(&runtime, port).expect("the server is there");
    let client = TargetClient::new(channel);
    let data: rpc_core::bytes::Bytes = vec![3; 4 << 20].into();
    block_on(client.echo(Request::new(Blob { data: data.clone() }))).expect("a first call");
    println!("calling");
    let call_on = |client: &TargetClient| {
        while block_on(client.echo(Request::new(Blob { data: data.clone() }))).is_ok() {}
    };
    thread::scope(|scope| {
        (0..4).for_each(|_| drop(scope.spawn(|| call_on(&client))));
    });
}
