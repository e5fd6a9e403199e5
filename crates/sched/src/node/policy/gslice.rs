//! GSLICE (SoCC 2020, in our reading): every model has a part of its own and all run at once; a part grows while its
//! model misses promises and shrinks while that costs next to nothing; batches grow while they keep the promise.

use super::starts::{Sizes, Starts, promise, units_of};
use crate::Policy;
use crate::node::{Decision, NodeWorld, Why};
use std::collections::BTreeMap;
use vocab::{ModelId, PartitionId, RunId, Span, Time};

/// Parts are tuned so often.
const WINDOW: Span = Span::from_ms(500);

/// A smaller part is taken when a run takes at most so many hundredths longer on it.
const LOSS_PERCENT: u64 = 5;

/// Parts that tune themselves.
#[derive(Clone, Debug, Default)]
pub struct Gslice {
    shares: BTreeMap<ModelId, Tuned>,
    window: Option<Time>,
    under_way: Vec<(RunId, ModelId, Time)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Tuned {
    units: u32,
    misses: u32,
    runs: u32,
}

impl Gslice {
    fn learn(&mut self, now: Time, world: &NodeWorld) {
        let (over, under_way): (Vec<_>, Vec<_>) =
            self.under_way.iter().partition(|(run, _, _)| world.run(*run).is_none());
        self.under_way = under_way;
        for (_, model, due) in over {
            if let Some(tuned) = self.shares.get_mut(&model) {
                tuned.runs += 1;
                tuned.misses += u32::from(now > due);
            }
        }
    }

    /// Who misses promises grows into what is free, who would hardly notice shrinks.
    fn tune(&mut self, world: &NodeWorld, sizes: &Sizes) {
        let mut free = sizes.whole.saturating_sub(self.shares.values().map(|tuned| tuned.units).sum());
        for (model, tuned) in &mut self.shares {
            let at = sizes.units.partition_point(|size| *size < tuned.units);
            let waits = !world.queue(*model).is_empty();
            if tuned.misses > 0 || (tuned.runs == 0 && waits) {
                if let Some(next) = sizes.units.get(at + 1).filter(|next| **next - tuned.units <= free) {
                    free -= next - tuned.units;
                    tuned.units = *next;
                }
            } else if at > 0 && tuned.runs > 0 {
                let smaller = sizes.units[at - 1];
                let rows = batch(world, *model, sizes, tuned.units);
                let time = |units| world.costs(*model).of_on(rows, sizes.share(units));
                if time(smaller) <= time(tuned.units).scale(100 + LOSS_PERCENT, 100) {
                    free += tuned.units - smaller;
                    tuned.units = smaller;
                }
            }
            (tuned.misses, tuned.runs) = (0, 0);
        }
    }

    /// A model that comes gets an equal part, which the others make room for.
    fn admit(&mut self, world: &NodeWorld, sizes: &Sizes) {
        let models: Vec<ModelId> = world.models().map(|spec| spec.id).collect();
        let known: Vec<ModelId> = self.shares.keys().copied().collect();
        if models == known {
            return;
        }
        let equal = sizes.whole / u32::try_from(models.len().max(1)).unwrap_or(u32::MAX);
        let units = sizes.units.iter().rev().find(|size| **size <= equal).or(sizes.units.first());
        let units = units.copied().unwrap_or(sizes.whole);
        self.shares = models.into_iter().map(|model| (model, Tuned { units, ..Tuned::default() })).collect();
    }
}

/// The largest batch that is gathered and run within the promise on so many units.
fn batch(world: &NodeWorld, model: ModelId, sizes: &Sizes, units: u32) -> u32 {
    let (costs, within) = (world.costs(model), promise(world, model));
    let limit = super::batch::rows_max(world, model);
    let fits = |rows: &u32| costs.of_on(*rows, sizes.share(units)) * 2 <= within;
    costs.bucket_sizes().map(|rows| rows.min(limit)).filter(fits).max().unwrap_or(1)
}

impl Policy<NodeWorld> for Gslice {
    fn name(&self) -> &'static str {
        "gslice"
    }

    fn decide(&mut self, now: Time, world: &NodeWorld) -> Vec<Decision> {
        let sizes = Sizes::of(world);
        self.admit(world, &sizes);
        self.learn(now, world);
        if self.window.is_none_or(|at| now >= at + WINDOW) {
            if self.window.is_some() {
                self.tune(world, &sizes);
            }
            self.window = Some(now);
        }
        let mut starts = Starts::new(now, world);
        for spec in world.models() {
            if starts.rows(spec.id) == 0 || starts.is_active(spec.id) {
                continue;
            }
            let units = self.shares[&spec.id].units;
            // Its own size where that is free; a smaller part until then.
            let fits = |id: &PartitionId| {
                units_of(world, *id, &sizes) <= units
                    && starts.parts.is_alone(*id)
                    && starts.may_begin(spec.id, *id)
            };
            let best = starts.parts.idle().filter(fits).max_by_key(|id| {
                (
                    units_of(world, *id, &sizes),
                    u32::MAX - starts.parts.idle_beside(*id),
                    std::cmp::Reverse(*id),
                )
            });
            let Some(partition) = best else { continue };
            let (requests, _) = starts.batch(spec.id, batch(world, spec.id, &sizes, units));
            let first =
                requests.iter().filter_map(|id| world.request(*id)).map(|request| request.arrival).min();
            let due = first.unwrap_or(now) + promise(world, spec.id);
            let why = Why::OwnPart { units: units_of(world, partition, &sizes) };
            let run = starts.start(spec.id, partition, requests, why);
            self.under_way.push((run, spec.id, due));
        }
        starts.decisions
    }

    fn wake(&self, now: Time) -> Option<Time> {
        self.window.map(|at| at + WINDOW).filter(|at| *at > now && !self.under_way.is_empty())
    }
}
