//! Whether there is a contiguous split below a value: for every ideal, the numbers of devices that can finish what is left.
//!
//! ```text
//! everything ◀─set on a device─ ideal ◀─ … ◀─ nothing          ideals in descending order, one bit a number of devices
//! ```
//!
//! An ideal is done as soon as every number of devices that could matter finishes it, so most ideals are left early; and
//! what a set transfers is worked out only where it decides something. Without replication, and while the numbers of
//! devices fit a word. [`super::search`] finds values; this proves them, or finds a split that is better.

#[cfg(test)]
mod tests;

use super::cut::Cut;
use super::lattice::{Lattice, bits};
use super::problem::{Problem, share};
use super::search::{Budget, Split, SplitPart, states};
use super::{Communication, Devices};
use crate::operators::Kind;

/// Finished ideals that are tried one by one; sets are grown when there are more.
const KNOWN_MAX: usize = 512;

/// A load that is closer to a value than this part of it is not below it: sums differ in their last digits with their order.
const NEAR: f64 = 1e-13;

/// What was decided.
pub(super) enum Decision {
    /// No split is below the value.
    None,
    /// A split below it.
    Better(Split),
    /// The budget ended first, or the devices are of a kind that is not decided here.
    Open,
}

/// A group of devices; numbers of devices left are digits of a state, as in the search.
struct Digit {
    group: usize,
    stride: usize,
    /// States that leave at least one device of the group unused, and so can have one more.
    extensible: u64,
    count: usize,
    accelerates: bool,
    per_speed: f64,
    per_link: f64,
    memory_bytes: u64,
    /// Time of a set on a device as the graph has it, not below which it is of no use.
    cutoff_ms: f64,
    /// The most accelerator work that one device does.
    most_ms: f64,
}

#[derive(Clone, Copy)]
struct Costs {
    accelerator_ms: f64,
    cpu_ms: f64,
    resident_bytes: u64,
}

impl Costs {
    const NONE: Self = Self { accelerator_ms: 0.0, cpu_ms: 0.0, resident_bytes: 0 };

    fn with(self, more: Self) -> Self {
        Self {
            accelerator_ms: self.accelerator_ms + more.accelerator_ms,
            cpu_ms: self.cpu_ms + more.cpu_ms,
            resident_bytes: self.resident_bytes.saturating_add(more.resident_bytes),
        }
    }
}

impl Digit {
    /// States with one device more.
    fn extended(&self, states: u64) -> u64 {
        (states & self.extensible) << self.stride
    }

    /// Whether a set, and so perhaps a greater one, could run on a device of the group.
    fn bears(&self, costs: Costs) -> bool {
        let time = if self.accelerates { costs.accelerator_ms } else { costs.cpu_ms };
        time < self.cutoff_ms && costs.resident_bytes <= self.memory_bytes
    }
}

/// One set that is being grown.
#[derive(Clone, Copy)]
struct Frame {
    ideal: u32,
    /// The step to try next.
    next: u32,
    unit: u32,
    costs: Costs,
    transfer_ms: f64,
}

struct Decider<'a> {
    lattice: &'a Lattice,
    communication: Communication,
    upper: f64,
    digits: Vec<Digit>,
    costs: Vec<Costs>,
    cut: Cut,
    /// For each ideal, the accelerator work of what is in it.
    done_ms: Vec<f64>,
    /// For each ideal, the states (devices left) that finish it and could matter.
    finishing: Vec<u64>,
    /// Ideals that some state finishes, and their members, while they are few.
    known_max: usize,
    known: Vec<usize>,
    known_members: Vec<u64>,
    path: Vec<Frame>,
    /// How many frames of the path, from its beginning, are in the cut.
    entered: usize,
}

/// Whether there is a split below `upper`.
pub(super) fn decide(
    problem: &Problem,
    lattice: &Lattice,
    means: (&Devices, Communication),
    upper: f64,
    budget: &mut Budget<'_>,
) -> Decision {
    decide_by(problem, lattice, means, (upper, KNOWN_MAX), budget)
}

