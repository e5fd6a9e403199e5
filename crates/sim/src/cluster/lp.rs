//! Linear programs, by an interior-point method on the homogeneous self-dual embedding.
//!
//! The steps are those of the solver that public simulators use (ECOS: Domahidi, Chu and Boyd, ECC'13; Mehrotra's
//! predictor and corrector, Nesterov and Todd's scaling, three rounds of equilibration): where the best answer is not the
//! only one, an answer is a point inside the best face, and a plan made of it is only the same when the path there is.

/// Minimise `cost · x` where every row's sum is at most its right side; `x` is free.
#[derive(Clone, Debug, Default)]
pub(super) struct Program {
    cost: Vec<f64>,
    right: Vec<f64>,
    rows: Vec<Vec<(usize, f64)>>,
}

/// The best point and what each row's right side is worth.
#[derive(Clone, Debug)]
pub(super) struct Solution {
    pub(super) x: Vec<f64>,
    pub(super) prices: Vec<f64>,
}

/// Steps of the method at most; it needs 10 to 40.
const STEPS_MAX: usize = 100;

/// How small residuals and the gap become.
const EXACT: f64 = 1e-8;

/// Part of the way to the boundary that a step goes.
const STEP: f64 = 0.99;

/// Where the method is: the point, slacks, prices, and the embedding's two scales.
struct Point {
    x: Vec<f64>,
    s: Vec<f64>,
    z: Vec<f64>,
    tau: f64,
    kappa: f64,
}

/// What a point is short of.
struct Residuals {
    x: Vec<f64>,
    z: Vec<f64>,
    tau: f64,
}

impl Program {
    /// A program with these costs and no row yet.
    pub(super) const fn new(cost: Vec<f64>) -> Self {
        Self { cost, right: Vec::new(), rows: Vec::new() }
    }

    /// Adds a row.
    pub(super) fn row(&mut self, row: Vec<(usize, f64)>, right: f64) {
        self.rows.push(row);
        self.right.push(right);
    }

    /// The best point; nothing when there is none, or the numbers do not allow to find it.
    pub(super) fn solve(&self) -> Option<Solution> {
        let mut scaled = self.clone();
        let (by_row, by_column) = scaled.equilibrate();
        let point = scaled.walk()?;
        let unscale = |values: &[f64], by: &[f64]| {
            values.iter().zip(by).map(|(value, by)| value / point.tau / by).collect()
        };
        Some(Solution { x: unscale(&point.x, &by_column), prices: unscale(&point.z, &by_row) })
    }

    /// Scales rows and columns towards equal size; returns the scales.
    fn equilibrate(&mut self) -> (Vec<f64>, Vec<f64>) {
        let (mut by_row, mut by_column) = (vec![1.0; self.right.len()], vec![1.0; self.cost.len()]);
        for _ in 0..3 {
            let (mut rows, mut columns) = (vec![0.0f64; self.right.len()], vec![0.0f64; self.cost.len()]);
            for (row, cells) in self.rows.iter().enumerate() {
                for (column, value) in cells {
                    rows[row] = rows[row].max(value.abs());
                    columns[*column] = columns[*column].max(value.abs());
                }
            }
            let root = |size: &mut f64| *size = if *size < 1e-6 { 1.0 } else { size.sqrt() };
            rows.iter_mut().for_each(root);
            columns.iter_mut().for_each(root);
            for (row, cells) in self.rows.iter_mut().enumerate() {
                for (column, value) in cells {
                    *value /= rows[row] * columns[*column];
                }
            }
            by_row.iter_mut().zip(&rows).for_each(|(by, row)| *by *= row);
            by_column.iter_mut().zip(&columns).for_each(|(by, column)| *by *= column);
        }
        self.right.iter_mut().zip(&by_row).for_each(|(right, by)| *right /= by);
        self.cost.iter_mut().zip(&by_column).for_each(|(cost, by)| *cost /= by);
        (by_row, by_column)
    }

    /// Sums of the rows at `x`.
    fn times(&self, x: &[f64]) -> Vec<f64> {
        self.rows.iter().map(|row| row.iter().map(|(column, value)| value * x[*column]).sum()).collect()
    }

    /// Sums of the columns at `z`.
    fn across(&self, z: &[f64]) -> Vec<f64> {
        let mut sums = vec![0.0; self.cost.len()];
        for (row, z) in self.rows.iter().zip(z) {
            for (column, value) in row {
                sums[*column] += value * z;
            }
        }
        sums
    }

    /// Solves the step's equations for slacks scaled by `weights`: `Gᵀz = right_x`, `Gx − weights·z = right_z`.
    fn step(
        &self,
        factor: &Factor,
        weights: &[f64],
        right_x: &[f64],
        right_z: &[f64],
    ) -> (Vec<f64>, Vec<f64>) {
        let inner: Vec<f64> = right_z.iter().zip(weights).map(|(right, weight)| right / weight).collect();
        let sum = self.across(&inner).iter().zip(right_x).map(|(inner, right)| inner + right).collect();
        let x = factor.solve(sum);
        let sums = self.times(&x);
        let z = (0..sums.len()).map(|row| (sums[row] - right_z[row]) / weights[row]).collect();
        (x, z)
    }

