//! What this backend cannot run, told all at once before anything is loaded.

use graph::{Coordinates, DType, Graph, Interpolation, Layer, Op};

/// Layers that cannot be lowered, each with its operator and the reason; empty when all can.
pub(crate) fn unsupported(graph: &Graph) -> Vec<String> {
    let why = |layer: &Layer| {
        reason(graph, layer).map(|why| format!("{} ({}: {why})", layer.name, layer.op.kind()))
    };
    graph.layers.iter().filter_map(why).collect()
}

fn reason(graph: &Graph, layer: &Layer) -> Option<&'static str> {
    let spatial = |kernel: &[usize]| (kernel.len() > 2).then_some("more than two spatial axes");
    let double = layer.outputs.iter().any(|id| graph.value(*id).dtype == DType::F64);
    match &layer.op {
        Op::Conv(conv) if conv.quantized.is_some() => Some("quantised"),
        Op::Conv(conv) => double.then_some("double precision").or_else(|| spatial(&conv.window.kernel)),
        Op::Deconv(deconv) => spatial(&deconv.window.kernel),
        Op::EinSum(sum) if sum.quantized.is_some() => Some("quantised"),
        Op::EinSum(sum) => {
            let shapes: Vec<&[usize]> =
                layer.inputs.iter().map(|id| graph.value(*id).shape.as_slice()).collect();
            let real =
                layer.inputs.iter().all(|id| matches!(graph.value(*id).dtype, DType::F32 | DType::F16));
            let product = shapes.len() == 2 && sum.matmul(shapes[0], shapes[1]).is_some();
            (!(product && real)).then_some("not a product of two real matrices")
        }
        Op::MaxPool { indices: true, .. } => Some("the winners' indices"),
        Op::MaxPool { window, .. } | Op::SumPool { window, .. } => {
            double.then_some("double precision").or_else(|| spatial(&window.kernel))
        }
        Op::Resize { interpolation: Interpolation::Cubic, .. } => Some("cubic"),
        Op::Resize { coordinates: Coordinates::HalfPixelSymmetric, .. } => Some("half_pixel_symmetric"),
        Op::Softmax { .. } => double.then_some("double precision"),
        Op::GatherNd { .. }
        | Op::ScatterElements { .. }
        | Op::ScatterNd { .. }
        | Op::TopK { .. }
        | Op::OneHot { .. }
        | Op::Triangle { .. }
        | Op::Foreign { .. } => Some("no kernel"),
        _ => None,
    }
}
