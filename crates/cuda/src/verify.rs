//! Whether a way of computing a convolution computes it: engines of a library are believed only after some elements of their
//! result were compared with what the operands say.

use crate::dnn::ConvAddresses;
use crate::driver::{DriverError, Event, Function, Gpu, Library, Pinned, Stream};
use crate::lower::{Activation, ConvShape, Kind, Precision};
use crate::nvrtc::{Cache, source};
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

/// Elements that are compared.
const SAMPLES: usize = 2_048;

/// Compares results with what they should be.
#[derive(Debug)]
pub(crate) struct Verifier {
    gpu: Gpu,
    cache: Cache,
    architecture: String,
    /// By element type: what fills operands and what compares.
    kernels: Mutex<HashMap<Kind, (Function, Function)>>,
    /// Two numbers a sample.
    out: Mutex<Pinned>,
}

/// As `Shape` in verify.cu.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Shape {
    xs: [i64; 4],
    ys: [i64; 4],
    rs: [i64; 4],
    x: [i32; 4],
    w: [i32; 4],
    y: [i32; 4],
    stride: [i32; 2],
    dilation: [i32; 2],
    before: [i32; 2],
    groups: i32,
    activation: i32,
    bias: i32,
    residual: i32,
    most: f32,
    unused: i32,
}

fn ints<const N: usize>(sizes: [usize; N]) -> [i32; N] {
    sizes.map(|size| i32::try_from(size).unwrap_or(i32::MAX))
}

fn longs(sizes: [usize; 4]) -> [i64; 4] {
    sizes.map(|size| i64::try_from(size).unwrap_or(i64::MAX))
}

impl Shape {
    fn of(shape: &ConvShape) -> Self {
        let (activation, most) = match shape.activation {
            Activation::None => (0, 0.0),
            Activation::Relu => (1, 0.0),
            Activation::Clipped(most) => (2, most),
            Activation::GeluTanh => (3, 0.0),
        };
        Self {
            xs: longs(shape.x_strides),
            ys: longs(shape.y_strides),
            rs: longs(shape.residual_strides.unwrap_or_default()),
            x: ints(shape.x),
            w: ints(shape.w),
            y: ints(shape.y),
            stride: ints(shape.strides),
            dilation: ints(shape.dilations),
            before: ints(shape.before),
            groups: i32::try_from(shape.groups.max(1)).unwrap_or(1),
            activation,
            bias: i32::from(shape.bias),
            residual: i32::from(shape.residual_strides.is_some()),
            most,
            unused: 0,
        }
    }
}

/// Relative norm that a result may be off: roundings of operands and of the result, not more.
pub(crate) const fn tolerance(precision: Precision) -> f64 {
    match precision {
        Precision::Fp32 => 1e-4,
        Precision::Tf32 => 2e-3,
        Precision::Fp16 => 4e-3,
        Precision::Bf16 => 2e-2,
    }
}

/// Elements from the first to the last of a tensor of this shape.
fn extent(sizes: [usize; 4], strides: [usize; 4]) -> usize {
    1 + sizes.iter().zip(strides).map(|(size, stride)| size.saturating_sub(1) * stride).sum::<usize>()
}

impl Verifier {
    pub(crate) fn new(gpu: &Gpu, cache: Cache, architecture: &str) -> Result<Self, DriverError> {
        let out = Mutex::new(Pinned::new(gpu, SAMPLES * 8)?);
        let architecture = architecture.to_owned();
        Ok(Self { gpu: gpu.clone(), cache, architecture, kernels: Mutex::default(), out })
    }

    /// The kernels for a type; `None` when they cannot be had.
    fn kernels(&self, kind: Kind) -> Option<(Function, Function)> {
        let mut kernels = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = kernels.get(&kind) {
            return Some(found.clone());
        }
        let binary = self.cache.get(&text(kind), &self.architecture).ok()?;
        let library = Library::load(&self.gpu, &binary).ok()?;
        let found = (library.function("fill").ok()?, library.function("verify").ok()?);
        kernels.insert(kind, found.clone());
        Some(found)
    }

