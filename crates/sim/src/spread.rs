//! How far true runs are off their profile: measured factors drawn again, or a normal error; and what measured launches took.

use crate::Scenario;
use vocab::{ModelId, Rng, Span};

/// Draws a factor and a launch for each run.
#[derive(Clone, Debug)]
pub(crate) struct Spread {
    /// By model and bucket.
    measured: Vec<Vec<Walk<f64>>>,
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

impl Spread {
    pub(crate) fn of(scenario: &Scenario, rng: Rng) -> Self {
        let walks = |model: &crate::ModelEntry| -> Vec<Walk<f64>> {
            model.batches.iter().map(|batch| Walk::of(batch.factors.clone())).collect()
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

    /// The factor of the next run of `model` in the bucket at `place`: one of those measured, where there are any.
    pub(crate) fn factor(&mut self, model: ModelId, place: usize) -> f64 {
        if let Some(factor) = self.measured[model.index()][place].next(self.block, &mut self.rng) {
            return factor;
        }
        if self.noise == 0.0 { 1.0 } else { (1.0 + self.noise * self.rng.normal()).max(0.1) }
    }

    /// What the next launch takes: one of those measured, where there are any.
    pub(crate) fn launch(&mut self) -> Option<Span> {
        self.launches.next(self.block, &mut self.launch_rng)
    }
}
