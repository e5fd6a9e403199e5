//! Temporal sharing: one model after the other has the whole device, with the largest batch that takes at most half of
//! its promise. Nothing is divided and nothing is refused: the default of a GPU, and D-STACK's first rival.

use super::starts::{Sizes, Starts, promise, units_of};
use crate::Policy;
use crate::node::{Decision, NodeWorld, Why};
use vocab::{ModelId, Time};

/// Round robin of whole batches on the whole device.
#[derive(Clone, Debug)]
pub struct Temporal {
    latest: ModelId,
}

impl Default for Temporal {
    fn default() -> Self {
        Self { latest: ModelId(u32::MAX) }
    }
}

/// The largest batch that the whole device finishes within half of the promise; at least one row.
pub(super) fn half_promise_rows(world: &NodeWorld, model: ModelId) -> u32 {
    let half = promise(world, model).scale(1, 2);
    let costs = world.costs(model);
    let limit = super::batch::rows_max(world, model);
    let fits = costs.bucket_sizes().map(|rows| rows.min(limit)).filter(|rows| costs.of(*rows) <= half).max();
    fits.unwrap_or(1)
}

impl Policy<NodeWorld> for Temporal {
    fn name(&self) -> &'static str {
        "temporal"
    }

    fn decide(&mut self, now: Time, world: &NodeWorld) -> Vec<Decision> {
        let sizes = Sizes::of(world);
        let mut starts = Starts::new(now, world);
        for partition in world.idle() {
            if !starts.parts.is_empty(partition) {
                continue;
            }
            let units = units_of(world, partition, &sizes);
            let ready = |model: &ModelId| {
                starts.rows(*model) > 0
                    && units == sizes.largest(world, *model)
                    && starts.may_begin(*model, partition)
            };
            let models = || world.models().map(|spec| spec.id);
            let after = models().filter(|id| *id > self.latest);
            let before = models().filter(|id| *id <= self.latest);
            let Some(model) = after.chain(before).find(ready) else { continue };
            self.latest = model;
            let (requests, _) = starts.batch(model, half_promise_rows(world, model));
            starts.start(model, partition, requests, Why::RoundRobin);
        }
        starts.decisions
    }

    fn wake(&self, _now: Time) -> Option<Time> {
        None
    }
}