    fn factor(&self, weights: &[f64]) -> Factor {
        let size = self.cost.len();
        let mut matrix = vec![0.0; size * size];
        for (row, weight) in self.rows.iter().zip(weights) {
            for (column, value) in row {
                for (other, also) in row {
                    if other <= column {
                        matrix[column * size + other] += value * also / weight;
                    }
                }
            }
        }
        Factor::of(matrix, size)
    }

    /// The least squares of both sides, moved inside.
    fn start(&self) -> Point {
        let ones = vec![1.0; self.right.len()];
        let factor = self.factor(&ones);
        let (x, short) = self.step(&factor, &ones, &vec![0.0; self.cost.len()], &self.right);
        let against: Vec<f64> = self.cost.iter().map(|cost| -cost).collect();
        let (_, z) = self.step(&factor, &ones, &against, &vec![0.0; self.right.len()]);
        let s = inside(short.into_iter().map(|short| -short).collect());
        Point { x, s, z: inside(z), tau: 1.0, kappa: 1.0 }
    }

    fn residuals(&self, at: &Point) -> Residuals {
        let across = self.across(&at.z);
        let x = across.iter().zip(&self.cost).map(|(across, cost)| -across - cost * at.tau).collect();
        let sums = self.times(&at.x);
        let z = (0..sums.len()).map(|row| at.s[row] + sums[row] - self.right[row] * at.tau).collect();
        Residuals { x, z, tau: at.kappa + dot(&self.cost, &at.x) + dot(&self.right, &at.z) }
    }

    fn done(&self, at: &Point, short: &Residuals) -> bool {
        let size = |values: &[f64]| dot(values, values).sqrt();
        let primal = size(&short.z) / size(&self.right).max(1.0) / at.tau;
        let dual = size(&short.x) / size(&self.cost).max(1.0) / at.tau;
        let gap = dot(&at.s, &at.z) / at.tau / at.tau;
        let cost = dot(&self.cost, &at.x).abs() / at.tau;
        primal < EXACT && dual < EXACT && (gap < EXACT || gap < EXACT * cost)
    }

    fn walk(&self) -> Option<Point> {
        let mut at = self.start();
        let against: Vec<f64> = self.cost.iter().map(|cost| -cost).collect();
        for _ in 0..STEPS_MAX {
            let short = self.residuals(&at);
            if self.done(&at, &short) {
                return Some(at);
            }
            let mu = (dot(&at.s, &at.z) + at.kappa * at.tau) / (at.s.len() + 1) as f64;
            if !mu.is_finite() || at.tau < 1e-12 {
                return None;
            }
            let weights: Vec<f64> = at.s.iter().zip(&at.z).map(|(s, z)| s / z).collect();
            let roots: Vec<f64> = weights.iter().map(|weight| weight.sqrt()).collect();
            let middle: Vec<f64> = at.s.iter().zip(&at.z).map(|(s, z)| (s * z).sqrt()).collect();
            let factor = self.factor(&weights);
            let (x1, z1) = self.step(&factor, &weights, &against, &self.right);
            let scale = at.kappa / at.tau - dot(&self.cost, &x1) - dot(&self.right, &z1);
            let joined = |z: &[f64], tau: f64| -> Vec<f64> {
                z.iter().zip(&z1).map(|(z, one)| z + tau * one).collect()
            };
            // The predictor goes straight for the best.
            let right: Vec<f64> = short.z.iter().zip(&at.s).map(|(short, s)| s - short).collect();
            let (xa, za) = self.step(&factor, &weights, &short.x, &right);
            let tau = (short.tau - at.kappa + dot(&self.cost, &xa) + dot(&self.right, &za)) / scale;
            let wz: Vec<f64> = joined(&za, tau).iter().zip(&roots).map(|(z, root)| z * root).collect();
            let ws: Vec<f64> = wz.iter().zip(&middle).map(|(wz, middle)| -wz - middle).collect();
            let kappa = -at.kappa - at.kappa / at.tau * tau;
            let far = at.reach(&middle, &ws, &wz, tau, kappa);
            let sigma = (1.0 - far).powi(3).clamp(1e-4, 1.0);
            // The corrector goes there along the middle.
            let off = |row: usize| (middle[row] * middle[row] + ws[row] * wz[row] - sigma * mu) / middle[row];
            let off: Vec<f64> = (0..middle.len()).map(off).collect();
            let part = 1.0 - sigma;
            let right_x: Vec<f64> = short.x.iter().map(|short| part * short).collect();
            let right: Vec<f64> =
                (0..off.len()).map(|row| roots[row] * off[row] - part * short.z[row]).collect();
            let (xc, zc) = self.step(&factor, &weights, &right_x, &right);
            let turn = at.kappa * at.tau + kappa * tau - sigma * mu;
            let tau =
                (part * short.tau - turn / at.tau + dot(&self.cost, &xc) + dot(&self.right, &zc)) / scale;
            let z = joined(&zc, tau);
            let wz: Vec<f64> = z.iter().zip(&roots).map(|(z, root)| z * root).collect();
            let ws: Vec<f64> = wz.iter().zip(&off).map(|(wz, off)| -off - wz).collect();
            let kappa = -(turn + at.kappa * tau) / at.tau;
            let by = STEP * at.reach(&middle, &ws, &wz, tau, kappa);
            advance(&mut at.x, by, xc.iter().zip(&x1).map(|(x, one)| x + tau * one));
            advance(&mut at.s, by, ws.iter().zip(&roots).map(|(ws, root)| ws * root));
            advance(&mut at.z, by, z.into_iter());
            at.tau += by * tau;
            at.kappa += by * kappa;
        }
        None
    }
}

