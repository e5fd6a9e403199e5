//! Pollux's applications (OSDI'21): measured step times by placement and batch, and how much each step is worth.
//!
//! A step on more GPUs takes another time and, with a larger batch, brings less progress a row: the gain of a batch comes
//! from the gradient's noise in each epoch. Goodput is gain over step time.

mod interpolate;
mod parse;

use interpolate::Surface;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

pub use parse::ApplicationsError;

/// Applications by name.
#[derive(Debug, Default)]
pub struct Applications(BTreeMap<String, Application>);

/// One application, as measured.
#[derive(Debug)]
pub struct Application {
    /// Training runs by batch, ascending: an epoch a row.
    runs: BTreeMap<u32, Vec<Epoch>>,
    /// Step times by placement: rows of batch a GPU, step and synchronisation time in seconds, by batch.
    placements: BTreeMap<Vec<u8>, Vec<[f64; 3]>>,
    surface: Surface,
    /// Least and largest batch a GPU.
    local: (u32, u32),
    gpus_max: Option<u32>,
    steps: Mutex<Steps>,
}

/// Step and synchronisation times, found before, by normalised placement and batch a GPU.
type Steps = BTreeMap<(Vec<u8>, u32), (f64, f64)>;

/// An epoch of a training run.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    progress: f64,
    iteration: u64,
    gradient_squared: f64,
    gradient_variance: f64,
}

/// How a batch is spread over GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spread {
    /// Rows a GPU takes at once.
    pub atomic: u32,
    /// Further such portions before a step ends.
    pub accumulated: u32,
}

impl Applications {
    /// Reads files named `APPLICATION/placements.csv`, `…/scalability.csv` and `…/validation-BATCH.csv`.
    ///
    /// # Errors
    /// With all problems of all files.
    pub fn parse(files: &[(String, String)]) -> Result<Self, ApplicationsError> {
        parse::applications(files).map(Self)
    }

    /// The application called `name`.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<&Application> {
        self.0.get(name)
    }
}

impl Application {
    /// Epochs to its end.
    #[must_use]
    pub fn epochs(&self) -> usize {
        self.runs.values().map(Vec::len).min().unwrap_or(0)
    }

    /// Batches it can be run with: least and largest.
    #[must_use]
    pub fn batches(&self) -> (u32, u32) {
        let first = self.runs.keys().next().copied().unwrap_or(1);
        (first, self.runs.keys().next_back().copied().unwrap_or(1))
    }

    /// Rows a GPU can take at once: least and most.
    #[must_use]
    pub const fn local(&self) -> (u32, u32) {
        self.local
    }

    /// GPUs it can use at most with `batch`.
    #[must_use]
    pub fn gpus_max(&self, batch: u32) -> u32 {
        self.gpus_max.unwrap_or(u32::MAX).min(batch / self.local.0.max(1)).max(1)
    }

    /// Progress at the beginning of `epoch`.
    #[must_use]
    pub fn progress(&self, epoch: usize) -> f64 {
        let Some(row) = epoch.checked_sub(1) else { return 0.0 };
        self.runs.values().map(|run| run[row].progress).fold(f64::INFINITY, f64::min)
    }

    /// Steps between the ends of `epoch` and of the last, with `batch`, rounded.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a step count, at least 0")]
    pub fn steps_left(&self, batch: u32, epoch: usize) -> u64 {
        let last = self.epochs().saturating_sub(1);
        if epoch >= last {
            return 1;
        }
        let steps = |row: usize| self.between(batch, |run| run[row].iteration as f64);
        (steps(last) - steps(epoch)).max(0.0).round() as u64
    }

    /// Linear between the runs below and above `batch`, which lies in [`Application::batches`].
    fn between(&self, batch: u32, value: impl Fn(&[Epoch]) -> f64) -> f64 {
        let below = self.runs.range(..=batch).next_back();
        let above = self.runs.range(batch..).next();
        let ((low, below), (high, above)) = match (below, above) {
            (Some(below), Some(above)) => (below, above),
            (Some(one), None) | (None, Some(one)) => (one, one),
            (None, None) => return 0.0,
        };
        if low == high {
            return value(below);
        }
        let (rise, fall) = (f64::from(batch - low), f64::from(high - batch));
        (rise * value(above) + fall * value(below)) / f64::from(high - low)
    }

