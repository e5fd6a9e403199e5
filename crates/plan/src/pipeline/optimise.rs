//! The default pipeline optimiser: PipeDream's tables over cuts, with its faults mended.
//!
//! On every level a stage takes the greater of computing and communicating, divided by its replicas. Computing is a
//! device's time, or what the level below makes of it. Communicating shares one link: what enters and leaves the stage
//! (each way, outputs and their gradients), and a ring all-reduce of its parameters among replicas. Stages lie between
//! ideals of all layers, so branches are cut anywhere and sums are exact.
//!
//! Memory: a device keeps activations of every minibatch in flight, one set of gradients, and as many versions of the
//! parameters as the discipline needs. On inner
//! levels, where it is not known how many devices follow, all others are taken to follow.

use super::cuts::Cuts;
use super::flush::plan_flush;
use super::judge::judge_pipeline;
use super::layers::Layers;
use super::{Discipline, Level, Pipeline, PipelineError, PipelineReport, Stage, check_levels};
use crate::operators::OperatorGraph;

/// Cuts that are searched, however few machines there are.
const CUTS_MAX: usize = 800;

/// Cuts that are searched when there is no time for more.
const CUTS_FEW: usize = 48;

/// Cells of one table.
const CELLS_MAX: usize = 1 << 22;

/// Seconds that a stage communicates for a minibatch, before its replicas share the minibatches; they exchange gradients
/// once a round of minibatches.
pub(super) fn communication(
    level: Level,
    replicas: usize,
    crossing_bytes: f64,
    parameter_bytes: f64,
    round: usize,
) -> f64 {
    let ring = 2.0 * (replicas - 1) as f64 / replicas as f64 * parameter_bytes / round as f64;
    (crossing_bytes + ring) / level.bytes_per_second
}

/// The pipeline with the least time between minibatches on `levels`, innermost first, of devices with so much memory.
/// When `stop` says so, fewer places to cut are searched.
///
/// # Errors
///
/// Levels without machines or with too many, graphs without layers, sizes or times, and too little memory.
pub fn plan_pipeline(
    graph: &OperatorGraph,
    levels: &[Level],
    memory_bytes: Option<u64>,
    discipline: Discipline,
    stop: &dyn Fn() -> bool,
) -> Result<(Pipeline, PipelineReport), PipelineError> {
    check_levels(levels)?;
    if let Discipline::Flush { minibatches } = discipline {
        return plan_flush(graph, levels, memory_bytes, minibatches, stop);
    }
    plan_steady(graph, levels, memory_bytes, discipline, stop)
}

/// The pipeline with the least time between minibatches while it is full.
pub(super) fn plan_steady(
    graph: &OperatorGraph,
    levels: &[Level],
    memory_bytes: Option<u64>,
    discipline: Discipline,
    stop: &dyn Fn() -> bool,
) -> Result<(Pipeline, PipelineReport), PipelineError> {
    let layers = Layers::all(graph)?;
    let most = levels.iter().map(|level| level.machines).max().unwrap_or(1);
    let many = CUTS_MAX.min((CELLS_MAX / most).isqrt());
    let mut cuts = Cuts::new(&layers, many);
    let tables = match tables(&layers, &cuts, levels, (memory_bytes, discipline), stop) {
        Some(tables) => tables,
        None => {
            cuts = Cuts::few(&layers, CUTS_FEW.min(many));
            tables(&layers, &cuts, levels, (memory_bytes, discipline), &|| false).unwrap_or_default()
        }
    };
    let devices: usize = levels.iter().map(|level| level.machines).product();
    let last = cuts.len() - 1;
    let found = tables.last().is_some_and(|table| table.value(0, last).is_finite());
    if !found {
        return Err(PipelineError::Memory { memory_bytes: memory_bytes.unwrap_or(u64::MAX) });
    }
    let mut stages = Vec::new();
    unfold(&tables, (0, last), (&[], &[]), &mut |(from, to), replicas, within| {
        let between =
            (0..layers.layers.len()).filter(|&layer| cuts.holds(to, layer) && !cuts.holds(from, layer));
        let layers = between.map(|layer| layers.layers[layer].place).collect();
        stages.push(Stage { layers, replicas, within });
    });
    let total: f64 = layers.layers.iter().map(|layer| layer.milliseconds.iter().sum::<f64>() / 1e3).sum();
    let mut pipeline = Pipeline { stages, seconds: 0.0, cuts: cuts.len() };
    pipeline.seconds = match discipline {
        // The judge drains the pipeline; here it is full.
        Discipline::Flush { .. } => tables.last().map_or(f64::INFINITY, |table| table.value(0, last)),
        _ => judge_pipeline(graph, levels, memory_bytes, discipline, &pipeline)?.seconds,
    };
    let seconds = pipeline.seconds;
    let even = (total / devices as f64).min(seconds);
    // With memory limits, inner levels are judged more strictly than need be.
    let exact = cuts.complete && (memory_bytes.is_none() || levels.len() == 1);
    let lower_seconds = if exact { seconds } else { even };
    Ok((pipeline, PipelineReport { seconds, lower_seconds, proved: exact || even >= seconds }))
}

