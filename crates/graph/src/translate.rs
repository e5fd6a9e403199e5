//! Reads one tract operator as an [`Op`]. Anything unknown becomes [`Op::Foreign`], which only the CPU runs.
//!
//! The facts must be concrete: this runs after every symbol has been replaced.

use crate::op::{
    Binary, Conv, Coordinates, Deconv, EinSum, Function, Interpolation, Layout, Op, PadFill, ReduceKind,
    Rounding, ScatterKind, Stride, Unary, WeightLayout, Window,
};
use crate::tensor::DType;
use tract_onnx::prelude::{DatumType, Tensor, TypedFact};
use tract_onnx::tract_core::internal::DimLike;
use tract_onnx::tract_core::ops::TypedOp;
use tract_onnx::tract_core::ops::array::{
    CumSum, Gather, GatherElements, GatherNd, MultiBroadcastTo, OneHot, Pad, PadMode, ScatterElements,
    ScatterNd, ScatterReduction, Slice, StridedSlice, Tile, Topk, Trilu, TypedConcat,
};
use tract_onnx::tract_core::ops::binary::TypedBinOp;
use tract_onnx::tract_core::ops::cast::Cast;
use tract_onnx::tract_core::ops::change_axes::AxisOp;
use tract_onnx::tract_core::ops::cnn::{self, KernelFormat, PoolSpec};
use tract_onnx::tract_core::ops::einsum;
use tract_onnx::tract_core::ops::element_wise::ElementWiseOp;
use tract_onnx::tract_core::ops::identity::Identity;
use tract_onnx::tract_core::ops::logic::Iff;
use tract_onnx::tract_core::ops::math::PowConst;
use tract_onnx::tract_core::ops::nn::{self, DataFormat, LeakyRelu, Reducer};
use tract_onnx_opl::lrn::Lrn;
use tract_onnx_opl::resize::{CoordTransform, Nearest, Resize};

/// What `op` computes on operands of these facts.
pub(crate) fn read(op: &dyn TypedOp, inputs: &[&TypedFact]) -> Op {
    neural(op, inputs)
        .or_else(|| element_wise(op))
        .or_else(|| movement(op))
        .or_else(|| indexed(op, inputs))
        .unwrap_or_else(|| Op::Foreign { name: op.name().into_owned() })
}

/// Our name for tract's element type; symbolic integers count as `I64`, quantised ones as what they are stored in.
pub(crate) fn dtype(datum: DatumType) -> Option<DType> {
    Some(match datum {
        DatumType::Bool => DType::Bool,
        DatumType::U8 | DatumType::QU8(_) => DType::U8,
        DatumType::U16 => DType::U16,
        DatumType::U32 => DType::U32,
        DatumType::U64 => DType::U64,
        DatumType::I8 | DatumType::QI8(_) => DType::I8,
        DatumType::I16 => DType::I16,
        DatumType::I32 | DatumType::QI32(_) => DType::I32,
        DatumType::I64 | DatumType::TDim => DType::I64,
        DatumType::F16 => DType::F16,
        DatumType::F32 => DType::F32,
        DatumType::F64 => DType::F64,
        _ => return None,
    })
}

/// tract's element type for ours.
#[must_use]
pub const fn datum(dtype: DType) -> DatumType {
    match dtype {
        DType::Bool => DatumType::Bool,
        DType::U8 => DatumType::U8,
        DType::U16 => DatumType::U16,
        DType::U32 => DatumType::U32,
        DType::U64 => DatumType::U64,
        DType::I8 => DatumType::I8,
        DType::I16 => DatumType::I16,
        DType::I32 => DatumType::I32,
        DType::I64 => DatumType::I64,
        DType::F16 => DatumType::F16,
        DType::F32 => DatumType::F32,
        DType::F64 => DatumType::F64,
    }
}

