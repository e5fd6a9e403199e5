//! Facts about the cluster.

use super::{JobId, JobSpec, NodeId, NodeSpec, Real};
use serde::{Deserialize, Serialize};
use vocab::{ModelId, Span, Time};

/// A fact about the cluster, in the past tense.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// A node can run jobs. A node that was lost comes back under its number.
    NodeAdded {
        /// Its resources.
        spec: NodeSpec,
    },
    /// A node is gone; jobs on it wait again.
    NodeLost {
        /// The node.
        node: NodeId,
    },
    /// A job was submitted.
    JobArrived {
        /// The job.
        spec: JobSpec,
    },
    /// The user took a job back.
    JobCancelled {
        /// The job.
        job: JobId,
    },
    /// A job runs, as ordered.
    JobStarted {
        /// The job.
        job: JobId,
        /// Since when.
        at: Time,
    },
    /// A job stopped, as ordered; its progress is kept.
    JobStopped {
        /// The job.
        job: JobId,
    },
    /// A job failed and will have to be started again.
    JobFailed {
        /// The job.
        job: JobId,
    },
    /// What is believed to be left of a job.
    JobProgressed {
        /// The job.
        job: JobId,
        /// Time alone on its GPUs.
        left: Span,
    },
    /// Steps believed to be left of a job.
    StepsCounted {
        /// The job.
        job: JobId,
        /// The steps.
        left: u64,
    },
    /// How fast a job would be by GPUs, on as few nodes as they fill.
    SpeedMeasured {
        /// The job.
        job: JobId,
        /// Time of a step, or of a step's worth of progress, on 1, 2, … GPUs; at most as many as it can use.
        steps: Vec<Span>,
    },
    /// A job did its part of a round.
    RoundDone {
        /// The job.
        job: JobId,
        /// In so much time, in s.
        took: Real,
    },
    /// A round ended.
    RoundEnded {
        /// When, in s.
        at: Real,
    },
    /// How fast a job is on each kind of GPU.
    RatesMeasured {
        /// The job.
        job: JobId,
        /// Steps in a million seconds, by kind; 0 where it does not fit.
        micro: Vec<u64>,
    },
    /// What a [`Decision::Replan`](super::Decision::Replan) asked for.
    PlanReady {
        /// The number of the question.
        number: u64,
        /// Shares of time by job and kind of node, in the order they were asked for; for [`Goal::Speed`](super::Goal), CPUs in
        /// thousandths and bytes of memory over all of a job's GPUs.
        shares: Vec<(JobId, Vec<Real>)>,
        /// Shares of time in which two jobs are on the same GPUs.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pairs: Vec<PairShares>,
    },
    /// A job is done.
    JobFinished {
        /// The job.
        job: JobId,
    },
    /// Another policy decides from now on. It meets every job that is there as if it had just come; leases and plans of the
    /// one before are void.
    PolicyChanged,
    /// A model was seen beside another on the same GPU.
    PairMeasured {
        /// The model that was slowed.
        model: ModelId,
        /// The model beside it.
        beside: ModelId,
        /// Its time over its time alone, in thousandths; at least 1000.
        slowdown_milli: u32,
    },
}

/// Shares of time, by kind of node, in which two jobs are on the same GPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairShares {
    /// The jobs, of gangs as large as each other.
    pub jobs: (JobId, JobId),
    /// The shares.
    pub shares: Vec<Real>,
}
