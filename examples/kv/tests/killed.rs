//! A server that is killed while it writes, started again on its data, and asked for all of it.
//!
//! Three rounds in the ordinary run. More, and with other moments:
//!
//! ```text
//! KV_KILL_ROUNDS=20 KV_KILL_SEED=7 cargo test -p kv --test killed -- --nocapture
//! ```
//!
//! It shows what outlives the process. What outlives a loss of power is up to the file system and the
//! disk: the system's cache outlives this.

// Helpers of tests are outside `#[test]` functions, where clippy does not know them for tests.
#![allow(clippy::unwrap_used)]

mod common;

/// The messages and stubs that the build makes from the `.proto`.
#[allow(missing_docs)]
pub mod kv {
    rpc_core::include_proto!("kv.v1");
}

use std::collections::HashSet;
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use common::Server;
use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};
use kv::{BatchPutRequest, DeleteRequest, GetRequest, KvClient, ListRequest, PutRequest};
use rpc_core::bytes::Bytes;
use rpc_core::{Channel, Execution, Status};

const KEYS: u32 = 2_000;
const CALLS: usize = 48;
const BATCH: usize = 5;

/// Splitmix64: the same numbers for the same seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

fn key(index: usize) -> Bytes {
    format!("key/{index:05}").into()
}

fn index_of(key: &[u8]) -> Option<usize> {
    let index: usize = std::str::from_utf8(key.strip_prefix(b"key/")?).ok()?.parse().ok()?;
    (index < KEYS as usize && self::key(index) == key).then_some(index)
}

/// A value that says which write it is of, and of whose bytes each follows from that.
fn value(index: usize, seed: u64, sequence: u64) -> Bytes {
    let mut random = Random(seed ^ sequence.rotate_left(32) ^ index as u64);
    let len = match random.below(40) {
        0 => random.below(600_000),
        1..8 => random.below(20_000),
        _ => random.below(300),
    };
    let mut value = format!("{index} {seed} {sequence} {len} ").into_bytes();
    while (value.len() as u64) < len {
        value.extend_from_slice(&random.next().to_le_bytes());
    }
    value.into()
}

/// The number of the write that a value is of; `None` if it is of no write.
fn sequence_of(index: usize, seed: u64, found: &[u8]) -> Option<u64> {
    let end = found.iter().enumerate().filter(|(_, byte)| **byte == b' ').nth(2)?.0;
    let head = std::str::from_utf8(&found[..end]).ok()?;
    let sequence = head.rsplit(' ').next()?.parse().ok()?;
    (value(index, seed, sequence) == found).then_some(sequence)
}

/// What is known of one key.
#[derive(Default)]
struct Known {
    /// The last write that was acknowledged or seen: its number, and the version it has.
    now: Option<(u64, u64)>,
    /// What an unanswered write would have made of it.
    maybe: Option<Option<u64>>,
    busy: bool,
}

/// A write, or some that belong together.
struct Op {
    keys: Vec<usize>,
    /// Its number; `None` for a delete.
    sequence: Option<u64>,
}

struct Model {
    seed: u64,
    random: Random,
    sequence: u64,
    keys: Vec<Known>,
    unanswered: Vec<Op>,
}

#[derive(Default)]
struct Round {
    acknowledged: usize,
    refused: usize,
    unanswered: usize,
    stored_all_the_same: usize,
}

impl Model {
    fn new(seed: u64) -> Self {
        let keys = (0..KEYS).map(|_| Known::default()).collect();
        Self { seed, random: Random(seed), sequence: 0, keys, unanswered: Vec::new() }
    }

    fn idle(&mut self) -> usize {
        loop {
            let index = self.random.below(u64::from(KEYS)) as usize;
            if !self.keys[index].busy {
                self.keys[index].busy = true;
                return index;
            }
        }
    }

    /// Starts one write of some kind; its answer is the version.
    fn start(
        &mut self,
        client: &KvClient,
    ) -> impl Future<Output = (Op, Result<u64, Status>)> + use<> {
        let kind = self.random.below(10);
        let count = if kind == 0 { BATCH } else { 1 };
        let keys: Vec<usize> = (0..count).map(|_| self.idle()).collect();
        self.sequence += 1;
        let (seed, sequence, client) = (self.seed, self.sequence, client.clone());
        let version = self.keys[keys[0]].now.map_or(0, |(_, version)| version);
        let put = move |index: usize, expected_version| PutRequest {
            key: key(index),
            value: value(index, seed, sequence),
            expected_version,
        };
        let deletes = kind == 1;
        async move {
            let result = match kind {
                0 => {
                    let puts = keys.iter().map(|index| put(*index, None)).collect();
                    let answer = client.batch_put(BatchPutRequest { puts }).await;
                    answer.map(|answer| answer.get_ref().version)
                }
                1 => {
                    let request = DeleteRequest { key: key(keys[0]), expected_version: None };
                    client.delete(request).await.map(|_| 0)
                }
                _ => {
                    let expected = (kind < 4).then_some(version);
                    let answer = client.put(put(keys[0], expected)).await;
                    answer.map(|answer| answer.get_ref().version)
                }
            };
            (Op { keys, sequence: (!deletes).then_some(sequence) }, result)
        }
    }

    fn finish(&mut self, op: Op, result: Result<u64, Status>, round: &mut Round) {
        match result {
            Ok(version) => {
                round.acknowledged += 1;
                for index in &op.keys {
                    self.keys[*index].now = op.sequence.map(|sequence| (sequence, version));
                    self.keys[*index].busy = false;
                }
            }
            // The framework's word that it was not executed is held against it.
            Err(status) if status.execution() == Execution::NotExecuted => {
                round.refused += 1;
                op.keys.iter().for_each(|index| self.keys[*index].busy = false);
            }
            Err(status) => {
                assert_eq!(status.execution(), Execution::MaybeExecuted, "{status}");
                round.unanswered += 1;
                for index in &op.keys {
                    self.keys[*index].maybe = Some(op.sequence);
                    self.keys[*index].busy = false;
                }
                self.unanswered.push(op);
            }
        }
    }

