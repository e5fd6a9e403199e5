//! The management library's calls, on functions that stand in for its own: one GPU with MIG off, one that belongs to somebody
//! else, one with two instances.

use super::super::{InstanceName, choose};
use super::*;
use expect_test::expect;
use std::ffi::c_uint;

/// GPUs are 1 to 3, the instance at place N is 10 + N.
type Handle = sys::nvmlDevice_t;

const SUCCESS: c_uint = sys::nvmlReturn_enum_NVML_SUCCESS;

/// Writes a value where the caller has a place for one.
fn put<T>(into: *mut T, value: T) -> c_uint {
    // SAFETY: `Nvml` gives places for one value each.
    unsafe { into.write(value) };
    SUCCESS
}

/// Writes a text with its end.
fn write(text: &str, into: *mut c_char, length: c_uint) -> c_uint {
    assert!(text.len() < length as usize);
    for (place, byte) in text.bytes().chain([0]).enumerate() {
        // SAFETY: there is room for `length` characters, which the text and its end do not exceed.
        unsafe { into.add(place).write(byte.cast_signed()) };
    }
    SUCCESS
}

extern "C" fn done() -> c_uint {
    SUCCESS
}

extern "C" fn no_driver() -> c_uint {
    sys::nvmlReturn_enum_NVML_ERROR_DRIVER_NOT_LOADED
}

extern "C" fn count(count: *mut c_uint) -> c_uint {
    put(count, 3)
}

extern "C" fn device(index: c_uint, device: *mut Handle) -> c_uint {
    if index == 1 {
        return sys::nvmlReturn_enum_NVML_ERROR_NO_PERMISSION;
    }
    put(device, (index as usize + 1) as Handle)
}

extern "C" fn name(device: Handle, into: *mut c_char, length: c_uint) -> c_uint {
    let text = match device as usize {
        10 => "NVIDIA H200 MIG 1g.18gb",
        12 => "NVIDIA H200 MIG 1c.3g.71gb",
        _ => "NVIDIA H200",
    };
    write(text, into, length)
}

extern "C" fn uuid(device: Handle, into: *mut c_char, length: c_uint) -> c_uint {
    let kind = if device as usize >= 10 { "MIG" } else { "GPU" };
    write(&format!("{kind}-000000{:02}-aaaa-bbbb-cccc-00000000000f", device as usize), into, length)
}

extern "C" fn memory(_: Handle, into: *mut sys::nvmlMemory_t) -> c_uint {
    put(into, sys::nvmlMemory_t { total: 150_754_820_096, free: 1, used: 2 })
}

extern "C" fn mode(device: Handle, current: *mut c_uint, pending: *mut c_uint) -> c_uint {
    put(pending, 1);
    put(current, c_uint::from(device as usize == 3))
}

extern "C" fn places(_: Handle, count: *mut c_uint) -> c_uint {
    put(count, 7)
}

extern "C" fn place(_: Handle, place: c_uint, instance: *mut Handle) -> c_uint {
    if place != 0 && place != 2 {
        return sys::nvmlReturn_enum_NVML_ERROR_NOT_FOUND;
    }
    put(instance, (place as usize + 10) as Handle)
}

extern "C" fn attributes(device: Handle, into: *mut sys::nvmlDeviceAttributes_t) -> c_uint {
    let (units, slices, mebibytes) = if device as usize == 10 { (16, 1, 16_384) } else { (20, 3, 71_680) };
    put(
        into,
        sys::nvmlDeviceAttributes_t {
            multiprocessorCount: units,
            sharedCopyEngineCount: 91,
            sharedDecoderCount: 92,
            sharedEncoderCount: 93,
            sharedJpegCount: 94,
            sharedOfaCount: 95,
            gpuInstanceSliceCount: slices,
            computeInstanceSliceCount: 1,
            memorySizeMB: mebibytes,
        },
    )
}

extern "C" fn profile_info(
    _: Handle,
    number: c_uint,
    into: *mut sys::nvmlGpuInstanceProfileInfo_v2_t,
) -> c_uint {
    // SAFETY: `Nvml` gives a profile whose version is set.
    let mut facts = unsafe { into.read() };
    // The header: the size of the structure, and its version in the highest byte.
    assert_eq!((facts.version & 0xff_ffff, facts.version >> 24), (152, 2));
    let (id, units, most, mebibytes, text) = match number {
        sys::NVML_GPU_INSTANCE_PROFILE_7_SLICE => (0, 132, 1, 144_384, "MIG 7g.141gb"),
        sys::NVML_GPU_INSTANCE_PROFILE_1_SLICE => (19, 16, 7, 16_384, "MIG 1g.18gb"),
        _ => return sys::nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED,
    };
    (facts.id, facts.multiprocessorCount, facts.instanceCount) = (id, units, most);
    facts.memorySizeMB = mebibytes;
    write(text, facts.name.as_mut_ptr(), 96);
    put(into, facts)
}

