//! Linear programs: a primal-dual interior-point method (Mehrotra's predictor and corrector), dense in rows.
//!
//! It ends near the middle of the best face, not at one of its corners, so that a plan made of its answer does not depend
//! on the order of the columns.

/// Minimise `cost · x` where `rows · x = right` and `x ≥ 0`.
#[derive(Clone, Debug, Default)]
pub(super) struct Program {
    /// Right sides, one a row.
    pub(super) right: Vec<f64>,
    /// Columns: cost, and the rows where the column is not zero.
    columns: Vec<(f64, Vec<(usize, f64)>)>,
}

/// Steps of the method at most; it needs 10 to 40.
const STEPS_MAX: usize = 200;

/// How small residuals and the gap become, relative to the data.
const EXACT: f64 = 1e-9;

impl Program {
    /// A program with these right sides and no column yet.
    pub(super) const fn new(right: Vec<f64>) -> Self {
        Self { right, columns: Vec::new() }
    }

    /// Adds a column and tells its place.
    pub(super) fn column(&mut self, cost: f64, rows: Vec<(usize, f64)>) -> usize {
        self.columns.push((cost, rows));
        self.columns.len() - 1
    }

    fn times(&self, x: &[f64]) -> Vec<f64> {
        let mut sums = vec![0.0; self.right.len()];
        for ((_, rows), x) in self.columns.iter().zip(x) {
            for (row, value) in rows {
                sums[*row] += value * x;
            }
        }
        sums
    }

    fn priced(&self, prices: &[f64]) -> Vec<f64> {
        let price = |rows: &[(usize, f64)]| rows.iter().map(|(row, value)| value * prices[*row]).sum();
        self.columns.iter().map(|(_, rows)| price(rows)).collect()
    }

    /// The factor of `rows · diag(weights) · rowsᵀ`.
    fn factor(&self, weights: impl Fn(usize) -> f64) -> Factor {
        let size = self.right.len();
        let mut matrix = vec![0.0; size * size];
        for (at, (_, rows)) in self.columns.iter().enumerate() {
            let weight = weights(at);
            for (row, value) in rows {
                for (other, also) in rows {
                    if other <= row {
                        matrix[row * size + other] += weight * value * also;
                    }
                }
            }
        }
        Factor::of(matrix, size)
    }

    /// The best `x`; nothing when the method finds none, because there is none or for its numbers.
    pub(super) fn solve(&self) -> Option<Vec<f64>> {
        let count = self.columns.len() as f64;
        let cost: Vec<f64> = self.columns.iter().map(|(cost, _)| *cost).collect();
        let (mut x, mut y, mut s) = self.start(&cost)?;
        let scale = |values: &[f64]| 1.0 + values.iter().fold(0.0f64, |most, value| most.max(value.abs()));
        let (right_scale, cost_scale) = (scale(&self.right), scale(&cost));
        for _ in 0..STEPS_MAX {
            let short: Vec<f64> =
                self.right.iter().zip(self.times(&x)).map(|(right, done)| right - done).collect();
            let prices = self.priced(&y);
            let loose: Vec<f64> = (0..x.len()).map(|at| cost[at] - prices[at] - s[at]).collect();
            let gap = x.iter().zip(&s).map(|(x, s)| x * s).sum::<f64>() / count;
            let total: f64 = x.iter().zip(&cost).map(|(x, cost)| x * cost).sum();
            let most = |values: &[f64]| values.iter().fold(0.0f64, |most, value| most.max(value.abs()));
            if !gap.is_finite() {
                return None;
            }
            if most(&short) <= EXACT * right_scale
                && most(&loose) <= EXACT * cost_scale
                && gap * count <= EXACT * (1.0 + total.abs())
            {
                return Some(x);
            }
            let factor = self.factor(|at| x[at] / s[at]);
            let target: Vec<f64> = x.iter().zip(&s).map(|(x, s)| -x * s).collect();
            let (ax, _, asl) = self.direction(&factor, &x, &s, &short, &loose, &target);
            let (px, ps) = (step(&x, &ax), step(&s, &asl));
            let after: f64 =
                (0..x.len()).map(|at| (x[at] + px * ax[at]) * (s[at] + ps * asl[at])).sum::<f64>() / count;
            let centre = gap * (after / gap).powi(3);
            let target: Vec<f64> = (0..x.len()).map(|at| centre - x[at] * s[at] - ax[at] * asl[at]).collect();
            let (dx, dy, ds) = self.direction(&factor, &x, &s, &short, &loose, &target);
            let (px, ps) = ((0.99 * step(&x, &dx)).min(1.0), (0.99 * step(&s, &ds)).min(1.0));
            advance(&mut x, px, &dx);
            advance(&mut y, ps, &dy);
            advance(&mut s, ps, &ds);
        }
        None
    }

