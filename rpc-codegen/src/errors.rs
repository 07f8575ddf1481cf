use std::fmt;

/// Everything that is wrong with some `.proto` files or with how they were to be compiled.
///
/// Both its `Display` and its `Debug` text are for people, so `unwrap` in a build script will do.
#[derive(Clone, PartialEq, Eq)]
pub struct Error {
    problems: Vec<String>,
}

impl Error {
    /// One sentence for each thing that is wrong. Those about a place in a file begin with
    /// `file:line:column: `.
    pub fn problems(&self) -> impl Iterator<Item = &str> {
        self.problems.iter().map(String::as_str)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problems.join("\n"))
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Begins on a line of its own: `unwrap` puts it behind its own words.
        write!(f, "\n{self}\n")
    }
}

impl std::error::Error for Error {}

/// Collects what is wrong, so that one build tells all of it.
#[derive(Debug, Default)]
pub(crate) struct Problems {
    found: Vec<String>,
}

impl Problems {
    /// Adds a sentence, unless it is there already.
    pub(crate) fn push(&mut self, problem: impl Into<String>) {
        let problem = problem.into();
        if !self.found.contains(&problem) {
            self.found.push(problem);
        }
    }

    /// `value` if nothing was wrong.
    pub(crate) fn unless<T>(self, value: T) -> Result<T, Error> {
        if self.found.is_empty() { Ok(value) } else { Err(Error { problems: self.found }) }
    }
}