impl Point {
    /// How far a step may go before something becomes negative; 0.999 at most.
    fn reach(&self, middle: &[f64], ws: &[f64], wz: &[f64], tau: f64, kappa: f64) -> f64 {
        let bound = |(value, step): (&f64, &f64)| if *step < 0.0 { -value / step } else { f64::MAX };
        let rows = middle.iter().zip(ws).chain(middle.iter().zip(wz)).map(bound);
        let scales = [bound((&self.tau, &tau)), bound((&self.kappa, &kappa))];
        rows.chain(scales).fold(10.0, f64::min).clamp(1e-6, 0.999)
    }
}

fn advance(values: &mut [f64], by: f64, step: impl Iterator<Item = f64>) {
    for (value, step) in values.iter_mut().zip(step) {
        *value += by * step;
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Moves all values up together until the least is 1 above zero, or a hundredth where none is at or below it.
fn inside(values: Vec<f64>) -> Vec<f64> {
    let below = values.iter().filter(|value| **value <= 0.0).map(|value| -value);
    let lift = 1.0 + below.fold(-0.99, f64::max);
    values.into_iter().map(|value| value + lift).collect()
}

/// A lower triangle whose product with its transpose is a symmetric matrix.
struct Factor {
    lower: Vec<f64>,
    size: usize,
}

impl Factor {
    /// Cholesky's factor; columns that depend on earlier ones are dropped by an endless pivot.
    fn of(mut matrix: Vec<f64>, size: usize) -> Self {
        for row in 0..size {
            let diagonal = matrix[row * size + row];
            for column in 0..=row {
                let (before, this) = matrix.split_at(row * size);
                let other = if column < row {
                    &before[column * size..column * size + column]
                } else {
                    &this[..column]
                };
                let rest = matrix[row * size + column] - dot(&this[..column], other);
                matrix[row * size + column] = if column < row {
                    rest / matrix[column * size + column]
                } else if rest > 1e-14 * diagonal {
                    rest.sqrt()
                } else {
                    1e100
                };
            }
        }
        Self { lower: matrix, size }
    }

    fn solve(&self, mut right: Vec<f64>) -> Vec<f64> {
        let (lower, size) = (&self.lower, self.size);
        for row in 0..size {
            let done = dot(&lower[row * size..row * size + row], &right[..row]);
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

    /// Random programs of two unknowns, against every corner; what is best is worth what its rows are worth.
    #[test]
    fn the_best_of_all_corners_is_found() {
        let mut rng = Rng::new(3);
        for _ in 0..300 {
            // Positive costs under x, y ≥ 0 and rows that hold at some point.
            let inner = [rng.unit() * 2.0, rng.unit() * 2.0];
            let cost = vec![rng.unit(), rng.unit()];
            let mut rows = vec![([-1.0, 0.0], 0.0), ([0.0, -1.0], 0.0)];
            for _ in 0..4 {
                let row = [rng.unit() * 2.0 - 1.0, rng.unit() * 2.0 - 1.0];
                rows.push((row, row[0] * inner[0] + row[1] * inner[1] + rng.unit() * 0.2));
            }
            let mut program = Program::new(cost.clone());
            for (row, right) in &rows {
                program.row(vec![(0, row[0]), (1, row[1])], *right);
            }
            let solution = program.solve().unwrap();
            let value = |x: [f64; 2]| cost[0] * x[0] + cost[1] * x[1];
            let found = value([solution.x[0], solution.x[1]]);
            let worth: f64 =
                rows.iter().zip(&solution.prices).map(|((_, right), price)| -right * price).sum();
            let mut best = f64::MAX;
            for (at, (a, p)) in rows.iter().enumerate() {
                for (b, q) in &rows[at + 1..] {
                    let determinant = a[0] * b[1] - a[1] * b[0];
                    let x = [(p * b[1] - q * a[1]) / determinant, (a[0] * q - b[0] * p) / determinant];
                    if rows.iter().all(|(row, right)| row[0] * x[0] + row[1] * x[1] <= right + 1e-9) {
                        best = best.min(value(x));
                    }
                }
            }
            assert!((found - best).abs() < 1e-6 && (worth - best).abs() < 1e-6, "{found} {worth} {best}");
        }
    }
}
