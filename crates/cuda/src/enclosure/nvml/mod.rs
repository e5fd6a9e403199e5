//! NVIDIA's management library, found at run time. Only asks; calls that set, create or destroy are not used.

use super::instances::{Instance, Instances, InstancesError, ManagedGpu, Mode, Profile};
use nvml_wrapper_sys::bindings as sys;
use std::ffi::{CStr, OsStr, c_char};
use vocab::Bytes;

#[cfg(test)]
mod tests;

/// The library, initialised while this is alive.
pub struct Nvml {
    library: sys::NvmlLib,
}

/// Where the driver puts it.
const LIBRARY: &str = "libnvidia-ml.so.1";
/// Room for names and UUIDs; the library's own limit is 96.
const TEXT: u32 = 128;
/// Size and version of the second form of a profile, as the library wants them in one number.
const PROFILE_VERSION: usize = size_of::<sys::nvmlGpuInstanceProfileInfo_v2_t>() | (2 << 24);

/// Why a call gave nothing.
enum Fault {
    NoFunction(&'static str),
    Code(&'static str, sys::nvmlReturn_t),
}

/// Calls the library and turns its answer into a result.
macro_rules! nvml {
    ($nvml:expr, $name:ident($($argument:expr),* $(,)?)) => {
        match &$nvml.library.$name {
            Err(_) => Err(Fault::NoFunction(stringify!($name))),
            // SAFETY: handles come from the library, which is initialised; pointers outlive the call and have the lengths
            // given with them.
            Ok(function) => match unsafe { function($($argument),*) } {
                sys::nvmlReturn_enum_NVML_SUCCESS => Ok(()),
                code => Err(Fault::Code(stringify!($name), code)),
            },
        }
    };
}

impl Nvml {
    /// Finds and initialises the library.
    ///
    /// # Errors
    /// When there is none, or no driver behind it.
    pub fn find() -> Result<Self, InstancesError> {
        Self::at(LIBRARY)
    }

    /// Initialises the library of that name or path.
    ///
    /// # Errors
    /// As [`Self::find`].
    pub fn at(path: impl AsRef<OsStr>) -> Result<Self, InstancesError> {
        let missing = |_| InstancesError::NoLibrary(path.as_ref().display().to_string());
        // SAFETY: the management library's initialisers are meant to run in any process.
        let library = unsafe { sys::NvmlLib::new(path.as_ref()) }.map_err(missing)?;
        Self::begin(library)
    }

    /// Initialises a library that was found.
    fn begin(library: sys::NvmlLib) -> Result<Self, InstancesError> {
        // Without a successful beginning there must be no end, so the owner is made afterwards.
        let nvml = std::mem::ManuallyDrop::new(Self { library });
        nvml!(nvml, nvmlInit_v2()).map_err(|fault| nvml.told(fault))?;
        Ok(std::mem::ManuallyDrop::into_inner(nvml))
    }

    fn told(&self, fault: Fault) -> InstancesError {
        match fault {
            Fault::NoFunction(name) => InstancesError::NoFunction(name),
            Fault::Code(call, code) => InstancesError::Failed { call, why: self.meaning(code) },
        }
    }

    /// What the library says of a code.
    fn meaning(&self, code: sys::nvmlReturn_t) -> String {
        let Ok(function) = &self.library.nvmlErrorString else { return format!("code {code}") };
        // SAFETY: takes any number and needs no initialisation.
        let text = unsafe { function(code) };
        if text.is_null() {
            return format!("code {code}");
        }
        // SAFETY: the library gives a constant text.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().to_lowercase()
    }

    /// A text that a call writes.
    fn text(call: impl FnOnce(*mut c_char, u32) -> Result<(), Fault>) -> Result<String, Fault> {
        let mut text = [0; TEXT as usize];
        call(text.as_mut_ptr(), TEXT)?;
        Ok(until_zero(&text))
    }

    fn gpu(&self, index: u32, first: usize) -> Result<Option<ManagedGpu>, Fault> {
        let mut device = std::ptr::null_mut();
        match nvml!(self, nvmlDeviceGetHandleByIndex_v2(index, &raw mut device)) {
            // Another's, in a container for example.
            Err(Fault::Code(_, sys::nvmlReturn_enum_NVML_ERROR_NO_PERMISSION)) => return Ok(None),
            other => other?,
        }
        let kind = Self::text(|text, length| nvml!(self, nvmlDeviceGetName(device, text, length)))?;
        let uuid = Self::text(|text, length| nvml!(self, nvmlDeviceGetUUID(device, text, length)))?;
        let mut memory = sys::nvmlMemory_t { total: 0, free: 0, used: 0 };
        nvml!(self, nvmlDeviceGetMemoryInfo(device, &raw mut memory))?;
        let mode = self.mode(device)?;
        let divided = mode == Mode::On;
        Ok(Some(ManagedGpu {
            index,
            kind,
            uuid,
            memory: Bytes(memory.total),
            mode,
            instances: if divided { self.instances(device, index, first)? } else { Vec::new() },
            profiles: if divided { self.profiles(device)? } else { Vec::new() },
        }))
    }

    fn mode(&self, device: sys::nvmlDevice_t) -> Result<Mode, Fault> {
        let (mut current, mut pending) = (0, 0);
        match nvml!(self, nvmlDeviceGetMigMode(device, &raw mut current, &raw mut pending)) {
            Err(Fault::Code(_, sys::nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED) | Fault::NoFunction(_)) => {
                Ok(Mode::Unsupported)
            }
            Err(fault) => Err(fault),
            Ok(()) if current == sys::NVML_DEVICE_MIG_ENABLE => Ok(Mode::On),
            Ok(()) => Ok(Mode::Off),
        }
    }

    /// The instances of a GPU, numbered from `first` on.
    fn instances(&self, gpu: sys::nvmlDevice_t, index: u32, first: usize) -> Result<Vec<Instance>, Fault> {
        let mut places = 0;
        nvml!(self, nvmlDeviceGetMaxMigDeviceCount(gpu, &raw mut places))?;
        let mut instances = Vec::new();
        for place in 0..places {
            let mut device = std::ptr::null_mut();
            match nvml!(self, nvmlDeviceGetMigDeviceHandleByIndex(gpu, place, &raw mut device)) {
                Err(Fault::Code(_, sys::nvmlReturn_enum_NVML_ERROR_NOT_FOUND)) => continue,
                other => other?,
            }
            let name = Self::text(|text, length| nvml!(self, nvmlDeviceGetName(device, text, length)))?;
            let uuid = Self::text(|text, length| nvml!(self, nvmlDeviceGetUUID(device, text, length)))?;
            // SAFETY: zero is a valid value of every field.
            let mut facts: sys::nvmlDeviceAttributes_t = unsafe { std::mem::zeroed() };
            nvml!(self, nvmlDeviceGetAttributes_v2(device, &raw mut facts))?;
            instances.push(Instance {
                ordinal: first + instances.len(),
                gpu: index,
                uuid,
                profile: profile(&name),
                units: facts.multiprocessorCount,
                memory: mebibytes(facts.memorySizeMB),
                gpu_slices: facts.gpuInstanceSliceCount,
                compute_slices: facts.computeInstanceSliceCount,
            });
        }
        Ok(instances)
    }

    /// What instances a divided GPU can have.
    fn profiles(&self, gpu: sys::nvmlDevice_t) -> Result<Vec<Profile>, Fault> {
        let mut profiles = Vec::new();
        for number in 0..sys::NVML_GPU_INSTANCE_PROFILE_COUNT {
            // SAFETY: zero is a valid value of every field.
            let mut facts: sys::nvmlGpuInstanceProfileInfo_v2_t = unsafe { std::mem::zeroed() };
            facts.version = u32::try_from(PROFILE_VERSION).unwrap_or(0);
            match nvml!(self, nvmlDeviceGetGpuInstanceProfileInfoV(gpu, number, &raw mut facts)) {
                Ok(()) => {}
                // Not on this kind of GPU, not for this driver, or not for this user.
                Err(Fault::Code(_, code)) if is_absence(code) => continue,
                Err(Fault::NoFunction(_)) => break,
                Err(fault) => return Err(fault),
            }
            let mut free = 0;
            let told = nvml!(self, nvmlDeviceGetGpuInstanceRemainingCapacity(gpu, facts.id, &raw mut free));
            profiles.push(Profile {
                name: profile(&until_zero(&facts.name)),
                units: facts.multiprocessorCount,
                memory: mebibytes(facts.memorySizeMB),
                most: facts.instanceCount,
                free: told.is_ok().then_some(free),
            });
        }
        profiles.sort_by(|one, other| {
            (one.units, one.memory.0, &one.name).cmp(&(other.units, other.memory.0, &other.name))
        });
        Ok(profiles)
    }
}

impl Instances for Nvml {
    fn gpus(&self) -> Result<Vec<ManagedGpu>, InstancesError> {
        let mut count = 0;
        nvml!(self, nvmlDeviceGetCount_v2(&raw mut count)).map_err(|fault| self.told(fault))?;
        let mut gpus: Vec<ManagedGpu> = Vec::new();
        for index in 0..count {
            let first = gpus.iter().map(|gpu| gpu.instances.len()).sum();
            gpus.extend(self.gpu(index, first).map_err(|fault| self.told(fault))?);
        }
        Ok(gpus)
    }
}

impl Drop for Nvml {
    fn drop(&mut self) {
        // Nothing is left to do about a library that does not end.
        let _ = nvml!(self, nvmlShutdown());
    }
}

fn is_absence(code: sys::nvmlReturn_t) -> bool {
    matches!(
        code,
        sys::nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED
            | sys::nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT
            | sys::nvmlReturn_enum_NVML_ERROR_NO_PERMISSION
    )
}

/// The profile in a name: `NVIDIA H200 MIG 1g.18gb`.
fn profile(name: &str) -> String {
    name.rsplit("MIG ").next().unwrap_or(name).trim().to_ascii_lowercase()
}

fn mebibytes(mebibytes: u64) -> Bytes {
    Bytes(mebibytes.saturating_mul(1 << 20))
}

fn until_zero(text: &[c_char]) -> String {
    let bytes: Vec<u8> = text.iter().take_while(|c| **c != 0).map(|c| c.cast_unsigned()).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