fn neural(op: &dyn TypedOp, inputs: &[&TypedFact]) -> Option<Op> {
    if let Some(conv) = op.downcast_ref::<cnn::Conv>() {
        return Some(Op::Conv(Conv {
            window: window(&conv.pool_spec, inputs)?,
            weight: weight_layout(conv.kernel_fmt),
            groups: conv.group,
            in_channels: conv.pool_spec.input_channels,
            out_channels: conv.pool_spec.output_channels,
            quantized: optional_dtype(conv.q_params)?,
        }));
    }
    if let Some(deconv) = op.downcast_ref::<cnn::Deconv>() {
        return Some(Op::Deconv(Deconv {
            window: deconv_window(deconv, inputs)?,
            weight: weight_layout(deconv.kernel_format),
            groups: deconv.group,
            in_channels: deconv.pool_spec.input_channels,
            out_channels: deconv.pool_spec.output_channels,
            adjustments: deconv.adjustments.to_vec(),
        }));
    }
    if let Some(sum) = op.downcast_ref::<einsum::EinSum>() {
        let (operands, outputs) = sum.axes.to_strs();
        let [output] = outputs.as_slice() else { return None };
        return Some(Op::EinSum(EinSum {
            inputs: operands.to_vec(),
            output: output.clone(),
            accumulator: dtype(sum.operating_dt)?,
            quantized: optional_dtype(sum.q_params)?,
        }));
    }
    if let Some(pool) = op.downcast_ref::<cnn::MaxPool>() {
        let window = window(&pool.pool_spec, inputs)?;
        return Some(Op::MaxPool { window, indices: pool.with_index_outputs.is_some() });
    }
    if let Some(pool) = op.downcast_ref::<cnn::SumPool>() {
        let window = window(&pool.pool_spec, inputs)?;
        let (count_include_pad, normalize) = (pool.count_include_pad, pool.normalize);
        return Some(Op::SumPool { window, count_include_pad, normalize });
    }
    if let Some(reduce) = op.downcast_ref::<nn::Reduce>() {
        return Some(Op::Reduce { kind: reduce_kind(reduce.reducer), axes: reduce.axes.to_vec() });
    }
    if let Some(softmax) = op.downcast_ref::<nn::Softmax>() {
        let plain = softmax.quant_output_dt.is_none();
        let log = matches!(softmax.kind, nn::SoftmaxKind::LogSoftmax);
        return plain.then(|| Op::Softmax { axes: softmax.axes.to_vec(), log });
    }
    let lrn = op.downcast_ref::<Lrn>()?;
    Some(Op::Lrn { alpha: lrn.alpha, beta: lrn.beta, bias: lrn.bias, size: lrn.size })
}

#[expect(clippy::option_option, reason = "outer: can we name the type; inner: is the operator quantised")]
fn optional_dtype(datum: Option<DatumType>) -> Option<Option<DType>> {
    match datum {
        None => Some(None),
        Some(datum) => dtype(datum).map(Some),
    }
}

fn weight_layout(format: KernelFormat) -> WeightLayout {
    match format {
        KernelFormat::OIHW => WeightLayout::OutInSpatial,
        KernelFormat::HWIO => WeightLayout::SpatialInOut,
        KernelFormat::OHWI => WeightLayout::OutSpatialIn,
    }
}

fn reduce_kind(reducer: Reducer) -> ReduceKind {
    match reducer {
        Reducer::Sum => ReduceKind::Sum,
        Reducer::Prod => ReduceKind::Product,
        Reducer::Max => ReduceKind::Max,
        Reducer::Min => ReduceKind::Min,
        Reducer::MeanOfSquares => ReduceKind::MeanOfSquares,
        Reducer::ArgMax(last) => ReduceKind::ArgMax { last },
        Reducer::ArgMin(last) => ReduceKind::ArgMin { last },
        Reducer::All => ReduceKind::All,
        Reducer::Any => ReduceKind::Any,
    }
}

/// The window with its padding in numbers, whatever rule the file gave for it.
fn window(spec: &PoolSpec, inputs: &[&TypedFact]) -> Option<Window> {
    let shape = inputs.first()?.shape.as_concrete()?;
    let shaped = spec.data_format.shape(shape).ok()?;
    let padding = spec.computed_padding(shaped.hw_dims());
    let pads_before = padding.iter().map(|axis| axis.pad_before).collect();
    let pads_after = padding.iter().map(|axis| axis.pad_after).collect();
    Some(bare_window(spec, pads_before, pads_after))
}

