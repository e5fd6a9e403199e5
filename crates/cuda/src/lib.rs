//! The CUDA backend: models lowered to cuDNN, cuBLASLt and kernels compiled at run time, captured once as graphs, their
//! weights in reserved address ranges that keep every pointer valid while physical memory comes and goes.
//!
//! Nothing is linked: libraries are found when a device is opened, and their absence is an error, not a crash.

#![expect(unsafe_code, reason = "every call of the CUDA driver is foreign")]

mod arena;
mod blas;
mod buffer;
mod device;
mod dnn;
mod driver;
mod enclosure;
mod gate;
mod lower;
mod nvrtc;
mod offer;
mod pack;
mod parts;
mod program;
mod queue;
mod staging;
mod tune;
mod verify;
mod weights;

pub use device::{
    AHEAD, CudaDevice, CudaError, CudaOptions, audit, devices, forget_graphs, grain, introduce,
    load_pageable, packed_weights, step_times, transfer_latency, transfer_time, ways,
};
pub use enclosure::{
    Daemon, DaemonState, Enclosure, EnclosureError, Instance, InstanceName, InstanceRefusal, Instances,
    InstancesError, ManagedGpu, Mode, MpsError, Nvml, PERCENTAGE, Percentage, Profile, choose,
};
pub use gate::Gate;
pub use lower::Precision;
pub use nvrtc::{CompileError, check_kernels, check_own_kernels};
pub use offer::{Offer, PartsOffered, offer};
pub use parts::{PartOptions, PartWanted};
pub use program::Audited;
