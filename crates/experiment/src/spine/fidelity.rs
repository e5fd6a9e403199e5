//! How well the simulator foretells a live run: two networks on one core under `windows`, arrivals at random; the same
//! arrivals are then simulated from a profile measured in the same run, since the machine's speed drifts: the mean of
//! each segment at each batch bucket, and how much whole runs of a bucket spread.

use super::Settings;
use super::live::{Live, submission};
use crate::bars::Bars;
use crate::statistics::{median, quantile, spread_ms};
use crate::{host, plot};
use sched::journal::Record;
use sched::node::policy::Choice;
use sched::node::{Act, Decision, Event, ModelSpec};
use sim::{Arrivals, End, Load, Scenario, Simulation, Tally};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};
use vocab::{ModelId, Rng, RunId, Span, Time};

const LIMIT: f64 = 0.10;

/// Requests that warm caches up and measure what one costs, half for each network; they are not compared.
const WARM_UP: u64 = 16;

/// Class of the first and second network's requests.
const CLASSES: [u32; 2] = [1, 2];

pub(super) fn run(folder: &Path, settings: &Settings, bars: &mut Bars) -> anyhow::Result<()> {
    let choice = Choice::named("windows").expect("windows is a policy");
    let networks = [settings.high_model.as_str(), settings.low_model.as_str()];
    let records = live(settings, &networks, &choice)?;
    let specs = specs(&records);
    let scenario = scenario(&records, &specs);
    let live = latencies(
        records.iter().map(|r| (r.now, r.events.as_slice(), r.decisions.as_slice())),
        &specs,
        WARM_UP,
    );
    let mut turns = Vec::new();
    Simulation::new(&scenario, &choice).run(|now, events, decisions| {
        turns.push((now, events.to_vec(), decisions.to_vec()));
        Ok(())
    })?;
    let simulated = latencies(turns.iter().map(|(now, e, d)| (*now, e.as_slice(), d.as_slice())), &specs, 0);
    let mut rows = Vec::new();
    for (name, live) in &live {
        let Some(sim) = simulated.get(name) else { continue };
        compare(bars, name, live, sim);
        for (driver, group) in [("live", live), ("simulated", sim)] {
            rows.extend(group.spans.iter().map(|span| format!("{driver},{name},{}", span.ns())));
        }
    }
    host::csv(&folder.join("fidelity.csv"), "driver,model,latency_ns", rows.into_iter())?;
    let curve = |driver: &str, groups: &BTreeMap<String, Group>| {
        groups
            .iter()
            .map(|(name, group)| {
                let values = group.spans.iter().map(|span| span.as_ms_f64()).collect();
                (format!("{name}, {driver}"), values)
            })
            .collect::<Vec<(String, Vec<f64>)>>()
    };
    let curves = [curve("live", &live), curve("simulated", &simulated)].concat();
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

fn specs(records: &[Record<Event, Decision>]) -> Vec<ModelSpec> {
    let spec = |event: &Event| match event {
        Event::ModelAdded { spec } => Some(spec.clone()),
        _ => None,
    };
    records.iter().flat_map(|record| &record.events).filter_map(spec).collect()
}

/// The scenario with the live run's arrivals, its measured costs and spread, and the time it took to get on and off the
/// device.
fn scenario(records: &[Record<Event, Decision>], specs: &[ModelSpec]) -> Scenario {
    let measured = measured(records, specs);
    let batch = |spec: &ModelSpec, cost: &sched::node::BucketCost| {
        let runs = measured.get(&(spec.id, cost.rows));
        let segment = |(place, prior): (usize, &Span)| {
            let samples: Option<Vec<Span>> = runs.map(|runs| runs.iter().map(|run| run[place]).collect());
            samples.map_or(*prior, |samples| mean(&samples)).ns().div_ceil(1_000)
        };
        sim::BatchEntry {
            rows: cost.rows,
            segments_us: cost.segments.iter().enumerate().map(segment).collect(),
            factors: Vec::new(),
        }
    };
    let model = |spec: &ModelSpec| sim::ModelEntry {
        name: spec.name.clone(),
        profile: None,
        batches: spec.costs.iter().map(|cost| batch(spec, cost)).collect(),
        batch_max: Some(spec.batch_max),
        queue_delay_us: 0,
        queue_max: 0,
        weight_bytes: Vec::new(),
        groups: None,
    };
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
        arrivals: Arrivals::Trace { at_ns },
        start_ms: 0,
        end_ms: None,
    };
    Scenario {
        policy: None,
        seed: 0,
        duration_ms: 86_400_000,
        partitions: 1,
        launch_us: overhead(records).ns() / 2_000,
        noise: spread(&measured),
        factor_block: 1,
        device: None,
        models: specs.iter().map(model).collect(),
        loads: times.into_iter().map(load).collect(),
    }
}

