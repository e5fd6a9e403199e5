//! How much fairer Themis is than policies that look for efficiency first.

use super::sharing::GPU_MEMORY;
use super::{Settings, data, simulate, spread};
use crate::bars::Bars;
use crate::host;
use crate::plot;
use sim::cluster::{Setup, Summary, share_gpus};
use std::path::Path;

/// How many times larger the baselines' worst finish-time fairness must be.
const FAIRER: f64 = 2.25;

/// Policies that look for efficiency first. Gandiva's shares GPUs between jobs.
const BASELINES: [&str; 4] = ["las", "gandiva", "srtf", "srsf"];

/// Themis with leases of 20 minutes and of 2: nobody shorter than a lease can be treated better than waiting for its end.
const LEASES: [&str; 2] = ["themis", "themis-2m"];

pub(super) fn run(folder: &Path, settings: &Settings, bars: &mut Bars) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    let plain = Setup::uniform(8, 8);
    let throughputs = data::throughputs(settings, "simulation")?;
    let mut curves: Vec<plot::Curve> = Vec::new();
    for name in &settings.fairness_traces {
        let trace = data::muri(settings, name)?;
        let mut shared = plain.clone();
        share_gpus(&mut shared, &trace, &throughputs, "v100", GPU_MEMORY);
        let mut worst: Vec<(String, Vec<f64>)> = Vec::new();
        for policy in LEASES.into_iter().chain(BASELINES) {
            let setup = if policy == "gandiva" { &shared } else { &plain };
            let mut values = Vec::new();
            for seed in 0..settings.seeds {
                let outcome = simulate(&trace.dealt(seed), setup, policy)?;
                let summary = Summary::of(&outcome);
                values.push(summary.fairness_max);
                rows.push(format!(
                    "{name},{policy},{seed},{:.4},{:.4},{:.4},{}",
                    summary.fairness_max,
                    summary.fairness_jain,
                    summary.mean_completion_s / 3_600.0,
                    summary.restarts
                ));
                if seed == 0 {
                    bars.note(&format!(
                        "{name} under {policy}: worst fairness {:.2}, Jain {:.3}, mean {:.2} h",
                        summary.fairness_max,
                        summary.fairness_jain,
                        summary.mean_completion_s / 3_600.0
                    ));
                    if name == &settings.fairness_traces[0] {
                        curves.push((policy.to_owned(), plot::cumulative(outcome.fairness())));
                    }
                }
            }
            worst.push((policy.to_owned(), values));
        }
        let (themis, rest) = worst.split_at(LEASES.len());
        for (policy, values) in rest {
            for (lease, mine) in themis {
                let ratios: Vec<f64> = values.iter().zip(mine).map(|(theirs, ours)| theirs / ours).collect();
                let (median, least, most) = spread(&ratios);
                let what = format!("{name}: worst fairness of {policy} over that of {lease}");
                bars.at_least(&format!("{what}, median"), median, FAIRER, "×");
                bars.note(&format!("{what}: {least:.2} … {most:.2}× over {} seeds", settings.seeds));
            }
        }
    }
    let axes = ("time over that on an even part", "share of jobs");
    plot::shares(&folder.join("fairness.svg"), "finish-time fairness", axes, &curves)?;
    host::csv(&folder.join("fairness.csv"), "trace,policy,seed,worst,jain,mean_h,restarts", rows.into_iter())
}
