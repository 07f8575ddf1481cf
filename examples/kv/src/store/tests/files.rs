//! Files that are somebody else's, of another format, unfinished or damaged.

use std::path::Path;

use redb::ReadableTable;

use super::*;

#[test]
fn a_folder_that_another_server_has_is_refused_in_words() {
    let folder = tempfile::tempdir().unwrap();
    let _store = Store::in_folder(folder.path(), u64::MAX).unwrap();
    let refused = Store::in_folder(folder.path(), u64::MAX).err().unwrap();
    assert!(refused.to_string().contains("is in use"), "{refused}");
}

#[test]
fn a_file_that_is_not_ours_is_refused_in_words() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("kv.redb"), b"something else, and long enough").unwrap();
    let refused = Store::in_folder(folder.path(), u64::MAX).err().unwrap();
    assert!(refused.to_string().contains("kv.redb cannot be used"), "{refused}");
}

#[test]
fn a_folder_that_is_a_file_is_refused_in_words() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let refused = Store::in_folder(file.path(), u64::MAX).err().unwrap();
    assert!(refused.to_string().contains("it is no folder"), "{refused}");
}

#[test]
fn what_a_killed_first_start_leaves_is_made_anew() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("a/b/c");
    std::fs::create_dir_all(&folder).unwrap();
    // The length of redb's first file, without the magic number that it writes last.
    std::fs::write(folder.join("kv.redb.new"), vec![0; 73_728]).unwrap();
    std::fs::write(folder.join("kv.redb"), b"").unwrap();
    let store = Store::in_folder(&folder, u64::MAX).unwrap();
    write(&store, vec![put(b"a", b"1")]).unwrap();
    drop(store);
    assert!(!folder.join("kv.redb.new").exists());
    let store = Store::in_folder(&folder, u64::MAX).unwrap();
    assert_eq!(&get(&store, b"a").unwrap().value[..], b"1");
    let fresh = parent.path().join("d/e/f");
    assert!(Store::in_folder(&fresh, u64::MAX).is_ok());
}

/// Asserts that a file of redb, as `change` makes it, is refused and left as it is.
fn refused_and_left(change: impl FnOnce(&redb::WriteTransaction), words: &str) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kv.redb");
    let file = redb::Database::create(&path).unwrap();
    let transaction = file.begin_write().unwrap();
    change(&transaction);
    transaction.commit().unwrap();
    drop(file);
    let refused = Store::in_folder(folder.path(), u64::MAX).err().unwrap();
    assert!(refused.to_string().contains(words), "{refused}");
    let file = redb::Database::open(&path).unwrap();
    let tables = redb::ReadableDatabase::begin_read(&file).unwrap();
    assert_eq!(tables.list_tables().unwrap().count(), 1);
}

#[test]
fn a_file_of_another_format_or_program_is_refused_and_left_as_it_is() {
    let other_format = |transaction: &redb::WriteTransaction| {
        let mut meta = transaction.open_table(format::META).unwrap();
        meta.insert("format", &[format::FORMAT + 1][..]).unwrap();
        meta.insert("id", &[0; 16][..]).unwrap();
    };
    refused_and_left(other_format, "another version of kv");
    let table = redb::TableDefinition::<u64, u64>::new("theirs");
    refused_and_left(|transaction| _ = transaction.open_table(table).unwrap(), "another program");
    let table = redb::TableDefinition::<u64, u64>::new("meta");
    refused_and_left(|transaction| _ = transaction.open_table(table).unwrap(), "another program");
}

/// Changes what lies in a store's file, which no server has open.
fn in_file(folder: &Path, change: impl FnOnce(&redb::WriteTransaction)) {
    let file = redb::Database::create(folder.join("kv.redb")).unwrap();
    let transaction = file.begin_write().unwrap();
    change(&transaction);
    transaction.commit().unwrap();
}

/// An entry as format 1 has it.
fn first_format(version: u8, kind: u8, rest: &[u8]) -> Vec<u8> {
    [&[version, 0, 0, 0, 0, 0, 0, 0, kind], rest].concat()
}

fn damaged<T>(index: usize, key: &'static [u8]) -> Result<T, Refused> {
    Err(Refused::ValueDamaged { index, key: Bytes::from_static(key) })
}

