//! Placement on machines whose links to each other are slower than those within them.
//!
//! ```text
//! order ─▶ blocks of consecutive units, one a machine ─▶ parts of consecutive units, one a device
//! ```
//!
//! What a part pays for an output depends on where its block begins and ends, so blocks are searched around parts: for each
//! block the best split over a machine's devices, then the best blocks. That is exact for one linear order; the bound is the
//! optimum of the same devices in one machine with the faster link, which no placement is below.

mod nested;
#[cfg(test)]
mod tests;

use super::problem::Problem;
use super::search::{Budget, Split};
use super::{
    Communication, Devices, Group, Limits, PlaceError, Placement, Report, Work, binding, judge, order,
};
use crate::operators::OperatorGraph;
use nested::Nested;

/// Units of an order that are searched one by one; longer orders are cut into this many blocks of about equal work.
const UNITS_MAX: usize = 80;

/// A machine: its groups, by their places in the devices.
pub(super) struct Machine {
    pub groups: Vec<usize>,
}

/// As [`super::place()`], for several machines.
pub(super) fn place(
    graph: &OperatorGraph,
    devices: &Devices,
    communication: Communication,
    limits: Limits<'_>,
) -> Result<(Placement, Report), PlaceError> {
    let faults = devices.faults();
    if !faults.is_empty() {
        return Err(PlaceError::Devices(faults));
    }
    let problem = Problem::new(graph, devices);
    let mut budget = Budget::new(limits);
    let mut best: Option<Split> = None;
    for order in order::orders(&problem) {
        along(&problem, &order, (devices, communication), &mut best, &mut budget);
    }
    let (united, report) = super::place(graph, &united(devices), communication, limits)?;
    let order: Vec<usize> = problem.split(&united).parts.into_iter().flat_map(|part| part.units).collect();
    along(&problem, &order, (devices, communication), &mut best, &mut budget);
    let split = best.ok_or(PlaceError::NoneFound)?;
    let placement = problem.placement(&split);
    let verdict = judge(graph, devices, communication, &placement);
    let value_ms = verdict.value_ms;
    let proved = value_ms <= report.lower_ms * (1.0 + 1e-9);
    let lower_ms = if proved { value_ms } else { report.lower_ms };
    let binding = binding(&verdict, problem.heaviest_ms(devices));
    let work = Work { pairs: budget.pairs() + report.work.pairs, ..report.work };
    Ok((placement, Report { value_ms, lower_ms, proved, binding, work }))
}

/// The same devices in one machine, where whatever is moved takes the faster of the two links.
fn united(devices: &Devices) -> Devices {
    let mut groups: Vec<Group> = Vec::new();
    for group in &devices.groups {
        let link = group.link.max(group.across);
        let alike = Group { machine: 0, link, across: link, ..*group };
        let same = |known: &&mut Group| Group { count: alike.count, ..**known } == alike;
        match groups.iter_mut().find(same) {
            Some(known) => known.count += group.count,
            None => groups.push(alike),
        }
    }
    Devices { groups, exchange_bytes_per_second: None }
}

/// Betters the best split by one along an order, if there is one.
fn along(
    problem: &Problem,
    order: &[usize],
    (devices, communication): (&Devices, Communication),
    best: &mut Option<Split>,
    budget: &mut Budget<'_>,
) {
    let upper = best.as_ref().map_or(f64::INFINITY, |best| best.value);
    let blocks = if order.len() > UNITS_MAX {
        order::blocks(problem, order, UNITS_MAX)
    } else {
        order.iter().map(|&unit| vec![unit]).collect()
    };
    let merged = problem.merged(&blocks);
    let found = Nested::new(&merged, devices, communication, upper).run(budget);
    if let Some(split) = found {
        *best = Some(split.expanded(&blocks));
    }
}

/// The machines that have devices, by number.
pub(super) fn machines(devices: &Devices) -> Vec<Machine> {
    let mut numbers: Vec<usize> = devices.groups.iter().map(|group| group.machine).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let groups = |number: usize| {
        let own = |&group: &usize| {
            let group = &devices.groups[group];
            group.machine == number && group.count > 0
        };
        (0..devices.groups.len()).filter(own).collect()
    };
    let all = numbers.into_iter().map(|number| Machine { groups: groups(number) });
    all.filter(|machine| !machine.groups.is_empty()).collect()
}
