//! Earliest deadline first: the model of the most pressing request runs next; requests without a deadline come last, by
//! age. Nothing is refused early and nothing is preempted: the textbook baseline. A model that is not on the device is
//! loaded as a whole before it begins.

use super::batch::{fill, rows_max};
use super::parts::Parts;
use super::residency::Rooms;
use crate::Policy;
use crate::node::{Act, Decision, ModelSpec, NodeWorld, Queue, Why, Window};
use vocab::{ModelId, RequestId, RunId, Time};

/// Earliest deadline first, no preemption.
#[derive(Clone, Debug)]
pub struct Edf;

impl Policy<NodeWorld> for Edf {
    fn name(&self) -> &'static str {
        "edf"
    }

    fn decide(&mut self, now: Time, world: &NodeWorld) -> Vec<Decision> {
        if world.idle().next().is_none() {
            return Vec::new();
        }
        let mut parts = Parts::new(world);
        let head = |spec: &ModelSpec| {
            let first = order(world.queue(spec.id)).next()?;
            let deadline = world.request(first)?.deadline.unwrap_or(Time::FOREVER);
            Some((deadline, first, spec.id))
        };
        let mut heads: Vec<(Time, RequestId, ModelId)> = world.models().filter_map(head).collect();
        heads.sort_unstable();
        let mut rooms = Rooms::new(world);
        let (mut decisions, mut run) = (Vec::new(), world.next_run());
        for (_, first, model) in heads {
            let idle = parts.idle().filter(|partition| parts.fits(model, *partition));
            let Some(partition) = rooms.choose(model, idle) else { break };
            parts.take(model, partition);
            // Its turn has come: the partition waits for its weights rather than serving someone less pressed.
            if !rooms.wait_for(model, partition, first, &mut decisions) {
                continue;
            }
            let requests = fill(world, order(world.queue(model)), rows_max(world, model)).requests;
            let act = Act::Start { run, model, partition, requests, window: Window::from(now) };
            run = RunId(run.0 + 1);
            decisions.push(Decision { act, why: Why::EarliestDeadline });
        }
        decisions
    }

    fn wake(&self, _now: Time) -> Option<Time> {
        None
    }
}

/// Requests with deadlines, earliest first, then the others, oldest first.
fn order(queue: &Queue) -> impl Iterator<Item = RequestId> + '_ {
    queue.by_deadline().map(|(_, id)| id).chain(queue.without_deadline())
}
