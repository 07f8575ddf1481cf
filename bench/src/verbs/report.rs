use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::{Value as Json, json};

use super::model::{COSTS, Model};
use crate::compare::cells::Value;
use crate::compare::report::Spread;

/// Every value by name, with the round it is of.
#[derive(Debug, Default)]
pub(super) struct Report(BTreeMap<String, Vec<(usize, f64)>>);

/// What is shown of the values themselves: name, heading, digits.
const FIGURES: [(&str, &str, usize); 14] = [
    ("raw SEND p50 us", "SEND and SEND back, 64 B (ib_send_lat), µs", 1),
    ("UCX uct p50 us", "the same by UCX's uct (am_lat), µs", 1),
    ("rrppcc 64 B p50 us", "call by rrppcc, µs", 1),
    ("ruapc 64 B p50 us", "call by ruapc, µs", 1),
    ("1 outstanding p50 us", "call by this crate, µs", 1),
    ("1 outstanding p99 us", "its p99, µs", 1),
    ("raw SENDs/s", "SENDs/s, 64 B, shared receives (ib_send_bw)", 0),
    ("rrppcc 64 outstanding calls/s", "calls/s by rrppcc, 64 at once", 0),
    ("ruapc 64 outstanding calls/s", "calls/s by ruapc, 64 at once", 0),
    ("64 outstanding calls/s", "calls/s by this crate, 64 at once", 0),
    ("raw READ MB/s", "READs of 1 MiB, 4 at once (ib_read_bw), MB/s", 1),
    ("ruapc 1 MiB MB/s", "payloads of 1 MiB by ruapc, 4 at once, MB/s", 1),
    ("1 MiB requests MB/s", "requests of 1 MiB by this crate, 4 at once, MB/s", 1),
    ("1 MiB answers MB/s", "answers of 1 MiB by this crate, 4 at once, MB/s", 1),
];

/// Bounds of a ratio.
#[derive(Clone, Copy)]
enum Aim {
    AtMost(f64),
    AtLeast(f64),
    /// It is another's.
    None,
}

impl Aim {
    fn verdict(self, ratio: Spread) -> String {
        let (sign, bound, met) = match self {
            Self::AtMost(bound) => ("≤", bound, ratio.median <= bound),
            Self::AtLeast(bound) => ("≥", bound, ratio.median >= bound),
            Self::None => return String::new(),
        };
        format!("{sign} {bound:.1} {}", if met { "met" } else { "missed" })
    }
}

/// What is divided by what, round by round.
const RATIOS: [(&str, &str, &str, Aim); 10] = [
    ("call, this crate ÷ SENDs", "1 outstanding p50 us", "raw SEND p50 us", Aim::AtMost(1.3)),
    ("UCX's uct ÷ SENDs", "UCX uct p50 us", "raw SEND p50 us", Aim::None),
    ("call, rrppcc ÷ SENDs", "rrppcc 64 B p50 us", "raw SEND p50 us", Aim::None),
    ("call, ruapc ÷ SENDs", "ruapc 64 B p50 us", "raw SEND p50 us", Aim::None),
    ("calls/s, this crate ÷ SENDs/s", "64 outstanding calls/s", "raw SENDs/s", Aim::AtLeast(2.0)),
    ("calls/s, rrppcc ÷ SENDs/s", "rrppcc 64 outstanding calls/s", "raw SENDs/s", Aim::None),
    ("calls/s, ruapc ÷ SENDs/s", "ruapc 64 outstanding calls/s", "raw SENDs/s", Aim::None),
    ("requests of 1 MiB ÷ READs", "1 MiB requests MB/s", "raw READ MB/s", Aim::AtLeast(0.9)),
    ("answers of 1 MiB ÷ READs", "1 MiB answers MB/s", "raw READ MB/s", Aim::AtLeast(0.9)),
    ("payloads, ruapc ÷ READs", "ruapc 1 MiB MB/s", "raw READ MB/s", Aim::None),
];

impl Report {
    /// Adds what a round measured.
    pub(super) fn add(&mut self, round: usize, values: Vec<Value>) {
        for (name, value) in values {
            self.0.entry(name).or_default().push((round, value));
        }
    }

    fn spread(&self, name: &str) -> Option<Spread> {
        Spread::of(&self.0.get(name)?.iter().map(|(_, value)| *value).collect::<Vec<_>>())
    }

    fn median(&self, name: &str) -> Option<f64> {
        self.spread(name).map(|spread| spread.median)
    }

    /// Round by round: what is divided was measured shortly after one another.
    fn ratio(&self, over: &str, under: &str) -> Option<Spread> {
        let (over, under) = (self.0.get(over)?, self.0.get(under)?);
        let ratios = over.iter().filter_map(|(round, over)| {
            let (_, under) = under.iter().find(|(of, _)| of == round)?;
            Some(over / under)
        });
        Spread::of(&ratios.collect::<Vec<_>>())
    }

    pub(super) fn table(&self) -> String {
        let mut text = String::from("| | median [least .. most] |\n|---|---|\n");
        for (name, heading, digits) in FIGURES {
            if let Some(spread) = self.spread(name) {
                // Writing to a string cannot fail.
                let _ = writeln!(text, "| {heading} | {} |", spread.show(digits));
            }
        }
        text.push_str(
            "\n| ratio, round by round | median [least .. most] | aim |\n|---|---|---|\n",
        );
        for (heading, over, under, aim) in RATIOS {
            if let Some(ratio) = self.ratio(over, under) {
                let _ =
                    writeln!(text, "| {heading} | {} | {} |", ratio.show(2), aim.verdict(ratio));
            }
        }
        text.push_str(&self.costs());
        text.push_str(&self.system_calls());
        text.push_str(&self.predictions());
        text
    }

