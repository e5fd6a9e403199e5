//! The table of live and simulated runs: its lines, how it is written and read, and how tables of several machines become
//! one.

use super::super::middle;
use crate::host;
use anyhow::Context as _;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// One line of the table.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    /// `live` or `simulated`.
    pub(super) driver: String,
    pub(super) mix: String,
    /// `equal` or `skewed`.
    pub(super) rates: String,
    /// Of what the device can do at best.
    pub(super) load: f64,
    pub(super) policy: String,
    /// Which of the repeats, from 0; the same one has the same arrivals under every policy.
    pub(super) run: u64,
    /// Requests.
    pub(super) asked: u64,
    /// Answered in time a second.
    pub(super) done: f64,
    /// Promises missed, of all.
    pub(super) missed: f64,
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
    /// Unit-time held.
    pub(super) held: f64,
    /// Unit-time that the answered rows need at least.
    pub(super) useful: f64,
    pub(super) jain: f64,
    /// Rows of a run on average.
    pub(super) rows: f64,
    /// Median time that a run takes beyond its segments, ms.
    pub(super) beyond_ms: f64,
}

const HEADER: &str = "driver,mix,rates,load,policy,run,asked,done_per_s,missed,p50_ms,p99_ms,units_held,units_useful,jain,rows_per_run,beyond_ms";

/// What is compared of policies: a mix, its rates and a load in thousandths.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) mix: String,
    pub(super) rates: String,
    load: u64,
}

impl Place {
    /// The load, of what the device can do at best.
    pub(super) fn load(&self) -> f64 {
        self.load as f64 / 1e3
    }
}

impl Row {
    pub(super) fn place(&self) -> Place {
        let (mix, rates) = (self.mix.clone(), self.rates.clone());
        // Loads lie between 0 and a few.
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a small positive number"
        )]
        let load = (self.load * 1e3).round() as u64;
        Place { mix, rates, load }
    }

    fn line(&self) -> String {
        let Self { driver, mix, rates, load, policy, run, asked, done, missed, p50_ms, p99_ms, .. } = self;
        let Self { held, useful, jain, rows, beyond_ms, .. } = self;
        format!(
            "{driver},{mix},{rates},{load},{policy},{run},{asked},{done:.1},{missed:.5},{p50_ms:.3},{p99_ms:.3},{held:.4},{useful:.4},{jain:.4},{rows:.2},{beyond_ms:.3}"
        )
    }

    fn parse(line: &str) -> Option<Self> {
        let fields: Vec<&str> = line.split(',').collect();
        let word = |at: usize| fields.get(at).map(|field| (*field).to_owned());
        let number = |at: usize| fields.get(at)?.parse::<f64>().ok();
        Some(Self {
            driver: word(0)?,
            mix: word(1)?,
            rates: word(2)?,
            load: number(3)?,
            policy: word(4)?,
            run: fields.get(5)?.parse().ok()?,
            asked: fields.get(6)?.parse().ok()?,
            done: number(7)?,
            missed: number(8)?,
            p50_ms: number(9)?,
            p99_ms: number(10)?,
            held: number(11)?,
            useful: number(12)?,
            jain: number(13)?,
            rows: number(14)?,
            beyond_ms: number(15).filter(|_| fields.len() == 16)?,
        })
    }
}

/// Prints a row.
pub(super) fn print(row: &Row) {
    host::print(&row.line());
}

/// Writes `live.csv` into `folder`.
pub(super) fn write(folder: &Path, rows: &[Row]) -> anyhow::Result<()> {
    host::csv(&folder.join("live.csv"), HEADER, rows.iter().map(Row::line))
}

/// Reads `live.csv` of `folder`.
pub(super) fn read(folder: &Path) -> anyhow::Result<Vec<Row>> {
    let path = folder.join("live.csv");
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("{}: there is no record of a GPU", path.display()))?;
    let lines = text.lines().enumerate().skip(1);
    let row = |(at, line): (usize, &str)| {
        Row::parse(line).with_context(|| format!("{}:{} is no row: {line}", path.display(), at + 1))
    };
    lines.map(row).collect()
}

