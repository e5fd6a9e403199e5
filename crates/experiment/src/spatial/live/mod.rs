//! The mixes live on a GPU with parts, and the same arrivals simulated from what the models were measured to cost there.

mod again;
mod foretell;
mod neighbours;
mod picture;
mod report;
mod seen;
mod table;

use super::{Mix, serving};
use crate::host;
use crate::spine::live::specs;
use anyhow::{Context as _, bail};
use cuda::{CudaDevice, CudaOptions, PartOptions, Precision};
use engine::{CpuDevice, Device};
use sched::journal::{Reader, Record};
use sched::node::policy::Choice;
use sched::node::{Decision, Event, ModelSpec};
use serde::Deserialize;
use server::live::{Handle, ModelState, Observer};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use table::Row;
use vocab::{Bytes, Rng};

/// Latency over multiprocessors and rows of every model.
const KNEES: &str = "live-knees.csv";

/// What models suffer from neighbours.
const NEIGHBOURS: &str = "live-neighbours.csv";

/// Between two cases.
const PAUSE: Duration = Duration::from_millis(150);

/// What runs, as `live.toml` says.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    precision: String,
    /// Multiprocessors between two sizes of parts.
    grid: u32,
    /// Parts of the smallest groups there are, which cover the whole device.
    fine: bool,
    /// Streams of the whole device, and runs that one multiprocessor may bear.
    streams: u16,
    /// Runs that may be alive.
    slots: usize,
    batch_max: u32,
    /// Length of each run, ms.
    duration_ms: u64,
    /// Loads as parts of what the device can do at best.
    loads: Vec<f64>,
    /// The load up to which no promise may be missed.
    calm: f64,
    /// Runs of each mix under each load, with other arrivals each; medians count.
    repeats: u64,
    /// Policies that run everything.
    policies: Vec<String>,
    /// Policies that run less, so that the time on the GPU is bounded.
    rivals: Option<Rivals>,
    /// Rows of the runs that are measured beside each other; none are where it is empty.
    neighbour_rows: Vec<u32>,
    mixes: Vec<Mix>,
}

/// Policies that run at skewed rates only.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rivals {
    policies: Vec<String>,
    loads: Vec<f64>,
}

/// One mix under one load.
struct Case<'a> {
    mix: &'a Mix,
    skewed: bool,
    load: f64,
    /// Which of the repeats.
    run: u64,
    /// Requests that were sent.
    sent: usize,
}

/// Where every model of the mixes is served from.
fn repository(settings: &Settings, folder: &Path) -> anyhow::Result<()> {
    for (name, slo) in settings.mixes.iter().flat_map(|mix| &mix.models) {
        serving::model(folder, name, settings.batch_max, ("raddle.slo_us", slo * 1_000))?;
    }
    Ok(())
}

/// The GPU in parts; for precision `cpu` two cores in parts.
fn device(settings: &Settings, out: &Path) -> anyhow::Result<Arc<dyn Device>> {
    if settings.precision == "cpu" {
        // The largest first, as the simulator numbers them.
        let cores = vec![vec![0, 1], vec![0, 1], vec![0], vec![1]];
        return Ok(Arc::new(CpuDevice::with_overlapping_cores(cores, settings.streams.into())?));
    }
    let precision = Precision::from_name(&settings.precision)
        .with_context(|| format!("no precision is called {:?}", settings.precision))?;
    let options = CudaOptions {
        precision,
        slots: settings.slots,
        slot: Bytes(2 << 30),
        staging: Bytes(4 << 30),
        cache: Some(out.join("cache")),
        parts: Some(PartOptions {
            grid: settings.grid,
            fine: settings.fine,
            overlap: settings.streams.into(),
            ..PartOptions::default()
        }),
        ..CudaOptions::default()
    };
    Ok(Arc::new(CudaDevice::open(0, &options)?))
}

/// What a model takes on so many units for so many rows.
struct Cost {
    model: String,
    units: u32,
    rows: u32,
    us: f64,
}

