//! Writes a layer into a tract model: verbatim where the importer kept tract's operator, built anew where a rewrite made
//! the layer. The CPU backend, and every numeric test, goes through here.

use crate::affine::ChannelAffine;
use crate::ir::{Graph, Layer};
use crate::op::{
    Binary, Conv, Deconv, EinSum, Function, Layout, Op, PadFill, ReduceKind, ScatterKind, Unary,
    WeightLayout, Window,
};
use crate::tensor::DType;
use crate::translate::datum;
use std::collections::BTreeMap;
use tract_onnx::prelude::{
    DatumType, IntoArcTensor, OutletId, SpecialOps, TVec, Tensor, ToDim, TractError, TractResult, TypedFact,
    TypedModel, tvec,
};
use tract_onnx::tract_core::axes::AxesMapping;
use tract_onnx::tract_core::ops::TypedOp;
use tract_onnx::tract_core::ops::array::{
    CumSum, Gather, GatherElements, GatherNd, MultiBroadcastTo, Pad, PadMode, ScatterElements, ScatterNd,
    ScatterReduction, Slice, Tile, Trilu, TypedConcat,
};
use tract_onnx::tract_core::ops::binary::{BinMiniOp, TypedBinOp};
use tract_onnx::tract_core::ops::cast::Cast;
use tract_onnx::tract_core::ops::change_axes::AxisOp;
use tract_onnx::tract_core::ops::cnn::{self, KernelFormat, PaddingSpec, PoolSpec};
use tract_onnx::tract_core::ops::einsum;
use tract_onnx::tract_core::ops::element_wise::{ElementWiseMiniOp, ElementWiseOp};
use tract_onnx::tract_core::ops::identity::Identity;
use tract_onnx::tract_core::ops::{logic, math, nn};
use tract_onnx_opl::lrn::Lrn;

/// Adds `layer` to `model`, reading `inputs` (one outlet for each of the layer's inputs, in order), and gives the outlet
/// of each of its outputs. A layer may become several tract nodes; their names begin with the layer's.
///
/// # Errors
/// When tract refuses the operands, or when a rewrite has taken the tract operator away from a layer that only tract
/// can spell ([`Op::Foreign`] and the few whose bounds are operands), which is a bug of that rewrite.
pub fn wire(
    layer: &Layer,
    graph: &Graph,
    model: &mut TypedModel,
    inputs: &[OutletId],
) -> TractResult<TVec<OutletId>> {
    if let Some(by) = misread(layer, graph) {
        return turned(layer, by, model, inputs);
    }
    if let Some(native) = &layer.native {
        return model.wire_node(&layer.name, native.0.clone(), inputs);
    }
    if layer.op == Op::Unary(Unary::Plain(Function::Relu)) {
        return relu(layer, graph, model, inputs);
    }
    let op = built(layer, graph)?;
    model.wire_node(&layer.name, op, inputs)
}

/// The whole graph as one tract model: what the segments together must equal.
///
/// # Errors
/// When a layer cannot be written; see [`wire`].
pub fn wire_graph(graph: &Graph) -> TractResult<TypedModel> {
    let mut model = TypedModel::default();
    let mut outlets: BTreeMap<_, OutletId> = BTreeMap::new();
    for input in &graph.inputs {
        let value = graph.value(*input);
        let fact = TypedFact::dt_shape(datum(value.dtype), &value.shape);
        outlets.insert(*input, model.add_source(&value.name, fact)?);
    }
    for layer in &graph.layers {
        let mut operands = tvec!();
        for input in &layer.inputs {
            if let (Some(constant), false) = (graph.constant(*input), outlets.contains_key(input)) {
                outlets.insert(*input, model.add_const(&graph.value(*input).name, constant.clone())?);
            }
            let outlet = outlets.get(input).copied();
            operands
                .push(outlet.ok_or_else(|| TractError::msg("a layer reads a value before it is written"))?);
        }
        let written = wire(layer, graph, &mut model, &operands)?;
        outlets.extend(layer.outputs.iter().copied().zip(written));
    }
    let mut outputs = tvec!();
    for output in &graph.outputs {
        let outlet = match (outlets.get(output), graph.constant(*output)) {
            (Some(outlet), _) => *outlet,
            (None, Some(constant)) => model.add_const(&graph.value(*output).name, constant.clone())?,
            (None, None) => return Err(TractError::msg("no layer writes an output")),
        };
        outputs.push(outlet);
    }
    model.select_output_outlets(&outputs)?;
    Ok(model)
}

