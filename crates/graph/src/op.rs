//! What a layer computes, in terms a backend can lower from: every parameter is here, none is hidden in tract's types.
//!
//! Shapes are not repeated: a layer's values carry them. Parameters hold for the concrete sizes of one [`crate::Graph`].

use crate::DType;

/// The computation of one layer. Operands are listed in the order of [`crate::Layer::inputs`].
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// Convolution of `x, weight, bias`; the weight is `[out, in / groups, kernel…]`, the bias `[out]` or one element.
    Conv(Conv),
    /// Transposed convolution of `x, weight, bias`; the weight is laid out as for [`Op::Conv`].
    Deconv(Deconv),
    /// A sum of products over named axes: every matrix multiplication is one. See [`EinSum::matmul`].
    EinSum(EinSum),
    /// Maximum over a window; a second output holds the winners' indices when `indices` is set.
    MaxPool {
        /// The window.
        window: Window,
        /// Whether there is a second output.
        indices: bool,
    },
    /// Sum or mean over a window.
    SumPool {
        /// The window.
        window: Window,
        /// Whether padding counts as elements of the mean.
        count_include_pad: bool,
        /// Whether the sum is divided by the number of elements.
        normalize: bool,
    },
    /// Reduction over axes, which stay with length one.
    Reduce {
        /// How elements combine.
        kind: ReduceKind,
        /// The reduced axes, ascending.
        axes: Vec<usize>,
    },
    /// Softmax, or its logarithm, over axes.
    Softmax {
        /// The axes that sum to one.
        axes: Vec<usize>,
        /// Whether the result is the logarithm.
        log: bool,
    },
    /// Local response normalisation across channels (axis 1).
    Lrn {
        /// Scale of the squares' mean.
        alpha: f32,
        /// Exponent.
        beta: f32,
        /// Constant term.
        bias: f32,
        /// Channels in the window.
        size: usize,
    },
    /// `x * scale + shift` per channel, then `max(0, …)` if `relu`; operands `x, scale, shift`, both of one dimension.
    Affine {
        /// The channel axis of `x`.
        axis: usize,
        /// Whether a rectifier follows.
        relu: bool,
    },
    /// An element-wise function of one operand.
    Unary(Unary),
    /// An element-wise function of two operands of equal rank; a dimension of one broadcasts.
    Binary(Binary),
    /// `condition, a, b`: `a` where the condition holds, else `b`; broadcasts.
    Select,
    /// Conversion of the element type.
    Cast(DType),
    /// The same elements, row-major, in the output's shape.
    Reshape,
    /// Inserts an axis of length one.
    AddAxis(usize),
    /// Removes an axis of length one.
    RemoveAxis(usize),
    /// Moves an axis, the others keep their order.
    MoveAxis {
        /// Where it is.
        from: usize,
        /// Where it goes.
        to: usize,
    },
    /// Joins its operands along an axis.
    Concat {
        /// The axis.
        axis: usize,
    },
    /// The range `start..end` of one axis.
    Slice {
        /// The axis.
        axis: usize,
        /// First index taken.
        start: usize,
        /// First index not taken.
        end: usize,
    },
    /// Strided ranges of some axes; bounds are constant operands 1 and up, resolved here.
    StridedSlice(Vec<Stride>),
    /// Extends axes.
    Pad {
        /// Elements before, per axis.
        before: Vec<usize>,
        /// Elements after, per axis.
        after: Vec<usize>,
        /// What the new elements are.
        fill: PadFill,
    },
    /// Repeats axes of length one up to the output's shape.
    Broadcast,
    /// Repeats the whole operand, per axis.
    Tile(Vec<usize>),
    /// `data, indices`: rows of `data` along `axis`.
    Gather {
        /// The axis.
        axis: usize,
    },
    /// `data, indices` of equal rank: one element per index along `axis`.
    GatherElements {
        /// The axis.
        axis: usize,
    },
    /// `data, indices`: the last axis of `indices` addresses into `data`.
    GatherNd {
        /// Leading axes shared by both.
        batch_axes: usize,
    },
    /// `data, indices, updates`: as [`Op::GatherElements`], written.
    ScatterElements {
        /// The axis.
        axis: usize,
        /// How an update meets what is there.
        reduction: ScatterKind,
    },
    /// `data, indices, updates`: as [`Op::GatherNd`], written.
    ScatterNd {
        /// How an update meets what is there.
        reduction: ScatterKind,
    },
    /// Resamples to the output's shape; scales or sizes are constant operands 1 and up.
    Resize {
        /// How new elements come from old ones.
        interpolation: Interpolation,
        /// How an output coordinate maps to the input.
        coordinates: Coordinates,
        /// How the nearest neighbour is chosen; of no account otherwise.
        rounding: Rounding,
    },
    /// Running sum along an axis.
    CumSum {
        /// The axis.
        axis: usize,
        /// Whether the element itself is left out.
        exclusive: bool,
        /// Whether it runs from the end.
        reverse: bool,
    },
    /// The `k` extreme elements along an axis and their indices; `k` is constant operand 1 and the output's length.
    TopK {
        /// The axis.
        axis: usize,
        /// Largest rather than smallest.
        largest: bool,
    },
    /// One-hot rows along a new axis.
    OneHot {
        /// The new axis.
        axis: usize,
        /// Its length.
        length: usize,
    },
    /// The upper or lower triangle of the last two axes; operand 1 is the diagonal.
    Triangle {
        /// Upper rather than lower.
        upper: bool,
    },
    /// The operand itself.
    Identity,
    /// Anything else tract can run: such layers run on the CPU.
    Foreign {
        /// tract's name for it.
        name: String,
    },
}