    /// Writes until the server is gone.
    async fn load(&mut self, client: &KvClient, round: &mut Round) {
        let mut flight = FuturesUnordered::new();
        let mut gone = false;
        loop {
            while !gone && flight.len() < CALLS {
                flight.push(self.start(client));
            }
            let Some((op, result)) = flight.next().await else { return };
            gone |= result.is_err();
            self.finish(op, result, round);
        }
    }

    /// Looks at all that the server has; panics at the first thing that must not be.
    async fn check(&mut self, client: &KvClient, round: &mut Round) {
        let listed = list(client).await;
        for index in &listed {
            assert!(*index < self.keys.len());
        }
        let gets = (0..self.keys.len()).map(|index| client.get(GetRequest { key: key(index) }));
        // In groups, so that no more is on its way than a server takes at once.
        let mut answers = Vec::with_capacity(self.keys.len());
        let gets: Vec<_> = gets.collect();
        let mut gets = gets.into_iter();
        loop {
            let group: Vec<_> = gets.by_ref().take(32).collect();
            if group.is_empty() {
                break;
            }
            answers.extend(join_all(group).await.into_iter().map(Result::unwrap));
        }
        for (index, answer) in answers.into_iter().enumerate() {
            let found = answer.into_inner();
            assert_eq!(found.found, listed.contains(&index), "key {index}: list and get differ");
            let sequence = found.found.then(|| {
                let sequence = sequence_of(index, self.seed, &found.value);
                sequence.unwrap_or_else(|| panic!("key {index} has a value that nobody wrote"))
            });
            let known = &mut self.keys[index];
            let acknowledged = known.now.map(|(sequence, _)| sequence);
            if sequence == acknowledged {
                let version = known.now.map_or(0, |(_, version)| version);
                assert_eq!(found.version, version, "key {index} has another version");
            } else {
                assert_eq!(
                    known.maybe,
                    Some(sequence),
                    "key {index}: {acknowledged:?} was acknowledged, {sequence:?} is there",
                );
                known.now = sequence.map(|sequence| (sequence, found.version));
            }
        }
        for op in self.unanswered.drain(..) {
            let has = |index: &&usize| {
                self.keys[**index].now.map(|(sequence, _)| sequence) == op.sequence
            };
            let stored = op.keys.iter().filter(has).count();
            assert!(stored == 0 || stored == op.keys.len(), "a batch was stored in part");
            round.stored_all_the_same += usize::from(stored > 0);
        }
        self.keys.iter_mut().for_each(|known| known.maybe = None);
    }
}

/// The keys that a list gives, page after page; each is one of ours, and they are in order.
async fn list(client: &KvClient) -> HashSet<usize> {
    let mut keys = Vec::new();
    let mut page_token = Bytes::new();
    loop {
        let request = ListRequest { prefix: Bytes::new(), page_size: 300, page_token };
        let page = client.list(request).await.unwrap().into_inner();
        for entry in &page.entries {
            keys.push(index_of(&entry.key).expect("a key that nobody wrote"));
        }
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    assert!(keys.is_sorted());
    keys.into_iter().collect()
}

async fn connect(server: &Server) -> KvClient {
    let builder = Channel::builder(&server.addr).timeout(Duration::from_secs(30));
    KvClient::new(builder.connect().await.unwrap())
}

/// Kills a server, from another thread, so that the moment has nothing to do with any answer.
fn kill_after(mut child: Child, delay: Duration) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        thread::sleep(delay); // the moment itself: any is right, a wait for an event would choose one
        child.kill().unwrap();
        child.wait().unwrap();
    })
}

#[test]
fn what_was_acknowledged_outlives_kill_9_and_nothing_else_is_there() {
    let number = |name: &str, default: u64| {
        std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
    };
    let (rounds, seed) = (number("KV_KILL_ROUNDS", 3), number("KV_KILL_SEED", 1));
    let folder = tempfile::tempdir().unwrap();
    let mut model = Model::new(seed);
    let mut moments = Random(!seed);
    let mut total = 0;
    for number in 1..=rounds {
        let mut round = Round::default();
        let began = Instant::now();
        let server = Server::start(&["--data", folder.path().to_str().unwrap()]);
        let started = began.elapsed();
        let delay = Duration::from_micros(100_000 + moments.below(1_400_000));
        rpc_core::block_on(async {
            let client = connect(&server).await;
            model.check(&client, &mut Round::default()).await;
            let killer = kill_after(server.child, delay);
            model.load(&client, &mut round).await;
            killer.join().unwrap();
        });
        let server = Server::start(&["--data", folder.path().to_str().unwrap()]);
        rpc_core::block_on(async {
            model.check(&connect(&server).await, &mut round).await;
        });
        assert!(server.stop().success());
        assert!(round.acknowledged > 0, "nothing was written in {delay:?}");
        total += round.acknowledged;
        let keys = model.keys.iter().filter(|known| known.now.is_some()).count();
        println!(
            "round {number:2}: killed after {:4} ms, {:5} writes acknowledged, {:2} unanswered of which {:2} are stored, {} refused; {keys} keys, none lost, none invented (start {} ms)",
            delay.as_millis(),
            round.acknowledged,
            round.unanswered,
            round.stored_all_the_same,
            round.refused,
            started.as_millis(),
        );
    }
    println!(
        "{rounds} rounds with seed {seed}: {total} acknowledged writes, none lost, none invented"
    );
}
