//! What the issue asks of the live runs, from the table: middles of the repeats with the least and the most where policies are
//! compared; the worst of all runs where nothing may be missed, and where the simulator is held against the same arrivals.

use super::table::{Place, Row, Spread};
use super::{Settings, picture};
use crate::bars::Bars;
use crate::plot;
use crate::spatial::middle;
use std::collections::BTreeSet;
use std::path::Path;

/// Rivals that the issue sets a limit against; others are told beside them.
const LIMITED: [&str; 2] = ["triton", "temporal"];

/// The rows of a table, as they are looked up.
pub(super) struct Table<'a>(pub(super) &'a [Row]);

impl<'a> Table<'a> {
    /// The repeats of a policy at a place.
    pub(super) fn runs(
        &self,
        driver: &'a str,
        policy: &'a str,
        place: &Place,
    ) -> impl Iterator<Item = &'a Row> + use<'a> {
        let place = place.clone();
        self.0.iter().filter(move |row| row.driver == driver && row.policy == policy && row.place() == place)
    }

    /// A figure of the repeats of a policy at a place.
    pub(super) fn spread(
        &self,
        (driver, policy, place): (&'a str, &'a str, &Place),
        figure: impl Fn(&Row) -> f64,
    ) -> Option<Spread> {
        Spread::of(self.runs(driver, policy, place).map(figure).collect())
    }

    /// A figure of two policies, one over the other, in repeats with the same arrivals.
    fn over(
        &self,
        (own, rival): (&'a str, &'a str),
        place: &Place,
        figure: impl Fn(&Row) -> f64,
    ) -> Option<Spread> {
        let pair = |row: &Row| {
            let other = self.runs("live", rival, place).find(|other| other.run == row.run)?;
            Some(figure(row) / figure(other).max(1e-12))
        };
        Spread::of(self.runs("live", own, place).filter_map(pair).collect())
    }

    /// Where a policy ran live, in order.
    fn places(&self, policy: &str) -> BTreeSet<Place> {
        let own = self.0.iter().filter(|row| row.driver == "live" && row.policy == policy);
        own.map(Row::place).collect()
    }
}

/// The policies of a table: as the settings list them, D-STACK first.
pub(super) fn policies(settings: &Settings) -> Vec<&str> {
    let rivals = settings.rivals.iter().flat_map(|rivals| &rivals.policies);
    settings.policies.iter().chain(rivals).map(String::as_str).collect()
}

/// Writes bars and pictures; whether every bar was met.
pub(super) fn judge(folder: &Path, settings: &Settings, rows: &[Row]) -> anyhow::Result<bool> {
    let table = Table(rows);
    let mut bars = Bars::default();
    bars.note(
        "policies are compared by the middles of repeats, in brackets the least and the most of them; promises missed and the \
         simulator are judged by the worst run",
    );
    rivals(&mut bars, settings, &table);
    calm(&mut bars, settings, &table);
    for policy in policies(settings) {
        fidelity(&mut bars, policy, &table);
    }
    curves(folder, settings, &table)?;
    picture::draw(&folder.join("live-policies.svg"), settings, &table)?;
    bars.finish_as(&folder.join("live_bars.txt"))
}

/// D-STACK beside its rivals at the highest load.
fn rivals(bars: &mut Bars, settings: &Settings, table: &Table<'_>) {
    let most = settings.loads.iter().copied().fold(0.0, f64::max);
    for place in table.places("dstack").iter().filter(|place| (place.load() - most).abs() < 1e-9) {
        let what = |rest: &str| format!("{} {} at load {most}: {rest}", place.mix, place.rates);
        for rival in policies(settings).into_iter().filter(|rival| *rival != "dstack") {
            let pair = ("dstack", rival);
            let Some(useful) = table.over(pair, place, |row| row.useful) else { continue };
            if LIMITED.contains(&rival) {
                let bar = what(&format!("useful unit-time of dstack over {rival}"));
                bars.at_least(&bar, useful.middle, 1.6, "x");
            }
            let done = table.over(pair, place, |row| row.done);
            let held = |policy| table.spread(("live", policy, place), |row| row.held);
            let text = |spread: Option<Spread>| spread.map_or_else(|| "?".to_owned(), |own| own.text(2));
            bars.note(&what(&format!(
                "over {rival}, of {} runs: useful unit-time {}x, answers in time {}x, units held {} and {}",
                useful.runs,
                useful.text(2),
                text(done),
                text(held("dstack")),
                text(held(rival))
            )));
        }
    }
}