    /// What a call cost each side's queues, beside what the model says of it.
    fn costs(&self) -> String {
        let mut text = String::from(
            "\n| of each call: counted, and the model's | requests | doorbells | receive doorbells | completions | arms | yields | other system calls |\n\
             |---|---|---|---|---|---|---|---|\n",
        );
        for cost in &COSTS {
            let counted = cost.counts().map(|(what, model)| {
                let name = format!("{} {} {what}", cost.cell, cost.side);
                self.median(&name).map(|count| format!("{count:.2} ({})", model.show()))
            });
            if counted.iter().all(Option::is_none) {
                continue;
            }
            // Not of the model: what depends on how long a call takes, and what was counted more slowly.
            let others = ["yields", "syscalls"].map(|what| {
                Some(format!("{:.2}", self.median(&format!("{} {} {what}", cost.cell, cost.side))?))
            });
            let cells: Vec<String> = counted
                .into_iter()
                .chain(others)
                .map(|cell| cell.unwrap_or_else(|| "–".to_owned()))
                .collect();
            let _ = writeln!(text, "| {}, {} | {} |", cost.cell, cost.side, cells.join(" | "));
        }
        text
    }

    /// Which system calls those were, and how many doorbells there were beside them.
    fn system_calls(&self) -> String {
        let mut text = String::from(
            "\n| of each call, under strace, where fewer or more of them share a doorbell | doorbells | system calls but yields |\n\
             |---|---|---|\n",
        );
        let heading = text.len();
        for cost in &COSTS {
            let of = format!("{}, {}", cost.cell, cost.side);
            let prefix = format!("{} {}", cost.cell, cost.side);
            let Some(doorbells) = self.median(&format!("{prefix} doorbells traced")) else {
                continue;
            };
            let prefix = format!("{prefix} syscall ");
            let named = self.0.keys().filter_map(|name| name.strip_prefix(&prefix));
            let mut counts: Vec<(&str, f64)> = named
                .filter_map(|name| Some((name, self.median(&format!("{prefix}{name}"))?)))
                .collect();
            counts.sort_by(|(_, one), (_, other)| other.total_cmp(one));
            let shown: Vec<String> =
                counts.iter().map(|(name, count)| format!("{name} {count:.3}")).collect();
            let _ = writeln!(text, "| {of} | {doorbells:.2} | {} |", shown.join(", "));
        }
        if text.len() == heading { String::new() } else { text }
    }

    /// What the model makes of the raw figures and of this machine's CPU, beside what was measured.
    fn predictions(&self) -> String {
        let Some(model) = Model::of(|name| self.median(name)) else { return String::new() };
        let mut text =
            String::from("\n| predicted by the model | predicted | measured |\n|---|---|---|\n");
        for (heading, name, predicted, digits) in model.predictions() {
            let measured = self
                .median(name)
                .map_or_else(|| "–".to_owned(), |value| format!("{value:.digits$}"));
            let _ = writeln!(text, "| {heading} | {predicted:.digits$} | {measured} |");
        }
        text
    }

    pub(super) fn json(&self) -> Json {
        json!(self.0)
    }

    /// The aims that the medians miss.
    pub(super) fn missed(&self) -> Vec<String> {
        let rows = RATIOS.iter().filter_map(|(heading, over, under, aim)| {
            let verdict = aim.verdict(self.ratio(over, under)?);
            verdict.ends_with("missed").then(|| format!("{heading}: {verdict}"))
        });
        rows.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_rounds_and_their_medians_meet_aims_or_not() {
        let mut report = Report::default();
        for (round, (call, raw)) in
            [(60.0, 50.0), (130.0, 100.0), (70.0, 50.0)].into_iter().enumerate()
        {
            report.add(
                round,
                vec![
                    ("1 outstanding p50 us".to_owned(), call),
                    ("raw SEND p50 us".to_owned(), raw),
                    ("64 outstanding calls/s".to_owned(), 15.0),
                    ("raw SENDs/s".to_owned(), 10.0),
                ],
            );
        }
        // One that fails in a round has no ratio of it, and the others' do not move.
        report.add(0, vec![("UCX uct p50 us".to_owned(), 100.0)]);
        report.add(2, vec![("UCX uct p50 us".to_owned(), 100.0)]);
        let table = report.table();
        assert!(table.contains("| UCX's uct ÷ SENDs | 2.00 [2.00 .. 2.00] |"), "{table}");
        assert!(
            table.contains("| call, this crate ÷ SENDs | 1.30 [1.20 .. 1.40] | ≤ 1.3 met |"),
            "{table}"
        );
        assert!(
            table
                .contains("| calls/s, this crate ÷ SENDs/s | 1.50 [1.50 .. 1.50] | ≥ 2.0 missed |")
        );
        assert!(!table.contains("ruapc"), "who was not measured has no row");
        assert_eq!(report.missed(), ["calls/s, this crate ÷ SENDs/s: ≥ 2.0 missed"]);
    }
}
