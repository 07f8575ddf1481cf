use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::{Value as Json, json};

use super::cells::Value;
use super::peer::Peer;

/// Every value of every round.
pub(super) struct Report {
    pub(super) peers: Vec<Peer>,
    /// By peer (in their order) and cell: a value for each round.
    values: Vec<BTreeMap<String, Vec<f64>>>,
}

/// Columns: the cell, its heading, digits after the point.
const COLUMNS: [(&str, &str, usize); 9] = [
    ("1 outstanding p50 us", "64 B p50 µs", 1),
    ("1 outstanding p99 us", "p99 µs", 1),
    ("1 outstanding p99.9 us", "p99.9 µs", 0),
    ("1 outstanding client CPU us", "CPU µs a call, client", 1),
    ("1 outstanding server CPU us", "server", 1),
    ("64 outstanding calls/s", "calls/s, 64 at once", 0),
    ("64 outstanding client CPU us", "CPU µs a call, client", 2),
    ("64 outstanding server CPU us", "server", 2),
    ("256 outstanding calls/s", "calls/s, 256 at once", 0),
];

/// Columns of the second table.
const BULK: [(&str, &str, usize); 8] = [
    ("1 MiB requests GB/s", "1 MiB requests GB/s", 2),
    ("1 MiB answers GB/s", "answers", 2),
    ("16 MiB requests GB/s", "16 MiB requests GB/s", 2),
    ("16 MiB answers GB/s", "answers", 2),
    ("1 MiB cached requests GB/s", "cached: 1 MiB requests", 2),
    ("1 MiB cached answers GB/s", "answers", 2),
    ("16 MiB cached requests GB/s", "cached: 16 MiB requests", 2),
    ("16 MiB cached answers GB/s", "answers", 2),
];

/// One row of the ratios.
struct Ratio {
    what: &'static str,
    cell: &'static str,
    of: Peer,
    /// Of several peers, the best one of each round counts.
    to: &'static [Peer],
    /// What the ratio should be: the project's own aim, if it has one for this row.
    aim: Option<Aim>,
}

/// Bounds of a ratio.
#[derive(Clone, Copy)]
enum Aim {
    AtMost(f64),
    AtLeast(f64),
}

impl Aim {
    fn show(self) -> String {
        match self {
            Self::AtMost(bound) => format!("≤ {bound:.2}"),
            Self::AtLeast(bound) => format!("≥ {bound:.2}"),
        }
    }
}

const RAW_SPIN: &[Peer] = &[Peer::RawSpin];
const RAW_BLOCKING: &[Peer] = &[Peer::RawBlocking];
const RAW: &[Peer] = &[Peer::RawSpin, Peer::RawBlocking];
const TONIC_TCP: &[Peer] = &[Peer::TonicTcp, Peer::TonicTcpMulti];
const TONIC_UNIX: &[Peer] = &[Peer::TonicUnix, Peer::TonicUnixMulti];

const LATENCY: &str = "1 outstanding p50 us";
const CALLS: &str = "64 outstanding calls/s";

const RATIOS: [Ratio; 20] = {
    use Aim::{AtLeast, AtMost};
    use Peer::{OursSleep, OursSpin};
    const fn row(
        what: &'static str,
        cell: &'static str,
        of: Peer,
        to: &'static [Peer],
        aim: Option<Aim>,
    ) -> Ratio {
        Ratio { what, cell, of, to, aim }
    }
    [
        row("64 B p50", LATENCY, OursSpin, RAW_SPIN, Some(AtMost(1.8))),
        row("64 B p50", LATENCY, OursSleep, RAW_BLOCKING, None),
        row("64 B p50", LATENCY, OursSleep, TONIC_TCP, Some(AtMost(1.0))),
        row("64 B p50", LATENCY, OursSleep, TONIC_UNIX, Some(AtMost(1.0))),
        row("64 B p50", LATENCY, Peer::OursTokio, TONIC_TCP, Some(AtMost(1.0))),
        row("64 B p50", LATENCY, Peer::OursTokio, TONIC_UNIX, Some(AtMost(1.0))),
        row("calls/s, 64 at once", CALLS, OursSpin, TONIC_TCP, Some(AtLeast(1.0))),
        row("calls/s, 64 at once", CALLS, OursSleep, TONIC_TCP, Some(AtLeast(1.0))),
        row("calls/s, 64 at once", CALLS, OursSleep, TONIC_UNIX, Some(AtLeast(1.0))),
        row("calls/s, 64 at once", CALLS, Peer::OursTokio, TONIC_UNIX, Some(AtLeast(1.0))),
        row("1 MiB requests", "1 MiB requests GB/s", OursSleep, TONIC_TCP, Some(AtLeast(1.0))),
        row("1 MiB answers", "1 MiB answers GB/s", OursSleep, TONIC_TCP, Some(AtLeast(1.0))),
        row("16 MiB requests", "16 MiB requests GB/s", OursSpin, RAW, None),
        row("16 MiB requests", "16 MiB requests GB/s", OursSleep, RAW, None),
        row("16 MiB requests", "16 MiB requests GB/s", OursSpin, TONIC_TCP, Some(AtLeast(2.0))),
        row("16 MiB requests", "16 MiB requests GB/s", OursSleep, TONIC_TCP, Some(AtLeast(2.0))),
        row("16 MiB requests", "16 MiB requests GB/s", OursSleep, TONIC_UNIX, Some(AtLeast(1.6))),
        row("16 MiB answers", "16 MiB answers GB/s", OursSpin, TONIC_TCP, Some(AtLeast(2.0))),
        row("16 MiB answers", "16 MiB answers GB/s", OursSleep, TONIC_TCP, Some(AtLeast(2.0))),
        row("16 MiB answers", "16 MiB answers GB/s", OursSleep, TONIC_UNIX, Some(AtLeast(1.6))),
    ]
};

