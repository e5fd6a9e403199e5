//! Nexus (SOSP 2019, in our reading) on one device: models take turns of planned batches in a duty cycle; heads of a
//! queue that the planned batch could not answer in time are dropped, so that those behind them can be.

use super::duty::{Turn, cycle};
use super::starts::{Sizes, Starts, units_of};
use crate::Policy;
use crate::node::{Decision, NodeWorld, Why};
use std::collections::BTreeMap;
use vocab::{ModelId, RequestId, Span, Time};

/// Plans are made anew so often.
const EPOCH: Span = Span::from_ms(1_000);

/// Squishy packing on one device, and early drop.
#[derive(Clone, Debug, Default)]
pub struct Nexus {
    turns: Vec<Turn>,
    duty: Span,
    planned: Option<Time>,
    next: usize,
    began: BTreeMap<ModelId, Time>,
    next_turn: Option<Time>,
}

/// Refuses heads whose deadline comes before a batch of `rows` begun now is over, and looks at smaller batches as the queue
/// drains.
pub(super) fn drop_heads(starts: &mut Starts<'_>, model: ModelId, rows: u32, share: Option<u32>) {
    let costs = starts.world.costs(model);
    let mut left = starts.rows(model);
    let waiting: Vec<RequestId> = starts.waiting(model).collect();
    for id in waiting {
        let Some(request) = starts.world.request(id) else { continue };
        let needs = costs.of_on(rows.min(left).max(1), share);
        let Some(deadline) = request.deadline.filter(|deadline| *deadline < starts.now + needs) else {
            return;
        };
        left = left.saturating_sub(request.rows);
        starts.reject(id, Why::CannotMeet { needs, left: deadline.since(starts.now) });
    }
}

impl Policy<NodeWorld> for Nexus {
    fn name(&self) -> &'static str {
        "nexus"
    }

    fn decide(&mut self, now: Time, world: &NodeWorld) -> Vec<Decision> {
        let sizes = Sizes::of(world);
        let known = self.turns.len();
        let models: Vec<ModelId> = world.models().map(|spec| spec.id).collect();
        if self.planned.is_none_or(|at| now >= at + EPOCH) || known != models.len() {
            (self.turns, self.duty) = cycle(now, world, &models, None);
            self.planned = Some(now);
            self.next = 0;
        }
        let mut starts = Starts::new(now, world);
        self.next_turn = None;
        for partition in world.idle() {
            if !starts.parts.is_empty(partition) {
                continue;
            }
            let units = units_of(world, partition, &sizes);
            for step in 0..self.turns.len() {
                let at = (self.next + step) % self.turns.len();
                let turn = self.turns[at];
                let due = self.began.get(&turn.model).map_or(now, |began| *began + self.duty);
                if starts.rows(turn.model) < turn.rows && due > now {
                    // Its turn comes with the next cycle, or with a full batch.
                    if starts.rows(turn.model) > 0 {
                        self.next_turn = self.next_turn.into_iter().chain([due]).min();
                    }
                    continue;
                }
                drop_heads(&mut starts, turn.model, turn.rows, sizes.share(units));
                let largest = units == sizes.largest(world, turn.model);
                if !largest || starts.rows(turn.model) == 0 || !starts.may_begin(turn.model, partition) {
                    continue;
                }
                let (requests, _) = starts.batch(turn.model, turn.rows);
                starts.start(turn.model, partition, requests, Why::RoundRobin);
                self.began.insert(turn.model, now);
                self.next = (at + 1) % self.turns.len();
                break;
            }
        }
        starts.decisions
    }

    fn wake(&self, now: Time) -> Option<Time> {
        self.next_turn.filter(|at| *at > now)
    }
}
