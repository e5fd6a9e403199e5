//! SGPRS (arXiv 2406.09425, in our reading): a pool of contexts made at start, each a part of the device with a few
//! streams. Runs are cut into stages with deadlines of their own; a stage that is ready is given to a context by when it
//! would end there, and a context's streams take its stages by level and deadline. Contexts may overlap.
//!
//! ```text
//! stage ready ──▶ an empty context that ends it in time, the smallest first ──▶ the context that ends it first
//! levels: last stage, stage whose predecessor was late, others; within one the earliest deadline first
//! ```

use super::starts::{Sizes, Starts, promise, units_of};
use crate::Policy;
use crate::node::{Decision, NodeWorld, Part, Run, RunState, Why};
use std::collections::BTreeMap;
use vocab::{ModelId, PartitionId, RequestId, RunId, Span, Time};

/// Deadlines of stages add up to so many hundredths of the request's.
const SLACK_PERCENT: u64 = 99;

/// Stages on a pool of contexts.
#[derive(Clone, Debug)]
pub struct Sgprs {
    stages: u32,
    /// Ready stages, and the context each was given to.
    ready: BTreeMap<Key, Stage>,
    /// The deadline of the stage that each run is in.
    due: BTreeMap<RunId, Time>,
    /// Ends of stages by model and rows.
    ends: BTreeMap<(ModelId, u32), Vec<u32>>,
}

/// A stage: the first of a request that has not begun, or the next of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Request(RequestId),
    Run(RunId),
}

#[derive(Clone, Copy, Debug)]
struct Stage {
    model: ModelId,
    number: u32,
    level: Level,
    due: Time,
    context: usize,
    /// Its time on that context.
    time: Span,
}

/// How pressing a stage is; the first goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Last,
    Delayed,
    Other,
}

/// A part of the device with its streams.
#[derive(Clone, Debug)]
pub(super) struct Context {
    pub(super) units: u32,
    pub(super) streams: Vec<PartitionId>,
}

/// Partitions over the same units are streams of one context. The smallest context comes first.
pub(super) fn contexts(world: &NodeWorld, sizes: &Sizes) -> Vec<Context> {
    let mut found: BTreeMap<(u32, Option<u32>, u16), Vec<PartitionId>> = BTreeMap::new();
    for (id, _) in world.partitions() {
        let units = units_of(world, id, sizes);
        let first = world.space().part(id).and_then(|Part { first, .. }| first);
        // Parts without a place and partitions of no device are contexts of their own.
        let own = if first.is_none() { id.0 } else { 0 };
        found.entry((units, first, own)).or_default().push(id);
    }
    found.into_iter().map(|((units, _, _), streams)| Context { units, streams }).collect()
}

/// Where stages end: so many stages of about equal time, as their first segments and the number of segments.
pub(super) fn stage_ends(world: &NodeWorld, model: ModelId, rows: u32, stages: u32) -> Vec<u32> {
    // As the profile has them: what is learned meanwhile must not move the end of a stage that runs.
    let spans = world.costs(model).profiled(rows, None);
    let segments = u32::try_from(spans.len()).unwrap_or(u32::MAX);
    let total: u128 = spans.iter().map(|span| u128::from(span.ns())).sum();
    let (mut ends, mut spent) = (Vec::new(), 0u128);
    for (segment, span) in (1..segments).zip(&spans) {
        spent += u128::from(span.ns());
        if spent * u128::from(stages.max(1)) >= total * (ends.len() as u128 + 1) {
            ends.push(segment);
        }
    }
    ends.push(segments);
    ends
}

impl Sgprs {
    /// With runs cut into so many stages.
    #[must_use]
    pub fn new(stages: u32) -> Self {
        let (ready, due, ends) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { stages: stages.max(1), ready, due, ends }
    }

    fn ends_of(&mut self, world: &NodeWorld, model: ModelId, rows: u32) -> Vec<u32> {
        let stages = self.stages;
        self.ends.entry((model, rows)).or_insert_with(|| stage_ends(world, model, rows, stages)).clone()
    }

    /// Stages that became ready since the last turn, oldest first.
    fn gather(&mut self, now: Time, world: &NodeWorld, contexts: &[Context], sizes: &Sizes) {
        self.due.retain(|run, _| world.run(*run).is_some());
        self.ready.retain(|key, _| match key {
            Key::Run(run) => world.run(*run).is_some_and(|run| matches!(run.state, RunState::Parked { .. })),
            Key::Request(request) => world.request(*request).is_some(),
        });
        let mut waiting: Vec<(RequestId, ModelId)> = Vec::new();
        for spec in world.models() {
            waiting.extend(world.queue(spec.id).by_arrival().map(|id| (id, spec.id)));
        }
        waiting.sort_unstable();
        for run in world.parked() {
            if self.ready.contains_key(&Key::Run(run.id)) {
                continue;
            }
            let late = self.due.get(&run.id).is_some_and(|due| now > *due);
            let (release, deadline) = terms(world, run);
            let known = (run.model, run.rows, run.next_segment, late);
            self.give(Key::Run(run.id), known, (release, deadline), now, world, (contexts, sizes));
        }
        for (id, model) in waiting {
            let (Some(request), false) = (world.request(id), self.ready.contains_key(&Key::Request(id)))
            else {
                continue;
            };
            let deadline = request.deadline.unwrap_or_else(|| request.arrival + promise(world, model));
            let known = (model, request.rows, 0, false);
            self.give(Key::Request(id), known, (request.arrival, deadline), now, world, (contexts, sizes));
        }
    }

