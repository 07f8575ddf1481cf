//! What this machine lets RDMA do, and what keeps it from more: facts, and problems each with its cause and
//! the command that mends it.
//!
//! Most is read from the kernel's own files, so it works in builds without the feature `verbs`, and as any
//! user. With that feature each device is opened, asked what it can do, and closed again. Nothing is changed.
//!
//! ```
//! let report = rpc_core::doctor::Doctor::new().examine();
//! for problem in &report.problems {
//!     println!("{problem}");
//! }
//! ```

mod device;
mod files;
mod limits;
mod machine;
mod netdev;
#[cfg(feature = "verbs")]
mod opened;
mod port;
mod remedy;
mod report;

use std::net::IpAddr;
use std::path::PathBuf;

use files::Files;
pub use remedy::remedy;
pub use report::{Fact, Problem, Report, Severity};

use crate::cm::{Address, HostName, RdmaOptions, Scheme};
use crate::runtime::default_budget;

/// Examines this machine for programs of this crate.
#[derive(Clone, Debug)]
#[must_use = "a doctor does nothing until examine()"]
pub struct Doctor {
    files: Files,
    budget_bytes: Option<u64>,
    wanted: Wanted,
    /// Whether devices may be opened: those of this machine.
    opens: bool,
}

/// What an address asks for.
#[derive(Clone, Debug)]
struct Wanted {
    scheme: Scheme,
    options: RdmaOptions,
    /// Where the server is, if the address says so by an IP address.
    peer: Option<IpAddr>,
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
            wanted: Wanted { scheme: Scheme::Auto, options: RdmaOptions::default(), peer: None },
            opens: true,
        }
    }

    /// For a runtime with this memory budget.
    pub fn budget_bytes(mut self, bytes: u64) -> Self {
        self.budget_bytes = Some(bytes);
        self
    }

    /// For connecting to this address, or listening there: its options are examined. For `rdma://` a machine
    /// without RDMA is an error; for `auto://`, which is what is taken without an address, a warning if this
    /// program is built for RDMA; for `soft://` nothing.
    pub fn address(mut self, address: &Address) -> Self {
        let peer = match address.host() {
            HostName::Ip(ip) => Some(ip.to_canonical()).filter(|ip| !ip.is_unspecified()),
            HostName::Name(_) => None,
        };
        self.wanted = Wanted { scheme: address.scheme(), options: address.options().clone(), peer };
        self
    }

    /// Of the machine whose `/sys`, `/proc` and `/dev` lie in this folder.
    #[cfg(test)]
    fn in_folder(folder: PathBuf) -> Self {
        Self { files: Files::new(folder), opens: false, ..Self::new() }
    }

    /// Looks at everything; takes some milliseconds. May block.
    pub fn examine(&self) -> Report {
        let mut report = Report::default();
        machine::examine(&self.files, &mut report);
        let devices = device::examine(&self.files, &self.wanted, self.opens, &mut report);
        let budget = self.budget_bytes.unwrap_or_else(default_budget);
        limits::examine(budget, devices > 0, &mut report);
        report
    }

    /// The network interface of an Ethernet device, for commands that change it.
    pub fn interface_of(&self, device: &str) -> Option<String> {
        port::interface_of(&self.files, device)
    }
}

#[cfg(test)]
mod tests;