/// The least unit-time of a row of each model, in unit-seconds, among sizes and batches that keep half the promise; or
/// among all. From `live-knees.csv` in `out` where there is one, so that runs on several GPUs ask the same; else from what
/// was measured now, which is written there.
fn unit_times(out: &Path, settings: &Settings, specs: &[ModelSpec]) -> anyhow::Result<BTreeMap<String, f64>> {
    let path = out.join(KNEES);
    if !path.exists() {
        let line = |cost: &Cost| format!("{},{},{},{:.1}", cost.model, cost.units, cost.rows, cost.us);
        let costs = costs(specs);
        host::csv(&path, "model,multiprocessors,rows,us", costs.iter().map(line))?;
    }
    let text = std::fs::read_to_string(&path)?;
    let mut costs = Vec::new();
    for line in text.lines().skip(1) {
        costs.push(
            cost(line).with_context(|| format!("{} has a line that is no cost: {line}", path.display()))?,
        );
    }
    let mut least = BTreeMap::new();
    for (name, promise_ms) in settings.mixes.iter().flat_map(|mix| &mix.models) {
        let own = costs.iter().filter(|cost| cost.model == *name);
        if let Some(unit_time) = least_unit_time(own, *promise_ms) {
            least.insert(name.clone(), unit_time);
        }
    }
    Ok(least)
}

fn least_unit_time<'a>(costs: impl Iterator<Item = &'a Cost>, promise_ms: u64) -> Option<f64> {
    let half_us = promise_ms as f64 * 500.0;
    let one = |cost: &Cost| (cost.us > half_us, cost.us / 1e6 * f64::from(cost.units) / f64::from(cost.rows));
    costs.map(one).min_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))).map(|(_, unit_time)| unit_time)
}

fn cost(line: &str) -> Option<Cost> {
    let fields: Vec<&str> = line.split(',').collect();
    let [model, units, rows, us] = fields.as_slice() else { return None };
    Some(Cost {
        model: (*model).to_owned(),
        units: units.parse().ok()?,
        rows: rows.parse().ok().filter(|rows| *rows > 0)?,
        us: us.parse().ok()?,
    })
}

/// Latency over units and rows of every model.
fn costs(specs: &[ModelSpec]) -> Vec<Cost> {
    let mut found = Vec::new();
    for spec in specs {
        let whole = (spec.parts.units, &spec.costs);
        for (units, costs) in spec.parts.parts.iter().map(|part| (part.units, &part.costs)).chain([whole]) {
            found.extend(costs.iter().map(|cost| Cost {
                model: spec.name.clone(),
                units,
                rows: cost.rows,
                us: cost.total().as_secs_f64() * 1e6,
            }));
        }
    }
    found
}

/// Requests a second of each model of a mix: equal, or each half of the one before, needing `load` of the device.
fn rates(least: &BTreeMap<String, f64>, case: &Case<'_>, units: u32) -> anyhow::Result<Vec<f64>> {
    let weight = |place: usize| if case.skewed { 0.5f64.powf(place as f64) } else { 1.0 };
    let mut all = 0.0;
    for (place, (name, _)) in case.mix.models.iter().enumerate() {
        all += weight(place) * least.get(name).with_context(|| format!("{name} was not measured"))?;
    }
    Ok((0..case.mix.models.len()).map(|place| weight(place) * case.load * f64::from(units) / all).collect())
}

fn read(path: &Path) -> anyhow::Result<Vec<Record<Event, Decision>>> {
    let (mut reader, _) = Reader::new::<Choice>(BufReader::new(File::open(path)?))?;
    let mut records = Vec::new();
    // What a running runtime has not written to its end yet is not read.
    while let Ok(Some(record)) = reader.next_turn() {
        records.push(record);
    }
    Ok(records)
}

