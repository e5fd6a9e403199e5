//! PipeSwitch (OSDI 2020): a run begins while its model's weights are still travelling, and the model that runs next is
//! loaded while the present one runs.
//!
//! ```text
//! partition   | run of A                |  run of B, group by group  |
//! link                   | B: standby ............. |  C: standby ...
//! ```
//!
//! Classes are strict: the most urgent work of the strictest class goes first, and stops looser work at its next segment
//! edge. A device has at most one load on its way that nobody runs yet. Nothing ages and nothing is refused early.

use super::batch::{fill, rows_max};
use super::parts::Parts;
use super::residency::Rooms;
use crate::Policy;
use crate::node::{Act, Decision, NodeWorld, Run, RunState, Why, Window};
use vocab::{Class, ModelId, PartitionId, RequestId, RunId, Time};

/// Pipelined switches between models.
#[derive(Clone, Debug)]
pub struct PipeSwitch;

/// How urgent work is: its class, then its deadline, then its age.
type Urgency = (Class, Time, RequestId);

/// A turn's decisions in the making.
struct Plan<'w> {
    now: Time,
    world: &'w NodeWorld,
    rooms: Rooms<'w>,
    parts: Parts<'w>,
    decisions: Vec<Decision>,
    /// The most urgent waiting request of each model, most urgent first.
    heads: Vec<(Urgency, ModelId)>,
    started: Vec<RequestId>,
    next_run: RunId,
}

impl Policy<NodeWorld> for PipeSwitch {
    fn name(&self) -> &'static str {
        "pipeswitch"
    }

    fn decide(&mut self, now: Time, world: &NodeWorld) -> Vec<Decision> {
        let mut heads: Vec<(Urgency, ModelId)> =
            world.models().filter_map(|spec| head(world, spec.id, &[])).collect();
        heads.sort_unstable();
        let (rooms, parts, next_run) = (Rooms::new(world), Parts::new(world), world.next_run());
        let (decisions, started) = (Vec::new(), Vec::new());
        let mut plan = Plan { now, world, rooms, parts, decisions, heads, started, next_run };
        plan.occupy();
        plan.preempt();
        plan.stand_by();
        plan.decisions
    }

    fn wake(&self, _now: Time) -> Option<Time> {
        None
    }
}

/// The most urgent request of `model` that is not among `started`.
fn head(world: &NodeWorld, model: ModelId, started: &[RequestId]) -> Option<(Urgency, ModelId)> {
    let mut waiting = world.queue(model).by_urgency_with_rows();
    let (class, deadline, id, _) = waiting.find(|(_, _, id, _)| !started.contains(id))?;
    Some(((class, deadline, id), model))
}

fn urgency(run: &Run) -> Urgency {
    (run.class, run.deadline.unwrap_or(Time::FOREVER), run.requests[0])
}

impl<'w> Plan<'w> {
    /// Gives every idle partition its most urgent work: a run parked there, or what waits.
    fn occupy(&mut self) {
        let mut idle: Vec<PartitionId> = self.world.idle().collect();
        while let Some(((most, model), partition)) = self.first_placed(&idle) {
            idle.retain(|other| *other != partition);
            let parked = self.most_urgent_parked(partition);
            let way = self.rooms.way(model, partition);
            match (parked, way) {
                // Work that finds no room beside parked runs lends them its urgency, or it would wait for ever.
                (Some(run), way) if way.is_none() || urgency(run) <= most => {
                    self.parts.take(run.model, partition);
                    self.resume(run.id, run.class);
                }
                (_, Some(_)) => self.start(most, model, partition),
                (_, None) => {}
            }
        }
        for partition in idle {
            if let Some(run) = self.most_urgent_parked(partition) {
                self.parts.take(run.model, partition);
                self.resume(run.id, run.class);
            }
        }
    }

    /// The most urgent head and the idle partition that suits it best.
    fn first_placed(&self, idle: &[PartitionId]) -> Option<((Urgency, ModelId), PartitionId)> {
        let first = self.heads.first().copied()?;
        let fitting = idle.iter().copied().filter(|partition| self.parts.fits(first.1, *partition));
        Some((first, self.rooms.choose(first.1, fitting)?))
    }

