//! What really happens to running jobs: how fast they progress, and what a start costs.

use super::training::Training;
use super::{Setup, TraceJob, trace};
use sched::cluster::{Grant, Job};
use std::collections::BTreeMap;
use vocab::{ModelId, Span, Time};

/// How jobs progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Steadily; each start, move and resumption first costs the job's restart time.
    RestartAtStart,
    /// Steadily; the restart time is lost anew after each turn, though ends are foreseen as if it were not. This is what
    /// Muri's simulator does, in binary fractions as there.
    RestartAtTurn,
    /// In whole iterations a round, and jobs end with the round; faster with all the CPUs and memory asked for, at the even
    /// speed with less. This is what Synergy's simulator does.
    WholeIterations,
    /// By goodput, as applications were measured: in seconds, an epoch's end rounded to one. This is what Pollux's simulator
    /// does.
    Goodput,
    /// In rounds of as many whole steps as fit one, by kind of GPU; a round ends when the last of its jobs does, and only
    /// then GPUs change hands. This is what Gavel's simulator does.
    Rounds,
}

/// What running side by side costs.
#[derive(Clone, Debug, Default)]
pub struct Pairs(BTreeMap<(ModelId, ModelId), u32>);

impl Pairs {
    /// Pairs that are not listed do not slow each other.
    pub fn insert(&mut self, model: ModelId, beside: ModelId, slowdown_milli: u32) {
        self.0.insert((model, beside), slowdown_milli);
    }

    /// Every measured pair, by models.
    pub fn iter(&self) -> impl Iterator<Item = (ModelId, ModelId, u32)> {
        self.0.iter().map(|((model, beside), slowdown)| (*model, *beside, *slowdown))
    }

    pub(super) fn slowdown_milli(&self, model: ModelId, beside: ModelId) -> u64 {
        u64::from(self.0.get(&(model, beside)).copied().unwrap_or(1_000))
    }
}

/// The truth about one job.
#[derive(Clone, Debug)]
pub(super) struct Truth {
    /// Time left, alone on its GPUs.
    pub(super) left: Span,
    /// Iterations left, where those are counted.
    iterations: u64,
    /// Restart time still to pay.
    debt: Span,
    /// How much slower than alone it runs, in thousandths.
    pub(super) slowdown_milli: u64,
    /// Iterations a round.
    pace: u64,
    /// Until when its progress is counted.
    since: Time,
    /// How far its training is, where applications are measured.
    pub(super) training: Training,
    /// Steps of its round, and when it will have done them or all, in s.
    pub(super) task: (u64, f64),
    /// Iterations left and since when they are counted, in s, where time is in binary fractions but not in rounds.
    fractions: (f64, f64),
    /// Steps a second on what it holds, where that depends on the kind.
    pub(super) rate: f64,
}

impl Truth {
    pub(super) fn new(job: &TraceJob) -> Self {
        Self {
            left: job.solo(),
            iterations: job.iterations,
            debt: Span::ZERO,
            slowdown_milli: 1_000,
            pace: 0,
            since: job.arrival,
            training: Training::default(),
            task: (0, 0.0),
            fractions: (job.iterations as f64, 0.0),
            rate: 0.0,
        }
    }

    /// It starts or moves at `now`, in binary fractions of seconds `clock`.
    pub(super) fn begin(&mut self, now: Time, clock: f64, job: &TraceJob) {
        self.since = now;
        self.fractions.1 = clock;
        self.debt = job.restart;
    }

    /// It holds `grant`.
    pub(super) fn hold(&mut self, job: &TraceJob, grant: &Grant, setup: &Setup) {
        let gpus = u64::from(grant.gpus().max(1));
        let share = (grant.cpu_milli() / gpus, grant.memory().0 / gpus);
        let profiled = setup.profiles.as_ref().and_then(|profiles| profiles.speed_micro(&job.model, share));
        let asked = grant.cpu_milli() >= job.cpu_milli && grant.memory() >= job.memory;
        let micro = profiled.unwrap_or(if asked { job.speedup_micro } else { 1_000_000 });
        self.pace = whole_iterations(setup.round.unwrap_or_default(), job.iteration, micro);
    }

    /// Steps left, where they are counted.
    pub(super) fn steps_left(&self) -> u64 {
        self.iterations
    }

    /// When it ended, which may be before the turn that tells so.
    pub(super) fn end(&self, now: Time, progress: Progress) -> Time {
        if progress == Progress::Rounds { at(self.task.1) } else { self.training.ended.unwrap_or(now) }
    }

