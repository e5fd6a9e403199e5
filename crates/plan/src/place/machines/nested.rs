//! The best blocks and parts along one linear order of units.

use super::super::problem::Problem;
use super::super::search::{Budget, Split, SplitPart};
use super::super::{Communication, Devices, Group};
use super::machines;
use crate::operators::Kind;

/// Combinations of used devices of one machine, or of used machines, that are told apart.
const STATES_MAX: usize = 4_096;

/// A net by the first and the last of its units, and how many it has.
#[derive(Clone, Copy, Debug)]
struct Span {
    first: usize,
    last: usize,
    units: u32,
    transfer_ms: f64,
}

/// Machines that are alike: numbers that count their used devices, and those of one of them.
struct Class {
    /// Groups of the devices, as they are.
    groups: Vec<Group>,
    /// For each machine, the places of these groups.
    machines: Vec<Vec<usize>>,
}

/// One state of a search along the order: the least greatest load, and where it came from.
#[derive(Clone, Copy)]
struct Cell {
    value: f64,
    from: usize,
    /// What was added: a group of the machine, or a class of machines.
    added: usize,
}

const NOWHERE: Cell = Cell { value: f64::INFINITY, from: 0, added: 0 };

pub(super) struct Nested<'a> {
    problem: &'a Problem,
    communication: Communication,
    upper: f64,
    classes: Vec<Class>,
    nets: Vec<Span>,
    /// Nets that each unit touches.
    touched: Vec<Vec<usize>>,
    /// Units of each net in the part that is being grown.
    inside: Vec<u32>,
}

impl<'a> Nested<'a> {
    /// `problem` has its units in order.
    pub(super) fn new(
        problem: &'a Problem,
        devices: &Devices,
        communication: Communication,
        upper: f64,
    ) -> Self {
        let mut classes: Vec<Class> = Vec::new();
        for machine in machines(devices) {
            let own: Vec<Group> =
                machine.groups.iter().map(|&group| Group { machine: 0, ..devices.groups[group] }).collect();
            match classes.iter_mut().find(|class| class.groups == own) {
                Some(class) => class.machines.push(machine.groups),
                None => classes.push(Class { groups: own, machines: vec![machine.groups] }),
            }
        }
        let none = Span { first: usize::MAX, last: 0, units: 0, transfer_ms: 0.0 };
        let mut nets: Vec<Span> =
            problem.nets.iter().map(|net| Span { transfer_ms: net.transfer_ms, ..none }).collect();
        let mut touched = Vec::with_capacity(problem.units.len());
        for unit in 0..problem.units.len() {
            let consumed = problem.consumed[unit].iter().map(|&(net, _)| net);
            let own: Vec<usize> = problem.sourced[unit].iter().copied().chain(consumed).collect();
            for &net in &own {
                let span = &mut nets[net];
                span.first = span.first.min(unit);
                span.last = span.last.max(unit);
                span.units += 1;
            }
            touched.push(own);
        }
        let inside = vec![0; nets.len()];
        Self { problem, communication, upper, classes, nets, touched, inside }
    }

    /// The best split below the upper bound, if there is one and the budget lasts.
    pub(super) fn run(mut self, budget: &mut Budget<'_>) -> Option<Split> {
        let count = self.problem.units.len();
        let used: Vec<usize> = self.classes.iter().map(|class| class.machines.len()).collect();
        let states = states(&used).filter(|&states| states <= STATES_MAX)?;
        let mut cells = vec![vec![NOWHERE; states]; count + 1];
        cells[0][0].value = 0.0;
        for from in 0..count {
            if cells[from].iter().all(|cell| cell.value >= self.upper) {
                continue;
            }
            for class in 0..self.classes.len() {
                let stride = stride(&used, class);
                for to in from + 1..=count {
                    let Some(block) = self.block(class, (from, to), budget)? else { break };
                    let load = least(&block[to - from]).1;
                    for state in 0..states {
                        let value = cells[from][state].value.max(load);
                        let room = state / stride % (used[class] + 1) < used[class];
                        if room && value < self.upper && value < cells[to][state + stride].value {
                            cells[to][state + stride] = Cell { value, from, added: class };
                        }
                    }
                }
            }
        }
        self.split(&cells, &used, budget)
    }

    /// The cells of a block on a machine, from its beginning on; none when it is too much for the machine, and so every
    /// longer one. `None` when the budget is spent.
    fn block(
        &mut self,
        class: usize,
        (begin, end): (usize, usize),
        budget: &mut Budget<'_>,
    ) -> Option<Option<Vec<Vec<Cell>>>> {
        let groups = self.classes[class].groups.clone();
        let used: Vec<usize> = groups.iter().map(|group| group.count.min(end - begin)).collect();
        let states = states(&used).filter(|&states| states <= STATES_MAX)?;
        let mut cells = vec![vec![NOWHERE; states]; end - begin + 1];
        cells[0][0].value = 0.0;
        let mut within = false;
        for from in begin..end {
            if cells[from - begin].iter().all(|cell| cell.value >= self.upper) {
                continue;
            }
            for (to, loads) in self.loads(&groups, from, (begin, end), budget)? {
                for (group, load) in loads.into_iter().enumerate() {
                    let stride = stride(&used, group);
                    for state in 0..states {
                        let value = cells[from - begin][state].value.max(load);
                        let room = state / stride % (used[group] + 1) < used[group];
                        if room && value < self.upper && value < cells[to - begin][state + stride].value {
                            cells[to - begin][state + stride] =
                                Cell { value, from: from - begin, added: group };
                        }
                    }
                }
                within |= to == end;
            }
        }
        // Transfers aside, a longer block is no faster; with transfers, it may be: an output stays within it.
        Some((within || self.bears(&groups, (begin, end))).then_some(cells))
    }

