//! D-STACK and its rivals on mixes of models: throughput, promises missed, units used, fairness.

use super::device::{A100_UNITS, measured, model};
use super::{Mix, MixSettings, jain, load, middle, simulate};
use crate::bars::Bars;
use crate::{host, plot};
use anyhow::Context as _;
use sched::node::policy::Choice;
use sim::{Arrivals, ModelEntry, PartEntry, Scenario, SpaceEntry, Summary};
use std::collections::BTreeMap;
use std::path::Path;

/// One simulated run, as the table has it.
#[derive(Clone, Debug)]
struct Row {
    mix: String,
    rates: &'static str,
    load: f64,
    policy: String,
    /// Rows answered in time a second.
    done: f64,
    /// Promises missed, of all.
    missed: f64,
    /// Unit-time held.
    held: f64,
    /// Unit-time that the answered rows need at least.
    useful: f64,
    /// Jain's index of the parts of their demand that models got.
    jain: f64,
}

/// The least unit-time of a row of `entry`, in unit-seconds, among points that keep half the promise; or any.
fn least_unit_time(entry: &ModelEntry, grid: u32) -> f64 {
    let half = entry.deadline_us.unwrap_or(u64::MAX) / 2;
    let mut all: Vec<(bool, f64)> = Vec::new();
    let whole = sim::ModelPart { units: A100_UNITS, batches: entry.batches.clone() };
    for part in entry.parts.iter().chain([&whole]).filter(|part| part.units.is_multiple_of(grid)) {
        for batch in &part.batches {
            let us: u64 = batch.segments_us.iter().sum();
            all.push((us > half, us as f64 / 1e6 * f64::from(part.units) / f64::from(batch.rows)));
        }
    }
    all.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    all.first().map_or(f64::NAN, |(_, cost)| *cost)
}

/// Rows a second of each model: equal, or each half of the one before, so that all together need `load` of the device at
/// least.
fn rates(models: &[ModelEntry], skewed: bool, load: f64, grid: u32) -> Vec<f64> {
    let weight = |place: usize| if skewed { 0.5f64.powf(place as f64) } else { 1.0 };
    let needs = |(place, entry): (usize, &ModelEntry)| weight(place) * least_unit_time(entry, grid);
    let all: f64 = models.iter().enumerate().map(needs).sum();
    let scale = load * f64::from(A100_UNITS) / all;
    (0..models.len()).map(|place| weight(place) * scale).collect()
}

/// Floating parts have no places, so the ideal loses nothing to where they lie.
fn space(settings: &MixSettings, floating: bool) -> SpaceEntry {
    let whole = PartEntry { first: Some(0), units: A100_UNITS, count: settings.streams };
    let sizes = (1..).map(|step| step * settings.grid).take_while(|units| *units <= A100_UNITS);
    let parts = if floating {
        let fitting = |units: u32| u16::try_from(A100_UNITS / units).unwrap_or(u16::MAX);
        sizes.map(|units| PartEntry { first: None, units, count: fitting(units) }).collect()
    } else {
        vec![whole]
    };
    SpaceEntry {
        units: A100_UNITS,
        overlap: if floating { 1 } else { settings.streams.into() },
        grid: (!floating).then_some(settings.grid),
        parts,
    }
}

fn mix_models(settings: &MixSettings, mix: &Mix) -> anyhow::Result<Vec<ModelEntry>> {
    let one = |(name, slo): &(String, u64)| {
        let path = settings.data.join("prof_data").join(format!("{name}.csv"));
        model(name, &measured(&path)?, *slo)
    };
    mix.models.iter().map(one).collect()
}

struct Case<'a> {
    mix: &'a Mix,
    models: &'a [ModelEntry],
    skewed: bool,
    load: f64,
}