/// The table of every level; `None` when stopped.
fn tables(
    layers: &Layers,
    cuts: &Cuts,
    levels: &[Level],
    (memory_bytes, discipline): (Option<u64>, Discipline),
    stop: &dyn Fn() -> bool,
) -> Option<Vec<Table>> {
    let spans = Spans::new(layers, cuts);
    let devices: usize = levels.iter().map(|level| level.machines).product();
    let memory = memory_bytes.map_or(f64::INFINITY, |bytes| bytes as f64);
    let mut tables: Vec<Table> = Vec::new();
    for (number, &level) in levels.iter().enumerate() {
        let rows = if number + 1 == levels.len() { 1 } else { cuts.len() };
        let limit = if number == 0 { memory } else { f64::INFINITY };
        let table =
            Filling { spans: &spans, below: tables.last(), level, devices, memory: limit, discipline }
                .run(rows, stop)?;
        tables.push(table);
    }
    Some(tables)
}

/// What the layers between two cuts cost.
#[derive(Clone, Copy, Default)]
struct Span {
    seconds: f64,
    parameter_bytes: f64,
    activation_bytes: f64,
    crossing_bytes: f64,
}

struct Spans {
    width: usize,
    spans: Vec<Span>,
    /// Cuts inside each cut, ascending.
    inside: Vec<Vec<usize>>,
    /// Whether one cut is inside another.
    ordered: Vec<bool>,
}

impl Spans {
    fn new(layers: &Layers, cuts: &Cuts) -> Self {
        let width = cuts.len();
        let sum = |of: &dyn Fn(usize) -> f64| {
            let over = |cut| (0..layers.layers.len()).filter(|&layer| cuts.holds(cut, layer)).map(of).sum();
            (0..width).map(over).collect::<Vec<f64>>()
        };
        let seconds = sum(&|layer| layers.layers[layer].milliseconds.iter().sum::<f64>() / 1e3);
        let parameters = sum(&|layer| layers.layers[layer].parameter_bytes);
        let activations = sum(&|layer| layers.layers[layer].output_bytes);
        let mut spans = vec![Span::default(); width * width];
        let mut inside = vec![Vec::new(); width];
        let mut ordered = vec![false; width * width];
        for to in 0..width {
            for from in 0..to {
                if cuts.inside(from, to) {
                    inside[to].push(from);
                    ordered[from * width + to] = true;
                    spans[from * width + to] = Span {
                        seconds: seconds[to] - seconds[from],
                        parameter_bytes: parameters[to] - parameters[from],
                        activation_bytes: activations[to] - activations[from],
                        crossing_bytes: cuts.crossing(layers, from, to),
                    };
                }
            }
        }
        Self { width, spans, inside, ordered }
    }

    fn inside(&self, inner: usize, outer: usize) -> bool {
        self.ordered[inner * self.width + outer]
    }

    fn span(&self, from: usize, to: usize) -> Span {
        self.spans[from * self.width + to]
    }
}

/// How the best pipeline of a cell ends: a stage from `cut` on `replicas` machines, after `used` machines before it.
#[derive(Clone, Copy, Default)]
struct Choice {
    cut: usize,
    replicas: usize,
    before: usize,
}

/// Between two cuts, on up to so many machines: the least time between minibatches.
struct Table {
    machines: usize,
    width: usize,
    cells: Vec<(f64, Choice)>,
}

impl Table {
    fn at(&self, from: usize, to: usize, machines: usize) -> usize {
        (from * self.width + to) * self.machines + machines - 1
    }

    /// On all machines.
    fn value(&self, from: usize, to: usize) -> f64 {
        self.cells[self.at(from, to, self.machines)].0
    }
}

struct Filling<'a> {
    spans: &'a Spans,
    below: Option<&'a Table>,
    level: Level,
    devices: usize,
    memory: f64,
    discipline: Discipline,
}

