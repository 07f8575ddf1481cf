//! What both kinds of store do alike, and what only the one on a disk does.

mod files;

use std::collections::BTreeMap;
use std::thread;

use proptest::prelude::*;

use super::*;

fn bytes(text: &[u8]) -> Bytes {
    Bytes::copy_from_slice(text)
}

fn put(key: &[u8], value: &[u8]) -> Write {
    Write { key: bytes(key), expected: None, change: Change::Put(bytes(value)) }
}

fn delete(key: &[u8]) -> Write {
    Write { key: bytes(key), expected: None, change: Change::Delete }
}

fn expect(version: u64, write: Write) -> Write {
    Write { expected: Some(version), ..write }
}

fn write(store: &Store, writes: Vec<Write>) -> Result<Written, Refused> {
    rpc_core::block_on(store.write(writes))
}

fn get(store: &Store, key: &[u8]) -> Option<Versioned> {
    rpc_core::block_on(store.get(bytes(key))).unwrap()
}

fn list(store: &Store, prefix: &[u8], after: Option<&[u8]>, keys_max: usize) -> Page {
    let after = after.map(bytes);
    let range = Range { prefix: bytes(prefix), after, keys_max, bytes_max: 1 << 20 };
    rpc_core::block_on(store.list(range)).unwrap()
}

/// Runs a test on a store of each kind.
fn on_each(bytes_max: u64, test: impl Fn(&Store)) {
    test(&Store::in_memory(bytes_max).unwrap());
    let folder = tempfile::tempdir().unwrap();
    test(&Store::in_folder(folder.path(), bytes_max).unwrap());
}

#[test]
fn versions_grow_and_are_not_used_again_after_a_delete() {
    on_each(1 << 20, |store| {
        let first = write(store, vec![put(b"a", b"1")]).unwrap();
        assert_eq!(first.existed, 0);
        let second = write(store, vec![put(b"a", b"2")]).unwrap();
        assert!(second.version > first.version && second.existed == 1);
        let found = get(store, b"a").unwrap();
        assert_eq!((found.version, &found.value[..]), (second.version, &b"2"[..]));
        assert_eq!(write(store, vec![delete(b"a")]).unwrap().existed, 1);
        assert_eq!(write(store, vec![delete(b"a")]).unwrap().existed, 0);
        assert_eq!(get(store, b"a"), None);
        let third = write(store, vec![put(b"a", b"3")]).unwrap();
        assert!(third.version > second.version);
    });
}

#[test]
fn a_write_with_another_version_than_expected_changes_nothing() {
    on_each(1 << 20, |store| {
        let version = write(store, vec![expect(0, put(b"a", b"1"))]).unwrap().version;
        for (expected, change) in [(0, put(b"a", b"x")), (version + 1, delete(b"a"))] {
            let refused = write(store, vec![expect(expected, change)]);
            let mismatch = Refused::Mismatch { index: 0, expected, current: version };
            assert_eq!(refused, Err(mismatch));
            assert_eq!(get(store, b"a").unwrap().value, &b"1"[..]);
        }
        assert!(write(store, vec![expect(version, put(b"a", b"2"))]).is_ok());
        let absent = write(store, vec![expect(9, put(b"b", b""))]);
        assert_eq!(absent, Err(Refused::Mismatch { index: 0, expected: 9, current: 0 }));
        assert_eq!(write(store, vec![expect(0, delete(b"b"))]).unwrap().existed, 0);
    });
}

#[test]
fn a_batch_is_done_whole_or_not_at_all() {
    on_each(1 << 20, |store| {
        let version = write(store, vec![put(b"a", b"1")]).unwrap().version;
        let refused = write(store, vec![put(b"b", b"x"), expect(7, put(b"a", b"x"))]);
        assert_eq!(refused, Err(Refused::Mismatch { index: 1, expected: 7, current: version }));
        assert_eq!(get(store, b"b"), None);
        assert_eq!(get(store, b"a").unwrap().version, version);
        let written = write(store, vec![put(b"b", b"2"), put(b"a", b"2"), put(b"c", b"2")]);
        let written = written.unwrap();
        assert_eq!(written.existed, 1);
        let keys = vec![bytes(b"c"), bytes(b"nothing"), bytes(b"a")];
        let values = rpc_core::block_on(store.get_many(keys, 1 << 20)).unwrap();
        let value = Some(Versioned { version: written.version, value: bytes(b"2") });
        assert_eq!(values, [value.clone(), None, value]);
    });
}

#[test]
fn a_full_store_refuses_until_something_is_deleted() {
    on_each(cost(1, 4), |store| {
        assert!(write(store, vec![put(b"a", b"full")]).is_ok());
        let refused = write(store, vec![put(b"b", b"")]);
        assert_eq!(refused, Err(Refused::Full { bytes_max: cost(1, 4) }));
        write(store, vec![delete(b"a")]).unwrap();
        assert!(write(store, vec![put(b"b", b"")]).is_ok());
        assert_eq!((store.usage().keys, store.usage().value_bytes), (1, 0));
    });
}

