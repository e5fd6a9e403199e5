//! The knee: where more units stop paying, by both definitions. They differ by up to twice, so both are told.

use super::surface::Surface;
use vocab::Span;

/// How much slower than the whole device a part may be that counts as sufficient.
pub const EPSILON: f64 = 0.05;

/// The knees of a model at one batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Knee {
    /// The part with the greatest `1/(L²·S)`: latency and units weighed against each other (D-STACK).
    pub efficient: u32,
    /// The smallest part that is at most ε slower than the largest.
    pub sufficient: u32,
}

/// The knees at a measured batch; `None` when the batch was not measured.
#[must_use]
pub fn knee(surface: &Surface, batch: u32, epsilon: f64) -> Option<Knee> {
    let curve = surface.curve(batch);
    Some(Knee { efficient: efficient(&curve)?, sufficient: sufficient(&curve, epsilon)? })
}

/// The units with the least `L²·S`, the fewest of them; `None` for an empty curve.
#[must_use]
pub fn efficient(curve: &[(u32, Span)]) -> Option<u32> {
    let cost = |&(units, time): &(u32, Span)| {
        let squared = u128::from(time.ns()).saturating_mul(u128::from(time.ns()));
        (squared.saturating_mul(u128::from(units)), units)
    };
    curve.iter().map(cost).min().map(|(_, units)| units)
}

/// The fewest units that are at most `epsilon` slower than the most; `None` for an empty curve.
#[must_use]
pub fn sufficient(curve: &[(u32, Span)], epsilon: f64) -> Option<u32> {
    let (_, full) = curve.iter().max()?;
    let limit = full.ns() as f64 * (1.0 + epsilon.max(0.0));
    curve.iter().filter(|(_, time)| time.ns() as f64 <= limit).map(|(units, _)| *units).min()
}
