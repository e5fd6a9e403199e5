//! PipeDream's hierarchical optimiser as its published code computes it, faults included, to compare digits with.
//!
//! Pipeline transfers count only when asked for, the last stage of a split pays its whole weight exchange, and on inner
//! levels of branching graphs a stage's sums are differences of prefixes that need not contain each other.

use super::layers::Layers;
use super::walk::{State, states};
use super::{Level, Pipeline, PipelineError, Stage, check_levels};
use crate::operators::OperatorGraph;
use std::collections::BTreeSet;

/// Cells of one table on an inner level.
const CELLS_MAX: usize = 1 << 24;

/// What the published program calls an activation compression ratio; 1 counts transfers in full.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Transfers {
    /// As the program does by default.
    Ignored,
    /// In full, divided by this ratio.
    Counted {
        /// How much smaller activations travel.
        compression: f64,
    },
}

/// The pipeline that PipeDream's published optimiser prints for `levels`, innermost first. Like the program, it drops
/// inputs and unused outputs; [`plan_pipeline`](super::plan_pipeline) keeps every layer.
///
/// # Errors
///
/// Levels without machines, graphs without layers, sizes or times, and graphs with too many places to cut.
pub fn plan_published(
    graph: &OperatorGraph,
    levels: &[Level],
    transfers: Transfers,
) -> Result<Pipeline, PipelineError> {
    check_levels(levels)?;
    let layers = Layers::computing(graph)?;
    let states = states(&layers)?;
    let most = levels.iter().map(|level| level.machines).max().unwrap_or(1);
    if levels.len() > 1 && states.len() * states.len() * most > CELLS_MAX {
        return Err(PipelineError::Cuts { limit: (CELLS_MAX / most).isqrt() });
    }
    let sums = Sums::new(&layers, &states);
    let mut tables: Vec<Table> = Vec::new();
    for (number, &level) in levels.iter().enumerate() {
        let rows = if number + 1 == levels.len() { 1 } else { states.len() };
        let inner = number.checked_sub(1).map_or(1, |below| levels[below].machines);
        let table = Table::fill(&states, &sums, tables.last(), (level, inner, rows), transfers);
        tables.push(table);
    }
    let last = states.len() - 1;
    let seconds = tables.last().map_or(f64::INFINITY, |table| table.value(0, last, table.machines));
    let mut cuts = Vec::new();
    unfold(&tables, (0, last), (&[], &[]), &mut cuts);
    let mut stages = Vec::with_capacity(cuts.len());
    let mut placed: BTreeSet<usize> = BTreeSet::new();
    for (end, replicas, within) in cuts {
        let fresh: Vec<usize> = states[end].prefix.difference(&placed).copied().collect();
        placed.extend(&fresh);
        let mut places: Vec<usize> = fresh.into_iter().map(|layer| layers.layers[layer].place).collect();
        places.sort_unstable();
        stages.push(Stage { layers: places, replicas, within });
    }
    Ok(Pipeline { stages, seconds, cuts: states.len() })
}

/// Sums over each state's prefix.
struct Sums {
    seconds: Vec<f64>,
    parameter_bytes: Vec<f64>,
    live_bytes: Vec<f64>,
}

impl Sums {
    fn new(layers: &Layers, states: &[State]) -> Self {
        let over = |of: &dyn Fn(&State) -> f64| states.iter().map(of).collect::<Vec<f64>>();
        let layer = |at: &usize| &layers.layers[*at];
        Self {
            seconds: over(&|state| {
                state.prefix.iter().map(|at| layer(at).milliseconds.iter().sum::<f64>() / 1e3).sum()
            }),
            parameter_bytes: over(&|state| state.prefix.iter().map(|at| layer(at).parameter_bytes).sum()),
            live_bytes: over(&|state| state.live.iter().map(|at| layer(at).output_bytes).sum()),
        }
    }

    fn between(sums: &[f64], from: usize, to: usize) -> f64 {
        sums[to] - from.checked_sub(1).map_or(0.0, |before| sums[before])
    }
}

/// How the best pipeline of a cell ends.
#[derive(Clone, Copy)]
enum Choice {
    /// One stage on all its machines.
    Whole,
    /// The states up to `end` on fewer machines, then a stage on `last` of them.
    Split { end: usize, last: usize },
}

