//! Payload memory as a whole: the pool, its cores, and payloads in many hands.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};
use std::thread;

use bytes::Bytes;
use proptest::prelude::*;

use super::payload::POISON;
use super::*;
use crate::verbs::Lkey;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

fn pool(budget_bytes: usize) -> Pool {
    Pool::new(PoolConfig::new(budget_bytes as u64)).unwrap()
}

fn request(pool: &Pool, len: usize) -> PayloadMut {
    pool.alloc(Share::Outbound, Use::Request, len).unwrap()
}

/// Everything came home: nothing is in use, and every mapped byte is free again.
fn assert_all_home(pool: &Pool, cached: u64) {
    let usage = pool.usage();
    assert_eq!((usage.inbound, usage.outbound, usage.held_by_users), (0, 0, 0), "{usage:?}");
    assert_eq!(usage.free + cached, usage.mapped, "{usage:?}");
}

#[test]
fn payloads_are_page_aligned_and_begin_as_zeros() {
    let pool = pool(8 * MIB);
    let mut all = Vec::new();
    for len in [0, 1, 4095, 4096, 4097, 70_000] {
        let mut payload = request(&pool, len);
        assert_eq!(payload.len(), len);
        assert_eq!(payload.as_ptr().addr() % 4096, 0, "{len}");
        assert!(payload.iter().all(|byte| *byte == 0), "fresh arenas are zeros");
        payload.fill(7);
        all.push(payload);
    }
}

#[test]
fn a_dropped_block_is_used_again_before_memory_grows() {
    let pool = pool(8 * MIB);
    let first = request(&pool, 10_000).placement();
    for _ in 0..100 {
        assert_eq!(request(&pool, 16_000).placement().addr, first.addr);
    }
    assert_eq!(pool.usage().mapped, GRANULE_BYTES as u64);
}

#[test]
fn poison_shows_a_reader_of_bytes_it_did_not_write() {
    let mut config = PoolConfig::new(BUDGET_BYTES_MIN);
    config.poison = true;
    let pool = Pool::new(config).unwrap();
    request(&pool, 4096).fill(1);
    assert!(request(&pool, 4096).iter().all(|byte| *byte == POISON));
}

#[test]
fn a_wholly_free_arena_serves_another_class_of_its_size() {
    let pool = pool(8 * MIB);
    drop(request(&pool, 4096));
    drop(request(&pool, MIB));
    drop(request(&pool, 64 * KIB));
    assert_eq!(pool.usage().mapped, GRANULE_BYTES as u64);

    let holds_one_page = request(&pool, 4096);
    drop(request(&pool, 64 * KIB));
    assert_eq!(pool.usage().mapped, 2 * GRANULE_BYTES as u64, "an arena in use stays as it is");
    drop(holds_one_page);
    assert_all_home(&pool, 0);
}

#[test]
fn a_large_block_lies_in_an_arena_of_its_own() {
    let pool = pool(if cfg!(miri) { 16 * MIB } else { 256 * MIB });
    let len = if cfg!(miri) { 4 * MIB } else { 64 * MIB };
    let mut large = request(&pool, len);
    let small = request(&pool, 4096);
    assert_ne!(large.arena(), small.arena());
    *large.last_mut().unwrap() = 9;
    let region = pool.region(large.arena());
    assert_eq!((region.addr(), region.len()), (large.placement().addr, len));
    let frozen = large.freeze();
    assert_eq!(pool.locate(&frozen).map(|at| at.len as usize), Some(len));
    assert_eq!(frozen.last(), Some(&9));
}

#[test]
fn the_budget_counts_whole_blocks_and_remembers_its_peak() {
    let pool = pool(8 * MIB);
    let a = pool.alloc(Share::Outbound, Use::Request, 9_000).unwrap();
    let b = pool.alloc(Share::Inbound, Use::Response, 5_000).unwrap();
    assert_eq!((a.block_bytes(), b.block_bytes()), (16 << 10, 8 << 10));
    let usage = pool.usage();
    assert_eq!((usage.outbound, usage.outbound_responses), (16 << 10, 0));
    assert_eq!((usage.inbound, usage.inbound_responses), (8 << 10, 8 << 10));
    drop((a, b));
    let usage = pool.usage();
    assert_eq!((usage.outbound, usage.inbound, usage.peak), (0, 0, 24 << 10));
}

