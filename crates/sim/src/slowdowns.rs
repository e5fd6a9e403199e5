//! What neighbours were measured to do to each other, looked up by models and rows.

use std::collections::BTreeMap;
use vocab::ModelId;

/// How many times longer a model's runs take beside another's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Slowdown {
    /// On the same units, not on disjoint ones.
    pub(crate) shared: bool,
    /// Rows of the run; of any where none are named.
    pub(crate) rows: Option<u32>,
    /// Rows of the neighbour's run.
    pub(crate) beside_rows: Option<u32>,
    /// Times longer.
    pub(crate) times: f64,
}

/// All that was measured, by model and neighbour.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slowdowns(BTreeMap<(ModelId, ModelId), Vec<Slowdown>>);

impl Slowdowns {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn add(&mut self, pair: (ModelId, ModelId), slowdown: Slowdown) {
        self.0.entry(pair).or_default().push(slowdown);
    }

    /// How many times longer a run of so many rows takes beside one of a neighbour: as measured at the nearest numbers of
    /// rows, by their ratios; of equals the last. `None` where nothing was measured.
    pub(crate) fn times(
        &self,
        (model, rows): (ModelId, u32),
        (beside, beside_rows): (ModelId, u32),
        shared: bool,
    ) -> Option<f64> {
        let apart = |measured: Option<u32>, rows: u32| {
            let (measured, rows) = (f64::from(measured.unwrap_or(rows).max(1)), f64::from(rows.max(1)));
            (measured / rows).max(rows / measured)
        };
        let far = |own: &&Slowdown| apart(own.rows, rows) * apart(own.beside_rows, beside_rows);
        let measured = self.0.get(&(model, beside))?.iter().rev().filter(|own| own.shared == shared);
        measured.min_by(|a, b| far(a).total_cmp(&far(b))).map(|own| own.times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_rows_count() {
        let (a, b) = (ModelId(0), ModelId(1));
        let mut table = Slowdowns::default();
        let mut add = |shared, rows, beside_rows, times| {
            table.add((a, b), Slowdown { shared, rows: Some(rows), beside_rows: Some(beside_rows), times });
        };
        add(true, 1, 1, 2.0);
        add(true, 1, 16, 9.0);
        add(true, 16, 1, 1.25);
        add(false, 1, 1, 1.125);
        let times = |rows, beside_rows, shared| table.times((a, rows), (b, beside_rows), shared);
        assert_eq!(times(2, 3, true), Some(2.0));
        assert_eq!(times(2, 12, true), Some(9.0));
        assert_eq!(times(32, 1, true), Some(1.25));
        assert_eq!(times(32, 32, false), Some(1.125));
        assert_eq!(table.times((b, 1), (a, 1), true), None, "the other way round was not measured");
    }
}