fn decide_by(
    problem: &Problem,
    lattice: &Lattice,
    (devices, communication): (&Devices, Communication),
    (upper, known_max): (f64, usize),
    budget: &mut Budget<'_>,
) -> Decision {
    let replicated = (0..devices.groups.len()).any(|group| devices.replicas_max(group) > 1);
    let Some(states) = states(devices).filter(|&states| states <= 64 && !replicated && upper.is_finite())
    else {
        return Decision::Open;
    };
    let done_ms = done(problem, lattice);
    let useful = useful(problem, &done_ms, devices, upper, states);
    let mut decider = Decider::new(problem, lattice, devices, communication, upper * (1.0 - NEAR));
    decider.done_ms.clone_from(&done_ms);
    decider.known_max = known_max;
    // The least work that is done in an ideal which a state finishes.
    let mut earliest_ms = vec![f64::INFINITY; states];
    for ideal in (0..lattice.len()).rev() {
        let wanted = useful[ideal] & decider.reached(done_ms[ideal], &earliest_ms);
        if ideal + 1 == lattice.len() {
            decider.finishing[ideal] = useful[ideal];
        } else if wanted != 0 && !decider.finish(ideal, wanted, budget) {
            return Decision::Open;
        }
        decider.remember(ideal);
        for (state, earliest_ms) in earliest_ms.iter_mut().enumerate() {
            if decider.finishing[ideal] >> state & 1 == 1 {
                *earliest_ms = earliest_ms.min(done_ms[ideal]);
            }
        }
    }
    let all = 1u64 << (states - 1);
    if decider.finishing[0] & all == 0 {
        return Decision::None;
    }
    match decider.split(states - 1, budget) {
        Some(split) => Decision::Better(split),
        None => Decision::Open,
    }
}

/// Accelerator work of what is in each ideal.
fn done(problem: &Problem, lattice: &Lattice) -> Vec<f64> {
    let mut done_ms = vec![0.0; lattice.len()];
    for ideal in 1..lattice.len() {
        let (unit, before) = lattice.made(ideal);
        done_ms[ideal] = done_ms[before] + problem.units[unit].work_ms();
    }
    done_ms
}

/// For each ideal, the states (devices left) that can do what is left, while the others can have done what is not.
fn useful(problem: &Problem, done_ms: &[f64], devices: &Devices, upper: f64, states: usize) -> Vec<u64> {
    let rates = problem.rates(devices);
    let mut capacity = Vec::with_capacity(states);
    for state in 0..states {
        let (mut left, mut gone, mut digit) = (0.0, 0.0, state);
        for (group, rate) in devices.groups.iter().zip(&rates) {
            let unused = digit % (group.count + 1);
            digit /= group.count + 1;
            left += share(rate * upper, unused);
            gone += share(rate * upper, group.count - unused);
        }
        capacity.push((roomy(left), roomy(gone)));
    }
    let total = problem.units.iter().map(super::problem::Unit::work_ms).sum::<f64>();
    let mask = |done: &f64| {
        // What is not a number excludes nothing.
        let short = |&(left, gone): &(f64, f64)| total - done > left || *done > gone;
        capacity
            .iter()
            .enumerate()
            .fold(0, |mask, (state, capacity)| mask | u64::from(!short(capacity)) << state)
    };
    done_ms.iter().map(mask).collect()
}

/// A bound, and what rounding may add to a sum.
fn roomy(most: f64) -> f64 {
    most * (1.0 + 1e-9) + 1e-9
}

impl<'a> Decider<'a> {
    fn new(
        problem: &'a Problem,
        lattice: &'a Lattice,
        devices: &Devices,
        communication: Communication,
        upper: f64,
    ) -> Self {
        let mut digits = Vec::new();
        let mut stride = 1;
        let states = states(devices).unwrap_or(1);
        let rates = problem.rates(devices);
        for (number, group) in devices.groups.iter().enumerate() {
            let accelerates = group.kind == Kind::Accelerator;
            let more = |state: &usize| state / stride % (group.count + 1) < group.count;
            if group.count > 0 {
                digits.push(Digit {
                    group: number,
                    stride,
                    extensible: (0..states).filter(more).fold(0, |mask, state| mask | 1 << state),
                    count: group.count,
                    accelerates,
                    per_speed: 1.0 / group.speed,
                    per_link: if accelerates { 1.0 / group.link } else { 0.0 },
                    memory_bytes: group.memory_bytes.unwrap_or(u64::MAX),
                    cutoff_ms: upper * group.speed,
                    most_ms: roomy(upper * rates[number]),
                });
            }
            stride *= group.count + 1;
        }
        let costs = |unit: &super::problem::Unit| Costs {
            accelerator_ms: unit.accelerator_ms,
            cpu_ms: unit.cpu_ms,
            resident_bytes: unit.resident_bytes,
        };
        Self {
            lattice,
            communication,
            upper,
            digits,
            costs: problem.units.iter().map(costs).collect(),
            cut: Cut::new(problem),
            done_ms: Vec::new(),
            finishing: vec![0; lattice.len()],
            known_max: 0,
            known: Vec::new(),
            known_members: Vec::new(),
            path: Vec::new(),
            entered: 0,
        }
    }

