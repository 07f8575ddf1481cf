use std::fmt;

use crate::failure::Failure;

/// Figures to compare with, as the repository keeps them.
pub(super) struct Record {
    /// The compiler that made the program which was measured.
    pub(super) rustc: String,
    /// Names and instructions per call.
    pub(super) figures: Vec<(String, u64)>,
}

impl Record {
    /// Reads lines `name = value`; the compiler's version is in quotes.
    pub(super) fn parse(text: &str) -> Result<Self, Failure> {
        let mut record = Self { rustc: String::new(), figures: Vec::new() };
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let damaged = || Failure::new(format!("instructions.toml has a damaged line: {line}"));
            let (name, value) = line.split_once(" = ").ok_or_else(damaged)?;
            if name == "rustc" {
                record.rustc = value.trim_matches('"').to_owned();
            } else {
                record.figures.push((name.to_owned(), value.parse().map_err(|_| damaged())?));
            }
        }
        Ok(record)
    }

    pub(super) fn figure(&self, name: &str) -> Result<u64, Failure> {
        let found = self.figures.iter().find(|(have, _)| have == name);
        found.map(|(_, value)| *value).ok_or_else(|| {
            Failure::new(format!("instructions.toml has no figure '{name}'; record it: --record"))
        })
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "# Instructions per unary call of 64 bytes each way, client and server together."
        )?;
        writeln!(f, "# Written by: cargo run --release -p bench -- instructions --record")?;
        writeln!(f, "rustc = \"{}\"", self.rustc)?;
        for (name, value) in &self.figures {
            writeln!(f, "{name} = {value}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_reads_what_it_wrote() {
        let figures = vec![("one".to_owned(), 17), ("many".to_owned(), 4)];
        let text = Record { rustc: "rustc 1.0".to_owned(), figures }.to_string();
        let read = Record::parse(&text).unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!(read.rustc, "rustc 1.0");
        assert_eq!(read.figure("many").ok(), Some(4));
        assert!(read.figure("none").is_err());
        assert!(Record::parse("one = seventeen").is_err());
    }
}
