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

/// The cluster at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// When.
    pub at: Time,
    /// Jobs that run.
    pub running: u32,
    /// Jobs that wait.
    pub waiting: u32,
    /// GPUs that carry a job.
    pub busy: u32,
}

/// What a simulation gave.
#[derive(Clone, Debug, Default)]
pub struct ClusterOutcome {
    /// Jobs in the order of their ends.
    pub completed: Vec<Completed>,
    /// Turns taken.
    pub turns: u64,
    /// GPU time held by jobs; a GPU that two share counts twice.
    pub gpu_time: Span,
    /// Time of GPUs that carried a job, in GPU nanoseconds.
    pub busy_time: u128,
    /// Time of CPUs held by jobs, in milli-CPU nanoseconds.
    pub cpu_time: u128,
    /// GPUs of the cluster.
    pub gpus: u32,
    /// CPUs of the cluster, in thousandths; 0 where CPUs are not modelled.
    pub cpu_milli: u64,
    /// The cluster over time, at most [`SAMPLES_MAX`] instants.
    pub samples: Vec<Sample>,
    /// From the first submission to the latest turn.
    pub(super) elapsed: Span,
    /// Submission and end of jobs that are not measured, but were there beside those that are.
    pub(super) beside: Vec<(Time, Time)>,
    /// One turn of so many is sampled.
    pub(super) stride: u64,
}

/// Instants kept of the cluster over time; beyond, every second one is dropped.
pub const SAMPLES_MAX: usize = 2_048;

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

    /// Starts and moves beyond each job's first start.
    #[must_use]
    pub fn restarts(&self) -> u64 {
        self.completed.iter().map(|job| u64::from(job.starts.saturating_sub(1))).sum()
    }

    /// From the first submission to the last end.
    #[must_use]
    pub fn duration(&self) -> Span {
        let first = self.completed.iter().map(|job| job.arrival).min().unwrap_or_default();
        self.makespan().since(first)
    }

    /// Measures only jobs from `from` up to but not including `to`, by their place in the trace.
    pub fn keep(&mut self, from: u32, to: u32) {
        let (kept, others) =
            std::mem::take(&mut self.completed).into_iter().partition(|job| (from..to).contains(&job.job.0));
        self.completed = kept;
        self.beside.extend(others.iter().map(|job: &Completed| (job.arrival, job.ended)));
    }

    /// Measures only what ends from here on; jobs that ended are still counted as company.
    pub(super) fn forget(&mut self) {
        self.keep(0, 0);
        (self.turns, self.gpu_time, self.samples) = (0, Span::ZERO, Vec::new());
    }

    /// Part of the GPUs' time, from the first submission to the last turn, in which they carried a job.
    #[must_use]
    pub fn gpu_use(&self) -> f64 {
        self.busy_time as f64 / (self.elapsed.ns() as f64 * f64::from(self.gpus))
    }

    /// Part of the CPUs' time that jobs held; nothing where CPUs are not modelled.
    #[must_use]
    pub fn cpu_use(&self) -> Option<f64> {
        let all = self.elapsed.ns() as f64 * self.cpu_milli as f64;
        (self.cpu_milli > 0).then(|| self.cpu_time as f64 / all)
    }

    /// Each completed job's finish-time fairness, in the order of completion: its time over that on an even part of the
    /// cluster, where the part is that among as many jobs as there were on average during its life (Themis, NSDI'20, with
    /// the average of later simulators).
    #[must_use]
    pub fn fairness(&self) -> Vec<f64> {
        let mut steps: Vec<(Time, i64)> = Vec::with_capacity(2 * self.completed.len());
        let measured = self.completed.iter().map(|job| (job.arrival, job.ended));
        for (arrival, ended) in measured.chain(self.beside.iter().copied()) {
            steps.push((arrival, 1));
            steps.push((ended, -1));
        }
        steps.sort_unstable();
        // Jobs × time until each instant.
        let (mut live, mut area, mut last) = (0i64, 0.0f64, Time::ZERO);
        let mut until: Vec<(Time, f64)> = Vec::with_capacity(steps.len());
        for (at, change) in steps {
            area += live as f64 * at.since(last).as_secs_f64();
            (last, live) = (at, live + change);
            until.push((at, area));
        }
        let area = |at: Time| until[until.partition_point(|(other, _)| *other < at)].1;
        let rho = |job: &Completed| {
            let took = job.completion().as_secs_f64();
            let others = (area(job.ended) - area(job.arrival)) / took.max(1e-9);
            let even = f64::from(self.gpus) / others.max(1.0);
            let alone = job.solo.as_secs_f64() * (f64::from(job.gpus) / even).max(1.0);
            took / alone.max(1e-9)
        };
        self.completed.iter().map(rho).collect()
    }

    /// Notes the cluster at an instant.
    pub(super) fn sample(&mut self, sample: Sample) {
        self.stride = self.stride.max(1);
        if self.samples.len() >= SAMPLES_MAX {
            let mut kept = false;
            self.samples.retain(|_| {
                kept = !kept;
                kept
            });
            self.stride *= 2;
        }
        if self.turns.is_multiple_of(self.stride) {
            self.samples.push(sample);
        }
    }
}

/// Jain's index of equality: 1 when all are equal, 1 over their number when one has all.
#[must_use]
pub fn jain(values: &[f64]) -> f64 {
    let (sum, squares) = values.iter().fold((0.0, 0.0), |(sum, squares), v| (sum + v, squares + v * v));
    if squares == 0.0 { 1.0 } else { sum * sum / (squares * values.len() as f64) }
}
