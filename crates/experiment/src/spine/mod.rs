//! The spine: a turn's cost, the simulator's speed, segments against the whole, preemption, and how well the simulator
//! foretells the live run.

mod fidelity;
pub(crate) mod live;
mod preemption;
mod segments;
mod simulator;
mod turns;

use crate::bars::Bars;
use crate::host;
use anyhow::bail;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// What is measured, as `run.toml` says.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settings {
    /// Turns measured for each policy.
    turns: usize,
    /// Virtual seconds simulated for each policy.
    simulated_s: u64,
    /// Networks measured cut and whole.
    segment_models: Vec<String>,
    /// Pairs of runs, cut and whole in turn, for each network.
    segment_pairs: usize,
    /// The network of the high class, one row a request.
    high_model: String,
    /// The network of the low class.
    low_model: String,
    /// Rows of each low request.
    low_rows: u32,
    /// Low clients, each asking again when answered.
    low_clients: usize,
    /// High requests measured alone and under `windows`.
    high_requests: usize,
    /// High requests measured under the other policies, where each may wait for seconds.
    rival_requests: usize,
    /// Mean time between high requests, ms; exponential.
    high_gap_ms: u64,
    /// Seconds of arrivals in the comparison of simulator and live run.
    fidelity_s: u64,
    /// Share of the partition that those arrivals ask for.
    fidelity_load: f64,
    /// The core that the measured partition owns; everything else stays off it as far as we can.
    core: usize,
}

const PARTS: [&str; 5] = ["turns", "simulator", "segments", "preemption", "fidelity"];

/// Runs the parts named, or all; whether every bar was met.
pub(crate) fn run(folder: &Path, parts: &[&str]) -> anyhow::Result<bool> {
    if let Some(unknown) = parts.iter().find(|part| !PARTS.contains(part)) {
        bail!("the spine has no part {unknown:?}; there are {}", PARTS.join(", "));
    }
    let settings: Settings = toml::from_str(&std::fs::read_to_string(folder.join("run.toml"))?)?;
    let wanted = |part: &str| parts.is_empty() || parts.contains(&part);
    let mut bars = Bars::default();
    bars.note(&format!("machine: {}", host::describe()));
    if wanted("turns") {
        turns::run(folder, &settings, &mut bars)?;
    }
    if wanted("simulator") {
        simulator::run(folder, &settings, &mut bars)?;
    }
    if wanted("segments") {
        segments::run(folder, &settings, &mut bars)?;
    }
    if wanted("preemption") {
        preemption::run(folder, &settings, &mut bars)?;
    }
    if wanted("fidelity") {
        fidelity::run(folder, &settings, &mut bars)?;
    }
    // Only a whole run may replace the record.
    let record = if parts.is_empty() { folder.to_owned() } else { std::env::temp_dir() };
    bars.finish(&record)
}
