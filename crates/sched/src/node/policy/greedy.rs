//! Two greedy rivals of D-STACK, as its evaluation names them (in our reading): every idle unit goes at once to the model
//! that makes most rows of it, or to the one that was served least.

use super::starts::{Point, Sizes, Starts, optimum, units_of};
use crate::Policy;
use crate::node::{Decision, NodeWorld, Why};
use std::collections::BTreeMap;
use vocab::{ModelId, PartitionId, Time};

/// Most rows a unit and second first.
#[derive(Clone, Debug, Default)]
pub struct MaxThroughput;

/// The model with the least unit-time so far first.
#[derive(Clone, Debug, Default)]
pub struct MaxMin {
    served: BTreeMap<ModelId, u128>,
}

/// What `model` would run now: as many rows as wait, at the size of part that suits them; where that is free.
fn run_now(starts: &Starts<'_>, sizes: &Sizes, model: ModelId) -> Option<(Point, PartitionId)> {
    let world = starts.world;
    let best = optimum(starts.now, world, model, sizes);
    let (_, rows) = starts.batch_until(model, best.rows, starts.now + best.time);
    if rows == 0 {
        return None;
    }
    let rows = world.costs(model).bucket_rows(rows);
    let fits = |id: &PartitionId| {
        units_of(world, *id, sizes) == best.units
            && starts.parts.is_alone(*id)
            && starts.may_begin(model, *id)
    };
    let partition = starts.parts.idle().filter(fits).min_by_key(|id| (starts.parts.idle_beside(*id), *id))?;
    let time = world.costs(model).of_on(rows, sizes.share(best.units));
    Some((Point { rows, units: best.units, time }, partition))
}

fn candidates(starts: &Starts<'_>, sizes: &Sizes) -> Vec<(ModelId, Point, PartitionId)> {
    let models = starts.world.models().map(|spec| spec.id).filter(|model| starts.rows(*model) > 0);
    models.filter_map(|model| run_now(starts, sizes, model).map(|(point, at)| (model, point, at))).collect()
}

impl Policy<NodeWorld> for MaxThroughput {
    fn name(&self) -> &'static str {
        "maxthroughput"
    }

    fn decide(&mut self, now: Time, world: &NodeWorld) -> Vec<Decision> {
        let sizes = Sizes::of(world);
        let mut starts = Starts::new(now, world);
        loop {
            let all = candidates(&starts, &sizes);
            let best = all.into_iter().max_by(|a, b| a.1.rate().total_cmp(&b.1.rate()).then(b.0.cmp(&a.0)));
            let Some((model, point, partition)) = best else { return starts.decisions };
            let (requests, _) = starts.batch_until(model, point.rows, now + point.time);
            starts.start(model, partition, requests, Why::MostRows { units: point.units });
        }
    }

    fn wake(&self, _now: Time) -> Option<Time> {
        None
    }
}

impl Policy<NodeWorld> for MaxMin {
    fn name(&self) -> &'static str {
        "maxmin"
    }

    fn decide(&mut self, now: Time, world: &NodeWorld) -> Vec<Decision> {
        let sizes = Sizes::of(world);
        let mut starts = Starts::new(now, world);
        loop {
            let score = |model: ModelId| self.served.get(&model).copied().unwrap_or(0);
            let all = candidates(&starts, &sizes);
            let Some((model, point, partition)) = all.into_iter().min_by_key(|(id, _, _)| (score(*id), *id))
            else {
                return starts.decisions;
            };
            let (requests, _) = starts.batch_until(model, point.rows, now + point.time);
            starts.start(model, partition, requests, Why::Idle { units: point.units });
            *self.served.entry(model).or_default() += u128::from(point.time.ns()) * u128::from(point.units);
        }
    }

    fn wake(&self, _now: Time) -> Option<Time> {
        None
    }
}
