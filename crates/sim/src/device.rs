//! The simulated device: what really happens to a run, as against what the world believes.

use sched::node::BucketCost;
use vocab::{Span, Time};

/// A run on the simulated device.
#[derive(Clone, Debug)]
pub(crate) struct TrueRun {
    /// True time of each segment.
    segments: Vec<Span>,
    /// When the weights of each segment are there; empty when all are.
    arrivals: Vec<Time>,
    /// The segment it goes on with.
    pub(crate) next: usize,
    /// When it last began.
    pub(crate) began: Time,
    /// Raised whenever what was scheduled for it no longer holds.
    pub(crate) epoch: u32,
    /// Whether it is on the device.
    pub(crate) on_device: bool,
}

impl TrueRun {
    /// A run at the bucket's cost times `factor` as a whole: what makes a run slow, a neighbour or a clock, makes all of
    /// its segments slow. No segment begins before its place in `arrivals`.
    pub(crate) fn new(bucket: &BucketCost, factor: f64, arrivals: Vec<Time>) -> Self {
        let scaled = |span: &Span| Span::from_secs_f64(span.as_secs_f64() * factor);
        let exact = (factor - 1.0).abs() < f64::EPSILON;
        let segments =
            if exact { bucket.segments.clone() } else { bucket.segments.iter().map(scaled).collect() };
        Self { segments, arrivals, next: 0, began: Time::ZERO, epoch: 0, on_device: false }
    }

    /// When each segment from the next on ends, if nothing stops it.
    fn ends(&self) -> impl Iterator<Item = (usize, Time)> + '_ {
        let mut at = self.began;
        self.segments.iter().enumerate().skip(self.next).map(move |(place, span)| {
            at = at.max(self.arrivals.get(place).copied().unwrap_or(Time::ZERO)) + *span;
            (place, at)
        })
    }

    /// When it finishes, if nothing stops it.
    pub(crate) fn finish(&self) -> Time {
        self.ends().last().map_or(self.began, |(_, at)| at)
    }

    /// The first edge at or after `now`: its time, and the segment that follows it.
    pub(crate) fn edge(&self, now: Time) -> (Time, usize) {
        let edge = self.ends().find(|(_, at)| *at >= now).map(|(place, at)| (at, place + 1));
        edge.unwrap_or_else(|| (self.finish(), self.segments.len()))
    }

    /// Whether `segment` is past the last.
    pub(crate) fn is_end(&self, segment: usize) -> bool {
        segment >= self.segments.len()
    }

    /// Device times from where it last began up to `segment`.
    pub(crate) fn taken(&self, segment: usize) -> Vec<Span> {
        self.segments[self.next..segment].to_vec()
    }

    /// Device times from where it last began to the end.
    pub(crate) fn taken_to_end(&self) -> Vec<Span> {
        self.segments[self.next..].to_vec()
    }
}