/// Segment times of every whole run, by model and batch bucket.
type Measured = BTreeMap<(ModelId, u32), Vec<Vec<Span>>>;

fn measured(records: &[Record<Event, Decision>], specs: &[ModelSpec]) -> Measured {
    let mut runs: BTreeMap<RunId, (ModelId, u32, Vec<Span>)> = BTreeMap::new();
    let mut measured = Measured::new();
    for record in records {
        for event in &record.events {
            match event {
                Event::RunParked { run, segments, .. } => {
                    if let Some((_, _, times)) = runs.get_mut(run) {
                        times.extend(segments);
                    }
                }
                Event::RunFinished { run, segments } => {
                    if let Some((model, rows, mut times)) = runs.remove(run) {
                        times.extend(segments);
                        measured.entry((model, rows)).or_default().push(times);
                    }
                }
                _ => {}
            }
        }
        for decision in &record.decisions {
            if let Act::Start { run, model, requests, .. } = &decision.act
                && let Some(spec) = specs.iter().find(|spec| spec.id == *model)
            {
                // Every request here brings one row.
                let rows = u32::try_from(requests.len()).unwrap_or(u32::MAX);
                let bucket = spec.costs.iter().find(|cost| cost.rows >= rows).or(spec.costs.last());
                runs.insert(*run, (*model, bucket.map_or(rows, |cost| cost.rows), Vec::new()));
            }
        }
    }
    measured
}

fn mean(spans: &[Span]) -> Span {
    spans.iter().copied().sum::<Span>().scale(1, spans.len().max(1) as u64)
}

/// Relative spread of whole runs around the mean of their bucket.
fn spread(measured: &Measured) -> f64 {
    let mut squares = Vec::new();
    for runs in measured.values().filter(|runs| runs.len() > 2) {
        let totals: Vec<Span> = runs.iter().map(|run| run.iter().copied().sum()).collect();
        let middle = mean(&totals).as_secs_f64();
        squares.extend(totals.iter().map(|total| (total.as_secs_f64() / middle - 1.0).powi(2)));
    }
    (squares.iter().sum::<f64>() / squares.len().max(1) as f64).sqrt().min(1.0)
}

/// Median time of a run from its decision to its end that is not spent in segments; runs that were parked do not count.
fn overhead(records: &[Record<Event, Decision>]) -> Span {
    let mut decided: BTreeMap<RunId, Time> = BTreeMap::new();
    let mut spans = Vec::new();
    for record in records {
        for event in &record.events {
            match event {
                Event::RunParked { run, .. } => drop(decided.remove(run)),
                Event::RunFinished { run, segments } => {
                    if let Some(at) = decided.remove(run) {
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
    /// Answers a second, from the first arrival to the last end.
    fn throughput(&self) -> f64 {
        let length = self.last.since(self.first.unwrap_or(self.last));
        self.spans.len() as f64 / length.as_secs_f64().max(1e-9)
    }
}

/// Latencies by network of requests numbered `from` and later.
fn latencies<'a>(
    turns: impl Iterator<Item = TurnRef<'a>>,
    specs: &[ModelSpec],
    from: u64,
) -> BTreeMap<String, Group> {
    let mut tally = Tally::default();
    let mut groups: BTreeMap<String, Group> = BTreeMap::new();
    for (now, events, decisions) in turns {
        for ended in tally.turn(now, events, decisions) {
            let spec = specs.iter().find(|spec| spec.id == ended.request.model);
            let Some(spec) = spec.filter(|_| ended.end == End::Done && ended.request.id.0 >= from) else {
                continue;
            };
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
    let throughput = off(live.throughput(), sim.throughput());
    bars.at_most(&format!("simulated throughput of {name} off live by"), throughput, LIMIT, "");
    for (driver, group) in [("live", live), ("simulated", sim)] {
        let count = group.spans.len();
        bars.note(&format!(
            "{name} {driver}: {count} requests, {}, p99 {:.2} ms, {:.3}/s",
            spread_ms(&group.spans),
            at(group, 990) * 1e3,
            group.throughput()
        ));
    }
}
