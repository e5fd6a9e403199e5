//! A management library of a machine that does not exist, written from NVIDIA's header alone, for `tests/nvml.rs`: one GPU
//! with MIG off, one with two instances, one that belongs to somebody else.

#![expect(unsafe_code, reason = "it stands in for a foreign library")]
#![expect(missing_docs, reason = "the fields are those of the header")]

use std::ffi::{c_char, c_uint, c_ulonglong, c_void};

const SUCCESS: c_uint = 0;
const INVALID_ARGUMENT: c_uint = 2;
const NOT_SUPPORTED: c_uint = 3;
const NO_PERMISSION: c_uint = 4;
const NOT_FOUND: c_uint = 6;
const INSUFFICIENT_SIZE: c_uint = 7;

/// GPUs are 1 to 3, the instance at place N is 10 + N.
type Handle = *mut c_void;

#[repr(C)]
pub struct Memory {
    total: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

#[repr(C)]
pub struct Attributes {
    multiprocessors: c_uint,
    engines: [c_uint; 5],
    gpu_slices: c_uint,
    compute_slices: c_uint,
    memory_mib: c_ulonglong,
}

#[repr(C)]
pub struct Profile {
    version: c_uint,
    id: c_uint,
    p2p: c_uint,
    slices: c_uint,
    instances: c_uint,
    multiprocessors: c_uint,
    engines: [c_uint; 5],
    memory_mib: c_ulonglong,
    name: [c_char; 96],
}

/// Writes a text with its end, where there is room.
fn write(text: &str, into: *mut c_char, length: c_uint) -> c_uint {
    if text.len() >= length as usize {
        return INSUFFICIENT_SIZE;
    }
    for (place, byte) in text.bytes().chain([0]).enumerate() {
        // SAFETY: the caller gave room for `length` characters, which the text and its end do not exceed.
        unsafe { into.add(place).write(byte.cast_signed()) };
    }
    SUCCESS
}

/// Writes a value.
fn put<T>(into: *mut T, value: T) -> c_uint {
    // SAFETY: the caller gave a place for one value.
    unsafe { into.write(value) };
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn nvmlInit_v2() -> c_uint {
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn nvmlShutdown() -> c_uint {
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn nvmlErrorString(_code: c_uint) -> *const c_char {
    c"Not Supported".as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetCount_v2(count: *mut c_uint) -> c_uint {
    put(count, 3)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: *mut Handle) -> c_uint {
    match index {
        0 | 2 => put(device, (index as usize + 1) as Handle),
        1 => NO_PERMISSION,
        _ => INVALID_ARGUMENT,
    }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetName(device: Handle, name: *mut c_char, length: c_uint) -> c_uint {
    match device as usize {
        10 => write("NVIDIA H200 MIG 1g.18gb", name, length),
        12 => write("NVIDIA H200 MIG 1c.3g.71gb", name, length),
        _ => write("NVIDIA H200", name, length),
    }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetUUID(device: Handle, uuid: *mut c_char, length: c_uint) -> c_uint {
    let kind = if device as usize >= 10 { "MIG" } else { "GPU" };
    write(&format!("{kind}-000000{:02}-aaaa-bbbb-cccc-00000000000f", device as usize), uuid, length)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMemoryInfo(_device: Handle, memory: *mut Memory) -> c_uint {
    put(memory, Memory { total: 150_754_820_096, free: 1, used: 2 })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMigMode(device: Handle, current: *mut c_uint, pending: *mut c_uint) -> c_uint {
    put(pending, 1);
    put(current, c_uint::from(device as usize == 3))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMaxMigDeviceCount(_device: Handle, count: *mut c_uint) -> c_uint {
    put(count, 7)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMigDeviceHandleByIndex(
    _device: Handle,
    place: c_uint,
    instance: *mut Handle,
) -> c_uint {
    match place {
        0 | 2 => put(instance, (place as usize + 10) as Handle),
        _ => NOT_FOUND,
    }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetAttributes_v2(device: Handle, attributes: *mut Attributes) -> c_uint {
    let of = |multiprocessors, gpu_slices, memory_mib| Attributes {
        multiprocessors,
        engines: [91, 92, 93, 94, 95],
        gpu_slices,
        compute_slices: 1,
        memory_mib,
    };
    match device as usize {
        10 => put(attributes, of(16, 1, 16_384)),
        12 => put(attributes, of(20, 3, 71_680)),
        _ => NOT_SUPPORTED,
    }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetGpuInstanceProfileInfoV(
    _device: Handle,
    number: c_uint,
    profile: *mut Profile,
) -> c_uint {
    // SAFETY: the caller gave a profile whose version is set.
    let version = unsafe { (*profile).version };
    if version as usize != size_of::<Profile>() + (2 << 24) {
        return INVALID_ARGUMENT;
    }
    let (id, slices, instances, multiprocessors, memory_mib, text) = match number {
        4 => (0, 7, 1, 132, 144_384, "MIG 7g.141gb"),
        0 => (19, 1, 7, 16, 16_384, "MIG 1g.18gb"),
        _ => return NOT_SUPPORTED,
    };
    let mut name = [0; 96];
    write(text, name.as_mut_ptr(), 96);
    let engines = [81, 82, 83, 84, 85];
    put(
        profile,
        Profile { version, id, p2p: 80, slices, instances, multiprocessors, engines, memory_mib, name },
    )
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetGpuInstanceRemainingCapacity(
    _device: Handle,
    id: c_uint,
    count: *mut c_uint,
) -> c_uint {
    if id == 19 { put(count, 4) } else { NO_PERMISSION }
}