fn deconv_window(deconv: &cnn::Deconv, inputs: &[&TypedFact]) -> Option<Window> {
    let spec = &deconv.pool_spec;
    let shape = inputs.first()?.shape.as_concrete()?;
    let shaped = spec.data_format.shape(shape).ok()?;
    let (kernel, dilations, strides) = (&spec.kernel_shape, spec.dilations(), spec.strides());
    let padding = spec
        .padding
        .compute_for_deconv(shaped.hw_dims(), kernel, &dilations, &strides, &deconv.adjustments)
        .ok()?;
    let pads_before = padding.iter().map(|axis| axis.pad_before).collect();
    let pads_after = padding.iter().map(|axis| axis.pad_after).collect();
    Some(bare_window(spec, pads_before, pads_after))
}

fn bare_window(spec: &PoolSpec, pads_before: Vec<usize>, pads_after: Vec<usize>) -> Window {
    let layout = match spec.data_format {
        DataFormat::NCHW => Layout::ChannelsFirst,
        DataFormat::NHWC => Layout::ChannelsLast,
        DataFormat::CHW => Layout::UnbatchedChannelsFirst,
        DataFormat::HWC => Layout::UnbatchedChannelsLast,
    };
    Window {
        layout,
        kernel: spec.kernel_shape.to_vec(),
        strides: spec.strides().into_owned(),
        dilations: spec.dilations().into_owned(),
        pads_before,
        pads_after,
    }
}

fn element_wise(op: &dyn TypedOp) -> Option<Op> {
    if let Some(binary) = op.downcast_ref::<TypedBinOp>() {
        let explicit_output = binary.1.is_some();
        return binary_named(binary.0.name()).filter(|_| !explicit_output).map(Op::Binary);
    }
    if let Some(unary) = op.downcast_ref::<ElementWiseOp>() {
        if unary.1.is_some() {
            return None;
        }
        if let Some(leaky) = unary.0.downcast_ref::<LeakyRelu>() {
            return Some(Op::Unary(Unary::LeakyRelu { alpha: leaky.alpha }));
        }
        if let Some(power) = unary.0.downcast_ref::<PowConst>() {
            return Some(Op::Unary(Unary::PowConst { exponent: power.exponent }));
        }
        return function_named(&unary.0.name()).map(|function| Op::Unary(Unary::Plain(function)));
    }
    if op.is::<Iff>() {
        return Some(Op::Select);
    }
    let cast = op.downcast_ref::<Cast>()?;
    dtype(cast.to).map(Op::Cast)
}

fn binary_named(name: &str) -> Option<Binary> {
    Some(match name {
        "Add" => Binary::Add,
        "Sub" => Binary::Sub,
        "Mul" => Binary::Mul,
        "Div" => Binary::Div,
        "Rem" => Binary::Rem,
        "Min" => Binary::Min,
        "Max" => Binary::Max,
        "Pow" => Binary::Pow,
        "And" => Binary::And,
        "Or" => Binary::Or,
        "Xor" => Binary::Xor,
        "BitAnd" => Binary::BitAnd,
        "BitOr" => Binary::BitOr,
        "BitXor" => Binary::BitXor,
        "ShiftLeft" => Binary::ShiftLeft,
        "ShiftRight" => Binary::ShiftRight,
        "Eq" => Binary::Equal,
        "NE" => Binary::NotEqual,
        "LT" => Binary::Less,
        "LTE" => Binary::LessEqual,
        "GT" => Binary::Greater,
        "GTE" => Binary::GreaterEqual,
        _ => return None,
    })
}