fn simulated(settings: &MixSettings, case: &Case<'_>, policy: &str) -> anyhow::Result<Row> {
    let choice = Choice::named(policy).with_context(|| format!("no policy is called {policy:?}"))?;
    let rates = rates(case.models, case.skewed, case.load, settings.grid);
    let mut found: Vec<Row> = Vec::new();
    for seed in 0..settings.seeds {
        let stream =
            |(entry, rate): (&ModelEntry, &f64)| load(&entry.name, Arrivals::Poisson { rate: *rate });
        let run = Scenario {
            space: Some(space(settings, policy == "ideal")),
            models: case.models.to_vec(),
            loads: case.models.iter().zip(&rates).map(stream).collect(),
            seed,
            duration_ms: settings.duration_ms,
            ..Scenario::default()
        };
        found.push(row(settings, case, policy, &simulate(&run, &choice)?));
    }
    let of = |field: fn(&Row) -> f64| middle(found.iter().map(field).collect());
    let mut first = found.first().cloned().context("at least one seed is needed")?;
    (first.done, first.missed) = (of(|row| row.done), of(|row| row.missed));
    (first.held, first.useful, first.jain) = (of(|row| row.held), of(|row| row.useful), of(|row| row.jain));
    Ok(first)
}

fn row(settings: &MixSettings, case: &Case<'_>, policy: &str, summary: &[Summary]) -> Row {
    let seconds = settings.duration_ms as f64 / 1e3;
    let all = summary.last().cloned();
    let mut useful = 0.0;
    let mut parts = Vec::new();
    for entry in case.models {
        let own = summary.iter().find(|row| row.model == entry.name);
        let (done, asked) = own.map_or((0, 0), |row| (row.done, row.requests));
        useful += done as f64 * least_unit_time(entry, settings.grid);
        parts.push(done as f64 / asked.max(1) as f64);
    }
    let (done, asked, held) =
        all.map_or((0, 0, 0.0), |all| (all.done, all.requests, all.utilisation.unwrap_or(0.0)));
    Row {
        mix: case.mix.name.clone(),
        rates: if case.skewed { "skewed" } else { "equal" },
        load: case.load,
        policy: policy.into(),
        done: done as f64 / seconds,
        missed: 1.0 - done as f64 / asked.max(1) as f64,
        held,
        useful: useful / (seconds * f64::from(A100_UNITS)),
        jain: jain(&parts),
    }
}

/// Draws and judges the recorded table again.
pub(super) fn report(folder: &Path, settings: &MixSettings) -> anyhow::Result<bool> {
    let text =
        std::fs::read_to_string(folder.join("mixes.csv")).context("there is no record; run it first")?;
    let row = |line: &str| -> Option<Row> {
        let fields: Vec<&str> = line.split(',').collect();
        let number = |at: usize| fields.get(at)?.parse().ok();
        Some(Row {
            mix: (*fields.first()?).into(),
            rates: if *fields.get(1)? == "skewed" { "skewed" } else { "equal" },
            load: number(2)?,
            policy: (*fields.get(3)?).into(),
            done: number(4)?,
            missed: number(5)?,
            held: number(6)?,
            useful: number(7)?,
            jain: number(8)?,
        })
    };
    let rows: Option<Vec<Row>> = text.lines().skip(1).map(row).collect();
    let rows = rows.context("mixes.csv has a line that is no row")?;
    draw(folder, settings, &rows)?;
    judge(folder, settings, &rows)
}

/// Everything; whether every bar was met.
pub(super) fn run(folder: &Path, settings: &MixSettings) -> anyhow::Result<bool> {
    let mut rows: Vec<Row> = Vec::new();
    for mix in &settings.mixes {
        let models = mix_models(settings, mix)?;
        for skewed in [false, true] {
            for load in &settings.loads {
                let case = Case { mix, models: &models, skewed, load: *load };
                let one = |policy: &String| simulated(settings, &case, policy);
                let results: Vec<anyhow::Result<Row>> = std::thread::scope(|scope| {
                    let threads: Vec<_> =
                        settings.policies.iter().map(|policy| scope.spawn(move || one(policy))).collect();
                    let join = |thread: std::thread::ScopedJoinHandle<'_, anyhow::Result<Row>>| {
                        thread.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a simulation panicked")))
                    };
                    threads.into_iter().map(join).collect()
                });
                for row in results {
                    rows.push(row?);
                }
                host::say(&format!("{} {} {load}: done", mix.name, if skewed { "skewed" } else { "equal" }));
            }
        }
    }
    let line = |row: &Row| {
        let Row { mix, rates, load, policy, done, missed, held, useful, jain } = row;
        format!("{mix},{rates},{load},{policy},{done:.1},{missed:.5},{held:.4},{useful:.4},{jain:.4}")
    };
    let header = "mix,rates,load,policy,done_per_s,missed,units_held,units_useful,jain";
    host::csv(&folder.join("mixes.csv"), header, rows.iter().map(line))?;
    draw(folder, settings, &rows)?;
    judge(folder, settings, &rows)
}