/// With fewer rounds there is no range to speak of, so no ratio is shown.
const ROUNDS_FOR_RATIOS: usize = 3;

/// Whether less is better in a cell.
fn less_is_better(cell: &str) -> bool {
    cell.ends_with(" us")
}

impl Ratio {
    /// Who is compared with whom; how each works is in its name.
    fn name(&self, report: &Report) -> String {
        let there: Vec<_> =
            self.to.iter().filter(|peer| report.rounds(**peer, self.cell).is_some()).collect();
        let to = match there[..] {
            [only] => only.label().to_owned(),
            _ => format!(
                "the better of: {}",
                there.iter().map(|peer| peer.label()).collect::<Vec<_>>().join(", ")
            ),
        };
        format!("{}: {} ÷ {to}", self.what, self.of.label())
    }

    /// Whether the median keeps to the aim, and whether all rounds say the same.
    fn verdict(&self, ratio: Spread) -> String {
        let equal = if ratio.crosses_one() { "equal" } else { "" };
        let Some(aim) = self.aim else { return equal.to_owned() };
        let met = |value: f64| match aim {
            Aim::AtMost(bound) => value <= bound,
            Aim::AtLeast(bound) => value >= bound,
        };
        let said = if met(ratio.median) { "met" } else { "missed" };
        let all = met(ratio.least) == met(ratio.median) && met(ratio.most) == met(ratio.median);
        let how_sure = if all { "" } else { ", not in every round" };
        let equal = if equal.is_empty() { String::new() } else { format!(", {equal}") };
        format!("{} {said}{how_sure}{equal}", aim.show())
    }
}

/// The median of some values, the least and the greatest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Spread {
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (least, most) = (*sorted.first()?, *sorted.last()?);
        let upper = sorted.len() / 2;
        let lower = (sorted.len() - 1) / 2;
        let median = f64::midpoint(*sorted.get(lower)?, *sorted.get(upper)?);
        Some(Self { median, least, most })
    }

    pub(crate) fn show(self, digits: usize) -> String {
        let Self { median, least, most } = self;
        format!("{median:.digits$} [{least:.digits$} .. {most:.digits$}]")
    }

    /// As a ratio: one whose range goes over 1 says that both are equal.
    fn crosses_one(self) -> bool {
        self.least <= 1.0 && self.most >= 1.0
    }
}

impl Report {
    pub(super) fn new(peers: &[Peer]) -> Self {
        Self { peers: peers.to_vec(), values: vec![BTreeMap::new(); peers.len()] }
    }

    /// Adds a round of a peer.
    pub(super) fn add(&mut self, peer: Peer, values: Vec<Value>) {
        let Some(at) = self.peers.iter().position(|have| *have == peer) else { return };
        for (cell, value) in values {
            self.values[at].entry(cell).or_default().push(value);
        }
    }

    fn rounds(&self, peer: Peer, cell: &str) -> Option<&[f64]> {
        let at = self.peers.iter().position(|have| *have == peer)?;
        self.values[at].get(cell).map(Vec::as_slice)
    }

    /// A cell over all rounds.
    pub(super) fn cell(&self, peer: Peer, cell: &str) -> Option<Spread> {
        Spread::of(self.rounds(peer, cell)?)
    }