    /// Whether the devices of a machine could compute a block below the upper bound, transfers aside.
    fn bears(&self, groups: &[Group], (begin, end): (usize, usize)) -> bool {
        let least = |unit: usize| {
            let unit = &self.problem.units[unit];
            let times = groups.iter().map(|group| group.time(unit.accelerator_ms, unit.cpu_ms));
            times.fold(f64::INFINITY, f64::min)
        };
        let count: usize = groups.iter().map(|group| group.count).sum();
        (begin..end).map(least).sum::<f64>() <= self.upper * count as f64
    }

    /// Loads, group by group, of parts that begin at `from` and end within a block; longer parts are too much for all.
    fn loads(
        &mut self,
        groups: &[Group],
        from: usize,
        (begin, end): (usize, usize),
        budget: &mut Budget<'_>,
    ) -> Option<Vec<(usize, Vec<f64>)>> {
        let mut found = Vec::new();
        let (mut accelerator_ms, mut cpu_ms, mut bytes) = (0.0, 0.0, 0u64);
        let (mut near_ms, mut far_ms) = (0.0, 0.0);
        let mut to = from;
        while to < end {
            let unit = &self.problem.units[to];
            accelerator_ms += unit.accelerator_ms;
            cpu_ms += unit.cpu_ms;
            bytes = bytes.saturating_add(unit.resident_bytes);
            let able = |group: &Group| group.time(accelerator_ms, cpu_ms) < self.upper && group.fits(bytes);
            if !groups.iter().any(able) || !budget.spend() {
                break;
            }
            for &net in &self.touched[to] {
                let span = self.nets[net];
                self.inside[net] += 1;
                let sum = if span.first < begin || span.last >= end { &mut far_ms } else { &mut near_ms };
                if span.units > 1 && self.inside[net] == 1 {
                    *sum += span.transfer_ms;
                } else if self.inside[net] == span.units {
                    *sum -= span.transfer_ms;
                }
            }
            to += 1;
            let load = |group: &Group| {
                let moved_ms = match group.kind {
                    Kind::Cpu => 0.0,
                    Kind::Accelerator => near_ms / group.link + far_ms / group.across,
                };
                let fits = group.fits(bytes);
                let load = self.communication.load(group.time(accelerator_ms, cpu_ms), moved_ms);
                if fits { load } else { f64::INFINITY }
            };
            found.push((to, groups.iter().map(load).collect()));
        }
        for unit in from..to {
            for &net in &self.touched[unit] {
                self.inside[net] -= 1;
            }
        }
        budget.lasts().then_some(found)
    }

    /// Walks back from the end: blocks, and the parts of each.
    fn split(&mut self, cells: &[Vec<Cell>], used: &[usize], budget: &mut Budget<'_>) -> Option<Split> {
        let mut end = cells.len() - 1;
        let (mut state, value) = least(&cells[end]);
        if value >= self.upper {
            return None;
        }
        let mut parts = Vec::new();
        while end > 0 {
            let Cell { from: begin, added: class, .. } = cells[end][state];
            let block = self.block(class, (begin, end), budget)??;
            let machine = self.classes[class].machines.pop()?;
            let counts: Vec<usize> =
                self.classes[class].groups.iter().map(|group| group.count.min(end - begin)).collect();
            let mut at = end - begin;
            let mut inner = least(&block[at]).0;
            while at > 0 {
                let Cell { from, added: group, .. } = block[at][inner];
                let units = (begin + from..begin + at).collect();
                parts.push(SplitPart { group: machine[group], replicas: 1, units });
                inner -= stride(&counts, group);
                at = from;
            }
            state -= stride(used, class);
            end = begin;
        }
        parts.reverse();
        Some(Split { value, parts })
    }
}

/// The state with the least value, and that value.
fn least(cells: &[Cell]) -> (usize, f64) {
    let values = cells.iter().map(|cell| cell.value).enumerate();
    values.min_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((0, f64::INFINITY))
}

/// States that count what is used of each; `None` when they are too many to number.
fn states(counts: &[usize]) -> Option<usize> {
    counts.iter().try_fold(1usize, |states, count| states.checked_mul(count + 1))
}

/// What one more of `which` adds to a state.
fn stride(counts: &[usize], which: usize) -> usize {
    counts[..which].iter().map(|count| count + 1).product()
}
