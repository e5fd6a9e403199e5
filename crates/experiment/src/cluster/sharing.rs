//! What sharing GPUs with the best partner brings (SJF-BSBF), against preemption and against sharing with anybody.

use super::{Settings, data, simulate, spread};
use crate::bars::Bars;
use crate::host;
use crate::plot;
use sim::cluster::{Setup, Summary, share_gpus};
use std::path::Path;
use vocab::Bytes;

/// Percent below the preemptive baseline in mean completion time, at least.
const BELOW_PREEMPTIVE: f64 = 27.0;

/// Percent below sharing with anybody that the paper's largest gain reaches.
const BELOW_ANYBODY: f64 = 17.0;

/// GPU memory of the experiments that the models' needs come from.
pub(super) const GPU_MEMORY: Bytes = Bytes(49_140_000_000);

const POLICIES: [&str; 7] = ["sjf-bsbf", "sjf-ffs", "gandiva", "las", "srtf", "sjf", "fifo"];

pub(super) fn run(folder: &Path, settings: &Settings, bars: &mut Bars) -> anyhow::Result<()> {
    let throughputs = data::throughputs(settings, "simulation")?;
    let (mut rows, mut curves) = (Vec::new(), Vec::<plot::Curve>::new());
    let mut largest = 0.0f64;
    for name in &settings.sharing_traces {
        let trace = data::muri(settings, name)?;
        let mut setup = Setup::uniform(8, 8);
        let measured = share_gpus(&mut setup, &trace, &throughputs, "v100", GPU_MEMORY);
        bars.note(&format!("{name}: {measured} pairs of models measured on V100s"));
        let mut means: Vec<Vec<f64>> = vec![Vec::new(); POLICIES.len()];
        for seed in 0..settings.seeds {
            let dealt = trace.dealt(seed);
            // The models' numbers stay the same when the jobs are dealt anew.
            for (policy, means) in POLICIES.iter().zip(&mut means) {
                let outcome = simulate(&dealt, &setup, policy)?;
                let summary = Summary::of(&outcome);
                let hours = summary.mean_completion_s / 3_600.0;
                means.push(hours);
                rows.push(format!("{name},{policy},{seed},{hours:.4},{:.4}", summary.gpu_use));
                if seed == 0 && name == &settings.sharing_traces[0] {
                    let times = outcome.completed.iter().map(|job| job.completion().as_secs_f64() / 3_600.0);
                    curves.push(((*policy).to_owned(), plot::cumulative(times.collect())));
                }
            }
        }
        let below = |other: usize| -> Vec<f64> {
            means[0].iter().zip(&means[other]).map(|(ours, theirs)| (1.0 - ours / theirs) * 100.0).collect()
        };
        for (other, what) in [(3, "Tiresias's LAS"), (4, "SRTF")] {
            let (median, least, most) = spread(&below(other));
            bars.at_least(&format!("{name}: SJF-BSBF below {what}, median"), median, BELOW_PREEMPTIVE, " %");
            bars.note(&format!(
                "{name}: SJF-BSBF below {what} by {least:.1} … {most:.1} % over {} seeds",
                settings.seeds
            ));
        }
        let (median, least, most) = spread(&below(1));
        largest = largest.max(median);
        bars.note(&format!("{name}: SJF-BSBF below SJF-FFS by {median:.1} % ({least:.1} … {most:.1})"));
    }
    bars.at_least("SJF-BSBF below SJF-FFS, the largest gain of these traces", largest, BELOW_ANYBODY, " %");
    let axes = ("hours from submission to end", "share of jobs");
    plot::shares(&folder.join("sharing.svg"), "completion times with and without sharing", axes, &curves)?;
    host::csv(&folder.join("sharing.csv"), "trace,policy,seed,mean_h,gpu_use", rows.into_iter())
}
