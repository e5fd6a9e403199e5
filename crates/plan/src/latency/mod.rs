//! The least time that one sample takes: which operators the host runs, and which calls accelerators run.
//!
//! An accelerator runs at most so many calls, one after the other; each is a set of operators that starts when everything
//! it is fed is there, and whose outputs are there when all of it is done, with what crosses its edge paid in it. The host
//! runs any number of operators at a time. Operators of an accelerator's calls together fit its memory.

mod exhaustive;
mod judge;
mod search;
#[cfg(test)]
mod tests;

pub use judge::{LatencyFault, LatencyVerdict, judge_latency};

use crate::operators::{Kind, OperatorGraph};
use crate::place::{Devices, Group, Limits, PlaceError};
use crate::place::{LatencyProblem, latency_problem};
use search::Search;
use thiserror::Error;

/// Calls of one accelerator that are planned.
pub const CALLS_MAX: usize = 16;

/// Operators on an accelerator that run as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The accelerator, numbered group by group, CPUs left out.
    pub device: usize,
    /// The operators' places in the graph, ascending.
    pub operators: Vec<usize>,
}

/// Who runs what. An accelerator's calls run in the order in which they stand here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LatencyPlan {
    /// Places of the operators that the host runs, ascending.
    pub host: Vec<usize>,
    /// Calls of accelerators.
    pub calls: Vec<Call>,
}

