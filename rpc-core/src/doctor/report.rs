use std::fmt;

/// What a [`Doctor`](super::Doctor) found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// What there is, in the order in which people read it.
    pub facts: Vec<Fact>,
    /// What is wrong, errors first and notes last.
    pub problems: Vec<Problem>,
}

/// One thing that there is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fact {
    /// What it belongs to: `machine`, `limits`, `device mlx5_0`, and so on.
    pub of: String,
    /// Its name.
    pub name: &'static str,
    /// What it is. Of the kernel's files alone, with control characters shown as `\n`.
    pub value: String,
}

/// How bad a problem is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Severity {
    /// A device that is there cannot be used, or what was asked for is not there.
    Error,
    /// It works, and could do better.
    Warning,
    /// Told for who wants RDMA; what was asked for does without.
    Note,
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Problem {
    /// How bad it is.
    pub severity: Severity,
    /// What it concerns, as [`Fact::of`] has it.
    pub of: String,
    /// What is wrong.
    pub what: String,
    /// Why, most likely.
    pub cause: String,
    /// A command or a setting that mends it.
    pub fix: String,
}

impl Report {
    /// Whether there is no error; there may be warnings and notes.
    pub fn is_healthy(&self) -> bool {
        self.problems.iter().all(|problem| problem.severity != Severity::Error)
    }

    /// Adds a fact, for what a program looks at itself.
    pub fn fact(&mut self, of: &str, name: &'static str, value: impl Into<String>) {
        let value = shown(&value.into());
        self.facts.push(Fact { of: of.to_owned(), name, value });
    }

    /// Adds a problem, behind the others of its severity.
    pub fn problem(
        &mut self,
        severity: Severity,
        of: &str,
        what: impl Into<String>,
        cause: impl Into<String>,
        fix: impl Into<String>,
    ) {
        let problem = Problem {
            severity,
            of: of.to_owned(),
            what: shown(&what.into()),
            cause: shown(&cause.into()),
            fix: shown(&fix.into()),
        };
        self.insert(problem);
    }

    /// Adds what another report has, its problems as no worse than `most`.
    pub(super) fn add(&mut self, other: Self, most: Severity) {
        self.facts.extend(other.facts);
        for mut problem in other.problems {
            problem.severity = problem.severity.max(most);
            self.insert(problem);
        }
    }

    /// Behind the others of its severity.
    fn insert(&mut self, problem: Problem) {
        let at = self.problems.partition_point(|other| other.severity <= problem.severity);
        self.problems.insert(at, problem);
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        })
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { severity, of, what, cause, fix } = self;
        write!(f, "{severity}: {of}: {what}\n  cause: {cause}\n  fix:   {fix}")
    }
}

/// Names of devices come from whoever made them: their control characters are shown, not obeyed.
fn shown(text: &str) -> String {
    text.chars()
        .flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_added_is_no_worse_than_is_said() {
        let mut report = Report::default();
        report.problem(Severity::Warning, "a test", "1", "", "");
        let mut other = Report::default();
        other.problem(Severity::Error, "a test", "2", "", "");
        other.fact("a test", "name", "value");
        report.add(other, Severity::Note);
        assert_eq!(report.problems[1].severity, Severity::Note);
        assert!(report.is_healthy() && report.facts.len() == 1);
    }

    #[test]
    fn errors_come_before_warnings_and_each_kind_keeps_its_order() {
        let mut report = Report::default();
        assert!(report.is_healthy());
        for (severity, what) in [
            (Severity::Warning, "1"),
            (Severity::Error, "2"),
            (Severity::Warning, "3"),
            (Severity::Error, "4"),
        ] {
            report.problem(severity, "a test", what, "a \n cause", "a fix");
        }
        let order: Vec<&str> = report.problems.iter().map(|problem| &*problem.what).collect();
        assert_eq!(order, ["2", "4", "1", "3"]);
        assert!(!report.is_healthy());
        let text = report.problems[0].to_string();
        assert_eq!(text, "error: a test: 2\n  cause: a \\n cause\n  fix:   a fix");
    }
}
