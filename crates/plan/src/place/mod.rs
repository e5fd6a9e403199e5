//! Device placement: which operators run on which accelerator or CPU, so that the busiest device has least to do.
//!
//! ```text
//! graph ─▶ problem (units, nets) ─▶ lattice of ideals ─▶ search ─▶ placement ─▶ judge
//!                └─▶ orders ─▶ lattice of a path ─▶ search ─▶ incumbent ──┘
//! ```
//!
//! Parts are contiguous: no path of forward operators leaves a part and returns. The search over ideals is exact; when
//! it would pass its limits, the best of several linear orders is the answer, and the report says that it is unproved.

mod bottleneck;
mod components;
mod cut;
mod decide;
mod devices;
mod islands;
mod judge;
mod latency;
mod lattice;
mod machines;
mod order;
mod problem;
mod search;

pub use devices::{Communication, DeviceFault, Devices, GROUP_MAX, Group};
pub use islands::{Answer, MOVES_MAX, Model, ModelError, place_islands};
pub use judge::{Fault, PartScore, Verdict, judge};
pub(crate) use latency::{LatencyProblem, latency_problem};

use crate::operators::OperatorGraph;
use decide::Decision;
use lattice::Lattice;
use problem::Problem;
use search::{Budget, Outcome, Search};
use thiserror::Error;

/// Units a linear order is searched with; longer orders are cut into this many blocks of about equal work.
const LINEAR_UNITS_MAX: usize = 1_024;

/// Combinations of used devices that are searched: the values along a linear order then take 128 MiB.
pub const STATES_MAX: usize = 8_192;

/// Splits in a row that a decision may better; then all values are searched at once.
const DECISIONS_MAX: usize = 4;

/// Reasons that are printed; the rest are counted.
const REASONS_MAX: usize = 20;

/// How much work a planner may do.
#[derive(Clone, Copy)]
pub struct Limits<'a> {
    /// Sets of units that may be looked at.
    pub pairs_max: u64,
    /// Bytes that the ideals and their values may take.
    pub bytes_max: usize,
    /// Asked now and then; when it says so, the best plan so far is returned.
    pub stop: &'a dyn Fn() -> bool,
}

impl Default for Limits<'_> {
    /// About a minute of one core, and 160 MiB.
    fn default() -> Self {
        Self { pairs_max: 2_000_000_000, bytes_max: 160 << 20, stop: &|| false }
    }
}

/// What one device runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The group of its device.
    pub group: usize,
    /// Devices of the group that share it, each taking its turn with a sample; 1 unless it is replicated.
    pub replicas: usize,
    /// The operators' places in the graph, ascending.
    pub operators: Vec<usize>,
}

/// Parts, in an order in which each is fed only by those before it (as far as the forward pass goes). None is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// One part a device in use.
    pub parts: Vec<Part>,
}

/// What holds the value up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Binding {
    /// One unit, which no placement can split, is the whole load; no plan is better.
    Unit,
    /// One operator with what it must exchange or take along is the whole load; no plan is better.
    Surroundings,
    /// Mostly computing on this part.
    Compute {
        /// The part's place in the placement.
        part: usize,
    },
    /// Mostly transfers to and from this part.
    Transfers {
        /// The part's place in the placement.
        part: usize,
    },
}

/// What the planner looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Groups of operators that must share a device.
    pub units: usize,
    /// Outputs with consumers in other units.
    pub nets: usize,
    /// Ideals enumerated; 0 when there were too many.
    pub ideals: usize,
    /// Ideals from which sets were grown in the search for values; 0 when the value was proved without it.
    pub alive: usize,
    /// Sets of units scored, over all searches.
    pub pairs: u64,
}

/// What is known about a placement's value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Report {
    /// The greatest load of a device, in milliseconds a sample, as the judge scores it.
    pub value_ms: f64,
    /// No contiguous placement has a lower value.
    pub lower_ms: f64,
    /// Whether the value is proved to be the least.
    pub proved: bool,
    /// What holds the value up.
    pub binding: Binding,
    /// What was looked at.
    pub work: Work,
}

