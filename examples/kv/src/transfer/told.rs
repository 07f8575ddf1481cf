use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::failure::{Exit, err};
use crate::text::{counted, grouped, set_bytes, shown};
use crate::transfer::entry::{Entry, Fate};
use crate::transfer::walk::Found;

/// Problems told one by one; beyond these only their number.
const PROBLEMS_TOLD: usize = 20;

/// Files told by name of which the same is wrong; beyond these only their number.
const SAME_TOLD: u64 = 3;

/// Different problems that are counted so. A store that is full or has nothing makes one.
const REASONS_MAX: usize = 64;

/// Problems named in JSON; beyond these only their number. A line of it is some 100 kB then.
const PROBLEMS_NAMED: usize = 1_000;

/// Problems told so far, and the worst exit code among them.
#[derive(Default)]
pub(crate) struct Told {
    lines: usize,
    worst: Option<Exit>,
    counts: [u64; Kind::ALL.len()],
    named: Vec<Value>,
    /// How many files have the same problem, by its kind and words.
    reasons: BTreeMap<(&'static str, String), u64>,
}

/// What may be wrong with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// What is stored is not what the file has.
    Differ,
    /// A call failed, or was not sent.
    Failed,
    /// A key is left of it that it does not have now.
    Strays,
    /// It changed whenever it was read.
    Changed,
    /// It could not be read.
    Unreadable,
}

impl Kind {
    const ALL: [Self; 5] =
        [Self::Differ, Self::Failed, Self::Strays, Self::Changed, Self::Unreadable];

    /// Its name in JSON.
    fn name(self) -> &'static str {
        match self {
            Self::Differ => "differ",
            Self::Failed => "failed",
            Self::Strays => "strays",
            Self::Changed => "changed",
            Self::Unreadable => "unreadable",
        }
    }

    fn in_words(self) -> &'static str {
        match self {
            Self::Differ => "DIFFERS",
            Self::Failed => "failed",
            Self::Strays => "STRAY",
            Self::Changed => "changed whenever it was read",
            Self::Unreadable => "not readable",
        }
    }

    fn exit(self) -> Exit {
        match self {
            Self::Differ | Self::Failed | Self::Strays => Exit::Failed,
            Self::Changed | Self::Unreadable => Exit::Incomplete,
        }
    }
}

impl Told {
    /// Tells one.
    pub(crate) fn tell(&mut self, exit: Exit, problem: std::fmt::Arguments<'_>) {
        if self.lines < PROBLEMS_TOLD {
            err(format_args!("{problem}\n"));
        }
        self.lines += 1;
        if self.worst != Some(Exit::Failed) {
            self.worst = Some(exit);
        }
    }

    /// Tells what is wrong with a file, and how.
    pub(crate) fn file(&mut self, kind: Kind, name: &[u8], how: &str) {
        let colon = if how.is_empty() { "" } else { ": " };
        let words = kind.in_words();
        if self.is_told_by_name(words, how) {
            self.tell(kind.exit(), format_args!("{words}: {}{colon}{how}", shown(name)));
        }
        self.name(kind, name, how);
    }

    /// Whether this is among the first with the same problem.
    fn is_told_by_name(&mut self, words: &'static str, how: &str) -> bool {
        let key = (words, how.to_owned());
        if self.reasons.len() >= REASONS_MAX && !self.reasons.contains_key(&key) {
            return true;
        }
        let count = self.reasons.entry(key).or_default();
        *count += 1;
        *count <= SAME_TOLD
    }

    /// Tells how many files more have the same problem as some that were named.
    fn tell_others(&mut self) {
        for ((words, how), count) in std::mem::take(&mut self.reasons) {
            if count > SAME_TOLD {
                let colon = if how.is_empty() { "" } else { ": " };
                let files = counted(count - SAME_TOLD, "more file");
                // The worst of them is told already, so this changes nothing of how to end.
                self.tell(Exit::Incomplete, format_args!("{words}: {files}{colon}{how}"));
            }
        }
    }

    /// Counts a problem, and names it where that is for a script.
    fn name(&mut self, kind: Kind, name: &[u8], how: &str) {
        self.counts[kind as usize] += 1;
        if self.named.len() < PROBLEMS_NAMED {
            let mut problem = json!({ "what": kind.name(), "how": how });
            set_bytes(&mut problem, "name", name);
            self.named.push(problem);
        }
    }

