//! What a backend is: a device with partitions, buffers, programs and queues.

use crate::{Capabilities, Surrounding};
use graph::{DType, Graph, HostTensor, Segment};
use std::any::Any;
use std::fmt;
use std::sync::Arc;
use vocab::{Bytes, PartitionId, Span};

/// A device that can run programs. Shared by every thread.
pub trait Device: Send + Sync {
    /// What it is.
    fn info(&self) -> &DeviceInfo;

    /// Its partitions, fixed when it was opened.
    fn partitions(&self) -> &[PartitionInfo];

    /// Compute units that all partitions together cover.
    fn units(&self) -> u32 {
        self.partitions().iter().map(|part| part.first + part.units).max().unwrap_or(0)
    }

    /// Runs that one unit may bear at once, where partitions have units in common.
    fn overlap(&self) -> u32 {
        1
    }

    /// A zeroed buffer for one tensor.
    ///
    /// # Errors
    /// When the device has no room.
    fn buffer(&self, spec: &TensorSpec) -> Result<Box<dyn Buffer>, EngineError>;

    /// Puts a request's rows of one input where runs fetch them from by themselves, so that nothing is copied on the host
    /// when a run begins. `None` where that gains nothing, or while there is no room.
    fn stage(&self, _rows: &HostTensor) -> Option<Arc<dyn Staged>> {
        None
    }

    /// The element type in which programs of this device give an output that the file calls `dtype`.
    fn delivers(&self, dtype: DType) -> DType {
        dtype
    }

    /// Makes a program of `graph`, cut into `segments` (contiguous, in order, covering every layer).
    ///
    /// # Errors
    /// When the device cannot run the graph.
    fn prepare(&self, graph: &Graph, segments: &[Segment]) -> Result<Arc<dyn Program>, EngineError>;

    /// Segments of a run worth launching ahead: 1 where a launch returns when it is over.
    fn ahead(&self) -> usize {
        1
    }

    /// How long a segment should keep the device at most, where cuts by operations say little about time.
    fn segment_target(&self) -> Option<Span> {
        None
    }

    /// Memory for weights that may come and go: free, and in all. `None` where weights always lie beside programs.
    fn weight_memory(&self) -> Option<(Bytes, Bytes)> {
        None
    }

    /// Opens the queue of a partition. To be called on the thread that will use it, once a partition.
    ///
    /// # Errors
    /// When there is no such partition or it cannot be had; it is never silently replaced by another.
    fn open(&self, partition: PartitionId) -> Result<Box<dyn Queue>, EngineError>;
}

/// What a device is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Its kind, as profiles name it: `cpu`, `NVIDIA H200`.
    pub kind: String,
    /// Memory it has for programs and runs.
    pub memory: Bytes,
    /// What its partitions are isolated from each other in, and what they share all the same.
    pub capabilities: Capabilities,
    /// Who else is on its hardware, the nearest first.
    pub surroundings: Vec<Surrounding>,
}

/// A fixed part of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionInfo {
    /// Its number.
    pub id: PartitionId,
    /// Its name for people.
    pub name: String,
    /// The first of its compute units among those of its device.
    pub first: u32,
    /// Compute units it holds (cores, SMs).
    pub units: u32,
}

impl PartitionInfo {
    /// Whether both have a unit of their device in common.
    #[must_use]
    pub const fn meets(&self, other: &Self) -> bool {
        self.first < other.first + other.units && other.first < self.first + self.units
    }

    /// The two largest of `parts` that have no unit in common; or, `shared`, that are the same, else that have some. Of
    /// equals the first.
    #[must_use]
    pub fn two(parts: &[Self], shared: bool) -> Option<(&Self, &Self)> {
        let pairs = || (0..parts.len()).flat_map(|b| (0..b).map(move |a| (&parts[a], &parts[b])));
        let same = |a: &Self, b: &Self| (a.first, a.units) == (b.first, b.units);
        let largest = |wanted: &dyn Fn(&Self, &Self) -> bool| {
            let fitting = pairs().filter(|(a, b)| wanted(a, b));
            fitting.min_by_key(|(a, b)| std::cmp::Reverse(a.units.min(b.units)))
        };
        if shared { largest(&same).or_else(|| largest(&Self::meets)) } else { largest(&|a, b| !a.meets(b)) }
    }
}

/// Element type and shape of one tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    /// Its name in the model.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Dimensions, outermost first.
    pub shape: Vec<usize>,
}

impl TensorSpec {
    /// Bytes it takes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shape.iter().product::<usize>() * self.dtype.size()
    }

    /// Whether it has no element.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Memory for one tensor where a queue can reach it.
pub trait Buffer: Send {
    /// Element type and shape.
    fn spec(&self) -> &TensorSpec;