    /// Notes an ideal that some state finishes, while there are few.
    fn remember(&mut self, ideal: usize) {
        if self.finishing[ideal] != 0 && self.known.len() <= self.known_max {
            self.known.push(ideal);
            let members = self.members(ideal);
            self.known_members.extend(members);
        }
    }

    fn members(&self, ideal: usize) -> Vec<u64> {
        let mut members = vec![0u64; self.costs.len().div_ceil(64)];
        let mut at = ideal;
        while at != 0 {
            let (unit, before) = self.lattice.made(at);
            members[unit / 64] |= 1 << (unit % 64);
            at = before;
        }
        members
    }

    /// Finds the states that finish `ideal`, of those that are useful; whether the budget lasted.
    fn finish(&mut self, ideal: usize, useful: u64, budget: &mut Budget<'_>) -> bool {
        if self.known.len() <= self.known_max {
            return self.try_known(ideal, useful, budget);
        }
        let mut found = 0u64;
        self.start(ideal);
        while found != useful {
            match self.step(budget) {
                Step::End => break,
                Step::Budget => return false,
                Step::Set(next) => {
                    let finishing = self.finishing[next];
                    if self.extended(finishing) & useful & !found != 0 {
                        let transfer_ms = self.transfers();
                        let costs = self.path.last().map_or(Costs::NONE, |frame| frame.costs);
                        found = self.more(finishing, costs, transfer_ms, (useful, found));
                    }
                }
            }
        }
        self.finishing[ideal] = found;
        self.clear();
        true
    }

    /// As [`Self::finish`], by trying the sets that lead to the few ideals known to be finished.
    fn try_known(&mut self, ideal: usize, useful: u64, budget: &mut Budget<'_>) -> bool {
        let members = self.members(ideal);
        let mut found = 0u64;
        let mut set = Vec::new();
        for at in 0..self.known.len() {
            let finishing = self.finishing[self.known[at]];
            let greater = &self.known_members[at * members.len()..(at + 1) * members.len()];
            let far = self.done_ms[self.known[at]] - self.done_ms[ideal];
            let able = |digit: &&Digit| far <= digit.most_ms || far.is_nan();
            let led = self.digits.iter().filter(able).fold(0, |all, digit| all | digit.extended(finishing));
            if led & useful & !found == 0
                || members.iter().zip(greater).any(|(own, greater)| own & !greater != 0)
            {
                continue;
            }
            if !budget.spend() {
                return false;
            }
            set.clear();
            set.extend(greater.iter().zip(&members).map(|(greater, own)| greater & !own));
            let costs = bits(set.iter().copied()).fold(Costs::NONE, |sum, unit| sum.with(self.costs[unit]));
            let able = self.digits.iter().filter(|digit| digit.bears(costs));
            let most = able.map(|digit| self.most_transfer(digit, costs)).fold(f64::NEG_INFINITY, f64::max);
            if most >= 0.0 {
                found = self.more(finishing, costs, self.cut.of(&set, most), (useful, found));
            }
            if found == useful {
                break;
            }
        }
        self.finishing[ideal] = found;
        true
    }

    /// What is found, and the useful states that put a set on one device more than those that finish what follows.
    fn more(&self, finishing: u64, costs: Costs, transfer_ms: f64, (useful, mut found): (u64, u64)) -> u64 {
        for digit in &self.digits {
            let more = digit.extended(finishing) & useful & !found;
            if more != 0 && self.load(digit, costs, transfer_ms) < self.upper {
                found = self.closed(found | more) & useful;
            }
        }
        found
    }

    /// States that could finish an ideal with so much work done: one device leads on to an ideal that the rest finishes.
    fn reached(&self, done_ms: f64, earliest_ms: &[f64]) -> u64 {
        let mut reached = 0u64;
        for digit in &self.digits {
            let from = (0..earliest_ms.len()).filter(|&state| {
                // What is not a number excludes nothing.
                let far = earliest_ms[state] > done_ms + digit.most_ms;
                digit.extensible >> state & 1 == 1 && !far && earliest_ms[state] < f64::INFINITY
            });
            reached |= from.fold(0, |mask, state| mask | 1 << (state + digit.stride));
        }
        self.closed(reached)
    }

    /// States with one device more, of any group.
    fn extended(&self, states: u64) -> u64 {
        self.digits.iter().fold(0, |all, digit| all | digit.extended(states))
    }

