//! Earliest deadline first: the model of the most pressing request runs next; requests without a deadline come last, by
//! age. Nothing is refused early and nothing is preempted: the textbook baseline.

use super::batch::{fill, rows_max};
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
        let idle: Vec<_> = world.idle().collect();
        if idle.is_empty() {
            return Vec::new();
        }
        let head = |spec: &ModelSpec| {
            let first = order(world.queue(spec.id)).next()?;
            let deadline = world.request(first)?.deadline.unwrap_or(Time::FOREVER);
            Some((deadline, first, spec.id))
        };
        let mut heads: Vec<(Time, RequestId, ModelId)> = world.models().filter_map(head).collect();
        heads.sort_unstable();
        let start = |(place, (partition, (_, _, model)))| {
            let batch = fill(world, order(world.queue(model)), rows_max(world, model));
            let run = RunId(world.next_run().0 + place);
            let act =
                Act::Start { run, model, partition, requests: batch.requests, window: Window::from(now) };
            Decision { act, why: Why::EarliestDeadline }
        };
        (0u64..).zip(idle.into_iter().zip(heads)).map(start).collect()
    }

    fn wake(&self, _now: Time) -> Option<Time> {
        None
    }
}

/// Requests with deadlines, earliest first, then the others, oldest first.
fn order(queue: &Queue) -> impl Iterator<Item = RequestId> + '_ {
    queue.by_deadline().map(|(_, id)| id).chain(queue.without_deadline())
}
