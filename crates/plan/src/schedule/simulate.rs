//! Runs a schedule on virtual time: computing in lanes, transfers in slots, memory, and deadlocks.
//!
//! Every device computes one step at a time, in its lane's order. A transfer takes a slot of both its devices; transfers
//! that wait for slots start in the order in which they were asked for.

use super::check::{ScheduleFault, check, counterpart};
use super::step::{Act, Pass, Schedule, Step};
use super::{STEPS_MAX, StageCost};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use thiserror::Error;
use vocab::{Bytes, Span, Time};

/// How a sender goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sending {
    /// At once; the transfer waits in a buffer.
    #[default]
    Buffered,
    /// When the transfer is done, which starts when the receiver is there.
    Rendezvous,
}

/// How a receiver knows what it gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Matching {
    /// Transfers carry their stage and microbatch.
    #[default]
    Tagged,
    /// By order alone: the first that is sent is the first that is received.
    InOrder,
}

/// How devices exchange data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Transfers that a device takes part in at a time.
    pub slots: usize,
    /// How senders go on.
    pub sending: Sending,
    /// How receivers know what they get.
    pub matching: Matching,
}

impl Default for Settings {
    /// Four slots: in and out, either way.
    fn default() -> Self {
        Self { slots: 4, sending: Sending::Buffered, matching: Matching::Tagged }
    }
}

/// A step and when a device ran it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The step.
    pub step: Step,
    /// Its start.
    pub start: Time,
    /// Its end.
    pub end: Time,
}

/// Something that went from one device to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The sending step.
    pub step: Step,
    /// The sender.
    pub from: usize,
    /// The receiver.
    pub to: usize,
    /// When it was sent.
    pub asked: Time,
    /// When it started.
    pub start: Time,
    /// When it arrived.
    pub end: Time,
}

/// What one device did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceRun {
    /// What it computed, in order.
    pub slices: Vec<Slice>,
    /// How long it computed.
    pub busy: Span,
    /// From the start of its first step to the end of its last.
    pub span: Span,
    /// The most memory it held.
    pub peak_bytes: Bytes,
    /// Most microbatches whose activations it held at once, stage by stage counted.
    pub stashed_max: usize,
}

/// What came of a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// From the start to the end of the last step.
    pub makespan: Span,
    /// What each device did.
    pub devices: Vec<DeviceRun>,
    /// What was transferred, by start.
    pub transfers: Vec<Transfer>,
}

impl Run {
    /// The part of all devices' time, up to the makespan, that they did not compute.
    #[must_use]
    pub fn bubble(&self) -> f64 {
        let whole = self.makespan.as_secs_f64() * self.devices.len() as f64;
        let busy: f64 = self.devices.iter().map(|device| device.busy.as_secs_f64()).sum();
        if whole > 0.0 { 1.0 - busy / whole } else { 0.0 }
    }
}

/// A device that goes no further.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// The device.
    pub device: usize,
    /// The step it is at.
    pub step: Step,
    /// What it waits for.
    pub waits_for: Step,
    /// The device that would have to do that.
    pub on: usize,
}

/// Why a schedule does not run to its end.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SimulationError {
    /// The schedule is faulty.
    #[error("{}", lines(.0))]
    Faults(Vec<ScheduleFault>),
    /// Costs of another number of stages.
    #[error("the schedule has {stages} stages, costs are given for {given}")]
    Costs {
        /// Stages of the schedule.
        stages: usize,
        /// Stages with costs.
        given: usize,
    },
    /// Nothing could be transferred.
    #[error("a device needs a slot to exchange anything; give one")]
    Slots,
    /// More steps than are simulated.
    #[error("the schedule has {found} steps, at most {STEPS_MAX} are simulated")]
    Steps {
        /// How many there are.
        found: usize,
    },
    /// Devices wait for each other.
    #[error("deadlock: {}", stuck(.0))]
    Deadlock(Vec<Stuck>),
}

