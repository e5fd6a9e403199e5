//! A tract operator for [`crate::Op::Affine`]: one pass over the data where tract would take one slow pass for three
//! chained operators. Normalisation before an activation (DenseNet) is its main use.

use std::fmt;
use tract_onnx::prelude::{DatumType, IntoTensor, TValue, TVec, TractResult, TypedFact, tvec};
use tract_onnx::tract_core::internal::{
    EvalContext, EvalOp, Op, StaticName, TypedOp, as_op, bail, op_as_typed_op, op_out_of_plan,
};

/// `x * scale + shift` per channel, then the rectifier if asked for. Operands `x, scale, shift`, single precision.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct ChannelAffine {
    pub(crate) axis: usize,
    pub(crate) relu: bool,
}

impl fmt::Debug for ChannelAffine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ChannelAffine(axis {}, relu {})", self.axis, self.relu)
    }
}

impl Op for ChannelAffine {
    fn name(&self) -> StaticName {
        "ChannelAffine".into()
    }

    op_as_typed_op!();
}

impl EvalOp for ChannelAffine {
    op_out_of_plan!();

    fn eval(&self, _context: &EvalContext, mut inputs: TVec<TValue>) -> TractResult<TVec<TValue>> {
        let [_, scale, shift] = inputs.as_slice() else { bail!("an affine layer has three operands") };
        let (scale, shift) = (scale.clone(), shift.clone());
        let mut x = inputs.remove(0).into_tensor();
        let Some(channels) = x.shape().get(self.axis).copied() else {
            bail!("no axis {} to scale", self.axis)
        };
        let inner: usize = x.shape()[self.axis + 1..].iter().product();
        let (scale, shift) = (scale.try_as_plain_ram()?, shift.try_as_plain_ram()?);
        let (scale, shift) = (scale.as_slice::<f32>()?, shift.as_slice::<f32>()?);
        if scale.len() != channels || shift.len() != channels {
            bail!("{channels} channels need as many scales and shifts");
        }
        let mut plain = x.try_as_plain_ram_mut()?;
        if inner == 1 {
            for row in plain.as_slice_mut::<f32>()?.chunks_exact_mut(channels.max(1)) {
                for (x, (scale, shift)) in row.iter_mut().zip(scale.iter().zip(shift)) {
                    *x = rectified(*x * scale + shift, self.relu);
                }
            }
        } else {
            let planes = plain.as_slice_mut::<f32>()?.chunks_exact_mut(inner.max(1));
            for (plane, (scale, shift)) in planes.zip(scale.iter().zip(shift).cycle()) {
                if self.relu {
                    plane.iter_mut().for_each(|x| *x = (*x * scale + shift).max(0.0));
                } else {
                    plane.iter_mut().for_each(|x| *x = *x * scale + shift);
                }
            }
        }
        Ok(tvec!(x.into()))
    }
}

fn rectified(x: f32, relu: bool) -> f32 {
    if relu { x.max(0.0) } else { x }
}

impl TypedOp for ChannelAffine {
    as_op!();

    fn output_facts(&self, inputs: &[&TypedFact]) -> TractResult<TVec<TypedFact>> {
        let [x, scale, shift] = inputs else { bail!("an affine layer has three operands") };
        if [x, scale, shift].iter().any(|fact| fact.datum_type != DatumType::F32) {
            bail!("an affine layer takes single precision");
        }
        Ok(tvec!(TypedFact::dt_shape(x.datum_type, x.shape.clone())))
    }
}
