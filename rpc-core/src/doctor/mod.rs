//! What this machine lets RDMA do, and what keeps it from more: facts, and problems each with its cause and
//! the command that mends it.
//!
//! Everything is read from the kernel's own files, so it works in builds without the feature `verbs`, and as any
//! user. Nothing is changed, no device is opened for use.
//!
//! ```
//! let report = rpc_core::doctor::Doctor::new().examine();
//! for problem in &report.problems {
//!     println!("{problem}");
//! }
//! ```

mod device;
mod files;
mod machine;
mod port;
mod report;

use std::path::PathBuf;

use files::Files;
pub use report::{Fact, Problem, Report, Severity};

use crate::cm::RdmaOptions;
use crate::runtime::default_budget;

/// Examines this machine for programs of this crate.
#[derive(Clone, Debug)]
#[must_use = "a doctor does nothing until examine()"]
pub struct Doctor {
    files: Files,
    budget_bytes: Option<u64>,
    rdma: RdmaOptions,
    insists: bool,
}

impl Default for Doctor {
    fn default() -> Self {
        Self::new()
    }
}

impl Doctor {
    /// Of this machine, for a runtime with the usual settings.
    pub fn new() -> Self {
        Self {
            files: Files::new(PathBuf::from("/")),
            budget_bytes: None,
            rdma: RdmaOptions::default(),
            insists: false,
        }
    }

    /// For a runtime with this memory budget.
    pub fn budget_bytes(mut self, bytes: u64) -> Self {
        self.budget_bytes = Some(bytes);
        self
    }

    /// For addresses with these options.
    pub fn rdma(mut self, options: RdmaOptions) -> Self {
        self.rdma = options;
        self
    }

    /// For `rdma://` addresses: a machine without RDMA is then an error, and not merely one that uses the
    /// software device.
    pub fn insists_on_rdma(mut self, insists: bool) -> Self {
        self.insists = insists;
        self
    }

    /// Of the machine whose `/sys`, `/proc` and `/dev` lie in this folder.
    #[cfg(test)]
    fn in_folder(folder: PathBuf) -> Self {
        Self { files: Files::new(folder), ..Self::new() }
    }

    /// Looks at everything; takes some milliseconds.
    pub fn examine(&self) -> Report {
        let mut report = Report::default();
        machine::examine(&self.files, &mut report);
        let devices = device::examine(&self.files, &self.rdma, self.insists, &mut report);
        let budget = self.budget_bytes.unwrap_or_else(default_budget);
        machine::examine_limits(budget, devices > 0, &mut report);
        report
    }
}

#[cfg(test)]
mod tests;