fn draw(folder: &Path, settings: &MixSettings, rows: &[Row]) -> anyhow::Result<()> {
    let Some(mix) = settings.mixes.last() else { return Ok(()) };
    for (file, title, field) in [
        ("useful.svg", "unit-time of answered rows", (|row: &Row| row.useful) as fn(&Row) -> f64),
        ("missed.svg", "promises missed", |row| row.missed),
    ] {
        let curve = |policy: &String| {
            let own = rows
                .iter()
                .filter(|row| row.mix == mix.name && row.rates == "equal" && row.policy == *policy);
            (policy.clone(), own.map(|row| (row.load, field(row))).collect())
        };
        let curves: Vec<plot::Curve> = settings.policies.iter().map(curve).collect();
        let title = format!("{} of {}, equal rates", title, mix.name);
        plot::lines(
            &folder.join(file),
            &title,
            ("load, of what the device can do at best", title_axis(file)),
            &curves,
        )?;
    }
    Ok(())
}

fn title_axis(file: &str) -> &'static str {
    if file.starts_with("useful") { "share of the device's unit-time" } else { "share of requests" }
}

fn judge(folder: &Path, settings: &MixSettings, rows: &[Row]) -> anyhow::Result<bool> {
    let mut bars = Bars::default();
    bars.note(&format!(
        "simulated on A100 profiles of ParvaGPU, {} ms, medians of {} seeds; a GPU's own record comes beside it",
        settings.duration_ms, settings.seeds
    ));
    let most = settings.loads.iter().copied().fold(0.0, f64::max);
    let mut by: BTreeMap<(String, &str), BTreeMap<&str, &Row>> = BTreeMap::new();
    for row in rows.iter().filter(|row| (row.load - most).abs() < 1e-9) {
        by.entry((row.mix.clone(), row.rates)).or_default().insert(&row.policy, row);
    }
    for ((mix, rates), of) in &by {
        let get = |policy: &str| of.get(policy).copied();
        let Some((dstack, ideal)) = get("dstack").zip(get("ideal")) else { continue };
        let what = |rest: &str| format!("{mix} {rates} at load {most}: {rest}");
        // No schedule answers more than all that is asked, or than the device's unit-time suffices for.
        let bound = most.min(1.0);
        bars.at_least(
            &what("throughput of dstack over the bound of unit-time"),
            dstack.useful / bound,
            0.95,
            "",
        );
        bars.note(&what(&format!(
            "dstack over the ideal scheduler as it is implemented: {:.2}x (it loses units to parts that do not fit together)",
            dstack.useful / ideal.useful
        )));
        for rival in ["triton", "temporal"] {
            let Some(other) = get(rival) else { continue };
            bars.note(&what(&format!(
                "dstack over {rival}: useful unit-time {:.2}x, answers {:.2}x",
                dstack.useful / other.useful,
                dstack.done / other.done
            )));
        }
    }
    let calm = rows.iter().filter(|row| row.policy == "dstack" && row.load <= settings.calm + 1e-9);
    let missed = calm.map(|row| row.missed).fold(0.0, f64::max);
    bars.at_most(
        &format!("promises missed by dstack up to load {}, in hundredths", settings.calm),
        missed * 100.0,
        0.0,
        "",
    );
    bars.finish(folder)
}
