//! What a device gives to parts, asked of the driver without reserving anything.

use crate::device::{CudaError, found, grain};
use crate::driver::DriverError;
use cudarc::driver::sys::CUdevice_attribute as Attribute;
use vocab::Bytes;

/// What one device of the driver offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Its kind: `NVIDIA H200`.
    pub kind: String,
    /// Its multiprocessors: under an MPS percentage those that are left, in a MIG instance those of the instance.
    pub units: u32,
    /// Its memory in all.
    pub memory: Bytes,
    /// What green contexts can have of it, where the driver knows them.
    pub parts: Option<PartsOffered>,
}

/// What parts can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartsOffered {
    /// Parts are multiples of so many multiprocessors.
    pub step: u32,
    /// All parts together cover at most so many; what is over is in no part but the whole.
    pub units: u32,
}

/// Asks device `ordinal` of the driver.
///
/// # Errors
/// When there is no driver, no such device, or it fails.
pub fn offer(ordinal: usize) -> Result<Offer, CudaError> {
    let failed = |error: DriverError| CudaError::Failed { ordinal, why: error.to_string() };
    let gpu = found(ordinal)?;
    let units = gpu.attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT).map_err(failed)?;
    let offered = |(groups, step): (u32, u32)| PartsOffered { step, units: groups.saturating_mul(step) };
    let parts = grain(ordinal, false).ok().map(offered);
    Ok(Offer {
        kind: gpu.name().map_err(failed)?,
        units: u32::try_from(units).unwrap_or(0),
        memory: Bytes(gpu.memory().map_err(failed)?.1),
        parts,
    })
}
