//! The README's crate, made from the README's text in a folder outside of this workspace, as a reader
//! would: it builds without protoc, Python and a compiler of C, it runs, and Cargo runs its build script
//! again when a `.proto` changes, an imported one too, and then only.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use super::quotes;

/// What a shell that has these alone finds.
const TOOLS: &[(&str, &str)] = &[
    // The linker of rustc is called by the name of a compiler. This one links and does nothing else.
    (
        "cc",
        "for word in \"$@\"; do case \"$word\" in -c|-E|-S|*.c|*.cc|*.cpp|*.S) \
         echo \"cc was asked to compile: $*\" >&2; exit 1;; esac; done\nexec CC \"$@\"",
    ),
    ("protoc", "echo protoc was called >&2; exit 1"),
    ("python3", "echo Python was called >&2; exit 1"),
];

/// Where this test's own shell finds a program.
fn which(program: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut found = std::env::split_paths(&path).map(|folder| folder.join(program));
    found.find(|path| path.exists()).unwrap_or_else(|| panic!("there is no {program}"))
}

/// A crate that is deleted at the end, and whose dependencies stay built for the next run.
struct Outside {
    folder: PathBuf,
}

impl Drop for Outside {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Outside {
    fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("readme-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("bin")).unwrap();
        let outside = Self { folder };
        for (name, script) in TOOLS {
            let path = outside.folder.join("bin").join(name);
            let script = script.replace("CC", &which("cc").display().to_string());
            fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            fs::set_permissions(&path, mode).unwrap();
        }
        // The linker that cc runs.
        std::os::unix::fs::symlink(which("ld"), outside.folder.join("bin/ld")).unwrap();
        outside
    }

    fn hello(&self) -> PathBuf {
        self.folder.join("hello")
    }

    fn target(&self) -> PathBuf {
        Path::new(env!("CARGO_TARGET_TMPDIR")).join("readme")
    }

    /// Runs this very Cargo with nothing else to be found, and gives what it said.
    fn cargo(&self, folder: &Path, arguments: &[&str]) -> String {
        let cargo = PathBuf::from(env!("CARGO"));
        let rustc = cargo.with_file_name("rustc");
        let output = Command::new(&cargo)
            .args(arguments)
            .current_dir(folder)
            .env_clear()
            .envs(std::env::vars_os().filter(|(name, _)| {
                ["HOME", "CARGO_HOME", "RUSTUP_HOME"].iter().any(|kept| name == kept)
            }))
            .env("PATH", self.folder.join("bin"))
            .env("RUSTC", rustc)
            .env("CARGO_TARGET_DIR", self.target())
            .env("CARGO_TERM_COLOR", "never")
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .env("CARGO_NET_OFFLINE", "true")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "cargo {arguments:?} failed:\n{said}");
        said
    }

    fn build(&self) -> String {
        self.cargo(&self.hello(), &["build", "--verbose"])
    }

    /// What the build script wrote, which is of one package.
    fn generated(&self) -> String {
        let build = self.target().join("debug/build");
        let outs = fs::read_dir(build).unwrap().map(|entry| entry.unwrap().path());
        let files = outs.map(|path| path.join("out/greet.v1.rs")).filter(|path| path.exists());
        let newest = files.max_by_key(|path| fs::metadata(path).unwrap().modified().unwrap());
        fs::read_to_string(newest.expect("the build script wrote a file")).unwrap()
    }
}

/// The README's lines for Cargo.toml, with the path of this clone.
fn dependencies(readme: &str, root: &Path) -> String {
    let blocks = readme.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let toml: String = blocks.collect();
    assert!(toml.contains("[dev-dependencies]"), "the README's test has dependencies of its own");
    assert!(toml.contains("\"../rpc/rpc-core\"") && toml.contains("\"../rpc/rpc-codegen\""));
    toml.replace("../rpc/", &format!("{}/", root.display()))
}

fn make_crate(outside: &Outside, root: &Path) {
    let readme = fs::read_to_string(root.join("README.md")).unwrap();
    outside.cargo(&outside.folder, &["new", "--vcs", "none", "hello"]);
    let hello = outside.hello();
    let manifest = fs::read_to_string(hello.join("Cargo.toml")).unwrap();
    assert!(manifest.contains("[dependencies]\n"), "{manifest}");
    let manifest = manifest.replace("[dependencies]\n", &dependencies(&readme, root));
    fs::write(hello.join("Cargo.toml"), manifest).unwrap();
    // The versions that this repository was tested with, which are there without a network.
    fs::copy(root.join("Cargo.lock"), hello.join("Cargo.lock")).unwrap();
    for (path, text) in quotes(&readme) {
        if let Some(path) = path.strip_prefix("examples/hello/") {
            fs::create_dir_all(hello.join(path).parent().unwrap()).unwrap();
            fs::write(hello.join(path), text).unwrap();
        }
    }
}

struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The README's two commands, on a port that is free.
fn greets(program: &Path) {
    let mut server = Serving(
        Command::new(program)
            .args(["serve", "auto://127.0.0.1:0"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let mut line = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("listening on ").expect("the server says where it is");
    let answer = Command::new(program).args(["greet", address, "Ada"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&answer.stdout), "Hello, Ada!\n", "{answer:?}");
}

#[test]
fn the_crate_of_the_readme_builds_and_runs_and_is_built_again_only_for_a_reason() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let outside = Outside::new();
    make_crate(&outside, root);
    let began = Instant::now();
    outside.build();
    println!("| the README's crate, built in {:.1} s |", began.elapsed().as_secs_f64());
    greets(&outside.target().join("debug/hello"));
    outside.cargo(&outside.hello(), &["check", "--tests"]);

    let again = outside.build();
    assert!(again.contains("Fresh hello"), "{again}");

    // From here it imports another file.
    let proto = outside.hello().join("proto");
    let greet = fs::read_to_string(proto.join("greet.proto")).unwrap();
    let imports =
        "package greet.v1;\nimport \"parts/title.proto\";\nmessage Whole { Title title = 1; }\n";
    fs::create_dir(proto.join("parts")).unwrap();
    let title = "syntax = \"proto3\";\npackage greet.v1;\nmessage Title { string first = 1; }\n";
    fs::write(proto.join("parts/title.proto"), title).unwrap();
    fs::write(proto.join("greet.proto"), greet.replace("package greet.v1;\n", imports)).unwrap();
    assert!(outside.build().contains("Dirty hello"));
    assert!(outside.generated().contains("pub first: "));

    let changed = title.replace("first", "second");
    fs::write(proto.join("parts/title.proto"), changed).unwrap();
    assert!(outside.build().contains("Dirty hello"));
    assert!(outside.generated().contains("pub second: "));

    let again = outside.build();
    assert!(again.contains("Fresh hello") && !again.contains("Dirty"), "{again}");
}
