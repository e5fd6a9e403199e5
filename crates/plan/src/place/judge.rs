//! Scores a placement from scratch: from the graph alone, with none of the planner's parts.

use super::devices::PartCost;
use super::{Communication, Devices, Placement};
use crate::operators::{Kind, OperatorGraph, topological};
use std::collections::{BTreeMap, BTreeSet};
use thiserror::Error;

/// What one part costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PartScore {
    /// Time of its operators on its device, for a sample.
    pub compute_ms: f64,
    /// Time of what enters and leaves an accelerator (0 on a CPU), and of what replicas exchange, for a sample.
    pub transfer_ms: f64,
    /// Both, as the kind of communication adds them, shared by the replicas.
    pub load_ms: f64,
    /// What its operators keep in memory.
    pub resident_bytes: u64,
    /// Whether no path of forward operators leaves it and returns.
    pub contiguous: bool,
}

/// What makes a placement impossible.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Fault {
    /// A part has no operator.
    #[error("part {part} is empty; leave the device out")]
    Empty {
        /// The part.
        part: usize,
    },
    /// A part names an operator that the graph does not have.
    #[error("part {part} names operator place {place}, the graph has fewer")]
    Unknown {
        /// The part.
        part: usize,
        /// The place.
        place: usize,
    },
    /// An operator is placed several times, or not at all.
    #[error("operator {id} is placed {times} times, not once")]
    Placed {
        /// The operator.
        id: u64,
        /// How often it is placed.
        times: usize,
    },
    /// A part names a group that is not there, or no device of it.
    #[error("part {part} is on {replicas} devices of group {group}, of {groups} groups")]
    Group {
        /// The part.
        part: usize,
        /// The group it names.
        group: usize,
        /// The devices it names.
        replicas: usize,
        /// How many groups there are.
        groups: usize,
    },
    /// A part is replicated where replicas cannot exchange gradients.
    #[error("part {part} has {replicas} replicas, but no speed is given at which they exchange gradients")]
    Replicated {
        /// The part.
        part: usize,
        /// Its replicas.
        replicas: usize,
    },
    /// More devices than there are.
    #[error("{used} devices of group {group} are used, there are {available}")]
    Devices {
        /// The group.
        group: usize,
        /// Devices of it that parts use.
        used: usize,
        /// Devices of it.
        available: usize,
    },
    /// An operator cannot run where it is placed.
    #[error("operator {id} cannot run on part {part}")]
    Unsupported {
        /// The operator.
        id: u64,
        /// The part.
        part: usize,
    },
    /// Too little memory.
    #[error("part {part} keeps {bytes} bytes, its device has {available}")]
    Memory {
        /// The part.
        part: usize,
        /// What is kept.
        bytes: u64,
        /// What there is.
        available: u64,
    },
    /// Operators that must share a device do not.
    #[error("colour class {color} is on {parts} parts, not on one")]
    Color {
        /// The class.
        color: i64,
        /// On how many parts it is.
        parts: usize,
    },
}

/// A placement's score.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The greatest load.
    pub value_ms: f64,
    /// One score a part, but those whose group is not there.
    pub parts: Vec<PartScore>,
    /// What makes it impossible; empty when it is possible.
    pub faults: Vec<Fault>,
    /// Whether the parts, as far as the forward pass goes, can be put in an order in which each feeds only later ones.
    pub acyclic: bool,
}

impl Verdict {
    /// Whether every part is contiguous and parts feed each other in no cycle.
    #[must_use]
    pub fn contiguous(&self) -> bool {
        self.acyclic && self.parts.iter().all(|part| part.contiguous)
    }
}