    /// Fills the operands of a convolution, and the scratch memory with its bytes, with numbers between -1 and 1: no way may
    /// count on what lies there. All of it must be nobody else's.
    pub(crate) fn fill(
        &self,
        shape: &ConvShape,
        at: &ConvAddresses,
        (scratch, bytes): (u64, usize),
        stream: &Stream,
    ) -> Option<()> {
        let weights: usize = shape.w.iter().product();
        let residual = at.residual.zip(shape.residual_strides);
        let all = [
            Some((at.x, extent(shape.x, shape.x_strides))),
            // The bias, too, lies where the weights begin while ways are measured.
            Some((at.w, weights.max(shape.y[1]))),
            residual.map(|(at, strides)| (at, extent(shape.y, strides))),
            Some((scratch, bytes / shape.kind.size())),
        ];
        all.into_iter().flatten().try_for_each(|some| self.fill_one(shape.kind, some, stream))
    }

    /// Fills so many numbers of a type.
    pub(crate) fn fill_one(&self, kind: Kind, (to, count): (u64, usize), stream: &Stream) -> Option<()> {
        let (fill, _) = self.kernels(kind)?;
        stream.launch(&fill, [1_024, 1, 1], 256, &[to, count as u64]).ok()
    }

    /// How far the result of `launch` is off, as a relative norm over some of its elements; infinite when it is no number.
    /// `None` when it cannot be told.
    pub(crate) fn error(
        &self,
        shape: &ConvShape,
        at: &ConvAddresses,
        stream: &Stream,
        launch: impl FnOnce(&Stream) -> bool,
    ) -> Option<f64> {
        let (_, verify) = self.kernels(shape.kind)?;
        let out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        if !launch(stream) {
            return Some(f64::INFINITY);
        }
        let mut form = Shape::of(shape);
        // What is not there is not read.
        let mut pointers =
            [at.x, at.w, at.bias.unwrap_or(at.w), at.residual.unwrap_or(at.x), at.y, out.address() as u64];
        let mut arguments: Vec<*mut c_void> = vec![(&raw mut form).cast()];
        arguments.extend(pointers.iter_mut().map(|pointer| std::ptr::from_mut(pointer).cast::<c_void>()));
        stream.launch_with(&verify, [u32::try_from(SAMPLES).ok()?, 1, 1], 128, &mut arguments).ok()?;
        let end = Event::ordering(&self.gpu).ok()?;
        end.record(stream).and_then(|()| end.synchronize()).ok()?;
        let numbers =
            out.bytes().as_chunks::<4>().0.iter().map(|bytes| f64::from(f32::from_le_bytes(*bytes)));
        Some(relative(numbers))
    }
}

/// The relative norm of pairs of squares: off, and should be.
fn relative(numbers: impl Iterator<Item = f64>) -> f64 {
    let (mut off, mut whole) = (0.0, 0.0);
    for (place, number) in numbers.enumerate() {
        if place % 2 == 0 { off += number } else { whole += number }
    }
    let relative = (off / f64::max(whole, 1e-30)).sqrt();
    if relative.is_finite() { relative } else { f64::INFINITY }
}

/// The source for elements of a type.
pub(crate) fn text(kind: Kind) -> String {
    let kernels = include_str!("kernels/verify.cu");
    format!("{}typedef {} T;\n{kernels}", source(&[]), kind.stored())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_those_of_the_kernel() {
        // Three times four numbers of eight bytes, then twenty-four of four.
        assert_eq!(size_of::<Shape>(), 3 * 4 * 8 + 24 * 4);
        assert_eq!(std::mem::offset_of!(Shape, x), 96);
        assert_eq!(std::mem::offset_of!(Shape, groups), 96 + 18 * 4);
        assert_eq!(std::mem::offset_of!(Shape, most), 96 + 22 * 4);
    }

    #[test]
    fn extents_reach_to_the_last_element() {
        // Channels last, as a slice of four of ten channels.
        assert_eq!(extent([2, 4, 3, 5], [150, 1, 50, 10]), 150 + 3 + 2 * 50 + 4 * 10 + 1);
    }

    #[test]
    fn what_is_no_number_is_infinitely_off() {
        assert!((relative([1.0, 100.0, 3.0, 300.0].into_iter()) - 0.1).abs() < 1e-12);
        assert!(relative([f64::NAN, 1.0].into_iter()).is_infinite());
        assert!(relative([f64::INFINITY, 1.0].into_iter()).is_infinite());
    }
}
