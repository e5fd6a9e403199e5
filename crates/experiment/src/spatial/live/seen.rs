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
    /// as the simulator reckons what was beside them, in the order they ended; and how many others were on the device when
    /// each began.
    pub(super) factors: BTreeMap<(String, u32), Vec<(f64, u32)>>,
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
    /// What was measured for its segments so far.
    nominal: Span,
    parked: bool,
}

/// A stretch of time in which a run computed.
struct Stint {
    run: RunId,
    present: Present,
    from: Time,
    to: Time,
    /// Time of its segments.
    took: Span,
}

/// A run that ended.
struct Ended {
    run: RunId,
    /// Its model and bucket.
    bucket: (String, u32),
    /// What was measured for its segments.
    nominal: Span,
    beside: u32,
}

/// Runs under way, as a window's turns tell them.
struct Watch<'a> {
    specs: &'a [ModelSpec],
    /// Units of each partition.
    units: &'a BTreeMap<PartitionId, u32>,
    open: BTreeMap<RunId, Open>,
    stints: Vec<Stint>,
    ended: Vec<Ended>,
    seen: Seen,
}

/// What happened to requests that arrived `within` a window, in which all of them began and ended.
pub(super) fn observe(
    turns: &Turns<'_>,
    (specs, units): (&[ModelSpec], &BTreeMap<PartitionId, u32>),
    speeds: Option<&Speeds>,
    within: (Time, Time),
) -> Seen {
    let (open, stints, ended) = (BTreeMap::new(), Vec::new(), Vec::new());
    let mut watch = Watch { specs, units, open, stints, ended, seen: Seen::default() };
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
    if let Some(speeds) = speeds {
        watch.reckon(speeds);
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
                    self.ends(*run, &open);
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
                    nominal: Span::ZERO,
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
                if let Some(open) = self.open.get_mut(run) {
                    (open.begin, open.parked) = (now, false);
                }
            }
            _ => {}
        }
    }

    /// A run leaves the device after these segments.
    fn stops(&mut self, now: Time, run: RunId, segments: &[Span]) {
        let bucket = self.open.get(&run).and_then(|open| self.bucket(open));
        let measured: Option<Vec<Span>> = bucket.map(|bucket| bucket.segments.clone());
        let Some(open) = self.open.get_mut(&run).filter(|open| !open.parked) else { return };
        let (whole, took): (Span, Span) = (now.since(open.begin), segments.iter().copied().sum());
        let units = self.units.get(&open.present.partition).copied().unwrap_or(0);
        self.seen.held += whole.as_secs_f64() * f64::from(units);
        self.seen.beyond.push(whole - took);
        let own = measured.iter().flatten().skip(open.next).take(segments.len());
        open.nominal += own.copied().sum();
        open.next += segments.len();
        open.parked = true;
        // It computes in the middle of the time it holds its part.
        let (from, to) = (open.begin + (whole - took).scale(1, 2), now.before((whole - took).scale(1, 2)));
        self.stints.push(Stint { run, present: open.present, from, to, took });
    }

    /// What a run's model was measured to cost for its rows where it runs.
    fn bucket(&self, open: &Open) -> Option<&BucketCost> {
        let spec = self.specs.get(open.present.model.index())?;
        let units = self.units.get(&open.present.partition)?;
        let part = spec.parts.parts.iter().find(|part| part.units == *units);
        let costs = part.map_or(&spec.costs, |part| &part.costs);
        costs.iter().find(|cost| cost.rows >= open.present.rows)
    }

    /// A run is over; what it is known by is kept.
    fn ends(&mut self, run: RunId, open: &Open) {
        let Some(bucket) = self.bucket(open).map(|bucket| bucket.rows) else { return };
        let Some(spec) = self.specs.get(open.present.model.index()) else { return };
        let bucket = (spec.name.clone(), bucket);
        self.ended.push(Ended { run, bucket, nominal: open.nominal, beside: open.beside });
    }

    /// How far runs were off what was measured for them and what `speeds` explain.
    fn reckon(&mut self, speeds: &Speeds) {
        let mut alone: BTreeMap<RunId, f64> = BTreeMap::new();
        for (stint, pace) in self.stints.iter().zip(paces(&self.stints, speeds)) {
            *alone.entry(stint.run).or_default() += stint.took.as_secs_f64() * pace;
        }
        for ended in std::mem::take(&mut self.ended) {
            let Some(alone) = alone.get(&ended.run).filter(|_| ended.nominal > Span::ZERO) else { continue };
            let factor = alone / ended.nominal.as_secs_f64();
            if factor > 0.0 {
                self.seen.factors.entry(ended.bucket).or_default().push((factor, ended.beside));
            }
        }
    }
}

