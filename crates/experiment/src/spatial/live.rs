//! The mixes live on a GPU with parts, and the same arrivals simulated from what the models were measured to cost there.

use super::{Mix, jain, middle, serving};
use crate::bars::Bars;
use crate::spine::live::specs;
use crate::statistics::{median, quantile};
use crate::{host, plot};
use anyhow::Context as _;
use cuda::{CudaDevice, CudaOptions, PartOptions, Precision};
use engine::{CpuDevice, Device, PartitionInfo};
use sched::journal::{Reader, Record};
use sched::node::policy::Choice;
use sched::node::{Act, BucketCost, Decision, Event, ModelSpec};
use serde::Deserialize;
use server::live::{Handle, ModelState, Observer};
use sim::{Arrivals, BatchEntry, End, Load, ModelEntry, ModelPart, PartEntry, Scenario, SpaceEntry, Tally};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use vocab::{Bytes, ModelId, PartitionId, Rng, RunId, Span, Time};

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
    policies: Vec<String>,
    mixes: Vec<Mix>,
}

/// One mix under one load.
struct Case<'a> {
    mix: &'a Mix,
    skewed: bool,
    load: f64,
    /// When it began and ended, by the runtime's clock as the journal has it.
    window: (Time, Time),
}

/// One line of the table.
#[derive(Clone, Debug)]
struct Row {
    driver: String,
    mix: String,
    rates: String,
    load: f64,
    policy: String,
    /// Requests.
    asked: u64,
    /// Answered in time a second.
    done: f64,
    /// Promises missed, of all.
    missed: f64,
    p50_ms: f64,
    p99_ms: f64,
    /// Unit-time held.
    held: f64,
    /// Unit-time that the answered rows need at least.
    useful: f64,
    jain: f64,
    /// Rows of a run on average.
    rows: f64,
    /// Median time that a run takes beyond its segments, ms.
    beyond_ms: f64,
}

const HEADER: &str = "driver,mix,rates,load,policy,asked,done_per_s,missed,p50_ms,p99_ms,units_held,units_useful,jain,rows_per_run,beyond_ms";

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
        let cores = vec![vec![0], vec![1], vec![0, 1], vec![0, 1]];
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

