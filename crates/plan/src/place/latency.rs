//! What the planner of one sample's time needs of a graph: units in order, with everything about them in one place.

use super::problem::Problem;
use super::{DeviceFault, Devices, PlaceError, usable};
use crate::operators::{OperatorGraph, adjacency};

/// Units numbered so that edges point to greater numbers.
pub(crate) struct LatencyProblem {
    /// Places of each unit's operators.
    pub operators: Vec<Vec<usize>>,
    /// Milliseconds on an accelerator and on a CPU; infinite where it cannot run.
    pub times: Vec<[f64; 2]>,
    pub bytes: Vec<u64>,
    pub feeders: Vec<Vec<usize>>,
    pub followers: Vec<Vec<usize>>,
    /// Both, each once.
    pub neighbours: Vec<Vec<usize>>,
    /// Source, consumers and transfer time of outputs.
    pub nets: Vec<(usize, Vec<usize>, f64)>,
}

/// The problem of a graph that does not train; an error when nothing can fit.
pub(crate) fn latency_problem(
    graph: &OperatorGraph,
    devices: &Devices,
) -> Result<LatencyProblem, PlaceError> {
    if devices.hierarchical() {
        return Err(PlaceError::Devices(vec![DeviceFault::OneLink]));
    }
    let problem = Problem::new(graph, devices);
    usable(graph, &problem, devices)?;
    let count = problem.units.len();
    let mut nets: Vec<(usize, Vec<usize>, f64)> =
        problem.nets.iter().map(|net| (0, Vec::new(), net.transfer_ms)).collect();
    for unit in 0..count {
        for &net in &problem.sourced[unit] {
            nets[net].0 = unit;
        }
        for &(net, _) in &problem.consumed[unit] {
            nets[net].1.push(unit);
        }
    }
    let backward = || problem.edges.iter().map(|&(source, target)| (target, source));
    let mut both: Vec<(usize, usize)> = problem.edges.iter().copied().chain(backward()).collect();
    both.sort_unstable();
    both.dedup();
    Ok(LatencyProblem {
        times: problem.units.iter().map(|unit| [unit.accelerator_ms, unit.cpu_ms]).collect(),
        bytes: problem.units.iter().map(|unit| unit.resident_bytes).collect(),
        feeders: adjacency(count, backward()),
        followers: adjacency(count, problem.edges.iter().copied()),
        neighbours: adjacency(count, both.into_iter()),
        operators: problem.units.into_iter().map(|unit| unit.operators).collect(),
        nets,
    })
}