/// For states `from..=to` on up to so many machines of one level: the least time between minibatches.
struct Table {
    machines: usize,
    states: usize,
    cells: Vec<(f64, Choice)>,
}

impl Table {
    fn value(&self, from: usize, to: usize, machines: usize) -> f64 {
        self.cell(from, to, machines).0
    }

    fn cell(&self, from: usize, to: usize, machines: usize) -> (f64, Choice) {
        self.cells[(from * self.states + to) * self.machines + machines - 1]
    }

    fn fill(
        states: &[State],
        sums: &Sums,
        below: Option<&Self>,
        (level, inner, rows): (Level, usize, usize),
        transfers: Transfers,
    ) -> Self {
        let machines = level.machines;
        let cells = vec![(f64::INFINITY, Choice::Whole); rows * states.len() * machines];
        let mut table = Self { machines, states: states.len(), cells };
        let compute = |from: usize, to: usize| match below {
            None => Sums::between(&sums.seconds, from, to),
            Some(below) => below.value(from, to, below.machines),
        };
        // Each direction of each replica's share goes to a server and comes back: four times the bytes.
        let exchange = |from: usize, to: usize, replicas: usize| {
            let bytes = Sums::between(&sums.parameter_bytes, from, to);
            4.0 * (replicas - 1) as f64 * bytes / (level.bytes_per_second * replicas as f64)
        };
        let moving = |state: usize, replicas: usize| match transfers {
            Transfers::Ignored => 0.0,
            Transfers::Counted { compression } => {
                2.0 * sums.live_bytes[state] / (level.bytes_per_second * replicas as f64) / compression
            }
        };
        let last_state = states.len() - 1;
        // What the last stage of a split costs on each number of machines; it does not depend on where the split starts.
        let mut endings = vec![f64::INFINITY; states.len() * states.len() * machines];
        for to in 0..states.len() {
            for &end in &states[to].earlier {
                for last in 1..machines {
                    let stage = (compute(end + 1, to) + exchange(end + 1, to, last)) / last as f64;
                    let through = if to == last_state { 0.0 } else { moving(to, last) };
                    endings[(end * states.len() + to) * machines + last - 1] =
                        stage.max(moving(end, last)).max(through);
                }
            }
        }
        for from in 0..rows {
            for to in from..states.len() {
                let seconds = compute(from, to);
                let earlier = &states[to].earlier;
                let ends = &earlier[earlier.partition_point(|&end| end < from)..];
                for used in 1..=machines {
                    let whole = (seconds + exchange(from, to, used) / inner as f64) / used as f64;
                    let mut best = (whole, Choice::Whole);
                    for &end in ends {
                        let ending = (end * states.len() + to) * machines;
                        let start = (from * states.len() + end) * machines;
                        for last in 1..used {
                            let value =
                                table.cells[start + used - last - 1].0.max(endings[ending + last - 1]);
                            if value < best.0 {
                                best = (value, Choice::Split { end, last });
                            }
                        }
                    }
                    table.cells[(from * states.len() + to) * machines + used - 1] = best;
                }
            }
        }
        table
    }
}

/// The last state, the replicas and the enclosing stages of every stage of `from..=to`, from the outermost of `tables`.
fn unfold(
    tables: &[Table],
    (from, to): (usize, usize),
    (replicas, within): (&[usize], &[usize]),
    stages: &mut Vec<(usize, Vec<usize>, Vec<usize>)>,
) {
    let Some((table, inner)) = tables.split_last() else {
        // The stage itself is the last of those that enclose it.
        let within = within.iter().rev().skip(1).copied().collect();
        stages.push((to, replicas.iter().rev().copied().collect(), within));
        return;
    };
    let mut parts = Vec::new();
    let (mut end, mut machines) = (to, table.machines);
    loop {
        match table.cell(from, end, machines).1 {
            Choice::Whole => {
                parts.push((from, end, machines));
                break;
            }
            Choice::Split { end: cut, last } => {
                parts.push((cut + 1, end, last));
                (end, machines) = (cut, machines - last);
            }
        }
    }
    for (number, (from, to, count)) in parts.into_iter().rev().enumerate() {
        let outer = ([replicas, &[count]].concat(), [within, &[number]].concat());
        unfold(inner, (from, to), (&outer.0, &outer.1), stages);
    }
}
