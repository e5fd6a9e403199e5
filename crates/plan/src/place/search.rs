//! The dynamic program over a lattice: for every ideal and every number of devices used, the least greatest load.
//!
//! ```text
//! ideal J, devices used ──add a set S──▶ ideal J ∪ S, one device more, greatest load = max(before, load of S)
//! ```
//!
//! Ideals are taken in ascending order, so a row is final when it is read. Sets are grown unit by unit in ascending
//! rank, which meets each set once; their transfers are kept up to date on the way. What cannot lead below the upper
//! bound is not followed.

use super::lattice::Lattice;
use super::problem::Problem;
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

    /// Counts one set; whether it may be looked at.
    fn spend(&mut self) -> bool {
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
    pub parts: Vec<(Kind, Vec<usize>)>,
}

impl Split {
    /// The split with each block replaced by its units.
    pub(super) fn expanded(mut self, blocks: &[Vec<usize>]) -> Self {
        for (_, units) in &mut self.parts {
            *units = units.iter().flat_map(|&block| blocks[block].iter().copied()).collect();
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
    kind: Kind,
}

/// One set that is being grown: everything about it but which units it holds.
struct Frame {
    ideal: usize,
    /// The step to try next.
    next: usize,
    /// Rank below which nothing may be added.
    rank: Option<u32>,
    unit: usize,
    accelerator_ms: f64,
    cpu_ms: f64,
    resident_bytes: u64,
    transfer_ms: f64,
}

pub(super) struct Search<'a> {
    problem: &'a Problem,
    lattice: &'a Lattice,
    devices: Devices,
    communication: Communication,
    /// Only splits below this are of use.
    upper: f64,
    /// No split is below this.
    floor: f64,
    values: Vec<f64>,
    links: Vec<Link>,
    /// Accelerator time of what is not in an ideal.
    remaining_ms: Vec<f64>,
    /// Greatest quotient of a unit's accelerator time by its CPU time.
    cpu_worth: f64,
    /// Units of a net's consumers that are in the set.
    inside: Vec<usize>,
    member: Vec<bool>,
    /// States of the ideal at hand that can be extended by an accelerator, and by a CPU.
    by_accelerator: Vec<(usize, f64)>,
    by_cpu: Vec<(usize, f64)>,
}

impl<'a> Search<'a> {
    pub(super) fn new(
        problem: &'a Problem,
        lattice: &'a Lattice,
        devices: Devices,
        communication: Communication,
        upper: f64,
        floor: f64,
    ) -> Self {
        let states = (devices.accelerators + 1) * (devices.cpus + 1);
        let mut values = vec![f64::INFINITY; states * lattice.len()];
        values[0] = 0.0;
        let finite = |ms: f64| if ms.is_finite() { ms } else { 0.0 };
        let total: f64 = problem.units.iter().map(|unit| finite(unit.accelerator_ms)).sum();
        let mut remaining_ms = vec![total; lattice.len()];
        for ideal in 1..lattice.len() {
            let (unit, before) = lattice.made(ideal);
            remaining_ms[ideal] = remaining_ms[before] - finite(problem.units[unit].accelerator_ms);
        }
        let worth = |unit: &super::problem::Unit| {
            if unit.accelerator_ms > 0.0 { finite(unit.accelerator_ms) / unit.cpu_ms } else { 0.0 }
        };
        Self {
            values,
            links: vec![Link { before: 0, kind: Kind::Cpu }; states * lattice.len()],
            remaining_ms,
            cpu_worth: problem.units.iter().map(worth).fold(0.0, f64::max),
            inside: vec![0; problem.nets.len()],
            member: vec![false; problem.units.len()],
            by_accelerator: Vec::new(),
            by_cpu: Vec::new(),
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

    fn width(&self) -> usize {
        self.devices.accelerators + 1
    }

    fn states(&self) -> usize {
        self.width() * (self.devices.cpus + 1)
    }

    /// Lets devices stay unused, and gathers the states worth extending; whether there are any.
    fn open(&mut self, ideal: usize) -> bool {
        let (width, row) = (self.width(), ideal * self.states());
        self.by_accelerator.clear();
        self.by_cpu.clear();
        for state in 0..self.states() {
            let (cpus, accelerators) = (state / width, state % width);
            let mut inherited = false;
            for (from, there) in [(1, accelerators > 0), (width, cpus > 0)] {
                if there && self.values[row + state - from] <= self.values[row + state] {
                    self.values[row + state] = self.values[row + state - from];
                    self.links[row + state] = self.links[row + state - from];
                    inherited = true;
                }
            }
            let value = self.values[row + state];
            let accelerators_left = self.devices.accelerators - accelerators;
            let cpus_left = self.devices.cpus - cpus;
            if inherited || value >= self.upper || !self.reachable(ideal, accelerators_left, cpus_left) {
                continue;
            }
            if accelerators_left > 0 {
                self.by_accelerator.push((state, value));
            }
            if cpus_left > 0 {
                self.by_cpu.push((state, value));
            }
        }
        !(self.by_accelerator.is_empty() && self.by_cpu.is_empty())
    }

    /// Whether what remains could be done below the upper bound by so many devices.
    fn reachable(&self, ideal: usize, accelerators: usize, cpus: usize) -> bool {
        let host = if cpus == 0 { 0.0 } else { cpus as f64 * self.upper * self.cpu_worth };
        let most = accelerators as f64 * self.upper + host;
        // Not a number when an infinite worth meets a zero bound: then nothing is excluded.
        let excluded = self.remaining_ms[ideal] > most * (1.0 + 1e-9) + 1e-9;
        !excluded
    }

    /// Extends `ideal` by every set; whether the budget lasted.
    fn grow(&mut self, ideal: usize, budget: &mut Budget<'_>) -> bool {
        let mut path = vec![Frame {
            ideal,
            next: 0,
            rank: None,
            unit: 0,
            accelerator_ms: 0.0,
            cpu_ms: 0.0,
            resident_bytes: 0,
            transfer_ms: 0.0,
        }];
        let lattice = self.lattice;
        while let Some(top) = path.last_mut() {
            let Some(&(unit, next)) = lattice.steps(top.ideal).get(top.next) else {
                if top.rank.is_some() {
                    let unit = top.unit;
                    self.leave(unit);
                }
                path.pop();
                continue;
            };
            top.next += 1;
            let unit = unit as usize;
            let rank = Some(lattice.rank(unit));
            if rank <= top.rank {
                continue;
            }
            let costs = &self.problem.units[unit];
            let mut frame = Frame {
                ideal: next as usize,
                next: 0,
                rank,
                unit,
                accelerator_ms: top.accelerator_ms + costs.accelerator_ms,
                cpu_ms: top.cpu_ms + costs.cpu_ms,
                resident_bytes: top.resident_bytes.saturating_add(costs.resident_bytes),
                transfer_ms: top.transfer_ms,
            };
            let on_accelerator = !self.by_accelerator.is_empty()
                && frame.accelerator_ms < self.upper
                && frame.resident_bytes <= self.devices.memory_bytes;
            let on_cpu = !self.by_cpu.is_empty() && frame.cpu_ms < self.upper;
            if !on_accelerator && !on_cpu {
                continue;
            }
            if !budget.spend() {
                return false;
            }
            frame.transfer_ms += self.enter(unit);
            if on_accelerator {
                let load = self.communication.load(frame.accelerator_ms, frame.transfer_ms);
                self.relax(ideal, frame.ideal, Kind::Accelerator, load);
            }
            if on_cpu {
                self.relax(ideal, frame.ideal, Kind::Cpu, frame.cpu_ms);
            }
            path.push(frame);
        }
        true
    }

    /// Adds a unit to the set; what its transfers grow by.
    fn enter(&mut self, unit: usize) -> f64 {
        let problem = self.problem;
        let mut more = 0.0;
        for &net in &problem.sourced[unit] {
            let before = self.inside[net] > 0;
            let after = self.inside[net] < problem.nets[net].consumers;
            match (before, after) {
                (false, true) => more += problem.nets[net].transfer_ms,
                (true, false) => more -= problem.nets[net].transfer_ms,
                _ => {}
            }
        }
        for &(net, source) in &problem.consumed[unit] {
            self.inside[net] += 1;
            if self.member[source] {
                if self.inside[net] == problem.nets[net].consumers {
                    more -= problem.nets[net].transfer_ms;
                }
            } else if self.inside[net] == 1 {
                more += problem.nets[net].transfer_ms;
            }
        }
        self.member[unit] = true;
        more
    }

    fn leave(&mut self, unit: usize) {
        for &(net, _) in &self.problem.consumed[unit] {
            self.inside[net] -= 1;
        }
        self.member[unit] = false;
    }

    fn relax(&mut self, from: usize, to: usize, kind: Kind, load: f64) {
        if load >= self.upper {
            return;
        }
        let width = self.width();
        let (extended, step) = match kind {
            Kind::Accelerator => (&self.by_accelerator, 1),
            Kind::Cpu => (&self.by_cpu, width),
        };
        let row = to * (width * (self.devices.cpus + 1));
        for &(state, before) in extended {
            let value = before.max(load);
            if value < self.values[row + state + step] {
                self.values[row + state + step] = value;
                self.links[row + state + step] =
                    Link { before: u32::try_from(from).unwrap_or(u32::MAX), kind };
                if to + 1 == self.lattice.len() {
                    self.upper = self.upper.min(value);
                }
            }
        }
    }

    /// Walks the links back from everything placed.
    fn split(&self) -> Option<Split> {
        let (width, states) = (self.width(), self.states());
        let last = self.lattice.len() - 1;
        let best = |ideal: usize, cpus: usize, accelerators: usize| {
            let within = (0..states).filter(|state| state / width <= cpus && state % width <= accelerators);
            within
                .min_by(|&a, &b| self.values[ideal * states + a].total_cmp(&self.values[ideal * states + b]))
        };
        let mut state = best(last, self.devices.cpus, self.devices.accelerators)?;
        let value = self.values[last * states + state];
        if !value.is_finite() {
            return None;
        }
        let mut parts = Vec::new();
        let mut ideal = last;
        while ideal != 0 {
            let link = self.links[ideal * states + state];
            let before = link.before as usize;
            let earlier = self.lattice.members(before);
            let mut units = self.lattice.members(ideal);
            units.retain(|unit| earlier.binary_search(unit).is_err());
            parts.push((link.kind, units));
            let (cpus, accelerators) = (state / width, state % width);
            state = match link.kind {
                Kind::Accelerator => best(before, cpus, accelerators.checked_sub(1)?)?,
                Kind::Cpu => best(before, cpus.checked_sub(1)?, accelerators)?,
            };
            ideal = before;
        }
        parts.reverse();
        Some(Split { value, parts })
    }
}

impl Communication {
    /// The load of an accelerator that computes and transfers so long.
    pub(super) fn load(self, compute_ms: f64, transfer_ms: f64) -> f64 {
        match self {
            Self::Serial => compute_ms + transfer_ms,
            Self::Overlapped => compute_ms.max(transfer_ms),
        }
    }
}