/// Everything; whether every bar was met. Rows are kept as they come, so that a run cut short leaves what it had.
pub(super) fn run(folder: &Path, out: &Path, only: Option<&str>) -> anyhow::Result<bool> {
    let settings = settings(folder)?;
    let policies = policies(&settings, only)?;
    std::fs::create_dir_all(out)?;
    let models = std::env::temp_dir().join("raddle-live-mixes");
    repository(&settings, &models)?;
    let device = device(&settings, out)?;
    let (devices, shelf) = ([device.clone()], Arc::default());
    let parts = foretell::Parts::of(&*device);
    let slowdowns = neighbours::run(&settings, (&models, out), &*device)?;
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut rows: Vec<Row> = Vec::new();
    let mut least: BTreeMap<String, f64> = BTreeMap::new();
    for policy in &policies {
        let choice = Choice::named(policy).with_context(|| format!("no policy is called {policy:?}"))?;
        let journal = out.join(format!("{policy}.jsonl"));
        let begin = Instant::now();
        let observers = vec![Observer::journal(&journal, &choice)?];
        let runtime = serving::start(&devices, &models, observers, &choice, &shelf)?;
        host::say(&format!("{policy}: ready after {:.1} s", begin.elapsed().as_secs_f64()));
        let handle = runtime.handle();
        let (missing, warmed) = warm((&handle, tokio.handle()))?;
        if least.is_empty() {
            std::thread::sleep(Duration::from_millis(200));
            let found = specs(&read(&journal)?);
            anyhow::ensure!(!found.is_empty(), "the journal has no model yet");
            least = unit_times(out, &settings, &found)?;
        }
        let mut cases = cases(&settings, policy);
        cases.retain(|case| !case.mix.models.iter().any(|(name, _)| missing.contains(name)));
        for case in &mut cases {
            let rates = rates(&least, case, device.units())?;
            let seconds = settings.duration_ms as f64 / 1e3;
            case.sent = ask_all((&handle, tokio.handle()), case, &rates, seconds)?;
            std::thread::sleep(PAUSE);
        }
        drop(handle);
        runtime.stop();
        let records = read(&journal)?;
        let live = foretell::Live {
            settings: &settings,
            policy,
            choice: &choice,
            parts: &parts,
            slowdowns: &slowdowns,
            least: &least,
        };
        for row in foretell::count(&live, &records, (&cases, warmed))? {
            table::print(&row);
            rows.push(row);
        }
        table::write(out, &rows)?;
        host::say(&format!("{policy}: done after {:.1} s", begin.elapsed().as_secs_f64()));
    }
    report::judge(out, &settings, &rows)
}

/// Judges the recorded table again.
pub(super) fn report(folder: &Path) -> anyhow::Result<bool> {
    report::judge(folder, &settings(folder)?, &table::read(folder)?)
}

/// The simulated rows anew, from the journals that `run` left in `out`.
pub(super) fn again(folder: &Path, out: &Path) -> anyhow::Result<bool> {
    again::run(&settings(folder)?, out)
}

/// Puts what several machines recorded into `folder` as one table, and judges it.
pub(super) fn merge(folder: &Path, from: &[&str]) -> anyhow::Result<bool> {
    let from: Vec<PathBuf> = from.iter().map(PathBuf::from).collect();
    let rows = table::merged(&from)?;
    table::write(folder, &rows)?;
    // What models cost is taken from the first machine that has it.
    for name in [KNEES, NEIGHBOURS] {
        if let Some(found) = from.iter().map(|from| from.join(name)).find(|path| path.exists()) {
            std::fs::copy(&found, folder.join(name))
                .with_context(|| format!("cannot copy {}", found.display()))?;
        }
    }
    report::judge(folder, &settings(folder)?, &rows)
}

fn settings(folder: &Path) -> anyhow::Result<Settings> {
    Ok(toml::from_str(&std::fs::read_to_string(folder.join("live.toml"))?)?)
}

/// The policies to run: all of the settings, or of those the ones that `only` lists, in its order.
fn policies(settings: &Settings, only: Option<&str>) -> anyhow::Result<Vec<String>> {
    let all = settings.policies.iter().chain(settings.rivals.iter().flat_map(|rivals| &rivals.policies));
    let all: Vec<String> = all.cloned().collect();
    let Some(only) = only else { return Ok(all) };
    let wanted: Vec<String> = only.split(',').map(|name| name.trim().to_owned()).collect();
    let unknown: Vec<&str> = wanted.iter().filter(|name| !all.contains(name)).map(String::as_str).collect();
    if !unknown.is_empty() {
        bail!("live.toml names no policy {}; it has {}", unknown.join(", "), all.join(", "));
    }
    Ok(wanted)
}

