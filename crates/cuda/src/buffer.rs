//! Tensors that callers fill and read: pinned host memory, copied to and from the device by the run that uses them.

use crate::driver::{DriverError, Gpu, Pinned};
use engine::{Buffer, EngineError, TensorSpec};
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Pinned memory in blocks, kept for the next caller.
#[derive(Debug)]
pub(crate) struct HostPool {
    gpu: Gpu,
    free: Mutex<BTreeMap<usize, Vec<Pinned>>>,
}

/// Small blocks are cut from allocations of this size: each allocation holds the whole device up.
const SLAB: usize = 4 << 20;

/// The size of the block that `bytes` are kept in: an eighth of it is wasted at most.
pub(crate) fn class(bytes: usize) -> usize {
    let least = bytes.max(256);
    least.next_multiple_of((least.next_power_of_two() / 8).max(256))
}

impl HostPool {
    pub(crate) fn new(gpu: &Gpu) -> Arc<Self> {
        Arc::new(Self { gpu: gpu.clone(), free: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, Vec<Pinned>>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A block of at least `bytes` with whatever it held before; longer than they are by enough to round them up to 16.
    pub(crate) fn block(self: &Arc<Self>, bytes: usize) -> Result<Block, DriverError> {
        let size = class(bytes);
        let reused = self.lock().get_mut(&size).and_then(Vec::pop);
        let memory = match reused {
            Some(memory) => Some(memory),
            None => {
                let mut slab = Pinned::new(&self.gpu, SLAB.max(size))?;
                let first = slab.cut(size);
                let others = std::iter::from_fn(|| slab.cut(size));
                self.lock().entry(size).or_default().extend(others);
                first
            }
        };
        Ok(Block { memory, pool: self.clone() })
    }

    /// Memory for `spec`; zeroed when `zeroed`.
    pub(crate) fn take(self: &Arc<Self>, spec: &TensorSpec, zeroed: bool) -> Result<CudaBuffer, DriverError> {
        let bytes = spec.len();
        let mut block = self.block(bytes)?;
        if zeroed {
            block.bytes_mut()[..bytes].fill(0);
        }
        Ok(CudaBuffer { spec: spec.clone(), block })
    }
}

/// A block that goes back to its pool when dropped.
#[derive(Debug)]
pub(crate) struct Block {
    /// Present until dropped.
    memory: Option<Pinned>,
    pool: Arc<HostPool>,
}

impl Drop for Block {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            let size = memory.bytes().len();
            self.pool.lock().entry(size).or_default().push(memory);
        }
    }
}

impl Block {
    pub(crate) fn address(&self) -> *mut u8 {
        self.memory.as_ref().map_or(std::ptr::null_mut(), Pinned::address)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.memory.as_ref().map_or(&[], Pinned::bytes)
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.memory.as_mut().map_or(&mut [], Pinned::bytes_mut)
    }
}

/// One tensor in pinned memory.
#[derive(Debug)]
pub(crate) struct CudaBuffer {
    spec: TensorSpec,
    block: Block,
}

impl CudaBuffer {
    pub(crate) fn address(&self) -> *mut u8 {
        self.block.address()
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
        self.block.bytes_mut()[range].copy_from_slice(bytes);
        Ok(())
    }

    fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<(), EngineError> {
        let range = self.range(offset, bytes.len(), "read from a buffer")?;
        bytes.copy_from_slice(&self.block.bytes()[range]);
        Ok(())
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

pub(crate) fn mismatch(what: &str, expected: &str, found: &str) -> EngineError {
    EngineError::Mismatch { what: what.into(), expected: expected.into(), found: found.into() }
}
