//! Groups of layers that a backend runs as one: found by structure, wherever the exporter's names hide them.
//!
//! A group has one exit. It grows backwards from there over layers whose results nothing outside reads, until a single
//! value is left that it depends on; that is why one rule finds a SiLU, a GELU in either spelling and a layer
//! normalisation.

use crate::ir::{Graph, Layer, ValueId};
use crate::op::{Binary, Function, Op, ReduceKind, Unary};
use std::collections::BTreeSet;

/// What a group amounts to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FusionKind {
    /// Two products around a softmax.
    Attention,
    /// A normalisation by mean and spread, spelled out.
    LayerNorm,
    /// A softmax, spelled out or with its scale.
    Softmax,
    /// Gaussian error linear unit, by the error function or the hyperbolic tangent.
    Gelu,
    /// A value times its own sigmoid.
    Silu,
    /// A value times its own clamp.
    HardSwish,
    /// A convolution or product with its bias and what follows element by element.
    Linear,
    /// Any other function of one value, element by element or reduced.
    Pointwise,
}

/// Layers that belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fusion {
    /// What they amount to.
    pub kind: FusionKind,
    /// The layers, ascending; at least two. Others may run between them, none of which they need.
    pub layers: Vec<usize>,
}

/// Most layers in a group: the longest spelling known, a layer normalisation with its casts, has about twenty.
const LAYERS_MAX: usize = 32;
/// Most places between the first and the last layer of a group. A wider group would forbid too many cuts.
const SPAN_MAX: usize = 64;
/// Most layers between a product and the softmax of an attention.
const REACH_MAX: usize = 8;

/// The groups of `graph`, no layer in two of them, in the order of their first layers.
#[must_use]
pub fn fusions(graph: &Graph) -> Vec<Fusion> {
    let uses =
        Uses { producers: graph.producers(), consumers: graph.consumers(), outputs: graph.outputs.clone() };
    let mut candidates: Vec<Fusion> = Vec::new();
    for at in 0..graph.layers.len() {
        candidates.extend(attention(graph, &uses, at));
        candidates.extend(region(graph, &uses, at));
    }
    // An attention holds a softmax that would otherwise win by a bias or two; then the larger group explains more.
    candidates.sort_by_key(|fusion| {
        let attention = fusion.kind == FusionKind::Attention;
        (!attention, usize::MAX - fusion.layers.len(), fusion.layers[0])
    });
    let mut taken = vec![false; graph.layers.len()];
    let mut chosen: Vec<Fusion> = Vec::new();
    for fusion in candidates {
        if fusion.layers.iter().all(|at| !taken[*at]) {
            fusion.layers.iter().for_each(|at| taken[*at] = true);
            chosen.push(fusion);
        }
    }
    chosen.sort_by_key(|fusion| fusion.layers[0]);
    chosen
}

struct Uses {
    producers: Vec<Option<usize>>,
    consumers: Vec<Vec<usize>>,
    outputs: Vec<ValueId>,
}

impl Uses {
    fn only_read_by(&self, value: ValueId, layers: &BTreeSet<usize>) -> bool {
        !self.outputs.contains(&value) && self.consumers[value.index()].iter().all(|at| layers.contains(at))
    }

    fn only_reader(&self, value: ValueId) -> Option<usize> {
        match self.consumers[value.index()].as_slice() {
            [reader] if !self.outputs.contains(&value) => Some(*reader),
            _ => None,
        }
    }
}

/// The values of a layer's operands that are not constants.
fn variable_inputs<'g>(graph: &'g Graph, layer: &'g Layer) -> impl Iterator<Item = ValueId> + 'g {
    layer.inputs.iter().copied().filter(|id| graph.constant(*id).is_none())
}

/// Whether each element of the result depends on the same element of the operands only.
const fn is_element_wise(op: &Op) -> bool {
    matches!(op, Op::Unary(_) | Op::Binary(_) | Op::Affine { .. } | Op::Select | Op::Cast(_))
}

/// Whether a group may grow over a layer.
const fn grows_over(op: &Op) -> bool {
    let shapes = matches!(op, Op::Broadcast | Op::AddAxis(_) | Op::RemoveAxis(_));
    is_element_wise(op) || shapes || matches!(op, Op::Reduce { .. } | Op::Softmax { .. })
}

const fn is_linear(op: &Op) -> bool {
    matches!(op, Op::Conv(_) | Op::Deconv(_) | Op::EinSum(_))
}