/// What is asked under a policy: repeats are far apart, so that what drifts is seen.
fn cases<'a>(settings: &'a Settings, policy: &str) -> Vec<Case<'a>> {
    let rivals = settings.rivals.as_ref().filter(|_| !settings.policies.iter().any(|own| own == policy));
    let loads = rivals.map_or(&settings.loads, |rivals| &rivals.loads);
    let rates: &[bool] = if rivals.is_some() { &[true] } else { &[false, true] };
    let mut cases = Vec::new();
    for run in 0..settings.repeats {
        for mix in &settings.mixes {
            for skewed in rates {
                let case = |load: &f64| Case { mix, skewed: *skewed, load: *load, run, sent: 0 };
                cases.extend(loads.iter().map(case));
            }
        }
    }
    cases
}

/// Asks every model a little, so that weights come and caches warm up; the models that are not served, and the requests
/// sent.
fn warm((handle, tokio): (&Handle, &tokio::runtime::Handle)) -> anyhow::Result<(Vec<String>, usize)> {
    let (mut missing, mut sent) = (Vec::new(), 0);
    let times = poisson((200.0, 0.2), 1);
    for model in handle.models() {
        if let ModelState::Unavailable(why) = &model.state {
            host::say(&format!("{} is not served, nor a mix that has it: {why}", model.name));
            missing.push(model.name.clone());
            continue;
        }
        serving::send((handle, tokio), &model.name, &times)?;
        sent += times.len();
    }
    Ok((missing, sent))
}

/// Random times of so many a second within so many seconds.
fn poisson((rate, seconds): (f64, f64), seed: u64) -> Vec<f64> {
    let mut rng = Rng::new(seed);
    let next = |at: &f64| Some(at + rng.exponential() / rate);
    std::iter::successors(Some(0.0), next).skip(1).take_while(|at| *at < seconds).collect()
}

/// The clients of a mix, all at once, until everything is answered; the requests sent.
fn ask_all(
    (handle, tokio): (&Handle, &tokio::runtime::Handle),
    case: &Case<'_>,
    rates: &[f64],
    seconds: f64,
) -> anyhow::Result<usize> {
    let mut sent = 0;
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (place, (rate, (name, _))) in rates.iter().zip(&case.mix.models).enumerate() {
            let (rate, seed) = (*rate, 7 + place as u64 + 1_000 * case.run);
            let times = poisson((rate, seconds), seed);
            sent += times.len();
            threads.push(scope.spawn(move || serving::send((handle, tokio), name, &times)));
        }
        for thread in threads {
            thread.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a client panicked")))?;
        }
        Ok(sent)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_unit_time_keeps_half_the_promise_where_it_can() {
        let costs: Vec<Cost> =
            ["a,8,1,4000.0", "a,2,1,9000.0", "a,4,4,30000.0"].into_iter().filter_map(cost).collect();
        assert_eq!(costs.len(), 3);
        assert_eq!(least_unit_time(costs.iter(), 20), Some(0.018), "two units take 9 ms");
        assert_eq!(least_unit_time(costs.iter(), 10), Some(0.032), "only the whole is quick enough");
        assert_eq!(least_unit_time(costs.iter(), 1), Some(0.018), "none is; then the least of all");
        assert_eq!(least_unit_time(costs.iter().take(0), 20), None);
        assert!(cost("a,8,0,4000.0").is_none());
    }

    #[test]
    fn rivals_run_less() {
        let text = include_str!("../../../../../experiments/dstack/live.toml");
        let settings: Settings = toml::from_str(text).unwrap();
        let count = |policy| cases(&settings, policy).len() as u64;
        assert_eq!(count("dstack"), settings.repeats * 4 * 2 * 3);
        assert_eq!(count("nexus"), settings.repeats * 4);
        assert!(cases(&settings, "nexus").iter().all(|case| case.skewed));
        assert_eq!(policies(&settings, Some("sgprs, dstack")).unwrap(), ["sgprs", "dstack"]);
        let refused = policies(&settings, Some("dstack,ideal")).unwrap_err().to_string();
        assert!(refused.starts_with("live.toml names no policy ideal; it has dstack"), "{refused}");
    }
}