#[test]
fn requests_leave_a_quarter_of_each_share_to_responses() {
    let pool = pool(8 * MIB);
    let fill = |purpose| {
        std::iter::from_fn(|| pool.alloc(Share::Inbound, purpose, 64 * KIB).ok())
            .collect::<Vec<_>>()
    };
    let requests = fill(Use::Request);
    assert_eq!(requests.len(), 3 * MIB / (64 * KIB));
    let responses = fill(Use::Response);
    assert_eq!(responses.len(), MIB / (64 * KIB));
    let refused = pool.alloc(Share::Inbound, Use::Response, 1).unwrap_err();
    assert!(matches!(refused, MemError::Full(full) if full.share == Share::Inbound));
    assert_eq!(request(&pool, MIB).len(), MIB, "the other share is not touched");

    drop(requests);
    assert_eq!(fill(Use::Response).len(), 3 * MIB / (64 * KIB), "responses may use it all");
}

#[test]
fn a_message_larger_than_its_share_is_refused_with_the_budget_it_needs() {
    let pool = pool(8 * MIB);
    let refused = pool.alloc(Share::Outbound, Use::Request, 3 * MIB + 1).unwrap_err();
    let MemError::LargerThanShare { len, needed, share_bytes, budget_bytes_min, .. } = refused
    else {
        panic!("{refused}");
    };
    assert_eq!((len, needed, share_bytes), (3 << 20 | 1, 4 << 20, 3 << 20));
    let enough = Budget::new(budget_bytes_min);
    assert!(enough.check(Share::Outbound, Use::Request, len, needed).is_ok());
    assert!(pool.alloc(Share::Outbound, Use::Response, 3 * MIB + 1).is_ok());

    let pieces = [2 << 20, 1 << 20, 1];
    assert!(matches!(
        pool.alloc_all(Share::Outbound, Use::Request, &pieces),
        Err(MemError::LargerThanShare { needed: 3_149_824, .. })
    ));
    assert!(matches!(
        pool.alloc(Share::Inbound, Use::Request, BLOCK_BYTES_MAX + 1),
        Err(MemError::TooLong { .. })
    ));
}

#[test]
fn pieces_are_had_all_or_none() {
    let pool = pool(8 * MIB);
    let mut cache = pool.core_cache();
    let some = cache.alloc_all(Share::Inbound, Use::Request, &[2 << 20, 5000, 1]).unwrap();
    assert_eq!(some.iter().map(|piece| piece.len()).collect::<Vec<_>>(), [2 << 20, 5000, 1]);
    let before = pool.usage().inbound;
    assert_eq!(before, (2 << 20) + 8192 + 4096);
    let refused = pool.alloc_all(Share::Inbound, Use::Request, &[4096, 1 << 20]).unwrap_err();
    assert!(matches!(refused, MemError::Full(_)));
    assert_eq!(pool.usage().inbound, before);
}

#[test]
fn freezing_keeps_the_block_until_the_last_clone_and_slice_is_gone() {
    let pool = pool(8 * MIB);
    let mut payload = request(&pool, 20_000);
    payload[..5].copy_from_slice(b"hello");
    payload.truncate(10_000);
    let ptr = payload.as_ptr();
    let bytes = payload.freeze();
    assert_eq!((bytes.as_ptr(), bytes.len()), (ptr, 10_000), "no copy");
    let clone = bytes.clone();
    let slice = bytes.slice(1..3);
    drop(bytes);
    drop(clone);
    assert_eq!(pool.usage().outbound, 32 << 10);
    assert_eq!(&slice[..], b"el");
    let at = pool.locate(&slice).unwrap();
    assert_eq!((at.addr, at.len), (ptr.addr() as u64 + 1, 2));
    drop(slice);
    assert_all_home(&pool, 0);
    assert!(request(&pool, 0).freeze().is_empty());
    assert_all_home(&pool, 0);
}

