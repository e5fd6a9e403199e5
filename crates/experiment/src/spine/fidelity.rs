//! How well the simulator foretells a live run: two networks on one core under `windows`, arrivals at random; the same
//! arrivals are then simulated from the costs measured when the networks were loaded.

use super::Settings;
use super::live::{Live, submission};
use crate::bars::Bars;
use crate::statistics::median;
use crate::{host, plot};
use sched::journal::Record;
use sched::node::policy::Choice;
use sched::node::{Act, Decision, Event, ModelSpec};
use sim::{Arrivals, End, Load, Scenario, Simulation, Summary, Tally};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};
use vocab::{Rng, RunId, Span, Time};

const LIMIT: f64 = 0.10;

/// Class of the first and second network's requests.
const CLASSES: [u32; 2] = [1, 2];

pub(super) fn run(folder: &Path, settings: &Settings, bars: &mut Bars) -> anyhow::Result<()> {
    let choice = Choice::named("windows").expect("windows is a policy");
    let networks = [settings.high_model.as_str(), settings.low_model.as_str()];
    let records = live(settings, &networks, &choice)?;
    let specs = specs(&records);
    let scenario = scenario(&records, &specs);
    let (live_rows, live_latencies) =
        tally(records.iter().map(|r| (r.now, r.events.as_slice(), r.decisions.as_slice())));
    let mut turns = Vec::new();
    Simulation::new(&scenario, &choice).run(|now, events, decisions| {
        turns.push((now, events.to_vec(), decisions.to_vec()));
        Ok(())
    })?;
    let (sim_rows, sim_latencies) = tally(turns.iter().map(|(now, e, d)| (*now, e.as_slice(), d.as_slice())));
    let mut rows = Vec::new();
    for (live, sim) in live_rows.iter().zip(&sim_rows) {
        compare(bars, live, sim);
        for (driver, row) in [("live", live), ("simulated", sim)] {
            let (p50, p99) = (row.p50_ms.unwrap_or(0.0), row.p99_ms.unwrap_or(0.0));
            rows.push(format!(
                "{driver},{},{},{p50:.3},{p99:.3},{:.3}",
                row.model, row.requests, row.throughput
            ));
        }
    }
    host::csv(
        &folder.join("fidelity.csv"),
        "driver,model,requests,p50_ms,p99_ms,throughput",
        rows.into_iter(),
    )?;
    let curves = [("live".to_owned(), live_latencies), ("simulated".to_owned(), sim_latencies)];
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
        for _ in 0..8 {
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

/// The scenario with the live run's arrivals, its models' measured costs, and the time it took to get on and off the
/// device.
fn scenario(records: &[Record<Event, Decision>], specs: &[ModelSpec]) -> Scenario {
    let batch = |cost: &sched::node::BucketCost| sim::BatchEntry {
        rows: cost.rows,
        segments_us: cost.segments.iter().map(|span| span.ns().div_ceil(1_000)).collect(),
    };
    let model = |spec: &ModelSpec| sim::ModelEntry {
        name: spec.name.clone(),
        profile: None,
        batches: spec.costs.iter().map(batch).collect(),
        batch_max: Some(spec.batch_max),
        queue_delay_us: 0,
        queue_max: 0,
    };
    let mut times: BTreeMap<(String, u32), Vec<u64>> = BTreeMap::new();
    for event in records.iter().flat_map(|record| &record.events) {
        if let Event::RequestArrived { request } = event
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
        noise: 0.0,
        models: specs.iter().map(model).collect(),
        loads: times.into_iter().map(load).collect(),
    }
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

fn tally<'a>(turns: impl Iterator<Item = TurnRef<'a>>) -> (Vec<Summary>, Vec<f64>) {
    let mut tally = Tally::default();
    let mut latencies = Vec::new();
    for (now, events, decisions) in turns {
        let ended = tally.turn(now, events, decisions);
        let done = ended.iter().filter(|ended| ended.end == End::Done);
        latencies.extend(done.map(|ended| ended.at.since(ended.request.arrival).as_ms_f64()));
    }
    (tally.summary(1), latencies)
}

fn compare(bars: &mut Bars, live: &Summary, sim: &Summary) {
    let off = |live: Option<f64>, sim: Option<f64>| match (live, sim) {
        (Some(live), Some(sim)) if live > 0.0 => (sim / live - 1.0).abs(),
        _ => f64::INFINITY,
    };
    let class = live.class.map_or_else(String::new, |class| format!(" {class}"));
    let name = format!("{}{class}", live.model);
    bars.at_most(&format!("simulated p50 of {name} off live by"), off(live.p50_ms, sim.p50_ms), LIMIT, "");
    bars.at_most(&format!("simulated p99 of {name} off live by"), off(live.p99_ms, sim.p99_ms), LIMIT, "");
    let (a, b) = (Some(live.throughput), Some(sim.throughput));
    bars.at_most(&format!("simulated throughput of {name} off live by"), off(a, b), LIMIT, "");
    let number = |value: Option<f64>| value.unwrap_or(f64::NAN);
    bars.note(&format!(
        "{name}: live p50 {:.2} p99 {:.2} ms {:.2}/s, simulated p50 {:.2} p99 {:.2} ms {:.2}/s",
        number(live.p50_ms),
        number(live.p99_ms),
        live.throughput,
        number(sim.p50_ms),
        number(sim.p99_ms),
        sim.throughput
    ));
}
