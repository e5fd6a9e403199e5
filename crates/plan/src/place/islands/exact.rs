//! Branch and bound over all placements of units on devices: exact where its nodes suffice, and silent where they do not.
//!
//! ```text
//! unit after unit ─▶ each device that can take it, equal idle ones once ─▶ bounds ─▶ next unit
//! ```
//!
//! What a device computes, and pays for nets whose units are known to be apart, only grows as units are placed. A branch
//! ends when that reaches the value to beat, when memory runs out, or when the time left on all devices is too little for
//! the units that are left.

use super::super::problem::Problem;
use super::super::{Communication, Devices, Group, Limits};
use crate::operators::Kind;

/// Nodes between two questions whether to stop.
const NODES_PER_CHECK: u64 = 1 << 12;

/// Units that are put in order.
const UNITS_MAX: usize = 8_192;

/// Units times devices, and pins times devices, that are searched: 32 MiB of counters.
const SIZE_MAX: usize = 8_000_000;

/// A value closer to another than this part of it is no better; sums differ in their last digits with their order.
const NEAR: f64 = 1e-12;

/// What a search showed.
pub(super) struct Finding {
    /// The best placement below the value to beat: the device of each unit.
    pub best: Option<(f64, Vec<usize>)>,
    /// Whether nothing is below what was found (or, when nothing was found, below the value to beat).
    pub complete: bool,
    /// Nodes looked at.
    pub nodes: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Doing {
    compute_ms: f64,
    transfer_ms: f64,
    resident_bytes: u64,
    units: usize,
}

/// A net's units that are placed: on how many devices, and the first of these.
#[derive(Clone, Copy, Debug, Default)]
struct Spread {
    devices: u32,
    first: usize,
}

/// Units placed so far, and what follows from them.
pub(super) struct Exact<'a> {
    problem: &'a Problem,
    communication: Communication,
    groups: Vec<Group>,
    /// The first of the devices that are equal to each.
    class: Vec<usize>,
    rates: Vec<f64>,
    order: Vec<usize>,
    /// Accelerator work of the units from each place of the order on.
    left_ms: Vec<f64>,
    nets_of: Vec<Vec<usize>>,
    device_of: Vec<usize>,
    doing: Vec<Doing>,
    pins: Vec<u32>,
    spread: Vec<Spread>,
    /// What devices did before a unit was placed, newest last.
    trail: Vec<(usize, Doing)>,
}

/// One unit's turn: devices that are still to be tried, the best last, and where its trail begins.
struct Turn {
    devices: Vec<usize>,
    trail: usize,
    placed: Option<usize>,
}

impl<'a> Exact<'a> {
    /// `None` when the counters would be too many.
    pub(super) fn new(problem: &'a Problem, devices: &Devices, communication: Communication) -> Option<Self> {
        let groups: Vec<Group> =
            devices.groups.iter().flat_map(|group| std::iter::repeat_n(*group, group.count)).collect();
        let size = groups.len().checked_mul(problem.units.len() + problem.nets.len())?;
        if size > SIZE_MAX || problem.units.len() > UNITS_MAX {
            return None;
        }
        let equal = |group: &Group| groups.iter().position(|other| other == group).unwrap_or(0);
        let class = groups.iter().map(equal).collect();
        let by_group = problem.rates(devices);
        let counted = devices.groups.iter().zip(by_group);
        let rates = counted.flat_map(|(group, rate)| std::iter::repeat_n(rate, group.count)).collect();
        let nets_of: Vec<Vec<usize>> = (0..problem.units.len())
            .map(|unit| {
                let consumed = problem.consumed[unit].iter().map(|&(net, _)| net);
                problem.sourced[unit].iter().copied().chain(consumed).collect()
            })
            .collect();
        let order = order(problem, &nets_of);
        let mut left_ms = vec![0.0; order.len() + 1];
        for (place, &unit) in order.iter().enumerate().rev() {
            left_ms[place] = left_ms[place + 1] + problem.units[unit].work_ms();
        }
        Some(Self {
            device_of: vec![0; problem.units.len()],
            doing: vec![Doing::default(); groups.len()],
            pins: vec![0; groups.len() * problem.nets.len()],
            spread: vec![Spread::default(); problem.nets.len()],
            trail: Vec::new(),
            problem,
            communication,
            groups,
            class,
            rates,
            order,
            left_ms,
            nets_of,
        })
    }

    /// The best placement below `upper`, looking at `nodes_max` nodes; ends at once when it meets `floor`.
    pub(super) fn search(
        &mut self,
        (mut upper, floor): (f64, f64),
        nodes_max: u64,
        limits: Limits<'_>,
    ) -> Finding {
        let mut finding = Finding { best: None, complete: true, nodes: 0 };
        let mut turns = vec![self.turn(0, upper)];
        while let Some(place) = turns.len().checked_sub(1) {
            let unit = self.order[place];
            let turn = &mut turns[place];
            if turn.placed.take().is_some() {
                let trail = turn.trail;
                self.take_back(unit, trail);
            }
            let done = !finding.complete || upper <= floor * (1.0 + NEAR);
            let Some(device) = turn.devices.pop().filter(|_| !done) else {
                turns.pop();
                continue;
            };
            finding.nodes += 1;
            if finding.nodes >= nodes_max
                || (finding.nodes.is_multiple_of(NODES_PER_CHECK) && (limits.stop)())
            {
                finding.complete = false;
            }
            turn.placed = Some(device);
            self.place(unit, device);
            if !self.promises(place + 1, upper) {
                continue;
            }
            if place + 1 == self.order.len() {
                upper = self.value();
                finding.best = Some((upper, self.device_of.clone()));
            } else {
                turns.push(self.turn(place + 1, upper));
            }
        }
        finding
    }

