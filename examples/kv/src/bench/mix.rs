use clap::ValueEnum;

use crate::random::Random;

/// A workload of YCSB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "verbatim")]
pub(crate) enum Mix {
    /// Half reads, half updates
    A,
    /// 95 % reads, 5 % updates
    B,
    /// Reads
    C,
    /// 95 % reads of what was inserted lately, 5 % inserts
    D,
    /// 95 % scans of up to 100 keys, 5 % inserts
    E,
    /// Half reads, half reads with a write of the same key if its version is still the one read
    F,
}

/// Which records are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Distribution {
    /// A few often and most seldom, as YCSB does it (0.99)
    Zipfian,
    /// All alike
    Uniform,
}

/// One operation on records, which are named by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Read(u64),
    Update(u64),
    Insert(u64),
    Scan(u64),
    ReadModifyWrite(u64),
}

/// Which records there are: those from 0 that were stored before, and those inserted since, whose numbers
/// begin where no earlier run has been.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Records {
    stored: u64,
    first_insert: u64,
    inserted: u64,
}

impl Records {
    /// So many, at least 1; inserts begin at a number that is not one of theirs.
    pub(crate) fn new(stored: u64, first_insert: u64) -> Self {
        Self { stored, first_insert: first_insert.max(stored), inserted: 0 }
    }

    fn count(&self) -> u64 {
        self.stored + self.inserted
    }

    /// The number of the record at a place, of those in the order in which they were stored.
    fn at(&self, place: u64) -> u64 {
        match place.checked_sub(self.stored) {
            None => place,
            Some(place) => self.first_insert + place,
        }
    }
}

/// Draws operations.
pub(crate) struct Draw {
    mix: Mix,
    zipf: Option<Zipf>,
    records: Records,
    random: Random,
}

impl Draw {
    /// Draws for a mix over some records.
    pub(crate) fn new(mix: Mix, distribution: Distribution, records: Records, seed: u64) -> Self {
        let zipf = (distribution == Distribution::Zipfian).then(|| Zipf::new(records.count()));
        Self { mix, zipf, records, random: Random(seed) }
    }

    /// The next operation.
    pub(crate) fn next(&mut self) -> Op {
        let percent = self.random.below(100);
        match self.mix {
            Mix::A if percent < 50 => Op::Update(self.record()),
            Mix::B if percent < 5 => Op::Update(self.record()),
            Mix::D | Mix::E if percent < 5 => {
                self.records.inserted += 1;
                Op::Insert(self.records.at(self.records.count() - 1))
            }
            Mix::D => {
                let newest = self.records.count() - 1;
                let age = self.rank().min(newest);
                Op::Read(self.records.at(newest - age))
            }
            Mix::E => Op::Scan(self.record()),
            Mix::F if percent < 50 => Op::ReadModifyWrite(self.record()),
            Mix::A | Mix::B | Mix::C | Mix::F => Op::Read(self.record()),
        }
    }

    /// Which records there are after the inserts drawn so far.
    pub(crate) fn records(&self) -> Records {
        self.records
    }

    /// A record. The popular ones are spread over all, as they are in YCSB.
    fn record(&mut self) -> u64 {
        let rank = self.rank();
        self.records.at(match self.zipf {
            Some(_) => Random(rank).next() % self.records.count(),
            None => rank,
        })
    }

    fn rank(&mut self) -> u64 {
        match &self.zipf {
            Some(zipf) => zipf.rank(self.random.fraction()),
            None => self.random.below(self.records.count()),
        }
    }
}

/// Ranks from 0, of which lower ones are drawn more often: the method of Gray and others, "Quickly
/// generating billion-record synthetic databases", which YCSB uses too.
struct Zipf {
    records: f64,
    alpha: f64,
    eta: f64,
    zeta: f64,
}

impl Zipf {
    const THETA: f64 = 0.99;

    fn new(records: u64) -> Self {
        let zeta = |n: u64| (1..=n).map(|rank| (rank as f64).powf(-Self::THETA)).sum::<f64>();
        let (n, zeta_n) = (records as f64, zeta(records));
        let eta = (1.0 - (2.0 / n).powf(1.0 - Self::THETA)) / (1.0 - zeta(2) / zeta_n);
        Self { records: n, alpha: 1.0 / (1.0 - Self::THETA), eta, zeta: zeta_n }
    }

    fn rank(&self, fraction: f64) -> u64 {
        let scaled = fraction * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + 0.5_f64.powf(Self::THETA) {
            return 1;
        }
        let rank = self.records * (self.eta * fraction - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(self.records as u64 - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn low_ranks_are_drawn_as_often_as_the_law_says() {
        let zipf = Zipf::new(1_000);
        let mut random = Random(1);
        let mut counts = vec![0_u32; 1_000];
        for _ in 0..100_000 {
            counts[zipf.rank(random.fraction()) as usize] += 1;
        }
        let expected = |rank: f64| 100_000.0 * rank.powf(-Zipf::THETA) / zipf.zeta;
        for rank in [1, 2, 10] {
            let (seen, wanted) = (f64::from(counts[rank - 1]), expected(rank as f64));
            assert!((seen / wanted - 1.0).abs() < 0.2, "{rank}: {seen} of {wanted}");
        }
        assert!(counts[500..].iter().sum::<u32>() > 0);
    }

    #[test]
    fn every_mix_names_records_that_there_are_in_its_proportions() {
        for mix in Mix::value_variants() {
            for distribution in [Distribution::Zipfian, Distribution::Uniform] {
                for stored in [1, 2, 100] {
                    let records = Records::new(stored, 1_000);
                    let mut draw = Draw::new(*mix, distribution, records, 7);
                    let mut writes = 0;
                    for _ in 0..2_000 {
                        let inserted = 1_000..1_000 + draw.records().inserted;
                        let is_there = |record| record < stored || inserted.contains(&record);
                        match draw.next() {
                            Op::Insert(record) => assert_eq!(record, inserted.end),
                            Op::Read(record) | Op::Scan(record) => {
                                assert!(is_there(record));
                                continue;
                            }
                            Op::Update(record) | Op::ReadModifyWrite(record) => {
                                assert!(is_there(record));
                            }
                        }
                        writes += 1;
                    }
                    let (least, most) = match mix {
                        Mix::A | Mix::F => (900, 1_100),
                        Mix::C => (0, 0),
                        _ => (50, 160),
                    };
                    assert!((least..=most).contains(&writes), "{mix:?}: {writes}");
                }
            }
        }
    }
}
