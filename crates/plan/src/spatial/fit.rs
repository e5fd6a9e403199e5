//! Fits the execution-time model to measured latencies, so that relative errors are small.
//!
//! For a given parallelism the model is linear in its four times, none of which is negative: every subset of them is solved
//! by least squares, the best without a negative one is kept. Parallelism itself is searched over a grid of ratios, which
//! is then refined around the best.

use super::model::{ExecutionModel, KERNELS, rounds};
use super::surface::Point;
use thiserror::Error;

/// Times of the model: fixed, serial, parallel, memory.
const TIMES: usize = 4;

/// Steps of a grid over parallelism.
const STEPS: u32 = 96;

/// Grids, each around the best of the one before.
const GRIDS: u32 = 3;

/// Fewest distinct parts and points that tell anything: one point more than the model has numbers.
const POINTS_MIN: usize = TIMES + 2;

/// A fitted model and how far it is from what was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    /// The model.
    pub model: ExecutionModel,
    /// Median of `|model - measured| / measured`.
    pub error_median: f64,
    /// The greatest.
    pub error_max: f64,
    /// Where it is greatest.
    pub worst: Point,
}

/// Why nothing can be fitted.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FitError {
    /// Too little is known.
    #[error("{points} points on {parts} parts are too few to fit; measure at least {POINTS_MIN} on 2 parts")]
    Few {
        /// Points there are.
        points: usize,
        /// Distinct parts.
        parts: usize,
    },
}

/// The model that fits `points` best: least sum of squared relative errors.
///
/// # Errors
/// When there are too few points to say anything.
pub fn fit(points: &[Point]) -> Result<Fit, FitError> {
    let mut parts: Vec<u32> = points.iter().map(|point| point.units).collect();
    parts.sort_unstable();
    parts.dedup();
    if points.len() < POINTS_MIN || parts.len() < 2 {
        return Err(FitError::Few { points: points.len(), parts: parts.len() });
    }
    let most = f64::from(parts.last().copied().unwrap_or(1));
    // From a network that fills no unit to one that fills every unit many times over.
    let (mut low, mut high) = (0.05f64, 8.0 * most);
    let mut best: Option<(f64, f64, [f64; TIMES])> = None;
    for _ in 0..GRIDS {
        let ratio = (high / low).powf(1.0 / f64::from(STEPS));
        for step in 0..=STEPS {
            let parallelism = low * ratio.powi(i32::try_from(step).unwrap_or(i32::MAX));
            let (error, times) = solve(points, parallelism);
            if best.is_none_or(|(least, ..)| error < least) {
                best = Some((error, parallelism, times));
            }
        }
        let centre = best.map_or(1.0, |(_, parallelism, _)| parallelism);
        (low, high) = (centre / ratio, centre * ratio);
    }
    let (_, parallelism, [fixed_ns, serial_ns, parallel_ns, memory_ns]) =
        best.unwrap_or((0.0, 1.0, [0.0; TIMES]));
    let model = ExecutionModel { parallelism, kernels: KERNELS, parallel_ns, serial_ns, memory_ns, fixed_ns };
    Ok(judged(model, points))
}

/// The model's errors at the points.
fn judged(model: ExecutionModel, points: &[Point]) -> Fit {
    let error = |point: &Point| {
        let measured = point.time.ns().max(1) as f64;
        ((model.latency_ns(point.units, point.batch) - measured) / measured).abs()
    };
    let mut errors: Vec<(f64, Point)> = points.iter().map(|point| (error(point), *point)).collect();
    errors.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let (error_max, worst) = errors[errors.len() - 1];
    Fit { model, error_median: errors[(errors.len() - 1) / 2].0, error_max, worst }
}

/// The best times for one parallelism, and their sum of squared relative errors.
fn solve(points: &[Point], parallelism: f64) -> (f64, [f64; TIMES]) {
    let row = |point: &Point| {
        let (rows, measured) = (f64::from(point.batch), point.time.ns().max(1) as f64);
        let parallel = rounds(parallelism, KERNELS, point.units, point.batch);
        let memory = rows / f64::from(point.units.max(1));
        [1.0, rows * f64::from(KERNELS), parallel, memory].map(|factor| factor / measured)
    };
    let rows: Vec<[f64; TIMES]> = points.iter().map(row).collect();
    let mut best = (rows.len() as f64, [0.0; TIMES]);
    for subset in 1u32..1 << TIMES {
        let used: Vec<usize> = (0..TIMES).filter(|time| subset >> time & 1 == 1).collect();
        let Some(times) = least_squares(&rows, &used) else { continue };
        if times.iter().any(|time| *time < 0.0) {
            continue;
        }
        let off = |row: &[f64; TIMES]| {
            let sum: f64 = row.iter().zip(&times).map(|(factor, time)| factor * time).sum();
            (sum - 1.0) * (sum - 1.0)
        };
        let error = rows.iter().map(off).sum();
        if error < best.0 {
            best = (error, times);
        }
    }
    best
}

/// Times for the columns `used`, the others 0, with the least squared distance of every row's sum from 1.
fn least_squares(rows: &[[f64; TIMES]], used: &[usize]) -> Option<[f64; TIMES]> {
    // Columns differ by many orders of magnitude; scaled, the normal equations stay solvable.
    let scale = |column: usize| rows.iter().map(|row| row[column].abs()).fold(0.0, f64::max);
    let scales: Vec<f64> = used.iter().map(|&column| scale(column)).collect();
    if scales.contains(&0.0) {
        return None;
    }
    let count = used.len();
    let mut normal = vec![vec![0.0; count + 1]; count];
    for row in rows {
        for a in 0..count {
            let own = row[used[a]] / scales[a];
            for b in 0..count {
                normal[a][b] += own * row[used[b]] / scales[b];
            }
            normal[a][count] += own;
        }
    }
    for pivot in 0..count {
        let best =
            (pivot..count).max_by(|&a, &b| normal[a][pivot].abs().total_cmp(&normal[b][pivot].abs()))?;
        normal.swap(pivot, best);
        if normal[pivot][pivot].abs() < 1e-10 * rows.len() as f64 {
            return None;
        }
        for other in (0..count).filter(|&other| other != pivot) {
            let times = normal[other][pivot] / normal[pivot][pivot];
            let source = normal[pivot].clone();
            normal[other].iter_mut().zip(&source).for_each(|(cell, own)| *cell -= times * own);
        }
    }
    let mut times = [0.0; TIMES];
    for (at, &column) in used.iter().enumerate() {
        times[column] = normal[at][count] / normal[at][at] / scales[at];
    }
    Some(times)
}
