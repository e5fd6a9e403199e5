//! How long simulations take on one core: seconds of processor, so that others on the machine do not count.

use super::{Settings, choice, data, simulate, spread};
use crate::bars::Bars;
use crate::host;
use sim::cluster::{ClusterError, ClusterSimulation, Setup, trace};
use std::path::Path;

/// A 64-GPU Philly cluster under LAS, in seconds.
const CLUSTER_LIMIT_S: f64 = 1.0;

/// The whole Philly trace under any policy, in seconds.
const WHOLE_LIMIT_S: f64 = 60.0;

/// Policies for the whole trace: all but those of other simulators' timing and those that need pairs or kinds of GPU.
const WHOLE: [&str; 15] = [
    "fifo",
    "fifo-strict",
    "sjf",
    "srtf",
    "srsf",
    "las",
    "las-promote",
    "gittins",
    "gandiva",
    "sjf-ffs",
    "sjf-bsbf",
    "synergy-proportional",
    "synergy-tune",
    "themis",
    "optimus",
];

pub(super) fn run(folder: &Path, settings: &Settings, bars: &mut Bars) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    let trace = data::muri(settings, "trace2")?;
    for policy in ["las", "muri-las"] {
        let mut times = Vec::new();
        for _ in 0..settings.repeats {
            times.push(data::timed(|| simulate(&trace, &Setup::uniform(8, 8), policy))?.1);
        }
        rows.extend(times.iter().map(|time| format!("trace2,{policy},{},{time:.4}", trace.jobs.len())));
        let (median, least, most) = spread(&times);
        bars.at_most(&format!("5,755 jobs on 64 GPUs under {policy}, median"), median, CLUSTER_LIMIT_S, " s");
        bars.note(&format!("5,755 jobs on 64 GPUs under {policy}: {least:.3} … {most:.3} s"));
    }
    let whole = trace::philly(&data::text(settings, "philly/philly.csv")?, None)?;
    whole.notes.iter().for_each(|note| bars.note(note));
    let nodes = settings.philly_gpus / u32::from(settings.philly_node_gpus);
    let setup = Setup::uniform(nodes, settings.philly_node_gpus);
    for policy in WHOLE {
        let simulation = ClusterSimulation::new(&whole, &setup, &choice(policy)?)?;
        let (begin, mut turns) = (data::processor_s().unwrap_or(0.0), 0u32);
        let spent = || data::processor_s().unwrap_or(0.0) - begin;
        let (outcome, seconds) = data::timed(|| {
            Ok(simulation.run(|_, _, _| {
                turns += 1;
                let over = turns.is_multiple_of(1_000) && spent() >= settings.stop_after_s as f64;
                if over { Err(std::io::Error::other("it took too long")) } else { Ok(()) }
            }))
        })?;
        match outcome {
            Ok(outcome) => {
                let mean = outcome.mean_completion_s();
                bars.note(&format!(
                    "Philly under {policy}: mean {:.3} h, {} turns",
                    mean / 3_600.0,
                    outcome.turns
                ));
            }
            Err(ClusterError::Record(_)) => bars.note(&format!("Philly under {policy}: stopped unfinished")),
            Err(other) => return Err(other.into()),
        }
        rows.push(format!("philly,{policy},{},{seconds:.4}", whole.jobs.len()));
        let what = format!("82,247 Philly jobs on {} GPUs under {policy}", settings.philly_gpus);
        bars.at_most(&what, seconds, WHOLE_LIMIT_S, " s");
    }
    host::csv(&folder.join("speed.csv"), "trace,policy,jobs,seconds", rows.into_iter())
}