    /// Mehrotra's starting point: the least squares, shifted to be positive.
    fn start(&self, cost: &[f64]) -> Option<(Vec<f64>, Vec<f64>, Vec<f64>)> {
        let factor = self.factor(|_| 1.0);
        let mut x = self.priced(&factor.solve(self.right.clone()));
        let y = factor.solve(self.times(cost));
        let mut s: Vec<f64> = cost.iter().zip(self.priced(&y)).map(|(cost, price)| cost - price).collect();
        let lift = |values: &mut [f64]| {
            let low = values.iter().fold(0.0f64, |low, value| low.min(*value));
            values.iter_mut().for_each(|value| *value -= 1.5 * low);
        };
        lift(&mut x);
        lift(&mut s);
        let product: f64 = x.iter().zip(&s).map(|(x, s)| x * s).sum();
        let (more_x, more_s) = (0.5 * product / s.iter().sum::<f64>(), 0.5 * product / x.iter().sum::<f64>());
        let raise = |values: &mut [f64], more: f64| {
            let more = if more.is_finite() && more > 0.0 { more } else { 1.0 };
            values.iter_mut().for_each(|value| *value += more);
        };
        raise(&mut x, more_x);
        raise(&mut s, more_s);
        (!x.is_empty()).then_some((x, y, s))
    }

    /// Newton's step towards products `target` beyond the present ones.
    fn direction(
        &self,
        factor: &Factor,
        x: &[f64],
        s: &[f64],
        short: &[f64],
        loose: &[f64],
        target: &[f64],
    ) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
        let inner: Vec<f64> = (0..x.len()).map(|at| (x[at] * loose[at] - target[at]) / s[at]).collect();
        let right = self.times(&inner).iter().zip(short).map(|(inner, short)| inner + short).collect();
        let dy = factor.solve(right);
        let ds: Vec<f64> = loose.iter().zip(self.priced(&dy)).map(|(loose, price)| loose - price).collect();
        let dx = (0..x.len()).map(|at| (target[at] - x[at] * ds[at]) / s[at]).collect();
        (dx, dy, ds)
    }
}

fn advance(values: &mut [f64], by: f64, direction: &[f64]) {
    for (value, step) in values.iter_mut().zip(direction) {
        *value += by * step;
    }
}

/// The longest step, up to 1, that keeps `values` from becoming negative.
fn step(values: &[f64], direction: &[f64]) -> f64 {
    let bounds =
        values.iter().zip(direction).filter(|(_, step)| **step < 0.0).map(|(value, step)| -value / step);
    bounds.fold(1.0, f64::min)
}

/// A lower triangle whose product with its transpose is a symmetric matrix.
struct Factor {
    lower: Vec<f64>,
    size: usize,
}

impl Factor {
    /// Cholesky's factor; rows that depend on earlier ones are dropped by an endless pivot.
    fn of(mut matrix: Vec<f64>, size: usize) -> Self {
        let largest = (0..size).fold(0.0f64, |most, at| most.max(matrix[at * size + at]));
        for row in 0..size {
            for column in 0..=row {
                let (before, this) = matrix.split_at(row * size);
                let other = if column < row {
                    &before[column * size..column * size + column]
                } else {
                    &this[..column]
                };
                let done: f64 = this[..column].iter().zip(other).map(|(a, b)| a * b).sum();
                let rest = matrix[row * size + column] - done;
                matrix[row * size + column] = if column < row {
                    rest / matrix[column * size + column]
                } else if rest > 1e-30 * largest {
                    rest.sqrt()
                } else {
                    1e128
                };
            }
        }
        Self { lower: matrix, size }
    }

    fn solve(&self, mut right: Vec<f64>) -> Vec<f64> {
        let (lower, size) = (&self.lower, self.size);
        for row in 0..size {
            let done: f64 = (0..row).map(|column| lower[row * size + column] * right[column]).sum();
            right[row] = (right[row] - done) / lower[row * size + row];
        }
        for row in (0..size).rev() {
            right[row] /= lower[row * size + row];
            let value = right[row];
            for (column, rest) in right.iter_mut().enumerate().take(row) {
                *rest -= lower[row * size + column] * value;
            }
        }
        right
    }
}

#[cfg(test)]
mod tests {
    use super::Program;
    use vocab::Rng;

    /// Random programs of two rows, against every basis.
    #[test]
    fn the_best_of_all_corners_is_found() {
        let mut rng = Rng::new(3);
        for _ in 0..300 {
            let columns: Vec<(f64, [f64; 2])> =
                (0..6).map(|_| (rng.unit() * 4.0, [rng.unit(), rng.unit() - 0.3])).collect();
            // A positive combination, so that something is feasible; positive costs, so that something is best.
            let mut right = vec![0.0; 2];
            for (_, rows) in &columns {
                let part = rng.unit();
                right[0] += part * rows[0];
                right[1] += part * rows[1];
            }
            let mut program = Program::new(right.clone());
            for (cost, rows) in &columns {
                program.column(*cost, vec![(0, rows[0]), (1, rows[1])]);
            }
            let x = program.solve().unwrap();
            let found: f64 = x.iter().zip(&columns).map(|(x, (cost, _))| x * cost).sum();
            let mut best = f64::MAX;
            for (at, (cost_a, a)) in columns.iter().enumerate() {
                for (cost_b, b) in &columns[at + 1..] {
                    let determinant = a[0] * b[1] - a[1] * b[0];
                    let u = (right[0] * b[1] - right[1] * b[0]) / determinant;
                    let v = (a[0] * right[1] - a[1] * right[0]) / determinant;
                    if u >= -1e-12 && v >= -1e-12 {
                        best = best.min(u * cost_a + v * cost_b);
                    }
                }
            }
            assert!((found - best).abs() < 1e-6 * (1.0 + best), "{found} found, {best} best");
        }
    }
}