/// The least unit-time of a row, in unit-seconds, among sizes and batches that keep half the promise; or among all.
fn least_unit_time(spec: &ModelSpec, units: u32) -> f64 {
    let half = spec.promise.deadline.map_or(f64::MAX, |span| span.as_secs_f64() / 2.0);
    let whole = (units, &spec.costs);
    let parts = spec.parts.parts.iter().map(|part| (part.units, &part.costs));
    let mut all: Vec<(bool, f64)> = Vec::new();
    for (units, costs) in parts.chain([whole]) {
        for cost in costs {
            let seconds = cost.total().as_secs_f64();
            all.push((seconds > half, seconds * f64::from(units) / f64::from(cost.rows)));
        }
    }
    all.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    all.first().map_or(f64::NAN, |(_, cost)| *cost)
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
pub(super) fn run(folder: &Path, out: &Path) -> anyhow::Result<bool> {
    let settings: Settings = toml::from_str(&std::fs::read_to_string(folder.join("live.toml"))?)?;
    std::fs::create_dir_all(out)?;
    let models = std::env::temp_dir().join("raddle-live-mixes");
    repository(&settings, &models)?;
    let device = device(&settings, out)?;
    let (devices, shelf) = ([device.clone()], Arc::default());
    let units = device.units();
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut rows: Vec<Row> = Vec::new();
    let mut least: BTreeMap<String, f64> = BTreeMap::new();
    for policy in &settings.policies {
        let choice = Choice::named(policy).with_context(|| format!("no policy is called {policy:?}"))?;
        let journal = out.join(format!("{policy}.jsonl"));
        let begin = Instant::now();
        let observers = vec![Observer::journal(&journal, &choice)?];
        let runtime = serving::start(&devices, &models, observers, &choice, &shelf)?;
        host::say(&format!("{policy}: ready after {:.1} s", begin.elapsed().as_secs_f64()));
        let handle = runtime.handle();
        let mut missing = Vec::new();
        for model in handle.models() {
            if let ModelState::Unavailable(why) = &model.state {
                host::say(&format!("{} is not served, nor a mix that has it: {why}", model.name));
                missing.push(model.name.clone());
                continue;
            }
            // Weights come, caches warm up.
            serving::send((&handle, tokio.handle()), &model.name, &poisson((200.0, 0.2), 1))?;
        }
        if least.is_empty() {
            std::thread::sleep(Duration::from_millis(200));
            let found = specs(&read(&journal)?);
            anyhow::ensure!(!found.is_empty(), "the journal has no model yet");
            knees(out, &found)?;
            least = found.iter().map(|spec| (spec.name.clone(), least_unit_time(spec, units))).collect();
        }
        let zero = Instant::now();
        let mut cases = Vec::new();
        let served = |mix: &&Mix| !mix.models.iter().any(|(name, _)| missing.contains(name));
        for mix in settings.mixes.iter().filter(served) {
            for skewed in [false, true] {
                for load in &settings.loads {
                    let mut case = Case { mix, skewed, load: *load, window: (Time::ZERO, Time::ZERO) };
                    let rates = rates(&least, &case, units)?;
                    let seconds = settings.duration_ms as f64 / 1e3;
                    let began = zero.elapsed();
                    ask_all((&handle, tokio.handle()), mix, &rates, seconds)?;
                    case.window = (Time::ZERO + Span::from(began), Time::ZERO + Span::from(zero.elapsed()));
                    cases.push(case);
                    std::thread::sleep(Duration::from_millis(400));
                }
            }
        }
        // The journal's clock began earlier than ours: its last arrival is the last case's.
        drop(handle);
        runtime.stop();
        let records = read(&journal)?;
        std::fs::remove_file(&journal)?;
        for row in count(&settings, &records, (&cases, policy, &choice), device.partitions(), units)? {
            host::print(&line(&row));
            rows.push(row);
            host::csv(&out.join("live.csv"), HEADER, rows.iter().map(line))?;
        }
    }
    judge(out, &settings, &rows)
}

/// Random times of so many a second within so many seconds.
fn poisson((rate, seconds): (f64, f64), seed: u64) -> Vec<f64> {
    let mut rng = Rng::new(seed);
    let next = |at: &f64| Some(at + rng.exponential() / rate);
    std::iter::successors(Some(0.0), next).skip(1).take_while(|at| *at < seconds).collect()
}

/// The clients of a mix, all at once, until everything is answered.
fn ask_all(
    (handle, tokio): (&Handle, &tokio::runtime::Handle),
    mix: &Mix,
    rates: &[f64],
    seconds: f64,
) -> anyhow::Result<()> {
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (place, (rate, (name, _))) in rates.iter().zip(&mix.models).enumerate() {
            let (rate, seed) = (*rate, 7 + place as u64);
            let times = poisson((rate, seconds), seed);
            threads.push(scope.spawn(move || serving::send((handle, tokio), name, &times)));
        }
        for thread in threads {
            thread.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a client panicked")))?;
        }
        Ok(())
    })
}

/// Latency over multiprocessors and rows of every model.
fn knees(out: &Path, specs: &[ModelSpec]) -> anyhow::Result<()> {
    let mut lines = Vec::new();
    for spec in specs {
        let whole = (spec.parts.units, &spec.costs);
        for (units, costs) in spec.parts.parts.iter().map(|part| (part.units, &part.costs)).chain([whole]) {
            let line = |cost: &BucketCost| {
                format!("{},{units},{},{:.1}", spec.name, cost.rows, cost.total().as_secs_f64() * 1e6)
            };
            lines.extend(costs.iter().map(line));
        }
    }
    host::csv(&out.join("live-knees.csv"), "model,multiprocessors,rows,us", lines.into_iter())
}

