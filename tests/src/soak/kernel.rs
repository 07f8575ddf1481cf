use std::collections::BTreeMap;
use std::process::Command;

use super::PATIENCE;
use crate::eventually;

/// How many RDMA objects of each kind the kernel has, over all devices and processes.
///
/// Empty where there is no RDMA or no `rdma` program; then nothing is compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Kernel(BTreeMap<String, u64>);

impl Kernel {
    /// Asks the kernel, by `rdma resource show`.
    pub(super) fn read() -> Self {
        let output = Command::new("rdma").args(["resource", "show"]).output();
        output.map_or_else(
            |_| Self::default(),
            |output| Self::parse(&String::from_utf8_lossy(&output.stdout)),
        )
    }

    /// Lines such as `0: rxe0: pd 1 cq 1 qp 1 mr 0`.
    fn parse(text: &str) -> Self {
        let mut counts = BTreeMap::new();
        for line in text.lines() {
            let Some(counted) = line.splitn(3, ": ").nth(2) else { continue };
            let words: Vec<&str> = counted.split_whitespace().collect();
            for pair in words.chunks_exact(2) {
                *counts.entry(pair[0].to_owned()).or_default() += pair[1].parse().unwrap_or(0);
            }
        }
        Self(counts)
    }

    /// Waits until no more of anything is there than `self` has. Memory regions are not compared:
    /// a runtime keeps what it registered once, and registers more when more is in use at once.
    ///
    /// # Errors
    /// What is left.
    pub(super) fn is_back(&self) -> Result<(), String> {
        let left = || {
            let now = Self::read();
            let more = |kind: &String| now.0.get(kind) > self.0.get(kind) && kind != "mr";
            let kinds: Vec<String> = now.0.keys().filter(|kind| more(kind)).cloned().collect();
            (kinds, now)
        };
        if eventually(PATIENCE, || left().0.is_empty()) {
            return Ok(());
        }
        let (kinds, now) = left();
        Err(format!("the kernel has more of {}: {:?} after {:?}", kinds.join(", "), now.0, self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_all_devices_are_summed() {
        let text = "0: rxe0: pd 2 cq 3 qp 1\n1: rxe1: pd 1 cq 0 ctx 4\nnonsense\n";
        let counts = [("pd", 3), ("cq", 3), ("qp", 1), ("ctx", 4)];
        assert_eq!(Kernel::parse(text).0, counts.map(|(kind, count)| (kind.into(), count)).into());
    }
}
