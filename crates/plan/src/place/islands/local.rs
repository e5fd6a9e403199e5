//! Local search: units, alone or with neighbours, move between devices; worse states are accepted ever more seldom.
//!
//! A move changes the load of two devices only, since what a device pays for a net depends on its own units alone.

use super::super::problem::Problem;
use super::super::search::Split;
use super::super::{Communication, Devices, Group, Limits};
use crate::operators::{Kind, adjacency};
use vocab::Rng;

/// Moves between two questions whether to stop.
const MOVES_PER_CHECK: u64 = 1 << 10;

/// The power of the loads whose sum is made small: enough that the greatest counts most, and others a little.
const POWER: i32 = 12;

/// Times the search is warmed up, each time from the best so far.
const ROUNDS: u64 = 8;

/// How much worse a state may be with even chance, as a part of the greatest load's own weight, first and last.
const WARM: f64 = 0.4;
const COLD: f64 = 0.004;

/// Most units that move together, as a power of two.
const TOGETHER_LOG: u64 = 5;

/// What one device does.
#[derive(Clone, Copy, Debug, Default)]
struct Doing {
    compute_ms: f64,
    transfer_ms: f64,
    resident_bytes: u64,
}

/// Units on devices.
pub(super) struct Assignment<'a> {
    problem: &'a Problem,
    communication: Communication,
    /// The group of each device; devices are numbered group by group.
    groups: Vec<Group>,
    /// The first device of each group.
    starts: Vec<usize>,
    device_of: Vec<usize>,
    doing: Vec<Doing>,
    /// Units of each net on each device, net by net.
    pins: Vec<u32>,
    /// Nets that touch a unit, and how many units each net touches.
    nets_of: Vec<Vec<usize>>,
    ends: Vec<u32>,
    neighbours: Vec<Vec<usize>>,
}

impl<'a> Assignment<'a> {
    /// Everything on the first device that can run it.
    pub(super) fn new(problem: &'a Problem, devices: &Devices, communication: Communication) -> Self {
        let groups: Vec<Group> =
            devices.groups.iter().flat_map(|group| std::iter::repeat_n(*group, group.count)).collect();
        let mut starts = Vec::with_capacity(devices.groups.len());
        let mut next = 0;
        for group in &devices.groups {
            starts.push(next);
            next += group.count;
        }
        let mut ends = vec![0; problem.nets.len()];
        let mut nets_of = Vec::with_capacity(problem.units.len());
        let mut pairs = Vec::new();
        for unit in 0..problem.units.len() {
            let consumed = problem.consumed[unit].iter().map(|&(net, _)| net);
            let nets: Vec<usize> = problem.sourced[unit].iter().copied().chain(consumed).collect();
            for &net in &nets {
                ends[net] += 1;
            }
            nets_of.push(nets);
            for &(_, source) in &problem.consumed[unit] {
                pairs.extend([(unit, source), (source, unit)]);
            }
        }
        pairs.sort_unstable();
        pairs.dedup();
        let mut assignment = Self {
            problem,
            communication,
            device_of: Vec::new(),
            doing: Vec::new(),
            pins: Vec::new(),
            neighbours: adjacency(problem.units.len(), pairs.into_iter()),
            nets_of,
            ends,
            groups,
            starts,
        };
        assignment.device_of =
            (0..problem.units.len()).map(|unit| assignment.hosts(unit).next().unwrap_or(0)).collect();
        assignment.count();
        assignment
    }

    /// As a split has it.
    pub(super) fn follow(&mut self, split: &Split) {
        let mut next = self.starts.clone();
        for part in &split.parts {
            for &unit in &part.units {
                self.device_of[unit] = next[part.group];
            }
            next[part.group] += 1;
        }
        self.count();
    }

    /// As given: the device of each unit.
    pub(super) fn set(&mut self, device_of: &[usize]) {
        self.device_of.copy_from_slice(device_of);
        self.count();
    }

    /// The value and the device of each unit, when everything fits.
    pub(super) fn best(&self) -> Option<(f64, Vec<usize>)> {
        self.fits().then(|| (self.value(), self.device_of.clone()))
    }

