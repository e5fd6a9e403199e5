//! What running a model is believed to cost: the profile to begin with, the latest measurements after that.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use vocab::{BatchProfile, Profile, Span};

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

/// Cost on a part of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartCost {
    /// Units of the part.
    pub units: u32,
    /// Cost by batch bucket; the same buckets as on the whole device.
    pub costs: Vec<BucketCost>,
}

/// What parts of a device cost, as far as it was measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartCosts {
    /// Units of the whole device; 0 when nobody knows.
    pub units: u32,
    /// Smaller parts, ascending.
    pub parts: Vec<PartCost>,
}

impl BucketCost {
    /// The buckets of a measured profile.
    #[must_use]
    pub fn of_profile(profile: &Profile) -> Vec<Self> {
        Self::of_batches(&profile.batches)
    }

    fn of_batches(batches: &[BatchProfile]) -> Vec<Self> {
        let bucket = |b: &BatchProfile| Self { rows: b.batch, segments: b.segment_ns.clone() };
        batches.iter().map(bucket).collect()
    }

    /// Time of the whole bucket.
    #[must_use]
    pub fn total(&self) -> Span {
        self.segments.iter().copied().sum()
    }
}

impl PartCosts {
    /// The parts of a measured profile.
    #[must_use]
    pub fn of_profile(profile: &Profile) -> Self {
        let Some(spatial) = &profile.spatial else { return Self::default() };
        let part = |share: &vocab::ShareProfile| PartCost {
            units: share.units,
            costs: BucketCost::of_batches(&share.batches),
        };
        Self { units: spatial.units, parts: spatial.shares.iter().map(part).collect() }
    }

    /// Whether nothing is known of parts.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.units == 0
    }
}

/// Believed costs of one model, learned from its runs.
#[derive(Clone, Debug)]
pub struct Costs {
    buckets: Vec<Learned>,
    /// On parts of the device, by units: those measured before, and those that runs were on.
    parts: BTreeMap<u32, Vec<Learned>>,
    /// Units of the whole device; 0 when nobody knows.
    units: u32,
}

#[derive(Clone, Debug)]
struct Learned {
    prior: BucketCost,
    prior_total: Span,
    recent: [Span; REMEMBERED],
    measured: usize,
    believed: Span,
}

impl Learned {
    fn new(prior: BucketCost) -> Self {
        let total = prior.total();
        Self { prior, prior_total: total, recent: [Span::ZERO; REMEMBERED], measured: 0, believed: total }
    }

    fn learn(&mut self, busy: Span) {
        self.recent[self.measured % REMEMBERED] = busy;
        self.measured += 1;
        let known = self.measured.min(REMEMBERED);
        self.believed = self.recent[..known].iter().copied().max().unwrap_or(self.prior_total);
    }
}

impl Costs {
    /// Begins with `priors`, ascending by rows.
    ///
    /// # Panics
    /// When `priors` is empty: a model without a cost cannot be scheduled.
    #[must_use]
    pub fn new(priors: &[BucketCost]) -> Self {
        Self::with_parts(priors, &PartCosts::default())
    }

    /// Begins with `priors` on the whole device and what is known of its parts.
    ///
    /// # Panics
    /// When `priors` is empty: a model without a cost cannot be scheduled.
    #[must_use]
    pub fn with_parts(priors: &[BucketCost], parts: &PartCosts) -> Self {
        assert!(!priors.is_empty(), "a model has at least one batch bucket");
        let learned = |costs: &[BucketCost]| costs.iter().cloned().map(Learned::new).collect();
        let measured = parts.parts.iter().filter(|part| part.costs.len() == priors.len());
        Self {
            buckets: learned(priors),
            parts: measured.map(|part| (part.units, learned(&part.costs))).collect(),
            units: parts.units,
        }
    }

    /// Rows of the smallest bucket that holds `rows`, or of the largest there is.
    #[must_use]
    pub fn bucket_rows(&self, rows: u32) -> u32 {
        self.bucket(rows).prior.rows
    }