impl Op {
    /// A short name for tables, for example `conv` or `foreign Scan`.
    #[must_use]
    pub fn kind(&self) -> String {
        match self {
            Self::Unary(unary) => unary.name().to_owned(),
            Self::Binary(binary) => binary.name().to_owned(),
            Self::Affine { relu: true, .. } => "affine+relu".to_owned(),
            Self::Reduce { kind, .. } => format!("reduce {}", kind.name()),
            Self::SumPool { normalize: true, .. } => "average pool".to_owned(),
            Self::Softmax { log: true, .. } => "log-softmax".to_owned(),
            Self::Foreign { name } => format!("foreign {name}"),
            other => other.plain_kind().to_owned(),
        }
    }

    const fn plain_kind(&self) -> &'static str {
        match self {
            Self::Conv(_) => "conv",
            Self::Deconv(_) => "deconv",
            Self::EinSum(_) => "einsum",
            Self::MaxPool { .. } => "max pool",
            Self::SumPool { .. } => "sum pool",
            Self::Softmax { .. } => "softmax",
            Self::Lrn { .. } => "lrn",
            Self::Affine { .. } => "affine",
            Self::Select => "select",
            Self::Cast(_) => "cast",
            Self::Reshape => "reshape",
            Self::AddAxis(_) => "add axis",
            Self::RemoveAxis(_) => "remove axis",
            Self::MoveAxis { .. } => "move axis",
            Self::Concat { .. } => "concat",
            Self::Slice { .. } => "slice",
            Self::StridedSlice(_) => "strided slice",
            Self::Pad { .. } => "pad",
            Self::Broadcast => "broadcast",
            Self::Tile(_) => "tile",
            Self::Gather { .. } => "gather",
            Self::GatherElements { .. } => "gather elements",
            Self::GatherNd { .. } => "gather nd",
            Self::ScatterElements { .. } => "scatter elements",
            Self::ScatterNd { .. } => "scatter nd",
            Self::Resize { .. } => "resize",
            Self::CumSum { .. } => "cumulative sum",
            Self::TopK { .. } => "top k",
            Self::OneHot { .. } => "one-hot",
            Self::Triangle { .. } => "triangle",
            Self::Identity => "identity",
            Self::Unary(_) | Self::Binary(_) | Self::Reduce { .. } | Self::Foreign { .. } => "other",
        }
    }

    /// Whether it only renames elements: no arithmetic, and no copy where the backend can alias.
    #[must_use]
    pub const fn is_view(&self) -> bool {
        matches!(self, Self::Reshape | Self::AddAxis(_) | Self::RemoveAxis(_) | Self::Identity)
    }
}