#[test]
fn keys_are_listed_in_order_a_page_at_a_time() {
    on_each(1 << 20, |store| {
        let keys: Vec<Vec<u8>> = (0..100_u8).map(|i| vec![b'k', i]).collect();
        write(store, keys.iter().rev().map(|key| put(key, key)).collect()).unwrap();
        write(store, vec![put(b"j", b""), put(b"l", b""), put(b"k", b"")]).unwrap();
        let mut seen = Vec::new();
        let mut after = None;
        loop {
            let page = list(store, b"k", after.as_deref(), 7);
            assert!(page.entries.len() == 7 || !page.more);
            seen.extend(page.entries.iter().map(|listed| listed.key.to_vec()));
            after = seen.last().cloned();
            if !page.more {
                break;
            }
        }
        assert_eq!(seen[0], b"k");
        assert_eq!(seen[1..], keys);
        assert_eq!(list(store, b"nothing", None, 7), Page::default());
        let page = list(store, b"k", Some(b"k\x05"), 1);
        assert_eq!((&page.entries[0].key[..], page.entries[0].value_len), (&b"k\x06"[..], 2));
    });
}

#[test]
fn a_page_is_bounded_in_bytes_and_has_at_least_one_key() {
    on_each(1 << 20, |store| {
        write(store, vec![put(&[1; 100], b""), put(&[2; 100], b""), put(&[3; 100], b"")]).unwrap();
        let page = |bytes_max| {
            let range = Range { prefix: Bytes::new(), after: None, keys_max: 9, bytes_max };
            rpc_core::block_on(store.list(range)).unwrap()
        };
        assert_eq!((page(1).entries.len(), page(1).more), (1, true));
        assert_eq!((page(150).entries.len(), page(150).more), (2, true));
        assert_eq!((page(500).entries.len(), page(500).more), (3, false));
    });
}

#[test]
fn a_batch_of_long_values_ends_where_a_message_would_be_too_long() {
    on_each(1 << 20, |store| {
        write(store, vec![put(b"a", &[1; 600]), put(b"b", &[2; 600])]).unwrap();
        let keys = vec![bytes(b"a"), bytes(b"none"), bytes(b"b")];
        let answered = |max| rpc_core::block_on(store.get_many(keys.clone(), max)).unwrap().len();
        assert_eq!((answered(1_200), answered(1_199), answered(10)), (3, 2, 2));
    });
}

/// Lengths around those where a value is stored in another way.
const LENGTHS: [usize; 9] = [0, 1, 1023, 1024, 1025, 262_015, 262_016, 262_017, 600_000];

#[test]
fn values_of_every_kind_of_length_come_back_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let value = |len: usize| Bytes::from((0..len).map(|i| (i % 251) as u8).collect::<Vec<_>>());
    let (id, written) = {
        let store = Store::in_folder(folder.path(), u64::MAX).unwrap();
        let puts = LENGTHS.map(|len| put(&len.to_le_bytes(), &value(len)));
        let written = write(&store, puts.to_vec()).unwrap();
        (store.usage().id, written)
    };
    let store = Store::in_folder(folder.path(), u64::MAX).unwrap();
    let usage = store.usage();
    assert_eq!((usage.id, usage.keys), (id, 9));
    assert_eq!(usage.value_bytes, LENGTHS.iter().sum::<usize>() as u64);
    for len in LENGTHS {
        let found = get(&store, &len.to_le_bytes()).unwrap();
        assert_eq!(found.version, written.version);
        assert!(found.value == value(len), "{len}");
    }
    assert!(write(&store, vec![put(b"x", b"")]).unwrap().version > written.version);
    // Shorter, longer and no value in place of each: nothing of the old ones is left.
    let from = LENGTHS.map(|len| put(&len.to_le_bytes(), &value(600_000 - len)));
    write(&store, from.to_vec()).unwrap();
    for len in LENGTHS {
        assert!(get(&store, &len.to_le_bytes()).unwrap().value == value(600_000 - len), "{len}");
    }
    write(&store, LENGTHS.map(|len| delete(&len.to_le_bytes())).to_vec()).unwrap();
    assert_eq!((store.usage().keys, store.usage().value_bytes), (1, 0));
}

#[test]
fn writes_that_wait_together_share_a_commit() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::in_folder(folder.path(), u64::MAX).unwrap();
    thread::scope(|scope| {
        for thread in 0..4_u8 {
            let store = &store;
            scope.spawn(move || {
                let writes = (0..100_u8).map(|i| store.write(vec![put(&[thread, i], &[i; 100])]));
                let all = futures_util::future::join_all(writes);
                assert!(rpc_core::block_on(all).iter().all(Result::is_ok));
            });
        }
    });
    let usage = store.usage();
    assert_eq!((usage.keys, usage.writes), (400, 400));
    assert!(usage.commits < 200, "{} commits", usage.commits);
}