    /// The place of the bucket that holds `rows` among all, ascending.
    #[must_use]
    pub fn bucket_place(&self, rows: u32) -> usize {
        self.index(rows)
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

    /// Believed device time of a run of `rows` on a part of `share` units; on the whole device without one. What was not
    /// measured lies between its neighbours in proportion to the time a unit takes, and below the smallest all time is
    /// divided among the units.
    #[must_use]
    pub fn of_on(&self, rows: u32, share: Option<u32>) -> Span {
        share.map_or_else(|| self.of(rows), |units| self.at(self.index(rows), units))
    }

    /// Believed device time of what is left of a run of `rows` from `segment` on.
    #[must_use]
    pub fn from_segment(&self, rows: u32, segment: u32) -> Span {
        self.span_of(rows, segment, u32::MAX, None)
    }

    /// Believed device time of the segments from `begin` up to `end` of a run of `rows` on a part of `share` units.
    #[must_use]
    pub fn span_of(&self, rows: u32, begin: u32, end: u32, share: Option<u32>) -> Span {
        let at = self.index(rows);
        let measured = share.and_then(|units| self.parts.get(&units)).unwrap_or(&self.buckets);
        let bucket = &measured[at];
        let count = bucket.prior.segments.len();
        let place = |segment: u32| usize::try_from(segment).unwrap_or(usize::MAX).min(count);
        let left: Span =
            bucket.prior.segments[place(begin)..place(end).max(place(begin))].iter().copied().sum();
        if bucket.prior_total == Span::ZERO {
            return Span::ZERO;
        }
        left.scale(self.of_on(rows, share).ns(), bucket.prior_total.ns())
    }

    /// Segments of a run.
    #[must_use]
    pub fn segments(&self) -> u32 {
        u32::try_from(self.buckets[0].prior.segments.len()).unwrap_or(u32::MAX)
    }

    /// Time of each segment of a run of `rows` on a part of `share` units, as the profile has it.
    #[must_use]
    pub fn profiled(&self, rows: u32, share: Option<u32>) -> Vec<Span> {
        let at = self.index(rows);
        if let Some(part) = share.and_then(|units| self.parts.get(&units)) {
            return part[at].prior.segments.clone();
        }
        let bucket = &self.buckets[at];
        let Some(share) = share else { return bucket.prior.segments.clone() };
        let (whole, part) = (bucket.believed, self.at(at, share));
        if whole == Span::ZERO {
            return bucket.prior.segments.clone();
        }
        bucket.prior.segments.iter().map(|span| span.scale(part.ns(), whole.ns())).collect()
    }

    /// Device time of a run of `rows` on a part of `share` units as the profile has it; where it has none, as
    /// [`Costs::of_on`] has it.
    #[must_use]
    pub fn profiled_on(&self, rows: u32, share: Option<u32>) -> Span {
        let at = self.index(rows);
        let Some(units) = share else { return self.buckets[at].prior_total };
        self.parts.get(&units).map_or_else(|| self.at(at, units), |part| part[at].prior_total)
    }

    /// Learns that a run of `rows` took `busy` device time: the belief is the worst of the latest runs.
    pub fn learn(&mut self, rows: u32, busy: Span) {
        self.learn_on(rows, None, busy);
    }

    /// As [`Costs::learn`], of a run on a part of `share` units.
    pub fn learn_on(&mut self, rows: u32, share: Option<u32>, busy: Span) {
        let at = self.index(rows);
        let Some(units) = share else { return self.buckets[at].learn(busy) };
        if !self.parts.contains_key(&units) {
            let prior = |place: usize| {
                let rows = self.buckets[place].prior.rows;
                Learned::new(BucketCost { rows, segments: self.profiled(rows, share) })
            };
            let priors: Vec<Learned> = (0..self.buckets.len()).map(prior).collect();
            self.parts.insert(units, priors);
        }
        if let Some(part) = self.parts.get_mut(&units) {
            part[at].learn(busy);
        }
    }

    /// Believed time of the bucket at `place` on `units` units.
    fn at(&self, place: usize, units: u32) -> Span {
        if let Some(part) = self.parts.get(&units) {
            return part[place].believed;
        }
        let whole = self.buckets[place].believed;
        if units == 0 || self.units == 0 || units >= self.units {
            return whole;
        }
        let below = self.parts.range(..units).next_back().map(|(units, part)| (*units, part[place].believed));
        let above = self.parts.range(units..).next().map(|(units, part)| (*units, part[place].believed));
        let (more, fast) = above.unwrap_or((self.units, whole));
        let Some((fewer, slow)) = below else { return fast.scale(u64::from(more), u64::from(units)) };
        // Linear in 1/units: (1/u - 1/more) / (1/fewer - 1/more), in integers.
        let (u, fewer, more) = (u64::from(units), u64::from(fewer), u64::from(more));
        fast + (slow - fast).scale((more - u) * fewer, (more - fewer) * u)
    }

    fn index(&self, rows: u32) -> usize {
        let at = self.buckets.partition_point(|bucket| bucket.prior.rows < rows);
        at.min(self.buckets.len() - 1)
    }

    fn bucket(&self, rows: u32) -> &Learned {
        &self.buckets[self.index(rows)]
    }
}