/// Where channels are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// `[batch, channels, spatial…]`.
    ChannelsFirst,
    /// `[batch, spatial…, channels]`.
    ChannelsLast,
    /// `[channels, spatial…]`.
    UnbatchedChannelsFirst,
    /// `[spatial…, channels]`.
    UnbatchedChannelsLast,
}

impl Layout {
    /// The channel axis of a value of this rank.
    #[must_use]
    pub const fn channel_axis(self, rank: usize) -> usize {
        match self {
            Self::ChannelsFirst => 1,
            Self::UnbatchedChannelsFirst => 0,
            Self::ChannelsLast | Self::UnbatchedChannelsLast => rank.saturating_sub(1),
        }
    }
}

/// A sliding window; one entry per spatial axis everywhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// Where channels are.
    pub layout: Layout,
    /// Extent.
    pub kernel: Vec<usize>,
    /// Step.
    pub strides: Vec<usize>,
    /// Distance between taps.
    pub dilations: Vec<usize>,
    /// Elements of padding before.
    pub pads_before: Vec<usize>,
    /// Elements of padding after. The output's shape decides where ceiling mode reads past them.
    pub pads_after: Vec<usize>,
}

/// How a convolution's weight is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightLayout {
    /// `[out, in, spatial…]`.
    OutInSpatial,
    /// `[spatial…, in, out]`.
    SpatialInOut,
    /// `[out, spatial…, in]`.
    OutSpatialIn,
}

/// Parameters of a convolution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conv {
    /// The window.
    pub window: Window,
    /// How the weight is laid out.
    pub weight: WeightLayout,
    /// Groups; equal to the channels for a depthwise convolution.
    pub groups: usize,
    /// Channels of `x`.
    pub in_channels: usize,
    /// Channels of the output.
    pub out_channels: usize,
    /// The output's type when operands are quantised: scales and zero points follow the bias.
    pub quantized: Option<DType>,
}

/// Parameters of a transposed convolution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deconv {
    /// The window, seen from the output.
    pub window: Window,
    /// How the weight is laid out.
    pub weight: WeightLayout,
    /// Groups.
    pub groups: usize,
    /// Channels of `x`.
    pub in_channels: usize,
    /// Channels of the output.
    pub out_channels: usize,
    /// Extra elements at the end of each spatial axis.
    pub adjustments: Vec<usize>,
}

/// A sum of products over named axes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EinSum {
    /// One letter per axis, for each operand.
    pub inputs: Vec<String>,
    /// One letter per axis of the output.
    pub output: String,
    /// The type in which products are summed.
    pub accumulator: DType,
    /// The output's type when operands are quantised.
    pub quantized: Option<DType>,
}

/// A sum of products seen as a batched matrix multiplication: `[batch, m, k] × [batch, k, n]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatMul {
    /// Independent products.
    pub batch: usize,
    /// Rows of the first operand.
    pub m: usize,
    /// Columns of the second operand.
    pub n: usize,
    /// Summed length.
    pub k: usize,
}