extern "C" fn capacity(_: Handle, id: c_uint, count: *mut c_uint) -> c_uint {
    if id == 19 { put(count, 4) } else { sys::nvmlReturn_enum_NVML_ERROR_NO_PERMISSION }
}

/// Another library, which has none of the functions.
fn bare() -> sys::NvmlLib {
    // SAFETY: the C library is loaded already.
    unsafe { sys::NvmlLib::new("libc.so.6") }.unwrap()
}

/// The library of that machine: our functions in their places.
fn library() -> sys::NvmlLib {
    let mut library = bare();
    library.nvmlInit_v2 = Ok(done);
    library.nvmlShutdown = Ok(done);
    library.nvmlDeviceGetCount_v2 = Ok(count);
    library.nvmlDeviceGetHandleByIndex_v2 = Ok(device);
    library.nvmlDeviceGetName = Ok(name);
    library.nvmlDeviceGetUUID = Ok(uuid);
    library.nvmlDeviceGetMemoryInfo = Ok(memory);
    library.nvmlDeviceGetMigMode = Ok(mode);
    library.nvmlDeviceGetMaxMigDeviceCount = Ok(places);
    library.nvmlDeviceGetMigDeviceHandleByIndex = Ok(place);
    library.nvmlDeviceGetAttributes_v2 = Ok(attributes);
    library.nvmlDeviceGetGpuInstanceProfileInfoV = Ok(profile_info);
    library.nvmlDeviceGetGpuInstanceRemainingCapacity = Ok(capacity);
    library
}

#[test]
fn gpus_instances_and_profiles_are_read() {
    let gpus = Nvml::begin(library()).unwrap().gpus().unwrap();
    let lines = gpus.iter().flat_map(|gpu| {
        let own = ManagedGpu { instances: Vec::new(), profiles: Vec::new(), ..gpu.clone() };
        let instances = gpu.instances.iter().map(|instance| format!("{instance:?}"));
        let profiles = gpu.profiles.iter().map(|profile| format!("{profile:?}"));
        std::iter::once(format!("{own:?}")).chain(instances).chain(profiles).collect::<Vec<_>>()
    });
    expect![[r#"
        ManagedGpu { index: 0, kind: "NVIDIA H200", uuid: "GPU-00000001-aaaa-bbbb-cccc-00000000000f", memory: Bytes(150754820096), mode: Off, instances: [], profiles: [] }
        ManagedGpu { index: 2, kind: "NVIDIA H200", uuid: "GPU-00000003-aaaa-bbbb-cccc-00000000000f", memory: Bytes(150754820096), mode: On, instances: [], profiles: [] }
        Instance { ordinal: 0, gpu: 2, uuid: "MIG-00000010-aaaa-bbbb-cccc-00000000000f", profile: "1g.18gb", units: 16, memory: Bytes(17179869184), gpu_slices: 1, compute_slices: 1 }
        Instance { ordinal: 1, gpu: 2, uuid: "MIG-00000012-aaaa-bbbb-cccc-00000000000f", profile: "1c.3g.71gb", units: 20, memory: Bytes(75161927680), gpu_slices: 3, compute_slices: 1 }
        Profile { name: "1g.18gb", units: 16, memory: Bytes(17179869184), most: 7, free: Some(4) }
        Profile { name: "7g.141gb", units: 132, memory: Bytes(151397597184), most: 1, free: None }"#]].assert_eq(&lines.collect::<Vec<_>>().join("\n"));
    let found = choose(&gpus, &InstanceName::parse("1c.3g.71gb").unwrap()).unwrap();
    assert_eq!(found.uuid, "MIG-00000012-aaaa-bbbb-cccc-00000000000f");
}

#[test]
fn libraries_that_lack_functions_or_fail_are_told() {
    let mut without = library();
    without.nvmlDeviceGetMaxMigDeviceCount = bare().nvmlDeviceGetMaxMigDeviceCount;
    let without = Nvml::begin(without).unwrap().gpus().unwrap_err().to_string();
    let mut failing = library();
    failing.nvmlInit_v2 = Ok(no_driver);
    let failing = Nvml::begin(failing).err().unwrap().to_string();
    let foreign = Nvml::at("libc.so.6").err().unwrap().to_string();
    // An old driver has no modes: its GPUs cannot be divided.
    let mut old = library();
    old.nvmlDeviceGetMigMode = bare().nvmlDeviceGetMigMode;
    assert!(Nvml::begin(old).unwrap().gpus().unwrap().iter().all(|gpu| gpu.mode == Mode::Unsupported));
    expect![[r#"
        NVIDIA's management library knows no nvmlDeviceGetMaxMigDeviceCount; a newer driver does
        nvmlInit_v2 failed: code 9
        NVIDIA's management library knows no nvmlInit_v2; a newer driver does"#]]
    .assert_eq(&[without, failing, foreign].join("\n"));
}
