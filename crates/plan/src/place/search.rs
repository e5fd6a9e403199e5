//! The dynamic program over a lattice: for every ideal and every number of devices used, the least greatest load.
//!
//! ```text
//! ideal J, devices used ──add a set S──▶ ideal J ∪ S, one device more, greatest load = max(before, load of S)
//! ```
//!
//! Ideals are taken in ascending order, so a row is final when it is read. Sets are grown unit by unit in ascending
//! rank, which meets each set once; their transfers are kept up to date on the way. What cannot lead below the upper
//! bound is not followed.

use super::cut::Cut;
use super::devices::PartCost;
use super::lattice::Lattice;
use super::problem::{Problem, share};
use super::{Communication, Devices, Limits};
use crate::operators::Kind;

/// Bytes of one state: its value and its link.
pub(super) const STATE_BYTES: usize = 16;

/// Sets looked at between two questions whether to stop.
const PAIRS_PER_CHECK: u64 = 1 << 14;

/// What may still be done, over several searches.
pub(super) struct Budget<'a> {
    limits: Limits<'a>,
    pairs: u64,
    stopped: bool,
}

impl<'a> Budget<'a> {
    pub(super) fn new(limits: Limits<'a>) -> Self {
        Self { limits, pairs: 0, stopped: false }
    }

    pub(super) fn pairs(&self) -> u64 {
        self.pairs
    }

    pub(super) fn limits(&self) -> Limits<'a> {
        self.limits
    }

    /// Whether more may be done.
    pub(super) fn lasts(&self) -> bool {
        !self.stopped
    }

    /// Counts one set; whether it may be looked at.
    pub(super) fn spend(&mut self) -> bool {
        self.pairs += 1;
        if self.pairs >= self.limits.pairs_max
            || (self.pairs.is_multiple_of(PAIRS_PER_CHECK) && (self.limits.stop)())
        {
            self.stopped = true;
        }
        !self.stopped
    }
}

/// Parts of units, each fed only by those before it.
#[derive(Clone, Debug)]
pub(super) struct Split {
    pub value: f64,
    pub parts: Vec<SplitPart>,
}

/// Units on devices of a group.
#[derive(Clone, Debug)]
pub(super) struct SplitPart {
    pub group: usize,
    pub replicas: usize,
    pub units: Vec<usize>,
}

impl Split {
    /// The split with each block replaced by its units.
    pub(super) fn expanded(mut self, blocks: &[Vec<usize>]) -> Self {
        for part in &mut self.parts {
            part.units = part.units.iter().flat_map(|&block| blocks[block].iter().copied()).collect();
        }
        self
    }
}

/// What a search found.
pub(super) struct Outcome {
    /// A split below the upper bound.
    pub split: Option<Split>,
    /// Whether the lattice has no split below the one found (or, without one, below the upper bound).
    pub complete: bool,
    /// Ideals from which sets were grown.
    pub alive: usize,
}

#[derive(Clone, Copy)]
struct Link {
    before: u32,
    group: u16,
    replicas: u16,
}

/// One set that is being grown: everything about it but which units it holds.
pub(super) struct Frame {
    pub ideal: usize,
    /// The step to try next.
    pub next: usize,
    /// Rank below which nothing may be added.
    pub rank: Option<u32>,
    pub unit: usize,
    accelerator_ms: f64,
    cpu_ms: f64,
    /// Accelerator time of those that have one.
    work_ms: f64,
    resident_bytes: u64,
    pub transfer_ms: f64,
    exchanged_bytes: f64,
}

impl Frame {
    pub(super) const fn empty(ideal: usize) -> Self {
        Self {
            ideal,
            next: 0,
            rank: None,
            unit: 0,
            accelerator_ms: 0.0,
            cpu_ms: 0.0,
            work_ms: 0.0,
            resident_bytes: 0,
            transfer_ms: 0.0,
            exchanged_bytes: 0.0,
        }
    }

    /// The set with one unit more, but for what it transfers.
    pub(super) fn with(&self, unit: usize, ideal: usize, rank: Option<u32>, problem: &Problem) -> Self {
        let costs = &problem.units[unit];
        Self {
            ideal,
            next: 0,
            rank,
            unit,
            accelerator_ms: self.accelerator_ms + costs.accelerator_ms,
            cpu_ms: self.cpu_ms + costs.cpu_ms,
            work_ms: self.work_ms + costs.work_ms(),
            resident_bytes: self.resident_bytes.saturating_add(costs.resident_bytes),
            transfer_ms: self.transfer_ms,
            exchanged_bytes: self.exchanged_bytes + costs.exchanged_bytes,
        }
    }
}

