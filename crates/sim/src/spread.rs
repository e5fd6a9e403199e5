//! How far true runs are off their profile: measured factors drawn again, or a normal error; and what measured launches took.

use crate::{BatchEntry, Scenario};
use vocab::{ModelId, Rng, Span};

/// Draws a factor and a launch for each run.
#[derive(Clone, Debug)]
pub(crate) struct Spread {
    /// By model, bucket, and how many others there are.
    measured: Vec<Vec<Vec<Walk<f64>>>>,
    launches: Walk<Span>,
    /// Runs in a row that take what was measured in a row.
    block: u32,
    noise: f64,
    rng: Rng,
    /// Launches are drawn for themselves: factors stay as they are without them.
    launch_rng: Rng,
}

/// A walk through what was measured. Blocks stay together (the moving-block bootstrap: Künsch, The Annals of Statistics, 1989),
/// because what slows one run down is often still there when the next one begins.
#[derive(Clone, Debug, Default)]
struct Walk<T> {
    measured: Vec<T>,
    at: usize,
    left: u32,
}

impl<T: Copy> Walk<T> {
    const fn of(measured: Vec<T>) -> Self {
        Self { measured, at: 0, left: 0 }
    }

    /// The next one; none where nothing was measured.
    fn next(&mut self, block: u32, rng: &mut Rng) -> Option<T> {
        if self.measured.is_empty() {
            return None;
        }
        if self.left == 0 {
            let drawn = rng.below(self.measured.len() as u64);
            self.at = usize::try_from(drawn).expect("it is below a length");
            self.left = block;
        }
        let next = self.measured[self.at];
        self.at = (self.at + 1) % self.measured.len();
        self.left -= 1;
        Some(next)
    }
}

/// The factors of a bucket by how many others there were, 0 first: of runs among about as many, as few apart as make a block.
fn among(batch: &BatchEntry, block: u32) -> Vec<Walk<f64>> {
    if batch.beside.is_empty() {
        return vec![Walk::of(batch.factors.clone())];
    }
    let most = batch.beside.iter().copied().max().unwrap_or(0);
    let enough = usize::try_from(block).unwrap_or(usize::MAX).min(batch.factors.len());
    let near = |others: u32, apart: u32| -> Vec<f64> {
        let pairs = batch.factors.iter().zip(&batch.beside);
        pairs.filter(|(_, own)| own.abs_diff(others) <= apart).map(|(factor, _)| *factor).collect()
    };
    let class = |others: u32| (0..=most).map(|apart| near(others, apart)).find(|found| found.len() >= enough);
    (0..=most).map(|others| Walk::of(class(others).unwrap_or_default())).collect()
}

impl Spread {
    pub(crate) fn of(scenario: &Scenario, rng: Rng) -> Self {
        let walks = |model: &crate::ModelEntry| -> Vec<Vec<Walk<f64>>> {
            model.batches.iter().map(|batch| among(batch, scenario.factor_block)).collect()
        };
        Self {
            measured: scenario.models.iter().map(walks).collect(),
            launches: Walk::of(scenario.launches_us.iter().copied().map(Span::from_us).collect()),
            block: scenario.factor_block,
            noise: scenario.noise,
            launch_rng: rng.fork(1),
            rng,
        }
    }

    /// The factor of the next run of `model` in the bucket at `place`, which begins among so many `others`: one of those
    /// measured, where there are any.
    pub(crate) fn factor(&mut self, model: ModelId, place: usize, others: usize) -> f64 {
        let among = &mut self.measured[model.index()][place];
        let walk = among.len().checked_sub(1).and_then(|most| among.get_mut(others.min(most)));
        if let Some(factor) = walk.and_then(|walk| walk.next(self.block, &mut self.rng)) {
            return factor;
        }
        if self.noise == 0.0 { 1.0 } else { (1.0 + self.noise * self.rng.normal()).max(0.1) }
    }

    /// What the next launch takes: one of those measured, where there are any.
    pub(crate) fn launch(&mut self) -> Option<Span> {
        self.launches.next(self.block, &mut self.launch_rng)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_among_many_draw_from_those_that_began_among_many() {
        let batch = |factors: &[f64], beside: &[u32]| BatchEntry {
            factors: factors.to_vec(),
            beside: beside.to_vec(),
            ..BatchEntry::default()
        };
        let drawn = |batch: &BatchEntry, block| -> Vec<Vec<f64>> {
            among(batch, block).into_iter().map(|walk| walk.measured).collect()
        };
        let measured = batch(&[1.0, 2.0, 1.125, 4.0, 2.125], &[0, 2, 0, 3, 2]);
        // Among one other began none: those among none and among two are as near.
        assert_eq!(
            drawn(&measured, 1),
            [vec![1.0, 1.125], vec![1.0, 2.0, 1.125, 2.125], vec![2.0, 2.125], vec![4.0]]
        );
        assert_eq!(drawn(&measured, 2)[3], [2.0, 4.0, 2.125], "one is no block");
        assert_eq!(drawn(&measured, 99)[0].len(), 5, "all there are, though no block");
        assert_eq!(drawn(&batch(&[3.0], &[]), 8), [[3.0]], "nobody counted");
    }
}