/// The rows of several tables. Repeats of a policy that more than one has are numbered on.
pub(super) fn merged(folders: &[PathBuf]) -> anyhow::Result<Vec<Row>> {
    let mut all: Vec<Row> = Vec::new();
    for folder in folders {
        let mut seen: BTreeMap<String, u64> = BTreeMap::new();
        for row in &all {
            let runs = seen.entry(row.policy.clone()).or_default();
            *runs = (*runs).max(row.run + 1);
        }
        let number = |row: Row| {
            let run = row.run + seen.get(&row.policy).copied().unwrap_or(0);
            Row { run, ..row }
        };
        all.extend(read(folder)?.into_iter().map(number));
    }
    Ok(all)
}

/// The middle of some runs with the least and the most of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    pub(super) least: f64,
    pub(super) middle: f64,
    pub(super) most: f64,
    /// Runs there are.
    pub(super) runs: usize,
}

impl Spread {
    /// Of numbers; `None` of none.
    pub(super) fn of(numbers: Vec<f64>) -> Option<Self> {
        let least = numbers.iter().copied().min_by(f64::total_cmp)?;
        let most = numbers.iter().copied().max_by(f64::total_cmp)?;
        let runs = numbers.len();
        Some(Self { least, middle: middle(numbers), most, runs })
    }

    /// `middle (least to most)` with so many digits.
    pub(super) fn text(&self, digits: usize) -> String {
        let Self { least, middle, most, runs } = self;
        if *runs == 1 {
            return format!("{middle:.digits$}");
        }
        format!("{middle:.digits$} ({least:.digits$} to {most:.digits$})")
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A row of one mix with the figures that differ.
    pub(in super::super) fn row(driver: &str, policy: &str, run: u64, done: f64) -> Row {
        Row {
            driver: driver.into(),
            mix: "C-2".into(),
            rates: "skewed".into(),
            load: 0.9,
            policy: policy.into(),
            run,
            asked: 100,
            done,
            missed: 0.25,
            p50_ms: 1.5,
            p99_ms: 20.0,
            held: 0.5,
            useful: done / 1e3,
            jain: 0.875,
            rows: 2.5,
            beyond_ms: 0.125,
        }
    }

    #[test]
    fn a_row_is_read_as_it_was_written() {
        let own = row("live", "dstack", 2, 80.0);
        assert_eq!(Row::parse(&own.line()), Some(own));
        assert_eq!(Row::parse("live,C-2,skewed,0.9,dstack"), None);
    }

    #[test]
    fn repeats_of_a_policy_in_two_tables_are_numbered_on() {
        let folder = |name: &str| std::env::temp_dir().join("raddle-test-merged").join(name);
        let folders = vec![folder("a"), folder("b")];
        for (folder, policy) in folders.iter().zip(["triton", "nexus"]) {
            std::fs::create_dir_all(folder).unwrap();
            write(folder, &[row("live", "dstack", 0, 80.0), row("live", policy, 0, 40.0)]).unwrap();
        }
        let runs: Vec<(String, u64)> =
            merged(&folders).unwrap().into_iter().map(|row| (row.policy, row.run)).collect();
        let run = |policy: &str, run| (policy.to_owned(), run);
        assert_eq!(runs, [run("dstack", 0), run("triton", 0), run("dstack", 1), run("nexus", 0)]);
    }

    #[test]
    fn a_spread_tells_the_middle_and_both_ends() {
        let spread = Spread::of(vec![3.0, 1.0, 2.0]).unwrap();
        assert_eq!(spread.text(1), "2.0 (1.0 to 3.0)");
        assert_eq!(Spread::of(vec![1.5]).unwrap().text(2), "1.50");
        assert_eq!(Spread::of(Vec::new()), None);
    }
}