    /// Counts its progress until `now`, in binary fractions of seconds `clock`.
    pub(super) fn advance(&mut self, now: Time, clock: f64, setup: &Setup, job: &TraceJob) {
        let passed = now.since(self.since);
        match setup.progress {
            Progress::WholeIterations => {
                if passed > Span::ZERO {
                    self.iterations = self.iterations.saturating_sub(self.pace);
                    self.left = job.iteration * self.iterations;
                }
            }
            Progress::Rounds => {
                self.iterations = self.iterations.saturating_sub(std::mem::take(&mut self.task.0));
                self.left = job.iteration * self.iterations;
            }
            Progress::RestartAtTurn => {
                let (left, since) = self.fractions;
                let ran = (clock - since - job.restart.as_secs_f64()).max(0.0);
                let iteration = trace::iteration_s(job.iteration);
                let left = left - ran / (iteration * self.slower());
                self.fractions = (left, clock);
                self.left = Span::from_secs_f64((left * iteration).max(0.0));
            }
            Progress::RestartAtStart => {
                let paid = self.debt.min(passed);
                self.debt = self.debt.saturating_sub(paid);
                self.run(passed.saturating_sub(paid));
            }
            Progress::Goodput => {
                if let Some(application) = setup.application(&job.model) {
                    self.training.advance(application, self.since, now, setup.round.unwrap_or_default());
                    let left = 1.0 - self.training.done(application);
                    self.left = Span::from_secs_f64(job.solo().as_secs_f64() * left.max(0.0));
                }
            }
        }
        self.since = now;
    }

    fn run(&mut self, time: Span) {
        let done = if self.slowdown_milli == 1_000 { time } else { time.scale(1_000, self.slowdown_milli) };
        self.left = self.left.saturating_sub(done);
    }

    /// Whether it has ended; it was advanced to now. `end` is the end that was foreseen for now, in s, and by which part
    /// of the time others may lie apart from it and count as one.
    pub(super) fn ended(&self, end: Option<(f64, f64)>, progress: Progress) -> bool {
        match progress {
            Progress::Goodput => self.training.ended.is_some(),
            Progress::Rounds => self.iterations == 0,
            Progress::RestartAtTurn => {
                let own = self.task.1;
                end.is_some_and(|(end, apart)| (own - end).abs() <= apart * own.max(end))
            }
            Progress::WholeIterations | Progress::RestartAtStart => self.left == Span::ZERO,
        }
    }

    /// How many times slower than alone it runs.
    fn slower(&self) -> f64 {
        self.slowdown_milli as f64 / 1e3
    }

    /// When it will end if nothing changes; it was advanced to `now`, in binary fractions of seconds `clock`.
    pub(super) fn foresee(&mut self, now: Time, clock: f64, setup: &Setup, job: &TraceJob) -> Time {
        let round = setup.round.unwrap_or_default();
        match setup.progress {
            Progress::WholeIterations => {
                let rounds = self
                    .iterations
                    .checked_div(self.pace)
                    .map_or(u64::MAX, |whole| whole + u64::from(!self.iterations.is_multiple_of(self.pace)));
                now + round * rounds
            }
            Progress::Goodput => now + round,
            Progress::Rounds => {
                let seconds = round.as_secs_f64();
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "steps of one round"
                )]
                let fit = (self.rate * seconds) as u64;
                let steps = fit.min(self.iterations);
                let took = if steps == 0 { seconds } else { steps as f64 / self.rate };
                self.task = (steps, clock + took);
                at(self.task.1)
            }
            Progress::RestartAtTurn => {
                let left = self.fractions.0 * trace::iteration_s(job.iteration);
                self.task.1 = clock + left * self.slower();
                at(self.task.1)
            }
            Progress::RestartAtStart => now + self.debt + self.stretched(),
        }
    }

    /// Time to its end at the present slowdown, rounded up.
    fn stretched(&self) -> Span {
        if self.slowdown_milli == 1_000 {
            return self.left;
        }
        let wide = u128::from(self.left.ns()) * u128::from(self.slowdown_milli);
        Span::from_ns(u64::try_from(wide.div_ceil(1_000)).unwrap_or(u64::MAX))
    }
}

/// A time that is counted in binary fractions of seconds.
fn at(seconds: f64) -> Time {
    Time::ZERO + Span::from_secs_f64(seconds)
}

/// How much slower `job` runs on its GPUs than alone there, given who else is on them, in thousandths.
pub(super) fn slowdown_milli<'w>(job: &Job, others: impl Iterator<Item = &'w Job>, pairs: &Pairs) -> u64 {
    let accumulate = job.grant().map_or(1, |grant| grant.accumulate);
    let beside = others.map(|other| pairs.slowdown_milli(job.spec.model, other.spec.model)).max();
    beside.unwrap_or(1_000) * job.spec.gpu.stretch_milli(accumulate) / 1_000
}

/// Iterations that fit a round, computed as Synergy's simulator does: at its speeds a round is often exactly a whole
/// number of iterations, and rounding in binary then decides.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a non-negative quotient, rounded down, far below 2^53"
)]
fn whole_iterations(round: Span, iteration: Span, speedup_micro: u64) -> u64 {
    let faster = iteration.as_secs_f64() / (speedup_micro as f64 / 1e6);
    (round.as_secs_f64() / faster).floor() as u64
}