/// Scores `placement`, whoever made it.
#[must_use]
pub fn judge(
    graph: &OperatorGraph,
    devices: &Devices,
    communication: Communication,
    placement: &Placement,
) -> Verdict {
    let mut faults = Vec::new();
    let part_of = parts_of_operators(graph, placement, &mut faults);
    check_devices(devices, placement, &mut faults);
    check_colors(graph, &part_of, &mut faults);
    let transfers = transfers(graph, devices, placement, &part_of);
    let followers = crate::operators::adjacency(part_of.len(), forward(graph));
    let training = graph.operators().iter().any(|operator| operator.backward);
    let mut parts = Vec::with_capacity(placement.parts.len());
    for (number, part) in placement.parts.iter().enumerate() {
        let Some(group) = devices.groups.get(part.group).filter(|_| part.replicas > 0) else { continue };
        let mut resident_bytes = 0u64;
        let mut cost = PartCost {
            accelerator_ms: 0.0,
            cpu_ms: 0.0,
            transfer_ms: transfers[number],
            exchanged_bytes: 0.0,
            replicas: part.replicas,
        };
        for operator in part.operators.iter().filter_map(|&place| graph.operators().get(place)) {
            let time = match group.kind {
                Kind::Accelerator => operator.accelerator_ms,
                Kind::Cpu => operator.cpu_ms,
            };
            if time.is_none() {
                faults.push(Fault::Unsupported { id: operator.id, part: number });
            }
            cost.accelerator_ms += operator.accelerator_ms.unwrap_or(0.0);
            cost.cpu_ms += operator.cpu_ms.unwrap_or(0.0);
            cost.exchanged_bytes += operator.exchanged_bytes(training);
            resident_bytes = resident_bytes.saturating_add(operator.resident_bytes);
        }
        if let Some(available) = group.memory_bytes.filter(|&memory| resident_bytes > memory) {
            faults.push(Fault::Memory { part: number, bytes: resident_bytes, available });
        }
        let moved_ms = if group.kind == Kind::Cpu { 0.0 } else { transfers[number] / group.link };
        parts.push(PartScore {
            compute_ms: group.time(cost.accelerator_ms, cost.cpu_ms),
            transfer_ms: moved_ms + devices.ring_ms(part.replicas, cost.exchanged_bytes),
            load_ms: devices.load(part.group, communication, cost),
            resident_bytes,
            contiguous: contiguous(&followers, &part_of, number),
        });
    }
    let value_ms = parts.iter().map(|part| part.load_ms).fold(0.0, f64::max);
    Verdict { value_ms, faults, acyclic: acyclic(graph, &part_of, placement.parts.len()), parts }
}

/// The (last) part of each operator.
fn parts_of_operators(
    graph: &OperatorGraph,
    placement: &Placement,
    faults: &mut Vec<Fault>,
) -> Vec<Option<usize>> {
    let count = graph.operators().len();
    let mut part_of = vec![None; count];
    let mut times = vec![0usize; count];
    for (part, content) in placement.parts.iter().enumerate() {
        if content.operators.is_empty() {
            faults.push(Fault::Empty { part });
        }
        for &place in &content.operators {
            if place < count {
                part_of[place] = Some(part);
                times[place] += 1;
            } else {
                faults.push(Fault::Unknown { part, place });
            }
        }
    }
    let wrong = times.into_iter().enumerate().filter(|(_, times)| *times != 1);
    faults.extend(wrong.map(|(place, times)| Fault::Placed { id: graph.operators()[place].id, times }));
    part_of
}

fn check_devices(devices: &Devices, placement: &Placement, faults: &mut Vec<Fault>) {
    for (number, part) in placement.parts.iter().enumerate() {
        let (group, replicas, groups) = (part.group, part.replicas, devices.groups.len());
        if group >= groups || replicas == 0 {
            faults.push(Fault::Group { part: number, group, replicas, groups });
        } else if replicas > 1 && devices.exchange_bytes_per_second.is_none() {
            faults.push(Fault::Replicated { part: number, replicas });
        }
    }
    for (group, content) in devices.groups.iter().enumerate() {
        let parts = placement.parts.iter().filter(|part| part.group == group);
        let used = parts.fold(0usize, |sum, part| sum.saturating_add(part.replicas));
        if used > content.count {
            faults.push(Fault::Devices { group, used, available: content.count });
        }
    }
}

