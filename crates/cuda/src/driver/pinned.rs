//! Host memory the device copies from and to directly.

use super::{DriverError, Gpu, driver};
use cudarc::driver::sys;
use std::sync::Arc;

/// Page-locked host memory, zeroed when it is new.
#[derive(Debug)]
pub(crate) struct Pinned {
    /// Frees the allocation when its last piece is gone.
    owner: Arc<Allocation>,
    base: *mut u8,
    bytes: usize,
}

// SAFETY: the memory is this piece's alone, and reached only through `&self` and `&mut self`.
unsafe impl Send for Pinned {}
// SAFETY: as above.
unsafe impl Sync for Pinned {}

#[derive(Debug)]
struct Allocation {
    gpu: Gpu,
    base: *mut u8,
}

// SAFETY: only frees the memory, once.
unsafe impl Send for Allocation {}
// SAFETY: as above.
unsafe impl Sync for Allocation {}

impl Pinned {
    pub(crate) fn new(gpu: &Gpu, bytes: usize) -> Result<Self, DriverError> {
        gpu.bind()?;
        let mut base = std::ptr::null_mut();
        driver!(cuMemHostAlloc(&raw mut base, bytes.max(1), sys::CU_MEMHOSTALLOC_PORTABLE))?;
        let base: *mut u8 = base.cast();
        // SAFETY: the driver gave that many bytes.
        unsafe { base.write_bytes(0, bytes) };
        Ok(Self { owner: Arc::new(Allocation { gpu: gpu.clone(), base }), base, bytes })
    }

    /// Its first `bytes` as memory of their own; none when it has fewer.
    pub(crate) fn cut(&mut self, bytes: usize) -> Option<Self> {
        self.bytes = self.bytes.checked_sub(bytes)?;
        let first = Self { owner: self.owner.clone(), base: self.base, bytes };
        // SAFETY: that many bytes and more were this piece's.
        self.base = unsafe { self.base.add(bytes) };
        Some(first)
    }

    pub(crate) const fn address(&self) -> *mut u8 {
        self.base
    }

    pub(crate) const fn bytes(&self) -> &[u8] {
        // SAFETY: the piece has that many bytes, and its allocation lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.base, self.bytes) }
    }

    pub(crate) const fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and nobody else has it.
        unsafe { std::slice::from_raw_parts_mut(self.base, self.bytes) }
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if self.gpu.bind().is_ok() {
            let _ = driver!(cuMemFreeHost(self.base.cast()));
        }
    }
}
