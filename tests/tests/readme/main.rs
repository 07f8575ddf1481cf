//! What the README shows is what the repository compiles, and what a crate elsewhere can do with it.

#![allow(clippy::unwrap_used)]

mod outside;

use std::fs;
use std::path::Path;

/// The text of README.md, and the files it quotes: a comment that names the file, then a fence.
fn quotes(readme: &str) -> Vec<(&str, String)> {
    let mut quotes = Vec::new();
    for (at, mark) in readme.match_indices("<!-- file: ") {
        let (path, rest) = readme[at + mark.len()..].split_once(" -->").expect("the comment ends");
        let fence = rest.trim_start();
        assert!(fence.starts_with("```"), "no fence after the name of {path}");
        let (_, code) = fence.split_once('\n').expect("the fence has a body");
        let (code, _) = code.split_once("\n```").expect("the fence ends");
        quotes.push((path, format!("{code}\n")));
    }
    quotes
}

#[test]
fn files_that_the_readme_shows_are_those_of_the_repository() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let readme = fs::read_to_string(root.join("README.md")).unwrap();
    let quotes = quotes(&readme);
    assert!(quotes.len() >= 3, "the README shows a proto file, a build script and a program");
    for (path, shown) in quotes {
        let file = fs::read_to_string(root.join(path)).unwrap();
        assert_eq!(shown, file, "README.md shows another {path}; copy the file into it");
    }
}

#[test]
fn a_quote_that_differs_from_its_file_is_told_apart() {
    let readme =
        "x\n<!-- file: a/b.rs -->\n```rust\nfn a() {}\n\nfn b() {}\n```\nmore\n```text\n```\n";
    assert_eq!(quotes(readme), [("a/b.rs", "fn a() {}\n\nfn b() {}\n".to_owned())]);
}
