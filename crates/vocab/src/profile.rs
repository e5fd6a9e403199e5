//! Measured costs of one model on one kind of device: what the simulator runs on and what policies believe.

use crate::{Bytes, Span};
use serde::{Deserialize, Serialize};

/// Measured costs of a model on a device kind. Written by `raddle profile`, read by the simulator and the server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// The model's name.
    pub model: String,
    /// The device kind it was measured on, for example `cpu` or `NVIDIA H200`.
    pub device: String,
    /// Static facts of each segment, in execution order.
    pub segments: Vec<SegmentProfile>,
    /// Measured times, one entry a batch bucket, in ascending order of batch.
    pub batches: Vec<BatchProfile>,
    /// What bringing the model to the device costs, where it has memory of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch: Option<SwitchProfile>,
    /// What it costs on parts of the device: `raddle profile --spatial`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spatial: Option<SpatialProfile>,
}

/// Measured times on parts of a device. `batches` of the profile are those of the whole device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpatialProfile {
    /// Units of the whole device: streaming multiprocessors of a GPU, cores of a CPU.
    pub units: u32,
    /// Times on smaller parts, ascending by units; each with the buckets of the profile.
    pub shares: Vec<ShareProfile>,
}

/// Measured times on a part of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShareProfile {
    /// Units of the part.
    pub units: u32,
    /// Measured times, one entry a batch bucket, as in the profile.
    pub batches: Vec<BatchProfile>,
}

/// What bringing a model's weights to a device costs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwitchProfile {
    /// Time a transfer takes beside its bytes, in nanoseconds.
    pub transfer_latency_ns: Span,
    /// Bandwidth of long transfers from pinned memory, bytes a second.
    pub transfer_bytes_per_s: f64,
    /// Time between two groups' computations that one launch would not need, in nanoseconds.
    pub launch_gap_ns: Span,
    /// Bytes of device memory that the weights take, padding included.
    pub weight_bytes: Bytes,
    /// Bytes of device memory that the largest batch bucket needs beside the weights.
    pub arena_bytes: Bytes,
    /// Transfer groups in the order they travel; every segment with weights is one where none is listed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupProfile>,
}

/// Weights that travel together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupProfile {
    /// The first segment that needs them.
    pub first_segment: u32,
    /// Their bytes in device memory, padding included.
    pub bytes: Bytes,
}

/// What a segment holds and does for one row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SegmentProfile {
    /// Name of its first layer.
    pub name: String,
    /// Floating-point operations for a batch of one (a multiply-add counts two).
    pub flops: u64,
    /// Bytes of its weights.
    pub weight_bytes: Bytes,
    /// Bytes of the values alive at its end for a batch of one.
    pub activation_bytes: Bytes,
}

/// Measured time of each segment at one batch bucket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchProfile {
    /// Rows in the bucket.
    pub batch: u32,
    /// Median time of each segment, in nanoseconds, in execution order.
    pub segment_ns: Vec<Span>,
}

/// Why a profile cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProfileError {
    /// No batch bucket at all, or no segment.
    Empty,
    /// A bucket lists a different number of segments than the profile.
    SegmentCount {
        /// The bucket.
        batch: u32,
        /// Segments it lists.
        found: usize,
        /// Segments of the profile.
        expected: usize,
    },
    /// Buckets are not strictly ascending from at least 1.
    Order {
        /// The first bucket out of order.
        batch: u32,
    },
    /// A bucket takes no time at all.
    NoTime {
        /// The bucket.
        batch: u32,
    },
    /// The link's bandwidth is not a positive number.
    Bandwidth,
    /// Transfer groups do not begin at ascending segments of the model.
    Groups {
        /// The first segment out of order.
        first_segment: u32,
    },
    /// Parts are not strictly ascending, from at least 1 unit to fewer than the whole device has.
    Units {
        /// The first part out of order.
        units: u32,
    },
    /// A part was not measured at the profile's batches.
    Hole {
        /// The part.
        units: u32,
    },
}

