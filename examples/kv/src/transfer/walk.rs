use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ignore::WalkBuilder;

use crate::failure::Failure;

/// The most files in one go: their names and outcomes are held in memory, some 300 bytes each.
const FILES_MAX: usize = 1 << 20;

/// The files to load.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// The folder that names are relative to.
    pub(crate) root: PathBuf,
    /// Paths below `root`, any bytes, sorted; each once.
    pub(crate) names: Vec<Vec<u8>>,
    /// What was seen and left out.
    pub(crate) skipped: Skipped,
    /// What could not be looked at, and why.
    pub(crate) unreadable: Vec<String>,
    /// Where the names are from, in words.
    pub(crate) origin: &'static str,
}

/// How many things were left out, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Skipped {
    /// Symbolic links.
    pub(crate) links: u64,
    /// Folders or files named `.git`, and files in one.
    pub(crate) git: u64,
    /// Folders named `target`, and files that git tracks in one.
    pub(crate) target: u64,
    /// What is neither a regular file nor a folder to look into: FIFOs, sockets, devices, submodules.
    pub(crate) special: u64,
    /// Files that git tracks and that are not there.
    pub(crate) absent: u64,
}

impl Skipped {
    /// How many in all.
    pub(crate) fn sum(&self) -> u64 {
        self.links + self.git + self.target + self.special + self.absent
    }
}

/// What to take where no folder was named and the current one is in no git repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WithoutGit {
    /// All that no `.gitignore` excludes.
    Walk,
    /// Nothing: it is an error. What goes into a store that is kept is to be said.
    Refuse,
}

/// The files of a folder, or, without one, those that git tracks in the current folder.
pub(crate) fn find(dir: Option<&Path>, without: WithoutGit) -> Result<Found, Failure> {
    let named = dir.unwrap_or_else(|| Path::new("."));
    let root = fs::canonicalize(named).map_err(|error| {
        Failure::because(format!("the folder {} cannot be opened", named.display()), error)
    })?;
    if !root.is_dir() {
        return Err(Failure::new(format!("{} is not a folder", named.display())));
    }
    let mut found = match dir {
        Some(_) => walk(root, false),
        None => match tracked(&root) {
            Some(names) if names.is_empty() => Err(Failure::new(format!(
                "git tracks no files in {}: add some, or name the folder to take all that it has, as `.`",
                root.display(),
            ))),
            Some(names) => sort_out(root, &names),
            None if without == WithoutGit::Walk => walk(root, true),
            None => Err(Failure::new(format!(
                "git tells of no files in {}, because it is in no repository or git is not installed; name the folder to take all that it has, as `.`",
                root.display(),
            ))),
        },
    }?;
    found.names.sort_unstable();
    found.names.dedup(); // git names an unmerged file once for each side
    Ok(found)
}

/// What git tracks in a folder, names separated by zero bytes; `None` without git or a repository.
fn tracked(root: &Path) -> Option<Vec<u8>> {
    let mut git = Command::new("git");
    git.arg("-C").arg(root).args(["ls-files", "-z"]).stdin(Stdio::null()).stderr(Stdio::null());
    let output = git.output().ok()?;
    output.status.success().then_some(output.stdout)
}

fn sort_out(root: PathBuf, names: &[u8]) -> Result<Found, Failure> {
    let mut found = Found { root, origin: "what git tracks", ..Found::default() };
    for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let path = Path::new(OsStr::from_bytes(name));
        let has = |part: &str| path.components().any(|has| has == Component::Normal(part.as_ref()));
        let in_target =
            path.parent().is_some_and(|parent| parent.iter().any(|dir| dir == "target"));
        if has(".git") {
            found.skipped.git += 1;
        } else if in_target {
            found.skipped.target += 1;
        } else {
            match fs::symlink_metadata(found.root.join(path)) {
                Ok(meta) if meta.is_symlink() => found.skipped.links += 1,
                Ok(meta) if meta.is_file() => push(&mut found, name)?,
                Ok(_) => found.skipped.special += 1,
                Err(error) if error.kind() == io::ErrorKind::NotFound => found.skipped.absent += 1,
                Err(error) => found.unreadable.push(format!("{}: {error}", path.display())),
            }
        }
    }
    Ok(found)
}