    /// Tells what became of files, where it was not good.
    pub(crate) fn files(&mut self, entries: &[Entry], found: &Found) {
        for problem in &found.unreadable {
            self.tell(Exit::Incomplete, format_args!("not readable: {problem}"));
            self.name(Kind::Unreadable, b"", problem);
        }
        let (mut left, mut cut) = (None, None);
        for entry in entries {
            match &entry.fate {
                Fate::Verified => {}
                Fate::Changed => self.file(Kind::Changed, &entry.name, ""),
                Fate::Unreadable(why) => self.file(Kind::Unreadable, &entry.name, why),
                Fate::Failed(why) => self.file(Kind::Failed, &entry.name, why),
                Fate::NotSent(why) => {
                    let (count, _) = left.get_or_insert((0, *why));
                    *count += 1;
                    self.name(Kind::Failed, &entry.name, why);
                }
                Fate::Cut(why) => {
                    let (count, _) = cut.get_or_insert((0, why));
                    *count += 1;
                    self.name(Kind::Failed, &entry.name, why);
                }
                Fate::Differs(how) => self.file(Kind::Differ, &entry.name, how),
                Fate::Waiting | Fate::Loaded => {
                    self.file(Kind::Failed, &entry.name, "it was not read back");
                }
            }
        }
        self.tell_others();
        if let Some((count, why)) = cut {
            let files = counted(count, "file");
            self.always(format_args!("failed: {files} on the way when the server was lost: {why}"));
        }
        if let Some((count, why)) = left {
            let files = counted(count, "file");
            self.always(format_args!("failed: {files} not sent, because {why}"));
        }
    }

    /// Tells a failure however many were told before.
    pub(crate) fn always(&mut self, problem: std::fmt::Arguments<'_>) {
        self.lines = self.lines.min(PROBLEMS_TOLD - 1);
        self.tell(Exit::Failed, problem);
    }

    /// How many files each problem met, such as `1 differ, 2 failed`; empty if there was none.
    pub(crate) fn counts(&self) -> String {
        let counts = Kind::ALL.iter().zip(self.counts).filter(|(_, count)| *count > 0);
        let texts = counts.map(|(kind, count)| format!("{} {}", grouped(count), kind.name()));
        texts.collect::<Vec<_>>().join(", ")
    }

    /// The counts by kind, and the first problems by name.
    pub(crate) fn to_json(&self, object: &mut Value) {
        for kind in Kind::ALL {
            object[kind.name()] = self.counts[kind as usize].into();
        }
        object["problems"] = self.named.as_slice().into();
    }

    /// How to end.
    pub(crate) fn end(mut self) -> Exit {
        self.tell_others();
        if self.lines > PROBLEMS_TOLD {
            err(format_args!("and {} more\n", self.lines - PROBLEMS_TOLD));
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
    fn a_script_gets_counts_of_all_and_names_of_the_first() {
        let mut told = Told::default();
        let mut entries: Vec<Entry> = (0..PROBLEMS_NAMED + 5)
            .map(|index| {
                let mut entry = Entry::new(format!("f{index}").into());
                entry.fate = Fate::NotSent("why");
                entry
            })
            .collect();
        entries[0].name = vec![0xff, b'\n'];
        entries[0].fate = Fate::Differs("how".into());
        let found = Found { unreadable: vec!["x: denied".into()], ..Found::default() };
        told.files(&entries, &found);
        let mut object = json!({});
        told.to_json(&mut object);
        assert_eq!((&object["differ"], &object["failed"]), (&json!(1), &json!(PROBLEMS_NAMED + 4)));
        assert_eq!((&object["unreadable"], &object["strays"]), (&json!(1), &json!(0)));
        let problems = object["problems"].as_array().unwrap();
        assert_eq!(problems.len(), PROBLEMS_NAMED);
        assert_eq!(problems[1], json!({"what": "differ", "how": "how", "name_hex": "ff0a"}));
        assert_eq!(told.lines, 3);
        assert_eq!(told.end(), Exit::Failed);
    }

    #[test]
    fn what_many_files_have_in_common_does_not_hide_what_one_has() {
        let mut told = Told::default();
        let mut entries: Vec<Entry> =
            (0..500).map(|index| Entry::new(format!("f{index}").into())).collect();
        entries.iter_mut().for_each(|entry| entry.fate = Fate::Differs("absent".into()));
        entries[499].fate = Fate::Failed("damaged".into());
        told.files(&entries, &Found::default());
        assert_eq!(told.lines, 3 + 1 + 1); // three of them, the one, and how many more
        assert_eq!(told.counts(), "499 differ, 1 failed");
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