impl std::fmt::Display for ProfileError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Empty => {
                f.write_str("the profile has no segment or no batch; measure it with `raddle profile`")
            }
            Self::SegmentCount { batch, found, expected } => {
                write!(f, "batch {batch} lists {found} segment times, the profile has {expected} segments")
            }
            Self::Order { batch } => {
                write!(f, "batch {batch} is out of order; list batches ascending from 1")
            }
            Self::NoTime { batch } => write!(f, "batch {batch} takes no time; measure it again"),
            Self::Bandwidth => f.write_str("the link carries nothing; measure its bandwidth again"),
            Self::Groups { first_segment } => {
                write!(
                    f,
                    "the transfer group of segment {first_segment} is out of order or beyond the last segment"
                )
            }
            Self::Units { units } => {
                write!(
                    f,
                    "the part of {units} units is out of order; list parts ascending, below the whole device"
                )
            }
            Self::Hole { units } => write!(
                f,
                "the part of {units} units lacks a batch or a segment of the profile; measure it again with `raddle \
                 profile --spatial`"
            ),
        }
    }
}

impl std::error::Error for ProfileError {}

impl Profile {
    /// Checks that the profile can be used; every other method assumes it.
    ///
    /// # Errors
    /// The first fault found.
    pub fn check(&self) -> Result<(), ProfileError> {
        if self.segments.is_empty() || self.batches.is_empty() {
            return Err(ProfileError::Empty);
        }
        check_batches(&self.batches, self.segments.len())?;
        if let Some(spatial) = &self.spatial {
            spatial.check(&self.batches, self.segments.len())?;
        }
        self.switch.as_ref().map_or(Ok(()), |switch| switch.check(self.segments.len()))
    }

    /// The bucket that serves `rows`: the smallest that holds them, or the largest there is.
    ///
    /// # Panics
    /// When the profile has no bucket, which [`Profile::check`] excludes.
    #[must_use]
    pub fn bucket(&self, rows: u32) -> &BatchProfile {
        let at = self.batches.partition_point(|bucket| bucket.batch < rows);
        self.batches.get(at).or(self.batches.last()).expect("a checked profile has a bucket")
    }

    /// The largest bucket's rows.
    #[must_use]
    pub fn batch_max(&self) -> u32 {
        self.batches.last().map_or(1, |bucket| bucket.batch)
    }

    /// Bytes of all weights.
    #[must_use]
    pub fn weight_bytes(&self) -> Bytes {
        self.segments.iter().map(|segment| segment.weight_bytes).sum()
    }
}

fn check_batches(batches: &[BatchProfile], expected: usize) -> Result<(), ProfileError> {
    let mut previous = 0;
    for bucket in batches {
        let batch = bucket.batch;
        if batch <= previous {
            return Err(ProfileError::Order { batch });
        }
        previous = batch;
        let found = bucket.segment_ns.len();
        if found != expected {
            return Err(ProfileError::SegmentCount { batch, found, expected });
        }
        if bucket.total() == Span::ZERO {
            return Err(ProfileError::NoTime { batch });
        }
    }
    Ok(())
}

impl SpatialProfile {
    /// Checks it against the batches and the number of segments of its profile.
    fn check(&self, whole: &[BatchProfile], segments: usize) -> Result<(), ProfileError> {
        let mut previous = 0;
        for ShareProfile { units, batches } in &self.shares {
            let units = *units;
            if units <= previous || units >= self.units {
                return Err(ProfileError::Units { units });
            }
            previous = units;
            check_batches(batches, segments)?;
            if !batches.iter().map(|b| b.batch).eq(whole.iter().map(|b| b.batch)) {
                return Err(ProfileError::Hole { units });
            }
        }
        Ok(())
    }
}

impl SwitchProfile {
    /// Checks it against a model of `segments` segments.
    fn check(&self, segments: usize) -> Result<(), ProfileError> {
        if !(self.transfer_bytes_per_s.is_finite() && self.transfer_bytes_per_s > 0.0) {
            return Err(ProfileError::Bandwidth);
        }
        let mut after = None;
        for GroupProfile { first_segment, .. } in self.groups.iter().copied() {
            if after >= Some(first_segment) || usize::try_from(first_segment).is_ok_and(|at| at >= segments) {
                return Err(ProfileError::Groups { first_segment });
            }
            after = Some(first_segment);
        }
        Ok(())
    }
}

impl BatchProfile {
    /// Time of the whole model at this bucket.
    #[must_use]
    pub fn total(&self) -> Span {
        self.segment_ns.iter().copied().sum()
    }

    /// Time of its longest segment: the longest wait for an edge.
    #[must_use]
    pub fn longest_segment(&self) -> Span {
        self.segment_ns.iter().copied().max().unwrap_or(Span::ZERO)
    }
}