/// A group of devices in the search. A state counts the devices used of every group, as digits of a number.
struct Digit {
    /// What one more device adds to a state.
    stride: usize,
    count: usize,
    replicas_max: usize,
    /// Greatest accelerator work that one device does in a unit of time.
    rate: f64,
    /// States of the ideal at hand that can be extended by this group, and where those begin that use as many of every
    /// other group; among these, more devices mean a lower value.
    open: Vec<(usize, f64)>,
    runs: Vec<usize>,
    accelerates: bool,
    /// Time and transfers are multiplied by these.
    per_speed: f64,
    per_link: f64,
    memory_bytes: u64,
    /// A set whose time is not below this is of no use here; 0 when no state is open.
    cutoff_ms: f64,
    /// Accelerator work that a set must hold, so that the devices left can do the rest.
    least_ms: f64,
}

impl Digit {
    /// Whether the set, and so perhaps a greater one, could run on a device of the group.
    fn bears(&self, frame: &Frame) -> bool {
        let time = if self.accelerates { frame.accelerator_ms } else { frame.cpu_ms };
        time < self.cutoff_ms && frame.resident_bytes <= self.memory_bytes
    }

    /// Brings open states that differ in this group alone together, fewest devices first.
    fn sort(&mut self) {
        let (stride, count) = (self.stride, self.count);
        let others = |state: usize| state - state / stride % (count + 1) * stride;
        if stride > 1 {
            self.open.sort_by_key(|&(state, _)| (others(state), state));
        }
        for at in 0..self.open.len() {
            if at == 0 || others(self.open[at].0) != others(self.open[at - 1].0) {
                self.runs.push(at);
            }
        }
        self.runs.push(self.open.len());
    }
}

/// Counts of used devices that the search tells apart; `None` when they are too many to number.
pub(super) fn states(devices: &Devices) -> Option<usize> {
    devices.groups.iter().try_fold(1usize, |states, group| states.checked_mul(group.count + 1))
}

pub(super) struct Search<'a> {
    problem: &'a Problem,
    lattice: &'a Lattice,
    devices: &'a Devices,
    communication: Communication,
    /// Only splits below this are of use.
    upper: f64,
    /// No split is below this.
    floor: f64,
    states: usize,
    digits: Vec<Digit>,
    values: Vec<f64>,
    links: Vec<Link>,
    /// Accelerator time of what is not in an ideal.
    remaining_ms: Vec<f64>,
    /// What the set that is being grown transfers.
    pub cut: Cut,
}

impl<'a> Search<'a> {
    /// # Panics
    ///
    /// When states cannot be numbered; a lattice of ideals is not made then, and devices have bounds.
    pub(super) fn new(
        problem: &'a Problem,
        lattice: &'a Lattice,
        devices: &'a Devices,
        communication: Communication,
        upper: f64,
        floor: f64,
    ) -> Self {
        let states = states(devices).expect("the states of bounded devices can be numbered");
        let mut values = vec![f64::INFINITY; states * lattice.len()];
        values[0] = 0.0;
        let total: f64 = problem.units.iter().map(super::problem::Unit::work_ms).sum();
        let mut remaining_ms = vec![total; lattice.len()];
        for ideal in 1..lattice.len() {
            let (unit, before) = lattice.made(ideal);
            remaining_ms[ideal] = remaining_ms[before] - problem.units[unit].work_ms();
        }
        let mut stride = 1;
        let mut digits = Vec::with_capacity(devices.groups.len());
        for (number, (group, rate)) in devices.groups.iter().zip(problem.rates(devices)).enumerate() {
            let (count, replicas_max) = (group.count, devices.replicas_max(number));
            let accelerates = group.kind == Kind::Accelerator;
            digits.push(Digit {
                stride,
                count,
                replicas_max,
                rate,
                open: Vec::new(),
                runs: Vec::new(),
                accelerates,
                per_speed: 1.0 / group.speed,
                per_link: if accelerates { 1.0 / group.link } else { 0.0 },
                memory_bytes: group.memory_bytes.unwrap_or(u64::MAX),
                cutoff_ms: 0.0,
                least_ms: 0.0,
            });
            stride *= group.count + 1;
        }
        let none = Link { before: 0, group: 0, replicas: 1 };
        Self {
            values,
            links: vec![none; states * lattice.len()],
            remaining_ms,
            cut: Cut::new(problem),
            states,
            digits,
            problem,
            lattice,
            devices,
            communication,
            upper,
            floor,
        }
    }