/// How to turn round a constant less, or over, a convolution. tract 0.23 folds the constant into the convolution and
/// gets it wrong: the weights keep their sign, or divide the constant.
fn misread(layer: &Layer, graph: &Graph) -> Option<(Function, Binary)> {
    let turn = match layer.op {
        Op::Binary(Binary::Sub) => (Function::Neg, Binary::Add),
        Op::Binary(Binary::Div) => (Function::Recip, Binary::Mul),
        _ => return None,
    };
    let [constant, x] = layer.inputs.as_slice() else { return None };
    let real = matches!(graph.value(*x).dtype, DType::F16 | DType::F32 | DType::F64);
    let before = graph.layers.iter().find(|before| before.outputs.contains(x));
    let convolution = before.is_some_and(|before| matches!(before.op, Op::Conv(_) | Op::Binary(_)));
    (real && convolution && graph.constant(*constant).is_some()).then_some(turn)
}

fn turned(
    layer: &Layer,
    by: (Function, Binary),
    model: &mut TypedModel,
    inputs: &[OutletId],
) -> TractResult<TVec<OutletId>> {
    let turn = ElementWiseOp(unary_op(layer, Unary::Plain(by.0))?, None);
    let turned = model.wire_node(format!("{}.turned", layer.name), turn, &inputs[1..2])?;
    model.wire_node(&layer.name, TypedBinOp(binary_op(by.1), None), &[turned[0], inputs[0]])
}

/// tract has no rectifier of its own: it is the larger of the operand and a zero of equal rank.
fn relu(
    layer: &Layer,
    graph: &Graph,
    model: &mut TypedModel,
    inputs: &[OutletId],
) -> TractResult<TVec<OutletId>> {
    let value = graph.value(layer.inputs[0]);
    let zero = Tensor::zero_dt(datum(value.dtype), &vec![1; value.shape.len()])?;
    let zero = model.add_const(format!("{}.zero", layer.name), zero)?;
    model.wire_node(&layer.name, TypedBinOp(Box::new(math::Max), None), &[inputs[0], zero])
}

fn built(layer: &Layer, graph: &Graph) -> TractResult<Box<dyn TypedOp>> {
    let shape_in = || &graph.value(layer.inputs[0]).shape;
    let shape_out = || &graph.value(layer.outputs[0]).shape;
    Ok(match &layer.op {
        Op::Conv(conv) => Box::new(build_conv(conv)),
        Op::Deconv(deconv) => Box::new(build_deconv(deconv)),
        Op::EinSum(sum) => Box::new(build_einsum(sum)?),
        Op::MaxPool { window, indices } => Box::new(cnn::MaxPool {
            pool_spec: pool_spec(window, shape_in(), shape_out()),
            with_index_outputs: indices.then_some(DatumType::I64),
        }),
        Op::SumPool { window, count_include_pad, normalize } => Box::new(cnn::SumPool {
            pool_spec: pool_spec(window, shape_in(), shape_out()),
            count_include_pad: *count_include_pad,
            normalize: *normalize,
        }),
        Op::Reduce { kind, axes } => {
            Box::new(nn::Reduce { axes: axes.iter().copied().collect(), reducer: reducer(*kind) })
        }
        Op::Softmax { axes, log } => {
            let kind = if *log { nn::SoftmaxKind::LogSoftmax } else { nn::SoftmaxKind::Softmax };
            Box::new(nn::Softmax { axes: axes.iter().copied().collect(), quant_output_dt: None, kind })
        }
        Op::Lrn { alpha, beta, bias, size } => {
            Box::new(Lrn { alpha: *alpha, beta: *beta, bias: *bias, size: *size })
        }
        Op::Affine { axis, relu } => Box::new(ChannelAffine { axis: *axis, relu: *relu }),
        Op::Unary(unary) => Box::new(ElementWiseOp(unary_op(layer, *unary)?, None)),
        Op::Binary(binary) => Box::new(TypedBinOp(binary_op(*binary), None)),
        Op::Select => Box::new(logic::Iff),
        Op::Cast(to) => Box::new(Cast { to: datum(*to) }),
        Op::Identity => Box::new(Identity),
        _ => return moved(layer, shape_in(), shape_out()),
    })
}