fn line(row: &Row) -> String {
    let Row {
        driver, mix, rates, load, policy, asked, done, missed, p50_ms, p99_ms, held, useful, jain, ..
    } = row;
    let Row { rows, beyond_ms, .. } = row;
    format!(
        "{driver},{mix},{rates},{load},{policy},{asked},{done:.1},{missed:.5},{p50_ms:.3},{p99_ms:.3},{held:.4},{useful:.4},{jain:.4},{rows:.2},{beyond_ms:.3}"
    )
}

type Turns<'a> = Vec<(Time, &'a [Event], &'a [Decision])>;

/// What became of the requests that arrived within a window.
struct Seen {
    /// Asked, answered in time and their latencies, by model.
    models: BTreeMap<String, (u64, u64)>,
    spans: Vec<Span>,
    /// Unit-time held.
    held: f64,
    /// Arrivals by model.
    arrivals: BTreeMap<String, Vec<u64>>,
    /// Median time that a run takes beyond its segments.
    overhead: Span,
    runs: u64,
    rows: u64,
    /// By model and bucket: times of runs that had their units to themselves, of what they were measured to take when the
    /// model was loaded, in the order they ended.
    factors: BTreeMap<(String, u32), Vec<f64>>,
}

/// A run under way.
struct Open {
    begin: Time,
    model: ModelId,
    rows: u32,
    place: Place,
    /// Another run had some of its units meanwhile.
    shared: bool,
}

/// First unit and units of a partition.
type Place = (u32, u32);

const fn meet(a: Place, b: Place) -> bool {
    a.0 < b.0 + b.1 && b.0 < a.0 + a.1
}

/// How long a run took, of what its model's profile says for its bucket and units, and that bucket.
fn factor(specs: &[ModelSpec], open: &Open, took: Span) -> Option<((String, u32), f64)> {
    let spec = specs.iter().find(|spec| spec.id == open.model)?;
    let part = spec.parts.parts.iter().find(|part| part.units == open.place.1);
    let costs = part.map_or(&spec.costs, |part| &part.costs);
    let bucket = costs.iter().find(|cost| cost.rows >= open.rows)?;
    let factor = took.as_secs_f64() / bucket.total().as_secs_f64().max(1e-9);
    Some(((spec.name.clone(), bucket.rows), factor))
}

fn observe(
    turns: &Turns<'_>,
    specs: &[ModelSpec],
    parts: &BTreeMap<PartitionId, Place>,
    within: (Time, Time),
) -> Seen {
    let mut seen = Seen {
        models: BTreeMap::new(),
        spans: Vec::new(),
        held: 0.0,
        arrivals: BTreeMap::new(),
        overhead: Span::ZERO,
        runs: 0,
        rows: 0,
        factors: BTreeMap::new(),
    };
    let mut tally = Tally::default();
    let mut under_way: BTreeMap<RunId, Open> = BTreeMap::new();
    let mut beyond = Vec::new();
    let name = |id| specs.iter().find(|spec: &&ModelSpec| spec.id == id).map(|spec| spec.name.clone());
    for (now, events, decisions) in turns {
        let inside = within.0 <= *now && *now <= within.1;
        for event in *events {
            match event {
                Event::RequestArrived { request } if inside => {
                    let times = name(request.model).map(|name| seen.arrivals.entry(name).or_default());
                    times.into_iter().for_each(|times| times.push(request.arrival.since(within.0).ns()));
                }
                Event::RunFinished { run, segments } | Event::RunParked { run, segments, .. } => {
                    let Some(open) = under_way.remove(run).filter(|_| inside) else { continue };
                    let (whole, took) = (now.since(open.begin), segments.iter().copied().sum());
                    seen.held += whole.as_secs_f64() * f64::from(open.place.1);
                    beyond.push(whole - took);
                    seen.runs += 1;
                    seen.rows += u64::from(open.rows);
                    if let Some((bucket, factor)) = factor(specs, &open, took).filter(|_| !open.shared) {
                        seen.factors.entry(bucket).or_default().push(factor);
                    }
                }
                _ => {}
            }
        }
        for decision in *decisions {
            if let Act::Start { run, model, partition, requests, .. } = &decision.act {
                let place = parts.get(partition).copied().unwrap_or((0, 0));
                let mut shared = false;
                for other in under_way.values_mut().filter(|other| meet(other.place, place)) {
                    (shared, other.shared) = (true, true);
                }
                // Every request here is of one row.
                let rows = u32::try_from(requests.len()).unwrap_or(u32::MAX);
                under_way.insert(*run, Open { begin: *now, model: *model, rows, place, shared });
            }
        }
        for ended in tally.turn(*now, events, decisions) {
            let arrival = ended.request.arrival;
            let Some(name) = name(ended.request.model).filter(|_| within.0 <= arrival && arrival <= within.1)
            else {
                continue;
            };
            let (asked, done) = seen.models.entry(name).or_default();
            *asked += 1;
            if ended.end == End::Done {
                *done += 1;
                seen.spans.push(ended.at.since(arrival));
            }
        }
    }
    if !beyond.is_empty() {
        seen.overhead = median(&beyond);
    }
    seen
}

