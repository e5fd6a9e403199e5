//! Host memory the device copies from and to directly.

use super::{DriverError, Gpu, driver};
use cudarc::driver::sys;

/// Page-locked host memory, zeroed.
#[derive(Debug)]
pub(crate) struct Pinned {
    gpu: Gpu,
    base: *mut u8,
    bytes: usize,
}

// SAFETY: the memory is owned, and reached only through `&self` and `&mut self`.
unsafe impl Send for Pinned {}
// SAFETY: as above.
unsafe impl Sync for Pinned {}

impl Pinned {
    pub(crate) fn new(gpu: &Gpu, bytes: usize) -> Result<Self, DriverError> {
        gpu.bind()?;
        let mut base = std::ptr::null_mut();
        driver!(cuMemHostAlloc(&raw mut base, bytes.max(1), sys::CU_MEMHOSTALLOC_PORTABLE))?;
        let base: *mut u8 = base.cast();
        // SAFETY: the driver gave that many bytes.
        unsafe { base.write_bytes(0, bytes) };
        Ok(Self { gpu: gpu.clone(), base, bytes })
    }

    pub(crate) const fn address(&self) -> *mut u8 {
        self.base
    }

    pub(crate) const fn bytes(&self) -> &[u8] {
        // SAFETY: the allocation has that many bytes and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.base, self.bytes) }
    }

    pub(crate) const fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and nobody else has it.
        unsafe { std::slice::from_raw_parts_mut(self.base, self.bytes) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if self.gpu.bind().is_ok() {
            let _ = driver!(cuMemFreeHost(self.base.cast()));
        }
    }
}
