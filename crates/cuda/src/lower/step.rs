//! What a lowered model consists of: steps over arena buffers and packed weights, and the kernels they launch.

use super::{Kind, Place, Precision, View};
use graph::ValueId;
use std::collections::BTreeMap;

/// A model lowered for a device: nothing here needs one.
#[derive(Clone, Debug)]
pub(crate) struct Lowered {
    /// Steps of each segment, in order.
    pub(crate) segments: Vec<Vec<Step>>,
    /// Bytes of each arena buffer.
    pub(crate) buffers: Vec<usize>,
    /// Packed weights, in the order of first use.
    pub(crate) weights: Vec<Weight>,
    /// Segment that first reads each weight, ascending.
    pub(crate) weight_segments: Vec<usize>,
    /// Kernels by number.
    pub(crate) kernels: Vec<Kernel>,
    /// Where the caller's inputs go: dense, in the file's types.
    pub(crate) inputs: Vec<View>,
    /// Where outputs are when the last segment is over: dense, in the file's types.
    pub(crate) outputs: Vec<View>,
}

/// A kernel's source without the prelude; `NAME` stands for its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kernel {
    pub(crate) name: String,
    pub(crate) source: String,
}

/// A weight as the device wants it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Weight {
    /// The constants it is made of, joined along the first axis after packing.
    pub(crate) parts: Vec<ValueId>,
    pub(crate) packing: Packing,
    pub(crate) kind: Kind,
    pub(crate) elements: usize,
}

/// How a constant is rearranged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Packing {
    /// As it is.
    Plain,
    /// Repeated to `count` elements: a bias of one element.
    Repeated { count: usize },
    /// Axes permuted to this order.
    Permuted { order: Vec<usize> },
    /// The first of `rows` equal rows.
    FirstRow { rows: usize },
    /// A convolution's `[out, in, h, w]` (in the file's layout) as `[out, h, w, in]`, `in` padded with zeros.
    Filter { source: graph::WeightLayout, out: usize, input: usize, window: [usize; 2], padded: usize },
    /// A depthwise convolution's filter as `[h, w, channels]`.
    Depthwise { source: graph::WeightLayout, channels: usize, window: [usize; 2] },
}

/// One launch, or a choice among several ways to compute the same.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    Kernel(Launch),
    Gemm(Gemm),
    Conv(Box<Convolution>),
}

/// A kernel launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Launch {
    pub(crate) kernel: usize,
    pub(crate) grid: [u32; 3],
    pub(crate) block: u32,
    pub(crate) arguments: Vec<Operand>,
}

/// A pointer a step takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operand {
    /// An address in a buffer or weight, in bytes from its beginning.
    At { place: Place, bytes: usize },
    /// The step's scratch memory, in bytes from its beginning.
    Scratch { bytes: usize },
}

/// An activation that products can apply.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Activation {
    #[default]
    None,
    Relu,
    /// A rectifier with an upper bound.
    Clipped(f32),
    /// Gaussian error linear unit by the hyperbolic tangent.
    GeluTanh,
}

/// `out[b, m, n] = Σ_k a[b, m, k] · w[b, n, k]`, then the epilogue. Strides are in elements.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Gemm {
    pub(crate) shape: GemmShape,
    pub(crate) a: Operand,
    pub(crate) b: Operand,
    pub(crate) out: Operand,
    pub(crate) bias: Option<Operand>,
    pub(crate) residual: Option<Operand>,
}

/// Everything a matrix product's choice of algorithm depends on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct GemmShape {
    pub(crate) precision: Precision,
    pub(crate) kind: Kind,
    pub(crate) batch: usize,
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
    /// Strides of `a` over batch, m, k; of `b` over batch, n, k: one of the last two is 1.
    pub(crate) a: [usize; 3],
    pub(crate) b: [usize; 3],
    /// Strides of the output over batch and m.
    pub(crate) out: [usize; 2],
    /// Strides of the residual over batch and m, when there is one.
    pub(crate) residual: Option<[usize; 2]>,
    pub(crate) bias: bool,
    pub(crate) relu: bool,
    pub(crate) gelu: bool,
}

/// A convolution in channels-last layout, then the epilogue.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Convolution {
    pub(crate) shape: ConvShape,
    pub(crate) x: Operand,
    pub(crate) w: Operand,
    pub(crate) bias: Option<Operand>,
    pub(crate) residual: Option<Operand>,
    pub(crate) y: Operand,
    /// The same by convolution alone into dense scratch memory, then this kernel for the epilogue.
    pub(crate) epilogue: Launch,
    /// Bytes of that scratch memory.
    pub(crate) dense_bytes: usize,
    /// The same as a matrix product, where the window is one element.
    pub(crate) gemm: Option<Gemm>,
}

/// Everything a convolution's choice of algorithm depends on. Dimensions are `[n, c, h, w]`, strides in elements.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ConvShape {
    pub(crate) precision: Precision,
    pub(crate) kind: Kind,
    pub(crate) x: [usize; 4],
    pub(crate) x_strides: [usize; 4],
    pub(crate) w: [usize; 4],
    pub(crate) y: [usize; 4],
    pub(crate) y_strides: [usize; 4],
    pub(crate) residual_strides: Option<[usize; 4]>,
    pub(crate) strides: [usize; 2],
    pub(crate) dilations: [usize; 2],
    pub(crate) before: [usize; 2],
    pub(crate) after: [usize; 2],
    pub(crate) groups: usize,
    pub(crate) bias: bool,
    pub(crate) activation: Activation,
}

impl View {
    /// Its address.
    pub(crate) const fn operand(&self) -> Operand {
        Operand::At { place: self.place, bytes: self.offset * self.kind.size() }
    }
}

impl Step {
    /// Every address it takes.
    pub(crate) fn operands(&self) -> Vec<Operand> {
        let gemm = |gemm: &Gemm| {
            let mut all = vec![gemm.a, gemm.b, gemm.out];
            all.extend(gemm.bias);
            all.extend(gemm.residual);
            all
        };
        match self {
            Self::Kernel(launch) => launch.arguments.clone(),
            Self::Gemm(step) => gemm(step),
            Self::Conv(conv) => {
                let mut all = vec![conv.x, conv.w, conv.y];
                all.extend(conv.bias);
                all.extend(conv.residual);
                all.extend(conv.epilogue.arguments.iter().copied());
                all.extend(conv.gemm.iter().flat_map(gemm));
                all
            }
        }
    }
}

/// First and last step at which each buffer is touched, counting steps through all segments.
pub(crate) fn lifetimes(segments: &[Vec<Step>]) -> BTreeMap<usize, (usize, usize)> {
    let mut lives: BTreeMap<usize, (usize, usize)> = BTreeMap::new();
    for (at, step) in segments.iter().flatten().enumerate() {
        for operand in step.operands() {
            if let Operand::At { place: Place::Buffer(buffer), .. } = operand {
                let life = lives.entry(buffer).or_insert((at, at));
                life.1 = at;
            }
        }
    }
    lives
}
