//! Clipper (NSDI 2017, in our reading): a container for each model, all on the whole device; the batch of each grows by one
//! row when its answers were in time and shrinks by a tenth when they were not.

use super::starts::{Sizes, Starts, promise};
use super::triton::shared_stream;
use crate::Policy;
use crate::node::{Decision, NodeWorld, Why};
use std::collections::BTreeMap;
use vocab::{ModelId, RunId, Time};

/// Additive increase, multiplicative decrease of batches.
#[derive(Clone, Debug, Default)]
pub struct Clipper {
    batches: BTreeMap<ModelId, f64>,
    under_way: Vec<UnderWay>,
}

#[derive(Clone, Copy, Debug)]
struct UnderWay {
    run: RunId,
    model: ModelId,
    /// When its answers should be there.
    due: Time,
    /// Whether it was as full as it might be: only then a longer batch can be tried.
    full: bool,
}

impl Clipper {
    /// Learns from runs that ended since.
    fn learn(&mut self, now: Time, world: &NodeWorld) {
        let (over, under_way): (Vec<_>, Vec<_>) =
            self.under_way.iter().partition(|known| world.run(known.run).is_none());
        self.under_way = under_way;
        for UnderWay { model, due, full, .. } in over {
            let batch = self.batches.entry(model).or_insert(1.0);
            if now > due {
                *batch = (*batch * 0.9).max(1.0);
            } else if full {
                *batch += 1.0;
            }
        }
    }
}

impl Policy<NodeWorld> for Clipper {
    fn name(&self) -> &'static str {
        "clipper"
    }

    fn decide(&mut self, now: Time, world: &NodeWorld) -> Vec<Decision> {
        self.learn(now, world);
        let sizes = Sizes::of(world);
        let mut starts = Starts::new(now, world);
        for spec in world.models() {
            if starts.rows(spec.id) == 0 || starts.is_active(spec.id) {
                continue;
            }
            let Some(partition) = shared_stream(&starts, &sizes, spec.id) else { continue };
            let batch = self.batches.entry(spec.id).or_insert(1.0);
            *batch = batch.min(f64::from(spec.batch_max));
            let limit = (1..=spec.batch_max).rev().find(|rows| f64::from(*rows) <= *batch).unwrap_or(1);
            let (requests, rows) = starts.batch(spec.id, limit);
            let first =
                requests.iter().filter_map(|id| world.request(*id)).map(|request| request.arrival).min();
            let due = first.unwrap_or(now) + promise(world, spec.id);
            let run = starts.start(spec.id, partition, requests, Why::Oldest);
            self.under_way.push(UnderWay { run, model: spec.id, due, full: rows >= limit });
        }
        starts.decisions
    }

    fn wake(&self, _now: Time) -> Option<Time> {
        None
    }
}
