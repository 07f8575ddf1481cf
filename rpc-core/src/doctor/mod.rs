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

mod address;
mod device;
mod files;
mod limits;
mod machine;
mod memory;
mod netdev;
#[cfg(feature = "verbs")]
mod opened;
mod port;
mod remedy;
mod report;
mod software;

use std::net::IpAddr;
use std::path::PathBuf;

use files::Files;
use limits::Budget;
pub use remedy::{failed_here, remedy};
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
    /// Whether this program is built for RDMA.
    built: bool,
    /// The command that builds it so.
    rebuild: String,
}

impl Wanted {
    /// How bad it may be that a device of this machine cannot be used.
    const fn trouble(&self) -> Severity {
        match self.scheme {
            Scheme::Rdma | Scheme::Auto if self.built => Severity::Error,
            _ => Severity::Note,
        }
    }
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
            wanted: Wanted {
                scheme: Scheme::Auto,
                options: RdmaOptions::default(),
                peer: None,
                built: cfg!(feature = "verbs"),
                rebuild: "cargo build --release --features rpc-core/verbs".to_owned(),
            },
            opens: true,
        }
    }

    /// For a runtime with this memory budget.
    pub fn budget_bytes(mut self, bytes: u64) -> Self {
        self.budget_bytes = Some(bytes);
        self
    }

    /// For connecting to this address, or listening there: its options are examined. For `rdma://` a machine
    /// without RDMA is an error; for `auto://`, which is what is taken without an address, a note; for `soft://`
    /// nothing. What is wrong with devices that there are is an error where this program could use them, and a note
    /// with `soft://` or in a program that is built without RDMA.
    pub fn address(mut self, address: &Address) -> Self {
        let peer = match address.host() {
            HostName::Ip(ip) => Some(ip.to_canonical()).filter(|ip| !ip.is_unspecified()),
            HostName::Name(_) => None,
        };
        let (scheme, options) = (address.scheme(), address.options().clone());
        self.wanted = Wanted { scheme, options, peer, ..self.wanted };
        self
    }

    /// The command that builds this program for RDMA, for a report that it is not.
    pub fn rebuild(mut self, command: impl Into<String>) -> Self {
        self.wanted.rebuild = command.into();
        self
    }

    /// Of the machine whose `/sys`, `/proc` and `/dev` lie in this folder.
    #[cfg(test)]
    fn in_folder(folder: PathBuf) -> Self {
        let mut this = Self { files: Files::new(folder), opens: false, ..Self::new() };
        this.wanted.built = true;
        this
    }

    /// Looks at everything; takes some milliseconds. May block.
    pub fn examine(&self) -> Report {
        let mut report = Report::default();
        machine::examine(&self.files, &mut report);
        let (trouble, mut of_devices) = (self.wanted.trouble(), Report::default());
        let devices = device::examine(&self.files, &self.wanted, self.opens, &mut of_devices);
        report.add(of_devices, trouble);
        device::program(&self.wanted, devices, &mut report);
        let rdma = (devices > 0).then_some(trouble);
        limits::examine(self.budget(), rdma, &mut report);
        report
    }

    fn budget(&self) -> Budget {
        let bytes = self.budget_bytes.unwrap_or_else(default_budget);
        Budget { bytes, chosen: self.budget_bytes.is_some(), memory: memory::of(&self.files) }
    }

    /// The network interface of an Ethernet device, for commands that change it.
    pub fn interface_of(&self, device: &str) -> Option<String> {
        port::interface_of(&self.files, device)
    }
}

#[cfg(test)]
mod tests;
