//! What a simulation gave: each job's times, and the sums people compare.

use sched::cluster::JobId;
use vocab::{Span, Time};

/// A job that came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completed {
    /// The job: its place in the trace.
    pub job: JobId,
    /// When it was submitted.
    pub arrival: Time,
    /// When it first started.
    pub started: Time,
    /// When it ended.
    pub ended: Time,
    /// How often it started.
    pub starts: u32,
    /// GPUs it held.
    pub gpus: u32,
    /// Its time alone.
    pub solo: Span,
}

/// What a simulation gave.
#[derive(Clone, Debug, Default)]
pub struct ClusterOutcome {
    /// Jobs in the order of their ends.
    pub completed: Vec<Completed>,
    /// Turns taken.
    pub turns: u64,
    /// GPU time held by jobs.
    pub gpu_time: Span,
    /// GPUs of the cluster.
    pub gpus: u32,
}

impl Completed {
    /// From submission to end.
    #[must_use]
    pub const fn completion(&self) -> Span {
        self.ended.since(self.arrival)
    }
}

impl ClusterOutcome {
    /// Mean time from submission to end, in seconds.
    #[must_use]
    pub fn mean_completion_s(&self) -> f64 {
        let sum: u128 = self.completed.iter().map(|job| u128::from(job.completion().ns())).sum();
        sum as f64 / 1e9 / self.completed.len() as f64
    }

    /// The completion time that `hundredths` of a hundred jobs stay within.
    #[must_use]
    pub fn completion_percentile(&self, hundredths: usize) -> Span {
        let mut spans: Vec<Span> = self.completed.iter().map(Completed::completion).collect();
        spans.sort_unstable();
        let at = (spans.len() * hundredths / 100).min(spans.len().saturating_sub(1));
        spans.get(at).copied().unwrap_or_default()
    }

    /// When the last job ended.
    #[must_use]
    pub fn makespan(&self) -> Time {
        self.completed.iter().map(|job| job.ended).max().unwrap_or_default()
    }

    /// Mean time from submission to first start, in seconds.
    #[must_use]
    pub fn mean_queueing_s(&self) -> f64 {
        let wait = |job: &Completed| u128::from(job.started.since(job.arrival).ns());
        self.completed.iter().map(wait).sum::<u128>() as f64 / 1e9 / self.completed.len() as f64
    }

    /// Starts beyond each job's first.
    #[must_use]
    pub fn restarts(&self) -> u64 {
        self.completed.iter().map(|job| u64::from(job.starts.saturating_sub(1))).sum()
    }

    /// Part of the GPU time until the last end that jobs held.
    #[must_use]
    pub fn gpu_use(&self) -> f64 {
        self.gpu_time.as_secs_f64() / (self.makespan().ns() as f64 / 1e9 * f64::from(self.gpus))
    }
}