#[test]
fn only_bytes_inside_one_arena_are_located() {
    let pool = pool(8 * MIB);
    let (a, b) = (request(&pool, MIB), request(&pool, MIB));
    let c = request(&pool, MIB);
    assert_eq!(a.arena(), b.arena());
    assert_ne!(b.arena(), c.arena());
    let range = &pool.shared().range;
    let (first, last) = (pool.region(a.arena()), pool.region(c.arena()));
    let base = first.ptr().as_ptr().cast_const();
    assert_eq!(range.locate(base, GRANULE_BYTES), Some(a.arena()));
    assert_eq!(range.locate(base, GRANULE_BYTES + 1), None, "straddles two arenas");
    assert_eq!(range.locate(base.wrapping_sub(1), 1), None, "before the range");
    assert_eq!(range.locate(base, 0), None, "nothing lies nowhere");
    assert_eq!(range.locate(base, usize::MAX), None, "wraps");
    let end = last.ptr().as_ptr().wrapping_add(last.len()).cast_const();
    assert_eq!(range.locate(end, 1), None, "reserved, but no arena yet");
    for foreign in [Bytes::from_static(b"static"), Bytes::from(vec![0; 5000]), Bytes::new()] {
        assert_eq!(pool.locate(&foreign), None);
    }
    assert_eq!(self::pool(8 * MIB).locate(&a.freeze()), None, "another pool's memory is foreign");
}

#[test]
fn a_work_request_cannot_name_bytes_outside_of_its_payload() {
    let pool = pool(8 * MIB);
    let payload = request(&pool, 10_000);
    let key = Lkey(1);
    assert_eq!(payload.sge(0, 10_000, key).map(|sge| sge.len()), Some(10_000));
    assert_eq!(payload.sge(9_999, 1, key).map(|sge| sge.len()), Some(1));
    assert_eq!(payload.sge(1, 10_000, key), None);
    assert_eq!(payload.sge(u32::MAX, 2, key), None);
    let sge = payload.sge(4096, 100, key).unwrap();
    assert_eq!(sge.addr, payload.as_ptr().addr() as u64 + 4096);
}

#[test]
fn blocks_come_home_from_other_threads() {
    let pool = pool(8 * MIB);
    let mut cache = pool.core_cache();
    let payloads: Vec<_> =
        (0..8).map(|_| cache.alloc(Share::Inbound, Use::Request, 4096).unwrap()).collect();
    let mut addresses: Vec<_> = payloads.iter().map(|payload| payload.placement().addr).collect();
    let frozen = payloads.into_iter().map(PayloadMut::freeze);
    let threads: Vec<_> = frozen.map(|bytes| thread::spawn(move || drop(bytes))).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());

    assert_eq!(pool.usage().inbound, 0);
    assert!(cache.has_returns());
    assert_eq!(cache.collect(), 8);
    assert!(!cache.has_returns());
    let again: Vec<_> =
        (0..8).map(|_| cache.alloc(Share::Inbound, Use::Request, 4096).unwrap()).collect();
    let mut again: Vec<_> = again.iter().map(|payload| payload.placement().addr).collect();
    addresses.sort_unstable();
    again.sort_unstable();
    assert_eq!(addresses, again, "the core's own blocks");
}

#[test]
fn a_core_keeps_no_more_than_its_bound() {
    let pool = pool(8 * MIB);
    let mut cache = pool.core_cache();
    let bound = 8 * MIB as u64 / WAITERS_MAX as u64;
    let many: Vec<_> =
        (0..400).map(|_| cache.alloc(Share::Inbound, Use::Request, 4096).unwrap()).collect();
    drop(many);
    assert_eq!(cache.collect(), 400);
    assert!(cache.free_bytes() <= bound, "{} > {bound}", cache.free_bytes());
    assert!(cache.free_bytes() > 0);
    drop(cache.alloc(Share::Inbound, Use::Request, MIB).unwrap());
    cache.collect();
    assert!(cache.free_bytes() <= bound, "blocks above the bound are not kept at all");
    assert_all_home(&pool, cache.free_bytes());
}

