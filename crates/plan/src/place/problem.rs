//! From an operator graph to what the search needs: units that are placed whole, and nets that are paid for.
//!
//! Steps, in the order that the published planner takes them: contract colour classes; give a class without forward
//! operators a place in the forward order, mirrored from the backward edges that touch it; fuse what contraction made
//! cyclic; let forward operators without cost join their only neighbour. Backward operators go where their class goes.
//! No step loses an optimum: an operator that keeps memory joins only where memory cannot run out.

use super::components::components;
use super::search::{Split, SplitPart};
use super::{Devices, Part, Placement};
use crate::operators::{Kind, Operator, OperatorGraph, topological};
use std::collections::{BTreeMap, BTreeSet};

/// Operators that are placed together.
#[derive(Clone, Debug, Default)]
pub(super) struct Unit {
    /// Their places in the graph, ascending.
    pub operators: Vec<usize>,
    /// Time on an accelerator; infinite when it cannot run there.
    pub accelerator_ms: f64,
    /// Time on a CPU; infinite when it cannot run there.
    pub cpu_ms: f64,
    /// Memory on a device.
    pub resident_bytes: u64,
    /// Gradients that replicas exchange; 0 without a backward pass.
    pub exchanged_bytes: f64,
}

/// Outputs of one unit with the same consumers in other units.
#[derive(Clone, Debug)]
pub(super) struct Net {
    /// Consuming units, without the source.
    pub consumers: usize,
    /// Time to move the outputs.
    pub transfer_ms: f64,
}

impl Unit {
    /// Its time on an accelerator, where it has one.
    pub(super) fn work_ms(&self) -> f64 {
        if self.accelerator_ms.is_finite() { self.accelerator_ms } else { 0.0 }
    }

    /// The least time it takes a device; a replicated unit may be shared by all devices of a group.
    pub(super) fn least_ms(&self, devices: &Devices, shared: bool) -> f64 {
        let groups = devices.groups.iter().enumerate().filter(|(_, group)| group.count > 0);
        let times = groups.map(|(number, group)| {
            let sharers = if shared { devices.replicas_max(number) } else { 1 };
            group.time(self.accelerator_ms, self.cpu_ms) / sharers as f64
        });
        times.fold(f64::INFINITY, f64::min)
    }
}

/// What `count` devices of a rate do; nothing when there is none, whatever the rate.
pub(super) fn share(rate: f64, count: usize) -> f64 {
    if count == 0 { 0.0 } else { rate * count as f64 }
}

/// Units numbered so that forward edges point to greater numbers.
#[derive(Clone, Debug)]
pub(super) struct Problem {
    pub units: Vec<Unit>,
    pub edges: Vec<(usize, usize)>,
    pub nets: Vec<Net>,
    /// Nets whose source a unit is.
    pub sourced: Vec<Vec<usize>>,
    /// Nets that a unit consumes, and the units they come from.
    pub consumed: Vec<Vec<(usize, usize)>>,
}

impl Problem {
    pub(super) fn new(graph: &OperatorGraph, devices: &Devices) -> Self {
        let operators = graph.operators();
        let class = classes(operators);
        let classes = class.iter().max().map_or(0, |last| last + 1);
        let class_edges = forward_edges(graph, &class, classes);
        let component = components(classes, &class_edges);
        let count = component.iter().max().map_or(0, |last| last + 1);
        let group: Vec<usize> = class.iter().map(|&class| component[class]).collect();
        let edges = between(&component, &class_edges);
        let (joined, count, edges) = Joining::new(graph, devices, &group, count, &edges).run();
        let group: Vec<usize> = group.into_iter().map(|group| joined[group]).collect();
        let order = topological(count, &edges).unwrap_or_else(|_| (0..count).collect());
        let mut number = vec![0; count];
        for (place, &group) in order.iter().enumerate() {
            number[group] = place;
        }
        let unit_of: Vec<usize> = group.into_iter().map(|group| number[group]).collect();
        let edges = between(&number, &edges);
        Self::assemble(units(operators, &unit_of, count), edges, operator_nets(graph, &unit_of))
    }

    /// The problem when parts need not be contiguous: colour classes are whole, but nothing is fused with them that only
    /// contiguity binds to them. Units have no order.
    pub(super) fn loose(graph: &OperatorGraph, devices: &Devices) -> Self {
        let class = classes(graph.operators());
        let count = class.iter().max().map_or(0, |last| last + 1);
        let edges = between(&class, graph.edges());
        let (joined, count, _) = Joining::new(graph, devices, &class, count, &edges).run();
        let unit_of: Vec<usize> = class.into_iter().map(|class| joined[class]).collect();
        Self::assemble(units(graph.operators(), &unit_of, count), Vec::new(), operator_nets(graph, &unit_of))
    }

