//! Folds chains of per-channel scales and shifts.
//!
//! ```text
//! conv ─▶ mul s ─▶ add t ─▶ …      becomes   conv' ─▶ …          (weights times s, bias times s plus t)
//! x ─▶ mul ─▶ add ─▶ mul ─▶ add    becomes   affine(x, s, t)     (where no convolution can take it)
//! ```

use super::folded::Folded;
use super::{Uses, remove};
use crate::ir::{Graph, Layer, Value, ValueId};
use crate::op::{Binary, Function, Op, Unary, WeightLayout};
use crate::tensor::DType;
use std::fmt::Write;
use std::sync::Arc;
use tract_onnx::prelude::Tensor;

/// One layer that scales or shifts by a constant.
struct Step {
    /// What it scales or shifts.
    x: ValueId,
    constant: ValueId,
    kind: Binary,
    /// Whether the constant is the first operand.
    reversed: bool,
    /// The axis of `x` along which the constant varies; `None` when it is one number.
    axis: Option<usize>,
}

/// Folds every chain of the graph.
pub(super) fn fold_chains(graph: &mut Graph, folded: &Folded) {
    let uses = Uses::of(graph);
    let mut gone = vec![false; graph.layers.len()];
    for start in 0..graph.layers.len() {
        if gone[start] {
            continue;
        }
        let Some(chain) = chain(graph, &uses, start) else { continue };
        let x = chain[0].1.x;
        let places: Vec<usize> = chain.iter().map(|(at, _)| *at).collect();
        let last = places[places.len() - 1];
        let steps: Vec<Step> = chain.into_iter().map(|(_, step)| step).collect();
        let before = uses.producers[x.index()].filter(|_| uses.only_reader(x) == Some(start));
        if before.is_some_and(|conv| into_convolution(graph, conv, last, &steps, folded).is_some()) {
            places.iter().for_each(|at| gone[*at] = true);
        } else if into_affine(graph, last, &steps, folded).is_some() {
            places.iter().filter(|at| **at != last).for_each(|at| gone[*at] = true);
        }
    }
    remove(&mut graph.layers, &gone);
}

/// The longest chain that begins at a layer: every link is read by the next one only, and all vary along one axis.
fn chain(graph: &Graph, uses: &Uses, start: usize) -> Option<Vec<(usize, Step)>> {
    let first = step(graph, &graph.layers[start])?;
    let mut axis = first.axis;
    let mut chain = vec![(start, first)];
    let mut at = start;
    while let Some(next) = uses.only_reader(graph.layers[at].outputs[0]) {
        let Some(step) = step(graph, &graph.layers[next]) else { break };
        if step.x != graph.layers[at].outputs[0]
            || (step.axis.is_some() && axis.is_some() && step.axis != axis)
        {
            break;
        }
        axis = axis.or(step.axis);
        chain.push((next, step));
        at = next;
    }
    Some(chain)
}

fn step(graph: &Graph, layer: &Layer) -> Option<Step> {
    let (Op::Binary(kind), [a, b]) = (&layer.op, layer.inputs.as_slice()) else { return None };
    let reversed = graph.constant(*a).is_some();
    let (x, constant) = if reversed { (*b, *a) } else { (*a, *b) };
    let foldable = match kind {
        Binary::Add | Binary::Sub | Binary::Mul => true,
        Binary::Div => !reversed,
        _ => false,
    };
    let (value, output) = (graph.value(x), graph.value(layer.outputs[0]));
    let fits = value.constant.is_none() && value.shape == output.shape && value.dtype == DType::F32;
    if !foldable || !fits || graph.constant(constant)?.datum_type() != f32_datum() {
        return None;
    }
    let shape = &graph.value(constant).shape;
    let mut wide = (0..shape.len()).filter(|axis| shape[*axis] != 1);
    let axis = wide.next();
    if wide.next().is_some() || axis.is_some_and(|axis| value.shape.get(axis) != Some(&shape[axis])) {
        return None;
    }
    Some(Step { x, constant, kind: *kind, reversed, axis })
}

fn f32_datum() -> tract_onnx::prelude::DatumType {
    crate::translate::datum(DType::F32)
}

/// A chain's effect, channel by channel.
struct Composed {
    scale: Vec<f64>,
    shift: Vec<f64>,
}

/// The chain as one scale and one shift for each channel.
fn composed(graph: &Graph, steps: &[Step], channels: usize) -> Option<Composed> {
    let (mut scale, mut shift) = (vec![1.0; channels], vec![0.0; channels]);
    for step in steps {
        let constant = numbers(graph.constant(step.constant)?)?;
        for channel in 0..channels {
            let c = f64::from(*constant.get(if constant.len() == 1 { 0 } else { channel })?);
            let (by, plus) = match (step.kind, step.reversed) {
                (Binary::Add, _) => (1.0, c),
                (Binary::Sub, false) => (1.0, -c),
                (Binary::Sub, true) => (-1.0, c),
                (Binary::Div, _) => (1.0 / c, 0.0),
                _ => (c, 0.0),
            };
            scale[channel] *= by;
            shift[channel] = shift[channel] * by + plus;
        }
    }
    scale.iter().chain(&shift).all(|number| number.is_finite()).then_some(Composed { scale, shift })
}

fn numbers(tensor: &Tensor) -> Option<&[f32]> {
    tensor.try_as_plain_ram().ok()?.as_slice::<f32>().ok()
}

/// What the chain does, as a recipe's name: the same constants may meet in another way elsewhere.
fn recipe(role: &str, channels: usize, steps: &[Step]) -> String {
    let mut text = format!("{role}/{channels}");
    for step in steps {
        // Writing to a string cannot fail.
        let _ = write!(text, "/{}{}", step.kind.name(), if step.reversed { "'" } else { "" });
    }
    text
}

