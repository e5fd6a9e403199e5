//! A tensor in host memory, aligned as tract wants it.

use crate::{Buffer, EngineError, TensorSpec};
use std::any::Any;
use std::sync::Arc;
use tract_core::prelude::Tensor;

pub(super) struct CpuBuffer {
    spec: TensorSpec,
    tensor: Arc<Tensor>,
}

impl CpuBuffer {
    pub(super) fn zeroed(spec: &TensorSpec) -> Result<Self, EngineError> {
        let tensor = Tensor::zero_dt(graph::datum(spec.dtype), &spec.shape);
        let tensor = tensor.map_err(|error| mismatch("buffer", &spec.to_string(), &error.to_string()))?;
        Ok(Self { spec: spec.clone(), tensor: Arc::new(tensor) })
    }

    pub(super) const fn holding(spec: TensorSpec, tensor: Arc<Tensor>) -> Self {
        Self { spec, tensor }
    }

    pub(super) fn into_tensor(self) -> Arc<Tensor> {
        self.tensor
    }

    fn range(&self, offset: usize, length: usize, act: &str) -> Result<std::ops::Range<usize>, EngineError> {
        let size = self.tensor.as_bytes().len();
        match offset.checked_add(length).filter(|end| *end <= size) {
            Some(end) => Ok(offset..end),
            None => {
                Err(mismatch(act, &format!("within {size} bytes"), &format!("{length} bytes at {offset}")))
            }
        }
    }
}

impl Buffer for CpuBuffer {
    fn spec(&self) -> &TensorSpec {
        &self.spec
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) -> Result<(), EngineError> {
        let range = self.range(offset, bytes.len(), "write to a buffer")?;
        let Some(tensor) = Arc::get_mut(&mut self.tensor) else {
            return Err(mismatch("write to a buffer", "its only holder", "an output that is shared"));
        };
        tensor.as_bytes_mut()[range].copy_from_slice(bytes);
        Ok(())
    }

    fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<(), EngineError> {
        let range = self.range(offset, bytes.len(), "read from a buffer")?;
        bytes.copy_from_slice(&self.tensor.as_bytes()[range]);
        Ok(())
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

pub(super) fn mismatch(what: &str, expected: &str, found: &str) -> EngineError {
    EngineError::Mismatch { what: what.into(), expected: expected.into(), found: found.into() }
}