    /// The problem with blocks of units instead of units. Only their order is kept, not their edges.
    pub(super) fn merged(&self, blocks: &[Vec<usize>]) -> Self {
        let mut block_of = vec![0; self.units.len()];
        let mut units = Vec::with_capacity(blocks.len());
        for (block, members) in blocks.iter().enumerate() {
            let mut merged = Unit::default();
            for &member in members {
                block_of[member] = block;
                let unit = &self.units[member];
                merged.accelerator_ms += unit.accelerator_ms;
                merged.cpu_ms += unit.cpu_ms;
                merged.resident_bytes = merged.resident_bytes.saturating_add(unit.resident_bytes);
                merged.exchanged_bytes += unit.exchanged_bytes;
            }
            units.push(merged);
        }
        let mut ends: Vec<(usize, BTreeSet<usize>)> = vec![(0, BTreeSet::new()); self.nets.len()];
        for (unit, &block) in block_of.iter().enumerate() {
            for &net in &self.sourced[unit] {
                ends[net].0 = block;
            }
            for &(net, _) in &self.consumed[unit] {
                ends[net].1.insert(block);
            }
        }
        let nets = ends.into_iter().zip(&self.nets).map(|((source, consumers), net)| {
            let consumers = consumers.into_iter().filter(|&block| block != source).collect();
            ((source, consumers), net.transfer_ms)
        });
        Self::assemble(units, Vec::new(), nets)
    }

    fn assemble(
        units: Vec<Unit>,
        edges: Vec<(usize, usize)>,
        nets: impl Iterator<Item = ((usize, Vec<usize>), f64)>,
    ) -> Self {
        let mut kept: Vec<((usize, Vec<usize>), f64)> =
            nets.filter(|(ends, transfer_ms)| *transfer_ms > 0.0 && !ends.1.is_empty()).collect();
        // Stable, so that equal ones are added in their order.
        kept.sort_by(|a, b| a.0.cmp(&b.0));
        let mut problem = Self {
            sourced: vec![Vec::new(); units.len()],
            consumed: vec![Vec::new(); units.len()],
            nets: Vec::with_capacity(kept.len()),
            units,
            edges,
        };
        let mut last: Option<(usize, Vec<usize>)> = None;
        for (ends, transfer_ms) in kept {
            if let Some(net) = problem.nets.last_mut().filter(|_| last.as_ref() == Some(&ends)) {
                net.transfer_ms += transfer_ms;
                continue;
            }
            let net = problem.nets.len();
            problem.sourced[ends.0].push(net);
            for &consumer in &ends.1 {
                problem.consumed[consumer].push((net, ends.0));
            }
            problem.nets.push(Net { consumers: ends.1.len(), transfer_ms });
            last = Some(ends);
        }
        problem
    }

    /// The greatest time that one unit takes on the device that suits it best.
    pub(super) fn heaviest_ms(&self, devices: &Devices) -> f64 {
        self.units.iter().map(|unit| unit.least_ms(devices, true)).fold(0.0, f64::max)
    }

    /// Units by the time that they take on the device that suits them best, the longest first.
    pub(super) fn slowest(&self, devices: &Devices) -> Vec<usize> {
        let mut units: Vec<(f64, usize)> =
            self.units.iter().enumerate().map(|(at, unit)| (unit.least_ms(devices, true), at)).collect();
        units.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        units.into_iter().map(|(_, at)| at).collect()
    }

    /// A value that no placement is below: its heaviest unit, and all work spread evenly.
    pub(super) fn lower_bound(&self, devices: &Devices) -> f64 {
        let total: f64 = self.units.iter().map(|unit| unit.least_ms(devices, false)).sum();
        // Sums differ in their last digits with their order.
        let spread = total / devices.count() as f64 * (1.0 - 1e-12);
        self.heaviest_ms(devices).max(spread).max(self.exchanged(devices))
    }

    /// A bound from what devices are worth: in the time of the value each does at most so much accelerator work.
    fn exchanged(&self, devices: &Devices) -> f64 {
        let work: f64 = self.units.iter().map(Unit::work_ms).sum();
        let rates = self.rates(devices);
        let rate: f64 =
            rates.iter().zip(&devices.groups).map(|(rate, group)| share(*rate, group.count)).sum();
        if rate > 0.0 { work / rate * (1.0 - 1e-12) } else { 0.0 }
    }

