//! Round robin between models, each for a time slice: what a GPU's own scheduler does between processes, the baseline.

use super::batch::{fill, rows_max};
use super::parts::Parts;
use super::residency::Rooms;
use crate::Policy;
use crate::node::{Act, Decision, NodeWorld, Run, RunState, Why, Window};
use vocab::{ModelId, PartitionId, RunId, Span, Time};

/// Round robin between models.
#[derive(Clone, Debug)]
pub struct TimeSlice {
    slice: Span,
    latest: ModelId,
    next_end: Option<Time>,
}

impl TimeSlice {
    /// Each model runs for `slice` while others wait.
    #[must_use]
    pub const fn new(slice: Span) -> Self {
        Self { slice, latest: ModelId(u32::MAX), next_end: None }
    }

    /// The next model after the latest that has something for `partition`: a parked run there, or waiting requests and
    /// room for its weights.
    fn next_model(
        &self,
        world: &NodeWorld,
        (rooms, parts): (&Rooms<'_>, &Parts<'_>),
        partition: PartitionId,
        taken: &[ModelId],
    ) -> Option<ModelId> {
        let ready = |model: &ModelId| {
            !taken.contains(model)
                && parts.fits(*model, partition)
                && (parked(world, *model, partition).is_some()
                    || (!world.queue(*model).is_empty()
                        && !in_progress(world, *model)
                        && rooms.way(*model, partition).is_some()))
        };
        let after = world.models().map(|spec| spec.id).filter(|id| *id > self.latest);
        let before = world.models().map(|spec| spec.id).filter(|id| *id <= self.latest);
        after.chain(before).find(ready)
    }
}

impl Policy<NodeWorld> for TimeSlice {
    fn name(&self) -> &'static str {
        "timeslice"
    }

    fn decide(&mut self, now: Time, world: &NodeWorld) -> Vec<Decision> {
        let mut decisions = Vec::new();
        let mut taken = Vec::new();
        let mut run = world.next_run();
        let (mut rooms, mut parts) = (Rooms::new(world), Parts::new(world));
        for partition in world.idle() {
            let Some(model) = self.next_model(world, (&rooms, &parts), partition, &taken) else { continue };
            taken.push(model);
            parts.take(model, partition);
            self.latest = model;
            rooms.keep(model, partition);
            let act = if let Some(parked) = parked(world, model, partition) {
                Act::Resume { run: parked.id }
            } else {
                let requests = fill(world, world.queue(model).by_arrival(), rows_max(world, model)).requests;
                let way = rooms.way(model, partition).expect("the next model has room");
                rooms.take(model, &way, Why::NeededBy { request: requests[0] }, &mut decisions);
                let start = Act::Start { run, model, partition, requests, window: Window::from(now) };
                run = RunId(run.0 + 1);
                start
            };
            decisions.push(Decision { act, why: Why::RoundRobin });
        }
        let ends = world.partitions().filter_map(|(_, holder)| slice_end(holder?, self.slice));
        self.next_end = ends.filter(|end| *end > now).min();
        for (partition, holder) in world.partitions() {
            let Some(holder) = holder.filter(|run| slice_end(run, self.slice).is_some_and(|end| end <= now))
            else {
                continue;
            };
            let others = world.models().map(|spec| spec.id).any(|model| {
                model != holder.model
                    && (parked(world, model, partition).is_some()
                        || (!world.queue(model).is_empty()
                            && !in_progress(world, model)
                            && rooms.fits_beside_runs(model, partition)))
            });
            if others {
                let why = Why::SliceUsed { slice: self.slice };
                decisions.push(Decision { act: Act::Park { run: holder.id }, why });
            }
        }
        decisions
    }

    fn wake(&self, now: Time) -> Option<Time> {
        self.next_end.filter(|end| *end > now)
    }
}

fn slice_end(run: &Run, slice: Span) -> Option<Time> {
    match run.state {
        RunState::Running { since } => Some(since + slice),
        _ => None,
    }
}

fn parked(world: &NodeWorld, model: ModelId, partition: PartitionId) -> Option<&Run> {
    world.parked().find(|run| run.model == model && run.partition == partition)
}

/// Whether `model` has a run already: a model is one process here, and has one batch at a time.
fn in_progress(world: &NodeWorld, model: ModelId) -> bool {
    world.runs().any(|run| run.model == model)
}
