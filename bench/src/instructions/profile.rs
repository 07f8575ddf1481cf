use std::collections::HashMap;
use std::fmt::Write;

use crate::failure::Failure;

/// Instructions by function, without those of the functions it calls.
#[derive(Debug, Default)]
pub(super) struct Profile {
    functions: HashMap<String, f64>,
}

impl Profile {
    /// Reads a file of callgrind. Names are written once, as `fn=(7) name`, and then `fn=(7)`; a cost
    /// is a line `position instructions`; the line after `calls=` is the cost of what was called.
    pub(super) fn parse(text: &str) -> Result<Self, Failure> {
        let mut names: HashMap<&str, &str> = HashMap::new();
        let mut functions: HashMap<&str, f64> = HashMap::new();
        let mut current = "";
        let mut inclusive = false;
        let mut summary = None;
        for line in text.lines() {
            if let Some(name) = line.strip_prefix("fn=").or_else(|| line.strip_prefix("cfn=")) {
                let (number, new) = name.split_once(' ').unwrap_or((name, ""));
                if !new.is_empty() {
                    names.insert(number, new);
                }
                if line.starts_with("fn=") {
                    current = number;
                }
            } else if line.starts_with("calls=") {
                inclusive = true;
            } else if let Some(total) = line.strip_prefix("summary: ") {
                summary = total.trim().parse::<f64>().ok();
            } else if line
                .starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first))
            {
                let cost = line.split(' ').nth(1).and_then(|cost| cost.parse::<f64>().ok());
                if !std::mem::take(&mut inclusive) {
                    let unread =
                        || Failure::new(format!("callgrind wrote a line of no cost: {line}"));
                    *functions.entry(current).or_default() += cost.ok_or_else(unread)?;
                }
            }
        }
        let mut profile = Self::default();
        for (number, cost) in functions {
            let name = names.get(number).copied().unwrap_or("unknown");
            *profile.functions.entry(strip(name)).or_default() += cost;
        }
        if summary != Some(profile.total()) {
            return Err(Failure::new("callgrind's functions do not add up to its summary"));
        }
        Ok(profile)
    }

    /// What this run did more than `before`, for each of `calls`.
    pub(super) fn since(&self, before: &Self, calls: u64) -> Self {
        let more = |(name, cost): (&String, &f64)| {
            let before = before.functions.get(name).copied().unwrap_or_default();
            (name.clone(), (cost - before) / calls as f64)
        };
        Self { functions: self.functions.iter().map(more).collect() }
    }

    pub(super) fn total(&self) -> f64 {
        self.functions.values().sum()
    }

    /// The functions with the most instructions, as a table.
    pub(super) fn table(&self, rows: usize) -> String {
        let mut functions: Vec<_> = self.functions.iter().collect();
        functions.sort_by(|a, b| b.1.total_cmp(a.1));
        let mut text = "| instructions | share | function |\n|---|---|---|\n".to_owned();
        for (name, cost) in functions.into_iter().take(rows) {
            let share = cost / self.total() * 100.0;
            // Writing to a string cannot fail.
            let _ = writeln!(text, "| {cost:.1} | {share:.1} % | `{name}` |");
        }
        text
    }
}

/// A name without the hash that tells instances apart, and without callgrind's number of a recursion.
fn strip(name: &str) -> String {
    let name = name.split('\'').next().unwrap_or(name);
    match name.rfind("::h") {
        Some(at) if name.len() - at == 19 => name[..at].to_owned(),
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "events: Ir\n\nfn=(1) main\n1 10\n+2 5\ncfn=(2) work::h0123456789abcdef\n\
                        calls=3 0\n* 300\n\nfn=(2)\n7 300\nsummary: 315\n";

    #[test]
    fn costs_are_a_functions_own() {
        let profile = Profile::parse(FILE).unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!(profile.functions.get("main"), Some(&15.0));
        assert_eq!(profile.functions.get("work"), Some(&300.0));
        assert_eq!(profile.total(), 315.0);
    }

    #[test]
    fn a_difference_is_per_call() {
        let short = Profile::parse(FILE).unwrap_or_else(|failure| panic!("{failure}"));
        let long = Profile::parse(&FILE.replace("7 300", "7 800").replace("315", "815"))
            .unwrap_or_default();
        let per_call = long.since(&short, 100);
        assert_eq!(per_call.functions.get("work"), Some(&5.0));
        assert_eq!(per_call.total(), 5.0);
    }
}
