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

/// The fractional bound; by prices nothing is known yet.
pub(super) fn fractional(tenants: &[Tenant], choices: &[Choice]) -> Bound {
    let slices = |(tenant, choice): (&Tenant, &Choice)| tenant.rate / choice.per_slice();
    let fractional_slices: f64 = tenants.iter().zip(choices).map(slices).sum();
    let fractional_gpus = up(fractional_slices / f64::from(SLICES));
    Bound { fractional_slices, fractional_gpus, priced: 0.0, gpus: fractional_gpus }
}

impl Bound {
    /// The bound with what prices prove.
    pub(super) fn with_prices(self, priced: f64) -> Self {
        Self { priced, gpus: self.fractional_gpus.max(up(priced)), ..self }
    }
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

/// The greatest cost of the cheapest sets of instances over all prices that are tried, with these prices.
pub(super) fn priced(options: &[Vec<Counts>], vertices: &[Prices]) -> (f64, Prices) {
    climb(vertices, |prices| {
        let mut needed = [0.0; 5];
        let mut total = 0.0;
        for options in options {
            let (cost, counts) = cheapest(prices, options);
            total += cost;
            needed.iter_mut().zip(counts).for_each(|(sum, count)| *sum += f64::from(*count));
        }
        (total, needed)
    })
}

/// The same for instances cut at will, for which prices still know that slots lie together.
pub(super) fn priced_at_will(tenants: &[Tenant], per_s: &[[f64; 5]], vertices: &[Prices]) -> (f64, Prices) {
    climb(vertices, |prices| {
        let mut needed = [0.0; 5];
        let mut total = 0.0;
        for (tenant, per_s) in tenants.iter().zip(per_s) {
            let offers = prices.iter().zip(per_s).enumerate().filter(|(_, (_, per_s))| **per_s > 0.0);
            let each = offers.map(|(place, (price, per_s))| (price / per_s, place, per_s));
            if let Some((price, place, per_s)) = each.min_by(|a, b| a.0.total_cmp(&b.0)) {
                total += tenant.rate * price;
                needed[place] += tenant.rate / per_s;
            }
        }
        (total, needed)
    })
}

/// Steps from the best of the extreme prices towards those at which the cheapest instances cost most (Frank and Wolfe's
/// method). `cheapest` tells what the cheapest instances cost, and how many of each size they are.
fn climb(vertices: &[Prices], cheapest: impl Fn(&Prices) -> (f64, [f64; 5])) -> (f64, Prices) {
    let start = vertices.iter().copied().max_by(|a, b| cheapest(a).0.total_cmp(&cheapest(b).0));
    let mut prices = start.unwrap_or([0.0; 5]);
    let (total, mut needed) = cheapest(&prices);
    let mut best = (total, prices);
    for step in 0..STEPS {
        let worth = |own: &Prices| own.iter().zip(&needed).map(|(price, count)| price * count).sum::<f64>();
        let Some(towards) = vertices.iter().max_by(|a, b| worth(a).total_cmp(&worth(b))) else { break };
        let length = 2.0 / f64::from(step + 4);
        prices.iter_mut().zip(towards).for_each(|(price, other)| *price += length * (other - *price));
        let (total, more) = cheapest(&prices);
        needed = more;
        if total > best.0 {
            best = (total, prices);
        }
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
    found.iter().filter(|own| !found.iter().any(|other| dearer(own, other))).copied().collect()
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
