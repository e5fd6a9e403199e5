//! Every convolution of a program compared with its operands where it really runs: at its place among the other steps, on the
//! program's own weights and addresses. A kernel that is right alone may be wrong behind another that has not ended.

use super::{Bases, CudaProgram, Ready};
use crate::driver::Stream;
use crate::lower::Kind;
use crate::tune::TuneError;
use engine::EngineError;
use graph::DType;

/// One convolution.
#[derive(Clone, Debug, PartialEq)]
pub struct Audited {
    /// The sizes of its operands, and what follows it.
    pub name: String,
    /// The segment it is in.
    pub segment: usize,
    /// The number of the library's way, as the file of choices has it.
    pub way: Option<usize>,
    /// How far its result is off when it is launched by itself, as a relative norm over some elements; infinite where it cannot
    /// be told.
    pub alone: f64,
    /// The same at the end of a graph of its segment up to it.
    pub in_place: f64,
}

impl CudaProgram {
    /// Runs on random numbers in a slot of its own. All weights must be there.
    pub(crate) fn audit(&self, stream: &Stream) -> Result<Vec<Audited>, EngineError> {
        let full = || self.failed(0, &"no free slot of the arena");
        let slot = self.shared.arena.take(None).ok_or_else(full)?;
        let graphs = self.graphs(slot.number, stream)?;
        let bases = self.bases(slot.number);
        let mut found = Vec::new();
        for (segment, steps) in self.steps.iter().enumerate() {
            for (place, step) in steps.iter().enumerate() {
                let Ready::Conv { conv, epilogue, .. } = step else { continue };
                let at = bases.conv(conv, epilogue, usize::MAX).at;
                let capture = |steps: &[Ready]| {
                    let all = || steps.iter().try_for_each(|step| self.launch_step(step, &bases, stream));
                    stream.capture(all).map_err(|error: TuneError| self.failed(segment, &error))
                };
                let begin = || {
                    self.fill_inputs(&bases, stream).is_some()
                        && graphs[..segment].iter().all(|graph| graph.launch(stream).is_ok())
                };
                let before = if place > 0 { Some(capture(&steps[..place])?) } else { None };
                let before = || before.as_ref().is_none_or(|graph| graph.launch(stream).is_ok());
                let own = capture(&steps[place..=place])?;
                let together = capture(&steps[..=place])?;
                let error = |launch: &dyn Fn() -> bool| {
                    let launch = |_: &Stream| begin() && launch();
                    self.shared
                        .tuner
                        .verifier
                        .error(&conv.shape, &at, stream, launch)
                        .unwrap_or(f64::INFINITY)
                };
                let shape = &conv.shape;
                let (x, w, stride) = (shape.x, shape.w, shape.strides[0]);
                let adds = if shape.residual_strides.is_some() { " + residual" } else { "" };
                found.push(Audited {
                    name: format!("{x:?} by {w:?} stride {stride}{adds}, {:?}", shape.activation),
                    segment,
                    way: self.shared.tuner.number(conv),
                    alone: error(&|| before() && own.launch(stream).is_ok()),
                    in_place: error(&|| together.launch(stream).is_ok()),
                });
            }
        }
        Ok(found)
    }

    /// `None` when they cannot be filled.
    fn fill_inputs(&self, bases: &Bases<'_>, stream: &Stream) -> Option<()> {
        let mut floats =
            self.inputs.iter().zip(&self.input_offsets).filter(|(spec, _)| spec.dtype == DType::F32);
        floats.try_for_each(|(spec, offset)| {
            let some = (bases.slot + *offset as u64, spec.shape.iter().product());
            self.shared.tuner.verifier.fill_one(Kind::F32, some, stream)
        })
    }
}
