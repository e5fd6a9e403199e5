//! The simulated device: what really happens to a run, as against what the world believes.

use sched::node::BucketCost;
use vocab::{Rng, Span, Time};

/// A run on the simulated device.
#[derive(Clone, Debug)]
pub(crate) struct TrueRun {
    /// True time of each segment.
    segments: Vec<Span>,
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
    /// A run at the bucket's cost, off by a relative normal error of `noise` as a whole: what makes a run slow, a
    /// neighbour or a clock, makes all of its segments slow.
    pub(crate) fn new(bucket: &BucketCost, noise: f64, rng: &mut Rng) -> Self {
        let segments = if noise == 0.0 {
            bucket.segments.clone()
        } else {
            let factor = (1.0 + noise * rng.normal()).max(0.1);
            bucket.segments.iter().map(|span| Span::from_secs_f64(span.as_secs_f64() * factor)).collect()
        };
        Self { segments, next: 0, began: Time::ZERO, epoch: 0, on_device: false }
    }

    /// When it finishes, if nothing stops it.
    pub(crate) fn finish(&self) -> Time {
        self.began + self.segments[self.next..].iter().copied().sum()
    }

    /// The first edge at or after `now`: its time, and the segment that follows it.
    pub(crate) fn edge(&self, now: Time) -> (Time, usize) {
        let mut at = self.began;
        for (place, span) in self.segments.iter().enumerate().skip(self.next) {
            at += *span;
            if at >= now {
                return (at, place + 1);
            }
        }
        (at, self.segments.len())
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