    /// How much a step of `batch` rows brings in `epoch`, over one of the least batch.
    #[must_use]
    pub fn gain(&self, batch: u32, epoch: usize) -> f64 {
        let squared = self.between(batch, |run| run[epoch].gradient_squared);
        let variance = self.between(batch, |run| run[epoch].gradient_variance);
        let scale = f64::from(batch) / f64::from(self.batches().0);
        (variance + squared) / (variance / scale + squared)
    }

    /// Step and synchronisation time in seconds on `placement` (GPUs on each node) with `local` rows a GPU.
    #[must_use]
    pub fn step(&self, placement: &[u8], local: u32) -> (f64, f64) {
        let rotated = |at: usize| [&placement[at..], &placement[..at]].concat();
        let least = (0..placement.len()).map(rotated).min().unwrap_or_default();
        let key = (least, local);
        let known = || self.steps.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known().get(&key) {
            return *found;
        }
        let found = match self.placements.get(&key.0) {
            Some(rows) => interpolate::along(rows, f64::from(local)),
            None => {
                let gpus = placement.iter().map(|gpus| f64::from(*gpus)).sum();
                self.surface.at([placement.len().min(16) as f64, gpus, f64::from(local)])
            }
        };
        known().insert(key, found);
        found
    }

    /// How `batch` rows are spread over `gpus` GPUs: no GPU takes more at once than it can.
    #[must_use]
    pub fn spread(&self, batch: u32, gpus: u32) -> Spread {
        let (least, most) = (self.batches().0, self.batches().1);
        let local = batch.div_ceil(gpus);
        let mut accumulated = local.div_ceil(self.local.1).max(1) - 1;
        if gpus == 1 && batch > least {
            // One GPU needs two portions to tell the gradient's noise.
            accumulated = accumulated.max(1);
        }
        let atomic = local.div_ceil(accumulated + 1).min(most / (gpus * (accumulated + 1)));
        Spread { atomic, accumulated }
    }

    /// Time of a step with `spread` on `placement`, in seconds.
    #[must_use]
    pub fn step_time(&self, placement: &[u8], spread: Spread) -> f64 {
        let (step, sync) = self.step(placement, spread.atomic);
        step + (step - sync) * f64::from(spread.accumulated)
    }

    /// The spread with the best goodput on `placement` in `epoch`, and that goodput.
    #[must_use]
    pub fn best(&self, placement: &[u8], epoch: usize) -> (Spread, f64) {
        let gpus: u32 = placement.iter().map(|gpus| u32::from(*gpus)).sum();
        let (least, most) = self.batches();
        let (low, high) = (f64::from(least.max(self.local.0 * gpus)), f64::from(most));
        let mut best = (self.spread(least.max(gpus), gpus), 0.0);
        for at in 0..BATCHES_TRIED {
            let batch = low * (high / low).powf(f64::from(at) / f64::from(BATCHES_TRIED - 1));
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a batch, from 1 to 2^16"
            )]
            let spread = self.spread(batch.round() as u32, gpus);
            let whole = gpus * spread.atomic * (spread.accumulated + 1);
            if spread.atomic < self.local.0 || spread.atomic > self.local.1 || whole < least {
                continue;
            }
            let goodput = self.gain(whole, epoch) / self.step_time(placement, spread);
            if goodput > best.1 {
                best = (spread, goodput);
            }
        }
        best
    }
}

/// Batches tried between the least and the largest, geometrically.
const BATCHES_TRIED: u32 = 50;

/// GPUs on each node when `gpus` fill nodes of `size`.
pub(super) fn filled(gpus: u32, size: u8) -> Vec<u8> {
    let whole = std::iter::repeat_n(size, (gpus / u32::from(size)) as usize);
    let rest = u8::try_from(gpus % u32::from(size)).unwrap_or(0);
    whole.chain((rest > 0).then_some(rest)).collect()
}
