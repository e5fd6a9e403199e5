//! What became of every request, read from turns alone, so that a live journal and a simulation are counted alike.

use sched::node::{Act, Decision, Event};
use serde::Serialize;
use std::collections::BTreeMap;
use vocab::{Class, IdMap, ModelId, PartitionId, Request, RequestId, RunId, Span, Time};

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum End {
    /// Answered in time.
    Done,
    /// Deadline passed while running.
    Late,
    /// Refused before running.
    Rejected,
    /// Deadline passed while waiting.
    Dropped,
    /// The client left.
    Cancelled,
    /// The device or the model failed.
    Failed,
}

/// One ended request.
#[derive(Clone, Debug)]
pub struct Ended {
    /// The request.
    pub request: Request,
    /// How.
    pub end: End,
    /// When.
    pub at: Time,
}

/// Counts requests, runs and device time from turns.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    live: IdMap<RequestId, Request>,
    runs: BTreeMap<RunId, Counted>,
    groups: BTreeMap<(ModelId, Class), Group>,
    names: BTreeMap<ModelId, String>,
    busy: Span,
    /// Units of the device that partitions are parts of, and of each partition.
    units: u32,
    parts: BTreeMap<PartitionId, u32>,
    /// Time of runs times the units they were on, in nanoseconds.
    unit_busy: u128,
    events: u64,
    turns: u64,
    parks: u64,
    loads: u64,
    runs_begun: u64,
    first: Option<Time>,
    last: Time,
}

/// A run that has not ended.
#[derive(Clone, Debug)]
struct Counted {
    requests: Vec<RequestId>,
    partition: PartitionId,
}

/// Requests of one model and class.
#[derive(Clone, Debug, Default)]
pub struct Group {
    ends: BTreeMap<End, u64>,
    latencies: Vec<Span>,
    rows: u64,
}

impl Tally {
    /// Counts one turn; returns the requests it ended.
    pub fn turn(&mut self, now: Time, events: &[Event], decisions: &[Decision]) -> Vec<Ended> {
        let mut ended = Vec::new();
        self.turns += 1;
        self.events += events.len() as u64;
        for event in events {
            self.event(now, event, &mut ended);
        }
        for decision in decisions {
            self.decision(now, decision, &mut ended);
        }
        ended
    }

    fn event(&mut self, now: Time, event: &Event, ended: &mut Vec<Ended>) {
        match event {
            Event::RequestArrived { request } => {
                self.first.get_or_insert(now);
                self.live.insert(request.id, request.clone());
            }
            Event::RequestCancelled { request } => self.end(now, *request, End::Cancelled, ended),
            Event::ModelAdded { spec } => {
                self.names.insert(spec.id, spec.name.clone());
            }
            Event::PartsShared { units, parts, .. } => {
                self.units += units;
                self.parts.extend(parts.iter().map(|(id, part)| (*id, part.units)));
            }
            Event::RunParked { run, segments, .. } => {
                self.was_busy(*run, segments);
                self.parks += 1;
            }
            Event::RunFinished { run, segments } => {
                self.was_busy(*run, segments);
                self.end_run(now, *run, End::Done, ended);
            }
            Event::RunFailed { run, .. } => self.end_run(now, *run, End::Failed, ended),
            Event::RunAbandoned { run } => self.end_run(now, *run, End::Cancelled, ended),
            Event::RunRefused { run } => {
                self.runs.remove(run);
            }
            _ => {}
        }
    }

    fn was_busy(&mut self, run: RunId, segments: &[Span]) {
        let span: Span = segments.iter().copied().sum();
        self.busy += span;
        let units = self.runs.get(&run).and_then(|run| self.parts.get(&run.partition)).copied().unwrap_or(0);
        self.unit_busy += u128::from(span.ns()) * u128::from(units);
    }

    fn decision(&mut self, now: Time, decision: &Decision, ended: &mut Vec<Ended>) {
        match &decision.act {
            Act::Start { run, partition, requests, .. } => {
                self.runs_begun += 1;
                let counted = Counted { requests: requests.clone(), partition: *partition };
                self.runs.insert(*run, counted);
            }
            Act::Move { run, partition } => {
                if let Some(run) = self.runs.get_mut(run) {
                    run.partition = *partition;
                }
            }
            Act::Load { .. } => self.loads += 1,
            Act::Reject { request } => self.end(now, *request, End::Rejected, ended),
            Act::Expire { request } => {
                let running = self.runs.values().any(|run| run.requests.contains(request));
                self.end(now, *request, if running { End::Late } else { End::Dropped }, ended);
            }
            _ => {}
        }
    }

    fn end_run(&mut self, now: Time, run: RunId, end: End, ended: &mut Vec<Ended>) {
        let requests = self.runs.remove(&run).map_or_else(Vec::new, |run| run.requests);
        for request in requests {
            self.end(now, request, end, ended);
        }
    }

