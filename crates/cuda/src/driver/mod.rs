//! The CUDA driver's objects with owners: contexts, streams, events, modules, graphs, memory.

mod green;
mod memory;
mod pinned;
mod stream;

pub(crate) use green::{Atoms, GreenContext};
pub(crate) use memory::{Chunks, Range, Slab};
pub(crate) use pinned::Pinned;
pub(crate) use stream::{Event, Executable, Function, Library, Stream};

use cudarc::driver::sys;
use std::sync::Arc;

/// A driver call that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call} failed: {code:?}")]
pub(crate) struct DriverError {
    pub(crate) call: &'static str,
    pub(crate) code: sys::CUresult,
}

/// Calls the driver and turns its answer into a result.
macro_rules! driver {
    ($name:ident($($argument:expr),* $(,)?)) => {{
        // SAFETY: handles come from the driver and are kept alive by their owners; pointers outlive the call.
        let code = unsafe { cudarc::driver::sys::$name($($argument),*) };
        match code {
            cudarc::driver::sys::CUresult::CUDA_SUCCESS => Ok(()),
            code => Err(crate::driver::DriverError { call: stringify!($name), code }),
        }
    }};
}
pub(crate) use driver;

/// A device with its primary context, shared by everything made on it.
#[derive(Clone, Debug)]
pub(crate) struct Gpu(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    device: sys::CUdevice,
    context: sys::CUcontext,
}

// SAFETY: device and context handles may be used from any thread.
unsafe impl Send for Inner {}
// SAFETY: as above; the driver locks for itself.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        let _ = driver!(cuDevicePrimaryCtxRelease_v2(self.device));
    }
}

/// Whether this machine has the CUDA driver.
pub(crate) fn present() -> bool {
    // SAFETY: only looks for a library.
    unsafe { sys::is_culib_present() }
}

/// How many devices there are; zero without a driver or without permission.
pub(crate) fn count() -> usize {
    if !present() || driver!(cuInit(0)).is_err() {
        return 0;
    }
    let mut count = 0;
    if driver!(cuDeviceGetCount(&raw mut count)).is_err() {
        return 0;
    }
    usize::try_from(count).unwrap_or(0)
}

impl Gpu {
    /// Opens a device and makes its primary context current on this thread.
    pub(crate) fn open(ordinal: usize) -> Result<Self, DriverError> {
        driver!(cuInit(0))?;
        let mut device = 0;
        driver!(cuDeviceGet(&raw mut device, i32::try_from(ordinal).unwrap_or(i32::MAX)))?;
        let mut context = std::ptr::null_mut();
        driver!(cuDevicePrimaryCtxRetain(&raw mut context, device))?;
        let gpu = Self(Arc::new(Inner { device, context }));
        gpu.bind()?;
        Ok(gpu)
    }

    /// Makes the context current on the calling thread.
    pub(crate) fn bind(&self) -> Result<(), DriverError> {
        driver!(cuCtxSetCurrent(self.0.context))
    }

    pub(crate) fn device(&self) -> sys::CUdevice {
        self.0.device
    }

    pub(crate) fn context(&self) -> sys::CUcontext {
        self.0.context
    }

    /// Whether this device can read and write the memory of `other` directly, over `NVLink` or the bus; its own always.
    pub(crate) fn reaches(&self, other: &Self) -> Result<bool, DriverError> {
        if self.device() == other.device() {
            return Ok(true);
        }
        let mut able = 0;
        driver!(cuDeviceCanAccessPeer(&raw mut able, self.device(), other.device()))?;
        Ok(able != 0)
    }

    pub(crate) fn name(&self) -> Result<String, DriverError> {
        let mut text = [0; 128];
        driver!(cuDeviceGetName(text.as_mut_ptr(), 128, self.device()))?;
        Ok(text.iter().take_while(|c| **c != 0).map(|c| char::from(c.cast_unsigned())).collect())
    }

    pub(crate) fn attribute(&self, attribute: sys::CUdevice_attribute) -> Result<i32, DriverError> {
        let mut value = 0;
        driver!(cuDeviceGetAttribute(&raw mut value, attribute, self.device()))?;
        Ok(value)
    }

    /// The architecture as compilers name it, for example `sm_90`.
    pub(crate) fn architecture(&self) -> Result<String, DriverError> {
        use sys::CUdevice_attribute as Attribute;
        let major = self.attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor = self.attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        Ok(format!("sm_{major}{minor}"))
    }

    /// Bytes free and in all.
    pub(crate) fn memory(&self) -> Result<(u64, u64), DriverError> {
        self.bind()?;
        let (mut free, mut total) = (0, 0);
        driver!(cuMemGetInfo_v2(&raw mut free, &raw mut total))?;
        Ok((free as u64, total as u64))
    }

    /// Waits until the device has nothing left to do.
    pub(crate) fn synchronize(&self) -> Result<(), DriverError> {
        self.bind()?;
        driver!(cuCtxSynchronize())
    }
}