/// Runs `schedule`, whose stages cost so much.
///
/// # Errors
///
/// Faulty schedules, and deadlocks with everything that waits.
pub fn simulate(
    schedule: &Schedule,
    costs: &[StageCost],
    settings: Settings,
) -> Result<Run, SimulationError> {
    let found = schedule.lanes.iter().map(Vec::len).sum();
    if found > STEPS_MAX {
        return Err(SimulationError::Steps { found });
    }
    if costs.len() != schedule.stages {
        return Err(SimulationError::Costs { stages: schedule.stages, given: costs.len() });
    }
    if settings.slots == 0 {
        return Err(SimulationError::Slots);
    }
    let schedule = schedule.with_transfers();
    let faults = check(&schedule, settings.matching == Matching::InOrder);
    if !faults.is_empty() {
        return Err(SimulationError::Faults(faults));
    }
    Simulation::new(&schedule, costs, settings).run()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A transfer, named by its sending step, arrived.
    Arrived(Step),
    /// A device finished its step.
    Finished(usize),
}

struct Simulation<'a> {
    schedule: &'a Schedule,
    costs: &'a [StageCost],
    settings: Settings,
    homes: Vec<Vec<Option<usize>>>,
    splits: bool,
    now: Time,
    events: BinaryHeap<Reverse<(Time, u64, Event)>>,
    sequence: u64,
    /// The next step of each lane, and whether the device computes.
    next: Vec<usize>,
    computing: Vec<bool>,
    done: BTreeMap<Step, Time>,
    free_slots: Vec<usize>,
    /// Transfers that wait for slots: the sending step and when it was asked for.
    asked: VecDeque<(Step, Time)>,
    /// Sending steps whose receiver is there, and receiving steps whose sender is.
    offered: BTreeMap<Step, Time>,
    devices: Vec<DeviceRun>,
    transfers: Vec<Transfer>,
}

impl<'a> Simulation<'a> {
    fn new(schedule: &'a Schedule, costs: &'a [StageCost], settings: Settings) -> Self {
        let lanes = schedule.lanes.len();
        let idle = DeviceRun {
            slices: Vec::new(),
            busy: Span::ZERO,
            span: Span::ZERO,
            peak_bytes: Bytes(0),
            stashed_max: 0,
        };
        Self {
            homes: schedule.homes(),
            splits: schedule.splits(),
            now: Time::ZERO,
            events: BinaryHeap::new(),
            sequence: 0,
            next: vec![0; lanes],
            computing: vec![false; lanes],
            done: BTreeMap::new(),
            free_slots: vec![settings.slots; lanes],
            asked: VecDeque::new(),
            offered: BTreeMap::new(),
            devices: vec![idle; lanes],
            transfers: Vec::new(),
            schedule,
            costs,
            settings,
        }
    }

    fn run(mut self) -> Result<Run, SimulationError> {
        for device in 0..self.schedule.lanes.len() {
            self.advance(device);
        }
        while let Some(Reverse((at, _, event))) = self.events.pop() {
            self.now = at;
            match event {
                Event::Finished(device) => self.finish(device),
                Event::Arrived(step) => self.arrive(step),
            }
        }
        let stuck = self.stuck();
        if !stuck.is_empty() {
            return Err(SimulationError::Deadlock(stuck));
        }
        let ends = self.devices.iter().filter_map(|device| device.slices.last());
        let makespan = ends.map(|slice| slice.end).max().unwrap_or(Time::ZERO).since(Time::ZERO);
        for device in 0..self.devices.len() {
            self.account(device);
        }
        Ok(Run { makespan, devices: self.devices, transfers: self.transfers })
    }

    fn at(&self, device: usize) -> Option<Step> {
        self.schedule.lanes[device].get(self.next[device]).copied()
    }

    fn home(&self, step: Step) -> usize {
        self.homes[step.stage][step.microbatch].unwrap_or_default()
    }