    fn end(&mut self, now: Time, id: RequestId, end: End, ended: &mut Vec<Ended>) {
        let Some(request) = self.live.remove(&id) else { return };
        let group = self.groups.entry((request.model, request.class)).or_default();
        *group.ends.entry(end).or_default() += 1;
        if end == End::Done {
            group.latencies.push(now.since(request.arrival));
            group.rows += u64::from(request.rows);
        }
        self.last = self.last.max(now);
        ended.push(Ended { request, end, at: now });
    }

    /// Requests that have not ended.
    #[must_use]
    pub fn live(&self) -> usize {
        self.live.len()
    }

    /// Events counted.
    #[must_use]
    pub const fn events(&self) -> u64 {
        self.events
    }

    /// Turns counted.
    #[must_use]
    pub const fn turns(&self) -> u64 {
        self.turns
    }

    /// One row a model and class, and one for everything; `partitions` is what utilisation is a share of.
    #[must_use]
    pub fn summary(&self, partitions: usize) -> Vec<Summary> {
        let length = self.last.since(self.first.unwrap_or(self.last));
        let row = |((model, class), group): (&(ModelId, Class), &Group)| {
            let name = self.names.get(model).map_or_else(|| model.to_string(), Clone::clone);
            Summary::of(name, Some(*class), group, length)
        };
        let mut rows: Vec<Summary> = self.groups.iter().map(row).collect();
        let mut all = Group::default();
        for group in self.groups.values() {
            for (end, count) in &group.ends {
                *all.ends.entry(*end).or_default() += count;
            }
            all.latencies.extend(&group.latencies);
            all.rows += group.rows;
        }
        let mut total = Summary::of("all".into(), None, &all, length);
        let capacity = length.ns().saturating_mul(partitions as u64).max(1);
        let whole = (self.units > 0).then(|| u128::from(length.ns()) * u128::from(self.units));
        total.utilisation = Some(match whole {
            Some(whole) => self.unit_busy as f64 / whole.max(1) as f64,
            None => self.busy.ns() as f64 / capacity as f64,
        });
        total.parks = Some(self.parks);
        total.loads = (self.loads > 0).then_some(self.loads);
        total.runs = Some(self.runs_begun);
        rows.push(total);
        rows
    }
}

/// One row of a report.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The model, or `all`.
    pub model: String,
    /// The class; none for `all`.
    pub class: Option<Class>,
    /// Requests that ended.
    pub requests: u64,
    /// Answered in time.
    pub done: u64,
    /// Deadline passed while running.
    pub late: u64,
    /// Refused before running.
    pub rejected: u64,
    /// Deadline passed while waiting.
    pub dropped: u64,
    /// Client left.
    pub cancelled: u64,
    /// Device or model failed.
    pub failed: u64,
    /// Median latency of answered requests, ms.
    pub p50_ms: Option<f64>,
    /// 95th percentile, ms.
    pub p95_ms: Option<f64>,
    /// 99th percentile, ms.
    pub p99_ms: Option<f64>,
    /// Slowest, ms.
    pub max_ms: Option<f64>,
    /// Answered requests per second, from the first arrival to the last end.
    pub throughput: f64,
    /// Answered rows per second.
    pub rows_per_s: f64,
    /// Share of device time spent in segments, of unit-time where a device is shared in parts: above 1 where runs overlap;
    /// on `all` only.
    pub utilisation: Option<f64>,
    /// Times a run was parked; on `all` only.
    pub parks: Option<u64>,
    /// Runs begun; on `all` only.
    pub runs: Option<u64>,
    /// Loads of weights onto a device; on `all` only, and only where there were any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loads: Option<u64>,
}

impl Summary {
    fn of(model: String, class: Option<Class>, group: &Group, length: Span) -> Self {
        let count = |end| group.ends.get(&end).copied().unwrap_or(0);
        let mut sorted = group.latencies.clone();
        sorted.sort_unstable();
        let quantile = |numerator: usize, denominator: usize| {
            // The nearest rank: the smallest latency that at least this share of requests do not exceed.
            let rank = (sorted.len() * numerator).div_ceil(denominator).max(1);
            sorted.get(rank - 1).map(|span| span.as_ms_f64())
        };
        let seconds = length.as_secs_f64().max(1e-9);
        Self {
            model,
            class,
            requests: group.ends.values().sum(),
            done: count(End::Done),
            late: count(End::Late),
            rejected: count(End::Rejected),
            dropped: count(End::Dropped),
            cancelled: count(End::Cancelled),
            failed: count(End::Failed),
            p50_ms: quantile(50, 100),
            p95_ms: quantile(95, 100),
            p99_ms: quantile(99, 100),
            max_ms: quantile(1, 1),
            throughput: count(End::Done) as f64 / seconds,
            rows_per_s: group.rows as f64 / seconds,
            utilisation: None,
            parks: None,
            runs: None,
            loads: None,
        }
    }
}
