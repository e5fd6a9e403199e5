//! Cuts a graph into segments: runs of layers between two points where a model may stop, be switched or move.
//!
//! Segments cost about the same, a cut falls where few bytes are alive, and never inside a fusion. Cuts are found once,
//! at one batch size, and hold for every graph of the model.

use crate::cost::Cost;
use crate::fusion::fusions;
use crate::ir::{Graph, ValueId};
use std::collections::BTreeSet;
use std::ops::Range;
use vocab::Bytes;

/// Layers that run without a stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Name of its first layer.
    pub name: String,
    /// Its layers.
    pub layers: Range<usize>,
    /// Values it needs that are neither its own nor constants, ascending.
    pub reads: Vec<ValueId>,
    /// Values it writes that a later segment or the caller needs, ascending.
    ///
    /// An output of the graph that no segment writes is one of its inputs, or a constant.
    pub writes: Vec<ValueId>,
    /// Arithmetic operations.
    pub flops: u64,
    /// Bytes of the constants it reads, each counted once.
    pub weight_bytes: Bytes,
    /// Bytes of the values alive at its end: written so far, or supplied, and still needed.
    pub activation_bytes: Bytes,
}

/// How to cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentOptions {
    /// Most segments.
    pub segments_max: usize,
    /// Operations below which a segment is not worth its edge: a model with less has one segment.
    pub flops_min: u64,
}

impl Default for SegmentOptions {
    fn default() -> Self {
        Self { segments_max: 32, flops_min: 50_000_000 }
    }
}

/// Where a model is cut: found on one of its graphs, true of all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segmentation {
    /// Names of the layers at which segments begin, with their places; the first layer is not among them.
    cuts: Vec<(usize, String)>,
    /// Layers of the graph.
    layers: usize,
}

/// A segmentation met a graph that it was not made for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SegmentError {
    /// The graphs differ in length.
    #[error(
        "the cuts are for {expected} layers, graph \"{graph}\" has {found}; cut a graph of the same model"
    )]
    Layers {
        /// The graph.
        graph: String,
        /// Its layers.
        found: usize,
        /// Layers the cuts were made for.
        expected: usize,
    },
    /// A layer is not where a cut expects it.
    #[error(
        "a cut expects layer {at} to be \"{expected}\", in graph \"{graph}\" it is \"{found}\"; cut a graph of the same model"
    )]
    Layer {
        /// The graph.
        graph: String,
        /// The place.
        at: usize,
        /// The layer there.
        found: String,
        /// The layer expected.
        expected: String,
    },
}

/// The segments of `graph`, in execution order; at least one.
#[must_use]
pub fn segment(graph: &Graph, options: &SegmentOptions) -> Vec<Segment> {
    let cuts = cuts(graph, options);
    segments(graph, &cuts)
}

impl Segmentation {
    /// Finds the cuts on `graph`, best at the batch size that matters most: balance is judged at its sizes.
    #[must_use]
    pub fn of(graph: &Graph, options: &SegmentOptions) -> Self {
        let named = |at: usize| (at, graph.layers[at].name.clone());
        Self { cuts: cuts(graph, options).into_iter().map(named).collect(), layers: graph.layers.len() }
    }

    /// The segments of another graph of the same model, cut at the same layers.
    ///
    /// # Errors
    /// When the graph has other layers.
    pub fn apply(&self, graph: &Graph) -> Result<Vec<Segment>, SegmentError> {
        let (found, expected) = (graph.layers.len(), self.layers);
        if found != expected {
            return Err(SegmentError::Layers { graph: graph.name.clone(), found, expected });
        }
        for (at, expected) in &self.cuts {
            let found = &graph.layers[*at].name;
            if found != expected {
                let (graph, found) = (graph.name.clone(), found.clone());
                return Err(SegmentError::Layer { graph, at: *at, found, expected: expected.clone() });
            }
        }
        Ok(segments(graph, &self.cuts.iter().map(|(at, _)| *at).collect::<Vec<_>>()))
    }

    /// How many segments it makes.
    #[must_use]
    pub fn segments(&self) -> usize {
        self.cuts.len() + 1
    }
}

/// Unit of the balance: one segment's fair share.
const SHARE: u128 = 1024;
/// What keeping the most bytes alive weighs, against a segment that is wrong by its square: as much as one third.
const ALIVE_WEIGHT: u128 = SHARE / 8;
/// Operations a device does while it moves one byte: between those of processors and accelerators.
const FLOPS_PER_BYTE: u64 = 8;

/// The places to cut at, ascending: least squares of the segments' costs, plus a price for the bytes alive at each cut,
/// by dynamic programming over the places that no fusion forbids.
fn cuts(graph: &Graph, options: &SegmentOptions) -> Vec<usize> {
    let costs: Vec<Cost> = graph.layers.iter().map(|layer| Cost::of(graph, layer)).collect();
    let flops: u64 = costs.iter().map(|cost| cost.flops).fold(0, u64::saturating_add);
    let wanted = flops / options.flops_min.max(1);
    let count = usize::try_from(wanted).unwrap_or(usize::MAX).clamp(1, options.segments_max.max(1));
    let mut places = allowed(graph);
    places.push(graph.layers.len());
    if count == 1 || places.len() < 2 {
        return Vec::new();
    }
    places.insert(0, 0);
    let mut done = vec![0u128];
    for cost in &costs {
        let time = cost.flops.max(cost.bytes().0.saturating_mul(FLOPS_PER_BYTE));
        done.push(done[done.len() - 1] + u128::from(time));
    }
    let total = done[done.len() - 1].max(1);
    let alive = alive(graph);
    let most = places[1..places.len() - 1].iter().map(|at| alive[*at].0).max().unwrap_or(0).max(1);
    let price = |at: usize| u128::from(alive[at].0) * SHARE / u128::from(most) * ALIVE_WEIGHT;
    let wrong = |from: usize, to: usize| {
        let share = (done[to] - done[from]) * SHARE * count as u128 / total;
        share.abs_diff(SHARE).pow(2)
    };
    cheapest(&places, count, &|from, to| {
        wrong(from, to) + if to == graph.layers.len() { 0 } else { price(to) }
    })
}