#[test]
fn an_idle_core_does_not_keep_returned_blocks_from_others() {
    let pool = pool(8 * MIB);
    let mut idle = pool.core_cache();
    drop(idle.alloc(Share::Outbound, Use::Request, 2 * MIB).unwrap());
    assert!(idle.has_returns());
    drop(request(&pool, 2 * MIB));
    assert_eq!(pool.usage().mapped, 2 << 20, "taken from the idle core's list");
    assert!(!idle.has_returns());
}

#[test]
fn blocks_outlive_the_core_they_were_taken_by() {
    let pool = pool(8 * MIB);
    let mut cache = pool.core_cache();
    let held = cache.alloc(Share::Inbound, Use::Request, 4096).unwrap().freeze();
    let listed = cache.alloc(Share::Inbound, Use::Request, 4096).unwrap();
    drop(listed);
    drop(cache);
    assert_eq!(held.len(), 4096);
    drop(held);
    assert_all_home(&pool, 0);
}

#[test]
fn payloads_outlive_every_handle_of_their_pool() {
    let pool = pool(8 * MIB);
    let mut payload = request(&pool, 4096);
    payload.fill(3);
    drop(pool);
    let bytes = payload.freeze();
    assert!(bytes.iter().all(|byte| *byte == 3));
}

#[test]
fn a_core_that_dies_while_blocks_are_dropped_loses_none() {
    let pool = pool(8 * MIB);
    for _ in 0..if cfg!(miri) { 3 } else { 200 } {
        let mut cache = pool.core_cache();
        let payloads: Vec<_> =
            (0..16).map(|_| cache.alloc(Share::Inbound, Use::Request, 4096).unwrap()).collect();
        let dropper = thread::spawn(move || drop(payloads));
        drop(cache);
        dropper.join().unwrap();
        assert_all_home(&pool, 0);
    }
}

#[test]
fn who_hoards_received_payloads_gets_copies() {
    let pool = pool(8 * MIB);
    let receive = || pool.alloc(Share::Inbound, Use::Response, 64 * KIB).unwrap();
    let hoard: Vec<_> = (0..32).map(|_| pool.deliver(receive())).collect();
    assert!(hoard.iter().all(|bytes| pool.locate(bytes).is_some()));
    let usage = pool.usage();
    assert_eq!((usage.held_by_users, usage.delivered_as_copies), (2 << 20, 0));

    let mut payload = receive();
    payload.fill(5);
    let copy = pool.deliver(payload);
    assert_eq!(pool.locate(&copy), None);
    assert!(copy.iter().all(|byte| *byte == 5));
    let usage = pool.usage();
    assert_eq!((usage.inbound, usage.delivered_as_copies), (2 << 20, 1));

    drop(hoard);
    assert!(pool.locate(&pool.deliver(receive())).is_some());
    assert_all_home(&pool, 0);
}

struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn memory_that_comes_back_wakes_who_waits_once() {
    let pool = pool(8 * MIB);
    let cache = pool.core_cache();
    let count = Arc::new(Count(AtomicUsize::new(0)));
    let waker = Waker::from(Arc::clone(&count));
    let (a, b) = (request(&pool, 4096), request(&pool, 4096));
    cache.wait_for_memory(&waker);
    assert_eq!(count.0.load(Ordering::SeqCst), 0);
    thread::spawn(move || drop(a)).join().unwrap();
    assert_eq!(count.0.load(Ordering::SeqCst), 1);
    drop(b);
    assert_eq!(count.0.load(Ordering::SeqCst), 1);
}

#[test]
fn a_budget_that_is_too_small_is_refused() {
    assert!(matches!(Pool::new(PoolConfig::new(BUDGET_BYTES_MIN - 1)), Err(MemError::Config(_))));
    assert!(matches!(Pool::new(PoolConfig::new(u64::MAX)), Err(MemError::Config(_))));
}