fn moved(layer: &Layer, shape_in: &[usize], shape_out: &[usize]) -> TractResult<Box<dyn TypedOp>> {
    Ok(match &layer.op {
        Op::Reshape => {
            let dims = |shape: &[usize]| shape.iter().map(ToDim::to_dim).collect();
            Box::new(AxisOp::Reshape(0, dims(shape_in), dims(shape_out)))
        }
        Op::AddAxis(axis) => Box::new(AxisOp::Add(*axis)),
        Op::RemoveAxis(axis) => Box::new(AxisOp::Rm(*axis)),
        Op::MoveAxis { from, to } => Box::new(AxisOp::Move(*from, *to)),
        Op::Concat { axis } => Box::new(TypedConcat { axis: *axis }),
        Op::Slice { axis, start, end } => Box::new(Slice::new(*axis, *start, *end)),
        Op::Pad { before, after, fill } => Box::new(Pad {
            pads: before.iter().copied().zip(after.iter().copied()).collect(),
            mode: pad_mode(fill),
        }),
        Op::Broadcast => Box::new(MultiBroadcastTo { shape: shape_out.iter().map(ToDim::to_dim).collect() }),
        Op::Tile(counts) => Box::new(Tile { multipliers: counts.iter().map(ToDim::to_dim).collect() }),
        Op::Gather { axis } => Box::new(Gather::new(*axis)),
        Op::GatherElements { axis } => Box::new(GatherElements { axis: *axis }),
        Op::GatherNd { batch_axes } => Box::new(GatherNd { batch_dims: *batch_axes }),
        Op::ScatterElements { axis, reduction } => {
            Box::new(ScatterElements { axis: *axis, reduction: scatter(*reduction) })
        }
        Op::ScatterNd { reduction } => Box::new(ScatterNd { reduction: scatter(*reduction) }),
        Op::CumSum { axis, exclusive, reverse } => {
            Box::new(CumSum { axis: *axis, exclusive: *exclusive, reverse: *reverse })
        }
        Op::Triangle { upper } => Box::new(Trilu { upper: *upper }),
        other => {
            let (name, kind) = (&layer.name, other.kind());
            return Err(TractError::msg(format!("layer \"{name}\" ({kind}) has lost its tract operator")));
        }
    })
}

fn build_conv(conv: &Conv) -> cnn::Conv {
    cnn::Conv {
        pool_spec: spec(&conv.window, conv.in_channels, conv.out_channels),
        kernel_fmt: kernel_format(conv.weight),
        group: conv.groups,
        q_params: conv.quantized.map(datum),
    }
}

fn build_deconv(deconv: &Deconv) -> cnn::Deconv {
    cnn::Deconv {
        pool_spec: spec(&deconv.window, deconv.in_channels, deconv.out_channels),
        kernel_format: kernel_format(deconv.weight),
        adjustments: deconv.adjustments.iter().copied().collect(),
        group: deconv.groups,
    }
}

fn build_einsum(sum: &EinSum) -> TractResult<einsum::EinSum> {
    Ok(einsum::EinSum {
        axes: AxesMapping::from_strs(&sum.inputs, std::slice::from_ref(&sum.output))?,
        operating_dt: datum(sum.accumulator),
        q_params: sum.quantized.map(datum),
    })
}

fn kernel_format(layout: WeightLayout) -> KernelFormat {
    match layout {
        WeightLayout::OutInSpatial => KernelFormat::OIHW,
        WeightLayout::SpatialInOut => KernelFormat::HWIO,
        WeightLayout::OutSpatialIn => KernelFormat::OHWI,
    }
}

fn spec(window: &Window, in_channels: usize, out_channels: usize) -> PoolSpec {
    let sizes = |numbers: &[usize]| numbers.iter().copied().collect::<TVec<usize>>();
    PoolSpec {
        data_format: match window.layout {
            Layout::ChannelsFirst => nn::DataFormat::NCHW,
            Layout::ChannelsLast => nn::DataFormat::NHWC,
            Layout::UnbatchedChannelsFirst => nn::DataFormat::CHW,
            Layout::UnbatchedChannelsLast => nn::DataFormat::HWC,
        },
        kernel_shape: sizes(&window.kernel),
        padding: PaddingSpec::Explicit(sizes(&window.pads_before), sizes(&window.pads_after)),
        dilations: Some(sizes(&window.dilations)),
        strides: Some(sizes(&window.strides)),
        input_channels: in_channels,
        output_channels: out_channels,
    }
}

/// A pool keeps its channels, and rounds its output up where the output's shape says so.
fn pool_spec(window: &Window, shape_in: &[usize], shape_out: &[usize]) -> PoolSpec {
    let channels = shape_in.get(window.layout.channel_axis(shape_in.len())).copied().unwrap_or(1);
    let mut spec = spec(window, channels, channels);
    let floor = spec.output_shape(shape_in).map(|shaped| shaped.shape.to_vec());
    if floor.is_ok_and(|floor| floor != shape_out) {
        let PaddingSpec::Explicit(before, after) = spec.padding else { return spec };
        spec.padding = PaddingSpec::ExplicitOnnxPool(before, after, true);
    }
    spec
}

