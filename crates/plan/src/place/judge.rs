//! Scores a placement from scratch: from the graph alone, with none of the planner's parts.

use super::{Communication, Devices, Placement};
use crate::operators::{Kind, OperatorGraph, topological};
use std::collections::{BTreeMap, BTreeSet};
use thiserror::Error;

/// What one part costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PartScore {
    /// Time of its operators on its device.
    pub compute_ms: f64,
    /// Time of what enters and leaves an accelerator; 0 on a CPU.
    pub transfer_ms: f64,
    /// Both, as the kind of communication adds them.
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
    /// More devices than there are.
    #[error("{used} devices of kind {kind:?} are used, there are {available}")]
    Devices {
        /// Their kind.
        kind: Kind,
        /// Parts of that kind.
        used: usize,
        /// Devices of that kind.
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
    #[error("part {part} keeps {bytes} bytes, its accelerator has {available}")]
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
    /// One score a part.
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
    devices: Devices,
    communication: Communication,
    placement: &Placement,
) -> Verdict {
    let mut faults = Vec::new();
    let part_of = parts_of_operators(graph, placement, &mut faults);
    check_devices(devices, placement, &mut faults);
    check_colors(graph, &part_of, &mut faults);
    let transfers = transfers(graph, placement, &part_of);
    let followers = crate::operators::adjacency(part_of.len(), forward(graph));
    let mut parts = Vec::with_capacity(placement.parts.len());
    for (number, part) in placement.parts.iter().enumerate() {
        let mut compute_ms = 0.0;
        let mut resident_bytes = 0u64;
        for operator in part.operators.iter().filter_map(|&place| graph.operators().get(place)) {
            let cost = match part.kind {
                Kind::Accelerator => operator.accelerator_ms,
                Kind::Cpu => operator.cpu_ms,
            };
            if cost.is_none() {
                faults.push(Fault::Unsupported { id: operator.id, part: number });
            }
            compute_ms += cost.unwrap_or(0.0);
            resident_bytes = resident_bytes.saturating_add(operator.resident_bytes);
        }
        let (transfer_ms, load_ms) = match part.kind {
            Kind::Cpu => (0.0, compute_ms),
            Kind::Accelerator => {
                if resident_bytes > devices.memory_bytes {
                    let available = devices.memory_bytes;
                    faults.push(Fault::Memory { part: number, bytes: resident_bytes, available });
                }
                (transfers[number], communication.load(compute_ms, transfers[number]))
            }
        };
        let contiguous = contiguous(&followers, &part_of, number);
        parts.push(PartScore { compute_ms, transfer_ms, load_ms, resident_bytes, contiguous });
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

fn check_devices(devices: Devices, placement: &Placement, faults: &mut Vec<Fault>) {
    for (kind, available) in [(Kind::Accelerator, devices.accelerators), (Kind::Cpu, devices.cpus)] {
        let used = placement.parts.iter().filter(|part| part.kind == kind).count();
        if used > available {
            faults.push(Fault::Devices { kind, used, available });
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

/// What each part pays: every output that leaves it, once; every output that enters it, once.
fn transfers(graph: &OperatorGraph, placement: &Placement, part_of: &[Option<usize>]) -> Vec<f64> {
    let mut paid: BTreeSet<(usize, usize)> = BTreeSet::new();
    for &(source, target) in graph.edges() {
        if let (Some(from), Some(to)) = (part_of[source], part_of[target])
            && from != to
        {
            paid.insert((from, source));
            paid.insert((to, source));
        }
    }
    let mut sums = vec![0.0; placement.parts.len()];
    for (part, source) in paid {
        sums[part] += graph.operators()[source].transfer_ms;
    }
    sums
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