    /// Round by round, since all were measured shortly after one another; of several peers the best.
    fn ratio(&self, of: Peer, to: &[Peer], cell: &str) -> Option<Spread> {
        let own = self.rounds(of, cell)?;
        let others: Vec<&[f64]> = to.iter().filter_map(|peer| self.rounds(*peer, cell)).collect();
        let best = |round: usize| {
            let values = others.iter().filter_map(|rounds| rounds.get(round).copied());
            if less_is_better(cell) { values.reduce(f64::min) } else { values.reduce(f64::max) }
        };
        let ratios: Vec<f64> = own
            .iter()
            .enumerate()
            .filter_map(|(round, value)| Some(value / best(round)?))
            .collect();
        (ratios.len() >= ROUNDS_FOR_RATIOS).then(|| Spread::of(&ratios)).flatten()
    }

    pub(super) fn table(&self) -> String {
        let mut text = self.columns(&COLUMNS);
        text.push('\n');
        text.push_str(&self.columns(&BULK));
        let rows: Vec<_> = RATIOS
            .iter()
            .filter_map(|row| Some((row, self.ratio(row.of, row.to, row.cell)?)))
            .collect();
        if rows.is_empty() {
            return text;
        }
        text.push_str(
            "\n| ratio, round by round | median [least .. most] | aim |\n|---|---|---|\n",
        );
        for (row, ratio) in rows {
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "| {} | {} | {} |",
                row.name(self),
                ratio.show(2),
                row.verdict(ratio)
            );
        }
        text
    }

    fn columns(&self, columns: &[(&str, &str, usize)]) -> String {
        let headings = columns.iter().map(|(_, heading, _)| *heading).collect::<Vec<_>>();
        let mut text =
            format!("| | {} |\n|{}\n", headings.join(" | "), "---|".repeat(columns.len() + 1));
        for &peer in &self.peers {
            let cells = columns.iter().map(|(cell, _, digits)| {
                self.cell(peer, cell).map_or_else(|| "–".to_owned(), |spread| spread.show(*digits))
            });
            let cells = cells.collect::<Vec<_>>().join(" | ");
            let _ = writeln!(text, "| {} | {cells} |", peer.label());
        }
        text
    }

    pub(super) fn json(&self) -> Json {
        let peers = self.peers.iter().zip(&self.values);
        peers.map(|(peer, cells)| json!({ "peer": peer.label(), "rounds": cells })).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(peers: &[(Peer, [f64; 3])]) -> Report {
        let mut report = Report::new(&peers.iter().map(|(peer, _)| *peer).collect::<Vec<_>>());
        for (peer, rounds) in peers {
            for value in rounds {
                report.add(
                    *peer,
                    vec![("calls/s".to_owned(), *value), ("p50 us".to_owned(), *value)],
                );
            }
        }
        report
    }

    #[test]
    fn a_ratio_is_of_rounds_and_equal_when_its_range_goes_over_one() {
        let report =
            report(&[(Peer::OursSpin, [3.0, 8.0, 5.0]), (Peer::RawSpin, [2.0, 10.0, 4.0])]);
        let ratio = report.ratio(Peer::OursSpin, RAW_SPIN, "calls/s");
        assert_eq!(ratio, Some(Spread { median: 1.25, least: 0.8, most: 1.5 }));
        assert_eq!(ratio.map(Spread::crosses_one), Some(true));
        assert_eq!(report.ratio(Peer::OursSpin, TONIC_TCP, "calls/s"), None);
    }

    #[test]
    fn of_several_peers_the_better_of_each_round_counts() {
        let report = report(&[
            (Peer::OursSleep, [4.0, 4.0, 4.0]),
            (Peer::TonicTcp, [1.0, 8.0, 2.0]),
            (Peer::TonicTcpMulti, [2.0, 4.0, 4.0]),
        ]);
        let ratio = |cell| report.ratio(Peer::OursSleep, TONIC_TCP, cell);
        assert_eq!(ratio("calls/s"), Some(Spread { median: 1.0, least: 0.5, most: 2.0 }));
        assert_eq!(ratio("p50 us"), Some(Spread { median: 2.0, least: 1.0, most: 4.0 }));
    }

    #[test]
    fn an_aim_is_met_by_the_median_and_the_range_is_told() {
        let row = Ratio {
            what: "",
            cell: "",
            of: Peer::OursSpin,
            to: RAW_SPIN,
            aim: Some(Aim::AtMost(1.8)),
        };
        let spread = |least, median, most| Spread { median, least, most };
        assert_eq!(row.verdict(spread(1.2, 1.5, 1.7)), "≤ 1.80 met");
        assert_eq!(row.verdict(spread(1.2, 1.5, 1.9)), "≤ 1.80 met, not in every round");
        assert_eq!(row.verdict(spread(0.9, 1.9, 2.0)), "≤ 1.80 missed, not in every round, equal");
    }
}
