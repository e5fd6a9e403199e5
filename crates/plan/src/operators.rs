//! The operator graph every planner reads: what each operator costs on each kind of device, and who feeds whom.
//!
//! A graph is checked once, when it is made; planners trust it. It knows no file format.

use std::collections::BTreeMap;
use thiserror::Error;

/// Operators a graph may have.
pub const OPERATORS_MAX: usize = 2_000_000;

/// Edges a graph may have.
pub const EDGES_MAX: usize = 8_000_000;

/// Faults of one graph that are reported; the rest are counted.
const FAULTS_MAX: usize = 50;

/// The difference in an operator's transfer cost, in milliseconds, that two edges may show.
pub const TRANSFER_MS_TOLERANCE: f64 = 1e-6;

/// What a class of devices is, as far as costs go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A device with its own limited memory; what enters and leaves it is paid for.
    Accelerator,
    /// A host processor; it reads and writes host memory for nothing.
    Cpu,
}

/// One operator.
#[derive(Clone, Debug, PartialEq)]
pub struct Operator {
    /// Its number in the file it came from.
    pub id: u64,
    /// Its name in the file it came from.
    pub name: String,
    /// Milliseconds on an accelerator; `None` when none can run it.
    pub accelerator_ms: Option<f64>,
    /// Milliseconds on a CPU; `None` when none can run it.
    pub cpu_ms: Option<f64>,
    /// Bytes it keeps in the memory of the device it is placed on.
    pub resident_bytes: u64,
    /// Bytes of its parameters, where the file tells them apart from activations.
    pub parameter_bytes: Option<u64>,
    /// Bytes of its output, where the file tells them.
    pub output_bytes: Option<u64>,
    /// Milliseconds to move its output between an accelerator and the host, paid once a device and direction.
    pub transfer_ms: f64,
    /// Operators of one colour class share a device.
    pub color: Option<i64>,
    /// Whether it belongs to the backward pass.
    pub backward: bool,
}

impl Operator {
    /// Bytes of gradients that its replicas exchange for a sample, in a graph that trains or not. Where parameters are
    /// not told apart, everything resident counts.
    pub(crate) fn exchanged_bytes(&self, training: bool) -> f64 {
        if training { self.parameter_bytes.unwrap_or(self.resident_bytes) as f64 } else { 0.0 }
    }
}

/// Operators and the edges between them: acyclic, with no edge from the backward pass into the forward pass.
#[derive(Clone, Debug, PartialEq)]
pub struct OperatorGraph {
    operators: Vec<Operator>,
    edges: Vec<(usize, usize)>,
}

/// What is wrong with a graph.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum GraphFault {
    /// There is nothing to place.
    #[error("the graph has no operator")]
    Empty,
    /// More than a planner takes.
    #[error("the graph has {found} {what}, at most {limit} can be planned")]
    TooLarge {
        /// What there is too much of.
        what: &'static str,
        /// How much there is.
        found: usize,
        /// How much there may be.
        limit: usize,
    },
    /// Two operators have one number.
    #[error("operator {id} is described {times} times; give each its own id")]
    Repeated {
        /// The number.
        id: u64,
        /// How often it occurs.
        times: usize,
    },
    /// An edge names a number no operator has.
    #[error("an edge {source_id} -> {target_id} names operator {missing}, which is not described")]
    Dangling {
        /// Where the edge starts.
        source_id: u64,
        /// Where it ends.
        target_id: u64,
        /// Which of the two is missing.
        missing: u64,
    },
    /// A cost is negative, infinite or not a number.
    #[error("operator {id} has {what} {value}; costs are finite and not negative")]
    Cost {
        /// The operator.
        id: u64,
        /// Which cost.
        what: &'static str,
        /// Its value.
        value: f64,
    },
    /// No device can run it.
    #[error("operator {id} has no cost on any kind of device; give it a time on one")]
    Nowhere {
        /// The operator.
        id: u64,
    },
    /// The graph is not acyclic.
    #[error("operators form a cycle, {}, and could never run; break it", list(ids))]
    Cycle {
        /// The operators of one cycle, in order.
        ids: Vec<u64>,
    },
    /// A backward operator feeds a forward one.
    #[error(
        "backward operator {source_id} feeds forward operator {target_id}; a training step has no such edge"
    )]
    BackwardFeedsForward {
        /// The backward operator.
        source_id: u64,
        /// The forward operator.
        target_id: u64,
    },
    /// More faults than are worth printing.
    #[error("and {0} more")]
    More(usize),
}

/// Everything that is wrong with a graph.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("{}", lines(.0))]
pub struct GraphError(pub Vec<GraphFault>);