/// The mean speed of each stint beside those it meets, as `speeds` have it.
fn paces(stints: &[Stint], speeds: &Speeds) -> Vec<f64> {
    let mut turns: Vec<(Time, bool, usize)> = Vec::with_capacity(2 * stints.len());
    for (place, stint) in stints.iter().enumerate().filter(|(_, stint)| stint.from < stint.to) {
        turns.extend([(stint.to, false, place), (stint.from, true, place)]);
    }
    // Who ends goes before who begins at the same time.
    turns.sort_unstable();
    let (mut there, mut at): (Vec<usize>, Time) = (Vec::new(), Time::ZERO);
    let mut sums = vec![0.0; stints.len()];
    for (now, begins, place) in turns {
        let passed = now.since(at).as_secs_f64();
        let present: Vec<Present> = there.iter().map(|place| stints[*place].present).collect();
        for place in there.iter().filter(|_| passed > 0.0) {
            sums[*place] += speeds.rate(stints[*place].present, &present) * passed;
        }
        at = now;
        if begins {
            there.push(place);
        } else {
            there.retain(|other| *other != place);
        }
    }
    let mean = |(stint, sum): (&Stint, f64)| sum / stint.to.since(stint.from).as_secs_f64().max(1e-12);
    stints.iter().zip(sums).map(mean).collect()
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
        let scenario = |us, at_ns: &[u64]| Scenario {
            space: Some(SpaceEntry {
                units: 4,
                overlap: 2,
                grid: None,
                parts: vec![PartEntry { first: Some(0), units: 4, count: 2 }],
            }),
            models: vec![model(us)],
            loads: vec![super::super::super::load("a", sim::Arrivals::at(at_ns.to_vec()))],
            duration_ms: 1_000,
            ..Scenario::default()
        };
        let believed = scenario(10_000, &[]);
        let choice = Choice::named("triton").unwrap();
        let factors = |real: &Scenario| {
            let mut turns = Vec::new();
            Simulation::new(real, &choice)
                .run(|now, events, decisions| {
                    turns.push((now, events.to_vec(), decisions.to_vec()));
                    Ok(())
                })
                .unwrap();
            let turns: Turns<'_> =
                turns.iter().map(|(now, e, d)| (*now, e.as_slice(), d.as_slice())).collect();
            let specs = believed.specs();
            let units = BTreeMap::from([(PartitionId(0), 4), (PartitionId(1), 4)]);
            let end = turns.last().unwrap().0;
            let seen = observe(&turns, (&specs, &units), Some(&Speeds::of(&believed)), (Time::ZERO, end));
            assert_eq!(seen.models["a"], (2, 2));
            assert_eq!(seen.runs, 2);
            seen.factors[&("a".to_owned(), 1)].clone()
        };
        let right = |found: Vec<(f64, u32)>| found.iter().all(|(factor, _)| (factor - 1.1).abs() < 0.01);
        assert!(right(factors(&scenario(11_000, &[0, 0]))));
        // One that is being launched is in nobody's way yet.
        let late = Scenario { launch_us: 4_000, ..scenario(11_000, &[0, 8_000_000]) };
        assert!(right(factors(&late)), "{:?}", factors(&late));
    }
}