/// One thing done to a store and to its model.
#[derive(Clone, Debug)]
enum Step {
    Put { key: u8, len: usize, expect: Option<bool> },
    Delete { key: u8, expect: Option<bool> },
    Batch { keys: Vec<u8>, wrong: bool },
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let expect = || proptest::option::of(any::<bool>());
    let len = prop_oneof![0..2_000_usize, 260_000..270_000_usize];
    let step = prop_oneof![
        4 => (0..8_u8, len, expect()).prop_map(|(key, len, expect)| Step::Put { key, len, expect }),
        2 => (0..8_u8, expect()).prop_map(|(key, expect)| Step::Delete { key, expect }),
        1 => (proptest::collection::btree_set(0..8_u8, 1..5), any::<bool>())
            .prop_map(|(keys, wrong)| Step::Batch { keys: keys.into_iter().collect(), wrong }),
        1 => Just(Step::Reopen),
    ];
    proptest::collection::vec(step, 1..24)
}

type Model = BTreeMap<Vec<u8>, Versioned>;

/// Does a step; the model follows what the answer says, and the answer what the model says.
fn step(store: &Store, model: &mut Model, step: &Step, seed: u8) -> Result<(), TestCaseError> {
    let version = |model: &Model, key: u8| model.get(&vec![key]).map_or(0, |found| found.version);
    let expected = |model: &Model, key: u8, right: bool| {
        let now = version(model, key);
        if right { now } else { now + 1 }
    };
    let (writes, right) = match step {
        Step::Put { key, len, expect } => {
            let expected = expect.map(|right| expected(model, *key, right));
            let change = Change::Put(vec![seed; *len].into());
            (vec![Write { key: bytes(&[*key]), expected, change }], expect.unwrap_or(true))
        }
        Step::Delete { key, expect } => {
            let expected = expect.map(|right| expected(model, *key, right));
            let write = Write { key: bytes(&[*key]), expected, change: Change::Delete };
            (vec![write], expect.unwrap_or(true))
        }
        Step::Batch { keys, wrong } => {
            let mut writes: Vec<_> = keys.iter().map(|key| put(&[*key], &[seed; 3])).collect();
            if *wrong && let (Some(last), Some(key)) = (writes.last_mut(), keys.last()) {
                last.expected = Some(expected(model, *key, false));
            }
            (writes, !wrong)
        }
        Step::Reopen => return Ok(()),
    };
    let before = model.clone();
    let result = write(store, writes.clone());
    prop_assert_eq!(result.is_ok(), right);
    let Ok(written) = result else { return Ok(()) };
    let existed = writes.iter().filter(|write| before.contains_key(&write.key.to_vec())).count();
    prop_assert_eq!(written.existed, existed as u64);
    for Write { key, change, .. } in writes {
        match change {
            Change::Put(value) => {
                let newest = before.values().map(|found| found.version).max().unwrap_or(0);
                prop_assert!(written.version > newest);
                model.insert(key.to_vec(), Versioned { version: written.version, value });
            }
            Change::Delete => _ = model.remove(&key.to_vec()),
        }
    }
    Ok(())
}

fn agrees(store: &Store, model: &Model) -> Result<(), TestCaseError> {
    let page = list(store, b"", None, 100);
    let listed: Vec<_> = page.entries.iter().map(|listed| listed.key.to_vec()).collect();
    prop_assert_eq!(listed, model.keys().cloned().collect::<Vec<_>>());
    for (key, found) in model {
        prop_assert!(get(store, key).as_ref() == Some(found));
    }
    let value_bytes: usize = model.values().map(|found| found.value.len()).sum();
    let usage = store.usage();
    let expected = (model.len() as u64, value_bytes as u64);
    prop_assert_eq!((usage.keys, usage.value_bytes), expected);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_store_does_what_a_map_does(steps in steps()) {
        let folder = tempfile::tempdir().unwrap();
        let memory = Store::in_memory(u64::MAX).unwrap();
        let mut disk = Some(Store::in_folder(folder.path(), u64::MAX).unwrap());
        let (mut in_memory, mut on_disk) = (Model::new(), Model::new());
        for (seed, next) in (0..).zip(&steps) {
            if matches!(next, Step::Reopen) {
                drop(disk.take());
                disk = Some(Store::in_folder(folder.path(), u64::MAX).unwrap());
            }
            step(&memory, &mut in_memory, next, seed)?;
            step(disk.as_ref().unwrap(), &mut on_disk, next, seed)?;
        }
        agrees(&memory, &in_memory)?;
        agrees(disk.as_ref().unwrap(), &on_disk)?;
    }
}
