//! How much slower jobs are whose GPUs lie on several nodes, from throughputs measured both ways.
//!
//! Gavel's authors measured jobs of several GPUs on one server and on several; there is no level between or beyond.

use super::sharing::like;
use super::{Setup, Throughputs, Trace};
use sched::cluster::Level;

/// Lets `setup` slow jobs of `trace` whose GPUs span nodes as measured on `kind`; where a model was not measured on a job's
/// number of GPUs, the next smaller number stands for it. Returns how many jobs are so slowed when they span nodes.
pub fn spread_jobs(setup: &mut Setup, trace: &Trace, throughputs: &Throughputs, kind: &str) -> usize {
    let apart = format!("{kind}_unconsolidated");
    let ratio = |model: &str, gpus: u32| {
        let (together, apart) =
            (throughputs.alone(kind, model, gpus)?, throughputs.alone(&apart, model, gpus)?);
        (together > 0.0 && apart > 0.0).then_some(together / apart)
    };
    let mut slowed = 0;
    for job in trace.jobs.iter().filter(|job| job.gpus > 1) {
        let model = like(&job.model);
        let Some(ratio) = (2..=job.gpus.min(GPUS_MAX)).rev().find_map(|gpus| ratio(&model, gpus)) else {
            continue;
        };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a ratio from 1 to a thousand"
        )]
        let milli = (ratio.clamp(1.0, 1_000.0) * 1_000.0).round() as u32;
        let mut levels = [milli; Level::COUNT];
        levels[Level::Node.index()] = 1_000;
        setup.spreads.insert((job.model.clone(), job.gpus), levels);
        slowed += usize::from(milli > 1_000);
    }
    slowed
}

/// GPUs up to which measurements are looked for.
const GPUS_MAX: u32 = 64;