    /// Copies `bytes` in at byte `offset`.
    ///
    /// # Errors
    /// When they do not fit.
    fn write(&mut self, offset: usize, bytes: &[u8]) -> Result<(), EngineError>;

    /// Copies bytes from `offset` on into `bytes`.
    ///
    /// # Errors
    /// When there are not as many.
    fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<(), EngineError>;

    /// For its own backend only.
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
}

/// A request's rows of one input, staged by [`Device::stage`]. Its room is given back when the last owner drops it. Runs on
/// other devices of the same backend take them too.
pub trait Staged: Any + Send + Sync {
    /// The rows, for who needs them on the host after all.
    fn bytes(&self) -> &[u8];
}

/// A model prepared for one device at one batch size. Shared by every run of it.
pub trait Program: Send + Sync {
    /// What a run takes, in the model's order.
    fn inputs(&self) -> &[TensorSpec];

    /// What a run gives, in the model's order.
    fn outputs(&self) -> &[TensorSpec];

    /// Its segments, in order; never empty.
    fn segments(&self) -> &[SegmentInfo];

    /// A run's beginning: its inputs, nothing computed yet.
    ///
    /// # Errors
    /// When the inputs are not the program's.
    fn begin(&self, inputs: Vec<Box<dyn Buffer>>) -> Result<Box<dyn State>, EngineError>;

    /// The same for inputs that lie staged: for each, the rows of several requests in turn. Rows left over are zero.
    ///
    /// # Errors
    /// When they are not the program's, or the device stages nothing.
    fn begin_staged(&self, _rows: Vec<Vec<Arc<dyn Staged>>>) -> Result<Box<dyn State>, EngineError> {
        Err(EngineError::Order { act: "begin with staged rows", state: "of a device that stages none" })
    }

    /// A finished run's outputs, in order.
    ///
    /// # Errors
    /// When the run has not finished.
    fn finish(&self, state: Box<dyn State>) -> Result<Vec<Box<dyn Buffer>>, EngineError>;

    /// Its weights, where they may be away from the device; `None` where they always lie beside the program.
    fn weights(&self) -> Option<Arc<dyn Residency>> {
        None
    }

    /// Device memory that a run takes beside the weights; nothing where runs take ordinary memory as they go.
    fn run_memory(&self) -> Bytes {
        Bytes(0)
    }

    /// Bytes of its weights, from the beginning, that each segment needs; empty where they always lie beside the program.
    fn needs(&self) -> Vec<Bytes> {
        Vec::new()
    }

    /// For its own backend only.
    fn as_any(&self) -> &dyn Any;
}

/// Weights that come to a device and leave it. Programs of one model at several batches share them.
pub trait Residency: Send + Sync {
    /// Bytes of all, in the order in which segments need them.
    fn bytes(&self) -> Bytes;

    /// Device memory they take, group by group in the order they travel: what may come or go alone.
    fn groups(&self) -> Vec<Bytes>;

    /// The same for programs that share weights, and for no others.
    fn identity(&self) -> usize;

    /// Bytes, from the beginning, that are on the device or on their way.
    fn loaded(&self) -> Bytes;

    /// Whether everything has arrived.
    ///
    /// # Errors
    /// When a transfer failed.
    fn is_resident(&self) -> Result<bool, EngineError>;

    /// From now on loads that name no groups travel in groups that end at these bytes.
    fn plan(&self, _groups: &[Bytes]) {}

    /// Begins to bring what is missing, in groups that end at these bytes, or as planned, and returns at once. Runs may begin:
    /// each of their segments waits on the device for what it needs. A launch loads by itself what nobody has loaded.
    ///
    /// # Errors
    /// When device memory does not suffice, with the numbers.
    fn load(&self, groups: &[Bytes]) -> Result<(), EngineError>;

    /// The same from another device's whole copy of the same weights. False where this device cannot read that one's memory
    /// or the copy is not whole; nothing has begun then.
    ///
    /// # Errors
    /// When device memory does not suffice, with the numbers.
    fn load_from(&self, _source: &dyn Residency) -> Result<bool, EngineError> {
        Ok(false)
    }

    /// Gives device memory back, all but the first `kept` bytes; waits for copies to other devices that read them.
    ///
    /// # Errors
    /// When a run is alive that uses them.
    fn evict(&self, kept: Bytes) -> Result<(), EngineError>;

    /// For its own backend only.
    fn as_any(&self) -> &dyn Any;
}

/// A segment as runs see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Name of its first layer.
    pub name: String,
    /// Floating-point operations.
    pub flops: u64,
    /// Bytes of its weights.
    pub weight_bytes: Bytes,
    /// Bytes alive at its end.
    pub activation_bytes: Bytes,
}

/// Values alive between two segments of one run.
pub trait State: Send {
    /// For its own backend only.
    fn as_any(&mut self) -> &mut dyn Any;

    /// For its own backend only.
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
}