#[test]
fn nothing_printed_shows_an_address() {
    let pool = pool(8 * MIB);
    let payload = request(&pool, 4096);
    let address = payload.as_ptr().addr();
    for text in [
        format!("{pool:?} {payload:?} {:?}", payload.placement()),
        format!("{:?} {:?}", payload.sge(0, 1, Lkey(1)), pool.region(payload.arena())),
    ] {
        assert!(!text.contains(&format!("{address:x}")) && !text.contains(&address.to_string()));
    }
}

/// One step of a random history. `who`: 0 and 1 are cores, 2 is the pool itself.
#[derive(Clone, Debug)]
enum Step {
    Alloc { who: usize, inbound: bool, response: bool, len: usize },
    Drop(usize),
    Freeze(usize),
    Collect(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let len = prop_oneof![
        4 => 1..20_000usize,
        2 => 20_000..300_000usize,
        1 => 300_000..(3 * MIB),
    ];
    prop_oneof![
        5 => (0..3usize, any::<bool>(), any::<bool>(), len)
            .prop_map(|(who, inbound, response, len)| Step::Alloc { who, inbound, response, len }),
        4 => any::<usize>().prop_map(Step::Drop),
        1 => any::<usize>().prop_map(Step::Freeze),
        1 => (0..2usize).prop_map(Step::Collect),
    ]
}

/// A live buffer of the model: what it should contain, and what it is charged.
struct Live {
    bytes: Result<PayloadMut, Bytes>,
    share: Share,
    block: u64,
    tag: u8,
}

impl Live {
    fn slice(&self) -> &[u8] {
        match &self.bytes {
            Ok(payload) => payload,
            Err(bytes) => bytes,
        }
    }
}

fn check_model(pool: &Pool, live: &[Live]) {
    let usage = pool.usage();
    let sum = |share| live.iter().filter(|l| l.share == share).map(|l| l.block).sum::<u64>();
    assert_eq!((usage.inbound, usage.outbound), (sum(Share::Inbound), sum(Share::Outbound)));
    let mut spans: Vec<_> =
        live.iter().map(|l| (l.slice().as_ptr().addr() as u64, l.block)).collect();
    spans.sort_unstable();
    assert!(spans.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0), "blocks overlap");
    for buffer in live {
        let bytes = buffer.slice();
        assert!(bytes.first() == Some(&buffer.tag) && bytes.last() == Some(&buffer.tag));
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 1 } else { 64 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_history_keeps_blocks_apart_and_brings_them_home(
        steps in proptest::collection::vec(step(), 1..if cfg!(miri) { 12 } else { 200 }),
    ) {
        let pool = pool(8 * MIB);
        let mut cores = [pool.core_cache(), pool.core_cache()];
        let mut live: Vec<Live> = Vec::new();
        for (n, step) in steps.into_iter().enumerate() {
            match step {
                Step::Alloc { who, inbound, response, len } => {
                    let share = if inbound { Share::Inbound } else { Share::Outbound };
                    let purpose = if response { Use::Response } else { Use::Request };
                    let taken = match cores.get_mut(who) {
                        Some(core) => core.alloc(share, purpose, len),
                        None => pool.alloc(share, purpose, len),
                    };
                    match taken {
                        Ok(mut payload) => {
                            let tag = n as u8;
                            payload[0] = tag;
                            payload[len - 1] = tag;
                            let block = payload.block_bytes();
                            live.push(Live { bytes: Ok(payload), share, block, tag });
                        }
                        Err(MemError::Full(_) | MemError::LargerThanShare { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
                Step::Drop(at) if !live.is_empty() => {
                    live.swap_remove(at % live.len());
                }
                Step::Freeze(at) if !live.is_empty() => {
                    let mut chosen = live.swap_remove(at % live.len());
                    chosen.bytes = Err(chosen.bytes.map_or_else(|bytes| bytes, PayloadMut::freeze));
                    live.push(chosen);
                }
                Step::Drop(_) | Step::Freeze(_) => {}
                Step::Collect(core) => {
                    cores[core].collect();
                }
            }
            check_model(&pool, &live);
        }
        drop(live);
        let cached = cores.iter_mut().map(|core| { core.collect(); core.free_bytes() }).sum();
        assert_all_home(&pool, cached);
        drop(cores);
        assert_all_home(&pool, 0);
    }
}
