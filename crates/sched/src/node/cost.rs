//! What running a model is believed to cost: the profile to begin with, the latest measurements after that.

use serde::{Deserialize, Serialize};
use vocab::{Profile, Span};

/// How many of the latest runs an estimate remembers (Clockwork's choice, OSDI 2020).
const REMEMBERED: usize = 10;

/// Cost of one batch bucket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketCost {
    /// Rows the bucket holds.
    pub rows: u32,
    /// Time of each segment, in execution order.
    pub segments: Vec<Span>,
}

impl BucketCost {
    /// The buckets of a measured profile.
    #[must_use]
    pub fn of_profile(profile: &Profile) -> Vec<Self> {
        let bucket = |b: &vocab::BatchProfile| Self { rows: b.batch, segments: b.segment_ns.clone() };
        profile.batches.iter().map(bucket).collect()
    }

    /// Time of the whole bucket.
    #[must_use]
    pub fn total(&self) -> Span {
        self.segments.iter().copied().sum()
    }
}

/// Believed costs of one model, learned from its runs.
#[derive(Clone, Debug)]
pub struct Costs {
    buckets: Vec<Learned>,
}

#[derive(Clone, Debug)]
struct Learned {
    prior: BucketCost,
    prior_total: Span,
    recent: [Span; REMEMBERED],
    measured: usize,
    believed: Span,
}

impl Costs {
    /// Begins with `priors`, ascending by rows.
    ///
    /// # Panics
    /// When `priors` is empty: a model without a cost cannot be scheduled.
    #[must_use]
    pub fn new(priors: &[BucketCost]) -> Self {
        assert!(!priors.is_empty(), "a model has at least one batch bucket");
        let learned = |prior: &BucketCost| {
            let total = prior.total();
            Learned {
                prior: prior.clone(),
                prior_total: total,
                recent: [Span::ZERO; REMEMBERED],
                measured: 0,
                believed: total,
            }
        };
        Self { buckets: priors.iter().map(learned).collect() }
    }

    /// Rows of the smallest bucket that holds `rows`, or of the largest there is.
    #[must_use]
    pub fn bucket_rows(&self, rows: u32) -> u32 {
        self.bucket(rows).prior.rows
    }

    /// Rows of every bucket, ascending.
    pub fn bucket_sizes(&self) -> impl DoubleEndedIterator<Item = u32> + '_ {
        self.buckets.iter().map(|bucket| bucket.prior.rows)
    }

    /// Believed device time of a run of `rows`.
    #[must_use]
    pub fn of(&self, rows: u32) -> Span {
        self.bucket(rows).believed
    }

    /// Believed device time of what is left of a run of `rows` from `segment` on.
    #[must_use]
    pub fn from_segment(&self, rows: u32, segment: u32) -> Span {
        let bucket = self.bucket(rows);
        let begin = usize::try_from(segment).unwrap_or(usize::MAX).min(bucket.prior.segments.len());
        let left: Span = bucket.prior.segments[begin..].iter().copied().sum();
        if bucket.prior_total == Span::ZERO {
            return Span::ZERO;
        }
        left.scale(bucket.believed.ns(), bucket.prior_total.ns())
    }

    /// Learns that a run of `rows` took `busy` device time: the belief is the worst of the latest runs.
    pub fn learn(&mut self, rows: u32, busy: Span) {
        let at = self.index(rows);
        let bucket = &mut self.buckets[at];
        bucket.recent[bucket.measured % REMEMBERED] = busy;
        bucket.measured += 1;
        let known = bucket.measured.min(REMEMBERED);
        bucket.believed = bucket.recent[..known].iter().copied().max().unwrap_or(bucket.prior_total);
    }

    fn index(&self, rows: u32) -> usize {
        let at = self.buckets.partition_point(|bucket| bucket.prior.rows < rows);
        at.min(self.buckets.len() - 1)
    }

    fn bucket(&self, rows: u32) -> &Learned {
        &self.buckets[self.index(rows)]
    }
}
