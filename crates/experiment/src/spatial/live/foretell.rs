//! The same arrivals under the same policy in the simulator, on the parts and at the costs that were measured live.

use super::seen::{Seen, Turns, observe};
use super::table::Row;
use super::{Case, Settings};
use crate::spatial::{jain, middle};
use crate::spine::live::specs;
use crate::statistics::{median, quantile};
use anyhow::{Context as _, ensure};
use engine::{Device, PartitionInfo};
use sched::journal::Record;
use sched::node::policy::{Choice, NodePolicy};
use sched::node::{BucketCost, Decision, Event, ModelSpec, NodeWorld, Part};
use sched::{Policy, turn};
use sim::{
    Arrivals, BatchEntry, Load, ModelEntry, ModelPart, PartEntry, Scenario, SlowdownEntry, SpaceEntry, Speeds,
};
use std::collections::BTreeMap;
use vocab::{PartitionId, Time};

/// Simulations of a live run, each with factors and launches drawn anew; the middle of each figure counts.
const DRAWS: u64 = 5;

/// A live run of a policy.
pub(super) struct Live<'a> {
    pub(super) settings: &'a Settings,
    pub(super) policy: &'a str,
    pub(super) choice: &'a Choice,
    pub(super) parts: &'a Parts,
    /// What models were measured to do to each other.
    pub(super) slowdowns: &'a [SlowdownEntry],
    /// The least unit-time of a row of each model, unit-seconds.
    pub(super) least: &'a BTreeMap<String, f64>,
}

/// The parts of the device that a live run was on.
pub(super) struct Parts {
    pub(super) partitions: Vec<PartitionInfo>,
    /// Units of the device.
    pub(super) units: u32,
    /// Segments of a run that it has at once.
    pub(super) ahead: usize,
}

impl Parts {
    pub(super) fn of(device: &dyn Device) -> Self {
        Self { partitions: device.partitions().to_vec(), units: device.units(), ahead: device.ahead() }
    }

    /// As a journal has them.
    pub(super) fn read(records: &[Record<Event, Decision>]) -> anyhow::Result<Self> {
        let mut found = None;
        for event in records.iter().flat_map(|record| &record.events) {
            if let Event::PartsShared { units, parts, .. } = event {
                let info = |(id, part): &(PartitionId, Part)| PartitionInfo {
                    id: *id,
                    name: String::new(),
                    first: part.first.unwrap_or(0),
                    units: part.units,
                };
                // Journals do not tell: these experiments are for GPUs.
                let partitions = parts.iter().map(info).collect();
                found = Some(Self { partitions, units: *units, ahead: cuda::AHEAD });
            }
        }
        found.context("the journal is of no device in parts")
    }
}

/// What is known of a live run besides its turns.
struct Known<'a> {
    live: &'a Live<'a>,
    specs: Vec<ModelSpec>,
    units: BTreeMap<PartitionId, u32>,
    speeds: Speeds,
}

