//! How well the simulator foretells a live run: two networks on one core under `windows`, arrivals at random; the same
//! arrivals are then simulated. Profile, spread and overhead are taken from the same live run, since the machine's speed
//! drifts, but never from the runs that are compared: of each batch bucket every other run calibrates, the requests of
//! the runs between are compared, and then the other way round.
//!
//! What one bucket's runs took, divided by their mean, is what the simulator draws from: a crowded machine has spikes
//! that no normal error has.

use super::Settings;
use super::live::{Live, specs, submission};
use crate::bars::Bars;
use crate::statistics::{median, quantile, spread_ms};
use crate::{host, plot};
use sched::journal::Record;
use sched::node::policy::Choice;
use sched::node::{Act, BucketCost, Decision, Event, ModelSpec};
use sim::{Arrivals, BatchEntry, End, Load, ModelEntry, PolicyEntry, Scenario, Simulation, Tally};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};
use vocab::{ModelId, RequestId, Rng, RunId, Span, Time};

const LIMIT: f64 = 0.10;

/// Requests that warm caches up and measure what one costs, half for each network; they are not compared.
const WARM_UP: u64 = 16;

/// Class of the first and second network's requests.
const CLASSES: [u32; 2] = [1, 2];

/// Simulations of each calibration, pooled: the simulator's own chance shall not show.
const SEEDS: u64 = 16;

/// Runs in a row that draw factors measured in a row: what slows one run down is often still there for the next.
const BLOCK: u32 = 4;

/// Runs that calibrate a bucket, at least; a bucket with fewer takes the factors of all of its model's runs.
const RUNS_MIN: usize = 20;

pub(super) fn run(folder: &Path, settings: &Settings, bars: &mut Bars) -> anyhow::Result<()> {
    let choice = Choice::named("windows").expect("windows is a policy");
    let networks = [settings.high_model.as_str(), settings.low_model.as_str()];
    let records = live(settings, &networks, &choice)?;
    let specs = specs(&records);
    let runs = measured(&records, &specs);
    let turns = records.iter().map(|r| (r.now, r.events.as_slice(), r.decisions.as_slice()));
    let live = latencies(turns, &specs, |request, _| request.0 >= WARM_UP);
    let mut simulated: BTreeMap<String, Group> = BTreeMap::new();
    for fold in [false, true] {
        let (compared, calibrating): (Vec<&Measured>, Vec<&Measured>) =
            runs.iter().partition(|run| run.odd == fold);
        let scenario = scenario(&records, &specs, &calibrating);
        let compared: BTreeSet<Time> = compared.iter().flat_map(|run| run.arrivals.iter().copied()).collect();
        for seed in 0..SEEDS {
            let scenario = Scenario { seed, ..scenario.clone() };
            for (name, group) in simulate(&scenario, &choice, &specs, &compared)? {
                simulated.entry(name).or_default().join(group);
            }
        }
        if !fold {
            std::fs::write(folder.join("fidelity.toml"), toml::to_string(&scenario)?)?;
        }
    }
    let calibrated = runs.iter().filter(|run| !run.odd).count();
    bars.note(&format!(
        "fidelity: {calibrated} runs calibrate for the requests of {} others, and the other way round; {SEEDS} seeds each",
        runs.len() - calibrated
    ));
    report(folder, bars, &live, &simulated)
}

/// Simulates and gives the latencies of requests that arrived at one of the `compared` times.
fn simulate(
    scenario: &Scenario,
    choice: &Choice,
    specs: &[ModelSpec],
    compared: &BTreeSet<Time>,
) -> anyhow::Result<BTreeMap<String, Group>> {
    let mut turns = Vec::new();
    Simulation::new(scenario, choice).run(|now, events, decisions| {
        turns.push((now, events.to_vec(), decisions.to_vec()));
        Ok(())
    })?;
    let turns = turns.iter().map(|(now, events, decisions)| (*now, events.as_slice(), decisions.as_slice()));
    Ok(latencies(turns, specs, |_, arrival| compared.contains(&arrival)))
}

