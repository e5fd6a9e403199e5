//! What turns tell of the requests and runs in a window: read from a live journal and from a simulation alike.

use sched::node::{Act, BucketCost, Decision, Event, ModelSpec};
use sim::{End, Present, Speeds, Tally};
use std::collections::BTreeMap;
use vocab::{ModelId, PartitionId, RunId, Span, Time};

/// Turns in order.
pub(super) type Turns<'a> = Vec<(Time, &'a [Event], &'a [Decision])>;

/// What became of the requests that arrived within a window.
#[derive(Default)]
pub(super) struct Seen {
    /// Asked and answered in time, by model.
    pub(super) models: BTreeMap<String, (u64, u64)>,
    /// Latencies of those answered in time.
    pub(super) spans: Vec<Span>,
    /// Unit-time held, unit-seconds.
    pub(super) held: f64,
    /// Arrivals by model, ns from the window's begin, and how long after them the scheduler heard of them.
    pub(super) arrivals: BTreeMap<String, (Vec<u64>, Vec<u64>)>,
    /// Time that each run takes beyond its segments, in the order they ended.
    pub(super) beyond: Vec<Span>,
    pub(super) runs: u64,
    pub(super) rows: u64,
    /// By model and bucket: times of runs, of what they would have taken as the model was measured when it was loaded and
    /// as the simulator reckons what was beside them, in the order they ended.
    pub(super) factors: BTreeMap<(String, u32), Vec<f64>>,
    /// How many others were on the device when each of those began.
    pub(super) beside: BTreeMap<(String, u32), Vec<u32>>,
}

/// A run that has not ended.
struct Open {
    /// When it began or went on.
    begin: Time,
    /// What it is; its model by its place among those that are watched, as a scenario of them numbers it.
    present: Present,
    /// Others that were on the device when it began.
    beside: u32,
    /// The segment it is in, or goes on with.
    next: usize,
    /// Time of its segments so far, and what was measured for them.
    took: Span,
    nominal: Span,
    /// Its speed, summed over the time it was on the device, seconds; and that time.
    pace: f64,
    paced: f64,
    parked: bool,
}

/// Runs under way, as a window's turns tell them.
struct Watch<'a> {
    specs: &'a [ModelSpec],
    /// Units of each partition.
    units: &'a BTreeMap<PartitionId, u32>,
    /// Speeds beside others; none where factors are not asked for.
    speeds: Option<&'a Speeds>,
    open: BTreeMap<RunId, Open>,
    at: Time,
    seen: Seen,
}

/// What happened to requests that arrived `within` a window, in which all of them began and ended.
pub(super) fn observe(
    turns: &Turns<'_>,
    (specs, units): (&[ModelSpec], &BTreeMap<PartitionId, u32>),
    speeds: Option<&Speeds>,
    within: (Time, Time),
) -> Seen {
    let mut watch =
        Watch { specs, units, speeds, open: BTreeMap::new(), at: within.0, seen: Seen::default() };
    let mut tally = Tally::default();
    let name = |id| specs.iter().find(|spec: &&ModelSpec| spec.id == id).map(|spec| spec.name.clone());
    let begin = turns.partition_point(|turn| turn.0 < within.0);
    for (now, events, decisions) in turns[begin..].iter().take_while(|turn| turn.0 <= within.1) {
        for event in *events {
            if let Event::RequestArrived { request } = event
                && let Some(name) = name(request.model)
            {
                let (at, lags) = watch.seen.arrivals.entry(name).or_default();
                at.push(request.arrival.since(within.0).ns());
                lags.push(now.since(request.arrival).ns());
            }
            watch.event(*now, event);
        }
        for decision in *decisions {
            watch.decision(*now, decision);
        }
        for ended in tally.turn(*now, events, decisions) {
            let arrival = ended.request.arrival;
            let Some(name) = name(ended.request.model).filter(|_| within.0 <= arrival) else { continue };
            let (asked, done) = watch.seen.models.entry(name).or_default();
            *asked += 1;
            if ended.end == End::Done {
                *done += 1;
                watch.seen.spans.push(ended.at.since(arrival));
            }
        }
    }
    watch.seen
}