fn function_named(name: &str) -> Option<Function> {
    Some(match name {
        "Abs" => Function::Abs,
        "Exp" => Function::Exp,
        "Ln" => Function::Ln,
        "Square" => Function::Square,
        "Sqrt" => Function::Sqrt,
        "Rsqrt" => Function::Rsqrt,
        "Recip" => Function::Recip,
        "Neg" => Function::Neg,
        "Sign" => Function::Sign,
        "Ceil" => Function::Ceil,
        "Floor" => Function::Floor,
        "Round" => Function::Round,
        "RoundHalfToEven" => Function::RoundHalfToEven,
        "Sin" => Function::Sin,
        "Cos" => Function::Cos,
        "Tan" => Function::Tan,
        "Asin" => Function::Asin,
        "Acos" => Function::Acos,
        "Atan" => Function::Atan,
        "Sinh" => Function::Sinh,
        "Cosh" => Function::Cosh,
        "Tanh" => Function::Tanh,
        "Asinh" => Function::Asinh,
        "Acosh" => Function::Acosh,
        "Atanh" => Function::Atanh,
        "Erf" => Function::Erf,
        "Sigmoid" => Function::Sigmoid,
        "Silu" => Function::Silu,
        "HardSwish" => Function::HardSwish,
        "GeluExact" => Function::Gelu,
        "GeluApproximate" => Function::GeluTanh,
        "IsNan" => Function::IsNan,
        "Not" => Function::Not,
        "BitNot" => Function::BitNot,
        _ => return None,
    })
}

fn movement(op: &dyn TypedOp) -> Option<Op> {
    if let Some(axis) = op.downcast_ref::<AxisOp>() {
        return Some(match axis {
            AxisOp::Add(at) => Op::AddAxis(*at),
            AxisOp::Rm(at) => Op::RemoveAxis(*at),
            AxisOp::Move(from, to) => Op::MoveAxis { from: *from, to: *to },
            AxisOp::Reshape(..) => Op::Reshape,
        });
    }
    if let Some(concat) = op.downcast_ref::<TypedConcat>() {
        return Some(Op::Concat { axis: concat.axis });
    }
    if let Some(slice) = op.downcast_ref::<Slice>() {
        let (start, end) = (slice.start.to_usize().ok()?, slice.end.to_usize().ok()?);
        return Some(Op::Slice { axis: slice.axis, start, end });
    }
    if let Some(pad) = op.downcast_ref::<Pad>() {
        let fill = match &pad.mode {
            PadMode::Constant(value) => PadFill::Constant(value.cast_to_scalar::<f64>().ok()?),
            PadMode::Reflect => PadFill::Reflect,
            PadMode::Edge => PadFill::Edge,
        };
        let (before, after) = pad.pads.iter().copied().unzip();
        return Some(Op::Pad { before, after, fill });
    }
    if op.is::<MultiBroadcastTo>() {
        return Some(Op::Broadcast);
    }
    // tract keeps its operator for dropout to itself; it does nothing outside training.
    if op.is::<Identity>() || op.name() == "Dropout" {
        return Some(Op::Identity);
    }
    let tile = op.downcast_ref::<Tile>()?;
    tile.multipliers.iter().map(|count| count.to_usize().ok()).collect::<Option<_>>().map(Op::Tile)
}

fn indexed(op: &dyn TypedOp, inputs: &[&TypedFact]) -> Option<Op> {
    if let Some(slice) = op.downcast_ref::<StridedSlice>() {
        return strided(slice, inputs);
    }
    if let Some(gather) = op.downcast_ref::<Gather>() {
        return gather.output_type.is_none().then_some(Op::Gather { axis: gather.axis });
    }
    if let Some(gather) = op.downcast_ref::<GatherElements>() {
        return Some(Op::GatherElements { axis: gather.axis });
    }
    if let Some(gather) = op.downcast_ref::<GatherNd>() {
        return Some(Op::GatherNd { batch_axes: gather.batch_dims });
    }
    if let Some(scatter) = op.downcast_ref::<ScatterElements>() {
        return Some(Op::ScatterElements { axis: scatter.axis, reduction: scatter_kind(scatter.reduction) });
    }
    if let Some(scatter) = op.downcast_ref::<ScatterNd>() {
        return Some(Op::ScatterNd { reduction: scatter_kind(scatter.reduction) });
    }
    if let Some(resize) = op.downcast_ref::<Resize>() {
        return read_resize(resize);
    }
    if let Some(sum) = op.downcast_ref::<CumSum>() {
        return Some(Op::CumSum { axis: sum.axis, exclusive: sum.exclusive, reverse: sum.reverse });
    }
    if let Some(top) = op.downcast_ref::<Topk>() {
        return Some(Op::TopK { axis: top.axis, largest: top.largest });
    }
    if let Some(hot) = op.downcast_ref::<OneHot>() {
        return Some(Op::OneHot { axis: hot.axis, length: hot.dim });
    }
    let triangle = op.downcast_ref::<Trilu>()?;
    Some(Op::Triangle { upper: triangle.upper })
}