fn into_convolution(
    graph: &mut Graph,
    conv: usize,
    last: usize,
    steps: &[Step],
    folded: &Folded,
) -> Option<()> {
    let layer = &graph.layers[conv];
    let Op::Conv(about) = &layer.op else { return None };
    let [_, weight_id, bias_id] = layer.inputs.as_slice() else { return None };
    let (weight_id, bias_id, channels) = (*weight_id, *bias_id, about.out_channels);
    let rank = graph.value(layer.outputs[0]).shape.len();
    let axis = about.window.layout.channel_axis(rank);
    let plain = about.quantized.is_none() && about.weight == WeightLayout::OutInSpatial;
    if !plain || steps.iter().any(|step| step.axis.is_some_and(|along| along != axis)) {
        return None;
    }
    let (weight, bias) = (graph.constant(weight_id)?.clone(), graph.constant(bias_id)?.clone());
    let constants = ingredients(graph, steps)?;
    let mut for_weight: Vec<&Arc<Tensor>> = vec![&weight];
    for_weight.extend(&constants);
    let new_weight = folded.get(&recipe("weight", channels, steps), &for_weight, || {
        let Composed { scale, .. } = composed(graph, steps, channels)?;
        let numbers = numbers(&weight)?;
        let per_channel = numbers.len() / channels.max(1);
        let scaled =
            numbers.iter().enumerate().map(|(at, w)| single(f64::from(*w) * scale[at / per_channel.max(1)]));
        Tensor::from_shape(weight.shape(), &scaled.collect::<Vec<f32>>()).ok()
    })?;
    let mut for_bias: Vec<&Arc<Tensor>> = vec![&bias];
    for_bias.extend(&constants);
    let new_bias = folded.get(&recipe("bias", channels, steps), &for_bias, || {
        let Composed { scale, shift } = composed(graph, steps, channels)?;
        let numbers = numbers(&bias)?;
        let old = |channel: usize| numbers.get(if numbers.len() == 1 { 0 } else { channel }).copied();
        let shifted = (0..channels).map(|at| Some(single(f64::from(old(at)?) * scale[at] + shift[at])));
        Tensor::from_shape(&[channels], &shifted.collect::<Option<Vec<f32>>>()?).ok()
    })?;
    let output = graph.layers[last].outputs[0];
    let name = graph.layers[conv].name.clone();
    let weight = add_constant(graph, format!("{name}.weight"), new_weight);
    let bias = add_constant(graph, format!("{name}.bias"), new_bias);
    let layer = &mut graph.layers[conv];
    layer.inputs[1] = weight;
    layer.inputs[2] = bias;
    layer.outputs = vec![output];
    Some(())
}

/// Replaces the last layer of a chain by one affine layer that reads the chain's input. A single step stays as it is, and
/// so does a chain of plain numbers: neither gains anything.
fn into_affine(graph: &mut Graph, last: usize, steps: &[Step], folded: &Folded) -> Option<()> {
    let axis = steps.iter().find_map(|step| step.axis).filter(|_| steps.len() > 1)?;
    let x = steps[0].x;
    let channels = *graph.value(x).shape.get(axis)?;
    let constants = ingredients(graph, steps)?;
    let borrowed: Vec<&Arc<Tensor>> = constants.iter().collect();
    let make = |pick: fn(Composed) -> Vec<f64>| {
        let numbers = pick(composed(graph, steps, channels)?);
        Tensor::from_shape(&[channels], &numbers.into_iter().map(single).collect::<Vec<f32>>()).ok()
    };
    let scale = folded.get(&recipe("scale", channels, steps), &borrowed, || make(|chain| chain.scale))?;
    let shift = folded.get(&recipe("shift", channels, steps), &borrowed, || make(|chain| chain.shift))?;
    let name = graph.layers[last].name.clone();
    let scale = add_constant(graph, format!("{name}.scale"), scale);
    let shift = add_constant(graph, format!("{name}.shift"), shift);
    let layer = &mut graph.layers[last];
    layer.op = Op::Affine { axis, relu: false };
    layer.inputs = vec![x, scale, shift];
    layer.native = None;
    Some(())
}

fn ingredients(graph: &Graph, steps: &[Step]) -> Option<Vec<Arc<Tensor>>> {
    steps.iter().map(|step| graph.constant(step.constant).cloned()).collect()
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "weights are single precision; only the folding is double"
)]
fn single(number: f64) -> f32 {
    number as f32
}

fn add_constant(graph: &mut Graph, name: String, tensor: Arc<Tensor>) -> ValueId {
    let shape = tensor.shape().to_vec();
    graph.add_value(Value { name, dtype: DType::F32, shape, constant: Some(tensor) })
}

/// Lets an affine layer rectify, where a rectifier is all that reads it.
pub(super) fn join_rectifiers(graph: &mut Graph) {
    let uses = Uses::of(graph);
    let mut gone = vec![false; graph.layers.len()];
    for at in 0..graph.layers.len() {
        if !matches!(graph.layers[at].op, Op::Affine { relu: false, .. }) {
            continue;
        }
        let Some(next) = uses.only_reader(graph.layers[at].outputs[0]) else { continue };
        if graph.layers[next].op != Op::Unary(Unary::Plain(Function::Relu)) {
            continue;
        }
        graph.layers[at].outputs = graph.layers[next].outputs.clone();
        if let Op::Affine { relu, .. } = &mut graph.layers[at].op {
            *relu = true;
        }
        gone[next] = true;
    }
    remove(&mut graph.layers, &gone);
}