/// What may not be missed while there is little to do.
fn calm(bars: &mut Bars, settings: &Settings, table: &Table<'_>) {
    for place in table.places("dstack").iter().filter(|place| place.load() <= settings.calm + 1e-9) {
        let Some(missed) = table.spread(("live", "dstack", place), |row| row.missed * 100.0) else {
            continue;
        };
        let what =
            format!("promises missed by dstack on {} {} at load {}", place.mix, place.rates, place.load());
        bars.at_most(&what, missed.most, 0.0, " %");
        if missed.most > 0.0 {
            bars.note(&format!("{what}, of {} runs: {} %", missed.runs, missed.text(3)));
        }
    }
}

/// How far the simulator was off the live runs of a policy.
fn fidelity(bars: &mut Bars, policy: &str, table: &Table<'_>) {
    type Figure = (&'static str, fn(&Row) -> f64);
    let figures: [Figure; 2] = [("throughput", |row| row.done), ("p99", |row| row.p99_ms)];
    for (what, figure) in figures {
        let mut off = Vec::new();
        for place in table.places(policy) {
            for live in table.runs("live", policy, &place) {
                // The same arrivals.
                let same = table.runs("simulated", policy, &place).find(|foretold| foretold.run == live.run);
                off.extend(same.map(|foretold| (figure(foretold) / figure(live) - 1.0).abs()));
            }
        }
        if off.is_empty() {
            continue;
        }
        // Where nothing was answered live there is nothing to be off by.
        off.retain(|off| !off.is_nan());
        let worst = off.iter().copied().fold(0.0, f64::max);
        let (runs, near) = (off.len(), off.iter().filter(|off| **off <= 0.10).count());
        let middle = middle(off);
        bars.note(&format!(
            "simulated {what} of {policy} off live: median {middle:.3}, {near} of {runs} runs within 0.1"
        ));
        bars.at_most(
            &format!("simulated {what} of {policy} off live by, worst of {runs} runs"),
            worst,
            0.10,
            "",
        );
    }
}

fn curves(folder: &Path, settings: &Settings, table: &Table<'_>) -> anyhow::Result<()> {
    let mut curves: Vec<plot::Curve> = Vec::new();
    let name = settings.mixes.first().map_or("", |mix| &mix.name);
    for policy in &settings.policies {
        let places = table.places(policy);
        for driver in ["live", "simulated"] {
            let own = places.iter().filter(|place| place.mix == name && place.rates == "equal");
            let useful = |place: &Place| {
                let useful = table.spread((driver, policy, place), |row| row.useful)?;
                Some((place.load(), useful.middle))
            };
            curves.push((format!("{policy}, {driver}"), own.filter_map(useful).collect()));
        }
    }
    let axes = ("load, of what the device can do at best", "share of the device's unit-time");
    plot::lines(&folder.join("live.svg"), &format!("unit-time of answered rows of {name}"), axes, &curves)
}

#[cfg(test)]
mod tests {
    use super::super::table::tests::row;
    use super::*;

    #[test]
    fn repeats_with_the_same_arrivals_are_compared() {
        let rows = [
            row("live", "dstack", 0, 80.0),
            row("live", "dstack", 1, 90.0),
            row("live", "dstack", 2, 99.0),
            row("live", "triton", 0, 40.0),
            row("live", "triton", 1, 30.0),
            row("simulated", "triton", 1, 10.0),
        ];
        let table = Table(&rows);
        let place = rows[0].place();
        let over = table.over(("dstack", "triton"), &place, |row| row.done).unwrap();
        assert_eq!((over.least, over.most, over.runs), (2.0, 3.0, 2));
        assert_eq!(table.over(("dstack", "nexus"), &place, |row| row.done), None);
        assert_eq!(table.places("triton").len(), 1);
    }

    #[test]
    fn one_run_that_is_off_is_not_hidden_by_the_others() {
        let pair = |run, live, foretold| {
            [row("live", "dstack", run, live), row("simulated", "dstack", run, foretold)]
        };
        let rows = [pair(0, 100.0, 101.0), pair(1, 50.0, 101.0), pair(2, 100.0, 99.0)].concat();
        let mut bars = Bars::default();
        fidelity(&mut bars, "dstack", &Table(&rows));
        let file = std::env::temp_dir().join(format!("raddle-test-fidelity-{}.txt", std::process::id()));
        assert!(!bars.finish_as(&file).unwrap());
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        assert!(
            text.contains("throughput of dstack off live by, worst of 3 runs: 1.020 (limit ≤ 0.1) short"),
            "{text}"
        );
    }
}
