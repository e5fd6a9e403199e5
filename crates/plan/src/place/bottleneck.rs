//! A proof that some unit is the bottleneck: whatever contiguous part holds it, and on whatever device, is no faster than
//! the split that is known. Then nothing is, and the rest of the lattice need not be searched.

use super::lattice::Lattice;
use super::problem::Problem;
use super::search::{Budget, Frame, Search};

/// Units that are tried, the slowest first.
const UNITS_MAX: usize = 3;

/// Sets that are looked at for one unit; a bottleneck is shown by few.
const SETS_MAX: u64 = 200_000;

/// Whether one of the slowest units forces a load of at least the upper bound.
pub(super) fn found(search: &mut Search<'_>, order: &[usize], budget: &mut Budget<'_>) -> bool {
    order.iter().take(UNITS_MAX).any(|&unit| forced(search, unit, budget))
}

/// Units that lead to `unit`.
fn ancestors(problem: &Problem, unit: usize) -> Vec<bool> {
    let mut leads = vec![false; problem.units.len()];
    leads[unit] = true;
    // Edges point to greater numbers, so one pass backwards meets each after what it leads to.
    let mut edges = problem.edges.clone();
    edges.sort_unstable_by(|a, b| b.1.cmp(&a.1).then(b.0.cmp(&a.0)));
    for (source, target) in edges {
        leads[source] |= leads[target];
    }
    leads
}

fn forced(search: &mut Search<'_>, unit: usize, budget: &mut Budget<'_>) -> bool {
    let (problem, lattice) = (search.problem(), search.lattice());
    let leads = ancestors(problem, unit);
    search.open_all();
    let led: Vec<usize> = (0..leads.len()).filter(|&at| leads[at]).collect();
    let mut sets = 0;
    for ideal in 0..lattice.len() {
        let members = lattice.members(ideal);
        if members.binary_search(&unit).is_ok() {
            continue;
        }
        let needed: Vec<usize> =
            led.iter().copied().filter(|at| members.binary_search(at).is_err()).collect();
        let Some(base) = enter_all(search, lattice, ideal, &needed) else { continue };
        let held = grow(search, lattice, base, &mut sets, budget);
        for &unit in needed.iter().rev() {
            search.cut.leave(unit);
        }
        if !held {
            return false;
        }
    }
    true
}

/// Adds what a set must hold; `None`, and nothing added, when that alone is too much for every device.
fn enter_all(search: &mut Search<'_>, lattice: &Lattice, ideal: usize, needed: &[usize]) -> Option<Frame> {
    let mut frame = Frame::empty(ideal);
    for &unit in needed {
        let steps = lattice.steps(frame.ideal);
        let step = steps.iter().find(|step| step.0 as usize == unit)?;
        frame = frame.with(unit, step.1 as usize, None, search.problem());
    }
    if !search.bears(&frame) {
        return None;
    }
    for &unit in needed {
        frame.transfer_ms += search.cut.enter(unit);
    }
    Some(frame)
}

/// Looks at every greater set; whether none is below the upper bound. Leaves only what `base` holds.
fn grow(
    search: &mut Search<'_>,
    lattice: &Lattice,
    base: Frame,
    sets: &mut u64,
    budget: &mut Budget<'_>,
) -> bool {
    if search.below(&base) {
        return false;
    }
    let problem = search.problem();
    let mut holds = true;
    let mut path = vec![base];
    while let Some(top) = path.last_mut() {
        let step = lattice.steps(top.ideal).get(top.next).filter(|_| holds);
        let Some(&(unit, next)) = step else {
            if let Some(left) = path.pop().filter(|_| !path.is_empty()) {
                search.cut.leave(left.unit);
            }
            continue;
        };
        top.next += 1;
        let unit = unit as usize;
        let rank = Some(lattice.rank(unit));
        if rank <= top.rank {
            continue;
        }
        let mut frame = top.with(unit, next as usize, rank, problem);
        if !search.bears(&frame) {
            continue;
        }
        *sets += 1;
        frame.transfer_ms += search.cut.enter(unit);
        holds = *sets < SETS_MAX && budget.spend() && !search.below(&frame);
        path.push(frame);
    }
    holds
}
