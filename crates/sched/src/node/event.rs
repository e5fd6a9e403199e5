//! Facts about a node.

use super::{BucketCost, Part, PartCosts, Rule, WeightGroup};
use serde::{Deserialize, Serialize};
use vocab::{Bytes, Class, DeviceId, ModelId, PartitionId, Request, RequestId, RunId, Span};

/// A fact about the node, in the past tense.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// A partition can take runs.
    PartitionAdded {
        /// The partition.
        partition: PartitionId,
        /// Its name for people.
        name: String,
    },
    /// A model can be asked on every partition.
    ModelAdded {
        /// What scheduling needs to know of it.
        spec: ModelSpec,
    },
    /// A model takes no new requests; those waiting are rejected, those running finish.
    ModelRemoved {
        /// The model.
        model: ModelId,
    },
    /// A request arrived.
    RequestArrived {
        /// The request.
        request: Request,
    },
    /// The client of a request left.
    RequestCancelled {
        /// The request.
        request: RequestId,
    },
    /// A run's first segment was launched.
    RunStarted {
        /// The run.
        run: RunId,
    },
    /// A run stopped at a segment edge with its state kept, as ordered.
    RunParked {
        /// The run.
        run: RunId,
        /// The segment it will go on with.
        next_segment: u32,
        /// Device time of each segment since it last started.
        segments: Vec<Span>,
    },
    /// A parked run goes on.
    RunResumed {
        /// The run.
        run: RunId,
    },
    /// A run finished; its requests are answered.
    RunFinished {
        /// The run.
        run: RunId,
        /// Device time of each segment since it last started.
        segments: Vec<Span>,
    },
    /// A run was given up, as ordered.
    RunAbandoned {
        /// The run.
        run: RunId,
    },
    /// A run was not begun because its window had closed; its requests wait again.
    RunRefused {
        /// The run.
        run: RunId,
    },
    /// The device or the model failed; the run's requests failed.
    RunFailed {
        /// The run.
        run: RunId,
        /// What failed.
        why: String,
    },
    /// Partitions share the memory of a device. Without this fact a partition has every model at hand.
    DeviceAdded {
        /// The device.
        device: DeviceId,
        /// Its name for people.
        name: String,
        /// Bytes it has for weights: what activations and the driver need is not counted.
        memory: Bytes,
        /// Its partitions, whether they were added before or will be.
        partitions: Vec<PartitionId>,
    },
    /// A model's weights lie in the host's memory, ready to travel. Without this fact they are always at hand.
    WeightsStored {
        /// The model, added before.
        model: ModelId,
        /// Its transfer groups in the order they travel.
        groups: Vec<WeightGroup>,
    },
    /// The first groups of a model's weights are on a device, as ordered; when they are all, the load has ended.
    GroupsArrived {
        /// The model.
        model: ModelId,
        /// The device.
        device: DeviceId,
        /// How many are there now.
        groups: u32,
    },
    /// A load was given up; groups that had arrived stay. Runs that wait for the others have failed before.
    LoadFailed {
        /// The model.
        model: ModelId,
        /// The device.
        device: DeviceId,
        /// What failed.
        why: String,
    },
    /// A model's weights have left a device as far as ordered, or altogether when nobody ordered it.
    ModelEvicted {
        /// The model.
        model: ModelId,
        /// The device.
        device: DeviceId,
    },
    /// Partitions are parts of one device. Without this fact they are disjoint, and each is a device's whole.
    PartsShared {
        /// Units of the device.
        units: u32,
        /// Runs that a unit may bear at once; at least 1.
        overlap: u32,
        /// Its partitions, and which of its units each is.
        parts: Vec<(PartitionId, Part)>,
    },
    /// Constraints between tenants; they replace those known.
    RulesSet {
        /// All of them.
        rules: Vec<Rule>,
    },
    /// A timer fired; nothing else happened.
    Woke,
}

/// What scheduling needs to know of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelSpec {
    /// Its number.
    pub id: ModelId,
    /// Its name for people.
    pub name: String,
    /// Class of requests that name none.
    pub class: Class,
    /// Most rows in one run; at least 1.
    pub batch_max: u32,
    /// A batch that is not full may wait this long for more rows.
    #[serde(default)]
    pub queue_delay: Span,
    /// Most requests that may wait; 0 is no bound beyond the driver's own.
    #[serde(default)]
    pub queue_max: u32,
    /// Believed cost by batch bucket, ascending; at least one.
    pub costs: Vec<BucketCost>,
    /// Believed cost on parts of the device.
    #[serde(default, skip_serializing_if = "PartCosts::is_empty")]
    pub parts: PartCosts,
    /// What its tenant is promised.
    #[serde(default, skip_serializing_if = "Promise::is_none")]
    pub promise: Promise,
}

/// What a tenant is promised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Promise {
    /// Answers are due so long after arrival, unless a request says otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Span>,
    /// Requests come so far apart: a periodic task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period: Option<Span>,
}

impl Promise {
    /// Whether nothing is promised.
    #[must_use]
    pub const fn is_none(&self) -> bool {
        self.deadline.is_none() && self.period.is_none()
    }
}