impl Watch<'_> {
    fn event(&mut self, now: Time, event: &Event) {
        match event {
            Event::RunFinished { run, segments } => {
                self.stops(now, *run, segments);
                if let Some(open) = self.open.remove(run) {
                    self.seen.runs += 1;
                    self.seen.rows += u64::from(open.present.rows);
                    self.factor(&open);
                }
            }
            Event::RunParked { run, segments, .. } => self.stops(now, *run, segments),
            Event::RunAbandoned { run } => {
                self.stops(now, *run, &[]);
                self.open.remove(run);
            }
            _ => {}
        }
    }

    fn decision(&mut self, now: Time, decision: &Decision) {
        match &decision.act {
            Act::Start { run, model, partition, requests, .. } => {
                self.reckon(now);
                let Some(place) = self.specs.iter().position(|spec| spec.id == *model) else { return };
                // Every request here is of one row, and models are few.
                let small = |count| u32::try_from(count).unwrap_or(u32::MAX);
                let (model, rows) = (ModelId(small(place)), small(requests.len()));
                let present = Present { model, partition: *partition, rows };
                let open = Open {
                    begin: now,
                    present,
                    beside: small(self.open.values().filter(|open| !open.parked).count()),
                    next: 0,
                    took: Span::ZERO,
                    nominal: Span::ZERO,
                    pace: 0.0,
                    paced: 0.0,
                    parked: false,
                };
                self.open.insert(*run, open);
            }
            Act::Move { run, partition } => {
                if let Some(open) = self.open.get_mut(run) {
                    open.present.partition = *partition;
                }
            }
            Act::Resume { run } => {
                self.reckon(now);
                if let Some(open) = self.open.get_mut(run) {
                    (open.begin, open.parked) = (now, false);
                }
            }
            _ => {}
        }
    }

    /// A run leaves the device after these segments.
    fn stops(&mut self, now: Time, run: RunId, segments: &[Span]) {
        self.reckon(now);
        let bucket = self.open.get(&run).and_then(|open| self.bucket(open));
        let measured: Option<Vec<Span>> = bucket.map(|bucket| bucket.segments.clone());
        let Some(open) = self.open.get_mut(&run).filter(|open| !open.parked) else { return };
        let (whole, took) = (now.since(open.begin), segments.iter().copied().sum());
        let units = self.units.get(&open.present.partition).copied().unwrap_or(0);
        self.seen.held += whole.as_secs_f64() * f64::from(units);
        self.seen.beyond.push(whole - took);
        let own = measured.iter().flatten().skip(open.next).take(segments.len());
        open.nominal += own.copied().sum();
        open.took += took;
        open.next += segments.len();
        open.parked = true;
    }

    /// What a run's model was measured to cost for its rows where it runs.
    fn bucket(&self, open: &Open) -> Option<&BucketCost> {
        let spec = self.specs.get(open.present.model.index())?;
        let units = self.units.get(&open.present.partition)?;
        let part = spec.parts.parts.iter().find(|part| part.units == *units);
        let costs = part.map_or(&spec.costs, |part| &part.costs);
        costs.iter().find(|cost| cost.rows >= open.present.rows)
    }

    /// Sums everyone's speed up to `now`.
    fn reckon(&mut self, now: Time) {
        let passed = now.since(self.at.min(now)).as_secs_f64();
        self.at = now;
        let Some(speeds) = self.speeds.filter(|_| passed > 0.0) else { return };
        let there: Vec<Present> =
            self.open.values().filter(|open| !open.parked).map(|open| open.present).collect();
        for open in self.open.values_mut().filter(|open| !open.parked) {
            open.pace += speeds.rate(open.present, &there) * passed;
            open.paced += passed;
        }
    }

    fn factor(&mut self, open: &Open) {
        let Some(bucket) = self.bucket(open).map(|bucket| bucket.rows) else { return };
        let Some(spec) = self.specs.get(open.present.model.index()) else { return };
        if open.paced > 0.0 && open.nominal > Span::ZERO {
            let alone = open.took.as_secs_f64() * open.pace / open.paced;
            let factor = alone / open.nominal.as_secs_f64();
            let bucket = (spec.name.clone(), bucket);
            self.seen.factors.entry(bucket.clone()).or_default().push(factor);
            self.seen.beside.entry(bucket).or_default().push(open.beside);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sched::node::policy::Choice;
    use sim::{BatchEntry, ModelEntry, PartEntry, Scenario, Simulation, SpaceEntry};

    #[test]
    fn factors_leave_out_what_neighbours_did() {
        // Two runs at once on all units: each takes twice as long, a tenth more than measured.
        let batch = |us| BatchEntry { rows: 1, segments_us: vec![us], ..BatchEntry::default() };
        let model = |us| ModelEntry { name: "a".into(), batches: vec![batch(us)], ..ModelEntry::default() };
        let scenario = |us| Scenario {
            space: Some(SpaceEntry {
                units: 4,
                overlap: 2,
                grid: None,
                parts: vec![PartEntry { first: Some(0), units: 4, count: 2 }],
            }),
            models: vec![model(us)],
            loads: vec![super::super::super::load("a", sim::Arrivals::at(vec![0, 0]))],
            duration_ms: 1_000,
            ..Scenario::default()
        };
        let mut turns = Vec::new();
        let choice = Choice::named("triton").unwrap();
        let real = scenario(11_000);
        Simulation::new(&real, &choice)
            .run(|now, events, decisions| {
                turns.push((now, events.to_vec(), decisions.to_vec()));
                Ok(())
            })
            .unwrap();
        let turns: Turns<'_> = turns.iter().map(|(now, e, d)| (*now, e.as_slice(), d.as_slice())).collect();
        let believed = scenario(10_000);
        let specs = believed.specs();
        let units = BTreeMap::from([(PartitionId(0), 4), (PartitionId(1), 4)]);
        let end = turns.last().unwrap().0;
        let seen = observe(&turns, (&specs, &units), Some(&Speeds::of(&believed)), (Time::ZERO, end));
        assert_eq!(seen.models["a"], (2, 2));
        assert_eq!(seen.runs, 2);
        let factors = &seen.factors[&("a".to_owned(), 1)];
        assert!(factors.iter().all(|factor| (factor - 1.1).abs() < 0.01), "{factors:?}");
    }
}
