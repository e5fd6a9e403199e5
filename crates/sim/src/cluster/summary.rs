//! The figures people compare, of one outcome.

use super::{ClusterOutcome, Completed, jain};
use serde::Serialize;
use vocab::Span;

/// The figures people compare. Times are in seconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Jobs that came to their end.
    pub jobs: usize,
    /// Mean time from submission to end.
    pub mean_completion_s: f64,
    /// Median of the same.
    pub median_completion_s: f64,
    /// What 99 of 100 jobs stay within.
    pub p99_completion_s: f64,
    /// From the first submission to the last end.
    pub makespan_s: f64,
    /// Mean time from submission to first start.
    pub mean_queueing_s: f64,
    /// The worst finish-time fairness; 1 or less is a fair part.
    pub fairness_max: f64,
    /// Jain's index of finish-time fairness; 1 is equal.
    pub fairness_jain: f64,
    /// Part of the GPUs' time in which they carried a job.
    pub gpu_use: f64,
    /// Part of the CPUs' time that jobs held; nothing where CPUs are not modelled.
    pub cpu_use: Option<f64>,
    /// Starts and moves beyond each job's first start.
    pub restarts: u64,
    /// Turns taken.
    pub turns: u64,
}

impl Summary {
    /// Of an outcome.
    #[must_use]
    pub fn of(outcome: &ClusterOutcome) -> Self {
        let fairness = outcome.fairness();
        let mut times: Vec<Span> = outcome.completed.iter().map(Completed::completion).collect();
        times.sort_unstable();
        let median = times.get(times.len() / 2).copied().unwrap_or_default();
        Self {
            jobs: outcome.completed.len(),
            mean_completion_s: outcome.mean_completion_s(),
            median_completion_s: median.as_secs_f64(),
            p99_completion_s: outcome.completion_percentile(99).as_secs_f64(),
            makespan_s: outcome.duration().as_secs_f64(),
            mean_queueing_s: outcome.mean_queueing_s(),
            fairness_max: fairness.iter().copied().fold(0.0, f64::max),
            fairness_jain: jain(&fairness),
            gpu_use: outcome.gpu_use(),
            cpu_use: outcome.cpu_use(),
            restarts: outcome.restarts(),
            turns: outcome.turns,
        }
    }
}