impl OperatorGraph {
    /// A graph of `operators` and edges between their ids. Repeated edges and edges to oneself are dropped.
    ///
    /// # Errors
    ///
    /// All faults found, those of a later check only when the earlier checks pass.
    pub fn new(operators: Vec<Operator>, edges: &[(u64, u64)]) -> Result<Self, GraphError> {
        let mut faults = faults_of_operators(&operators);
        for (what, found, limit) in
            [("operators", operators.len(), OPERATORS_MAX), ("edges", edges.len(), EDGES_MAX)]
        {
            if found > limit {
                return Err(GraphError(vec![GraphFault::TooLarge { what, found, limit }]));
            }
        }
        let places: BTreeMap<u64, usize> =
            operators.iter().enumerate().map(|(place, operator)| (operator.id, place)).collect();
        let mut placed = Vec::with_capacity(edges.len());
        for &(source_id, target_id) in edges {
            match (places.get(&source_id), places.get(&target_id)) {
                (Some(&source), Some(&target)) => placed.push((source, target)),
                (None, _) => faults.push(GraphFault::Dangling { source_id, target_id, missing: source_id }),
                (_, None) => faults.push(GraphFault::Dangling { source_id, target_id, missing: target_id }),
            }
        }
        let looped = placed.iter().filter(|(source, target)| source == target);
        faults.extend(looped.map(|(source, _)| GraphFault::Cycle { ids: vec![operators[*source].id] }));
        placed.sort_unstable();
        placed.dedup();
        for &(source, target) in &placed {
            if operators[source].backward && !operators[target].backward {
                let (source_id, target_id) = (operators[source].id, operators[target].id);
                faults.push(GraphFault::BackwardFeedsForward { source_id, target_id });
            }
        }
        if faults.is_empty()
            && let Err(cycle) = topological(operators.len(), &placed)
        {
            faults.push(GraphFault::Cycle { ids: cycle.into_iter().map(|at| operators[at].id).collect() });
        }
        if faults.is_empty() {
            Ok(Self { operators, edges: placed })
        } else {
            Err(GraphError(shorten(faults)))
        }
    }

    /// The operators; an operator's place in this slice is how edges and plans name it.
    #[must_use]
    pub fn operators(&self) -> &[Operator] {
        &self.operators
    }

    /// Edges as pairs of places, sorted, each once.
    #[must_use]
    pub fn edges(&self) -> &[(usize, usize)] {
        &self.edges
    }
}

/// The order of `count` nodes in which every edge points onwards, least number first; or a cycle, in order.
pub(crate) fn topological(count: usize, edges: &[(usize, usize)]) -> Result<Vec<usize>, Vec<usize>> {
    let followers = adjacency(count, edges.iter().copied());
    let mut waiting = vec![0usize; count];
    for &(_, target) in edges {
        waiting[target] += 1;
    }
    let mut ready: std::collections::BTreeSet<usize> =
        (0..count).filter(|&node| waiting[node] == 0).collect();
    let mut order = Vec::with_capacity(count);
    while let Some(node) = ready.pop_first() {
        order.push(node);
        for &follower in &followers[node] {
            waiting[follower] -= 1;
            if waiting[follower] == 0 {
                ready.insert(follower);
            }
        }
    }
    if order.len() == count { Ok(order) } else { Err(cycle(&waiting, edges)) }
}

/// The nodes that each node has an edge to, in the order of `edges`.
pub(crate) fn adjacency(count: usize, edges: impl Iterator<Item = (usize, usize)>) -> Vec<Vec<usize>> {
    let mut lists = vec![Vec::new(); count];
    for (source, target) in edges {
        lists[source].push(target);
    }
    lists
}

/// Walks backwards among the nodes that still wait; each of them has a waiting predecessor.
fn cycle(waiting: &[usize], edges: &[(usize, usize)]) -> Vec<usize> {
    let stuck = |node: usize| waiting[node] > 0;
    let mut before = BTreeMap::new();
    for &(source, target) in edges {
        if stuck(source) && stuck(target) {
            before.entry(target).or_insert(source);
        }
    }
    let mut seen = BTreeMap::new();
    let mut path = Vec::new();
    let mut at = waiting.iter().position(|&left| left > 0).unwrap_or_default();
    while !seen.contains_key(&at) {
        seen.insert(at, path.len());
        path.push(at);
        match before.get(&at) {
            Some(&previous) => at = previous,
            None => return path,
        }
    }
    let mut found = path.split_off(seen[&at]);
    found.reverse();
    found
}

fn faults_of_operators(operators: &[Operator]) -> Vec<GraphFault> {
    let mut faults = Vec::new();
    if operators.is_empty() {
        faults.push(GraphFault::Empty);
    }
    let mut times = BTreeMap::new();
    for operator in operators {
        *times.entry(operator.id).or_insert(0usize) += 1;
        let costs = [
            ("accelerator time", operator.accelerator_ms),
            ("cpu time", operator.cpu_ms),
            ("transfer time", Some(operator.transfer_ms)),
        ];
        for (what, value) in costs {
            if let Some(value) = value.filter(|value| !value.is_finite() || *value < 0.0) {
                faults.push(GraphFault::Cost { id: operator.id, what, value });
            }
        }
        if operator.accelerator_ms.is_none() && operator.cpu_ms.is_none() {
            faults.push(GraphFault::Nowhere { id: operator.id });
        }
    }
    let repeated = times.into_iter().filter(|(_, times)| *times > 1);
    faults.extend(repeated.map(|(id, times)| GraphFault::Repeated { id, times }));
    faults
}

fn shorten(mut faults: Vec<GraphFault>) -> Vec<GraphFault> {
    let more = faults.len().saturating_sub(FAULTS_MAX);
    if more > 0 {
        faults.truncate(FAULTS_MAX);
        faults.push(GraphFault::More(more));
    }
    faults
}

fn lines(faults: &[GraphFault]) -> String {
    let lines: Vec<String> = faults.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

fn list(ids: &[u64]) -> String {
    let mut shown: Vec<String> = ids.iter().take(20).map(ToString::to_string).collect();
    if ids.len() > shown.len() {
        shown.push(format!("… ({} in all)", ids.len()));
    }
    shown.extend(ids.first().map(ToString::to_string));
    shown.join(" -> ")
}