fn check_colors(graph: &OperatorGraph, part_of: &[Option<usize>], faults: &mut Vec<Fault>) {
    let mut parts: BTreeMap<i64, BTreeSet<usize>> = BTreeMap::new();
    for (operator, part) in graph.operators().iter().zip(part_of) {
        if let (Some(color), Some(part)) = (operator.color, part) {
            parts.entry(color).or_default().insert(*part);
        }
    }
    let torn = parts.into_iter().filter(|(_, parts)| parts.len() > 1);
    faults.extend(torn.map(|(color, parts)| Fault::Color { color, parts: parts.len() }));
}

/// What each part pays, in the time of its own link: every output that leaves it, once; every output that enters it, once.
/// What another machine needs, or made, takes the link across.
fn transfers(
    graph: &OperatorGraph,
    devices: &Devices,
    placement: &Placement,
    part_of: &[Option<usize>],
) -> Vec<f64> {
    let machine_of = |part: usize| {
        let group = placement.parts.get(part).and_then(|part| devices.groups.get(part.group));
        group.map(|group| group.machine)
    };
    // Who handles an output, and whether with another machine.
    let mut paid: BTreeMap<(usize, usize), bool> = BTreeMap::new();
    let edges = graph.edges();
    let mut from = 0;
    while let Some(&(source, _)) = edges.get(from) {
        let own = edges[from..].iter().take_while(|edge| edge.0 == source);
        let targets = own.clone().map(|edge| edge.1).chain([source]);
        let parts: BTreeSet<usize> = targets.filter_map(|place| part_of[place]).collect();
        for &part in parts.iter().filter(|_| part_of[source].is_some() && parts.len() > 1) {
            let far = parts.iter().any(|&other| machine_of(other) != machine_of(part));
            paid.insert((part, source), far);
        }
        from += own.count();
    }
    let mut sums = vec![(0.0, 0.0); placement.parts.len()];
    for ((part, source), far) in paid {
        let sum: &mut (f64, f64) = &mut sums[part];
        *(if far { &mut sum.1 } else { &mut sum.0 }) += graph.operators()[source].transfer_ms;
    }
    let whole = |((near, far), part): ((f64, f64), &super::Part)| {
        let slower = devices.groups.get(part.group).map_or(1.0, |group| group.link / group.across);
        near + far * if devices.hierarchical() { slower } else { 1.0 }
    };
    sums.into_iter().zip(&placement.parts).map(whole).collect()
}

/// Edges of the forward pass.
fn forward(graph: &OperatorGraph) -> impl Iterator<Item = (usize, usize)> + '_ {
    let operators = graph.operators();
    graph.edges().iter().copied().filter(|edge| !operators[edge.0].backward && !operators[edge.1].backward)
}

/// Whether no forward path leaves `part` and returns to it.
fn contiguous(followers: &[Vec<usize>], part_of: &[Option<usize>], part: usize) -> bool {
    let outside = |place: usize| part_of[place] != Some(part);
    let mut left = vec![false; part_of.len()];
    let inside = (0..part_of.len()).filter(|&place| !outside(place));
    let mut open: Vec<usize> = inside.flat_map(|place| followers[place].iter().copied()).collect();
    open.retain(|&place| outside(place));
    while let Some(place) = open.pop() {
        if !outside(place) {
            return false;
        }
        if !std::mem::replace(&mut left[place], true) {
            open.extend(&followers[place]);
        }
    }
    true
}

fn acyclic(graph: &OperatorGraph, part_of: &[Option<usize>], parts: usize) -> bool {
    let crossing = forward(graph).filter_map(|(source, target)| Some((part_of[source]?, part_of[target]?)));
    let edges: BTreeSet<(usize, usize)> = crossing.filter(|(from, to)| from != to).collect();
    let edges: Vec<(usize, usize)> = edges.into_iter().collect();
    topological(parts, &edges).is_ok()
}
