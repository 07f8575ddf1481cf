use super::{Finding, Tree};

/// Hosts a URL may name: public documentation, or a name that RFC 2606 keeps for examples.
const HOSTS: &[&str] = &[
    "127.0.0.1",
    "apache.org",
    "crates.io",
    "doc.rust-lang.org",
    "docs.rs",
    "example.com",
    "github.com",
    "keepachangelog.com",
    "localhost",
    "nexte.st",
    "opensource.org",
    "protobuf.dev",
    "rustup.rs",
    "semver.org",
    "www.apache.org",
    "www.rust-lang.org",
    "www.w3.org",
];

/// Unfinished work is finished or said in an issue, not left in the text.
pub fn no_unfinished_work(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, rust) in tree.rust() {
        for name in ["todo", "unimplemented", "dbg"] {
            let calls =
                rust.words(name).filter(|at| rust.code()[at + name.len()..].starts_with('!'));
            for at in calls {
                let text = format!("`{name}!` is left over; write the code, or return an error");
                findings.push(Finding::new(&file.path, rust.line_of(at), text));
            }
        }
    }
    // Put together here, so that this file does not find itself.
    let marks = [concat!("TO", "DO"), concat!("FIX", "ME")];
    for file in tree.files() {
        for (line, text) in file.text.lines().enumerate() {
            if let Some(mark) = marks.iter().find(|mark| text.contains(**mark)) {
                let text =
                    format!("`{mark}`: do it now, or say what is not built where users read it");
                findings.push(Finding::new(&file.path, line + 1, text));
            }
        }
    }
    findings
}

/// A sleep proves nothing; one that only paces a loop says so beside it. `sim::sleep` waits for virtual time,
/// which nothing disturbs.
pub fn sleeps_say_why(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, rust) in tree.rust() {
        let lines: Vec<&str> = file.text.lines().collect();
        for at in rust.words("sleep") {
            let called = rust.code()[at + 5..].trim_start().starts_with('(');
            let before = rust.code()[..at].trim_end();
            let qualified = before.ends_with("::") && !before.ends_with("sim::");
            let line = rust.line_of(at);
            let own = lines[line - 1].contains("//");
            let above = line >= 2 && lines[line - 2].trim_start().starts_with("//");
            if called && qualified && !own && !above {
                findings.push(Finding::new(
                    &file.path,
                    line,
                    "a sleep without a reason; wait for the event itself, or say in a comment beside \
                     it why no length of the sleep can matter",
                ));
            }
        }
    }
    findings
}

/// A test that does not run says why.
pub fn ignored_tests_say_why(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, rust) in tree.rust() {
        for at in rust.words("ignore") {
            let before = rust.code()[..at].trim_end();
            let bare = rust.code()[at + 6..].trim_start().starts_with(']');
            if before.ends_with('[') && bare {
                let text = "`#[ignore]` without a reason; write `#[ignore = \"why\"]`";
                findings.push(Finding::new(&file.path, rust.line_of(at), text));
            }
        }
    }
    for file in tree.files().iter().filter(|file| file.rust.is_some() || file.path.ends_with(".md"))
    {
        for (line, text) in file.text.lines().enumerate() {
            let fence = text.trim_start().trim_start_matches(['/', '!', ' ']).strip_prefix("```");
            if fence.is_some_and(|info| info.split(',').any(|word| word.trim() == "ignore")) {
                let text = "an example that is not compiled goes out of date unseen; use `no_run` with \
                            hidden lines, or `text`";
                findings.push(Finding::new(&file.path, line + 1, text));
            }
        }
    }
    findings
}

/// No path of one machine is in the text.
pub fn no_machine_paths(tree: &Tree) -> Vec<Finding> {
    let folders = ["home", "root", "Users", "work"].map(|folder| format!("/{folder}/"));
    let mut findings = Vec::new();
    for file in tree.files() {
        for (line, text) in file.text.lines().enumerate() {
            let found = folders.iter().find(|folder| {
                text.match_indices(folder.as_str()).any(|(at, _)| {
                    let before = text[..at].chars().next_back();
                    // After a letter and the like it is the middle of some longer path.
                    !before.is_some_and(|c| c.is_alphanumeric() || "._-})".contains(c))
                })
            });
            if let Some(folder) = found {
                let text = format!(
                    "a path below `{folder}` exists on one machine only; make it relative to the \
                     repository, or take it from the caller"
                );
                findings.push(Finding::new(&file.path, line + 1, text));
            }
        }
    }
    findings
}