    /// The largest units first, each where most memory is free.
    pub(super) fn pack(&mut self) {
        let mut order: Vec<usize> = (0..self.problem.units.len()).collect();
        let bytes = |unit: &usize| self.problem.units[*unit].resident_bytes;
        order.sort_by(|a, b| bytes(b).cmp(&bytes(a)).then(a.cmp(b)));
        let mut free: Vec<i128> = self
            .groups
            .iter()
            .map(|group| group.memory_bytes.map_or(i128::from(u64::MAX), i128::from))
            .collect();
        for unit in order {
            if let Some(device) = self.hosts(unit).max_by_key(|&device| (free[device], usize::MAX - device)) {
                free[device] -= i128::from(self.problem.units[unit].resident_bytes);
                self.device_of[unit] = device;
            }
        }
        self.count();
    }

    /// Devices that can run a unit, whatever else they hold.
    fn hosts(&self, unit: usize) -> impl Iterator<Item = usize> + '_ {
        (0..self.groups.len()).filter(move |&device| self.runs(unit, device))
    }

    fn runs(&self, unit: usize, device: usize) -> bool {
        let costs = &self.problem.units[unit];
        let group = &self.groups[device];
        group.time(costs.accelerator_ms, costs.cpu_ms).is_finite() && group.fits(costs.resident_bytes)
    }

    /// Counts everything from `device_of`.
    fn count(&mut self) {
        let devices = self.groups.len();
        self.doing = vec![Doing::default(); devices];
        self.pins = vec![0; devices * self.ends.len()];
        for unit in 0..self.device_of.len() {
            let (device, costs) = (self.device_of[unit], &self.problem.units[unit]);
            let doing = &mut self.doing[device];
            doing.compute_ms += self.groups[device].time(costs.accelerator_ms, costs.cpu_ms);
            doing.resident_bytes = doing.resident_bytes.saturating_add(costs.resident_bytes);
            for &net in &self.nets_of[unit] {
                self.pins[net * devices + device] += 1;
            }
        }
        for (net, &ends) in self.ends.iter().enumerate() {
            for device in 0..devices {
                let pins = self.pins[net * devices + device];
                if pins > 0 && pins < ends {
                    self.doing[device].transfer_ms += self.problem.nets[net].transfer_ms;
                }
            }
        }
    }

    /// Moves a unit.
    fn shift(&mut self, unit: usize, to: usize) {
        let from = std::mem::replace(&mut self.device_of[unit], to);
        let devices = self.groups.len();
        let costs = &self.problem.units[unit];
        let (mut less, mut more) = (0.0, 0.0);
        for &net in &self.nets_of[unit] {
            let ends = self.ends[net];
            let transfer_ms = self.problem.nets[net].transfer_ms;
            let there = &mut self.pins[net * devices + from];
            if *there == ends {
                less -= transfer_ms;
            }
            *there -= 1;
            if *there == 0 {
                less += transfer_ms;
            }
            let here = &mut self.pins[net * devices + to];
            if *here == 0 {
                more += transfer_ms;
            }
            *here += 1;
            if *here == ends {
                more -= transfer_ms;
            }
        }
        self.doing[from].transfer_ms -= less;
        self.doing[to].transfer_ms += more;
        let bytes = costs.resident_bytes;
        self.doing[from].compute_ms -= self.groups[from].time(costs.accelerator_ms, costs.cpu_ms);
        self.doing[to].compute_ms += self.groups[to].time(costs.accelerator_ms, costs.cpu_ms);
        self.doing[from].resident_bytes = self.doing[from].resident_bytes.saturating_sub(bytes);
        self.doing[to].resident_bytes = self.doing[to].resident_bytes.saturating_add(bytes);
    }

    fn load(&self, device: usize) -> f64 {
        let (group, doing) = (&self.groups[device], &self.doing[device]);
        let transfer_ms = if group.kind == Kind::Cpu { 0.0 } else { doing.transfer_ms / group.link };
        self.communication.load(doing.compute_ms, transfer_ms)
    }

    fn fits(&self) -> bool {
        self.groups.iter().zip(&self.doing).all(|(group, doing)| group.fits(doing.resident_bytes))
    }

    fn value(&self) -> f64 {
        (0..self.groups.len()).map(|device| self.load(device)).fold(0.0, f64::max)
    }

    /// What a device adds to the sum that is made small; memory that is not there counts as time.
    fn weight(&self, device: usize, scale: f64) -> f64 {
        let over = self.groups[device].memory_bytes.map_or(0.0, |memory| {
            let bytes = self.doing[device].resident_bytes;
            if bytes > memory { 1.0 + (bytes - memory) as f64 / memory.max(1) as f64 } else { 0.0 }
        });
        (self.load(device) / scale + over).powi(POWER)
    }

    /// Searches for lower values, down to `floor`; the value and the devices of the best state that fits, if
    /// one was met.
    pub(super) fn improve(
        &mut self,
        floor: f64,
        (seed, moves_max): (u64, u64),
        limits: Limits<'_>,
    ) -> Option<(f64, Vec<usize>)> {
        let mut best = self.best();
        let count = self.problem.units.len() as u64;
        let mut rng = Rng::new(seed);
        let per_round = moves_max / ROUNDS;
        if self.groups.len() < 2 || per_round == 0 {
            return best;
        }
        for _ in 0..ROUNDS {
            if let Some((_, device_of)) = &best {
                self.device_of.clone_from(device_of);
            }
            self.count();
            let scale = best.as_ref().map_or_else(|| self.value(), |best| best.0).max(f64::MIN_POSITIVE);
            let mut warmth = WARM;
            for step in 0..per_round {
                if step.is_multiple_of(MOVES_PER_CHECK) {
                    let met = best.as_ref().is_some_and(|best| best.0 <= floor * (1.0 + 1e-9));
                    if met || (limits.stop)() {
                        return best;
                    }
                    warmth = WARM * (COLD / WARM).powf(step as f64 / per_round as f64);
                }
                let unit = index(rng.below(count));
                let Some(moves) = self.pick(unit, &mut rng) else { continue };
                if self.accept(&moves, warmth, scale, &mut rng)
                    && self.fits()
                    && best.as_ref().is_none_or(|best| self.value() < best.0 * (1.0 - 1e-12))
                {
                    best = Some((self.value(), self.device_of.clone()));
                }
            }
        }
        best
    }

    /// Units to move together from one device to another, and perhaps a unit back.
    fn pick(&self, unit: usize, rng: &mut Rng) -> Option<Vec<(usize, usize)>> {
        let from = self.device_of[unit];
        let beside = &self.neighbours[unit];
        let to = if beside.is_empty() || rng.below(4) == 0 {
            index(rng.below(self.groups.len() as u64))
        } else {
            self.device_of[beside[index(rng.below(beside.len() as u64))]]
        };
        if to == from || !self.runs(unit, to) {
            return None;
        }
        let mut moves = vec![(unit, to)];
        let together = 1usize << rng.below(TOGETHER_LOG + 1);
        let mut at = 0;
        while moves.len() < together && at < moves.len() {
            for &next in &self.neighbours[moves[at].0] {
                if moves.len() < together
                    && self.device_of[next] == from
                    && self.runs(next, to)
                    && rng.below(4) != 0
                    && !moves.iter().any(|(moved, _)| *moved == next)
                {
                    moves.push((next, to));
                }
            }
            at += 1;
        }
        if rng.below(4) == 0 {
            let other = index(rng.below(self.device_of.len() as u64));
            if self.device_of[other] == to && self.runs(other, from) {
                moves.push((other, from));
            }
        }
        Some(moves)
    }

    /// Makes the moves, and takes them back when chance does not like the outcome.
    fn accept(&mut self, moves: &[(usize, usize)], warmth: f64, scale: f64, rng: &mut Rng) -> bool {
        let Some(&(first, to)) = moves.first() else { return false };
        let from = self.device_of[first];
        let before = self.weight(from, scale) + self.weight(to, scale);
        let kept = (self.doing[from], self.doing[to]);
        for &(unit, to) in moves {
            self.shift(unit, to);
        }
        let after = self.weight(from, scale) + self.weight(to, scale);
        if after <= before || rng.unit() < ((before - after) / warmth).exp() {
            return true;
        }
        for &(unit, now) in moves.iter().rev() {
            self.shift(unit, if now == to { from } else { to });
        }
        (self.doing[from], self.doing[to]) = kept;
        false
    }
}

/// A drawn number as an index; it is below the length of something in memory.
fn index(drawn: u64) -> usize {
    usize::try_from(drawn).unwrap_or(0)
}
