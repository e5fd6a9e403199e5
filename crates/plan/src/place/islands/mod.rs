//! Placements that need not be contiguous: a device may hold several islands of the graph.
//!
//! ```text
//! contiguous optimum ─▶ local search ─▶ incumbent ─▶ (a solver, by the caller: model) ─▶ judge
//! cut bound, spread ─▶ lower bound ──────────────────┘
//! ```
//!
//! Nothing is replicated here. What is found is proved only where a bound meets it.

mod bound;
mod flow;
mod local;
mod model;
#[cfg(test)]
mod tests;

pub use model::{Answer, Model, ModelError};

use super::problem::Problem;
use super::search::{Budget, Split, SplitPart};
use super::{
    Binding, Communication, Devices, Infeasible, Limits, PlaceError, Placement, Report, Work, binding,
    contiguous, judge, usable,
};
use crate::operators::OperatorGraph;
use local::Assignment;

/// Moves that the local search tries, unless it is stopped.
pub const MOVES_MAX: u64 = 40_000_000;

/// The best placement found whose parts may be islands, and a value that no placement is below.
///
/// `moves_max` bounds the local search, whose chance comes from `seed` alone.
///
/// # Errors
///
/// As [`place`](super::place()).
pub fn place_islands(
    graph: &OperatorGraph,
    devices: &Devices,
    communication: Communication,
    limits: Limits<'_>,
    (seed, moves_max): (u64, u64),
) -> Result<(Placement, Report), PlaceError> {
    let alone = Devices { exchange_bytes_per_second: None, ..devices.clone() };
    let problem = Problem::loose(graph, &alone);
    let devices = usable(graph, &problem, &alone)?;
    let mut budget = Budget::new(limits);
    let mut work = Work { units: problem.units.len(), nets: problem.nets.len(), ..Work::default() };
    let strict = Problem::new(graph, &alone);
    let start =
        contiguous(&strict, &devices, communication, strict.lower_bound(&devices), &mut budget, &mut work);
    work.pairs = budget.pairs();
    let cut = bound::least_load(&problem, &devices, communication, limits);
    let floor = problem.lower_bound(&devices).max(cut);
    let mut assignment = Assignment::new(&problem, &devices, communication);
    match &start.split {
        Some(split) => assignment.follow(&problem.split(&strict.placement(split))),
        None => assignment.pack(),
    }
    let best = assignment.improve(floor, (seed, moves_max), limits);
    let Some(device_of) = best else {
        let unsplit = PlaceError::Infeasible(vec![Infeasible::Split]);
        return Err(if devices.count() == 1 { unsplit } else { PlaceError::NoneFound });
    };
    let placement = problem.placement(&split_of(&device_of, &devices));
    let verdict = judge(graph, &devices, communication, &placement);
    let value_ms = verdict.value_ms;
    // The last digits of a sum differ with its order.
    let proved = value_ms <= floor * (1.0 + 1e-9);
    let lower_ms = if proved { value_ms } else { floor };
    let binding = match binding(&verdict, problem.heaviest_ms(&devices)) {
        Binding::Unit => Binding::Unit,
        _ if value_ms <= cut * (1.0 + 1e-9) => Binding::Surroundings,
        other => other,
    };
    Ok((placement, Report { value_ms, lower_ms, proved, binding, work }))
}

/// Parts from the device of each unit, devices numbered group by group.
fn split_of(device_of: &[usize], devices: &Devices) -> Split {
    let mut parts = Vec::new();
    let mut first = 0;
    for (group, content) in devices.groups.iter().enumerate() {
        for device in first..first + content.count {
            let units: Vec<usize> = (0..device_of.len()).filter(|&unit| device_of[unit] == device).collect();
            if !units.is_empty() {
                parts.push(SplitPart { group, replicas: 1, units });
            }
        }
        first += content.count;
    }
    Split { value: f64::NAN, parts }
}
