//! Cluster scheduling on public traces: the peers' own numbers, speed, Synergy's gain, Themis's fairness, what sharing GPUs
//! brings.

mod data;
mod peers;
mod sharing;
mod speed;
mod synergy;
mod themis;

use crate::bars::Bars;
use crate::host;
use anyhow::bail;
use sched::cluster::policy::Choice;
use serde::{Deserialize, Serialize};
use sim::cluster::{ClusterOutcome, ClusterSimulation, Setup, Trace};
use std::path::Path;

/// What is measured, as `run.toml` says.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settings {
    /// Folder of public traces, from the workspace.
    data: String,
    /// Repeats of each timed simulation.
    repeats: usize,
    /// Seconds after which a simulation of the whole Philly trace is stopped.
    stop_after_s: u64,
    /// GPUs for the whole Philly trace.
    philly_gpus: u32,
    /// GPUs a node there.
    philly_node_gpus: u8,
    /// Jobs an hour at which Synergy's ways are compared.
    synergy_loads: Vec<f64>,
    /// Muri traces for sharing.
    sharing_traces: Vec<String>,
    /// Muri traces for fairness.
    fairness_traces: Vec<String>,
    /// Seeds for the spread.
    seeds: u64,
}

const PARTS: [&str; 5] = ["peers", "speed", "synergy", "themis", "sharing"];

/// Runs the parts named, or all; whether every bar was met.
pub(crate) fn run(folder: &Path, parts: &[&str]) -> anyhow::Result<bool> {
    if let Some(unknown) = parts.iter().find(|part| !PARTS.contains(part)) {
        bail!("the cluster has no part {unknown:?}; there are {}", PARTS.join(", "));
    }
    let settings: Settings = toml::from_str(&std::fs::read_to_string(folder.join("run.toml"))?)?;
    let wanted = |part: &str| parts.is_empty() || parts.contains(&part);
    let mut bars = Bars::default();
    bars.note(&format!("machine: {}", host::describe()));
    if wanted("peers") {
        peers::run(folder, &settings, &mut bars)?;
    }
    if wanted("speed") {
        speed::run(folder, &settings, &mut bars)?;
    }
    if wanted("synergy") {
        synergy::run(folder, &settings, &mut bars)?;
    }
    if wanted("themis") {
        themis::run(folder, &settings, &mut bars)?;
    }
    if wanted("sharing") {
        sharing::run(folder, &settings, &mut bars)?;
    }
    // Only a whole run may replace the record.
    let record = if parts.is_empty() { folder.to_owned() } else { std::env::temp_dir() };
    bars.finish(&record)
}

/// Simulates `trace` on `setup` under the policy called `name`, with the timing its name stands for.
fn simulate(trace: &Trace, setup: &Setup, name: &str) -> anyhow::Result<ClusterOutcome> {
    let setup = setup.clone().for_policy(name);
    Ok(ClusterSimulation::new(trace, &setup, &choice(name)?)?.run(|_, _, _| Ok(()))?)
}

fn choice(name: &str) -> anyhow::Result<Choice> {
    Choice::named(name).ok_or_else(|| anyhow::anyhow!("no policy is called {name:?}"))
}

/// Median, least and largest.
fn spread(values: &[f64]) -> (f64, f64, f64) {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    (sorted[sorted.len() / 2], sorted[0], sorted[sorted.len() - 1])
}