impl EinSum {
    /// The sizes of a product of two operands; `None` when an axis is summed in one operand only, or repeated in one.
    #[must_use]
    pub fn matmul(&self, a: &[usize], b: &[usize]) -> Option<MatMul> {
        let [a_axes, b_axes] = self.inputs.as_slice() else { return None };
        let mut sizes = MatMul { batch: 1, m: 1, n: 1, k: 1 };
        for (axes, shape) in [(a_axes, a), (b_axes, b)] {
            let unique: std::collections::BTreeSet<char> = axes.chars().collect();
            if unique.len() != shape.len() {
                return None;
            }
        }
        for (axis, length) in a_axes.chars().zip(a) {
            let target = match (b_axes.contains(axis), self.output.contains(axis)) {
                (true, true) => &mut sizes.batch,
                (true, false) => &mut sizes.k,
                (false, true) => &mut sizes.m,
                (false, false) => return None,
            };
            *target = target.checked_mul(*length)?;
        }
        for (axis, length) in b_axes.chars().zip(b).filter(|(axis, _)| !a_axes.contains(*axis)) {
            if !self.output.contains(axis) {
                return None;
            }
            sizes.n = sizes.n.checked_mul(*length)?;
        }
        Some(sizes)
    }
}

/// How a reduction combines elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReduceKind {
    /// Sum.
    Sum,
    /// Product.
    Product,
    /// Largest.
    Max,
    /// Smallest.
    Min,
    /// Mean of the squares.
    MeanOfSquares,
    /// Index of the largest.
    ArgMax {
        /// Of equal ones, the last.
        last: bool,
    },
    /// Index of the smallest.
    ArgMin {
        /// Of equal ones, the last.
        last: bool,
    },
    /// Whether all hold.
    All,
    /// Whether any holds.
    Any,
}

impl ReduceKind {
    const fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Product => "product",
            Self::Max => "max",
            Self::Min => "min",
            Self::MeanOfSquares => "mean of squares",
            Self::ArgMax { .. } => "arg max",
            Self::ArgMin { .. } => "arg min",
            Self::All => "all",
            Self::Any => "any",
        }
    }
}

/// One axis of a strided slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stride {
    /// The axis.
    pub axis: usize,
    /// First index taken.
    pub start: usize,
    /// Step; negative runs backwards.
    pub step: isize,
    /// Indices taken.
    pub length: usize,
}

/// What padding holds.
#[derive(Clone, Debug, PartialEq)]
pub enum PadFill {
    /// One value.
    Constant(f64),
    /// The operand mirrored at its edge.
    Reflect,
    /// The operand's edge.
    Edge,
}

/// How an update meets what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScatterKind {
    /// Replaces it.
    Replace,
    /// Adds to it.
    Add,
    /// Multiplies it.
    Multiply,
    /// The smaller stays.
    Min,
    /// The larger stays.
    Max,
}

/// How resampling makes new elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interpolation {
    /// The nearest element.
    Nearest,
    /// Linear in each axis.
    Linear,
    /// Cubic in each axis.
    Cubic,
}

/// How an output coordinate maps to the input (ONNX `coordinate_transformation_mode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coordinates {
    /// Pixel centres at halves.
    HalfPixel,
    /// First and last elements coincide.
    AlignCorners,
    /// Scaled from zero.
    Asymmetric,
    /// Pixel centres at halves, zero for an output of length one.
    PytorchHalfPixel,
    /// Pixel centres at halves, about the middle.
    HalfPixelSymmetric,
    /// Half-pixel centres not shifted back.
    HalfPixelForNearest,
}

/// Which of two neighbours is the nearest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// Always the lower.
    Floor,
    /// Always the upper, unless the coordinate is whole.
    Ceil,
    /// The closer; the lower of equals.
    HalfDown,
    /// The closer; the upper of equals.
    HalfUp,
}

macro_rules! element_wise {
    ($(#[$about:meta])* $Kind:ident { $($(#[$doc:meta])* $Name:ident => $text:literal),* $(,)? }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $Kind { $($(#[$doc])* $Name),* }

        impl $Kind {
            /// Its name in tables.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$Name => $text),* }
            }
        }
    };
}