    /// The devices that a unit could go to, idle ones that are equal once.
    fn turn(&self, place: usize, upper: f64) -> Turn {
        let unit = self.order[place];
        let costs = &self.problem.units[unit];
        let mut idle = vec![false; self.groups.len()];
        let mut devices: Vec<(f64, usize)> = Vec::new();
        for (device, group) in self.groups.iter().enumerate() {
            let doing = &self.doing[device];
            if doing.units == 0 && std::mem::replace(&mut idle[self.class[device]], true) {
                continue;
            }
            let after = Doing {
                compute_ms: doing.compute_ms + group.time(costs.accelerator_ms, costs.cpu_ms),
                resident_bytes: doing.resident_bytes.saturating_add(costs.resident_bytes),
                ..*doing
            };
            // A time that is not finite stays above an infinite bound.
            let load = self.load(device, &after);
            if load.is_finite() && load < upper && group.fits(after.resident_bytes) {
                devices.push((load, device));
            }
        }
        devices.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)));
        Turn {
            devices: devices.into_iter().map(|(_, device)| device).collect(),
            trail: self.trail.len(),
            placed: None,
        }
    }

    fn load(&self, device: usize, doing: &Doing) -> f64 {
        let group = &self.groups[device];
        let transfer_ms = if group.kind == Kind::Cpu { 0.0 } else { doing.transfer_ms / group.link };
        self.communication.load(doing.compute_ms, transfer_ms)
    }

    fn value(&self) -> f64 {
        let loads = self.doing.iter().enumerate().map(|(device, doing)| self.load(device, doing));
        loads.fold(0.0, f64::max)
    }

    /// Whether units from `place` of the order on could still be placed below `upper`.
    fn promises(&self, place: usize, upper: f64) -> bool {
        let most = upper * (1.0 - NEAR);
        let mut work_ms = 0.0;
        for (device, doing) in self.doing.iter().enumerate() {
            let load = self.load(device, doing);
            if load >= most {
                return false;
            }
            // While transfers overlap, computing alone fills a device.
            let busy_ms = match self.communication {
                Communication::Serial => load,
                Communication::Overlapped => doing.compute_ms,
            };
            work_ms += (upper - busy_ms) * self.rates[device];
        }
        // Not a number when an infinite bound meets a zero rate: then nothing is excluded.
        work_ms.is_nan() || self.left_ms[place] <= work_ms * (1.0 + 1e-9) + 1e-9
    }

    fn place(&mut self, unit: usize, device: usize) {
        self.device_of[unit] = device;
        let costs = &self.problem.units[unit];
        self.trail.push((device, self.doing[device]));
        let group = &self.groups[device];
        let doing = &mut self.doing[device];
        doing.compute_ms += group.time(costs.accelerator_ms, costs.cpu_ms);
        doing.resident_bytes = doing.resident_bytes.saturating_add(costs.resident_bytes);
        doing.units += 1;
        for &net in &self.nets_of[unit] {
            let pins = &mut self.pins[net * self.groups.len() + device];
            *pins += 1;
            if *pins > 1 {
                continue;
            }
            let transfer_ms = self.problem.nets[net].transfer_ms;
            let spread = &mut self.spread[net];
            spread.devices += 1;
            match spread.devices {
                1 => spread.first = device,
                2 => {
                    let first = spread.first;
                    self.trail.push((first, self.doing[first]));
                    self.doing[first].transfer_ms += transfer_ms;
                    self.doing[device].transfer_ms += transfer_ms;
                }
                _ => self.doing[device].transfer_ms += transfer_ms,
            }
        }
    }

    fn take_back(&mut self, unit: usize, trail: usize) {
        let device = self.device_of[unit];
        for &net in &self.nets_of[unit] {
            let pins = &mut self.pins[net * self.groups.len() + device];
            *pins -= 1;
            if *pins == 0 {
                self.spread[net].devices -= 1;
            }
        }
        while self.trail.len() > trail {
            if let Some((device, doing)) = self.trail.pop() {
                self.doing[device] = doing;
            }
        }
    }
}

/// Units so that early ones decide much: the heaviest first, then always the one that weighs most, together with the nets
/// that tie it to those before it.
fn order(problem: &Problem, nets_of: &[Vec<usize>]) -> Vec<usize> {
    let mut ends = vec![Vec::new(); problem.nets.len()];
    for (unit, nets) in nets_of.iter().enumerate() {
        for &net in nets {
            ends[net].push(unit);
        }
    }
    let mut weight: Vec<f64> = problem.units.iter().map(super::super::problem::Unit::work_ms).collect();
    let mut open: Vec<usize> = (0..weight.len()).collect();
    let mut tied = vec![false; problem.nets.len()];
    let mut order = Vec::with_capacity(open.len());
    while !open.is_empty() {
        let best = (0..open.len())
            .max_by(|&a, &b| weight[open[a]].total_cmp(&weight[open[b]]).then(open[b].cmp(&open[a])))
            .unwrap_or_default();
        let unit = open.swap_remove(best);
        order.push(unit);
        for &net in &nets_of[unit] {
            if !std::mem::replace(&mut tied[net], true) {
                for &end in &ends[net] {
                    weight[end] += problem.nets[net].transfer_ms;
                }
            }
        }
    }
    order
}