/// Looks through a folder; by its `.gitignore` files if `ignoring`.
fn walk(root: PathBuf, ignoring: bool) -> Result<Found, Failure> {
    let origin = if ignoring { "all that no .gitignore excludes" } else { "all its files" };
    let mut found = Found { root, origin, ..Found::default() };
    let git = Arc::new(AtomicU64::new(0));
    let target = Arc::new(AtomicU64::new(0));
    let mut builder = WalkBuilder::new(&found.root);
    builder.standard_filters(ignoring).hidden(false).parents(false).require_git(false);
    builder.filter_entry({
        let (git, target) = (Arc::clone(&git), Arc::clone(&target));
        move |entry| {
            let is_dir = entry.file_type().is_some_and(|kind| kind.is_dir());
            let skip = if entry.file_name() == ".git" {
                &git
            } else if is_dir && entry.file_name() == "target" {
                &target
            } else {
                return true;
            };
            // The folder asked for is looked into, whatever its name is.
            entry.depth() == 0 || {
                skip.fetch_add(1, Ordering::Relaxed);
                false
            }
        }
    });
    for entry in builder.build() {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => {
                found.unreadable.push(error.to_string());
                continue;
            }
        };
        match entry.file_type() {
            Some(kind) if kind.is_dir() => {}
            Some(kind) if kind.is_symlink() => found.skipped.links += 1,
            Some(kind) if kind.is_file() => {
                let path = entry.path();
                let name = path.strip_prefix(&found.root).unwrap_or(path);
                push(&mut found, name.as_os_str().as_bytes())?;
            }
            _ => found.skipped.special += 1,
        }
    }
    found.skipped.git = git.load(Ordering::Relaxed);
    found.skipped.target = target.load(Ordering::Relaxed);
    Ok(found)
}

fn push(found: &mut Found, name: &[u8]) -> Result<(), Failure> {
    if found.names.len() == FILES_MAX {
        return Err(Failure::new(format!(
            "{} has more than {FILES_MAX} files; name one of its folders",
            found.root.display(),
        )));
    }
    found.names.push(name.to_vec());
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn folder() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &[u8]| dir.path().join(OsStr::from_bytes(name));
        for folder in ["sub/deep", ".git", "sub/target", "empty"] {
            fs::create_dir_all(at(folder.as_bytes())).unwrap();
        }
        for file in [
            &b"a"[..],
            b".hidden",
            b"sub/deep/\xff\xfe",
            b"sub/target/x",
            b".git/config",
            b"target",
        ] {
            fs::write(at(file), b"x").unwrap();
        }
        symlink("a", at(b"link")).unwrap();
        symlink("sub", at(b"sub/deep/up")).unwrap();
        dir
    }

    #[test]
    fn a_walk_takes_files_of_any_name_and_counts_what_it_skips() {
        let dir = folder();
        let found = find(Some(dir.path()), WithoutGit::Refuse).unwrap();
        let expected: [&[u8]; 4] = [b".hidden", b"a", b"sub/deep/\xff\xfe", b"target"];
        assert_eq!(found.names, expected);
        let skipped = Skipped { links: 2, git: 1, target: 1, special: 0, absent: 0 };
        assert_eq!(found.skipped, skipped);
        assert!(found.unreadable.is_empty());
    }

    #[test]
    fn the_folder_asked_for_may_be_named_target() {
        let dir = folder();
        let found = find(Some(&dir.path().join("sub/target")), WithoutGit::Refuse).unwrap();
        assert_eq!(found.names, [b"x"]);
    }

    #[test]
    fn an_empty_folder_has_no_files() {
        let dir = folder();
        let found = find(Some(&dir.path().join("empty")), WithoutGit::Refuse).unwrap();
        assert!(found.names.is_empty());
    }

    #[test]
    fn what_git_names_is_sorted_out() {
        let dir = folder();
        let names = b"a\0a\0link\0gone\0sub/target/x\0sub/deep\0target\0";
        let mut found = sort_out(fs::canonicalize(dir.path()).unwrap(), names).unwrap();
        found.names.dedup();
        let expected: [&[u8]; 2] = [b"a", b"target"];
        assert_eq!(found.names, expected);
        let skipped = Skipped { links: 1, git: 0, target: 1, special: 1, absent: 1 };
        assert_eq!(found.skipped, skipped);
    }

    #[test]
    fn without_git_the_rules_of_gitignore_hold() {
        let dir = folder();
        fs::write(dir.path().join(".gitignore"), "a\n").unwrap();
        let found = walk(fs::canonicalize(dir.path()).unwrap(), true).unwrap();
        assert!(!found.names.contains(&b"a".to_vec()));
        assert!(found.names.contains(&b".hidden".to_vec()));
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let error = find(Some(Path::new("/no/such/folder")), WithoutGit::Walk).unwrap_err();
        assert!(error.to_string().contains("/no/such/folder"), "{error}");
    }
}
