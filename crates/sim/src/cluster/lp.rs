//! Linear programs, by an interior-point method on the homogeneous self-dual embedding.
//!
//! The steps are those of the solver that public simulators use (ECOS: Domahidi, Chu and Boyd, ECC'13; Mehrotra's
//! predictor and corrector, Nesterov and Todd's scaling, three rounds of equilibration): where the best answer is not the
//! only one, an answer is a point inside the best face, and a plan made of it is only the same when the path there is.

/// Minimise `cost · x` where every row's sum is at most its right side; `x` is free.
///
/// A column or a row may stand for several that differ in nothing: their values stay equal all along the path, so that one
/// of them is enough when it counts as often as there are.
#[derive(Clone, Debug, Default)]
pub(super) struct Program {
    cost: Vec<f64>,
    right: Vec<f64>,
    /// How many columns each stands for.
    columns: Vec<f64>,
    rows: Vec<Row>,
}

#[derive(Clone, Debug)]
struct Row {
    /// How many rows it stands for.
    times: f64,
    cells: Vec<Cell>,
}

/// Where rows meet columns.
#[derive(Clone, Copy, Debug)]
struct Cell {
    column: usize,
    value: f64,
    /// How many cells of all the rows and columns that these stand for hold the value.
    times: f64,
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

/// Added to both sides of a step's equations so that they always have one answer. It shows in the answer where many points
/// are best, so it is that of the solver which public simulators use.
const HOLD: f64 = 7e-8;

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
    pub(super) fn new(cost: Vec<f64>) -> Self {
        let columns = vec![1.0; cost.len()];
        Self::merged(cost, columns)
    }

    /// The same, for columns that stand for so many each.
    pub(super) const fn merged(cost: Vec<f64>, columns: Vec<f64>) -> Self {
        Self { cost, right: Vec::new(), columns, rows: Vec::new() }
    }

    /// Adds a row that stands for `times` rows. A cell is held by as many as there are of whatever there are more of.
    pub(super) fn row(&mut self, times: f64, row: impl IntoIterator<Item = (usize, f64)>, right: f64) {
        let held = |column: usize| self.columns[column].max(times);
        let cells =
            row.into_iter().map(|(column, value)| Cell { column, value, times: held(column) }).collect();
        self.rows.push(Row { times, cells });
        self.right.push(right);
    }

