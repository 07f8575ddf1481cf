//! What is generated, compared with files that are committed so that a change shows in review.
//! `UPDATE=1 cargo test -p rpc-codegen --test snapshots` writes them anew.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};

use rpc_codegen::Builder;

/// Every fixture that compiles.
const FIXTURES: &[&str] = &[
    "fixtures/comments.proto",
    "fixtures/deprecated.proto",
    "fixtures/keywords.proto",
    "fixtures/no_package.proto",
    "fixtures/shop/order.proto",
    "fixtures/std_names.proto",
    "fixtures/well_known.proto",
];

fn manifest(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// An empty folder of this test's own.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn generate(builder: Builder, protos: &[&str], folder: &Path) {
    builder.out_dir(folder).compile(protos, &[manifest("../proto")]).unwrap();
}

/// Names and contents of a folder's files, sorted.
fn contents(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, fs::read(path).unwrap())
        })
        .collect();
    files.sort();
    files
}

/// The Rust files among them, which are committed. A descriptor set shows nothing in a review.
fn files(folder: &Path) -> Vec<(String, String)> {
    let rust = contents(folder).into_iter().filter(|(name, _)| name.ends_with(".rs"));
    rust.map(|(name, content)| (name, String::from_utf8(content).unwrap())).collect()
}

/// The first line in which two texts differ. Whole texts would push the names of what failed out of a log.
fn first_difference(committed: &str, generated: &str) -> String {
    let mut lines = (committed.lines().map(Some).chain([None]))
        .zip(generated.lines().map(Some).chain([None]))
        .enumerate();
    match lines.find(|(_, (old, new))| old != new) {
        Some((at, (old, new))) => format!("Line {} was {old:?} and is {new:?}", at + 1),
        None => "One continues where the other ends".to_owned(),
    }
}

fn assert_same_as_committed(folder: &Path, committed: &str) {
    let committed = manifest("tests/snapshots").join(committed);
    let generated = files(folder);
    if std::env::var_os("UPDATE").is_some() {
        let _ = fs::remove_dir_all(&committed);
        fs::create_dir_all(&committed).unwrap();
        for (name, text) in &generated {
            fs::write(committed.join(name), text).unwrap();
        }
    }
    let expected = files(&committed);
    for ((name, text), (expected_name, expected_text)) in generated.iter().zip(&expected) {
        assert_eq!(name, expected_name);
        assert!(
            text == expected_text,
            "{} differs from what is generated now; run with UPDATE=1 and look at what changed. {}",
            committed.join(name).display(),
            first_difference(expected_text, text)
        );
    }
    assert_eq!(generated.len(), expected.len());
}

#[test]
fn the_key_value_service_is_as_committed() {
    let folder = folder("kv");
    generate(Builder::new(), &["kv/v1/kv.proto"], &folder);
    assert_same_as_committed(&folder, "kv");
}

#[test]
fn the_fixtures_are_as_committed() {
    let folder = folder("fixtures");
    generate(Builder::new().core_path("crate::mock"), FIXTURES, &folder);
    assert_same_as_committed(&folder, "fixtures");
}

#[test]
fn default_bodies_and_other_names_are_as_committed() {
    let folder = folder("options");
    let builder = Builder::new()
        .core_path("crate::mock")
        .default_stubs(true)
        .rename_service(".Bare", "BareService")
        .rename_method(".Bare.Ping", "is_there")
        .type_attribute("BarePing", "#[derive(PartialOrd)]")
        .include_file("everything.rs");
    generate(builder, &["fixtures/no_package.proto"], &folder);
    assert_same_as_committed(&folder, "options");
}

#[test]
fn the_same_input_gives_the_same_output_in_any_order() {
    let (first, again, reversed) = (folder("first"), folder("again"), folder("reversed"));
    generate(Builder::new(), FIXTURES, &first);
    generate(Builder::new(), FIXTURES, &again);
    let backwards: Vec<&str> = FIXTURES.iter().rev().copied().collect();
    generate(Builder::new(), &backwards, &reversed);
    assert!(contents(&first).iter().any(|(name, _)| name == "rpc_protos.bin"));
    assert!(contents(&first) == contents(&again), "two runs give two outputs");
    assert!(contents(&first) == contents(&reversed), "the order of the arguments shows");
}

#[test]
fn a_file_that_did_not_change_is_not_written() {
    let folder = folder("unchanged");
    generate(Builder::new(), &["kv/v1/kv.proto"], &folder);
    let stamps = || {
        contents(&folder)
            .iter()
            .map(|(name, _)| fs::metadata(folder.join(name)).unwrap().modified().unwrap())
            .collect::<Vec<_>>()
    };
    // Any write would now change the time stamp back from this one.
    for (name, _) in contents(&folder) {
        let file = fs::File::options().append(true).open(folder.join(name)).unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
    }
    let before = stamps();
    generate(Builder::new(), &["kv/v1/kv.proto"], &folder);
    assert_eq!(stamps(), before);
}
