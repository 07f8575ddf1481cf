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

/// What is compared, and which is better: the greater value or the lesser.
const RATIOS: [(&str, Peer, Peer, &str); 12] = [
    ("64 B p50, spinning, of raw TCP spin", Peer::OursSpin, Peer::RawSpin, "1 outstanding p50 us"),
    (
        "64 B p50, sleeping, of raw TCP blocking",
        Peer::OursSleep,
        Peer::RawBlocking,
        "1 outstanding p50 us",
    ),
    ("64 B p50, sleeping, of tonic TCP", Peer::OursSleep, Peer::TonicTcp, "1 outstanding p50 us"),
    (
        "64 B p50, sleeping, of tonic Unix socket",
        Peer::OursSleep,
        Peer::TonicUnix,
        "1 outstanding p50 us",
    ),
    ("calls/s with 64, of tonic TCP", Peer::OursSpin, Peer::TonicTcp, "64 outstanding calls/s"),
    (
        "calls/s with 64, of tonic Unix socket",
        Peer::OursSpin,
        Peer::TonicUnix,
        "64 outstanding calls/s",
    ),
    ("16 MiB requests, of raw TCP", Peer::OursSpin, Peer::RawBlocking, "16 MiB requests GB/s"),
    ("16 MiB requests, of tonic TCP", Peer::OursSpin, Peer::TonicTcp, "16 MiB requests GB/s"),
    (
        "16 MiB requests, of tonic Unix socket",
        Peer::OursSpin,
        Peer::TonicUnix,
        "16 MiB requests GB/s",
    ),
    ("16 MiB answers, of tonic TCP", Peer::OursSpin, Peer::TonicTcp, "16 MiB answers GB/s"),
    (
        "16 MiB answers, of tonic Unix socket",
        Peer::OursSpin,
        Peer::TonicUnix,
        "16 MiB answers GB/s",
    ),
    ("1 MiB requests, of tonic TCP", Peer::OursSpin, Peer::TonicTcp, "1 MiB requests GB/s"),
];

/// The median of some values, the least and the greatest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) least: f64,
    pub(super) most: f64,
}

impl Spread {
    pub(super) fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (least, most) = (*sorted.first()?, *sorted.last()?);
        let upper = sorted.len() / 2;
        let lower = (sorted.len() - 1) / 2;
        let median = f64::midpoint(*sorted.get(lower)?, *sorted.get(upper)?);
        Some(Self { median, least, most })
    }

    fn show(self, digits: usize) -> String {
        let Self { median, least, most } = self;
        format!("{median:.digits$} [{least:.digits$} .. {most:.digits$}]")
    }

    /// As a ratio: nothing is said of one whose range goes over 1.
    fn verdict(self) -> &'static str {
        if self.least <= 1.0 && self.most >= 1.0 { "equal" } else { "" }
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

    /// Round by round, since both were measured shortly after one another.
    fn ratio(&self, of: Peer, to: Peer, cell: &str) -> Option<Spread> {
        let pairs = self.rounds(of, cell)?.iter().zip(self.rounds(to, cell)?);
        Spread::of(&pairs.map(|(of, to)| of / to).collect::<Vec<_>>())
    }

    pub(super) fn table(&self) -> String {
        let mut text = self.columns(&COLUMNS);
        text.push('\n');
        text.push_str(&self.columns(&BULK));
        text.push_str("\n| ratio, round by round | median [least .. most] | |\n|---|---|---|\n");
        for (name, of, to, cell) in RATIOS {
            if let Some(ratio) = self.ratio(of, to, cell) {
                // Writing to a string cannot fail.
                let _ = writeln!(text, "| {name} | {} | {} |", ratio.show(2), ratio.verdict());
            }
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

    #[test]
    fn a_ratio_is_of_rounds_and_equal_when_its_range_goes_over_one() {
        let mut report = Report::new(&[Peer::OursSpin, Peer::RawSpin]);
        for (ours, raw) in [(3.0, 2.0), (8.0, 10.0), (5.0, 4.0)] {
            report.add(Peer::OursSpin, vec![("cell".to_owned(), ours)]);
            report.add(Peer::RawSpin, vec![("cell".to_owned(), raw)]);
        }
        let ratio = report.ratio(Peer::OursSpin, Peer::RawSpin, "cell");
        assert_eq!(ratio, Some(Spread { median: 1.25, least: 0.8, most: 1.5 }));
        assert_eq!(ratio.map(Spread::verdict), Some("equal"));
        assert_eq!(report.ratio(Peer::OursSpin, Peer::TonicTcp, "cell"), None);
    }
}