/// Bars, table and picture.
fn report(
    folder: &Path,
    bars: &mut Bars,
    live: &BTreeMap<String, Group>,
    simulated: &BTreeMap<String, Group>,
) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    let mut curves = Vec::new();
    for (name, live) in live {
        let Some(sim) = simulated.get(name) else { continue };
        compare(bars, name, live, sim);
        for (driver, group) in [("live", live), ("simulated", sim)] {
            let per_mille: Vec<Span> = (1..=1_000).map(|at| quantile(&group.spans, at)).collect();
            let line = |(at, span): (usize, &Span)| format!("{driver},{name},{at},{}", span.ns());
            rows.extend((1..).zip(&per_mille).map(line));
            curves.push((
                format!("{name}, {driver}"),
                per_mille.iter().map(|span| span.as_ms_f64()).collect::<Vec<f64>>(),
            ));
        }
    }
    host::csv(&folder.join("fidelity.csv"), "driver,model,per_mille,latency_ns", rows.into_iter())?;
    plot::distributions(&folder.join("fidelity.svg"), "the same arrivals, live and simulated", &curves)
}

/// Sends the arrivals and gives the turns of the live run.
fn live(
    settings: &Settings,
    networks: &[&str; 2],
    choice: &Choice,
) -> anyhow::Result<Vec<Record<Event, Decision>>> {
    let live = Live::start(networks, settings.core, 4, choice)?;
    let handle = live.handle();
    let alone = |name: &str| -> anyhow::Result<f64> {
        let tokio = super::live::waiter()?;
        let mut spans = Vec::new();
        for _ in 0..WARM_UP / 2 {
            spans.push(super::live::ask(&tokio, &handle, submission(&handle, name, 1, 1)?)?);
        }
        Ok(median(&spans).as_secs_f64())
    };
    let costs = [alone(networks[0])?, alone(networks[1])?];
    // Each network asks for half of the load.
    let rates = costs.map(|cost| settings.fidelity_load / 2.0 / cost);
    let mut arrivals: Vec<(f64, usize)> = Vec::new();
    for (place, rate) in rates.iter().enumerate() {
        let mut rng = Rng::new(11).fork(place as u64);
        let mut at = rng.exponential() / rate;
        while at < settings.fidelity_s as f64 {
            arrivals.push((at, place));
            at += rng.exponential() / rate;
        }
    }
    arrivals.sort_by(|a, b| a.0.total_cmp(&b.0));
    let begin = Instant::now();
    let mut tickets = Vec::with_capacity(arrivals.len());
    for (at, place) in arrivals {
        let due = begin + Duration::from_secs_f64(at);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        tickets.push(handle.submit(submission(&handle, networks[place], 1, CLASSES[place])?)?);
    }
    let tokio = super::live::waiter()?;
    for ticket in tickets {
        tokio.block_on(ticket.outcome());
    }
    live.stop()
}

/// The scenario with the live run's arrivals, the costs and the spread of the `calibrating` runs, and the time it took to
/// get on and off the device.
fn scenario(records: &[Record<Event, Decision>], specs: &[ModelSpec], calibrating: &[&Measured]) -> Scenario {
    let mut times: BTreeMap<(String, u32), Vec<u64>> = BTreeMap::new();
    for event in records.iter().flat_map(|record| &record.events) {
        if let Event::RequestArrived { request } = event
            && request.id.0 >= WARM_UP
            && let Some(spec) = specs.iter().find(|spec| spec.id == request.model)
        {
            times.entry((spec.name.clone(), request.class.level())).or_default().push(request.arrival.ns());
        }
    }
    let load = |((model, class), at_ns): ((String, u32), Vec<u64>)| Load {
        model,
        class,
        rows: 1,
        timeout_us: None,
        arrivals: Arrivals::at(at_ns),
        start_ms: 0,
        end_ms: None,
        copies: 1,
    };
    let ids: BTreeSet<RunId> = calibrating.iter().map(|run| run.id).collect();
    Scenario {
        policy: Some(PolicyEntry::Name("windows".into())),
        duration_ms: 86_400_000,
        launch_us: overhead(records, &ids).ns() / 2_000,
        factor_block: BLOCK,
        models: specs.iter().map(|spec| model(spec, calibrating)).collect(),
        loads: times.into_iter().map(load).collect(),
        ..Scenario::default()
    }
}

