//! Green contexts: parts of a device's multiprocessors, whose streams never leave them.
//!
//! The driver splits the multiprocessors into groups of the smallest size it grants; neighbouring groups of one split are
//! merged to larger parts, and the same group may be in several parts.

use super::{DriverError, Gpu, driver};
use cudarc::driver::sys;
use std::sync::Arc;

/// The multiprocessors of a device in groups of the smallest size that can be had.
pub(crate) struct Atoms {
    gpu: Gpu,
    groups: Vec<sys::CUdevResource>,
    /// Multiprocessors of a group.
    pub(crate) size: u32,
    /// Multiprocessors of the device; those that fill no group are in no part but the whole.
    pub(crate) total: u32,
}

fn count(resource: &sys::CUdevResource) -> u32 {
    // SAFETY: the resource was asked for as multiprocessors.
    unsafe { resource.__bindgen_anon_1.sm.smCount }
}

impl Atoms {
    /// Asks the driver; an error where it knows no green contexts. `fine` groups are as small as the driver makes them when
    /// clusters of thread blocks need not fit into a part.
    pub(crate) fn split(gpu: &Gpu, fine: bool) -> Result<Self, DriverError> {
        gpu.bind()?;
        // SAFETY: the driver fills it in; zero is a valid value of every field.
        let mut all: sys::CUdevResource = unsafe { std::mem::zeroed() };
        let kind = sys::CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM;
        driver!(cuDeviceGetDevResource(gpu.device(), &raw mut all, kind))?;
        // SAFETY: as above.
        let least = unsafe { all.__bindgen_anon_1.sm.minSmPartitionSize }.max(1);
        let ignored = sys::CUdevSmResourceSplit_flags::CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING;
        // The driver rounds up to what it can do.
        let (flags, least) = if fine { (ignored as u32, 1) } else { (0, least) };
        // Without room for the groups the driver says how many there would be.
        let mut number = 0;
        let none = std::ptr::null_mut();
        driver!(cuDevSmResourceSplitByCount(none, &raw mut number, &raw const all, none, flags, least))?;
        // SAFETY: as above.
        let mut groups = vec![unsafe { std::mem::zeroed::<sys::CUdevResource>() }; number as usize];
        driver!(cuDevSmResourceSplitByCount(
            groups.as_mut_ptr(),
            &raw mut number,
            &raw const all,
            none,
            flags,
            least
        ))?;
        groups.truncate(number as usize);
        let size = groups.first().map_or(least, count);
        Ok(Self { gpu: gpu.clone(), groups, size, total: count(&all) })
    }

    pub(crate) const fn len(&self) -> usize {
        self.groups.len()
    }

    /// A context of so many groups from the first one given.
    pub(crate) fn context(&self, first: usize, groups: usize) -> Result<Arc<GreenContext>, DriverError> {
        self.gpu.bind()?;
        let mut chosen = self.groups[first..first + groups].to_vec();
        let mut description = std::ptr::null_mut();
        let number = u32::try_from(chosen.len()).unwrap_or(u32::MAX);
        driver!(cuDevResourceGenerateDesc(&raw mut description, chosen.as_mut_ptr(), number))?;
        let mut raw = std::ptr::null_mut();
        let flags = sys::CUgreenCtxCreate_flags::CU_GREEN_CTX_DEFAULT_STREAM as u32;
        driver!(cuGreenCtxCreate(&raw mut raw, description, self.gpu.device(), flags))?;
        Ok(Arc::new(GreenContext { gpu: self.gpu.clone(), raw }))
    }
}

/// A part of a device's multiprocessors. Its streams keep it alive.
#[derive(Debug)]
pub(crate) struct GreenContext {
    gpu: Gpu,
    raw: sys::CUgreenCtx,
}

// SAFETY: context handles may be used from any thread.
unsafe impl Send for GreenContext {}
// SAFETY: as above; the driver locks for itself.
unsafe impl Sync for GreenContext {}

impl GreenContext {
    pub(crate) const fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    pub(crate) const fn raw(&self) -> sys::CUgreenCtx {
        self.raw
    }
}

impl Drop for GreenContext {
    fn drop(&mut self) {
        if self.gpu.bind().is_ok() {
            let _ = driver!(cuGreenCtxDestroy(self.raw));
        }
    }
}
