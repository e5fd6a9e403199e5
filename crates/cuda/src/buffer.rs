//! Tensors that callers fill and read: pinned host memory, copied to and from the device by the run that uses them.

use crate::driver::{DriverError, Gpu, Pinned};
use engine::{Buffer, EngineError, TensorSpec};
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Pinned memory in blocks of powers of two, kept for the next caller.
#[derive(Debug)]
pub(crate) struct HostPool {
    gpu: Gpu,
    free: Mutex<BTreeMap<usize, Vec<Pinned>>>,
}

impl HostPool {
    pub(crate) fn new(gpu: &Gpu) -> Arc<Self> {
        Arc::new(Self { gpu: gpu.clone(), free: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, Vec<Pinned>>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Memory for `spec`; zeroed when `zeroed`.
    pub(crate) fn take(self: &Arc<Self>, spec: &TensorSpec, zeroed: bool) -> Result<CudaBuffer, DriverError> {
        let bytes = spec.len();
        let block = bytes.max(256).next_power_of_two();
        let reused = self.lock().get_mut(&block).and_then(Vec::pop);
        let memory = match reused {
            Some(mut memory) => {
                if zeroed {
                    memory.bytes_mut()[..bytes].fill(0);
                }
                memory
            }
            None => Pinned::new(&self.gpu, block)?,
        };
        Ok(CudaBuffer { spec: spec.clone(), memory: Some(memory), pool: self.clone() })
    }
}

/// One tensor in pinned memory.
#[derive(Debug)]
pub(crate) struct CudaBuffer {
    spec: TensorSpec,
    /// Present until dropped.
    memory: Option<Pinned>,
    pool: Arc<HostPool>,
}

impl Drop for CudaBuffer {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            let block = memory.bytes().len();
            self.pool.lock().entry(block).or_default().push(memory);
        }
    }
}

impl CudaBuffer {
    pub(crate) fn address(&self) -> *mut u8 {
        self.memory.as_ref().map_or(std::ptr::null_mut(), Pinned::address)
    }

    fn range(&self, offset: usize, length: usize, act: &str) -> Result<std::ops::Range<usize>, EngineError> {
        let size = self.spec.len();
        match offset.checked_add(length).filter(|end| *end <= size) {
            Some(end) => Ok(offset..end),
            None => {
                Err(mismatch(act, &format!("within {size} bytes"), &format!("{length} bytes at {offset}")))
            }
        }
    }
}

impl Buffer for CudaBuffer {
    fn spec(&self) -> &TensorSpec {
        &self.spec
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) -> Result<(), EngineError> {
        let range = self.range(offset, bytes.len(), "write to a buffer")?;
        if let Some(memory) = &mut self.memory {
            memory.bytes_mut()[range].copy_from_slice(bytes);
        }
        Ok(())
    }

    fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<(), EngineError> {
        let range = self.range(offset, bytes.len(), "read from a buffer")?;
        if let Some(memory) = &self.memory {
            bytes.copy_from_slice(&memory.bytes()[range]);
        }
        Ok(())
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

pub(crate) fn mismatch(what: &str, expected: &str, found: &str) -> EngineError {
    EngineError::Mismatch { what: what.into(), expected: expected.into(), found: found.into() }
}
