//! Between measured points: along a line, and inside a cloud of points.

use crate::cluster::lp::Program;

/// Points (nodes, GPUs, batch a GPU) with step and synchronisation times.
#[derive(Debug, Default)]
pub(super) struct Surface(pub(super) Vec<([f64; 3], [f64; 2])>);

/// Linear between rows of `[x, first, second]`, ascending in x; the outermost lines go on beyond.
pub(super) fn along(rows: &[[f64; 3]], x: f64) -> (f64, f64) {
    let [first, .., last] = rows else { return rows.first().map_or((0.0, 0.0), |row| (row[1], row[2])) };
    let (first, last) = (first[0], last[0]);
    let x = x.clamp(first, last);
    let high = rows.partition_point(|row| row[0] < x).clamp(1, rows.len() - 1);
    let ([x0, a0, b0], [x1, a1, b1]) = (rows[high - 1], rows[high]);
    let at = |low: f64, high: f64| (high - low) / (x1 - x0) * (x - x0) + low;
    (at(a0, a1), at(b0, b1))
}

impl Surface {
    /// The piecewise linear surface over the Delaunay cells of the points. The cell around a point is the one whose corners
    /// make it with the least sum of squares: a linear program. Where several cells touch or points lie on a common sphere, the
    /// value is that in the middle of what they give. Outside of all cells, the nearest point's value.
    pub(super) fn at(&self, point: [f64; 3]) -> (f64, f64) {
        // On a line of measured points along the batch, which is an edge of cells, no cell is needed.
        let mut line: Vec<[f64; 3]> = self
            .0
            .iter()
            .filter(|(at, _)| at[0] == point[0] && at[1] == point[1])
            .map(|(at, value)| [at[2], value[0], value[1]])
            .collect();
        line.sort_by(|a, b| a[0].total_cmp(&b[0]));
        if let [first, .., last] = &line[..]
            && (first[0]..=last[0]).contains(&point[2])
        {
            return along(&line, point[2]);
        }
        let scale = self.0.iter().map(|(at, _)| at[2]).fold(1.0, f64::max);
        // The weights are the prices of the program for the plane below all points that is highest here.
        let mut program = Program::new(vec![0.0, 0.0, 0.0, -1.0]);
        for (at, _) in &self.0 {
            let from: [f64; 3] = std::array::from_fn(|axis| (at[axis] - point[axis]) / scale);
            let height = from.iter().map(|side| side * side).sum();
            program.row(1.0, [(0, from[0]), (1, from[1]), (2, from[2]), (3, 1.0)], height);
        }
        let weights = program.solve().map(|solution| solution.prices).unwrap_or_default();
        let sum =
            |of: usize| self.0.iter().zip(&weights).map(|((_, value), weight)| value[of] * weight).sum();
        if weights.is_empty() { self.nearest(point) } else { (sum(0), sum(1)) }
    }

    fn nearest(&self, point: [f64; 3]) -> (f64, f64) {
        let far = |at: &[f64; 3]| (0..3).map(|axis| (at[axis] - point[axis]).powi(2)).sum::<f64>();
        let best = self.0.iter().min_by(|(a, _), (b, _)| far(a).total_cmp(&far(b)));
        best.map_or((0.0, 0.0), |(_, value)| (value[0], value[1]))
    }
}