    fn most_urgent_parked(&self, partition: PartitionId) -> Option<&'w Run> {
        let here = |run: &&Run| run.partition == partition && self.parts.fits(run.model, partition);
        self.world.parked().filter(here).min_by_key(|run| urgency(run))
    }

    fn resume(&mut self, run: RunId, class: Class) {
        let decision = Decision { act: Act::Resume { run }, why: Why::FirstInClass { class } };
        self.decisions.push(decision);
    }

    fn start(&mut self, (class, _, first): Urgency, model: ModelId, partition: PartitionId) {
        if let Some(way) = self.rooms.way(model, partition) {
            self.rooms.take(model, &way, Why::NeededBy { request: first }, &mut self.decisions);
            self.rooms.keep(model, partition);
        }
        self.parts.take(model, partition);
        let (world, started) = (self.world, &self.started);
        let waiting = world.queue(model).by_urgency().filter(|id| !started.contains(id));
        let requests = fill(world, waiting, rows_max(world, model)).requests;
        self.started.extend(&requests);
        let run = self.next_run;
        self.next_run = RunId(run.0 + 1);
        let act = Act::Start { run, model, partition, requests, window: Window::from(self.now) };
        self.decisions.push(Decision { act, why: Why::FirstInClass { class } });
        self.heads.remove(0);
        if let Some(next) = head(world, model, &self.started) {
            let place = self.heads.partition_point(|other| *other < next);
            self.heads.insert(place, next);
        }
    }

    /// Parks looser work for heads that found no partition, loosest first.
    fn preempt(&mut self) {
        if self.heads.is_empty() {
            return;
        }
        let leaving =
            |run: &&Run| matches!(run.state, RunState::Parking { .. } | RunState::Abandoning { held: true });
        // Partitions already being freed serve the first heads.
        let served = self.world.runs().filter(leaving).count();
        let running = self.world.runs().filter(|run| matches!(run.state, RunState::Running { .. }));
        let mut victims: Vec<(Class, RunId, PartitionId)> =
            running.map(|run| (run.class, run.id, run.partition)).collect();
        victims.sort_unstable();
        for ((class, _, by), model) in self.heads.iter().copied().skip(served) {
            // A parked run keeps its weights. Where the head finds no room beside them parking would gain nothing, and the
            // heads behind it must not go first.
            let gains = |(loose, _, partition): &(Class, RunId, PartitionId)| {
                *loose > class && self.rooms.fits_beside_runs(model, *partition)
            };
            let Some(place) = victims.iter().rposition(gains) else { break };
            let (_, run, _) = victims.remove(place);
            let why = Why::Preempted { by, class };
            self.decisions.push(Decision { act: Act::Park { run }, why });
        }
    }

    /// Loads the models that run next, one a device: those of the first heads that no run of their model serves.
    fn stand_by(&mut self) {
        if !self.rooms.bounded() {
            return;
        }
        let memory = self.world.memory();
        let mut devices: Vec<_> = memory.devices().collect();
        for ((_, _, request), model) in self.heads.clone() {
            if devices.is_empty() {
                break;
            }
            // The model's own partition takes its next batch.
            if self.world.runs().any(|run| run.model == model) {
                continue;
            }
            let there = devices.iter().position(|device| memory.is_claimed(*device, model));
            if let Some(place) = there {
                self.rooms.keep_on(model, devices.remove(place));
                continue;
            }
            let free = |device: &vocab::DeviceId| {
                !self.rooms.is_loading(*device)
                    && !memory.residency(*device, model).failed
                    && self.rooms.way_to(model, *device).is_some()
            };
            let Some(place) = devices.iter().position(free) else { break };
            let device = devices.remove(place);
            if let Some(way) = self.rooms.way_to(model, device) {
                self.rooms.take(model, &way, Why::NeededNext { request }, &mut self.decisions);
                self.rooms.keep_on(model, device);
            }
        }
    }
}
