//! From the layer IR to steps on the device: pure, so that it is tested, and its kernels compiled, without a GPU.
//!
//! Values become strided views of arena buffers, four-dimensional ones channels last; moving, slicing and broadcasting
//! are views and cost nothing. Joins along channels are written in place by the layers before them.

mod attention;
mod each;
mod emit;
mod expression;
mod group;
mod kind;
mod linear;
mod operators;
mod pointwise;
mod rows;
mod step;
mod support;
mod view;
mod window;

pub(crate) use emit::{fingerprint, lower};
pub(crate) use kind::Kind;
pub use kind::Precision;
pub(crate) use step::{
    Activation, ConvShape, Convolution, Gemm, GemmShape, Kernel, Launch, Lowered, Operand, Packing, Step,
    Weight, lifetimes,
};
pub(crate) use support::unsupported;
pub(crate) use view::{Place, View};