/// A model with the mean of each segment and the factors of whole runs, by bucket.
fn model(spec: &ModelSpec, calibrating: &[&Measured]) -> ModelEntry {
    let own: Vec<&Measured> = calibrating.iter().filter(|run| run.model == spec.id).copied().collect();
    let of = |rows: u32| own.iter().filter(|run| run.rows == rows).copied().collect::<Vec<&Measured>>();
    // A bucket that no run calibrates is as far off the profile as those that some do.
    let (mut measured, mut believed) = (Span::ZERO, Span::ZERO);
    for cost in &spec.costs {
        let runs = of(cost.rows);
        measured += runs.iter().map(|run| run.total()).sum();
        believed += cost.total() * runs.len() as u64;
    }
    let pooled: Vec<f64> = spec.costs.iter().flat_map(|cost| factors(&of(cost.rows))).collect();
    let batch = |cost: &BucketCost| {
        let runs = of(cost.rows);
        let segment = |(place, prior): (usize, &Span)| {
            let spans: Vec<Span> = runs.iter().map(|run| run.segments[place]).collect();
            let span = match (spans.is_empty(), believed) {
                (false, _) => mean(&spans),
                (true, Span::ZERO) => *prior,
                (true, _) => prior.scale(measured.ns(), believed.ns()),
            };
            span.ns().div_ceil(1_000)
        };
        BatchEntry {
            rows: cost.rows,
            segments_us: cost.segments.iter().enumerate().map(segment).collect(),
            factors: if runs.len() < RUNS_MIN { pooled.clone() } else { factors(&runs) },
            beside: Vec::new(),
        }
    };
    ModelEntry {
        name: spec.name.clone(),
        batches: spec.costs.iter().map(batch).collect(),
        batch_max: Some(spec.batch_max),
        ..ModelEntry::default()
    }
}

/// What these runs of one bucket took, divided by their mean, in their order.
fn factors(runs: &[&Measured]) -> Vec<f64> {
    let totals: Vec<Span> = runs.iter().map(|run| run.total()).collect();
    let middle = mean(&totals).as_secs_f64();
    totals.iter().map(|total| total.as_secs_f64() / middle).collect()
}

/// A whole run as it was measured.
struct Measured {
    id: RunId,
    model: ModelId,
    /// Rows of its batch bucket.
    rows: u32,
    segments: Vec<Span>,
    /// When its requests arrived.
    arrivals: Vec<Time>,
    /// Whether it is the second, fourth … of its bucket.
    odd: bool,
}

impl Measured {
    fn total(&self) -> Span {
        self.segments.iter().copied().sum()
    }
}

/// Every run that finished, in the order of finishing; those of the warm-up do not count.
fn measured(records: &[Record<Event, Decision>], specs: &[ModelSpec]) -> Vec<Measured> {
    let mut arrivals: BTreeMap<RequestId, Time> = BTreeMap::new();
    let mut under_way: BTreeMap<RunId, Measured> = BTreeMap::new();
    let mut counts: BTreeMap<(ModelId, u32), u64> = BTreeMap::new();
    let mut measured = Vec::new();
    for record in records {
        for event in &record.events {
            match event {
                Event::RequestArrived { request } => drop(arrivals.insert(request.id, request.arrival)),
                Event::RunParked { run, segments, .. } => {
                    if let Some(run) = under_way.get_mut(run) {
                        run.segments.extend(segments);
                    }
                }
                Event::RunFinished { run, segments } => {
                    let Some(mut run) = under_way.remove(run) else { continue };
                    run.segments.extend(segments);
                    let count = counts.entry((run.model, run.rows)).or_default();
                    run.odd = *count % 2 == 1;
                    *count += 1;
                    measured.push(run);
                }
                _ => {}
            }
        }
        for decision in &record.decisions {
            if let Act::Start { run, model, requests, .. } = &decision.act
                && requests.iter().all(|request| request.0 >= WARM_UP)
                && let Some(spec) = specs.iter().find(|spec| spec.id == *model)
            {
                // Every request here brings one row.
                let rows = u32::try_from(requests.len()).unwrap_or(u32::MAX);
                let bucket = spec.costs.iter().find(|cost| cost.rows >= rows).or(spec.costs.last());
                let rows = bucket.map_or(rows, |cost| cost.rows);
                let arrivals = requests.iter().filter_map(|request| arrivals.get(request).copied()).collect();
                let (id, model, segments) = (*run, *model, Vec::new());
                under_way.insert(id, Measured { id, model, rows, segments, arrivals, odd: false });
            }
        }
    }
    measured
}

