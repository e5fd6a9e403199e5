//! Two greedy rivals of D-STACK, as its evaluation names them (in our reading): every idle unit goes at once to the model
//! that makes most rows of it, or to the one that was served least.

use super::starts::{Point, Sizes, Starts, optimum, units_of};
use crate::Policy;
use crate::node::{Decision, NodeWorld, Why};
use std::collections::BTreeMap;
use vocab::{ModelId, PartitionId, RequestId, Time};

/// Most rows a unit and second first.
#[derive(Clone, Debug, Default)]
pub struct MaxThroughput;

/// The model with the least unit-time so far first.
#[derive(Clone, Debug, Default)]
pub struct MaxMin {
    served: BTreeMap<ModelId, u128>,
}

/// A run that could begin now.
#[derive(Clone, Debug)]
struct Candidate {
    model: ModelId,
    point: Point,
    partition: PartitionId,
    requests: Vec<RequestId>,
}

/// What `model` would run now: as many rows as wait, at the size of part that suits them; where that is free.
fn run_now(starts: &Starts<'_>, sizes: &Sizes, model: ModelId) -> Option<Candidate> {
    let world = starts.world;
    let best = optimum(starts.now, world, model, sizes);
    let (requests, rows) = starts.batch_until(model, best.rows, starts.now + best.time);
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
    let point = Point::of(world, model, sizes, (rows, best.units));
    Some(Candidate { model, point, partition, requests })
}

fn candidates(starts: &Starts<'_>, sizes: &Sizes) -> Vec<Candidate> {
    let models = starts.world.models().map(|spec| spec.id).filter(|model| starts.rows(*model) > 0);
    models.filter_map(|model| run_now(starts, sizes, model)).collect()
}

impl Policy<NodeWorld> for MaxThroughput {
    fn name(&self) -> &'static str {
        "maxthroughput"
    }

    fn decide(&mut self, now: Time, world: &NodeWorld) -> Vec<Decision> {
        let sizes = Sizes::of(world);
        let mut starts = Starts::new(now, world);
        loop {
            let all = candidates(&starts, &sizes).into_iter();
            let best =
                all.max_by(|a, b| a.point.rate().total_cmp(&b.point.rate()).then(b.model.cmp(&a.model)));
            let Some(best) = best else { return starts.decisions };
            let why = Why::MostRows { units: best.point.units };
            starts.start(best.model, best.partition, best.requests, why);
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
            let all = candidates(&starts, &sizes).into_iter();
            let Some(least) = all.min_by_key(|one| (score(one.model), one.model)) else {
                return starts.decisions;
            };
            let Point { units, time, .. } = least.point;
            starts.start(least.model, least.partition, least.requests, Why::Idle { units });
            *self.served.entry(least.model).or_default() += u128::from(time.ns()) * u128::from(units);
        }
    }

    fn wake(&self, _now: Time) -> Option<Time> {
        None
    }
}
