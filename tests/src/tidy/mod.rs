//! The rules of this repository, as checks over its files.
//!
//! Each rule is a function from a [`Tree`] to [`Finding`]s, so it is tried on bad samples here and
//! applied to the real tree by `tests/tidy.rs`. The checks read text, with comments and literals told
//! apart from code; they do not parse Rust. What the compiler or clippy can say is left to them.

mod dependencies;
mod layers;
mod links;
mod purity;
mod rust;
mod size;
mod text;
mod tree;
mod unsafe_code;

use std::fmt;

pub use dependencies::dependencies_have_reasons;
pub use layers::{layers_import_only_what_they_may, sges_are_built_by_mem_alone};
pub use links::markdown_links_resolve;
pub use purity::pure_layers_stay_pure;
pub use rust::Rust;
pub use size::{files_are_short, functions_fit_a_screen};
pub use text::{
    ignored_tests_say_why, no_machine_paths, no_unfinished_work, sleeps_say_why, urls_are_public,
};
pub use tree::{File, Tree};
pub use unsafe_code::unsafe_stays_where_it_may;

/// A place where a rule is broken.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The file, from the repository's root.
    pub path: String,
    /// The line, from 1.
    pub line: usize,
    /// The rule, what breaks it and how to mend it.
    pub message: String,
}

impl Finding {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.message)
    }
}

/// The lines on which `rule` finds something in a tree of the given files: for samples.
#[cfg(test)]
fn lines_found(rule: impl Fn(&Tree) -> Vec<Finding>, files: &[(&str, &str)]) -> Vec<usize> {
    rule(&Tree::of_texts(files)).iter().map(|finding| finding.line).collect()
}