fn mean(spans: &[Span]) -> Span {
    spans.iter().copied().sum::<Span>().scale(1, spans.len().max(1) as u64)
}

/// Median time of the runs `ids` from decision to end that is not spent in segments; parked ones do not count.
fn overhead(records: &[Record<Event, Decision>], ids: &BTreeSet<RunId>) -> Span {
    let mut decided: BTreeMap<RunId, Time> = BTreeMap::new();
    let mut spans = Vec::new();
    for record in records {
        for event in &record.events {
            match event {
                Event::RunParked { run, .. } => drop(decided.remove(run)),
                Event::RunFinished { run, segments } => {
                    if let Some(at) = decided.remove(run).filter(|_| ids.contains(run)) {
                        spans.push(record.now.since(at) - segments.iter().copied().sum());
                    }
                }
                _ => {}
            }
        }
        for decision in &record.decisions {
            if let Act::Start { run, .. } = decision.act {
                decided.insert(run, record.now);
            }
        }
    }
    if spans.is_empty() { Span::ZERO } else { median(&spans) }
}

type TurnRef<'a> = (Time, &'a [Event], &'a [Decision]);

/// What was answered for one network.
#[derive(Default)]
struct Group {
    spans: Vec<Span>,
    first: Option<Time>,
    last: Time,
}

impl Group {
    /// Adds what another simulation of the same arrivals, or of a part of them, gave.
    fn join(&mut self, other: Self) {
        self.spans.extend(other.spans);
        self.first = self.first.into_iter().chain(other.first).min();
        self.last = self.last.max(other.last);
    }

    /// Answers a second, from the first arrival to the last end, when the group holds the same arrivals `times` over.
    fn throughput(&self, times: u64) -> f64 {
        let length = self.last.since(self.first.unwrap_or(self.last));
        self.spans.len() as f64 / times as f64 / length.as_secs_f64().max(1e-9)
    }
}

/// Latencies by network of the requests that `wanted` says, by number and arrival.
fn latencies<'a>(
    turns: impl Iterator<Item = TurnRef<'a>>,
    specs: &[ModelSpec],
    wanted: impl Fn(RequestId, Time) -> bool,
) -> BTreeMap<String, Group> {
    let mut tally = Tally::default();
    let mut groups: BTreeMap<String, Group> = BTreeMap::new();
    for (now, events, decisions) in turns {
        for ended in tally.turn(now, events, decisions) {
            let spec = specs.iter().find(|spec| spec.id == ended.request.model);
            let wanted = ended.end == End::Done && wanted(ended.request.id, ended.request.arrival);
            let Some(spec) = spec.filter(|_| wanted) else { continue };
            let group = groups.entry(spec.name.clone()).or_default();
            group.spans.push(ended.at.since(ended.request.arrival));
            group.first = group.first.into_iter().chain([ended.request.arrival]).min();
            group.last = group.last.max(ended.at);
        }
    }
    groups
}

fn compare(bars: &mut Bars, name: &str, live: &Group, sim: &Group) {
    let off = |live: f64, sim: f64| (sim / live - 1.0).abs();
    let at = |group: &Group, per_mille| quantile(&group.spans, per_mille).as_secs_f64();
    let p50 = off(at(live, 500), at(sim, 500));
    let p99 = off(at(live, 990), at(sim, 990));
    bars.at_most(&format!("simulated p50 of {name} off live by"), p50, LIMIT, "");
    bars.at_most(&format!("simulated p99 of {name} off live by"), p99, LIMIT, "");
    let throughput = off(live.throughput(1), sim.throughput(SEEDS));
    bars.at_most(&format!("simulated throughput of {name} off live by"), throughput, LIMIT, "");
    for (driver, group, times) in [("live", live, 1), ("simulated", sim, SEEDS)] {
        let count = group.spans.len();
        bars.note(&format!(
            "{name} {driver}: {count} requests, {}, p99 {:.2} ms, {:.3}/s",
            spread_ms(&group.spans),
            at(group, 990) * 1e3,
            group.throughput(times)
        ));
    }
}
