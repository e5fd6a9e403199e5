//! Linear orders of a problem's units, and blocks of them when they are many.

use super::problem::Problem;
use crate::operators::adjacency;

/// Orders worth searching: by number, depth first from either end of the unit list, and against the edges.
pub(super) fn orders(problem: &Problem) -> Vec<Vec<usize>> {
    let count = problem.units.len();
    let forward = adjacency(count, problem.edges.iter().copied());
    let backward = adjacency(count, problem.edges.iter().map(|&(source, target)| (target, source)));
    let mut orders = vec![(0..count).collect()];
    for (edges, last_first) in [(&forward, false), (&forward, true), (&backward, false), (&backward, true)] {
        orders.push(depth_first(edges, last_first));
    }
    // Those along the edges finish last units first.
    for order in &mut orders[1..3] {
        order.reverse();
    }
    orders.dedup();
    orders
}

/// Blocks of consecutive units, about `count` of them, each with about the same share of time, memory and number.
pub(super) fn blocks(problem: &Problem, order: &[usize], count: usize) -> Vec<Vec<usize>> {
    let time = |unit: usize| {
        let unit = &problem.units[unit];
        unit.accelerator_ms.min(unit.cpu_ms)
    };
    let bytes = |unit: usize| problem.units[unit].resident_bytes as f64;
    let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
    let all_time: f64 = order.iter().map(|&unit| time(unit)).sum();
    let all_bytes: f64 = order.iter().map(|&unit| bytes(unit)).sum();
    let one = 1.0 / order.len().max(1) as f64;
    let full = 3.0 / count.max(1) as f64;
    let mut blocks: Vec<Vec<usize>> = Vec::new();
    let mut filled = f64::INFINITY;
    for &unit in order {
        let weight = share(time(unit), all_time) + share(bytes(unit), all_bytes) + one;
        match blocks.last_mut() {
            Some(block) if filled + weight <= full => {
                block.push(unit);
                filled += weight;
            }
            _ => {
                blocks.push(vec![unit]);
                filled = weight;
            }
        }
    }
    blocks
}

/// Units as a depth-first walk finishes them: each after everything `edges` lead to from it.
fn depth_first(edges: &[Vec<usize>], last_first: bool) -> Vec<usize> {
    let count = edges.len();
    let mut seen = vec![false; count];
    let mut order = Vec::with_capacity(count);
    for start in 0..count {
        let start = if last_first { count - 1 - start } else { start };
        let mut path = vec![(start, 0usize)];
        if std::mem::replace(&mut seen[start], true) {
            continue;
        }
        while let Some((unit, next)) = path.pop() {
            let Some(step) = edges[unit].len().checked_sub(next + 1) else {
                order.push(unit);
                continue;
            };
            path.push((unit, next + 1));
            let follower = edges[unit][if last_first { step } else { next }];
            if !std::mem::replace(&mut seen[follower], true) {
                path.push((follower, 0));
            }
        }
    }
    order
}
