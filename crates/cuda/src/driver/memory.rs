//! Device memory: slabs that stay, and address ranges into which physical chunks are mapped.

use super::{DriverError, Gpu, driver};
use cudarc::driver::sys;
use std::sync::{Arc, Mutex};

/// One allocation, zeroed.
#[derive(Debug)]
pub(crate) struct Slab {
    gpu: Gpu,
    base: sys::CUdeviceptr,
    pub(crate) bytes: usize,
}

impl Slab {
    pub(crate) fn new(gpu: &Gpu, bytes: usize) -> Result<Self, DriverError> {
        gpu.bind()?;
        let mut base = 0;
        driver!(cuMemAlloc_v2(&raw mut base, bytes.max(1)))?;
        let slab = Self { gpu: gpu.clone(), base, bytes };
        driver!(cuMemsetD8_v2(base, 0, bytes))?;
        Ok(slab)
    }

    pub(crate) const fn base(&self) -> u64 {
        self.base
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        if self.gpu.bind().is_ok() {
            let _ = driver!(cuMemFree_v2(self.base));
        }
    }
}

/// Physical memory in chunks of one size, all made at the beginning.
#[derive(Clone, Debug)]
pub(crate) struct Chunks(Arc<Pool>);

#[derive(Debug)]
struct Pool {
    gpu: Gpu,
    chunk: usize,
    all: Vec<sys::CUmemGenericAllocationHandle>,
    free: Mutex<Vec<sys::CUmemGenericAllocationHandle>>,
    /// Other devices that may read what is mapped.
    readers: Mutex<Vec<sys::CUdevice>>,
}

impl Drop for Pool {
    fn drop(&mut self) {
        for handle in &self.all {
            let _ = driver!(cuMemRelease(*handle));
        }
    }
}

fn properties(gpu: &Gpu) -> sys::CUmemAllocationProp {
    // SAFETY: the structure is plain data for which zeros are valid.
    let mut properties: sys::CUmemAllocationProp = unsafe { std::mem::zeroed() };
    properties.type_ = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type_ = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = gpu.device();
    properties
}

/// What `device` may do with mapped memory.
fn access(device: sys::CUdevice, flags: sys::CUmemAccess_flags) -> sys::CUmemAccessDesc {
    // SAFETY: the structure is plain data for which zeros are valid.
    let mut access: sys::CUmemAccessDesc = unsafe { std::mem::zeroed() };
    access.location.type_ = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = device;
    access.flags = flags;
    access
}

impl Chunks {
    /// As many chunks of about `chunk` bytes as `bytes` needs.
    pub(crate) fn new(gpu: &Gpu, bytes: usize, chunk: usize) -> Result<Self, DriverError> {
        gpu.bind()?;
        let properties = properties(gpu);
        let mut unit = 0;
        let flag = sys::CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_RECOMMENDED;
        driver!(cuMemGetAllocationGranularity(&raw mut unit, &raw const properties, flag))?;
        let chunk = chunk.next_multiple_of(unit.max(1));
        let (free, readers) = (Mutex::default(), Mutex::default());
        let mut pool = Pool { gpu: gpu.clone(), chunk, all: Vec::new(), free, readers };
        for _ in 0..bytes.div_ceil(chunk) {
            let mut handle = 0;
            driver!(cuMemCreate(&raw mut handle, chunk, &raw const properties, 0))?;
            pool.all.push(handle);
        }
        pool.free = Mutex::new(pool.all.clone());
        Ok(Self(Arc::new(pool)))
    }