/// What is known about a plan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LatencyReport {
    /// Milliseconds from the sample's arrival to its last operator, as the judge scores them.
    pub value_ms: f64,
    /// No plan is faster: the longest path, everything on the device that suits it best, no transfers; and the least time in
    /// which accelerators can hold and do all that would be late on the host.
    pub lower_ms: f64,
    /// Whether no plan is faster than this one.
    pub proved: bool,
}

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum LatencyError {
    /// The graph trains.
    #[error("the graph trains; the time of one sample is planned for graphs without a backward pass")]
    Training,
    /// Accelerators that may not be called, or too often.
    #[error("{calls} calls an accelerator; give 1 to {CALLS_MAX}")]
    Calls {
        /// How many.
        calls: usize,
    },
    /// Nothing fits.
    #[error("{0}")]
    Place(#[from] PlaceError),
}

/// The fastest plan found with at most so many calls an accelerator: of every plan where there are few, else of those that a
/// search meets. `moves_max` bounds the search, whose chance comes from
/// `seed` alone.
///
/// # Errors
///
/// Graphs that train, faulty devices, and when nothing fits.
pub fn place_latency(
    graph: &OperatorGraph,
    devices: &Devices,
    calls: usize,
    limits: Limits<'_>,
    (seed, moves_max): (u64, u64),
) -> Result<(LatencyPlan, LatencyReport), LatencyError> {
    if graph.operators().iter().any(|operator| operator.backward) {
        return Err(LatencyError::Training);
    }
    if calls == 0 || calls > CALLS_MAX {
        return Err(LatencyError::Calls { calls });
    }
    let problem = latency_problem(graph, devices)?;
    if let Some(fastest) = exhaustive::fastest(graph, devices, calls) {
        let (plan, value_ms) = fastest.ok_or(PlaceError::NoneFound)?;
        return Ok((plan, LatencyReport { value_ms, lower_ms: value_ms, proved: true }));
    }
    searched(graph, devices, &problem, calls, limits, (seed, moves_max))
}

/// The fastest plan that a search finds.
fn searched(
    graph: &OperatorGraph,
    devices: &Devices,
    problem: &LatencyProblem,
    calls: usize,
    limits: Limits<'_>,
    (seed, moves_max): (u64, u64),
) -> Result<(LatencyPlan, LatencyReport), LatencyError> {
    let accelerators = accelerators(devices);
    let host = host(devices);
    let lower_ms = bound(problem, &accelerators, host.as_ref());
    let mut search = Search::new(problem, &accelerators, host, calls);
    let found = search.run(lower_ms, (seed, moves_max), limits).ok_or(PlaceError::NoneFound)?;
    let mut plan = LatencyPlan::default();
    for (slot, units) in found {
        let mut operators: Vec<usize> =
            units.iter().flat_map(|&unit| problem.operators[unit].iter().copied()).collect();
        operators.sort_unstable();
        match slot {
            None => plan.host = operators,
            Some(slot) => plan.calls.push(Call { device: slot / calls, operators }),
        }
    }
    let value_ms = judge_latency(graph, devices, calls, &plan).value_ms;
    let proved = value_ms <= lower_ms * (1.0 + 1e-9);
    Ok((plan, LatencyReport { value_ms, lower_ms: lower_ms.min(value_ms), proved }))
}

/// Every accelerator by itself.
fn accelerators(devices: &Devices) -> Vec<Group> {
    let groups = devices.groups.iter().filter(|group| group.kind == Kind::Accelerator);
    groups.flat_map(|group| std::iter::repeat_n(*group, group.count)).collect()
}

/// The fastest CPU that there is.
fn host(devices: &Devices) -> Option<Group> {
    let cpus = devices.groups.iter().filter(|group| group.kind == Kind::Cpu && group.count > 0);
    cpus.copied().max_by(|a, b| a.speed.total_cmp(&b.speed))
}

/// A time that no plan is below.
///
/// In any shorter time the host cannot run an operator whose longest path, with the host's time for it and the least for the
/// others, is longer than that. Accelerators must hold all of these, and do them in the time.
fn bound(problem: &LatencyProblem, accelerators: &[Group], host: Option<&Group>) -> f64 {
    let count = problem.operators.len();
    let least = |unit: usize| {
        let [accelerator_ms, cpu_ms] = problem.times[unit];
        let groups = accelerators.iter().chain(host);
        groups.map(|group| group.time(accelerator_ms, cpu_ms)).fold(f64::INFINITY, f64::min)
    };
    // Units are numbered so that edges lead to greater numbers.
    let (mut before, mut behind) = (vec![0.0f64; count], vec![0.0f64; count]);
    for unit in 0..count {
        let ends = problem.feeders[unit].iter().map(|&feeder| before[feeder] + least(feeder));
        before[unit] = ends.fold(0.0, f64::max);
    }
    for unit in (0..count).rev() {
        let starts = problem.followers[unit].iter().map(|&follower| behind[follower] + least(follower));
        behind[unit] = starts.fold(0.0, f64::max);
    }
    let longest = (0..count).map(|unit| before[unit] + least(unit) + behind[unit]).fold(0.0, f64::max);
    let hosted = |unit: usize| {
        let [accelerator_ms, cpu_ms] = problem.times[unit];
        let own = host.map_or(f64::INFINITY, |host| host.time(accelerator_ms, cpu_ms));
        before[unit] + own + behind[unit]
    };
    let mut late: Vec<(f64, usize)> = (0..count).map(|unit| (hosted(unit), unit)).collect();
    late.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let speed: f64 = accelerators.iter().map(|group| group.speed).sum();
    let capacity = accelerators
        .iter()
        .fold(0u64, |sum, group| sum.saturating_add(group.memory_bytes.unwrap_or(u64::MAX)));
    let work = |unit: usize| problem.times[unit][0];
    // Those that no accelerator runs are counted, for a sum would not lose them again.
    let mut work_ms: f64 = late.iter().map(|&(_, unit)| work(unit)).filter(|work| work.is_finite()).sum();
    let mut stuck = late.iter().filter(|&&(_, unit)| !work(unit).is_finite()).count();
    let mut bytes = late.iter().fold(0u64, |sum, &(_, unit)| sum.saturating_add(problem.bytes[unit]));
    // From everything on accelerators on, the operator that is least late goes to the host, which takes its time.
    let mut floor = longest;
    for &(hosted_ms, unit) in &late {
        // A little less, for sums differ in their last digits.
        let time = floor.max(if work_ms > 0.0 { work_ms / speed * (1.0 - 1e-11) } else { 0.0 });
        if stuck == 0 && bytes <= capacity && time < hosted_ms {
            return time;
        }
        floor = floor.max(hosted_ms * (1.0 - 1e-11));
        match work(unit) {
            work if work.is_finite() => work_ms -= work,
            _ => stuck -= 1,
        }
        bytes = if bytes < u64::MAX { bytes - problem.bytes[unit] } else { bytes };
    }
    floor
}
