//! Models as graphs: ONNX import, the layer IR, its rewrites, costs and segments, and the zoo.
//!
//! An ONNX file becomes a [`Model`] (batch symbolic where the file allows), a `Model` at one set of sizes becomes a
//! [`Graph`] (our IR: one node a layer, every shape known), and a `Graph` is cut into [`Segment`]s. Nothing here runs a
//! model, and nothing here knows a device.

mod affine;
mod convert;
mod cost;
mod fusion;
mod import;
mod ir;
mod model;
mod op;
mod rewrite;
mod segment;
mod tensor;
mod translate;
mod wire;
pub mod zoo;

pub use convert::SizeError;
pub use cost::Cost;
pub use fusion::{Fusion, FusionKind, fusions};
pub use import::{Batch, ImportError, ImportLimits, Problem, Stage};
pub use ir::{Graph, Layer, Native, Value, ValueId};
pub use model::{Dim, Model, Port, Sizes};
pub use op::{
    Binary, Conv, Coordinates, Deconv, EinSum, Function, Interpolation, Layout, MatMul, Op, PadFill,
    ReduceKind, Rounding, ScatterKind, Stride, Unary, WeightLayout, Window,
};
pub use segment::{Segment, SegmentError, SegmentOptions, Segmentation, segment};
pub use tensor::{DType, HostTensor, TensorError};
pub use translate::datum;
pub use wire::{wire, wire_graph};

#[cfg(test)]
mod tests;
