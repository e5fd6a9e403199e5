//! The CPU backend: every segment is a tract plan, weights stay constants, partitions are sets of cores.

mod buffer;
mod program;
mod queue;

use crate::{
    Buffer, Capabilities, Device, DeviceInfo, EngineError, PartitionInfo, Program, Queue, Surrounding,
    TensorSpec,
};
use buffer::CpuBuffer;
use graph::{Graph, Segment};
use program::CpuProgram;
use queue::CpuQueue;
use std::collections::BTreeSet;
use std::sync::Arc;
use vocab::{Bytes, PartitionId};

/// The processor, shared out as sets of cores.
#[derive(Debug)]
pub struct CpuDevice {
    info: DeviceInfo,
    partitions: Vec<PartitionInfo>,
    cores: Vec<Vec<usize>>,
    overlap: u32,
}

/// Why core sets cannot be partitions.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CpuError {
    /// A partition without a core, or no partition.
    #[error("partition {0} has no core")]
    Empty(usize),
    /// A core this machine does not let us use.
    #[error("core {core} of partition {partition} is not available; available are {available:?}")]
    NoCore {
        /// The partition's place in the list.
        partition: usize,
        /// The core.
        core: usize,
        /// What there is.
        available: Vec<usize>,
    },
    /// A core in two partitions.
    #[error("core {core} is in two partitions; allow overlapping partitions, or give a core to one only")]
    Shared {
        /// The core.
        core: usize,
    },
    /// Cores of a partition that overlaps others, with a gap.
    #[error(
        "partition {partition} leaves out cores between its first and last; overlapping partitions are ranges of cores"
    )]
    Gap {
        /// The partition's place in the list.
        partition: usize,
    },
    /// The operating system did not say which cores there are.
    #[error("the cores of this machine cannot be listed: {0}")]
    Unknown(String),
}

/// Cores this process may use, ascending.
///
/// # Errors
/// When the operating system does not say.
pub fn online_cores() -> Result<Vec<usize>, CpuError> {
    let own = nix::unistd::Pid::from_raw(0);
    let set = nix::sched::sched_getaffinity(own).map_err(|errno| CpuError::Unknown(errno.to_string()))?;
    Ok((0..nix::sched::CpuSet::count()).filter(|core| set.is_set(*core).unwrap_or(false)).collect())
}

impl CpuDevice {
    /// A CPU whose partitions are these sets of cores.
    ///
    /// # Errors
    /// When a set is empty, overlaps another, or names a core this process may not use.
    pub fn with_cores(cores: Vec<Vec<usize>>) -> Result<Self, CpuError> {
        Self::with_sets(cores, None)
    }

    /// A CPU whose partitions are these ranges of cores, which may overlap: up to `overlap` runs share a core at once.
    ///
    /// # Errors
    /// When a range is empty, has a gap, or names a core this process may not use.
    pub fn with_overlapping_cores(cores: Vec<Vec<usize>>, overlap: u32) -> Result<Self, CpuError> {
        Self::with_sets(cores, Some(overlap.max(1)))
    }

    fn with_sets(cores: Vec<Vec<usize>>, overlap: Option<u32>) -> Result<Self, CpuError> {
        let available = online_cores()?;
        let mut taken = BTreeSet::new();
        if cores.is_empty() {
            return Err(CpuError::Empty(0));
        }
        for (partition, set) in cores.iter().enumerate() {
            if set.is_empty() {
                return Err(CpuError::Empty(partition));
            }
            for core in set {
                if !available.contains(core) {
                    return Err(CpuError::NoCore { partition, core: *core, available });
                }
                if !taken.insert(*core) && overlap.is_none() {
                    return Err(CpuError::Shared { core: *core });
                }
            }
        }
        // Units of overlapping ranges are their cores in ascending order, those of disjoint sets follow each other.
        let mut firsts = Vec::with_capacity(cores.len());
        let mut next = 0;
        for (partition, set) in cores.iter().enumerate() {
            if overlap.is_some() {
                next = taken.iter().position(|core| set.iter().min() == Some(core)).unwrap_or(0);
                if set.iter().collect::<BTreeSet<_>>() != taken.iter().skip(next).take(set.len()).collect() {
                    return Err(CpuError::Gap { partition });
                }
            }
            firsts.push(next);
            next += set.len();
        }
        let small = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let partition = |(id, (set, first)): (u16, (&Vec<usize>, &usize))| PartitionInfo {
            id: PartitionId(id),
            name: format!("cpu {}", set.iter().map(usize::to_string).collect::<Vec<_>>().join(",")),
            first: small(*first),
            units: small(set.len()),
        };
        let partitions = (0u16..).zip(cores.iter().zip(&firsts)).map(partition).collect();
        let surroundings =
            vec![Surrounding { others: "other processes", capabilities: Capabilities::FAULTS }];
        let info = DeviceInfo {
            kind: "cpu".into(),
            memory: memory(),
            capabilities: Capabilities::COMPUTE,
            surroundings,
        };
        Ok(Self { info, partitions, cores, overlap: overlap.unwrap_or(1) })
    }

    /// A CPU with one partition of every core this process may use.
    ///
    /// # Errors
    /// When the operating system does not list the cores.
    pub fn whole() -> Result<Self, CpuError> {
        Self::with_cores(vec![online_cores()?])
    }
}

/// Memory of the machine; zero when it cannot be read.
fn memory() -> Bytes {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total.and_then(|rest| rest.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    Bytes(kib.unwrap_or(0).saturating_mul(1_024))
}

impl Device for CpuDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn partitions(&self) -> &[PartitionInfo] {
        &self.partitions
    }

    fn overlap(&self) -> u32 {
        self.overlap
    }

    fn buffer(&self, spec: &TensorSpec) -> Result<Box<dyn Buffer>, EngineError> {
        Ok(Box::new(CpuBuffer::zeroed(spec)?))
    }

    fn prepare(&self, graph: &Graph, segments: &[Segment]) -> Result<Arc<dyn Program>, EngineError> {
        Ok(Arc::new(CpuProgram::new(graph, segments)?))
    }

    fn open(&self, partition: PartitionId) -> Result<Box<dyn Queue>, EngineError> {
        let Some(cores) = self.cores.get(usize::from(partition.0)) else {
            let (device, available) = (self.info.kind.clone(), self.cores.len());
            return Err(EngineError::NoPartition { device, partition, available });
        };
        Ok(Box::new(CpuQueue::open(partition, cores)?))
    }
}