fn reducer(kind: ReduceKind) -> nn::Reducer {
    match kind {
        ReduceKind::Sum => nn::Reducer::Sum,
        ReduceKind::Product => nn::Reducer::Prod,
        ReduceKind::Max => nn::Reducer::Max,
        ReduceKind::Min => nn::Reducer::Min,
        ReduceKind::MeanOfSquares => nn::Reducer::MeanOfSquares,
        ReduceKind::ArgMax { last } => nn::Reducer::ArgMax(last),
        ReduceKind::ArgMin { last } => nn::Reducer::ArgMin(last),
        ReduceKind::All => nn::Reducer::All,
        ReduceKind::Any => nn::Reducer::Any,
    }
}

fn scatter(kind: ScatterKind) -> ScatterReduction {
    match kind {
        ScatterKind::Replace => ScatterReduction::None,
        ScatterKind::Add => ScatterReduction::Add,
        ScatterKind::Multiply => ScatterReduction::Mul,
        ScatterKind::Min => ScatterReduction::Min,
        ScatterKind::Max => ScatterReduction::Max,
    }
}

fn pad_mode(fill: &PadFill) -> PadMode {
    match fill {
        // Fills of the models we know are exact in single precision; tract casts to the operand's type.
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the fill came from a single-precision attribute"
        )]
        PadFill::Constant(value) => PadMode::Constant(Tensor::from(*value as f32).into_arc_tensor()),
        PadFill::Reflect => PadMode::Reflect,
        PadFill::Edge => PadMode::Edge,
    }
}

fn binary_op(binary: Binary) -> Box<dyn BinMiniOp> {
    match binary {
        Binary::Add => Box::new(math::Add),
        Binary::Sub => Box::new(math::Sub),
        Binary::Mul => Box::new(math::Mul),
        Binary::Div => Box::new(math::Div),
        Binary::Rem => Box::new(math::Rem),
        Binary::Min => Box::new(math::Min),
        Binary::Max => Box::new(math::Max),
        Binary::Pow => Box::new(math::Pow),
        Binary::And => Box::new(logic::And),
        Binary::Or => Box::new(logic::Or),
        Binary::Xor => Box::new(logic::Xor),
        Binary::BitAnd => Box::new(logic::BitAnd),
        Binary::BitOr => Box::new(logic::BitOr),
        Binary::BitXor => Box::new(logic::BitXor),
        Binary::ShiftLeft => Box::new(math::ShiftLeft),
        Binary::ShiftRight => Box::new(math::ShiftRight),
        Binary::Equal => logic::comp_eq(),
        Binary::NotEqual => logic::comp_ne(),
        Binary::Less => logic::comp_lt(),
        Binary::LessEqual => logic::comp_lte(),
        Binary::Greater => logic::comp_gt(),
        Binary::GreaterEqual => logic::comp_gte(),
    }
}

fn unary_op(layer: &Layer, unary: Unary) -> TractResult<Box<dyn ElementWiseMiniOp>> {
    Ok(match unary {
        Unary::LeakyRelu { alpha } => Box::new(nn::LeakyRelu { alpha }),
        Unary::PowConst { exponent } => Box::new(math::PowConst { exponent }),
        Unary::Plain(function) => match function {
            Function::Abs => Box::new(math::Abs {}),
            Function::Exp => Box::new(math::Exp {}),
            Function::Ln => Box::new(math::Ln {}),
            Function::Square => Box::new(math::Square {}),
            Function::Sqrt => Box::new(math::Sqrt {}),
            Function::Rsqrt => Box::new(math::Rsqrt {}),
            Function::Recip => Box::new(math::Recip {}),
            Function::Neg => Box::new(math::Neg {}),
            Function::Tanh => Box::new(math::Tanh {}),
            Function::Erf => Box::new(math::Erf {}),
            Function::Sigmoid => Box::new(nn::Sigmoid {}),
            Function::Silu => Box::new(nn::silu::Silu {}),
            Function::HardSwish => Box::new(nn::HardSwish {}),
            Function::Gelu => Box::new(nn::GeluExact {}),
            Function::GeluTanh => Box::new(nn::GeluApproximate { fast_impl: false }),
            other => {
                let (name, kind) = (&layer.name, other.name());
                return Err(TractError::msg(format!(
                    "layer \"{name}\" ({kind}) has lost its tract operator"
                )));
            }
        },
    })
}
