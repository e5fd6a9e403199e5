//! List scheduling for schedules that fit the gradients of weights into gaps: whenever a device is free it takes the most
//! urgent step that is ready. Memory stays at what 1F1B holds.

use super::StageCost;
use super::step::{Act, Step};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use vocab::{Span, Time};

/// How a device chooses among steps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// Forward passes of the later of two stages go first.
    later_first: bool,
    /// Each device runs ahead only as far as 1F1B would, not as far as memory allows.
    tight: bool,
    /// A forward pass goes before a backward pass while the pipeline fills.
    fill: bool,
}

impl Rules {
    /// Every combination.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        (0..8).map(|code| Self { later_first: code & 1 == 0, tight: code & 2 == 0, fill: code & 4 != 0 })
    }
}

/// Lanes and what comes of them.
pub(super) struct Listed {
    pub lanes: Vec<Vec<Step>>,
    pub makespan: Span,
    /// Whether every step found its place.
    pub complete: bool,
    /// The longest time from a device's first step to its last.
    pub span: Span,
}

/// Lanes for stages on these devices, each stage on one.
pub(super) fn list(costs: &[StageCost], device_of: &[usize], microbatches: usize, rules: Rules) -> Listed {
    let devices = device_of.iter().max().map_or(0, |last| last + 1);
    let mut listing = Listing {
        costs,
        device_of,
        microbatches,
        rules,
        devices,
        now: Time::ZERO,
        wakes: BinaryHeap::new(),
        free_at: vec![Time::ZERO; devices],
        ready: BTreeMap::new(),
        queues: vec![[const { VecDeque::new() }; 3]; costs.len()],
        held: vec![[0; 2]; devices],
        begun: vec![None; devices],
        lanes: vec![Vec::new(); devices],
    };
    for microbatch in 0..microbatches {
        listing.queues[0][0].push_back((Time::ZERO, microbatch));
    }
    listing.run()
}

struct Listing<'a> {
    costs: &'a [StageCost],
    device_of: &'a [usize],
    microbatches: usize,
    rules: Rules,
    devices: usize,
    now: Time,
    wakes: BinaryHeap<Reverse<Time>>,
    free_at: Vec<Time>,
    /// Backward passes wait for two things; when the first of them was there.
    ready: BTreeMap<(usize, usize), Time>,
    /// For each stage, its forward, backward and weight steps that can be run, and from when on.
    queues: Vec<[VecDeque<(Time, usize)>; 3]>,
    /// For each device, forward passes without their backward pass, and without their gradients of weights.
    held: Vec<[usize; 2]>,
    begun: Vec<Option<Time>>,
    lanes: Vec<Vec<Step>>,
}

impl Listing<'_> {
    fn run(mut self) -> Listed {
        self.wakes.push(Reverse(Time::ZERO));
        while let Some(Reverse(at)) = self.wakes.pop() {
            self.now = at;
            for device in 0..self.devices {
                if self.free_at[device] <= at
                    && let Some((stage, act)) = self.choose(device)
                {
                    self.take(device, stage, act);
                }
            }
        }
        let spans = self.begun.iter().zip(&self.free_at).map(|(begun, end)| end.since(begun.unwrap_or(*end)));
        let makespan = self.free_at.iter().copied().max().unwrap_or(Time::ZERO).since(Time::ZERO);
        let span = spans.max().unwrap_or(Span::ZERO);
        let all = 3 * self.costs.len() * self.microbatches;
        let complete = self.lanes.iter().map(Vec::len).sum::<usize>() == all;
        Listed { span, makespan, complete, lanes: self.lanes }
    }

    /// The most urgent step that a device can run now.
    fn choose(&self, device: usize) -> Option<(usize, usize)> {
        let own = |later_first: bool| {
            let mut stages: Vec<usize> =
                (0..self.costs.len()).filter(|&stage| self.device_of[stage] == device).collect();
            if later_first {
                stages.reverse();
            }
            stages
        };
        let first = |stages: Vec<usize>, act: usize| {
            let can =
                |stage: &usize| self.queues[*stage][act].front().is_some_and(|ready| ready.0 <= self.now);
            stages.into_iter().find(can).map(|stage| (stage, act))
        };
        let chunks = own(false).len();
        let ahead = if self.rules.tight { (self.devices - device) * chunks } else { self.devices * chunks };
        let [held, stashed] = self.held[device];
        let most = self.devices * chunks;
        let forward = || {
            let mut stages = own(self.rules.later_first);
            // The last stage of a device always finds room, or nothing would ever come back.
            let last = stages.iter().max().copied();
            stages.retain(|stage| {
                let kept = usize::from(Some(*stage) != last);
                held + kept < ahead && stashed + kept < most
            });
            first(stages, 0)
        };
        let backward = || first(own(true), 1);
        let filling = self.rules.fill && self.lanes[device].iter().all(|step| step.act == Act::Forward);
        let urgent = if filling { forward().or_else(backward) } else { backward().or_else(forward) };
        urgent.or_else(|| first(own(true), 2))
    }

    fn take(&mut self, device: usize, stage: usize, act: usize) {
        let Some((_, microbatch)) = self.queues[stage][act].pop_front() else { return };
        let cost = self.costs[stage];
        let (step, span) = match act {
            0 => (Act::Forward, cost.forward),
            1 => (Act::Backward, cost.backward),
            _ => (Act::Weight, cost.weight),
        };
        let end = self.now + span;
        self.begun[device].get_or_insert(self.now);
        self.free_at[device] = end;
        self.lanes[device].push(Step::new(stage, step, microbatch));
        self.wakes.push(Reverse(end));
        match act {
            0 => {
                self.held[device] = self.held[device].map(|held| held + 1);
                if stage + 1 < self.costs.len() {
                    let there = end + self.moving(stage, stage + 1);
                    self.queue(stage + 1, 0, there, microbatch);
                    self.backward_after(stage, microbatch, end);
                } else {
                    self.queue(stage, 1, end, microbatch);
                }
            }
            1 => {
                self.held[device][0] -= 1;
                self.queue(stage, 2, end, microbatch);
                if let Some(before) = stage.checked_sub(1) {
                    let there = end + self.moving(before, stage);
                    self.backward_after(before, microbatch, there);
                }
            }
            _ => self.held[device][1] -= 1,
        }
    }

    /// Notes one of the two things that a backward pass waits for.
    fn backward_after(&mut self, stage: usize, microbatch: usize, at: Time) {
        match self.ready.remove(&(stage, microbatch)) {
            Some(first) => self.queue(stage, 1, first.max(at), microbatch),
            None => drop(self.ready.insert((stage, microbatch), at)),
        }
    }

    fn queue(&mut self, stage: usize, act: usize, at: Time, microbatch: usize) {
        debug_assert!(microbatch < self.microbatches, "a microbatch of this schedule");
        self.queues[stage][act].push_back((at, microbatch));
        self.wakes.push(Reverse(at));
    }

    /// What it takes from one stage to the next, or back.
    fn moving(&self, stage: usize, next: usize) -> Span {
        if self.device_of[stage] == self.device_of[next] { Span::ZERO } else { self.costs[stage].transfer }
    }
}
