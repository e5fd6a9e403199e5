//! Choices for the cluster.

use super::{Grant, JobId};
use serde::{Deserialize, Serialize};
use vocab::Time;

/// A choice for the cluster, in the imperative. A driver carries them out in order: a start on GPUs that a stop gives up
/// waits for that stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Decision {
    /// Start a waiting job, or go on with a stopped one.
    Start {
        /// The job.
        job: JobId,
        /// What it gets.
        grant: Grant,
        /// When its right to run ends, if it does.
        lease: Option<Time>,
    },
    /// Stop a job and keep its progress.
    Stop {
        /// The job.
        job: JobId,
    },
    /// Give running jobs other grants, all at once: what they hold now is free for each other. A job that keeps its GPUs
    /// is retuned (CPUs, memory, sub-batches); one that does not is moved.
    Regrant {
        /// Each job once.
        changes: Vec<Regrant>,
    },
    /// Let a job run on.
    Extend {
        /// The job.
        job: JobId,
        /// Until then.
        until: Time,
    },
}

/// A running job's new grant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Regrant {
    /// The job.
    pub job: JobId,
    /// What it holds from now on.
    pub grant: Grant,
}