element_wise! {
    /// An element-wise function of two operands.
    Binary {
        /// Sum.
        Add => "add",
        /// Difference.
        Sub => "sub",
        /// Product.
        Mul => "mul",
        /// Quotient.
        Div => "div",
        /// Remainder.
        Rem => "rem",
        /// Smaller.
        Min => "min",
        /// Larger.
        Max => "max",
        /// Power.
        Pow => "pow",
        /// Both hold.
        And => "and",
        /// One holds.
        Or => "or",
        /// Exactly one holds.
        Xor => "xor",
        /// Bitwise and.
        BitAnd => "bit and",
        /// Bitwise or.
        BitOr => "bit or",
        /// Bitwise exclusive or.
        BitXor => "bit xor",
        /// Shift to the left.
        ShiftLeft => "shift left",
        /// Shift to the right.
        ShiftRight => "shift right",
        /// Equal.
        Equal => "equal",
        /// Not equal.
        NotEqual => "not equal",
        /// Less.
        Less => "less",
        /// Less or equal.
        LessEqual => "less or equal",
        /// Greater.
        Greater => "greater",
        /// Greater or equal.
        GreaterEqual => "greater or equal",
    }
}

/// An element-wise function of one operand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Unary {
    /// A function without parameters.
    Plain(Function),
    /// `x` where positive, else `alpha * x`.
    LeakyRelu {
        /// Slope below zero.
        alpha: f32,
    },
    /// `x` to a constant power.
    PowConst {
        /// The power.
        exponent: f32,
    },
}

impl Unary {
    /// Its name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain(function) => function.name(),
            Self::LeakyRelu { .. } => "leaky relu",
            Self::PowConst { .. } => "pow const",
        }
    }
}

element_wise! {
    /// A function of one number.
    Function {
        /// `max(0, x)`.
        Relu => "relu",
        /// Magnitude.
        Abs => "abs",
        /// Exponential.
        Exp => "exp",
        /// Natural logarithm.
        Ln => "ln",
        /// Square.
        Square => "square",
        /// Square root.
        Sqrt => "sqrt",
        /// Reciprocal of the square root.
        Rsqrt => "rsqrt",
        /// Reciprocal.
        Recip => "recip",
        /// Negation.
        Neg => "neg",
        /// Sign: -1, 0 or 1.
        Sign => "sign",
        /// Rounded up.
        Ceil => "ceil",
        /// Rounded down.
        Floor => "floor",
        /// Rounded, halves away from zero.
        Round => "round",
        /// Rounded, halves to even.
        RoundHalfToEven => "round half to even",
        /// Sine.
        Sin => "sin",
        /// Cosine.
        Cos => "cos",
        /// Tangent.
        Tan => "tan",
        /// Arc sine.
        Asin => "asin",
        /// Arc cosine.
        Acos => "acos",
        /// Arc tangent.
        Atan => "atan",
        /// Hyperbolic sine.
        Sinh => "sinh",
        /// Hyperbolic cosine.
        Cosh => "cosh",
        /// Hyperbolic tangent.
        Tanh => "tanh",
        /// Inverse hyperbolic sine.
        Asinh => "asinh",
        /// Inverse hyperbolic cosine.
        Acosh => "acosh",
        /// Inverse hyperbolic tangent.
        Atanh => "atanh",
        /// Error function.
        Erf => "erf",
        /// Logistic function.
        Sigmoid => "sigmoid",
        /// `x * sigmoid(x)`.
        Silu => "silu",
        /// `x * clamp(x / 6 + 1/2, 0, 1)`.
        HardSwish => "hard swish",
        /// Gaussian error linear unit, by the error function.
        Gelu => "gelu",
        /// Gaussian error linear unit, by the hyperbolic tangent.
        GeluTanh => "gelu tanh",
        /// Whether it is not a number.
        IsNan => "is nan",
        /// Logical negation.
        Not => "not",
        /// Bitwise negation.
        BitNot => "bit not",
    }
}
