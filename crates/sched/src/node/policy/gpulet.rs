//! Gpulets (ATC 2022, in our reading): the device is one part or two, in a few sizes; each model is given to a part, whose
//! models take turns. The division is chosen anew from the rates seen.

use super::nexus::drop_heads;
use super::starts::{Sizes, Starts, promise, units_of};
use super::triton::shared_stream;
use crate::Policy;
use crate::node::{Decision, NodeWorld, Why};
use vocab::{ModelId, PartitionId, Span, Time};

/// Divisions of a device, in percent.
const DIVISIONS: [&[u32]; 4] = [&[100], &[50, 50], &[40, 60], &[20, 80]];

/// Most rows of a batch.
const ROWS_MAX: u32 = 32;

/// The division is chosen anew so often.
const EPOCH: Span = Span::from_ms(1_000);

/// Parts of a few sizes, each shared in turns.
#[derive(Clone, Debug, Default)]
pub struct Gpulet {
    parts: Vec<Gpu>,
    /// Models that constraints keep from every part of the division.
    unplaced: Vec<ModelId>,
    planned: Option<Time>,
    known: usize,
}

#[derive(Clone, Debug)]
struct Gpu {
    partition: PartitionId,
    /// Its models, each with its batch.
    models: Vec<(ModelId, u32)>,
    /// Part of the time that its models need, as far as it is known.
    load: f64,
}

/// The largest batch of `model` that takes at most half its promise on so many units, and the part of all time that its
/// rate needs then.
fn need(now: Time, world: &NodeWorld, model: ModelId, share: Option<u32>) -> (u32, f64) {
    let costs = world.costs(model);
    let limit = super::batch::rows_max(world, model).min(ROWS_MAX);
    let half = promise(world, model).scale(1, 2);
    let sizes = costs.bucket_sizes().map(|rows| rows.min(limit));
    let Some(rows) = sizes.filter(|rows| costs.of_on(*rows, share) <= half).max() else {
        return (1, f64::INFINITY);
    };
    let a_row = costs.of_on(rows, share).as_secs_f64() / f64::from(rows);
    (rows, world.row_gap(now, model).map_or(0.0, |gap| a_row / gap.as_secs_f64().max(1e-9)))
}

/// Disjoint partitions of these percentages of the device.
fn located(world: &NodeWorld, sizes: &Sizes, percent: &[u32]) -> Option<Vec<PartitionId>> {
    let mut found: Vec<PartitionId> = Vec::new();
    for part in percent {
        let wanted = u64::from(sizes.whole) * u64::from(*part) / 100;
        let units = sizes.units.iter().rev().find(|units| u64::from(**units) <= wanted)?;
        let free = |id: &PartitionId| {
            units_of(world, *id, sizes) == *units
                && found.iter().all(|other| world.space().are_disjoint(*id, *other))
        };
        found.push(world.partitions().map(|(id, _)| id).find(free)?);
    }
    Some(found)
}

impl Gpulet {
    fn plan(&mut self, now: Time, world: &NodeWorld, sizes: &Sizes) {
        let mut best: Option<(usize, f64, Vec<Gpu>, Vec<ModelId>)> = None;
        for percent in DIVISIONS {
            let Some(partitions) = located(world, sizes, percent) else { continue };
            let empty = |partition| Gpu { partition, models: Vec::new(), load: 0.0 };
            let mut parts: Vec<Gpu> = partitions.into_iter().map(empty).collect();
            let whole = |model: ModelId| need(now, world, model, None).1;
            let mut models: Vec<ModelId> = world.models().map(|spec| spec.id).collect();
            models.sort_by(|a, b| whole(*b).total_cmp(&whole(*a)).then(a.cmp(b)));
            let mut unplaced = Vec::new();
            for model in models {
                let after = |part: &Gpu| {
                    let (rows, load) = need(now, world, model, world.space().share(part.partition));
                    (part.load + load, rows)
                };
                let open = |at: &usize| world.space().is_open(model, parts[*at].partition);
                let places = (0..parts.len()).filter(open);
                let place = places.min_by(|a, b| after(&parts[*a]).0.total_cmp(&after(&parts[*b]).0));
                let Some(place) = place else {
                    unplaced.push(model);
                    continue;
                };
                let (load, rows) = after(&parts[place]);
                parts[place].models.push((model, rows));
                parts[place].load = load;
            }
            let most = parts.iter().map(|part| part.load).fold(0.0, f64::max);
            let worse = |(left, least, ..): &(usize, f64, Vec<Gpu>, Vec<ModelId>)| {
                (unplaced.len(), most) < (*left, *least)
            };
            if best.as_ref().is_none_or(worse) {
                best = Some((unplaced.len(), most, parts, unplaced));
            }
        }
        if let Some((_, _, parts, unplaced)) = best {
            (self.parts, self.unplaced) = (parts, unplaced);
        }
    }
}

impl Policy<NodeWorld> for Gpulet {
    fn name(&self) -> &'static str {
        "gpulet"
    }

    fn decide(&mut self, now: Time, world: &NodeWorld) -> Vec<Decision> {
        let sizes = Sizes::of(world);
        let models = world.models().count();
        if self.planned.is_none_or(|at| now >= at + EPOCH) || self.known != models {
            self.plan(now, world, &sizes);
            (self.planned, self.known) = (Some(now), models);
        }
        let mut starts = Starts::new(now, world);
        for part in &self.parts {
            let share = world.space().share(part.partition);
            for (model, rows) in &part.models {
                drop_heads(&mut starts, *model, *rows, share);
            }
            let holder = world.partitions().find(|(id, _)| *id == part.partition);
            if holder.is_none_or(|(_, run)| run.is_some()) || !starts.parts.is_alone(part.partition) {
                continue;
            }
            let ready = part.models.iter().filter(|(model, _)| starts.may_begin(*model, part.partition));
            let urgent =
                ready.filter_map(|(model, rows)| Some((starts.head_deadline(*model)?, *model, *rows)));
            let Some((_, model, rows)) = urgent.min() else { continue };
            let (requests, _) = starts.batch(model, rows);
            let units = units_of(world, part.partition, &sizes);
            starts.start(model, part.partition, requests, Why::OwnPart { units });
        }
        for model in &self.unplaced {
            let Some(partition) = shared_stream(&starts, &sizes, *model) else { continue };
            if starts.rows(*model) > 0 && starts.parts.is_empty(partition) {
                let limit = super::batch::rows_max(world, *model).min(ROWS_MAX);
                let (requests, _) = starts.batch(*model, limit);
                starts.start(*model, partition, requests, Why::Oldest);
            }
        }
        starts.decisions
    }

    fn wake(&self, _now: Time) -> Option<Time> {
        None
    }
}
