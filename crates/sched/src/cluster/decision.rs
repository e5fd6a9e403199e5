//! Choices for the cluster.

use super::policy::themis::Trail;
use super::{Grant, JobId};
use serde::{Deserialize, Serialize};
use vocab::{Span, Time};

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
    /// Keep the trail of an auction in the journal; nothing changes.
    Record {
        /// Who bid, won and paid.
        trail: Trail,
    },
    /// Ask the driver to work out shares of time; the answer comes as [`Event::PlanReady`](super::Event::PlanReady).
    Replan {
        /// The number of the question.
        number: u64,
        /// What is to be best.
        goal: Goal,
        /// Whether two jobs may share GPUs.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        packed: bool,
        /// The jobs to share out among.
        jobs: Vec<Claim>,
    },
}

/// What a plan of shares makes best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Goal {
    /// The smallest of the jobs' throughputs, each over that of an even split (Gavel's LAS).
    MaxMin,
    /// The same as if all kinds of GPU were alike.
    MaxMinAlike,
    /// The largest of the jobs' finish times, each over that alone on an even part.
    FinishTimeFairness,
    /// The last end.
    Makespan,
    /// The last end as if all kinds of GPU were alike.
    MakespanAlike,
    /// The sum of the jobs' speeds, by the CPUs and memory beside their GPUs (Synergy's OPT).
    Speed,
    /// Nothing: each job gets an even part of every kind (Gavel's "isolated").
    Isolated,
}

/// A job's claim to a share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// The job.
    pub job: JobId,
    /// Its weight, in thousandths.
    pub weight_milli: u64,
    /// Time since it was submitted.
    pub age: Span,
    /// Steps left; 1 where they are not counted.
    pub steps_left: u64,
}

/// A running job's new grant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Regrant {
    /// The job.
    pub job: JobId,
    /// What it holds from now on.
    pub grant: Grant,
}