impl Report {
    /// How far above the lower bound the value is, as a part of the value.
    #[must_use]
    pub fn gap(&self) -> f64 {
        if self.value_ms > 0.0 { (self.value_ms - self.lower_ms) / self.value_ms } else { 0.0 }
    }
}

/// Why nothing fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Infeasible {
    /// A group of operators that must share a device fits none.
    Unit {
        /// Ids of its operators.
        ids: Vec<u64>,
        /// What it keeps in memory.
        bytes: u64,
    },
    /// Everything that must be on accelerators is more than all of them hold.
    Total {
        /// What must be held.
        bytes: u64,
        /// What can be held.
        capacity: u64,
    },
    /// Each unit fits, and all together would, but no contiguous split does.
    Split,
    /// Each unit fits, and all together would, but no way to put them on devices does.
    Fit,
}

/// Why there is no placement.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum PlaceError {
    /// The devices are described wrongly.
    #[error("{}", lines(.0))]
    Devices(Vec<DeviceFault>),
    /// More combinations of used devices than are searched.
    #[error(
        "the groups of devices can be used in {found} combinations, at most {STATES_MAX} are searched; use fewer groups or devices"
    )]
    States {
        /// How many there are, at least.
        found: usize,
    },
    /// Nothing fits, proved.
    #[error("{}", reasons(.0))]
    Infeasible(Vec<Infeasible>),
    /// Nothing was found before the limits were reached.
    #[error("no placement found within the limits; allow more time or memory")]
    NoneFound,
}

/// The contiguous placement with the least greatest load. Where there are several machines, the devices of each take parts
/// that follow each other in a linear order, of which several are searched.
///
/// # Errors
///
/// Faulty devices, when nothing fits (with every reason), or when the limits end the search before anything is found.
pub fn place(
    graph: &OperatorGraph,
    devices: &Devices,
    communication: Communication,
    limits: Limits<'_>,
) -> Result<(Placement, Report), PlaceError> {
    if devices.hierarchical() {
        return machines::place(graph, devices, communication, limits);
    }
    let problem = Problem::new(graph, devices);
    let devices = usable(graph, &problem, devices)?;
    let mut budget = Budget::new(limits);
    let mut work = Work { units: problem.units.len(), nets: problem.nets.len(), ..Work::default() };
    let floor = problem.lower_bound(&devices);
    let search = contiguous(&problem, &devices, communication, floor, &mut budget, &mut work);
    work.pairs = budget.pairs();
    let Some(split) = search.split else {
        let reason = PlaceError::Infeasible(vec![Infeasible::Split]);
        return Err(if search.complete { reason } else { PlaceError::NoneFound });
    };
    let placement = problem.placement(&split);
    let verdict = judge(graph, &devices, communication, &placement);
    let value_ms = verdict.value_ms;
    let lower_ms = if search.complete { value_ms } else { floor.min(value_ms) };
    let binding = binding(&verdict, problem.heaviest_ms(&devices));
    Ok((placement, Report { value_ms, lower_ms, proved: search.complete, binding, work }))
}

/// The best contiguous placement whose parts, one after the other, take operators in the order in which `running` has
/// them: its boundaries move, its order stays. Milliseconds where the whole search takes seconds; its value is not proved.
///
/// # Errors
///
/// As [`place()`]; `running` should be contiguous.
pub fn place_along(
    graph: &OperatorGraph,
    devices: &Devices,
    communication: Communication,
    limits: Limits<'_>,
    running: &Placement,
) -> Result<(Placement, Report), PlaceError> {
    let problem = Problem::new(graph, devices);
    let devices = usable(graph, &problem, devices)?;
    let floor = problem.lower_bound(&devices);
    let mut budget = Budget::new(limits);
    // Units within a part are in ascending order, and so edges point onwards.
    let order: Vec<usize> = problem.split(running).parts.into_iter().flat_map(|part| part.units).collect();
    if order.len() != problem.units.len() {
        return Err(PlaceError::NoneFound);
    }
    let outcome = ordered(&problem, &order, (&devices, communication), (f64::INFINITY, floor), &mut budget);
    let split = outcome.split.ok_or(PlaceError::NoneFound)?;
    let placement = problem.placement(&split);
    let verdict = judge(graph, &devices, communication, &placement);
    let work =
        Work { units: order.len(), nets: problem.nets.len(), pairs: budget.pairs(), ..Work::default() };
    let binding = binding(&verdict, problem.heaviest_ms(&devices));
    let value_ms = verdict.value_ms;
    let proved = value_ms <= floor;
    Ok((placement, Report { value_ms, lower_ms: floor.min(value_ms), proved, binding, work }))
}