    /// The most accelerator work that one device of each group does in a unit of time.
    pub(super) fn rates(&self, devices: &Devices) -> Vec<f64> {
        let worth = self
            .units
            .iter()
            .filter(|unit| unit.work_ms() > 0.0)
            .map(|unit| unit.accelerator_ms / unit.cpu_ms)
            .fold(0.0, f64::max);
        let rate = |group: &super::Group| match group.kind {
            Kind::Accelerator => group.speed,
            Kind::Cpu => worth * group.speed,
        };
        devices.groups.iter().map(rate).collect()
    }

    /// The split of the units that a placement means: a unit goes where its first operator is.
    pub(super) fn split(&self, placement: &Placement) -> Split {
        let mut part_of = BTreeMap::new();
        for (number, part) in placement.parts.iter().enumerate() {
            part_of.extend(part.operators.iter().map(|&operator| (operator, number)));
        }
        let part = |part: &Part| SplitPart { group: part.group, replicas: part.replicas, units: Vec::new() };
        let mut parts: Vec<SplitPart> = placement.parts.iter().map(part).collect();
        for (unit, content) in self.units.iter().enumerate() {
            let first = content.operators.first().and_then(|operator| part_of.get(operator));
            if let Some(part) = first.and_then(|&part| parts.get_mut(part)) {
                part.units.push(unit);
            }
        }
        Split { value: f64::NAN, parts }
    }

    /// The placement that a split of the units means.
    pub(super) fn placement(&self, split: &Split) -> Placement {
        let part = |part: &SplitPart| {
            let mut operators: Vec<usize> =
                part.units.iter().flat_map(|&unit| self.units[unit].operators.iter().copied()).collect();
            operators.sort_unstable();
            Part { group: part.group, replicas: part.replicas, operators }
        };
        Placement { parts: split.parts.iter().map(part).collect() }
    }
}

/// The colour class of each operator, numbered from 0; an operator without colour is its own.
fn classes(operators: &[Operator]) -> Vec<usize> {
    let mut known: BTreeMap<i64, usize> = BTreeMap::new();
    let mut count = 0;
    let mut class = Vec::with_capacity(operators.len());
    for operator in operators {
        let mut fresh = || {
            count += 1;
            count - 1
        };
        class.push(match operator.color {
            Some(color) => *known.entry(color).or_insert_with(fresh),
            None => fresh(),
        });
    }
    class
}

/// Forward edges between classes, and mirrored backward edges where a class has no forward operator.
fn forward_edges(graph: &OperatorGraph, class: &[usize], classes: usize) -> Vec<(usize, usize)> {
    let operators = graph.operators();
    let mut orphan = vec![true; classes];
    for (operator, &class) in operators.iter().zip(class) {
        orphan[class] &= operator.backward;
    }
    let mut edges = Vec::new();
    for &(source, target) in graph.edges() {
        let (from, to) = (class[source], class[target]);
        if from == to {
            continue;
        }
        match (operators[source].backward, operators[target].backward) {
            (false, false) => edges.push((from, to)),
            (true, true) if orphan[from] || orphan[to] => edges.push((to, from)),
            _ => {}
        }
    }
    edges.sort_unstable();
    edges.dedup();
    edges
}

/// Edges after their ends were renamed: sorted, each once, none to itself.
fn between(name: &[usize], edges: &[(usize, usize)]) -> Vec<(usize, usize)> {
    let renamed = edges.iter().map(|&(source, target)| (name[source], name[target]));
    let kept: BTreeSet<(usize, usize)> = renamed.filter(|(source, target)| source != target).collect();
    kept.into_iter().collect()
}

/// Lets groups without cost join their only neighbour, until none is left that can.
struct Joining {
    neighbours: Vec<BTreeSet<usize>>,
    /// Whether a group costs nothing: no time, no memory that could run out, no edge to the backward pass.
    free: Vec<bool>,
    /// Whether a group runs on accelerators, and on CPUs.
    runs: Vec<[bool; 2]>,
    into: Vec<usize>,
    edges: Vec<(usize, usize)>,
}

