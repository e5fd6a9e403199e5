//! Placements that need not be contiguous: a device may hold several islands of the graph.
//!
//! ```text
//! contiguous optimum ─▶ branch and bound ─▶ local search ─▶ incumbent ─▶ (a solver, by the caller: model) ─▶ judge
//! cut bound, spread ─▶ lower bound, raised by branch and bound ───────────┘
//! ```
//!
//! Nothing is replicated here. Small graphs are searched whole, and so proved; what is found for larger ones is proved
//! only where a bound meets it.

mod bound;
mod exact;
mod flow;
mod local;
mod model;
#[cfg(test)]
mod tests;

pub use model::{Answer, Model, ModelError};

use super::problem::Problem;
use super::search::{Budget, Split, SplitPart};
use super::{
    Binding, Communication, DeviceFault, Devices, Infeasible, Limits, PlaceError, Placement, Report, Work,
    binding, contiguous, judge, usable,
};
use crate::operators::OperatorGraph;
use exact::Exact;
use local::Assignment;

/// Moves that the local search tries, unless it is stopped.
pub const MOVES_MAX: u64 = 40_000_000;

/// Nodes of branch and bound that are looked at before the local search: enough for a small graph, a second at most.
const NODES_FIRST: u64 = 1_000_000;

/// Nodes for each value that is tried as a bound afterwards, and how many are tried.
const NODES_EACH: u64 = 200_000;
const BOUNDS_TRIED: u32 = 6;

/// Values this close, as a part of them, are the same; the last digits of a sum differ with its order.
const SAME: f64 = 1e-9;

/// The best placement found whose parts may be islands, and a value that no placement is below.
///
/// The local search's chance comes from the seed alone, and it tries so many moves at most.
///
/// # Errors
///
/// As [`place`](super::place()).
pub fn place_islands(
    graph: &OperatorGraph,
    devices: &Devices,
    communication: Communication,
    limits: Limits<'_>,
    seed_and_moves: (u64, u64),
) -> Result<(Placement, Report), PlaceError> {
    if devices.hierarchical() {
        return Err(PlaceError::Devices(vec![DeviceFault::OneLink]));
    }
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
    let mut search = Search { problem: &problem, devices: &devices, communication, floor, limits };
    let start = start.split.map(|split| problem.split(&strict.placement(&split)));
    let (device_of, proved) = search.run(start.as_ref(), seed_and_moves)?;
    let floor = search.floor;
    let placement = problem.placement(&split_of(&device_of, &devices));
    let verdict = judge(graph, &devices, communication, &placement);
    let value_ms = verdict.value_ms;
    let proved = proved || value_ms <= floor * (1.0 + SAME);
    let lower_ms = if proved { value_ms } else { floor };
    let binding = match binding(&verdict, problem.heaviest_ms(&devices)) {
        Binding::Unit => Binding::Unit,
        _ if value_ms <= cut * (1.0 + SAME) => Binding::Surroundings,
        other => other,
    };
    Ok((placement, Report { value_ms, lower_ms, proved, binding, work }))
}

struct Search<'a> {
    problem: &'a Problem,
    devices: &'a Devices,
    communication: Communication,
    /// No placement is below this.
    floor: f64,
    limits: Limits<'a>,
}

impl Search<'_> {
    /// The device of each unit in the best placement found, and whether the whole space was searched.
    fn run(
        &mut self,
        start: Option<&Split>,
        (seed, moves_max): (u64, u64),
    ) -> Result<(Vec<usize>, bool), PlaceError> {
        let mut assignment = Assignment::new(self.problem, self.devices, self.communication);
        match start {
            Some(split) => assignment.follow(split),
            None => assignment.pack(),
        }
        let known = assignment.best().map_or(f64::INFINITY, |best| best.0);
        let mut exact = Exact::new(self.problem, self.devices, self.communication);
        if let Some(exact) = &mut exact {
            let finding = exact.search((known, self.floor), NODES_FIRST, self.limits);
            if let Some((_, device_of)) = &finding.best {
                assignment.set(device_of);
            }
            if finding.complete {
                let nothing = || PlaceError::Infeasible(vec![Infeasible::Fit]);
                return assignment.best().map(|best| (best.1, true)).ok_or_else(nothing);
            }
        }
        let found = assignment.improve(self.floor, (seed, moves_max), self.limits);
        let (value, device_of) = found.ok_or(PlaceError::NoneFound)?;
        match exact {
            Some(mut exact) => Ok((self.raise(&mut exact, value).unwrap_or(device_of), false)),
            None => Ok((device_of, false)),
        }
    }

    /// Tries values between the floor and `value`: below each there is a placement, or none, or the nodes run out. The
    /// best placement found on the way.
    fn raise(&mut self, exact: &mut Exact<'_>, mut value: f64) -> Option<Vec<usize>> {
        let mut found = None;
        let mut tried = value;
        for _ in 0..BOUNDS_TRIED {
            if value <= self.floor * (1.0 + SAME) || (self.limits.stop)() {
                break;
            }
            tried = f64::midpoint(self.floor, tried);
            let finding = exact.search((tried, self.floor), NODES_EACH, self.limits);
            if let Some((better, device_of)) = finding.best {
                value = better;
                found = Some(device_of);
            }
            if finding.complete {
                // Sums differ in their last digits with their order.
                self.floor = self.floor.max(tried.min(value) * (1.0 - 1e-11));
                tried = value;
            }
        }
        found
    }
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