/// Rows of all cases of one policy, live and simulated.
fn count(
    settings: &Settings,
    records: &[Record<Event, Decision>],
    (cases, policy, choice): (&[Case<'_>], &str, &Choice),
    partitions: &[PartitionInfo],
    units: u32,
) -> anyhow::Result<Vec<Row>> {
    let specs = specs(records);
    let sizes: BTreeMap<PartitionId, Place> =
        partitions.iter().map(|part| (part.id, (part.first, part.units))).collect();
    let turns: Turns<'_> =
        records.iter().map(|r| (r.now, r.events.as_slice(), r.decisions.as_slice())).collect();
    let arrived = |record: &Record<Event, Decision>| {
        record.events.iter().any(|event| matches!(event, Event::RequestArrived { .. }))
    };
    // Both clocks run alike; the last case ended when the last of its requests did, to the ms.
    let last = records.iter().rev().find(|record| arrived(record)).map_or(Time::ZERO, |record| record.now);
    let ours = cases.last().map_or(Time::ZERO, |case| case.window.1);
    let shift = last.since(Time::ZERO) - ours.since(Time::ZERO);
    let mut rows = Vec::new();
    for case in cases {
        let margin = Span::from_ms(150);
        let window = (
            Time::ZERO + (case.window.0.since(Time::ZERO) + shift - margin.min(shift)),
            Time::ZERO + (case.window.1.since(Time::ZERO) + shift + margin),
        );
        let seen = observe(&turns, &specs, &sizes, window);
        rows.push(row(settings, case, ("live", policy), (&seen, &specs), units));
        let scenario = scenario(&specs, &seen, partitions, units);
        let mut simulated = Vec::new();
        let faults = scenario.faults();
        anyhow::ensure!(faults.is_empty(), "the scenario has faults: {}", faults.join("; "));
        sim::Simulation::new(&scenario, choice).run(|now, events, decisions| {
            simulated.push((now, events.to_vec(), decisions.to_vec()));
            Ok(())
        })?;
        let turns: Turns<'_> =
            simulated.iter().map(|(now, e, d)| (*now, e.as_slice(), d.as_slice())).collect();
        let own: Vec<ModelSpec> = turns
            .iter()
            .flat_map(|(_, events, _)| *events)
            .filter_map(|event| match event {
                Event::ModelAdded { spec } => Some(spec.clone()),
                _ => None,
            })
            .collect();
        let end = turns.last().map_or(Time::ZERO, |turn| turn.0);
        let again = observe(&turns, &own, &sizes, (Time::ZERO, end));
        rows.push(row(settings, case, ("simulated", policy), (&again, &specs), units));
    }
    Ok(rows)
}

fn row(
    settings: &Settings,
    case: &Case<'_>,
    (driver, policy): (&str, &str),
    (seen, specs): (&Seen, &[ModelSpec]),
    units: u32,
) -> Row {
    let seconds = settings.duration_ms as f64 / 1e3;
    let (mut asked, mut done, mut useful) = (0, 0, 0.0);
    let mut parts = Vec::new();
    for (name, (own_asked, own_done)) in &seen.models {
        asked += own_asked;
        done += own_done;
        let spec = specs.iter().find(|spec| spec.name == *name);
        useful += *own_done as f64 * spec.map_or(0.0, |spec| least_unit_time(spec, units));
        parts.push(*own_done as f64 / (*own_asked).max(1) as f64);
    }
    let ms = |per_mille| {
        if seen.spans.is_empty() { f64::NAN } else { quantile(&seen.spans, per_mille).as_ms_f64() }
    };
    Row {
        driver: driver.into(),
        mix: case.mix.name.clone(),
        rates: if case.skewed { "skewed" } else { "equal" }.into(),
        load: case.load,
        policy: policy.into(),
        asked,
        done: done as f64 / seconds,
        missed: 1.0 - done as f64 / asked.max(1) as f64,
        p50_ms: ms(500),
        p99_ms: ms(990),
        held: seen.held / (seconds * f64::from(units)),
        useful: useful / (seconds * f64::from(units)),
        jain: jain(&parts),
        rows: seen.rows as f64 / seen.runs.max(1) as f64,
        beyond_ms: seen.overhead.as_ms_f64(),
    }
}

/// The same arrivals on the same parts, at the costs that were measured when the models were loaded, times how far runs
/// that had their units to themselves were off that.
fn scenario(specs: &[ModelSpec], seen: &Seen, partitions: &[PartitionInfo], units: u32) -> Scenario {
    let batch = |cost: &BucketCost| BatchEntry {
        rows: cost.rows,
        segments_us: cost.segments.iter().map(|span| span.ns().div_ceil(1_000)).collect(),
        factors: Vec::new(),
    };
    let spread = |spec: &ModelSpec, cost: &BucketCost| {
        let factors = seen.factors.get(&(spec.name.clone(), cost.rows)).cloned().unwrap_or_default();
        BatchEntry { factors, ..batch(cost) }
    };
    let entry = |spec: &ModelSpec| ModelEntry {
        name: spec.name.clone(),
        batches: spec.costs.iter().map(|cost| spread(spec, cost)).collect(),
        batch_max: Some(spec.batch_max),
        parts: spec
            .parts
            .parts
            .iter()
            .map(|part| ModelPart { units: part.units, batches: part.costs.iter().map(batch).collect() })
            .collect(),
        deadline_us: spec.promise.deadline.map(|span| span.ns() / 1_000),
        ..ModelEntry::default()
    };
    let mut parts: Vec<PartEntry> = Vec::new();
    for part in partitions {
        match parts.iter_mut().find(|known| known.first == Some(part.first) && known.units == part.units) {
            Some(known) => known.count += 1,
            None => parts.push(PartEntry { first: Some(part.first), units: part.units, count: 1 }),
        }
    }
    let streams = parts.first().map_or(1, |part| part.count);
    let load = |(name, at_ns): (&String, &Vec<u64>)| Load {
        timeout_us: None,
        ..super::load(name, Arrivals::Trace { at_ns: at_ns.clone() })
    };
    Scenario {
        space: Some(SpaceEntry { units, overlap: streams.into(), grid: None, parts }),
        models: specs.iter().map(entry).collect(),
        loads: seen.arrivals.iter().map(load).collect(),
        factor_block: 8,
        launch_us: seen.overhead.ns() / 2_000,
        duration_ms: 86_400_000,
        ..Scenario::default()
    }
}

/// Judges the recorded table again.
pub(super) fn report(folder: &Path) -> anyhow::Result<bool> {
    let settings: Settings = toml::from_str(&std::fs::read_to_string(folder.join("live.toml"))?)?;
    let text = std::fs::read_to_string(folder.join("live.csv")).context("there is no record of a GPU")?;
    let row = |line: &str| -> Option<Row> {
        let fields: Vec<&str> = line.split(',').collect();
        let word = |at: usize| fields.get(at).map(|field| (*field).to_owned());
        let number = |at: usize| fields.get(at)?.parse::<f64>().ok();
        Some(Row {
            driver: word(0)?,
            mix: word(1)?,
            rates: word(2)?,
            load: number(3)?,
            policy: word(4)?,
            asked: fields.get(5)?.parse().ok()?,
            done: number(6)?,
            missed: number(7)?,
            p50_ms: number(8)?,
            p99_ms: number(9)?,
            held: number(10)?,
            useful: number(11)?,
            jain: number(12)?,
            rows: number(13)?,
            beyond_ms: number(14)?,
        })
    };
    let rows: Option<Vec<Row>> = text.lines().skip(1).map(row).collect();
    judge(folder, &settings, &rows.context("live.csv has a line that is no row")?)
}

fn judge(folder: &Path, settings: &Settings, rows: &[Row]) -> anyhow::Result<bool> {
    let mut bars = Bars::default();
    let most = settings.loads.iter().copied().fold(0.0, f64::max);
    let at = |driver: &str, policy: &str, like: &Row| {
        let same = |row: &&Row| {
            row.driver == driver
                && row.policy == policy
                && row.mix == like.mix
                && row.rates == like.rates
                && (row.load - like.load).abs() < 1e-9
        };
        rows.iter().find(same)
    };
    let live = |row: &&Row| row.driver == "live";
    for row in rows.iter().filter(live).filter(|row| row.policy == "dstack" && (row.load - most).abs() < 1e-9)
    {
        let what = |rest: &str| format!("{} {} at load {most}: {rest}", row.mix, row.rates);
        for rival in ["triton", "temporal"] {
            let Some(other) = at("live", rival, row) else { continue };
            let useful = row.useful / other.useful.max(1e-12);
            bars.at_least(&what(&format!("useful unit-time of dstack over {rival}")), useful, 1.6, "x");
            bars.note(&what(&format!(
                "answers in time {:.2}x {rival}'s, units held {:.2} and {:.2}",
                row.done / other.done.max(1e-12),
                row.held,
                other.held
            )));
        }
    }
    let calm = |row: &&Row| row.policy == "dstack" && row.load <= settings.calm + 1e-9;
    for row in rows.iter().filter(live).filter(calm) {
        let what = format!("promises missed by dstack on {} {} at load {}", row.mix, row.rates, row.load);
        bars.at_most(&what, row.missed * 100.0, 0.0, " %");
    }
    for policy in &settings.policies {
        let mut off = (Vec::new(), Vec::new());
        for row in rows.iter().filter(live).filter(|row| row.policy == *policy) {
            let Some(foretold) = at("simulated", policy, row) else { continue };
            let apart = |live: f64, sim: f64| (sim / live - 1.0).abs();
            off.0.push(apart(row.done, foretold.done));
            off.1.push(apart(row.p99_ms, foretold.p99_ms));
        }
        for (what, off) in [("throughput", off.0), ("p99", off.1)] {
            let worst = off.iter().copied().fold(0.0, f64::max);
            let (runs, near) = (off.len(), off.iter().filter(|off| **off <= 0.10).count());
            let middle = middle(off);
            bars.note(&format!(
                "simulated {what} of {policy} off live: median {middle:.3}, {near} of {runs} within 0.1"
            ));
            bars.at_most(
                &format!("simulated {what} of {policy} off live by, worst of {runs} runs"),
                worst,
                0.10,
                "",
            );
        }
    }
    draw(folder, settings, rows)?;
    bars.finish_as(&folder.join("live_bars.txt"))
}

fn draw(folder: &Path, settings: &Settings, rows: &[Row]) -> anyhow::Result<()> {
    let mut curves: Vec<plot::Curve> = Vec::new();
    let name = settings.mixes.first().map_or("", |mix| &mix.name);
    for policy in &settings.policies {
        for driver in ["live", "simulated"] {
            let own = rows.iter().filter(|row| {
                row.driver == driver && row.policy == *policy && row.mix == name && row.rates == "equal"
            });
            curves.push((format!("{policy}, {driver}"), own.map(|row| (row.load, row.useful)).collect()));
        }
    }
    let axes = ("load, of what the device can do at best", "share of the device's unit-time");
    plot::lines(&folder.join("live.svg"), &format!("unit-time of answered rows of {name}"), axes, &curves)
}
