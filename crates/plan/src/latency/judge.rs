//! Scores a latency plan from scratch: from the graph alone.

use super::{LatencyPlan, accelerators, host};
use crate::operators::{OperatorGraph, topological};
use crate::place::Devices;
use std::collections::{BTreeMap, BTreeSet};
use thiserror::Error;

/// What makes a plan impossible.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LatencyFault {
    /// An operator is run several times, or not at all.
    #[error("operator {id} is run {times} times, not once")]
    Run {
        /// The operator.
        id: u64,
        /// How often it is run.
        times: usize,
    },
    /// An operator cannot run where it is.
    #[error("operator {id} cannot run where it is placed")]
    Unsupported {
        /// The operator.
        id: u64,
    },
    /// A call names an accelerator or operator that is not there, or has no operator.
    #[error("call {call} is empty, or names an accelerator or operator that is not there")]
    Call {
        /// The call.
        call: usize,
    },
    /// An accelerator is called too often.
    #[error("accelerator {device} runs {calls} calls, at most {limit} are allowed")]
    Calls {
        /// The accelerator.
        device: usize,
        /// Its calls.
        calls: usize,
        /// How many it may have.
        limit: usize,
    },
    /// Too little memory.
    #[error("accelerator {device} keeps {bytes} bytes, it has {available}")]
    Memory {
        /// The accelerator.
        device: usize,
        /// What is kept.
        bytes: u64,
        /// What there is.
        available: u64,
    },
    /// Calls wait for each other.
    #[error("calls wait for each other's outputs; no order runs them")]
    Cycle,
}

/// A plan's score.
#[derive(Clone, Debug, PartialEq)]
pub struct LatencyVerdict {
    /// Milliseconds from the sample's arrival to its last operator; infinite when it never comes.
    pub value_ms: f64,
    /// When each call starts and ends.
    pub calls: Vec<(f64, f64)>,
    /// What makes it impossible; empty when it is possible.
    pub faults: Vec<LatencyFault>,
}

/// Scores `plan`, whoever made it, where an accelerator may run at most `calls` calls.
#[must_use]
pub fn judge_latency(
    graph: &OperatorGraph,
    devices: &Devices,
    calls: usize,
    plan: &LatencyPlan,
) -> LatencyVerdict {
    let accelerators = accelerators(devices);
    let host = host(devices);
    let operators = graph.operators();
    let mut faults = Vec::new();
    let mut times = vec![0usize; operators.len()];
    // What runs an operator: a call, or (numbered behind the calls) the host for it alone.
    let mut runner: Vec<usize> = (0..operators.len()).map(|place| plan.calls.len() + place).collect();
    for &place in plan.host.iter().filter(|place| **place < operators.len()) {
        times[place] += 1;
        if host.is_none() || operators[place].cpu_ms.is_none() {
            faults.push(LatencyFault::Unsupported { id: operators[place].id });
        }
    }
    let mut kept = vec![(0usize, 0u64); accelerators.len()];
    for (call, content) in plan.calls.iter().enumerate() {
        let known = content.operators.iter().all(|place| *place < operators.len());
        if !known || content.operators.is_empty() || content.device >= accelerators.len() {
            faults.push(LatencyFault::Call { call });
            continue;
        }
        kept[content.device].0 += 1;
        for &place in &content.operators {
            times[place] += 1;
            runner[place] = call;
            kept[content.device].1 = kept[content.device].1.saturating_add(operators[place].resident_bytes);
            if operators[place].accelerator_ms.is_none() {
                faults.push(LatencyFault::Unsupported { id: operators[place].id });
            }
        }
    }
    let wrong = times.iter().enumerate().filter(|(_, times)| **times != 1);
    faults.extend(wrong.map(|(place, &times)| LatencyFault::Run { id: operators[place].id, times }));
    for (device, (&(found, bytes), group)) in kept.iter().zip(&accelerators).enumerate() {
        if found > calls {
            faults.push(LatencyFault::Calls { device, calls: found, limit: calls });
        }
        if let Some(available) = group.memory_bytes.filter(|&memory| bytes > memory) {
            faults.push(LatencyFault::Memory { device, bytes, available });
        }
    }
    if !faults.is_empty() {
        return LatencyVerdict { value_ms: f64::INFINITY, calls: Vec::new(), faults };
    }
    let spans = spans(graph, devices, plan, &runner);
    let Some(ends) = ends(graph, plan, &runner, &spans) else {
        return LatencyVerdict {
            value_ms: f64::INFINITY,
            calls: Vec::new(),
            faults: vec![LatencyFault::Cycle],
        };
    };
    let value_ms = ends.iter().copied().fold(0.0, f64::max);
    let calls = (0..plan.calls.len()).map(|call| (ends[call] - spans[call], ends[call])).collect();
    LatencyVerdict { value_ms, calls, faults }
}

/// How long each runner takes: calls with what enters and leaves them, each output once.
fn spans(graph: &OperatorGraph, devices: &Devices, plan: &LatencyPlan, runner: &[usize]) -> Vec<f64> {
    let (accelerators, host) = (accelerators(devices), host(devices));
    let operators = graph.operators();
    let mut spans = vec![0.0; plan.calls.len() + operators.len()];
    for (place, operator) in operators.iter().enumerate() {
        let group = match plan.calls.get(runner[place]) {
            Some(call) => Some(&accelerators[call.device]),
            None => host.as_ref(),
        };
        let times = (operator.accelerator_ms.unwrap_or(0.0), operator.cpu_ms.unwrap_or(0.0));
        spans[runner[place]] += group.map_or(0.0, |group| group.time(times.0, times.1));
    }
    let mut paid = BTreeSet::new();
    for &(source, target) in graph.edges() {
        if runner[source] != runner[target] {
            paid.extend([(runner[source], source), (runner[target], source)]);
        }
    }
    for (payer, source) in paid {
        if let Some(call) = plan.calls.get(payer) {
            spans[payer] += operators[source].transfer_ms / accelerators[call.device].link;
        }
    }
    spans
}

/// When each runner ends; `None` when they wait for each other.
fn ends(graph: &OperatorGraph, plan: &LatencyPlan, runner: &[usize], spans: &[f64]) -> Option<Vec<f64>> {
    let mut edges: BTreeSet<(usize, usize)> = BTreeSet::new();
    for &(source, target) in graph.edges() {
        if runner[source] != runner[target] {
            edges.insert((runner[source], runner[target]));
        }
    }
    let mut last: BTreeMap<usize, usize> = BTreeMap::new();
    for (call, content) in plan.calls.iter().enumerate() {
        if let Some(before) = last.insert(content.device, call) {
            edges.insert((before, call));
        }
    }
    let edges: Vec<(usize, usize)> = edges.into_iter().collect();
    let order = topological(spans.len(), &edges).ok()?;
    let followers = crate::operators::adjacency(spans.len(), edges.into_iter());
    let mut starts = vec![0.0f64; spans.len()];
    let mut ends = vec![0.0f64; spans.len()];
    for at in order {
        ends[at] = starts[at] + spans[at];
        for &next in &followers[at] {
            starts[next] = starts[next].max(ends[at]);
        }
    }
    Some(ends)
}