fn scatter_kind(reduction: ScatterReduction) -> ScatterKind {
    match reduction {
        ScatterReduction::None => ScatterKind::Replace,
        ScatterReduction::Add => ScatterKind::Add,
        ScatterReduction::Mul => ScatterKind::Multiply,
        ScatterReduction::Min => ScatterKind::Min,
        ScatterReduction::Max => ScatterKind::Max,
    }
}

/// A resize whose parameters [`Op::Resize`] can hold; the rarer ones stay foreign.
fn read_resize(resize: &Resize) -> Option<Op> {
    let interpolation = match resize.interpolator {
        nn::Interpolator::Nearest => Interpolation::Nearest,
        nn::Interpolator::Linear => Interpolation::Linear,
        nn::Interpolator::Cubic => Interpolation::Cubic,
    };
    let CoordTransform::Plain(transform) = &resize.coord_transformer else { return None };
    let coordinates = match transform {
        nn::CoordTransformer::HalfPixel => Coordinates::HalfPixel,
        nn::CoordTransformer::AlignCorners => Coordinates::AlignCorners,
        nn::CoordTransformer::Asymmetric => Coordinates::Asymmetric,
        nn::CoordTransformer::PytorchHalfPixel => Coordinates::PytorchHalfPixel,
        nn::CoordTransformer::HalfPixelSymmetric => Coordinates::HalfPixelSymmetric,
        nn::CoordTransformer::TfHalfPixelForNn => Coordinates::HalfPixelForNearest,
    };
    let rounding = match resize.nearest {
        Nearest::Floor => Rounding::Floor,
        Nearest::Ceil => Rounding::Ceil,
        Nearest::RoundPreferFloor => Rounding::HalfDown,
        Nearest::RoundPreferCeil => Rounding::HalfUp,
    };
    let common_cubic = (resize.cubic_coeff_a() + 0.75).abs() < f32::EPSILON;
    let plain = !resize.antialias && !resize.exclude_outside && common_cubic;
    plain.then_some(Op::Resize { interpolation, coordinates, rounding })
}

/// A strided slice whose bounds are all constants; others stay foreign.
fn strided(slice: &StridedSlice, inputs: &[&TypedFact]) -> Option<Op> {
    let constant = |at: usize| inputs.get(at).and_then(|fact| fact.konst.as_deref());
    let (begin, end) = (constant(1)?, constant(2)?);
    let shape = inputs.first()?.shape.dims();
    let integers = |tensor: &Tensor| -> Option<Vec<i32>> {
        Some(tensor.cast_to::<i32>().ok()?.try_as_plain_ram().ok()?.as_slice::<i32>().ok()?.to_vec())
    };
    let axes = match slice.optional_axes_input {
        None => (0..begin.len()).collect::<Vec<_>>(),
        Some(at) => integers(constant(at)?)?
            .into_iter()
            .map(|axis| wrapped(axis, shape.len()))
            .collect::<Option<_>>()?,
    };
    let steps = match slice.optional_steps_input {
        None => vec![1; axes.len()],
        Some(at) => integers(constant(at)?)?,
    };
    let mut strides = Vec::with_capacity(axes.len());
    for (at, axis) in axes.into_iter().enumerate() {
        let dim = slice.prepare_one_dim(at, shape.get(axis)?, begin, end, &steps).ok()?;
        if dim.shrink {
            return None;
        }
        strides.push(Stride {
            axis,
            start: dim.begin.to_usize().ok()?,
            step: isize::try_from(dim.stride).ok()?,
            length: dim.soft_len().ok()?.to_usize().ok()?,
        });
    }
    Some(Op::StridedSlice(strides))
}

fn wrapped(axis: i32, rank: usize) -> Option<usize> {
    let rank = i32::try_from(rank).ok()?;
    usize::try_from(if axis < 0 { axis + rank } else { axis }).ok()
}
