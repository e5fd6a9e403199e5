//! The batch and part for a promise and a rate, by trying every one that was measured.

use super::surface::{Point, Surface};
use std::fmt;
use thiserror::Error;
use vocab::Span;

/// What a tenant asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demand {
    /// Latest answer after a request's arrival.
    pub slo: Span,
    /// Requests a second; none when nobody says, and then batches gather at once.
    pub rate: Option<f64>,
}

/// The best batch and part.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Optimum {
    /// Part, batch and latency.
    pub point: Point,
    /// `throughput / (latency · share)`, in rows per second² (D-STACK's efficacy).
    pub efficacy: f64,
    /// Rows a second that the part computes.
    pub rows_per_s: f64,
    /// Time from a batch's first request to its last.
    pub assembly: Span,
}

/// Why no batch and part will do.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
pub enum Unfit {
    /// Even the fastest is too slow.
    #[error(
        "fastest latency {:.3} ms at {} units and batch {} is above half the SLO of {:.3} ms",
        .fastest.time.as_ms_f64(), .fastest.units, .fastest.batch, .slo.as_ms_f64()
    )]
    Latency {
        /// The fastest.
        fastest: Point,
        /// The promise.
        slo: Span,
    },
    /// What is fast enough computes too little, or gathers too long.
    #[error("{rate} requests/s are above the {most:.1} that {by} compute within the SLO of {:.3} ms", .slo.as_ms_f64())]
    Rate {
        /// The rate.
        rate: f64,
        /// The most that is computed in time.
        most: f64,
        /// What computes it.
        by: By,
        /// The promise.
        slo: Span,
    },
    /// The rate is no positive number.
    #[error("a rate of {rate} requests/s is none; give a positive one")]
    NoRate {
        /// The rate.
        rate: f64,
    },
}

/// A part and a batch, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct By {
    /// Units of the part.
    pub units: u32,
    /// Rows of the batch.
    pub batch: u32,
}

/// The part and batch with the greatest efficacy `b/(L²·S/S_max)` such that
///
/// - `L ≤ SLO/2`, for a request that just misses a batch waits for it and then runs in the next;
/// - `L + assembly ≤ SLO`, where a batch of `b` gathers for `(b-1)/rate`;
/// - the part computes at least `rate`.
///
/// Equal efficacy: fewer units, then the smaller batch.
///
/// # Errors
/// What stands against it, with the numbers.
pub fn optimum(surface: &Surface, demand: Demand) -> Result<Optimum, Unfit> {
    let Demand { slo, rate } = demand;
    if let Some(rate) = rate.filter(|rate| !(rate.is_finite() && *rate > 0.0)) {
        return Err(Unfit::NoRate { rate });
    }
    let points = surface.points();
    let quick: Vec<Point> = points.iter().copied().filter(|point| point.time.ns() <= slo.ns() / 2).collect();
    let fastest = points.iter().copied().min_by_key(|point| (point.time, point.units, point.batch));
    if quick.is_empty() {
        let fastest = fastest.unwrap_or(Point { units: 0, batch: 0, time: Span::MAX });
        return Err(Unfit::Latency { fastest, slo });
    }
    let gathered =
        quick.iter().copied().filter(|point| assembly(*point, rate) <= slo.saturating_sub(point.time));
    let gathered: Vec<Point> = gathered.collect();
    let mut best: Option<Optimum> = None;
    for &point in gathered.iter().filter(|point| rate.is_none_or(|rate| rows_per_s(**point) >= rate)) {
        let (rows_per_s, share) =
            (rows_per_s(point), f64::from(point.units) / f64::from(surface.whole().max(1)));
        let efficacy = rows_per_s / (point.time.as_secs_f64() * share);
        // Points ascend by units, then batch, so that the first of equals has the fewest.
        if best.is_none_or(|best| efficacy > best.efficacy) {
            best = Some(Optimum { point, efficacy, rows_per_s, assembly: assembly(point, rate) });
        }
    }
    best.ok_or_else(|| {
        let rate = rate.unwrap_or(0.0);
        let most = gathered.iter().copied().max_by(|a, b| rows_per_s(*a).total_cmp(&rows_per_s(*b)));
        let by =
            most.map_or(By { units: 0, batch: 0 }, |point| By { units: point.units, batch: point.batch });
        Unfit::Rate { rate, most: most.map_or(0.0, rows_per_s), by, slo }
    })
}

fn rows_per_s(point: Point) -> f64 {
    f64::from(point.batch) / point.time.as_secs_f64()
}

fn assembly(point: Point, rate: Option<f64>) -> Span {
    let others = f64::from(point.batch.saturating_sub(1));
    rate.map_or(Span::ZERO, |rate| Span::from_secs_f64(others / rate))
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.units == 0 {
            return f.write_str("no part and batch");
        }
        write!(f, "{} units at batch {}", self.units, self.batch)
    }
}
