//! Small clean-ups before and after folding.

use super::{Uses, remove};
use crate::ir::{Graph, Layer, ValueId};
use crate::op::{Binary, Function, Op, Unary};
use std::collections::BTreeMap;
use tract_onnx::prelude::Tensor;

/// Removes layers that hand on what they read. One that writes an output of the graph stays: the output has its name.
pub(super) fn drop_identities(graph: &mut Graph) {
    let uses = Uses::of(graph);
    let mut replaced: BTreeMap<ValueId, ValueId> = BTreeMap::new();
    let mut gone = vec![false; graph.layers.len()];
    for (at, gone) in gone.iter_mut().enumerate() {
        for input in &mut graph.layers[at].inputs {
            *input = replaced.get(input).copied().unwrap_or(*input);
        }
        let layer = &graph.layers[at];
        let Some((output, more)) = layer.outputs.split_first() else { continue };
        let needed =
            |value: &ValueId| uses.outputs.contains(value) || !uses.consumers[value.index()].is_empty();
        if more.iter().any(needed) {
            // A dropout whose mask is used.
            if layer.op == Op::Identity {
                let name = graph.layers[at].op.kind();
                graph.layers[at].op = Op::Foreign { name };
            }
            continue;
        }
        if let Some(kept) = handed_on(graph, layer).filter(|_| !uses.outputs.contains(output)) {
            replaced.insert(*output, kept);
            *gone = true;
        }
    }
    remove(&mut graph.layers, &gone);
}

/// The operand that a layer's output equals, if it does at every batch.
fn handed_on(graph: &Graph, layer: &Layer) -> Option<ValueId> {
    let first = *layer.inputs.first()?;
    if layer.outputs.len() > 1 && layer.op != Op::Identity {
        return None;
    }
    let output = graph.value(*layer.outputs.first()?);
    let same = |id: ValueId| {
        let value = graph.value(id);
        value.shape == output.shape && value.dtype == output.dtype && value.constant.is_none()
    };
    let kept = match &layer.op {
        Op::Identity => first,
        Op::Cast(_) if same(first) => first,
        Op::Concat { .. } if layer.inputs.len() == 1 => first,
        Op::MoveAxis { from, to } if from == to => first,
        Op::Pad { before, after, .. } if before.iter().chain(after).all(|extra| *extra == 0) => first,
        Op::Slice { axis, .. } if *axis > 0 && same(first) => first,
        Op::Binary(Binary::Mul | Binary::Div) if uniform(graph, layer.inputs[1]) == Some(1.0) => first,
        Op::Binary(Binary::Add | Binary::Sub) if uniform(graph, layer.inputs[1]) == Some(0.0) => first,
        Op::Binary(Binary::Mul) if uniform(graph, first) == Some(1.0) => layer.inputs[1],
        Op::Binary(Binary::Add) if uniform(graph, first) == Some(0.0) => layer.inputs[1],
        _ => return None,
    };
    same(kept).then_some(kept)
}

/// The one number that fills a small constant.
fn uniform(graph: &Graph, id: ValueId) -> Option<f64> {
    let constant: &Tensor = graph.constant(id)?;
    if constant.len() != 1 {
        return None;
    }
    constant.cast_to_scalar::<f64>().ok()
}

/// Exporters and tract spell a rectifier as the larger of a value and zero.
pub(super) fn name_rectifiers(graph: &mut Graph) {
    for at in 0..graph.layers.len() {
        let layer = &graph.layers[at];
        let (Op::Binary(Binary::Max), [a, b]) = (&layer.op, layer.inputs.as_slice()) else { continue };
        let kept = match (uniform(graph, *a), uniform(graph, *b)) {
            (_, Some(0.0)) => *a,
            (Some(0.0), _) => *b,
            _ => continue,
        };
        let (value, output) = (graph.value(kept), graph.value(layer.outputs[0]));
        if value.shape == output.shape && value.dtype == output.dtype && value.constant.is_none() {
            let layer = &mut graph.layers[at];
            layer.op = Op::Unary(Unary::Plain(Function::Relu));
            layer.inputs = vec![kept];
            layer.native = None;
        }
    }
}

/// Forgets values that no layer and no port mentions, and numbers the others anew, in order.
pub(super) fn drop_unused_values(graph: &mut Graph) {
    let mut used = vec![false; graph.values.len()];
    let layers = graph.layers.iter().flat_map(|layer| layer.inputs.iter().chain(&layer.outputs));
    for id in layers.chain(&graph.inputs).chain(&graph.outputs) {
        used[id.index()] = true;
    }
    let mut places = Vec::with_capacity(used.len());
    let mut next = 0u32;
    for used in &used {
        places.push(ValueId(next));
        next += u32::from(*used);
    }
    let mut at = 0;
    graph.values.retain(|_| {
        at += 1;
        used[at - 1]
    });
    let layers = graph.layers.iter_mut().flat_map(|layer| layer.inputs.iter_mut().chain(&mut layer.outputs));
    for id in layers.chain(&mut graph.inputs).chain(&mut graph.outputs) {
        *id = places[id.index()];
    }
}
