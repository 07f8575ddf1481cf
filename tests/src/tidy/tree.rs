use std::path::Path;
use std::process::Command;
use std::{fs, io};

use super::Rust;

/// The text files of the repository.
#[derive(Clone, Debug)]
pub struct Tree {
    files: Vec<File>,
    paths: Vec<String>,
}

/// One text file.
#[derive(Clone, Debug)]
pub struct File {
    /// From the repository's root, with `/`.
    pub path: String,
    /// What it holds.
    pub text: String,
    /// The same as Rust, if its name says that it is.
    pub rust: Option<Rust>,
}

impl File {
    fn new(path: String, text: String) -> Self {
        let rust = path.ends_with(".rs").then(|| Rust::new(&text));
        Self { path, text, rust }
    }

    /// Whether it holds tests and nothing else, by its place and name.
    pub fn is_tests(&self) -> bool {
        let name = self.path.rsplit('/').next().unwrap_or(&self.path);
        self.path.split('/').rev().skip(1).any(|folder| folder == "tests")
            || name == "tests.rs"
            || name.ends_with("_tests.rs")
    }
}

impl Tree {
    /// What git would commit below `root`: tracked files, and new ones that are not ignored.
    pub fn of(root: &Path) -> io::Result<Self> {
        let listing = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(root)
            .output()?;
        if !listing.status.success() {
            let why = String::from_utf8_lossy(&listing.stderr).into_owned();
            return Err(io::Error::other(format!("git ls-files failed: {why}")));
        }
        let listing = String::from_utf8_lossy(&listing.stdout).into_owned();
        let paths = listing.split('\0').filter(|path| !path.is_empty()).map(str::to_owned);
        // Deleted in the work tree but not yet in the index: not there.
        let paths: Vec<_> = paths.filter(|path| root.join(path).is_file()).collect();
        let mut files = Vec::new();
        for path in &paths {
            // What is not UTF-8 is not text, and no rule speaks of it.
            if let Ok(text) = String::from_utf8(fs::read(root.join(path))?) {
                files.push(File::new(path.clone(), text));
            }
        }
        Ok(Self { files, paths })
    }

    /// A tree of the given paths and texts.
    pub fn of_texts(files: &[(&str, &str)]) -> Self {
        let files: Vec<_> =
            files.iter().map(|(path, text)| File::new((*path).into(), (*text).into())).collect();
        let paths = files.iter().map(|file| file.path.clone()).collect();
        Self { files, paths }
    }

    /// Every text file.
    pub fn files(&self) -> &[File] {
        &self.files
    }

    /// Every Rust file.
    pub fn rust(&self) -> impl Iterator<Item = (&File, &Rust)> {
        self.files.iter().filter_map(|file| Some((file, file.rust.as_ref()?)))
    }

    /// Whether there is a file or folder of this path; the root is the empty path.
    pub fn has(&self, path: &str) -> bool {
        let within = |file: &String| {
            file.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        path.is_empty() || self.paths.iter().any(within)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_files_are_known_by_place_and_name() {
        let tree = Tree::of_texts(&[
            ("tests/tests/tidy.rs", ""),
            ("a/src/tests.rs", ""),
            ("a/src/queue_tests.rs", ""),
            ("a/src/queue.rs", ""),
            ("a/src/contests.rs", ""),
        ]);
        let are: Vec<_> = tree.files().iter().map(File::is_tests).collect();
        assert_eq!(are, [true, true, true, false, false]);
    }

    #[test]
    fn files_and_their_folders_are_there_and_nothing_else() {
        let tree = Tree::of_texts(&[("docs/design/one.md", "")]);
        for path in ["", "docs", "docs/design", "docs/design/one.md"] {
            assert!(tree.has(path), "{path}");
        }
        for path in ["doc", "docs/design/one", "docs/two.md"] {
            assert!(!tree.has(path), "{path}");
        }
    }
}