impl Joining {
    fn new(
        graph: &OperatorGraph,
        devices: &Devices,
        group: &[usize],
        count: usize,
        edges: &[(usize, usize)],
    ) -> Self {
        let operators = graph.operators();
        let total = operators.iter().fold(0u64, |sum, operator| sum.saturating_add(operator.resident_bytes));
        let roomy = devices.groups.iter().all(|group| group.fits(total));
        let mut joining = Self {
            neighbours: vec![BTreeSet::new(); count],
            free: vec![true; count],
            runs: vec![[true; 2]; count],
            into: (0..count).collect(),
            edges: edges.to_vec(),
        };
        for (operator, &group) in operators.iter().zip(group) {
            let costs = [operator.accelerator_ms, operator.cpu_ms];
            let timeless = costs.iter().all(|cost| cost.unwrap_or(0.0) == 0.0);
            joining.free[group] &= timeless && (roomy || operator.resident_bytes == 0);
            for (runs, cost) in joining.runs[group].iter_mut().zip(costs) {
                *runs &= cost.is_some();
            }
        }
        for &(source, target) in graph.edges() {
            if !operators[source].backward && operators[target].backward {
                joining.free[group[source]] = false;
            }
        }
        for &(source, target) in edges {
            joining.neighbours[source].insert(target);
            joining.neighbours[target].insert(source);
        }
        joining
    }

    /// The new group of each old one, how many there are, and the edges between them.
    fn run(mut self) -> (Vec<usize>, usize, Vec<(usize, usize)>) {
        let count = self.into.len();
        let mut waiting: BTreeSet<usize> = (0..count).collect();
        while let Some(group) = waiting.pop_first() {
            if let Some(host) = self.host(group) {
                self.join(group, host);
                waiting.insert(host);
            }
        }
        let mut number = vec![None; count];
        let mut kept = 0;
        for (group, number) in number.iter_mut().enumerate() {
            if self.into[group] == group {
                *number = Some(kept);
                kept += 1;
            }
        }
        let name: Vec<usize> = (0..count).map(|group| number[self.root(group)].unwrap_or_default()).collect();
        let edges = between(&name, &self.edges);
        (name, kept, edges)
    }

    /// The group that `group` joins: its only neighbour, if it costs nothing and runs wherever the neighbour does.
    fn host(&self, group: usize) -> Option<usize> {
        let mut neighbours = self.neighbours[group].iter();
        let (Some(&host), None) = (neighbours.next(), neighbours.next()) else { return None };
        let follows = self.runs[group].iter().zip(self.runs[host]).all(|(&own, host)| own || !host);
        (self.free[group] && follows).then_some(host)
    }

    fn join(&mut self, group: usize, host: usize) {
        self.into[group] = host;
        self.neighbours[group].clear();
        self.neighbours[host].remove(&group);
        self.free[host] &= self.free[group];
    }

    fn root(&mut self, group: usize) -> usize {
        let mut root = group;
        while self.into[root] != root {
            root = self.into[root];
        }
        let mut at = group;
        while self.into[at] != root {
            at = std::mem::replace(&mut self.into[at], root);
        }
        root
    }
}

fn units(operators: &[Operator], unit_of: &[usize], count: usize) -> Vec<Unit> {
    let training = operators.iter().any(|operator| operator.backward);
    let mut units = vec![Unit::default(); count];
    for (place, (operator, &unit)) in operators.iter().zip(unit_of).enumerate() {
        let unit = &mut units[unit];
        unit.operators.push(place);
        unit.accelerator_ms += operator.accelerator_ms.unwrap_or(f64::INFINITY);
        unit.cpu_ms += operator.cpu_ms.unwrap_or(f64::INFINITY);
        unit.resident_bytes = unit.resident_bytes.saturating_add(operator.resident_bytes);
        unit.exchanged_bytes += operator.exchanged_bytes(training);
    }
    units
}

/// For each operator: its unit, the other units that consume it, and its transfer time.
fn operator_nets<'a>(
    graph: &'a OperatorGraph,
    unit_of: &'a [usize],
) -> impl Iterator<Item = ((usize, Vec<usize>), f64)> + 'a {
    let edges = graph.edges();
    (0..graph.operators().len()).map(move |source| {
        let from = edges.partition_point(|edge| edge.0 < source);
        let own = edges[from..].iter().take_while(|edge| edge.0 == source);
        let units: BTreeSet<usize> = own.map(|edge| unit_of[edge.1]).collect();
        let consumers = units.into_iter().filter(|&unit| unit != unit_of[source]).collect();
        ((unit_of[source], consumers), graph.operators()[source].transfer_ms)
    })
}