    pub(crate) fn chunk(&self) -> usize {
        self.0.chunk
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<sys::CUmemGenericAllocationHandle>> {
        self.0.free.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn readers(&self) -> std::sync::MutexGuard<'_, Vec<sys::CUdevice>> {
        self.0.readers.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// What is mapped from now on may be read by `gpu` too.
    pub(crate) fn open_to(&self, gpu: &Gpu) {
        let mut readers = self.readers();
        if gpu.device() != self.0.gpu.device() && !readers.contains(&gpu.device()) {
            readers.push(gpu.device());
        }
    }

    /// Bytes free and in all.
    pub(crate) fn memory(&self) -> (usize, usize) {
        (self.lock().len() * self.0.chunk, self.0.all.len() * self.0.chunk)
    }
}

/// A reserved range of addresses. Chunks come and go; addresses stay.
#[derive(Debug)]
pub(crate) struct Range {
    chunks: Chunks,
    base: sys::CUdeviceptr,
    pub(crate) bytes: usize,
    mapped: Vec<sys::CUmemGenericAllocationHandle>,
}

impl Range {
    /// Addresses for `bytes`, nothing behind them yet.
    pub(crate) fn reserve(chunks: &Chunks, bytes: usize) -> Result<Self, DriverError> {
        chunks.0.gpu.bind()?;
        let bytes = bytes.max(1).next_multiple_of(chunks.chunk());
        let mut base = 0;
        driver!(cuMemAddressReserve(&raw mut base, bytes, 0, 0, 0))?;
        Ok(Self { chunks: chunks.clone(), base, bytes, mapped: Vec::new() })
    }

    pub(crate) const fn base(&self) -> u64 {
        self.base
    }

    /// Bytes with memory behind them, from the beginning.
    pub(crate) fn resident(&self) -> usize {
        self.mapped.len() * self.chunks.chunk()
    }

    /// Bytes free and in all, in the pool that it maps from.
    pub(crate) fn pool(&self) -> (usize, usize) {
        self.chunks.memory()
    }

    /// Bytes of the pool that mapping the first `bytes` would take.
    pub(crate) fn missing(&self, bytes: usize) -> usize {
        let chunk = self.chunks.chunk();
        (bytes.min(self.bytes).div_ceil(chunk)).saturating_sub(self.mapped.len()) * chunk
    }

    /// Maps chunks so that the first `bytes` have memory. `None` when the pool has too few; nothing has changed then.
    pub(crate) fn map(&mut self, bytes: usize) -> Result<Option<()>, DriverError> {
        let chunk = self.chunks.chunk();
        let wanted = bytes.min(self.bytes).div_ceil(chunk);
        let missing = wanted.saturating_sub(self.mapped.len());
        if missing == 0 {
            return Ok(Some(()));
        }
        let handles = {
            let mut free = self.chunks.lock();
            if free.len() < missing {
                return Ok(None);
            }
            let at = free.len() - missing;
            free.split_off(at)
        };
        self.chunks.0.gpu.bind()?;
        let from = self.mapped.len();
        for handle in handles {
            let address = self.base + (self.mapped.len() * chunk) as u64;
            driver!(cuMemMap(address, chunk, 0, handle, 0))?;
            self.mapped.push(handle);
        }
        use sys::CUmemAccess_flags::{CU_MEM_ACCESS_FLAGS_PROT_READ, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        let mut all = vec![access(self.chunks.0.gpu.device(), CU_MEM_ACCESS_FLAGS_PROT_READWRITE)];
        let readers = self.chunks.readers();
        all.extend(readers.iter().map(|device| access(*device, CU_MEM_ACCESS_FLAGS_PROT_READ)));
        let (start, length) = (self.base + (from * chunk) as u64, missing * chunk);
        driver!(cuMemSetAccess(start, length, all.as_ptr(), all.len()))?;
        Ok(Some(()))
    }

    /// Whether a device may read what is mapped.
    pub(crate) fn is_read_by(&self, gpu: &Gpu) -> bool {
        self.chunks.0.gpu.device() == gpu.device() || self.chunks.readers().contains(&gpu.device())
    }

    /// Takes the memory away from everything past the first `bytes`. The device must not be using it.
    pub(crate) fn unmap(&mut self, bytes: usize) -> Result<(), DriverError> {
        let chunk = self.chunks.chunk();
        let kept = bytes.div_ceil(chunk);
        if kept >= self.mapped.len() {
            return Ok(());
        }
        self.chunks.0.gpu.bind()?;
        let gone = self.mapped.len() - kept;
        driver!(cuMemUnmap(self.base + (kept * chunk) as u64, gone * chunk))?;
        let handles = self.mapped.split_off(kept);
        self.chunks.lock().extend(handles);
        Ok(())
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        let _ = self.unmap(0);
        let _ = driver!(cuMemAddressFree(self.base, self.bytes));
    }
}