#[test]
fn a_damaged_entry_is_told_of_stops_no_other_read_or_write_and_can_be_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::in_folder(folder.path(), u64::MAX).unwrap();
    write(&store, vec![put(b"good", b"1")]).unwrap();
    drop(store);
    let apart = |len| format::apart(b"none", 1, 0, 0, len);
    in_file(folder.path(), |transaction| {
        let mut entries = transaction.open_table(format::ENTRIES).unwrap();
        entries.insert(&b"long"[..], &apart(u64::MAX)[..]).unwrap();
        entries.insert(&b"none"[..], &apart(5_000)[..]).unwrap();
    });
    let store = Store::in_folder(folder.path(), u64::MAX).unwrap();
    for _ in 0..3 {
        for key in [&b"long"[..], b"none"] {
            let found = rpc_core::block_on(store.get(bytes(key)));
            assert_eq!(found, damaged(0, key));
        }
    }
    let keys = vec![bytes(b"good"), bytes(b"none")];
    assert_eq!(rpc_core::block_on(store.get_many(keys, 1 << 20)), damaged(1, b"none"));
    assert_eq!(&get(&store, b"good").unwrap().value[..], b"1");
    let page = list(&store, b"", None, 9);
    let versions: Vec<u64> = page.entries.iter().map(|listed| listed.version).collect();
    assert_eq!(versions, [1, 0, 1]); // good, long, none
    let expecting = |mut write: Write| {
        write.expected = Some(1);
        write
    };
    let refused = write(&store, vec![put(b"other", b""), expecting(put(b"long", b""))]);
    assert_eq!(refused, damaged(1, b"long"));
    assert_eq!(get(&store, b"other"), None);
    assert_eq!(write(&store, vec![put(b"long", b"new")]).unwrap().existed, 1);
    assert_eq!(write(&store, vec![delete(b"none")]).unwrap().existed, 1);
    assert_eq!(&get(&store, b"long").unwrap().value[..], b"new");
    assert_eq!(get(&store, b"none"), None);
    assert!(write(&store, vec![put(b"good", b"2")]).is_ok());
}

#[test]
fn a_value_that_changed_in_the_file_is_never_given_out() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::in_folder(folder.path(), u64::MAX).unwrap();
    let long = vec![7; 600_000];
    let puts =
        vec![put(b"short", b"value"), put(b"long", &long), put(b"moved", b"x"), put(b"a", b"")];
    write(&store, puts).unwrap();
    drop(store);
    in_file(folder.path(), |transaction| {
        let mut entries = transaction.open_table(format::ENTRIES).unwrap();
        let of = |key: &[u8]| entries.get(key).unwrap().unwrap().value().to_vec();
        let (mut short, moved) = (of(b"short"), of(b"moved"));
        *short.last_mut().unwrap() ^= 1;
        entries.insert(&b"short"[..], &short[..]).unwrap();
        entries.insert(&b"elsewhere"[..], &moved[..]).unwrap();
        entries.insert(&b"unsummed"[..], &first_format(1, 0, b"x")[..]).unwrap();
        let mut pieces = transaction.open_table(format::PIECES).unwrap();
        let mut piece = pieces.get((1, 1, 2)).unwrap().unwrap().value().to_vec();
        let at = piece.len() / 2;
        piece[at..][..4].copy_from_slice(&[0; 4]);
        pieces.insert((1, 1, 2), &piece[..]).unwrap();
    });
    let store = Store::in_folder(folder.path(), u64::MAX).unwrap();
    for key in [&b"short"[..], b"long", b"elsewhere", b"unsummed"] {
        assert_eq!(rpc_core::block_on(store.get(bytes(key))), damaged(0, key));
    }
    assert_eq!(&get(&store, b"moved").unwrap().value[..], b"x");
    assert_eq!(&get(&store, b"a").unwrap().value[..], b"");
    write(&store, vec![put(b"short", b"again"), delete(b"long")]).unwrap();
    assert_eq!(&get(&store, b"short").unwrap().value[..], b"again");
}

