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

/// Draws operations.
pub(crate) struct Draw {
    mix: Mix,
    zipf: Option<Zipf>,
    records: u64,
    random: Random,
}

impl Draw {
    /// Draws for a mix over so many records, at least 1.
    pub(crate) fn new(mix: Mix, distribution: Distribution, records: u64, seed: u64) -> Self {
        let zipf = (distribution == Distribution::Zipfian).then(|| Zipf::new(records));
        Self { mix, zipf, records, random: Random(seed) }
    }

    /// The next operation.
    pub(crate) fn next(&mut self) -> Op {
        let percent = self.random.below(100);
        match self.mix {
            Mix::A if percent < 50 => Op::Update(self.record()),
            Mix::B if percent < 5 => Op::Update(self.record()),
            Mix::D | Mix::E if percent < 5 => {
                self.records += 1;
                Op::Insert(self.records - 1)
            }
            Mix::D => {
                let age = self.rank().min(self.records - 1);
                Op::Read(self.records - 1 - age)
            }
            Mix::E => Op::Scan(self.record()),
            Mix::F if percent < 50 => Op::ReadModifyWrite(self.record()),
            Mix::A | Mix::B | Mix::C | Mix::F => Op::Read(self.record()),
        }
    }

    /// How many records there are after the inserts drawn so far.
    pub(crate) fn records(&self) -> u64 {
        self.records
    }

    /// A record. The popular ones are spread over all, as they are in YCSB.
    fn record(&mut self) -> u64 {
        let rank = self.rank();
        match self.zipf {
            Some(_) => Random(rank).next() % self.records,
            None => rank,
        }
    }

    fn rank(&mut self) -> u64 {
        match &self.zipf {
            Some(zipf) => zipf.rank(self.random.fraction()),
            None => self.random.below(self.records),
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
                for records in [1, 2, 100] {
                    let mut draw = Draw::new(*mix, distribution, records, 7);
                    let mut writes = 0;
                    for _ in 0..2_000 {
                        let before = draw.records();
                        match draw.next() {
                            Op::Insert(record) => assert_eq!(record, before),
                            Op::Read(record) | Op::Scan(record) => {
                                assert!(record < before);
                                continue;
                            }
                            Op::Update(record) | Op::ReadModifyWrite(record) => {
                                assert!(record < before);
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
