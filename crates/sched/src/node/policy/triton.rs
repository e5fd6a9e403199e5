//! Triton's dynamic batcher with instances on streams of the whole device (as its documentation and core describe it):
//! a batch goes when it is full or its oldest request has waited long enough; priorities are strict; deadlines and shares
//! of the device are unknown to it.

use super::starts::{Sizes, Starts, units_of};
use crate::Policy;
use crate::node::{Decision, NodeWorld, Why};
use vocab::{ModelId, PartitionId, Span, Time};

/// Instances of each model share the whole device.
#[derive(Clone, Debug)]
pub struct Triton {
    instances: u32,
    next_full: Option<Time>,
}

impl Triton {
    /// With so many instances of each model; at least one.
    #[must_use]
    pub fn new(instances: u32) -> Self {
        Self { instances: instances.max(1), next_full: None }
    }
}

/// A partition of the whole device, or of as much as constraints leave `model`, that may take one more run of it, whoever
/// else runs.
pub(super) fn shared_stream(starts: &Starts<'_>, sizes: &Sizes, model: ModelId) -> Option<PartitionId> {
    let largest = sizes.largest(starts.world, model);
    let whole = |id: &PartitionId| units_of(starts.world, *id, sizes) == largest;
    starts.parts.idle().filter(whole).find(|id| starts.may_begin(model, *id))
}

impl Policy<NodeWorld> for Triton {
    fn name(&self) -> &'static str {
        "triton"
    }

    fn decide(&mut self, now: Time, world: &NodeWorld) -> Vec<Decision> {
        let sizes = Sizes::of(world);
        let mut starts = Starts::new(now, world);
        self.next_full = None;
        for spec in world.models() {
            let under_way = world.runs().filter(|run| run.model == spec.id).count();
            for _ in under_way..self.instances as usize {
                let oldest = world.queue(spec.id).by_arrival().next().and_then(|id| world.request(id));
                let Some(oldest) = oldest.filter(|_| starts.rows(spec.id) > 0) else { break };
                let due = oldest.arrival + spec.queue_delay;
                if starts.rows(spec.id) < spec.batch_max && spec.queue_delay > Span::ZERO && due > now {
                    self.next_full = self.next_full.into_iter().chain([due]).min();
                    break;
                }
                let Some(partition) = shared_stream(&starts, &sizes, spec.id) else { break };
                let (requests, _) = starts.batch(spec.id, spec.batch_max);
                starts.start(spec.id, partition, requests, Why::Oldest);
            }
        }
        starts.decisions
    }

    fn wake(&self, now: Time) -> Option<Time> {
        self.next_full.filter(|at| *at > now)
    }
}
