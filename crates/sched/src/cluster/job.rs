//! A job: what it asks for, and where it stands.

use super::Grant;
use serde::{Deserialize, Serialize};
use std::fmt;
use vocab::{Bytes, ModelId, Span, Time};

/// A job; drivers number jobs from zero in order of arrival.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobId(pub u32);

impl JobId {
    /// Its place in a table of jobs.
    #[must_use]
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("j{}", self.0))
    }
}

/// What a job needs on each of its GPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuNeed {
    /// Memory whatever the batch: weights, optimiser state.
    pub fixed: Bytes,
    /// Memory for each row of the batch.
    pub per_row: Bytes,
    /// Rows of the whole batch; 0 where memory is not modelled.
    pub rows: u32,
    /// Part of a step's time that each accumulation step pays again, in thousandths.
    pub step_fixed_milli: u32,
}

impl GpuNeed {
    /// Memory when the batch is done in `accumulate` sub-batches.
    #[must_use]
    pub fn memory(&self, accumulate: u32) -> Bytes {
        Bytes(self.fixed.0 + self.per_row.0 * u64::from(self.rows.div_ceil(accumulate.max(1))))
    }

    /// Time of a step in `accumulate` sub-batches over its time at the whole batch, in thousandths.
    #[must_use]
    pub fn stretch_milli(&self, accumulate: u32) -> u64 {
        1_000 + u64::from(accumulate.max(1) - 1) * u64::from(self.step_fixed_milli)
    }
}

/// What a job asks for, and what is believed of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSpec {
    /// The job.
    pub job: JobId,
    /// Its model, for what is known of pairs.
    pub model: ModelId,
    /// When it was submitted.
    pub arrival: Time,
    /// GPUs it asks for, all at once.
    pub gpus: u32,
    /// Numbers of GPUs it can run on: just `gpus` for a rigid gang.
    pub elastic: (u32, u32),
    /// Believed time alone on its GPUs, from start to end.
    pub solo: Span,
    /// CPUs in thousandths, over all its GPUs, beyond which it gets no faster.
    pub cpu_milli: u64,
    /// Main memory over all its GPUs, beyond which it gets no faster.
    pub memory: Bytes,
    /// What it needs on each GPU.
    pub gpu: GpuNeed,
    /// How much slower it is when its GPUs span nodes or racks, in thousandths, by [`Level`].
    pub spread_milli: [u32; Level::COUNT],
}

impl JobSpec {
    /// Whether it can run on `gpus` GPUs.
    #[must_use]
    pub const fn runs_on(&self, gpus: u32) -> bool {
        self.elastic.0 <= gpus && gpus <= self.elastic.1
    }
}

/// The widest link between a job's GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// All on one node.
    Node,
    /// On several nodes of a rack.
    Rack,
    /// On several racks.
    Cluster,
}

impl Level {
    /// How many levels there are.
    pub const COUNT: usize = 3;

    /// Its place in a table by level.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// Where a job stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not running, since then.
    Waiting {
        /// Since when.
        since: Time,
    },
    /// Running.
    Running {
        /// What it holds.
        grant: Grant,
        /// Since when, without a stop.
        since: Time,
        /// When its right to run ends, if it does.
        lease: Option<Time>,
    },
    /// Gone.
    Ended {
        /// When.
        at: Time,
    },
}

/// A job as the world knows it.
#[derive(Clone, Debug)]
pub struct Job {
    /// What it asks for.
    pub spec: JobSpec,
    /// Where it stands.
    pub phase: Phase,
    /// Believed time left, alone on its GPUs.
    pub left: Span,
    /// Time it ran before it last started.
    pub(super) ran: Span,
    /// GPU time it had until `counted`.
    pub(super) had: Span,
    /// Since when its present GPUs are to be counted.
    pub(super) counted: Time,
    /// The kind of GPU it last ran on.
    pub(super) kind: Option<usize>,
    /// Steps believed left, where they are counted.
    pub steps_left: Option<u64>,
    /// Starts so far.
    pub starts: u32,
}

impl Job {
    /// What it holds, when it runs.
    #[must_use]
    pub const fn grant(&self) -> Option<&Grant> {
        match &self.phase {
            Phase::Running { grant, .. } => Some(grant),
            Phase::Waiting { .. } | Phase::Ended { .. } => None,
        }
    }

    /// The kind of GPU it last ran on.
    #[must_use]
    pub const fn last_kind(&self) -> Option<usize> {
        self.kind
    }

    /// Whether it waits.
    #[must_use]
    pub const fn waits(&self) -> bool {
        matches!(self.phase, Phase::Waiting { .. })
    }

    /// Time it has run until `now`.
    #[must_use]
    pub fn ran(&self, now: Time) -> Span {
        match self.phase {
            Phase::Running { since, .. } => self.ran + now.since(since),
            Phase::Waiting { .. } | Phase::Ended { .. } => self.ran,
        }
    }

    /// GPU time it has had until `now`.
    #[must_use]
    pub fn service(&self, now: Time) -> Span {
        match &self.phase {
            Phase::Running { grant, .. } => self.had + now.since(self.counted) * u64::from(grant.gpus()),
            Phase::Waiting { .. } | Phase::Ended { .. } => self.had,
        }
    }

    /// Whether it can run on `gpus` GPUs.
    #[must_use]
    pub const fn runs_on(&self, gpus: u32) -> bool {
        self.spec.runs_on(gpus)
    }
}
