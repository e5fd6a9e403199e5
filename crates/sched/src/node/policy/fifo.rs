//! First come, first served: the model of the oldest request runs next, with as many of its requests as fit. A model
//! that is not on the device is loaded as a whole before it begins.

use super::batch::{fill, rows_max};
use super::parts::Parts;
use super::residency::Rooms;
use crate::Policy;
use crate::node::{Act, Decision, ModelSpec, NodeWorld, Why, Window};
use vocab::{ModelId, RequestId, RunId, Time};

/// First come, first served, no preemption.
#[derive(Clone, Debug)]
pub struct Fifo;

impl Policy<NodeWorld> for Fifo {
    fn name(&self) -> &'static str {
        "fifo"
    }

    fn decide(&mut self, now: Time, world: &NodeWorld) -> Vec<Decision> {
        if world.idle().next().is_none() {
            return Vec::new();
        }
        let mut parts = Parts::new(world);
        let head = |spec: &ModelSpec| Some((world.queue(spec.id).by_arrival().next()?, spec.id));
        let mut heads: Vec<(RequestId, ModelId)> = world.models().filter_map(head).collect();
        heads.sort_unstable();
        let mut rooms = Rooms::new(world);
        let (mut decisions, mut run) = (Vec::new(), world.next_run());
        for (request, model) in heads {
            let idle = parts.idle().filter(|partition| parts.fits(model, *partition));
            let Some(partition) = rooms.choose(model, idle) else { break };
            parts.take(model, partition);
            // Its turn has come: the partition waits for its weights rather than serving someone younger.
            if !rooms.wait_for(model, partition, request, &mut decisions) {
                continue;
            }
            let requests = fill(world, world.queue(model).by_arrival(), rows_max(world, model)).requests;
            let act = Act::Start { run, model, partition, requests, window: Window::from(now) };
            run = RunId(run.0 + 1);
            decisions.push(Decision { act, why: Why::Oldest });
        }
        decisions
    }

    fn wake(&self, _now: Time) -> Option<Time> {
        None
    }
}
