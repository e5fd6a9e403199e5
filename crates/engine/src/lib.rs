//! Running programs on devices: the traits every backend implements, the CPU backend, and runs that stop at segment edges.
//!
//! A [`Device`] prepares a [`graph::Graph`] cut into segments as a [`Program`], and opens a [`Queue`] on one of its
//! partitions. A [`Run`] launches a program's segments one by one on a queue; between two of them it may be parked,
//! resumed or abandoned. Nothing here decides when: that is `sched`.

mod capabilities;
pub mod conformance;
mod cpu;
mod device;
mod exec;

pub use capabilities::{Capabilities, Surrounding};
pub use cpu::{CpuDevice, CpuError, online_cores};
pub use device::{
    Buffer, Device, DeviceInfo, EngineError, PartitionInfo, Poll, Program, Queue, Residency, SegmentInfo,
    Staged, State, TensorSpec, Ticket,
};
pub use exec::{Progress, Run};
