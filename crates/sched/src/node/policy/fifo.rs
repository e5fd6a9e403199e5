//! First come, first served: the model of the oldest request runs next, with as many of its requests as fit.

use super::batch::{fill, rows_max};
use crate::Policy;
use crate::node::{Act, Decision, NodeWorld, Why, Window};
use vocab::{RequestId, RunId, Time};

/// First come, first served, no preemption.
#[derive(Clone, Debug)]
pub struct Fifo;

impl Policy<NodeWorld> for Fifo {
    fn name(&self) -> &'static str {
        "fifo"
    }

    fn decide(&mut self, now: Time, world: &NodeWorld) -> Vec<Decision> {
        let idle = world.idle();
        let mut heads: Vec<(RequestId, vocab::ModelId)> = Vec::new();
        let mut decisions = Vec::new();
        for (started, partition) in idle.enumerate() {
            if started == 0 {
                let head = |spec: &crate::node::ModelSpec| {
                    Some((world.queue(spec.id).by_arrival().next()?, spec.id))
                };
                heads.extend(world.models().filter_map(head));
                heads.sort_unstable();
                heads.reverse();
            }
            let Some((_, model)) = heads.pop() else { break };
            let batch = fill(world, world.queue(model).by_arrival(), rows_max(world, model));
            let run = RunId(world.next_run().0 + started as u64);
            let act =
                Act::Start { run, model, partition, requests: batch.requests, window: Window::from(now) };
            decisions.push(Decision { act, why: Why::Oldest });
        }
        decisions
    }

    fn wake(&self, _now: Time) -> Option<Time> {
        None
    }
}
