//! What a layer costs, from its shapes alone: operations, bytes moved, parameters.
//!
//! A multiply-add counts two operations; comparing, adding, and a call of a transcendental function count one each.
//! Convolutions count the padding they multiply with, as published figures do.

use crate::ir::{Graph, Layer, Value};
use crate::op::{EinSum, Function, Op, ReduceKind, Unary};
use std::collections::BTreeSet;
use vocab::Bytes;

/// The cost of one layer, or of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Arithmetic operations.
    pub flops: u64,
    /// Bytes of activations read.
    pub read: Bytes,
    /// Bytes of constants read.
    pub weights: Bytes,
    /// Bytes written.
    pub written: Bytes,
    /// Numbers among the constants that training would change.
    pub parameters: u64,
}

impl Cost {
    /// The cost of one layer. A layer that only renames elements is free.
    #[must_use]
    pub fn of(graph: &Graph, layer: &Layer) -> Self {
        let mut cost = Self { flops: flops(graph, layer), ..Self::default() };
        for id in layer.inputs.iter().collect::<BTreeSet<_>>() {
            let value = graph.value(*id);
            if value.constant.is_some() {
                cost.weights += value.bytes();
                cost.parameters += value.parameters();
            } else {
                cost.read += read_bytes(layer, value, graph);
            }
        }
        cost.written = layer.outputs.iter().map(|id| graph.value(*id).bytes()).sum();
        if layer.op.is_view() {
            (cost.read, cost.written) = (Bytes(0), Bytes(0));
        }
        cost
    }

    /// The cost of the whole graph; a constant that several layers read counts for each.
    #[must_use]
    pub fn of_graph(graph: &Graph) -> Self {
        graph.layers.iter().map(|layer| Self::of(graph, layer)).fold(Self::default(), Self::plus)
    }

    /// Both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            flops: self.flops.saturating_add(other.flops),
            read: self.read + other.read,
            weights: self.weights + other.weights,
            written: self.written + other.written,
            parameters: self.parameters.saturating_add(other.parameters),
        }
    }

    /// Bytes moved in all.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        self.read + self.weights + self.written
    }

    /// Operations for each byte moved: below a device's ratio of the two, memory is what limits it. Zero without bytes.
    #[must_use]
    pub fn intensity(&self) -> f64 {
        let bytes = self.bytes().0;
        if bytes == 0 { 0.0 } else { self.flops as f64 / bytes as f64 }
    }
}

/// A gather reads the rows it hands on, not the whole table.
fn read_bytes(layer: &Layer, value: &Value, graph: &Graph) -> Bytes {
    let selects = matches!(
        layer.op,
        Op::Slice { .. }
            | Op::StridedSlice(_)
            | Op::Gather { .. }
            | Op::GatherElements { .. }
            | Op::GatherNd { .. }
    );
    let written = layer.outputs.first().map_or(Bytes(0), |id| graph.value(*id).bytes());
    if selects { value.bytes().min(written) } else { value.bytes() }
}

fn flops(graph: &Graph, layer: &Layer) -> u64 {
    let elements_in = layer.inputs.first().map_or(0, |id| graph.value(*id).elements());
    let elements_out = layer.outputs.first().map_or(0, |id| graph.value(*id).elements());
    let product =
        |factors: &[usize]| factors.iter().fold(1u64, |all, factor| all.saturating_mul(wide(*factor)));
    match &layer.op {
        Op::Conv(conv) => {
            let taps =
                product(&conv.window.kernel).saturating_mul(wide(conv.in_channels / conv.groups.max(1)));
            elements_out.saturating_mul(2 * taps).saturating_add(bias_flops(graph, layer, elements_out))
        }
        Op::Deconv(deconv) => {
            let taps = product(&deconv.window.kernel)
                .saturating_mul(wide(deconv.out_channels / deconv.groups.max(1)));
            elements_in.saturating_mul(2 * taps).saturating_add(bias_flops(graph, layer, elements_out))
        }
        Op::EinSum(sum) => einsum_flops(graph, layer, sum),
        Op::MaxPool { window, .. } => elements_out.saturating_mul(product(&window.kernel)),
        Op::SumPool { window, normalize, .. } => {
            elements_out.saturating_mul(product(&window.kernel) + u64::from(*normalize))
        }
        Op::Reduce { kind: ReduceKind::MeanOfSquares, .. } => elements_in.saturating_mul(2),
        Op::Reduce { .. } | Op::CumSum { .. } => elements_in,
        // The largest, a difference and an exponential, a sum, a quotient.
        Op::Softmax { .. } => elements_in.saturating_mul(5),
        Op::Lrn { size, .. } => elements_out.saturating_mul(2 * wide(*size) + 4),
        Op::Affine { relu, .. } => elements_out.saturating_mul(2 + u64::from(*relu)),
        Op::Unary(unary) => elements_out.saturating_mul(unary_flops(*unary)),
        Op::Binary(_) | Op::Select | Op::Resize { .. } => elements_out,
        _ => 0,
    }
}

const fn unary_flops(unary: Unary) -> u64 {
    match unary {
        Unary::LeakyRelu { .. } => 2,
        Unary::PowConst { .. } => 1,
        Unary::Plain(function) => match function {
            Function::Sigmoid | Function::HardSwish => 4,
            Function::Silu => 5,
            Function::Gelu => 5,
            Function::GeluTanh => 9,
            _ => 1,
        },
    }
}

/// A bias that is all zeros is tract's way to say that there is none.
fn bias_flops(graph: &Graph, layer: &Layer, elements: u64) -> u64 {
    let bias = layer.inputs.get(2).and_then(|id| graph.constant(*id));
    if bias.is_none_or(|bias| bias.len() > 1 || !bias.is_all_zero().unwrap_or(false)) { elements } else { 0 }
}

/// One multiply-add for each combination of the axes, for each operand after the first.
fn einsum_flops(graph: &Graph, layer: &Layer, sum: &EinSum) -> u64 {
    let mut seen = BTreeSet::new();
    let mut combinations = 1u64;
    for (axes, id) in sum.inputs.iter().zip(&layer.inputs) {
        for (axis, length) in axes.chars().zip(&graph.value(*id).shape) {
            // A broadcast axis has length one in one operand.
            if *length > 1 && seen.insert(axis) {
                combinations = combinations.saturating_mul(wide(*length));
            }
        }
    }
    let operands = u64::try_from(sum.inputs.len()).unwrap_or(u64::MAX);
    combinations.saturating_mul(2 * operands.saturating_sub(1).max(1))
}

fn wide(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