    fn post(&mut self, at: Time, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((at, self.sequence, event)));
    }

    /// Lets a device do what it can at this time.
    fn advance(&mut self, device: usize) {
        while !self.computing[device]
            && let Some(step) = self.at(device)
            && self.waits_for(step).is_none()
        {
            match step.act {
                Act::Send(_) => self.send(step),
                Act::Receive(_) => {}
                Act::Forward | Act::Backward | Act::Weight => {
                    let end = self.now + self.duration(step);
                    self.devices[device].slices.push(Slice { step, start: self.now, end });
                    self.computing[device] = true;
                    self.post(end, Event::Finished(device));
                    return;
                }
            }
            self.next[device] += 1;
        }
        self.meet(device);
    }

    fn duration(&self, step: Step) -> Span {
        let cost = &self.costs[step.stage];
        match step.act {
            Act::Forward => cost.forward,
            Act::Backward if self.splits => cost.backward,
            Act::Backward => cost.backward + cost.weight,
            Act::Weight => cost.weight,
            Act::Send(_) | Act::Receive(_) => Span::ZERO,
        }
    }

    /// What has to be done before a step, and is not.
    fn waits_for(&self, step: Step) -> Option<Step> {
        let Step { stage, act, microbatch } = step;
        let needed = match act {
            Act::Forward => [stage.checked_sub(1).map(|before| self.made(step, before, Pass::Forward)), None],
            Act::Backward => {
                let last = stage + 1 == self.schedule.stages;
                let behind = (!last).then(|| self.made(step, stage + 1, Pass::Backward));
                [Some(Step::new(stage, Act::Forward, microbatch)), behind]
            }
            Act::Weight => [Some(Step::new(stage, Act::Backward, microbatch)), None],
            Act::Receive(_) => [counterpart(step, self.schedule.stages), None],
            Act::Send(Pass::Forward) => [Some(Step::new(stage, Act::Forward, microbatch)), None],
            Act::Send(Pass::Backward) => [Some(Step::new(stage, Act::Backward, microbatch)), None],
        };
        if let Act::Send(_) = act
            && self.settings.sending == Sending::Rendezvous
            && needed[0].is_some_and(|needed| self.done.contains_key(&needed))
        {
            return if self.done.contains_key(&step) {
                None
            } else {
                counterpart(step, self.schedule.stages)
            };
        }
        needed.into_iter().flatten().find(|needed| !self.done.contains_key(needed))
    }

    /// The step that gives `step` what the stage `maker` made: its pass, or its transfer from another device.
    fn made(&self, step: Step, maker: usize, pass: Pass) -> Step {
        let act = match pass {
            Pass::Forward => Act::Forward,
            Pass::Backward => Act::Backward,
        };
        let made = Step::new(maker, act, step.microbatch);
        if self.home(made) == self.home(step) { made } else { Step { act: Act::Send(pass), ..made } }
    }

    /// Asks for a buffered transfer.
    fn send(&mut self, step: Step) {
        if self.settings.sending == Sending::Buffered {
            self.asked.push_back((step, self.now));
            self.start_transfers();
        }
    }

    /// With rendezvous: notes that a device is at a transfer, which is asked for when both are.
    fn meet(&mut self, device: usize) {
        if self.settings.sending != Sending::Rendezvous || self.computing[device] {
            return;
        }
        let Some(step) = self.at(device) else { return };
        let Some(other) = counterpart(step, self.schedule.stages) else { return };
        let made = !matches!(step.act, Act::Send(_)) || self.waits_for(step) == Some(other);
        if !made || self.offered.insert(step, self.now).is_some() {
            return;
        }
        if self.offered.contains_key(&other) {
            let sending = if matches!(step.act, Act::Send(_)) { step } else { other };
            self.asked.push_back((sending, self.now));
            self.start_transfers();
        }
    }

    /// Starts the transfers that have slots, first asked first.
    fn start_transfers(&mut self) {
        let mut waiting = VecDeque::new();
        while let Some((step, asked)) = self.asked.pop_front() {
            let from = self.home(step);
            let to = counterpart(step, self.schedule.stages).map_or(from, |other| self.home(other));
            if self.free_slots[from] == 0 || self.free_slots[to] == 0 {
                waiting.push_back((step, asked));
                continue;
            }
            self.free_slots[from] -= 1;
            self.free_slots[to] -= 1;
            let lower = match step.act {
                Act::Send(Pass::Backward) => step.stage.saturating_sub(1),
                _ => step.stage,
            };
            let end = self.now + self.costs[lower].transfer;
            self.transfers.push(Transfer { step, from, to, asked, start: self.now, end });
            self.post(end, Event::Arrived(step));
        }
        self.asked = waiting;
    }

    fn arrive(&mut self, step: Step) {
        self.done.insert(step, self.now);
        let from = self.home(step);
        let to = counterpart(step, self.schedule.stages).map_or(from, |other| self.home(other));
        self.free_slots[from] += 1;
        self.free_slots[to] += 1;
        self.start_transfers();
        self.advance(to);
        self.advance(from);
    }

    fn finish(&mut self, device: usize) {
        self.computing[device] = false;
        if let Some(step) = self.at(device) {
            self.done.insert(step, self.now);
            self.next[device] += 1;
        }
        self.advance(device);
    }

    /// Every device that is not at its end, and what it waits for.
    fn stuck(&self) -> Vec<Stuck> {
        let of = |device: usize| {
            let step = self.at(device)?;
            let waits_for = self.waits_for(step)?;
            Some(Stuck { device, step, waits_for, on: self.home(waits_for) })
        };
        (0..self.schedule.lanes.len()).filter_map(of).collect()
    }

    /// Adds up what a device did.
    fn account(&mut self, device: usize) {
        let run = &mut self.devices[device];
        let mut stages: Vec<usize> = run.slices.iter().map(|slice| slice.step.stage).collect();
        stages.sort_unstable();
        stages.dedup();
        let mut bytes: u64 = stages.iter().map(|&stage| self.costs[stage].resident_bytes.0).sum();
        let mut stashed = 0usize;
        run.peak_bytes = Bytes(bytes);
        for slice in &run.slices {
            let cost = &self.costs[slice.step.stage];
            run.busy += slice.end.since(slice.start);
            let (keeps, frees) = match (slice.step.act, self.splits) {
                (Act::Forward, _) => (cost.activation_bytes.0, 0),
                (Act::Backward, false) => (0, cost.activation_bytes.0),
                (Act::Backward, true) => {
                    (0, cost.activation_bytes.0.saturating_sub(cost.weight_stash_bytes.0))
                }
                (Act::Weight, _) => (0, cost.weight_stash_bytes.0.min(cost.activation_bytes.0)),
                _ => (0, 0),
            };
            bytes = bytes.saturating_add(keeps);
            match slice.step.act {
                Act::Forward => stashed += 1,
                Act::Backward => stashed = stashed.saturating_sub(1),
                _ => {}
            }
            run.peak_bytes = run.peak_bytes.max(Bytes(bytes));
            run.stashed_max = run.stashed_max.max(stashed);
            bytes = bytes.saturating_sub(frees);
        }
        if let (Some(first), Some(last)) = (run.slices.first(), run.slices.last()) {
            run.span = last.end.since(first.start);
        }
    }
}

fn lines(faults: &[ScheduleFault]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

fn stuck(stuck: &[Stuck]) -> String {
    let one = |stuck: &Stuck| {
        format!(
            "device {} at {} waits for {} of device {}",
            stuck.device, stuck.step, stuck.waits_for, stuck.on
        )
    };
    stuck.iter().map(one).collect::<Vec<_>>().join("; ")
}