impl Filling<'_> {
    fn run(&self, rows: usize, stop: &dyn Fn() -> bool) -> Option<Table> {
        let width = self.spans.width;
        let machines = self.level.machines;
        let cells = vec![(f64::INFINITY, Choice::default()); rows * width * machines];
        let mut table = Table { machines, width, cells };
        let times = self.times();
        let mut within = Vec::new();
        for from in 0..rows {
            if stop() {
                return None;
            }
            for to in from + 1..width {
                if !self.spans.inside(from, to) {
                    continue;
                }
                within.clear();
                let between = self.spans.inside[to].iter().copied().filter(|&cut| cut >= from);
                within.extend(between.filter(|&cut| cut == from || self.spans.inside(from, cut)));
                for used in 1..=machines {
                    let cell = self.cell(&table, &times, &within, (from, to, used));
                    let at = table.at(from, to, used);
                    table.cells[at] = cell;
                }
            }
        }
        Some(table)
    }

    /// The time of the stage between two cuts for each number of replicas.
    fn times(&self) -> Vec<f64> {
        let (width, machines) = (self.spans.width, self.level.machines);
        let mut times = vec![f64::INFINITY; width * width * machines];
        for to in 0..width {
            for &from in &self.spans.inside[to] {
                for replicas in 1..=machines {
                    times[(from * width + to) * machines + replicas - 1] = self.stage(from, to, replicas);
                }
            }
        }
        times
    }

    /// The best of all pipelines that end with a stage from one of the cuts `within`.
    fn cell(
        &self,
        table: &Table,
        times: &[f64],
        within: &[usize],
        (from, to, used): (usize, usize, usize),
    ) -> (f64, Choice) {
        let machines = table.machines;
        let mut best = (f64::INFINITY, Choice::default());
        if used > 1 {
            best = table.cells[table.at(from, to, used - 1)];
        }
        for &cut in within {
            let whole = cut == from;
            let at = (cut * table.width + to) * machines;
            let before = (from * table.width + cut) * machines;
            for replicas in 1..=if whole { used } else { used - 1 } {
                let mut value = times[at + replicas - 1];
                if !whole {
                    value = value.max(table.cells[before + used - replicas - 1].0);
                }
                if value < best.0 && self.fits(cut, to, replicas, used) {
                    best = (value, Choice { cut, replicas, before: if whole { 0 } else { used - replicas } });
                }
            }
        }
        best
    }

    /// Whether a stage that ends when so many machines are used has the memory for its minibatches in flight.
    fn fits(&self, from: usize, to: usize, replicas: usize, used: usize) -> bool {
        if self.memory.is_infinite() {
            return true;
        }
        let span = self.spans.span(from, to);
        let in_flight = (self.devices - used + replicas).div_ceil(replicas);
        self.discipline.resident(in_flight, span.parameter_bytes, span.activation_bytes) <= self.memory
    }

    /// The time of a stage that has the memory it needs.
    fn stage(&self, from: usize, to: usize, replicas: usize) -> f64 {
        let span = self.spans.span(from, to);
        let computing = self.below.map_or(span.seconds, |below| below.value(from, to));
        let communicating = communication(
            self.level,
            replicas,
            span.crossing_bytes,
            span.parameter_bytes,
            self.discipline.round(),
        );
        computing.max(communicating) / replicas as f64
    }
}

/// Hands every stage between two cuts to `emit`, in order, with its replicas and the stages that enclose it.
fn unfold(
    tables: &[Table],
    (from, to): (usize, usize),
    (replicas, within): (&[usize], &[usize]),
    emit: &mut dyn FnMut((usize, usize), Vec<usize>, Vec<usize>),
) {
    let Some((table, inner)) = tables.split_last() else {
        // The stage itself is the last of those that enclose it.
        let within = within.iter().rev().skip(1).copied().collect();
        emit((from, to), replicas.iter().rev().copied().collect(), within);
        return;
    };
    let mut parts = Vec::new();
    let (mut end, mut machines) = (to, table.machines);
    while end != from {
        let choice = table.cells[table.at(from, end, machines)].1;
        parts.push((choice.cut, end, choice.replicas));
        (end, machines) = (choice.cut, choice.before);
    }
    for (number, (from, to, count)) in parts.into_iter().rev().enumerate() {
        let outer = ([replicas, &[count]].concat(), [within, &[number]].concat());
        unfold(inner, (from, to), (&outer.0, &outer.1), emit);
    }
}
