use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use crate::failure::{Exit, err};
use crate::transfer::entry::{Entry, Fate};
use crate::transfer::walk::Found;

/// Problems told one by one; beyond these only their number.
const PROBLEMS_TOLD: usize = 20;

/// Problems told so far, and the worst exit code among them.
#[derive(Default)]
pub(crate) struct Told {
    count: usize,
    worst: Option<Exit>,
}

impl Told {
    /// Tells one.
    pub(crate) fn tell(&mut self, exit: Exit, problem: std::fmt::Arguments<'_>) {
        if self.count < PROBLEMS_TOLD {
            err(format_args!("{problem}\n"));
        }
        self.count += 1;
        if self.worst != Some(Exit::Failed) {
            self.worst = Some(exit);
        }
    }

    /// Tells what became of files, where it was not good.
    pub(crate) fn files(&mut self, entries: &[Entry], found: &Found) {
        for problem in &found.unreadable {
            self.tell(Exit::Incomplete, format_args!("not readable: {problem}"));
        }
        for entry in entries {
            let name = OsStr::from_bytes(&entry.name).display();
            match &entry.fate {
                Fate::Verified => {}
                Fate::Changed => self
                    .tell(Exit::Incomplete, format_args!("changed whenever it was read: {name}")),
                Fate::Unreadable(why) => {
                    self.tell(Exit::Incomplete, format_args!("not readable: {name}: {why}"));
                }
                Fate::Failed(why) => self.tell(Exit::Failed, format_args!("failed: {name}: {why}")),
                Fate::Differs(how) => {
                    self.tell(Exit::Failed, format_args!("DIFFERS: {name}: {how}"))
                }
                Fate::Waiting | Fate::Loaded => {
                    self.tell(Exit::Failed, format_args!("not read back: {name}"));
                }
            }
        }
    }

    /// How to end.
    pub(crate) fn end(self) -> Exit {
        if self.count > PROBLEMS_TOLD {
            err(format_args!("and {} more\n", self.count - PROBLEMS_TOLD));
        }
        self.worst.unwrap_or(Exit::Done)
    }
}

/// What was left out, in words.
pub(crate) fn skipped(found: &Found) -> String {
    let skipped = &found.skipped;
    let counts = [
        (skipped.links, "symbolic links"),
        (skipped.git, ".git"),
        (skipped.target, "target"),
        (skipped.special, "special files"),
        (skipped.absent, "tracked but absent"),
        (found.unreadable.len() as u64, "not readable"),
    ];
    let texts: Vec<String> = counts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    if texts.is_empty() {
        "skipped: nothing".into()
    } else {
        format!("skipped: {}", texts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_problem_decides_how_to_end() {
        let mut told = Told::default();
        assert_eq!(Told::default().end(), Exit::Done);
        told.tell(Exit::Incomplete, format_args!("a"));
        told.tell(Exit::Failed, format_args!("b"));
        told.tell(Exit::Incomplete, format_args!("c"));
        assert_eq!(told.end(), Exit::Failed);
    }

    #[test]
    fn each_kind_of_file_left_out_is_told_with_its_number() {
        let mut found = Found::default();
        assert_eq!(skipped(&found), "skipped: nothing");
        found.skipped.links = 2;
        found.skipped.git = 1;
        assert_eq!(skipped(&found), "skipped: 2 symbolic links, 1 .git");
    }
}