    /// The best point; nothing when there is none, or the numbers do not allow to find it.
    pub(super) fn solve(mut self) -> Option<Solution> {
        let (by_row, by_column) = self.equilibrate();
        let point = self.walk()?;
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
            for (row, Row { cells, .. }) in self.rows.iter().enumerate() {
                for Cell { column, value, .. } in cells {
                    rows[row] = rows[row].max(value.abs());
                    columns[*column] = columns[*column].max(value.abs());
                }
            }
            let root = |size: &mut f64| *size = if *size < 1e-6 { 1.0 } else { size.sqrt() };
            rows.iter_mut().for_each(root);
            columns.iter_mut().for_each(root);
            for (row, Row { cells, .. }) in self.rows.iter_mut().enumerate() {
                for Cell { column, value, .. } in cells {
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
        let sum = |row: &Row| {
            row.cells.iter().map(|cell| cell.value * cell.times * x[cell.column]).sum::<f64>() / row.times
        };
        self.rows.iter().map(sum).collect()
    }

    /// Sums of the columns at `z`.
    fn across(&self, z: &[f64]) -> Vec<f64> {
        let mut sums = vec![0.0; self.cost.len()];
        for (row, z) in self.rows.iter().zip(z) {
            for cell in &row.cells {
                sums[cell.column] += cell.value * cell.times * z;
            }
        }
        sums.iter_mut().zip(&self.columns).for_each(|(sum, times)| *sum /= times);
        sums
    }

    /// The product of two lists of rows, each as often as there are.
    fn down(&self, a: &[f64], b: &[f64]) -> f64 {
        self.rows.iter().zip(a.iter().zip(b)).map(|(row, (a, b))| row.times * a * b).sum()
    }

    /// The product of two lists of columns, each as often as there are.
    fn along(&self, a: &[f64], b: &[f64]) -> f64 {
        self.columns.iter().zip(a.iter().zip(b)).map(|(times, (a, b))| times * a * b).sum()
    }

    /// The least squares of both sides, moved inside.
    fn start(&self, layout: &Layout) -> Point {
        let ones = vec![1.0 + HOLD; self.right.len()];
        let factor = Factor::of(self, layout, &ones, Vec::new());
        let (x, short) = factor.step(self, &ones, &vec![0.0; self.cost.len()], &self.right);
        let against: Vec<f64> = self.cost.iter().map(|cost| -cost).collect();
        let (_, z) = factor.step(self, &ones, &against, &vec![0.0; self.right.len()]);
        let s = inside(short.into_iter().map(|short| -short).collect());
        Point { x, s, z: inside(z), tau: 1.0, kappa: 1.0 }
    }

    fn residuals(&self, at: &Point) -> Residuals {
        let across = self.across(&at.z);
        let x = across.iter().zip(&self.cost).map(|(across, cost)| -across - cost * at.tau).collect();
        let sums = self.times(&at.x);
        let z = (0..sums.len()).map(|row| at.s[row] + sums[row] - self.right[row] * at.tau).collect();
        Residuals { x, z, tau: at.kappa + self.along(&self.cost, &at.x) + self.down(&self.right, &at.z) }
    }

    fn done(&self, at: &Point, short: &Residuals) -> bool {
        let rows = |values: &[f64]| self.down(values, values).sqrt();
        let columns = |values: &[f64]| self.along(values, values).sqrt();
        let sides = rows(&self.right).max(1.0) + columns(&at.x) + rows(&at.s);
        let primal = rows(&short.z) / sides / at.tau;
        let dual = columns(&short.x) / (columns(&self.cost).max(1.0) + rows(&at.z)) / at.tau;
        let gap = self.down(&at.s, &at.z);
        let cost = self.along(&self.cost, &at.x).abs() / at.tau;
        primal < EXACT && dual < EXACT && (gap < EXACT || gap < EXACT * cost)
    }

    fn walk(&self) -> Option<Point> {
        let layout = Layout::of(self);
        let mut at = self.start(&layout);
        let mut matrix = Vec::new();
        let against: Vec<f64> = self.cost.iter().map(|cost| -cost).collect();
        let rows: f64 = self.rows.iter().map(|row| row.times).sum();
        for _ in 0..STEPS_MAX {
            let short = self.residuals(&at);
            if self.done(&at, &short) {
                return Some(at);
            }
            let mu = (self.down(&at.s, &at.z) + at.kappa * at.tau) / (rows + 1.0);
            if !mu.is_finite() || at.tau < 1e-12 {
                return None;
            }
            let weights: Vec<f64> = at.s.iter().zip(&at.z).map(|(s, z)| s / z + HOLD).collect();
            let roots: Vec<f64> = at.s.iter().zip(&at.z).map(|(s, z)| (s / z).sqrt()).collect();
            let middle: Vec<f64> = at.s.iter().zip(&at.z).map(|(s, z)| (s * z).sqrt()).collect();
            let factor = Factor::of(self, &layout, &weights, matrix);
            let (x1, z1) = factor.step(self, &weights, &against, &self.right);
            let scale = at.kappa / at.tau - self.along(&self.cost, &x1) - self.down(&self.right, &z1);
            // The predictor goes straight for the best.
            let right: Vec<f64> = short.z.iter().zip(&at.s).map(|(short, s)| s - short).collect();
            let (xa, za) = factor.step(self, &weights, &short.x, &right);
            let tau =
                (short.tau - at.kappa + self.along(&self.cost, &xa) + self.down(&self.right, &za)) / scale;
            let wz = |((z, one), root): ((&f64, &f64), &f64)| (z + tau * one) * root;
            let wz: Vec<f64> = za.iter().zip(&z1).zip(&roots).map(wz).collect();
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
            let (xc, zc) = factor.step(self, &weights, &right_x, &right);
            let turn = at.kappa * at.tau + kappa * tau - sigma * mu;
            let tau = (part * short.tau - turn / at.tau
                + self.along(&self.cost, &xc)
                + self.down(&self.right, &zc))
                / scale;
            let z: Vec<f64> = zc.iter().zip(&z1).map(|(z, one)| z + tau * one).collect();
            let wz: Vec<f64> = z.iter().zip(&roots).map(|(z, root)| z * root).collect();
            let ws: Vec<f64> = wz.iter().zip(&off).map(|(wz, off)| -off - wz).collect();
            let kappa = -(turn + at.kappa * tau) / at.tau;
            let by = STEP * at.reach(&middle, &ws, &wz, tau, kappa);
            advance(&mut at.x, by, xc.iter().zip(&x1).map(|(x, one)| x + tau * one));
            advance(&mut at.s, by, ws.iter().zip(&roots).map(|(ws, root)| ws * root));
            advance(&mut at.z, by, z.into_iter());
            at.tau += by * tau;
            at.kappa += by * kappa;
            matrix = factor.matrix();
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

/// Moves all values up together until the least is 1 above zero, or a hundredth where none is at or below it.
fn inside(values: Vec<f64>) -> Vec<f64> {
    let below = values.iter().filter(|value| **value <= 0.0).map(|value| -value);
    let lift = 1.0 + below.fold(-0.99, f64::max);
    values.into_iter().map(|value| value + lift).collect()
}

/// The step's equations `Gᵀz = b, Gx − Wz = r`, made ready: by columns where those are few, else by rows.
enum Factor<'l> {
    /// `GᵀW⁻¹G x = b + GᵀW⁻¹r`.
    Columns(Triangle),
    /// See [`Rows`].
    Rows(Rows<'l>),
}

/// Columns that a row bounds alone go first, and the wide rows decide among what is left:
///
/// ```text
/// Dx + Aᵀz = b,  Ax − Uz = r   ⇒   (AD⁻¹Aᵀ + U) z = AD⁻¹b − r,   x = D⁻¹(b − Aᵀz)
/// ```
struct Rows<'l> {
    /// What each column's own bounds weigh.
    bounds: Vec<f64>,
    layout: &'l Layout,
    inner: Triangle,
}

/// What is the same at every step.
struct Layout {
    /// Rows of more than one cell.
    wide: Vec<usize>,
    /// Where each column meets those: a place in `wide`, and the value as often as it is held.
    by_column: Vec<Vec<(usize, f64)>>,
}

impl Layout {
    fn of(program: &Program) -> Self {
        let several = |at: &usize| program.rows[*at].cells.len() > 1;
        let wide: Vec<usize> = (0..program.rows.len()).filter(several).collect();
        let mut by_column: Vec<Vec<(usize, f64)>> = vec![Vec::new(); program.cost.len()];
        for (place, at) in wide.iter().enumerate() {
            for cell in &program.rows[*at].cells {
                by_column[cell.column].push((place, cell.value * cell.times));
            }
        }
        Self { wide, by_column }
    }
}

impl<'l> Factor<'l> {
    /// Made in the place of `matrix`.
    fn of(program: &Program, layout: &'l Layout, weights: &[f64], matrix: Vec<f64>) -> Self {
        if layout.wide.len() < program.cost.len() {
            Self::Rows(Rows::of(program, layout, weights, matrix))
        } else {
            Self::Columns(columns(program, weights, matrix))
        }
    }

    /// Its place, for the next one.
    fn matrix(self) -> Vec<f64> {
        match self {
            Self::Columns(triangle) => triangle.lower,
            Self::Rows(rows) => rows.inner.lower,
        }
    }

    /// The step for these right sides.
    fn step(
        &self,
        program: &Program,
        weights: &[f64],
        right_x: &[f64],
        right_z: &[f64],
    ) -> (Vec<f64>, Vec<f64>) {
        let triangle = match self {
            Self::Columns(triangle) => triangle,
            Self::Rows(rows) => return rows.step(program, weights, right_x, right_z),
        };
        let inner: Vec<f64> = right_z.iter().zip(weights).map(|(right, weight)| right / weight).collect();
        let sums = program.across(&inner);
        let sum = |column: usize| (sums[column] + right_x[column]) * program.columns[column];
        let x = triangle.solve((0..sums.len()).map(sum).collect());
        let sums = program.times(&x);
        let z = (0..sums.len()).map(|row| (sums[row] - right_z[row]) / weights[row]).collect();
        (x, z)
    }
}

/// What holds columns in place whatever their rows do.
fn held(program: &Program) -> Vec<f64> {
    program.columns.iter().map(|times| HOLD * times).collect()
}

/// Makes a square of noughts.
fn clear(matrix: &mut Vec<f64>, size: usize) {
    matrix.clear();
    matrix.resize(size * size, 0.0);
}

fn columns(program: &Program, weights: &[f64], mut matrix: Vec<f64>) -> Triangle {
    let size = program.cost.len();
    clear(&mut matrix, size);
    held(program).iter().enumerate().for_each(|(at, held)| matrix[at * size + at] = *held);
    for (row, weight) in program.rows.iter().zip(weights) {
        for cell in &row.cells {
            for other in row.cells.iter().filter(|other| other.column <= cell.column) {
                let both = cell.value * cell.times * other.value * other.times;
                matrix[cell.column * size + other.column] += both / (weight * row.times);
            }
        }
    }
    Triangle::of(matrix, size)
}

impl<'l> Rows<'l> {
    fn of(program: &Program, layout: &'l Layout, weights: &[f64], mut matrix: Vec<f64>) -> Self {
        let size = layout.wide.len();
        let mut bounds = held(program);
        clear(&mut matrix, size);
        for (row, weight) in program.rows.iter().zip(weights) {
            if let [Cell { column, value, times }] = row.cells[..] {
                bounds[column] += (value * times).powi(2) / (weight * row.times);
            }
        }
        for (place, at) in layout.wide.iter().enumerate() {
            matrix[place * size + place] = weights[*at] * program.rows[*at].times;
        }
        for (cells, bound) in layout.by_column.iter().zip(&bounds) {
            for (at, (row, value)) in cells.iter().enumerate() {
                for (other, also) in &cells[..=at] {
                    matrix[row * size + other] += value * also / bound;
                }
            }
        }
        let inner = Triangle::of(matrix, size);
        Self { bounds, layout, inner }
    }

    fn step(
        &self,
        program: &Program,
        weights: &[f64],
        right_x: &[f64],
        right_z: &[f64],
    ) -> (Vec<f64>, Vec<f64>) {
        let mut x: Vec<f64> =
            right_x.iter().zip(&program.columns).map(|(right, times)| right * times).collect();
        for (at, row) in program.rows.iter().enumerate() {
            if let [Cell { column, value, times }] = row.cells[..] {
                x[column] += value * times * right_z[at] / weights[at];
            }
        }
        let row = |at: &usize| {
            let row = &program.rows[*at];
            let part = |cell: &Cell| cell.value * cell.times * x[cell.column] / self.bounds[cell.column];
            row.cells.iter().map(part).sum::<f64>() - row.times * right_z[*at]
        };
        let rows: Vec<f64> = self.layout.wide.iter().map(row).collect();
        let rows = self.inner.solve(rows);
        for (at, z) in self.layout.wide.iter().zip(&rows) {
            program.rows[*at].cells.iter().for_each(|cell| x[cell.column] -= cell.value * cell.times * z);
        }
        x.iter_mut().zip(&self.bounds).for_each(|(x, bound)| *x /= bound);
        let mut z = program.times(&x);
        z.iter_mut().enumerate().for_each(|(row, z)| *z = (*z - right_z[row]) / weights[row]);
        self.layout.wide.iter().zip(rows).for_each(|(at, row)| z[*at] = row);
        (x, z)
    }
}

/// A lower triangle whose product with its transpose is a symmetric matrix.
struct Triangle {
    lower: Vec<f64>,
    size: usize,
}

/// Rows whose products are summed side by side, each in the order of its columns.
const ABREAST: usize = 4;

impl Triangle {
    /// Cholesky's factor; columns that depend on earlier ones are dropped by an endless pivot.
    fn of(mut matrix: Vec<f64>, size: usize) -> Self {
        for row in 0..size {
            let (before, this) = matrix.split_at_mut(row * size);
            let diagonal = this[row];
            for first in (0..row).step_by(ABREAST) {
                let sums = products(before, size, first, row, this);
                for (at, sum) in (first..row).zip(sums) {
                    let above = &before[at * size..=at * size + at];
                    let sum = more(sum, &above[first..at], &this[first..at]);
                    this[at] = (this[at] - sum) / above[at];
                }
            }
            let rest = diagonal - more(0.0, &this[..row], &this[..row]);
            this[row] = if rest > 1e-14 * diagonal { rest.sqrt() } else { 1e100 };
        }
        Self { lower: matrix, size }
    }

    fn solve(&self, mut right: Vec<f64>) -> Vec<f64> {
        let (lower, size) = (&self.lower, self.size);
        for first in (0..size).step_by(ABREAST) {
            let sums = products(lower, size, first, size, &right);
            for (row, sum) in (first..size).zip(sums) {
                let this = &lower[row * size..=row * size + row];
                let sum = more(sum, &this[first..row], &right[first..row]);
                right[row] = (right[row] - sum) / this[row];
            }
        }
        for row in (0..size).rev() {
            let this = &lower[row * size..=row * size + row];
            right[row] /= this[row];
            let value = right[row];
            right.iter_mut().zip(&this[..row]).for_each(|(rest, cell)| *rest -= cell * value);
        }
        right
    }
}

/// Of the rows from `first` on, as many as go abreast but none from `end` on: the products of their first `first` cells
/// with `values`.
fn products(rows: &[f64], size: usize, first: usize, end: usize, values: &[f64]) -> [f64; ABREAST] {
    let row = |at: usize| {
        let from = (first + at).min(end - 1) * size;
        &rows[from..from + first]
    };
    let [a, b, c, d] = [row(0), row(1), row(2), row(3)];
    let mut sums = [0.0; ABREAST];
    for ((((value, a), b), c), d) in values[..first].iter().zip(a).zip(b).zip(c).zip(d) {
        sums[0] += value * a;
        sums[1] += value * b;
        sums[2] += value * c;
        sums[3] += value * d;
    }
    sums
}

/// `sum` and the products of two lists.
fn more(sum: f64, a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).fold(sum, |sum, (a, b)| sum + a * b)
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
                program.row(1.0, [(0, row[0]), (1, row[1])], *right);
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