    pub(super) fn run(mut self, budget: &mut Budget<'_>) -> Outcome {
        let mut alive = 0;
        let mut complete = true;
        for ideal in 0..self.lattice.len() - 1 {
            if self.upper <= self.floor {
                break;
            }
            if !self.open(ideal) {
                continue;
            }
            alive += 1;
            if !self.grow(ideal, budget) {
                complete = false;
                break;
            }
        }
        Outcome { split: self.split(), complete, alive }
    }

    pub(super) fn problem(&self) -> &'a Problem {
        self.problem
    }

    pub(super) fn lattice(&self) -> &'a Lattice {
        self.lattice
    }

    /// Lets sets run on every device there is.
    pub(super) fn open_all(&mut self) {
        for digit in &mut self.digits {
            let most = self.upper * digit.replicas_max as f64 / digit.per_speed;
            digit.cutoff_ms = if digit.count == 0 { 0.0 } else { most };
        }
    }

    /// Whether the set, and so perhaps a greater one, could run on some device.
    pub(super) fn bears(&self, frame: &Frame) -> bool {
        self.digits.iter().any(|digit| digit.bears(frame))
    }

    /// Whether the set is below the upper bound on some device.
    pub(super) fn below(&self, frame: &Frame) -> bool {
        (0..self.digits.len()).any(|group| {
            let digit = &self.digits[group];
            let replicas = 1..=digit.replicas_max;
            digit.bears(frame)
                && replicas.into_iter().any(|replicas| self.load(group, frame, replicas) < self.upper)
        })
    }

    fn used(&self, state: usize, group: usize) -> usize {
        let digit = &self.digits[group];
        state / digit.stride % (digit.count + 1)
    }

    /// Lets devices stay unused, and gathers the states worth extending; whether there are any.
    fn open(&mut self, ideal: usize) -> bool {
        let row = ideal * self.states;
        for digit in &mut self.digits {
            digit.open.clear();
            digit.runs.clear();
            digit.least_ms = f64::INFINITY;
        }
        for state in 0..self.states {
            let mut inherited = false;
            for group in 0..self.digits.len() {
                if self.used(state, group) == 0 {
                    continue;
                }
                let fewer = row + state - self.digits[group].stride;
                if self.values[fewer] <= self.values[row + state] {
                    self.values[row + state] = self.values[fewer];
                    self.links[row + state] = self.links[fewer];
                    inherited = true;
                }
            }
            let value = self.values[row + state];
            if inherited || value >= self.upper {
                continue;
            }
            let left_ms = self.left(state);
            // Not a number when an infinite worth meets a zero bound: then nothing is excluded.
            if self.remaining_ms[ideal] > left_ms {
                continue;
            }
            for group in 0..self.digits.len() {
                if self.used(state, group) < self.digits[group].count {
                    let digit = &mut self.digits[group];
                    digit.open.push((state, value));
                    let others_ms = left_ms - digit.rate * self.upper;
                    let least_ms = self.remaining_ms[ideal] - others_ms;
                    let least_ms = if least_ms.is_nan() { 0.0 } else { least_ms };
                    digit.least_ms = digit.least_ms.min(least_ms);
                }
            }
        }
        for digit in &mut self.digits {
            digit.sort();
            let none = digit.open.is_empty();
            let most = self.upper * digit.replicas_max as f64 / digit.per_speed;
            digit.cutoff_ms = if none { 0.0 } else { most };
        }
        self.digits.iter().any(|digit| !digit.open.is_empty())
    }

    /// Accelerator work that the devices which a state leaves can do below the upper bound.
    fn left(&self, state: usize) -> f64 {
        let mut most = 0.0;
        for (group, digit) in self.digits.iter().enumerate() {
            most += share(digit.rate * self.upper, digit.count - self.used(state, group));
        }
        most * (1.0 + 1e-9) + 1e-9
    }

    /// Extends `ideal` by every set; whether the budget lasted.
    fn grow(&mut self, ideal: usize, budget: &mut Budget<'_>) -> bool {
        let mut path = vec![Frame::empty(ideal)];
        let lattice = self.lattice;
        while let Some(top) = path.last_mut() {
            let Some(&(unit, next)) = lattice.steps(top.ideal).get(top.next) else {
                if top.rank.is_some() {
                    let unit = top.unit;
                    self.cut.leave(unit);
                }
                path.pop();
                continue;
            };
            top.next += 1;
            let unit = unit as usize;
            let rank = lattice.rank(unit);
            let mut frame = top.with(unit, next as usize, Some(rank), self.problem);
            if !self.bears(&frame) {
                continue;
            }
            if !budget.spend() {
                return false;
            }
            frame.transfer_ms += self.cut.enter(unit);
            for group in 0..self.digits.len() {
                if self.digits[group].bears(&frame) && frame.work_ms >= self.digits[group].least_ms {
                    self.relax(ideal, &frame, group);
                }
            }
            // Each set is met once, its units in ascending rank.
            let later = lattice.steps(frame.ideal).iter();
            frame.next = later.take_while(|step| lattice.rank(step.0 as usize) <= rank).count();
            path.push(frame);
        }
        true
    }

    fn load(&self, group: usize, frame: &Frame, replicas: usize) -> f64 {
        if replicas > 1 {
            let cost = PartCost {
                accelerator_ms: frame.accelerator_ms,
                cpu_ms: frame.cpu_ms,
                transfer_ms: frame.transfer_ms,
                exchanged_bytes: frame.exchanged_bytes,
                replicas,
            };
            return self.devices.load(group, self.communication, cost);
        }
        let digit = &self.digits[group];
        let time = if digit.accelerates { frame.accelerator_ms } else { frame.cpu_ms };
        self.communication.load(time * digit.per_speed, frame.transfer_ms * digit.per_link)
    }

    /// Puts the set on devices of `group`, replicated as often as there are devices left.
    fn relax(&mut self, from: usize, frame: &Frame, group: usize) {
        let row = frame.ideal * self.states;
        let last = frame.ideal + 1 == self.lattice.len();
        for replicas in 1..=self.digits[group].replicas_max {
            let load = self.load(group, frame, replicas);
            if load >= self.upper {
                continue;
            }
            let link = Link { before: narrow(from), group: short(group), replicas: short(replicas) };
            let digit = &self.digits[group];
            let step = digit.stride * replicas;
            for run in digit.runs.windows(2) {
                for &(state, before) in &digit.open[run[0]..run[1]] {
                    if replicas > 1 && state / digit.stride % (digit.count + 1) + replicas > digit.count {
                        break;
                    }
                    let at = row + state + step;
                    // Nothing further on is lower than the load, and states inherit from those with fewer devices.
                    if self.values[at] <= load {
                        break;
                    }
                    let value = before.max(load);
                    if value < self.values[at] {
                        self.values[at] = value;
                        self.links[at] = link;
                        if last {
                            self.upper = self.upper.min(value);
                        }
                    }
                    if before <= load {
                        break;
                    }
                }
            }
        }
    }

    /// The best of the states of an ideal that use no more devices than `most` does.
    fn best(&self, ideal: usize, most: usize) -> Option<usize> {
        let value = |state: &usize| self.values[ideal * self.states + state];
        let within = |state: &usize| {
            (0..self.digits.len()).all(|group| self.used(*state, group) <= self.used(most, group))
        };
        (0..self.states).filter(within).min_by(|a, b| value(a).total_cmp(&value(b)))
    }

    /// Walks the links back from everything placed.
    fn split(&self) -> Option<Split> {
        let mut ideal = self.lattice.len() - 1;
        let mut state = self.best(ideal, self.states - 1)?;
        let value = self.values[ideal * self.states + state];
        if !value.is_finite() {
            return None;
        }
        let mut parts = Vec::new();
        while ideal != 0 {
            let link = self.links[ideal * self.states + state];
            let (before, group, replicas) =
                (link.before as usize, usize::from(link.group), usize::from(link.replicas));
            let earlier = self.lattice.members(before);
            let mut units = self.lattice.members(ideal);
            units.retain(|unit| earlier.binary_search(unit).is_err());
            parts.push(SplitPart { group, replicas, units });
            let used = self.digits[group].stride.checked_mul(replicas)?;
            state = self.best(before, state.checked_sub(used)?)?;
            ideal = before;
        }
        parts.reverse();
        Some(Split { value, parts })
    }
}

/// Numbers of ideals; memory bounds them far below 2^32.
fn narrow(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Numbers of groups and replicas; devices have bounds far below 2^16.
fn short(number: usize) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}