/// The devices that could be of use; an error when they are described wrongly or nothing can fit.
fn usable(graph: &OperatorGraph, problem: &Problem, devices: &Devices) -> Result<Devices, PlaceError> {
    let faults = devices.faults();
    if !faults.is_empty() {
        return Err(PlaceError::Devices(faults));
    }
    let mut devices = devices.clone();
    if devices.exchange_bytes_per_second.is_none() {
        for group in &mut devices.groups {
            group.count = group.count.min(problem.units.len());
        }
    }
    let found = search::states(&devices).unwrap_or(usize::MAX);
    if found > STATES_MAX {
        return Err(PlaceError::States { found });
    }
    let reasons = infeasible(graph, problem, &devices);
    if reasons.is_empty() { Ok(devices) } else { Err(PlaceError::Infeasible(reasons)) }
}

/// The best contiguous split: along linear orders first, then over all ideals when they fit the limits.
fn contiguous(
    problem: &Problem,
    devices: &Devices,
    communication: Communication,
    floor: f64,
    budget: &mut Budget<'_>,
    work: &mut Work,
) -> Outcome {
    let best = linear(problem, devices, communication, floor, budget);
    let upper = best.as_ref().map_or(f64::INFINITY, |best| best.value);
    let mut whole = Outcome { split: best, complete: upper <= floor, alive: 0 };
    if !whole.complete
        && let Some(lattice) = Lattice::of_ideals(problem, devices, budget.limits())
    {
        work.ideals = lattice.len();
        if whole.split.is_some() {
            decided(problem, &lattice, (devices, communication), floor, &mut whole, budget);
        }
        if !whole.complete {
            let upper = whole.split.as_ref().map_or(f64::INFINITY, |split| split.value);
            let mut search = Search::new(problem, &lattice, devices, communication, upper, floor);
            whole.complete =
                whole.split.is_some() && bottleneck::found(&mut search, &problem.slowest(devices), budget);
            if !whole.complete {
                let outcome = search.run(budget);
                work.alive = outcome.alive;
                whole.complete = outcome.complete;
                whole.split = outcome.split.or(whole.split);
            }
        }
    }
    whole
}

/// Asks whether anything is below the split that is known, and then below the one found instead, its boundaries moved.
fn decided(
    problem: &Problem,
    lattice: &Lattice,
    means: (&Devices, Communication),
    floor: f64,
    whole: &mut Outcome,
    budget: &mut Budget<'_>,
) {
    for _ in 0..DECISIONS_MAX {
        let upper = whole.split.as_ref().map_or(f64::INFINITY, |split| split.value);
        match decide::decide(problem, lattice, means, upper, budget) {
            Decision::None => whole.complete = true,
            Decision::Better(split) => {
                let order: Vec<usize> = split.parts.iter().flat_map(|part| part.units.clone()).collect();
                let moved = ordered(problem, &order, means, (split.value, floor), budget).split;
                whole.split = Some(moved.unwrap_or(split));
                continue;
            }
            Decision::Open => {}
        }
        break;
    }
}

/// The best split along several linear orders.
fn linear(
    problem: &Problem,
    devices: &Devices,
    communication: Communication,
    floor: f64,
    budget: &mut Budget<'_>,
) -> Option<search::Split> {
    let mut best: Option<search::Split> = None;
    for order in order::orders(problem) {
        let upper = best.as_ref().map_or(f64::INFINITY, |best| best.value);
        if upper <= floor {
            break;
        }
        best = ordered(problem, &order, (devices, communication), (upper, floor), budget).split.or(best);
    }
    best
}

