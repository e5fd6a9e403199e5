//! What a policy is told of jobs' times: the truth is one estimator, the belief another.

use super::{Trace, TraceJob};
use std::collections::BTreeMap;
use vocab::{Rng, Span};

/// What a policy is told of jobs' times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Belief {
    /// The truth.
    #[default]
    Exact,
    /// The truth, for each job wrong by a factor that never changes: the exponential of a normal number.
    Noisy {
        /// The normal number's deviation, in thousandths.
        spread_milli: u32,
        /// Seed of the factors.
        seed: u64,
    },
    /// The mean of finished jobs of the same model, else of all, else an hour; a job that outlives it is believed to be at
    /// its half.
    Learned,
}

/// The beliefs about one trace's jobs.
#[derive(Clone, Debug)]
pub(super) struct Beliefs {
    belief: Belief,
    /// Each job's factor in millionths, where beliefs are noisy.
    factors: Vec<u64>,
    /// Sum and count of finished jobs' times, by model; all under the empty name.
    seen: BTreeMap<String, (u128, u64)>,
}

/// What a job is believed to take when none has finished.
const UNKNOWN: Span = Span::from_ms(3_600_000);

impl Beliefs {
    pub(super) fn new(belief: Belief, trace: &Trace) -> Self {
        let factors = match belief {
            Belief::Noisy { spread_milli, seed } => {
                let mut rng = Rng::new(seed);
                let spread = f64::from(spread_milli) / 1e3;
                trace.jobs.iter().map(|_| millionths((rng.normal() * spread).exp())).collect()
            }
            Belief::Exact | Belief::Learned => Vec::new(),
        };
        Self { belief, factors, seen: BTreeMap::new() }
    }

    /// A job's believed time left, when it is truly `left`.
    pub(super) fn left(&self, at: usize, job: &TraceJob, left: Span) -> Span {
        match self.belief {
            Belief::Exact => left,
            Belief::Noisy { .. } => left.scale(self.factors[at], 1_000_000).max(Span::from_ns(1)),
            Belief::Learned => {
                let done = job.solo().saturating_sub(left);
                let all = self.mean(&job.model).or_else(|| self.mean("")).unwrap_or(UNKNOWN);
                if all > done { all.saturating_sub(done) } else { done.max(Span::from_ns(1)) }
            }
        }
    }

    fn mean(&self, model: &str) -> Option<Span> {
        let (sum, count) = self.seen.get(model)?;
        u64::try_from(sum / u128::from(*count)).ok().map(Span::from_ns)
    }

    /// A job finished.
    pub(super) fn learn(&mut self, job: &TraceJob) {
        if self.belief != Belief::Learned {
            return;
        }
        for name in [job.model.as_str(), ""] {
            let (sum, count) = self.seen.entry(name.to_owned()).or_default();
            *sum += u128::from(job.solo().ns());
            *count += 1;
            if job.model.is_empty() {
                return;
            }
        }
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "kept within 1e-3 and 1e3")]
fn millionths(factor: f64) -> u64 {
    (factor.clamp(1e-3, 1e3) * 1e6).round() as u64
}