#[test]
fn damage_under_one_key_takes_nothing_from_another() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::in_folder(folder.path(), u64::MAX).unwrap();
    let keys = [&b"a"[..], b"b", b"c"];
    let long = |key: &[u8]| vec![key[0]; 300_000];
    write(&store, vec![put(b"a", &long(b"a")), put(b"b", &long(b"b"))]).unwrap();
    write(&store, vec![put(b"c", &long(b"c"))]).unwrap();
    drop(store);
    in_file(folder.path(), |transaction| {
        let mut entries = transaction.open_table(format::ENTRIES).unwrap();
        let of = |key: &[u8]| entries.get(key).unwrap().unwrap().value().to_vec();
        let (mut a, mut b) = (of(b"a"), of(b"b"));
        let c = of(b"c");
        assert_eq!((a.len(), a[17], b[17], c[17]), (29, 0, 1, 0)); // slots
        a[17] = 1; // its pieces are said to be those of `b`
        b[..8].copy_from_slice(&c[..8]); // and these to be those of `c`, if it had this slot
        b[17] = 0;
        entries.insert(&b"a"[..], &a[..]).unwrap();
        entries.insert(&b"b"[..], &b[..]).unwrap();
    });
    let store = Store::in_folder(folder.path(), u64::MAX).unwrap();
    let versions = list(&store, b"", None, 9).entries.into_iter().map(|listed| listed.version);
    assert_eq!(versions.collect::<Vec<_>>(), [0, 0, 2]);
    for key in &keys[..2] {
        assert_eq!(write(&store, vec![expect(2, delete(key))]), damaged(0, key));
    }
    assert_eq!(write(&store, vec![delete(b"b")]).unwrap().existed, 1);
    assert!(get(&store, b"c").unwrap().value == long(b"c"));
    assert_eq!(write(&store, vec![put(b"a", b"new")]).unwrap().existed, 1);
    assert!(get(&store, b"c").unwrap().value == long(b"c"));
    assert_eq!(&get(&store, b"a").unwrap().value[..], b"new");
    assert_eq!(get(&store, b"b"), None);
}

#[test]
fn a_file_of_the_first_format_is_read_and_has_the_newest_after_a_write() {
    let folder = tempfile::tempdir().unwrap();
    drop(Store::in_folder(folder.path(), u64::MAX).unwrap());
    in_file(folder.path(), |transaction| {
        let mut meta = transaction.open_table(format::META).unwrap();
        meta.insert("format", &[1][..]).unwrap();
        meta.remove("first").unwrap();
        for (name, number) in [("version", 2_u64), ("keys", 2), ("value_bytes", 2_001)] {
            meta.insert(name, &number.to_le_bytes()[..]).unwrap();
        }
        let mut entries = transaction.open_table(format::ENTRIES).unwrap();
        let inline = first_format(1, 0, b"1");
        let apart = first_format(2, 1, &[0, 0, 0, 0, 0xd0, 7, 0, 0, 0, 0, 0, 0]); // 2,000 bytes
        entries.insert(&b"a"[..], &inline[..]).unwrap();
        entries.insert(&b"b"[..], &apart[..]).unwrap();
        let mut pieces = transaction.open_table(format::PIECES).unwrap();
        pieces.insert((2, 0, 0), &[7; 2_000][..]).unwrap();
    });
    let format_now = || {
        let file = redb::Database::open(folder.path().join("kv.redb")).unwrap();
        let transaction = redb::ReadableDatabase::begin_read(&file).unwrap();
        let meta = transaction.open_table(format::META).unwrap();
        meta.get("format").unwrap().unwrap().value().to_vec()
    };
    let store = Store::in_folder(folder.path(), u64::MAX).unwrap();
    assert_eq!(get(&store, b"a"), Some(Versioned { version: 1, value: bytes(b"1") }));
    assert!(get(&store, b"b").unwrap().value == vec![7; 2_000]);
    drop(store);
    assert_eq!(format_now(), [1]); // who only reads leaves it as it was
    let store = Store::in_folder(folder.path(), u64::MAX).unwrap();
    assert_eq!(write(&store, vec![put(b"a", b"2")]).unwrap().version, 3);
    drop(store);
    assert_eq!(format_now(), [format::FORMAT]);
    let store = Store::in_folder(folder.path(), u64::MAX).unwrap();
    assert_eq!(&get(&store, b"a").unwrap().value[..], b"2");
    assert!(get(&store, b"b").unwrap().value == vec![7; 2_000]);
}