/// The group that a layer is the exit of, if it depends on one value only.
fn region(graph: &Graph, uses: &Uses, exit: usize) -> Option<Fusion> {
    let op = &graph.layers[exit].op;
    if !grows_over(op) || op.is_view() || *op == Op::Broadcast {
        return None;
    }
    let mut layers = BTreeSet::from([exit]);
    let mut leaves: BTreeSet<ValueId> = variable_inputs(graph, &graph.layers[exit]).collect();
    loop {
        let next = leaves.iter().copied().find_map(|leaf| {
            let producer = uses.producers[leaf.index()]?;
            let grows = grows_over(&graph.layers[producer].op) && uses.only_read_by(leaf, &layers);
            grows.then_some((leaf, producer))
        });
        let Some((leaf, producer)) = next.filter(|_| layers.len() < LAYERS_MAX) else { break };
        leaves.remove(&leaf);
        layers.insert(producer);
        leaves.extend(variable_inputs(graph, &graph.layers[producer]));
    }
    // A mask or a scalar may join a softmax; everything else is a function of one value.
    let single = leaves.len() == 1;
    let root = leaves.first().copied().filter(|_| single)?;
    let inner: Vec<&Op> = layers.iter().map(|at| &graph.layers[*at].op).collect();
    let mut kind = kind(graph, &inner, exit, root);
    let linear = uses.producers[root.index()].filter(|at| is_linear(&graph.layers[*at].op));
    if let Some(producer) = linear.filter(|_| uses.only_read_by(root, &layers)) {
        layers.insert(producer);
        if kind == FusionKind::Pointwise {
            kind = FusionKind::Linear;
        }
    }
    fusion(kind, layers)
}

fn fusion(kind: FusionKind, layers: BTreeSet<usize>) -> Option<Fusion> {
    let (first, last) = (*layers.first()?, *layers.last()?);
    let near = layers.len() > 1 && last - first <= SPAN_MAX;
    near.then(|| Fusion { kind, layers: layers.into_iter().collect() })
}

fn kind(graph: &Graph, ops: &[&Op], exit: usize, root: ValueId) -> FusionKind {
    let has = |test: &dyn Fn(&Op) -> bool| ops.iter().any(|op| test(op));
    let calls = |function: Function| has(&|op| *op == Op::Unary(Unary::Plain(function)));
    let reduces = has(&|op| matches!(op, Op::Reduce { .. }));
    let spread =
        has(&|op| matches!(op, Op::Reduce { kind: ReduceKind::Sum | ReduceKind::MeanOfSquares, .. }));
    let joins = |kind: Binary| has(&|op| *op == Op::Binary(kind));
    let exit = &graph.layers[exit];
    let scales_root = exit.op == Op::Binary(Binary::Mul) && exit.inputs.contains(&root);
    if spread && (calls(Function::Rsqrt) || calls(Function::Sqrt)) {
        FusionKind::LayerNorm
    } else if has(&|op| matches!(op, Op::Softmax { .. })) || (reduces && calls(Function::Exp)) {
        FusionKind::Softmax
    } else if calls(Function::Erf) || (calls(Function::Tanh) && joins(Binary::Mul)) {
        FusionKind::Gelu
    } else if calls(Function::Sigmoid) && joins(Binary::Mul) {
        FusionKind::Silu
    } else if scales_root || (joins(Binary::Min) && joins(Binary::Max) && joins(Binary::Mul)) {
        FusionKind::HardSwish
    } else {
        FusionKind::Pointwise
    }
}

/// The two products around a softmax, and what lies between them.
fn attention(graph: &Graph, uses: &Uses, at: usize) -> Option<Fusion> {
    if !matches!(graph.layers[at].op, Op::Softmax { .. }) {
        return None;
    }
    let mut layers = BTreeSet::from([at]);
    let mut back = at;
    for _ in 0..REACH_MAX {
        // A mask is added too: the path to follow is the one that only this softmax needs.
        let before = variable_inputs(graph, &graph.layers[back])
            .filter(|value| uses.only_reader(*value) == Some(back))
            .filter_map(|value| uses.producers[value.index()])
            .find(|producer| passes(&graph.layers[*producer].op) || is_linear(&graph.layers[*producer].op))?;
        layers.insert(before);
        back = before;
        if is_linear(&graph.layers[back].op) {
            break;
        }
    }
    let mut forth = at;
    for _ in 0..REACH_MAX {
        let after = uses.only_reader(*graph.layers[forth].outputs.first()?)?;
        layers.insert(after);
        forth = after;
        if !passes(&graph.layers[forth].op) {
            break;
        }
    }
    let product = |at: usize| matches!(graph.layers[at].op, Op::EinSum(_));
    (product(back) && product(forth)).then(|| fusion(FusionKind::Attention, layers))?
}

/// What may lie between a softmax and its products.
const fn passes(op: &Op) -> bool {
    is_element_wise(op) || op.is_view() || matches!(op, Op::Broadcast)
}