/// URLs name public documentation, never a registry's or a company's own host.
pub fn urls_are_public(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files() {
        for (line, text) in file.text.lines().enumerate() {
            for host in ["http", "https"].iter().flat_map(|scheme| hosts(text, scheme)) {
                if !HOSTS.contains(&host.as_str()) {
                    let text = format!(
                        "the host `{host}` is not known to be public; if it is documentation that \
                         anyone can read, add it to HOSTS in {}",
                        file!()
                    );
                    findings.push(Finding::new(&file.path, line + 1, text));
                }
            }
            let registry = text.trim_start().strip_prefix("source = \"registry+");
            if registry.is_some_and(|of| of != "https://github.com/rust-lang/crates.io-index\"") {
                let text = "a crate from a registry other than crates.io";
                findings.push(Finding::new(&file.path, line + 1, text));
            }
        }
    }
    findings
}

/// The hosts that URLs of a scheme name in a line.
fn hosts(line: &str, scheme: &str) -> Vec<String> {
    let mark = format!("{scheme}://");
    let after = line.match_indices(&mark).map(|(at, mark)| &line[at + mark.len()..]);
    let host = |rest: &str| -> String {
        rest.chars().take_while(|c| c.is_ascii_alphanumeric() || ".-".contains(*c)).collect()
    };
    after.map(host).filter(|host| !host.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::lines_found;
    use super::*;

    #[test]
    fn leftovers_are_found_in_code_and_in_any_text() {
        let mark = format!("# {}: later", concat!("TO", "DO"));
        let files = [
            (
                "a.rs",
                "todo!();\nlet x = dbg!(1);\nunimplemented!(\"x\");\n// todo!\ncall.unimplemented()",
            ),
            ("a.sh", mark.as_str()),
        ];
        assert_eq!(lines_found(no_unfinished_work, &files), [1, 3, 2, 1]);
    }

    #[test]
    fn a_sleep_without_a_comment_beside_it_is_found() {
        let files = [(
            "a.rs",
            "thread::sleep(a);\n// Paces the loop.\nthread::sleep(b);\nstd::thread::sleep(c); // Paces.\n\
             \ntokio::time::sleep(d).await;\nself.sleep();\nsim::sleep(e).await;",
        )];
        assert_eq!(lines_found(sleeps_say_why, &files), [1, 6]);
    }

    #[test]
    fn an_ignored_test_or_example_without_a_reason_is_found() {
        let files = [
            ("a.rs", "#[ignore]\n#[ignore = \"needs a NIC\"]\n/// ```ignore\nfn ignore() {}"),
            ("a.md", "```rust,ignore\n```rust,no_run"),
        ];
        assert_eq!(lines_found(ignored_tests_say_why, &files), [1, 3, 1]);
    }

    #[test]
    fn a_path_of_one_machine_is_found() {
        let path = |folder: &str| format!("cd /{folder}/x\nsrc/{folder}/x\n\"{{a}}/{folder}/b\"");
        let texts = ["home", "root", "Users", "work"].map(path);
        let files = texts.each_ref().map(|text| ("a.sh", text.as_str()));
        assert_eq!(lines_found(no_machine_paths, &files), [1, 1, 1, 1]);
    }

    #[test]
    fn a_host_that_is_not_listed_and_a_foreign_registry_are_found() {
        let url = |rest: &str| format!("{}{rest}", concat!("https", "://"));
        let manifest = format!("{}\n{}", url("docs.rs/bytes"), url("crates.internal.net/x"));
        let good = format!("source = \"registry+{}\"", url("github.com/rust-lang/crates.io-index"));
        let bad = format!("source = \"registry+{}\"", url("github.com/other/index"));
        let files = [("a.toml", manifest.as_str()), ("Cargo.lock", &good), ("b/Cargo.lock", &bad)];
        assert_eq!(lines_found(urls_are_public, &files), [2, 1]);
    }
}