/// Rows of all cases of one policy, live and simulated.
pub(super) fn count(
    live: &Live<'_>,
    records: &[Record<Event, Decision>],
    (cases, warmed): (&[Case<'_>], usize),
) -> anyhow::Result<Vec<Row>> {
    let specs = specs(records);
    let numbered = specs.iter().enumerate().all(|(at, spec)| spec.id.index() == at);
    ensure!(numbered, "models came and went: the journal numbers them otherwise than the simulator would");
    let partitions = &live.parts.partitions;
    let plain = scenario(live, &specs, &Seen::default());
    ensure_same(partitions, &plain)?;
    let known = Known {
        live,
        specs,
        units: partitions.iter().map(|part| (part.id, part.units)).collect(),
        speeds: Speeds::of(&plain),
    };
    let turns: Turns<'_> =
        records.iter().map(|r| (r.now, r.events.as_slice(), r.decisions.as_slice())).collect();
    let windows = windows(&turns, warmed, &cases.iter().map(|case| case.sent).collect::<Vec<_>>())?;
    let begins: Vec<Time> = windows.iter().map(|window| window.0).collect();
    let states = states(live, records, &begins)?;
    let mut all: Vec<(&Case<'_>, (Time, Time), State)> =
        cases.iter().zip(windows).zip(states).map(|((case, window), state)| (case, window, state)).collect();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let each = all.len().div_ceil(threads).max(1);
    let some = |cases: Vec<(&Case<'_>, (Time, Time), State)>| -> anyhow::Result<Vec<Row>> {
        let pairs =
            cases.into_iter().map(|(case, window, state)| both(&known, &turns, case, (window, state)));
        Ok(pairs.collect::<anyhow::Result<Vec<_>>>()?.into_iter().flatten().collect())
    };
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        while !all.is_empty() {
            let cases: Vec<_> = all.drain(..each.min(all.len())).collect();
            let some = &some;
            threads.push(scope.spawn(move || some(cases)));
        }
        let mut rows = Vec::new();
        for thread in threads {
            rows.extend(thread.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a simulation panicked")))?);
        }
        Ok(rows)
    })
}

/// A world and a policy at one moment of a live run.
type State = (NodeWorld, Box<dyn NodePolicy>);

/// World and policy as they were live before each of `begins`, which ascend: what was learned before goes on.
fn states(
    live: &Live<'_>,
    records: &[Record<Event, Decision>],
    begins: &[Time],
) -> anyhow::Result<Vec<State>> {
    let (mut world, mut policy) = (NodeWorld::new(), live.choice.build());
    let mut found = Vec::with_capacity(begins.len());
    for record in records {
        while begins.get(found.len()).is_some_and(|begin| *begin <= record.now) {
            found.push((world.clone(), policy.fork()));
        }
        let turn = turn(&mut world, &mut *policy, record.now, &record.events);
        ensure!(
            turn.accepted == record.decisions,
            "{} decides otherwise than it did at {}: the journal is of another version of it; run it live again",
            live.policy,
            record.now
        );
    }
    found.resize_with(begins.len(), || (world.clone(), policy.fork()));
    Ok(found)
}

/// The simulator numbers parts as the device does, or what is known of one is of another there.
fn ensure_same(partitions: &[PartitionInfo], scenario: &Scenario) -> anyhow::Result<()> {
    let parts = scenario.space.iter().flat_map(|space| &space.parts);
    let mut foretold: Vec<(Option<u32>, u32)> = parts
        .flat_map(|part| std::iter::repeat_n((part.first, part.units), usize::from(part.count)))
        .collect();
    foretold.sort_by_key(|(_, units)| std::cmp::Reverse(*units));
    let live: Vec<(Option<u32>, u32)> =
        partitions.iter().map(|part| (Some(part.first), part.units)).collect();
    let numbered = partitions.iter().enumerate().all(|(at, part)| usize::from(part.id.0) == at);
    ensure!(live == foretold && numbered, "the device numbers its parts otherwise than the simulator would");
    Ok(())
}

/// From the first arrival of each case until the next one's: cases follow each other, each with so many requests, after so
/// many that warmed up.
fn windows(turns: &Turns<'_>, warmed: usize, sent: &[usize]) -> anyhow::Result<Vec<(Time, Time)>> {
    let mut arrivals: Vec<Time> = turns
        .iter()
        .flat_map(|(_, events, _)| *events)
        .filter_map(|event| match event {
            Event::RequestArrived { request } => Some(request.arrival),
            _ => None,
        })
        .collect();
    arrivals.sort_unstable();
    let all = warmed + sent.iter().sum::<usize>();
    ensure!(arrivals.len() == all, "the journal has {} arrivals, {all} were sent", arrivals.len());
    let mut first = warmed;
    let mut windows = Vec::new();
    for sent in sent {
        let at = |place: usize| arrivals.get(place).copied().unwrap_or(Time::FOREVER);
        let end = at(first + sent);
        // The next one's first arrival is not its own.
        let before = if end == Time::FOREVER { end.ns() } else { end.ns().saturating_sub(1) };
        windows.push((at(first), Time::from_ns(before)));
        first += sent;
    }
    Ok(windows)
}

/// A case live and simulated.
fn both(
    known: &Known<'_>,
    turns: &Turns<'_>,
    case: &Case<'_>,
    (window, (world, policy)): ((Time, Time), State),
) -> anyhow::Result<[Row; 2]> {
    let seen = observe(turns, (&known.specs, &known.units), Some(&known.speeds), window);
    let mut scenario = scenario(known.live, &known.specs, &seen);
    let faults = scenario.faults();
    ensure!(faults.is_empty(), "the scenario has faults: {}", faults.join("; "));
    let mut drawn = Vec::new();
    for seed in 0..DRAWS {
        scenario.seed = seed;
        let mut simulated = Vec::new();
        let state = (world.clone(), policy.fork() as Box<dyn Policy<NodeWorld>>);
        sim::Simulation::going_on(&scenario, state, window.0).run(|now, events, decisions| {
            simulated.push((now, events.to_vec(), decisions.to_vec()));
            Ok(())
        })?;
        let turns: Turns<'_> =
            simulated.iter().map(|(now, e, d)| (*now, e.as_slice(), d.as_slice())).collect();
        let end = turns.last().map_or(Time::ZERO, |turn| turn.0);
        let again = observe(&turns, (&scenario.specs(), &known.units), None, (window.0, end));
        drawn.push(row(known, case, "simulated", &again));
    }
    Ok([row(known, case, "live", &seen), middles(&drawn)])
}

/// Each figure's middle.
fn middles(rows: &[Row]) -> Row {
    let of = |figure: fn(&Row) -> f64| middle(rows.iter().map(figure).collect());
    Row {
        done: of(|row| row.done),
        missed: of(|row| row.missed),
        p50_ms: of(|row| row.p50_ms),
        p99_ms: of(|row| row.p99_ms),
        held: of(|row| row.held),
        useful: of(|row| row.useful),
        jain: of(|row| row.jain),
        rows: of(|row| row.rows),
        beyond_ms: of(|row| row.beyond_ms),
        ..rows[0].clone()
    }
}

fn row(known: &Known<'_>, case: &Case<'_>, driver: &str, seen: &Seen) -> Row {
    let (settings, units) = (known.live.settings, known.live.parts.units);
    let seconds = settings.duration_ms as f64 / 1e3;
    let (mut asked, mut done, mut useful) = (0, 0, 0.0);
    let mut parts = Vec::new();
    for (name, (own_asked, own_done)) in &seen.models {
        asked += own_asked;
        done += own_done;
        useful += *own_done as f64 * known.live.least.get(name).copied().unwrap_or(0.0);
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
        policy: known.live.policy.into(),
        run: case.run,
        asked,
        done: done as f64 / seconds,
        missed: 1.0 - done as f64 / asked.max(1) as f64,
        p50_ms: ms(500),
        p99_ms: ms(990),
        held: seen.held / (seconds * f64::from(units)),
        useful: useful / (seconds * f64::from(units)),
        jain: jain(&parts),
        rows: seen.rows as f64 / seen.runs.max(1) as f64,
        beyond_ms: if seen.beyond.is_empty() { 0.0 } else { median(&seen.beyond).as_ms_f64() },
    }
}

/// The same arrivals on the same parts, at the costs that were measured when the models were loaded, times how far live
/// runs were off that beside what neighbours explain, with the launches that were seen.
fn scenario(live: &Live<'_>, specs: &[ModelSpec], seen: &Seen) -> Scenario {
    let batch = |cost: &BucketCost| BatchEntry {
        rows: cost.rows,
        segments_us: cost.segments.iter().map(|span| span.ns().div_ceil(1_000)).collect(),
        ..BatchEntry::default()
    };
    let spread = |spec: &ModelSpec, cost: &BucketCost| {
        let measured = seen.factors.get(&(spec.name.clone(), cost.rows));
        let (factors, beside) = measured.into_iter().flatten().copied().unzip();
        BatchEntry { factors, beside, ..batch(cost) }
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
    for part in &live.parts.partitions {
        match parts.iter_mut().find(|known| known.first == Some(part.first) && known.units == part.units) {
            Some(known) => known.count += 1,
            None => parts.push(PartEntry { first: Some(part.first), units: part.units, count: 1 }),
        }
    }
    let served = |name: &String| specs.iter().any(|spec| spec.name == *name);
    let slowdowns = live
        .slowdowns
        .iter()
        .filter(|entry| served(&entry.model) && served(&entry.beside))
        .cloned()
        .collect();
    let streams = parts.first().map_or(1, |part| part.count);
    let load = |(name, (at_ns, lag_ns)): (&String, &(Vec<u64>, Vec<u64>))| Load {
        timeout_us: None,
        ..crate::spatial::load(name, Arrivals::Trace { at_ns: at_ns.clone(), lag_ns: lag_ns.clone() })
    };
    Scenario {
        space: Some(SpaceEntry { units: live.parts.units, overlap: streams.into(), grid: None, parts }),
        slowdowns,
        models: specs.iter().map(entry).collect(),
        loads: seen.arrivals.iter().map(load).collect(),
        factor_block: 8,
        ahead: u32::try_from(live.parts.ahead).unwrap_or(u32::MAX),
        launches_us: seen.beyond.iter().map(|span| span.ns() / 2_000).collect(),
        duration_ms: 86_400_000,
        ..Scenario::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vocab::{Class, ModelId, Request, RequestId, Span};

    #[test]
    fn cases_are_told_apart_by_how_many_were_sent() {
        let arrived = |ms: u64| Event::RequestArrived {
            request: Request {
                id: RequestId(ms),
                model: ModelId(0),
                class: Class::new(1).unwrap(),
                rows: 1,
                arrival: Time::ZERO + Span::from_ms(ms),
                deadline: None,
            },
        };
        let events: Vec<Event> = [1, 10, 11, 20].into_iter().map(arrived).collect();
        let turns: Turns<'_> = vec![(Time::ZERO + Span::from_ms(30), events.as_slice(), &[])];
        let found = windows(&turns, 1, &[2, 0, 1]).unwrap();
        let ms = |time: Time| if time == Time::FOREVER { 0 } else { time.since(Time::ZERO).ns() / 1_000_000 };
        let found: Vec<(u64, u64)> = found.into_iter().map(|(from, to)| (ms(from), ms(to))).collect();
        // The case without a request has an empty window.
        assert_eq!(found, [(10, 19), (20, 19), (20, 0)]);
        assert!(windows(&turns, 1, &[2]).unwrap_err().to_string().contains("4 arrivals, 3 were sent"));
    }
}