    /// Time until a running run's stage is over.
    fn stage_left(&self, now: Time, world: &NodeWorld, run: &Run) -> Span {
        let ends = self.ends.get(&(run.model, run.rows));
        let end = ends.and_then(|ends| ends.iter().find(|end| run.next_segment < **end)).copied();
        let share = world.space().share(run.partition);
        let all = world.costs(run.model).span_of(run.rows, run.next_segment, end.unwrap_or(u32::MAX), share);
        run.running_since().map_or(all, |since| all - now.since(since))
    }

    /// Gives a ready stage to a context.
    fn give(
        &mut self,
        key: Key,
        (model, rows, segment, late): (ModelId, u32, u32, bool),
        (release, deadline): (Time, Time),
        now: Time,
        world: &NodeWorld,
        (contexts, sizes): (&[Context], &Sizes),
    ) {
        let costs = world.costs(model);
        let ends = self.ends_of(world, model, rows);
        let number = ends.iter().position(|end| segment < *end).unwrap_or(ends.len() - 1);
        let (last, end) = (number + 1 == ends.len(), ends[number]);
        // A stage has its part of the request's time, in the order of stages.
        let whole = costs.of(rows).ns().max(1);
        let before = costs.span_of(rows, 0, end, None).ns();
        let due = release + deadline.since(release).scale(SLACK_PERCENT, 100).scale(before.min(whole), whole);
        let level = if last {
            Level::Last
        } else if late {
            Level::Delayed
        } else {
            Level::Other
        };
        let time = |context: &Context| costs.span_of(rows, segment, end, sizes.share(context.units));
        // When it would end on each context, and whether nothing is there.
        let reckon = |(at, context): (usize, &Context)| {
            let queued = self.ready.values().filter(|stage| stage.context == at);
            let running = context.streams.iter().filter_map(|stream| world.holder(*stream));
            let (mut ahead, mut empty) = (Span::ZERO, true);
            for left in
                queued.map(|stage| stage.time).chain(running.map(|run| self.stage_left(now, world, run)))
            {
                ahead += left;
                empty = false;
            }
            let streams = u64::try_from(context.streams.len().max(1)).unwrap_or(u64::MAX);
            (now + ahead.scale(1, streams) + time(context), empty)
        };
        let reckoned: Vec<(Time, bool)> = contexts.iter().enumerate().map(reckon).collect();
        let empty = |at: &usize| reckoned[*at].1;
        let ends_at = |at: usize| reckoned[at].0;
        let open = |at: &usize| {
            let open =
                |stream: &PartitionId| reaches(world, key, *stream) && world.space().is_open(model, *stream);
            contexts[*at].streams.iter().any(open)
        };
        let all = (0..contexts.len()).filter(open);
        let in_time = all.clone().filter(empty).find(|at| ends_at(*at) < due);
        let first_empty = || all.clone().filter(empty).min_by_key(|at| (ends_at(*at), *at));
        let first = || all.clone().min_by_key(|at| (ends_at(*at), *at));
        let Some(context) = in_time.or_else(first_empty).or_else(first) else { return };
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        let time = time(&contexts[context]);
        self.ready.insert(key, Stage { model, number, level, due, context, time });
    }
}

/// Whether a stage can be on `partition`: a run stays on its device.
fn reaches(world: &NodeWorld, key: Key, partition: PartitionId) -> bool {
    let Key::Run(run) = key else { return true };
    world.run(run).is_some_and(|run| world.space().reaches(run.partition, partition))
}

/// Release and deadline of a run: those of its most pressing request.
fn terms(world: &NodeWorld, run: &Run) -> (Time, Time) {
    let deadline = run.deadline.unwrap_or_else(|| run.arrival + promise(world, run.model));
    (run.arrival, deadline)
}

impl Policy<NodeWorld> for Sgprs {
    fn name(&self) -> &'static str {
        "sgprs"
    }

    fn decide(&mut self, now: Time, world: &NodeWorld) -> Vec<Decision> {
        let sizes = Sizes::of(world);
        let contexts = contexts(world, &sizes);
        self.gather(now, world, &contexts, &sizes);
        let mut starts = Starts::new(now, world);
        for (at, context) in contexts.iter().enumerate() {
            let mut queue: Vec<(Level, Time, Key, ModelId, u32)> = self
                .ready
                .iter()
                .filter(|(_, stage)| stage.context == at)
                .map(|(key, stage)| (stage.level, stage.due, *key, stage.model, stage.number))
                .collect();
            queue.sort_unstable();
            for stream in &context.streams {
                if world.holder(*stream).is_some() {
                    continue;
                }
                let fits = |(_, _, key, model, _): &(Level, Time, Key, ModelId, u32)| {
                    reaches(world, *key, *stream) && starts.may_begin(*model, *stream)
                };
                let Some(place) = queue.iter().position(fits) else { continue };
                let (_, due, key, model, number) = queue.remove(place);
                let why = Why::Stage { stage: number, due };
                let (run, rows) = match key {
                    Key::Run(run) => {
                        starts.resume(run, *stream, &why);
                        (run, world.run(run).map_or(1, |run| run.rows))
                    }
                    Key::Request(request) => {
                        let rows = world.request(request).map_or(1, |request| request.rows);
                        (starts.start(model, *stream, vec![request], why.clone()), rows)
                    }
                };
                let ends = self.ends_of(world, model, rows);
                if let Some(end) = ends.get(number as usize) {
                    starts.until(model, run, *end, &why);
                }
                self.ready.remove(&key);
                self.due.insert(run, due);
            }
        }
        starts.decisions
    }

    fn wake(&self, _now: Time) -> Option<Time> {
        None
    }
}