/// The best split along one order, in blocks when it is long.
fn ordered(
    problem: &Problem,
    order: &[usize],
    means: (&Devices, Communication),
    bounds: (f64, f64),
    budget: &mut Budget<'_>,
) -> Outcome {
    if order.len() <= LINEAR_UNITS_MAX {
        return along(problem, order, means, bounds, budget);
    }
    let blocks = order::blocks(problem, order, LINEAR_UNITS_MAX);
    let merged = problem.merged(&blocks);
    let path: Vec<usize> = (0..merged.units.len()).collect();
    let mut outcome = along(&merged, &path, means, bounds, budget);
    outcome.split = outcome.split.map(|split| split.expanded(&blocks));
    outcome
}

fn along(
    problem: &Problem,
    order: &[usize],
    (devices, communication): (&Devices, Communication),
    (upper, floor): (f64, f64),
    budget: &mut Budget<'_>,
) -> Outcome {
    let lattice = Lattice::of_order(problem, order);
    Search::new(problem, &lattice, devices, communication, upper, floor).run(budget)
}

fn infeasible(graph: &OperatorGraph, problem: &Problem, devices: &Devices) -> Vec<Infeasible> {
    let used = || devices.groups.iter().filter(|group| group.count > 0);
    let roomy = |unit: &problem::Unit| {
        used().any(|group| {
            group.memory_bytes.is_none() && group.time(unit.accelerator_ms, unit.cpu_ms).is_finite()
        })
    };
    let mut reasons = Vec::new();
    let mut must = 0u64;
    for unit in &problem.units {
        let fits = used().any(|group| {
            group.time(unit.accelerator_ms, unit.cpu_ms).is_finite() && group.fits(unit.resident_bytes)
        });
        if !roomy(unit) {
            must = must.saturating_add(unit.resident_bytes);
        }
        if !fits {
            let ids = unit.operators.iter().map(|&at| graph.operators()[at].id).collect();
            reasons.push(Infeasible::Unit { ids, bytes: unit.resident_bytes });
        }
    }
    let capacity = used().fold(0u64, |sum, group| {
        let count = u64::try_from(group.count).unwrap_or(u64::MAX);
        sum.saturating_add(group.memory_bytes.unwrap_or(0).saturating_mul(count))
    });
    if must > capacity {
        reasons.push(Infeasible::Total { bytes: must, capacity });
    }
    reasons
}

fn binding(verdict: &Verdict, heaviest_ms: f64) -> Binding {
    let worst = (0..verdict.parts.len())
        .max_by(|&a, &b| verdict.parts[a].load_ms.total_cmp(&verdict.parts[b].load_ms).then(b.cmp(&a)))
        .unwrap_or_default();
    if verdict.value_ms <= heaviest_ms {
        return Binding::Unit;
    }
    match verdict.parts.get(worst) {
        Some(score) if score.transfer_ms > score.compute_ms => Binding::Transfers { part: worst },
        _ => Binding::Compute { part: worst },
    }
}

fn lines(faults: &[DeviceFault]) -> String {
    let lines: Vec<String> = faults.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

fn reasons(reasons: &[Infeasible]) -> String {
    let mut lines: Vec<String> = reasons.iter().take(REASONS_MAX).map(reason).collect();
    if reasons.len() > lines.len() {
        lines.push(format!("and {} more", reasons.len() - lines.len()));
    }
    lines.join("\n")
}

fn reason(reason: &Infeasible) -> String {
    match reason {
        Infeasible::Unit { ids, bytes } => {
            let first = ids.first().copied().unwrap_or_default();
            let bound = match ids.len() {
                0 | 1 => String::new(),
                all => format!(", with {} operators bound to it,", all - 1),
            };
            format!(
                "operator {first}{bound} keeps {bytes} bytes and fits no device; use a larger one or a cpu"
            )
        }
        Infeasible::Total { bytes, capacity } => {
            format!("{bytes} bytes must be on accelerators, which hold {capacity}; use more of them")
        }
        Infeasible::Split => {
            "no contiguous split fits the accelerators' memory; use more or larger ones, or a cpu".to_owned()
        }
        Infeasible::Fit => {
            "no way to share the operators out fits the accelerators' memory; use more or larger ones, or a cpu"
                .to_owned()
        }
    }
}