    /// The states, and all with more devices.
    fn closed(&self, mut states: u64) -> u64 {
        for digit in &self.digits {
            for _ in 0..digit.count {
                states |= digit.extended(states);
            }
        }
        states
    }

    fn load(&self, digit: &Digit, costs: Costs, transfer_ms: f64) -> f64 {
        if costs.resident_bytes > digit.memory_bytes {
            return f64::INFINITY;
        }
        let time = if digit.accelerates { costs.accelerator_ms } else { costs.cpu_ms };
        self.communication.load(time * digit.per_speed, transfer_ms * digit.per_link)
    }

    /// The most that a set could transfer if it is to be below the upper bound; a little more does not matter.
    fn most_transfer(&self, digit: &Digit, costs: Costs) -> f64 {
        let time = if digit.accelerates { costs.accelerator_ms } else { costs.cpu_ms };
        let left = match self.communication {
            Communication::Serial => self.upper - time * digit.per_speed,
            Communication::Overlapped => self.upper,
        };
        if digit.per_link > 0.0 { roomy(left / digit.per_link) } else { f64::INFINITY }
    }

    fn start(&mut self, ideal: usize) {
        let costs = Costs::NONE;
        let ideal = u32::try_from(ideal).unwrap_or(u32::MAX);
        self.path.clear();
        self.path.push(Frame { ideal, next: 0, unit: 0, costs, transfer_ms: 0.0 });
        self.entered = 1;
    }

    /// Goes on to the next set that could run on some device; it is the path's last.
    fn step(&mut self, budget: &mut Budget<'_>) -> Step {
        while let Some(top) = self.path.last_mut() {
            let Some(&(unit, next)) = self.lattice.steps(top.ideal as usize).get(top.next as usize) else {
                self.back();
                continue;
            };
            top.next += 1;
            // Each set is met once, its units in ascending order.
            let top = *top;
            if unit < top.unit {
                continue;
            }
            let costs = top.costs.with(self.costs[unit as usize]);
            if !self.digits.iter().any(|digit| digit.bears(costs)) {
                continue;
            }
            if !budget.spend() {
                return Step::Budget;
            }
            self.path.push(Frame { ideal: next, next: 0, unit, costs, transfer_ms: 0.0 });
            return Step::Set(next as usize);
        }
        Step::End
    }

    fn back(&mut self) {
        if let Some(frame) = self.path.pop()
            && self.entered > self.path.len()
        {
            self.entered = self.path.len();
            if self.entered > 0 {
                self.cut.leave(frame.unit as usize);
            }
        }
    }

    fn clear(&mut self) {
        while !self.path.is_empty() {
            self.back();
        }
    }

    /// What the set at the path's end transfers.
    fn transfers(&mut self) -> f64 {
        while self.entered < self.path.len() {
            let before = self.path[self.entered - 1].transfer_ms;
            let frame = &mut self.path[self.entered];
            frame.transfer_ms = before + self.cut.enter(frame.unit as usize);
            self.entered += 1;
        }
        self.path.last().map_or(0.0, |frame| frame.transfer_ms)
    }

    /// Walks from nothing to everything along sets that are below the upper bound.
    fn split(&mut self, mut state: usize, budget: &mut Budget<'_>) -> Option<Split> {
        let mut split = Split { value: 0.0, parts: Vec::new() };
        let mut ideal = 0;
        while ideal + 1 != self.lattice.len() {
            self.start(ideal);
            loop {
                let Step::Set(next) = self.step(budget) else { return None };
                let finishing = self.finishing[next];
                let transfer_ms = self.transfers();
                let costs = self.path.last().map_or(Costs::NONE, |frame| frame.costs);
                let fitting = self.digits.iter().find(|digit| {
                    let left = state / digit.stride % (digit.count + 1);
                    left > 0
                        && finishing >> (state - digit.stride) & 1 == 1
                        && self.load(digit, costs, transfer_ms) < self.upper
                });
                let Some(digit) = fitting else { continue };
                split.value = split.value.max(self.load(digit, costs, transfer_ms));
                state -= digit.stride;
                let mut units: Vec<usize> = self.path[1..].iter().map(|frame| frame.unit as usize).collect();
                units.sort_unstable();
                split.parts.push(SplitPart { group: digit.group, replicas: 1, units });
                ideal = next;
                break;
            }
            self.clear();
        }
        Some(split)
    }
}

enum Step {
    /// A set leads to this ideal.
    Set(usize),
    End,
    Budget,
}
