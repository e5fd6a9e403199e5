//! How far true runs are off their profile: measured factors drawn again, or a normal error.

use crate::Scenario;
use vocab::{ModelId, Rng};

/// Draws a factor for each run.
#[derive(Clone, Debug)]
pub(crate) struct Spread {
    /// By model and bucket.
    measured: Vec<Vec<Walk>>,
    /// Runs in a row that take factors measured in a row.
    block: u32,
    noise: f64,
    rng: Rng,
}

/// A walk through the factors measured for one bucket.
#[derive(Clone, Debug, Default)]
struct Walk {
    factors: Vec<f64>,
    at: usize,
    left: u32,
}

impl Spread {
    pub(crate) fn of(scenario: &Scenario, rng: Rng) -> Self {
        let walk = |factors: &Vec<f64>| Walk { factors: factors.clone(), ..Walk::default() };
        let measured =
            scenario.models.iter().map(|model| model.batches.iter().map(|b| walk(&b.factors)).collect());
        let (block, noise) = (scenario.factor_block, scenario.noise);
        Self { measured: measured.collect(), block, noise, rng }
    }

    /// The factor of the next run of `model` in the bucket at `place`: one of those measured, where there are any. Blocks
    /// of measured factors stay together (the moving-block bootstrap: Künsch, The Annals of Statistics, 1989), because
    /// what slows one run down is often still there when the next one begins.
    pub(crate) fn factor(&mut self, model: ModelId, place: usize) -> f64 {
        let walk = &mut self.measured[model.index()][place];
        if walk.factors.is_empty() {
            return if self.noise == 0.0 { 1.0 } else { (1.0 + self.noise * self.rng.normal()).max(0.1) };
        }
        if walk.left == 0 {
            let drawn = self.rng.below(walk.factors.len() as u64);
            walk.at = usize::try_from(drawn).expect("it is below a length");
            walk.left = self.block;
        }
        let factor = walk.factors[walk.at];
        walk.at = (walk.at + 1) % walk.factors.len();
        walk.left -= 1;
        factor
    }
}