/// An ordered stream of launches on one partition. Stays on the thread that opened it.
pub trait Queue {
    /// Its partition.
    fn partition(&self) -> PartitionId;

    /// Launches one segment of a run. May return before it is over; launches are done in order.
    ///
    /// # Errors
    /// When it cannot be launched; the run is lost then.
    fn launch(
        &mut self,
        program: &dyn Program,
        segment: usize,
        state: &mut dyn State,
    ) -> Result<Ticket, EngineError>;

    /// Does now what the first launch of a run would otherwise have to: capturing, for example. With `moves` also for runs
    /// that began on another partition.
    ///
    /// # Errors
    /// When the device refuses.
    fn warm(&mut self, _program: &dyn Program, _moves: bool) -> Result<(), EngineError> {
        Ok(())
    }

    /// Whether a launch is over. Never blocks.
    ///
    /// # Errors
    /// When the segment failed; the run is lost then.
    fn poll(&mut self, ticket: Ticket) -> Result<Poll, EngineError>;

    /// Waits until a launch is over; gives its device time.
    ///
    /// # Errors
    /// When the segment failed; the run is lost then.
    fn wait(&mut self, ticket: Ticket) -> Result<Span, EngineError>;
}

/// Names one launch of one queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// Whether a launch is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Poll {
    /// Not yet.
    Pending,
    /// Over, after this device time.
    Over(Span),
}

/// What can go wrong on a device.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// No such partition on this device.
    #[error("device {device} has no partition {partition}; it has {available}")]
    NoPartition {
        /// The device.
        device: String,
        /// What was asked for.
        partition: PartitionId,
        /// How many there are.
        available: usize,
    },
    /// The partition exists but cannot be had.
    #[error("partition {partition} cannot be opened: {why}")]
    Unavailable {
        /// The partition.
        partition: PartitionId,
        /// Why.
        why: String,
    },
    /// Layers this device cannot run, all of them.
    #[error("device {device} cannot run {}: {}", names.len(), names.join(", "))]
    Unsupported {
        /// The device.
        device: String,
        /// The layers with their operators.
        names: Vec<String>,
    },
    /// Preparing a segment failed.
    #[error("segment {segment} of {model:?} cannot be prepared: {why}")]
    Prepare {
        /// The model.
        model: String,
        /// The segment's first layer.
        segment: String,
        /// Why.
        why: String,
    },
    /// A segment failed while running.
    #[error("segment {segment} failed: {why}")]
    Execute {
        /// The segment's first layer.
        segment: String,
        /// Why.
        why: String,
    },
    /// A tensor of the wrong type or shape, or too few or many of them.
    #[error("{what}: expected {expected}, got {found}")]
    Mismatch {
        /// What.
        what: String,
        /// What it must be.
        expected: String,
        /// What it is.
        found: String,
    },
    /// Weights cannot come or go.
    #[error("weights of {model:?} cannot be moved: {why}")]
    Residency {
        /// The model.
        model: String,
        /// Why, with the numbers.
        why: String,
    },
    /// The call does not fit the run's state.
    #[error("the run cannot {act} while it is {state}")]
    Order {
        /// What was asked.
        act: &'static str,
        /// Where the run stands.
        state: &'static str,
    },
}

impl fmt::Display for TensorSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{} {}{:?}", self.name, self.dtype, self.shape))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(all: &[(u32, u32)]) -> Vec<PartitionInfo> {
        let part = |(id, (first, units)): (u16, &(u32, u32))| PartitionInfo {
            id: PartitionId(id),
            name: String::new(),
            first: *first,
            units: *units,
        };
        (0..).zip(all).map(part).collect()
    }

    fn found(all: &[(u32, u32)], shared: bool) -> Option<(u16, u16)> {
        PartitionInfo::two(&parts(all), shared).map(|(a, b)| (a.id.0, b.id.0))
    }

    #[test]
    fn neighbours_are_the_largest_parts_there_are() {
        let grid = [(0, 6), (0, 4), (2, 4), (0, 2), (2, 2), (4, 2)];
        assert_eq!(found(&grid, false), Some((2, 3)));
        assert_eq!(found(&[(0, 8), (0, 4), (4, 4)], false), Some((1, 2)));
        assert_eq!(found(&[(0, 8), (0, 8), (0, 6), (0, 4), (4, 4), (6, 2)], false), Some((3, 4)));
        assert_eq!(found(&[(0, 8), (0, 8)], false), None);
        assert_eq!(found(&[(0, 8), (0, 8), (0, 4)], true), Some((0, 1)));
        assert_eq!(
            found(&[(0, 8), (0, 4), (4, 4), (4, 4)], true),
            Some((2, 3)),
            "the same before the larger"
        );
        assert_eq!(found(&[(0, 4), (4, 4)], true), None);
        assert_eq!(found(&[(0, 5), (3, 5)], true), Some((0, 1)));
    }
}
