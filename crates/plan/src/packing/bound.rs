//! How few GPUs there can be, by prices: whatever a slice of each size may cost so that no GPU is worth more than 1, the
//! cheapest instances that serve all tenants cost no more than the GPUs that hold them.

use super::choices::Choice;
use super::slots::{Counts, FULL, SLICES};
use super::tables::Tenant;

/// Prices of an instance of each size, in GPUs.
pub(super) type Prices = [f64; 5];

/// Float sums are compared up to this.
pub(super) const TOLERANCE: f64 = 1e-7;

/// Steps towards better prices.
const STEPS: u32 = 400;

/// What is known of the fewest GPUs before anything is packed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bound {
    /// Slices that would do if instances could be cut at will: each rate over the greatest throughput of a slice.
    pub fractional_slices: f64,
    /// GPUs of so many slices.
    pub fractional_gpus: u32,
    /// GPUs by prices, not rounded: whole instances, and slots that lie together.
    pub priced: f64,
    /// The greater of both, in whole GPUs.
    pub gpus: u32,
}

/// The bound for tenants whose sets of instances, at most so many of each size, are `options`.
pub(super) fn bound(
    tenants: &[Tenant],
    choices: &[Choice],
    options: &[Vec<Counts>],
    vertices: &[Prices],
) -> Bound {
    let slices = |(tenant, choice): (&Tenant, &Choice)| tenant.rate / choice.per_slice();
    let fractional_slices: f64 = tenants.iter().zip(choices).map(slices).sum();
    let priced = priced(options, vertices);
    let fractional_gpus = up(fractional_slices / f64::from(SLICES));
    Bound { fractional_slices, fractional_gpus, priced, gpus: fractional_gpus.max(up(priced)) }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few thousand GPUs at most")]
fn up(gpus: f64) -> u32 {
    (gpus - TOLERANCE).ceil().max(0.0) as u32
}

/// What some instances cost.
pub(super) fn cost(prices: &Prices, counts: &Counts) -> f64 {
    prices.iter().zip(counts).map(|(price, count)| price * f64::from(*count)).sum()
}

/// The cheapest of some sets of instances.
pub(super) fn cheapest<'a>(prices: &Prices, options: &'a [Counts]) -> (f64, &'a Counts) {
    let costs = options.iter().map(|option| (cost(prices, option), option));
    costs.min_by(|a, b| a.0.total_cmp(&b.0)).expect("a tenant that can be served has a set of instances")
}

/// The greatest cost of the cheapest instances over all prices that are tried: the extreme prices, and steps from the best
/// of them towards the extreme prices at which its cheapest instances cost most (Frank and Wolfe's method).
fn priced(options: &[Vec<Counts>], vertices: &[Prices]) -> f64 {
    let total = |prices: &Prices| options.iter().map(|options| cheapest(prices, options).0).sum::<f64>();
    let start = vertices.iter().copied().max_by(|a, b| total(a).total_cmp(&total(b)));
    let Some(mut prices) = start else { return 0.0 };
    let mut best = total(&prices);
    for step in 0..STEPS {
        let mut needed = [0u32; 5];
        for options in options {
            let (_, counts) = cheapest(&prices, options);
            needed.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        let towards = vertices.iter().max_by(|a, b| cost(a, &needed).total_cmp(&cost(b, &needed)));
        let Some(towards) = towards else { break };
        let length = 2.0 / f64::from(step + 4);
        prices.iter_mut().zip(towards).for_each(|(price, other)| *price += length * (other - *price));
        best = best.max(total(&prices));
    }
    best
}

/// The extreme prices: those of all prices of at least 0, at which no full GPU costs more than 1, that are no mixture of
/// others. What some instances cost at the dearest of them is what they need if GPUs could be cut in proportion.
pub(super) fn vertices() -> Vec<Prices> {
    let mut planes: Vec<([f64; 5], f64)> = FULL.iter().map(|full| (full.map(f64::from), 1.0)).collect();
    for size in 0..5 {
        let mut plane = [0.0; 5];
        plane[size] = 1.0;
        planes.push((plane, 0.0));
    }
    let mut found: Vec<Prices> = Vec::new();
    for subset in (0u32..1 << planes.len()).filter(|subset| subset.count_ones() == 5) {
        let tight: Vec<&([f64; 5], f64)> =
            (0..planes.len()).filter(|plane| subset >> plane & 1 == 1).map(|plane| &planes[plane]).collect();
        let Some(prices) = meet(&tight) else { continue };
        let allowed = prices.iter().all(|price| *price >= -1e-9)
            && FULL.iter().all(|full| cost(&prices, full) <= 1.0 + 1e-9);
        let known = |other: &Prices| other.iter().zip(&prices).all(|(a, b)| (a - b).abs() < 1e-9);
        if allowed && !found.iter().any(known) {
            found.push(prices.map(|price| price.max(0.0)));
        }
    }
    // Cheaper prices in every size prove nothing that dearer ones do not.
    let dearer = |own: &Prices, other: &Prices| own != other && own.iter().zip(other).all(|(a, b)| a <= b);
    let kept: Vec<Prices> =
        found.iter().filter(|own| !found.iter().any(|other| dearer(own, other))).copied().collect();
    kept
}

/// The point where five planes meet.
fn meet(planes: &[&([f64; 5], f64)]) -> Option<Prices> {
    let mut rows: Vec<[f64; 6]> = planes
        .iter()
        .map(|(plane, value)| [plane[0], plane[1], plane[2], plane[3], plane[4], *value])
        .collect();
    for pivot in 0..5 {
        let best = (pivot..5).max_by(|&a, &b| rows[a][pivot].abs().total_cmp(&rows[b][pivot].abs()))?;
        rows.swap(pivot, best);
        if rows[pivot][pivot].abs() < 1e-9 {
            return None;
        }
        let source = rows[pivot];
        for row in rows.iter_mut().enumerate().filter(|(other, _)| *other != pivot).map(|(_, row)| row) {
            let times = row[pivot] / source[pivot];
            row.iter_mut().zip(&source).for_each(|(cell, own)| *cell -= times * own);
        }
    }
    let mut point = [0.0; 5];
    for (at, row) in rows.iter().enumerate() {
        point[at] = row[5] / row[at];
    }
    Some(point)
}