/// The inner places of the cheapest way from the first place to the last in at most `count` steps; of equal ways, the one
/// with fewer steps and earlier places.
fn cheapest(places: &[usize], count: usize, step: &dyn Fn(usize, usize) -> u128) -> Vec<usize> {
    let last = places.len() - 1;
    // After a number of steps: the least cost to stand at each place, and where from.
    let mut rounds: Vec<Vec<Option<(u128, usize)>>> = Vec::new();
    let mut reached: Vec<Option<(u128, usize)>> = vec![None; places.len()];
    reached[0] = Some((0, 0));
    for _ in 0..count {
        let mut next = vec![None; places.len()];
        for to in 1..places.len() {
            let ways =
                (0..to).filter_map(|from| Some((reached[from]?.0 + step(places[from], places[to]), from)));
            next[to] = ways.min();
        }
        rounds.push(next.clone());
        reached = next;
    }
    let best = (0..rounds.len()).filter_map(|steps| Some((rounds[steps][last]?.0, steps))).min();
    let Some((_, mut round)) = best else { return Vec::new() };
    let mut cuts = Vec::new();
    let mut at = last;
    while let Some((_, from)) = rounds[round][at] {
        if from == 0 {
            break;
        }
        cuts.push(places[from]);
        at = from;
        round -= 1;
    }
    cuts.reverse();
    cuts
}

/// Places between layers, 1 and up, that no fusion spans.
fn allowed(graph: &Graph) -> Vec<usize> {
    let mut inside = vec![false; graph.layers.len() + 1];
    for fusion in fusions(graph) {
        if let (Some(first), Some(last)) = (fusion.layers.first(), fusion.layers.last()) {
            inside[first + 1..=*last].fill(true);
        }
    }
    (1..graph.layers.len()).filter(|at| !inside[*at]).collect()
}

/// Bytes alive before each layer, and at the end: supplied or written earlier, and read later or an output.
fn alive(graph: &Graph) -> Vec<Bytes> {
    let end = graph.layers.len();
    let (producers, consumers) = (graph.producers(), graph.consumers());
    let outputs: BTreeSet<ValueId> = graph.outputs.iter().copied().collect();
    let inputs: BTreeSet<ValueId> = graph.inputs.iter().copied().collect();
    let mut changes = vec![0i128; end + 2];
    for (at, value) in graph.values.iter().enumerate() {
        let id = ValueId(u32::try_from(at).expect("imports bound the number of values"));
        let born = match (producers[at], inputs.contains(&id)) {
            (Some(producer), _) => producer + 1,
            (None, true) => 0,
            (None, false) => continue,
        };
        let last = if outputs.contains(&id) { Some(end) } else { consumers[at].last().copied() };
        if let Some(last) = last.filter(|last| *last >= born) {
            changes[born] += i128::from(value.bytes().0);
            changes[last + 1] -= i128::from(value.bytes().0);
        }
    }
    let mut now = 0i128;
    let sums = changes.iter().take(end + 1).map(|change| {
        now += change;
        Bytes(u64::try_from(now).unwrap_or(u64::MAX))
    });
    sums.collect()
}

fn segments(graph: &Graph, cuts: &[usize]) -> Vec<Segment> {
    let starts = std::iter::once(0).chain(cuts.iter().copied());
    let ends = cuts.iter().copied().chain(std::iter::once(graph.layers.len()));
    let alive = alive(graph);
    let consumers = graph.consumers();
    let outputs: BTreeSet<ValueId> = graph.outputs.iter().copied().collect();
    starts
        .zip(ends)
        .map(|(start, end)| {
            let layers = &graph.layers[start..end];
            let written: BTreeSet<ValueId> =
                layers.iter().flat_map(|layer| layer.outputs.iter().copied()).collect();
            let read: BTreeSet<ValueId> =
                layers.iter().flat_map(|layer| layer.inputs.iter().copied()).collect();
            let (constants, values): (BTreeSet<ValueId>, BTreeSet<ValueId>) =
                read.into_iter().partition(|id| graph.constant(*id).is_some());
            let needed = |id: &ValueId| {
                outputs.contains(id) || consumers[id.index()].last().is_some_and(|reader| *reader >= end)
            };
            Segment {
                name: layers.first().map_or_else(|| graph.name.clone(), |layer| layer.name.clone()),
                layers: start..end,
                reads: values.difference(&written).copied().collect(),
                writes: written.iter().filter(|id| needed(id)).copied().collect(),
                flops: layers.iter().map(|layer| Cost::of(graph, layer).flops).fold(0, u64::saturating_add),
                weight_bytes: constants.iter().map(|id| graph.value(*id).bytes()).sum(),
                activation_bytes: alive[end],
            }
        })
        .collect()
}
