//! Spatial sharing in simulation: D-STACK beside every rival on mixes of models, and SGPRS's pivot.

mod change;
mod device;
mod live;
mod mixes;
mod pivot;
pub(crate) mod serving;
mod tasks;

use serde::{Deserialize, Serialize};
use sim::{Arrivals, Load, Scenario, Simulation, Summary};
use std::path::{Path, PathBuf};

/// What is simulated, as `run.toml` says.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MixSettings {
    /// Folder of public profiles, from the root of the repository.
    data: PathBuf,
    /// Simulated time of each run, ms.
    duration_ms: u64,
    /// Seeds of each run; medians count.
    seeds: u64,
    /// Units between two sizes of parts.
    grid: u32,
    /// Streams of the whole device.
    streams: u16,
    /// Loads as parts of what the device can do at best.
    loads: Vec<f64>,
    /// The load below capacity at which no promise may be missed.
    calm: f64,
    /// Policies.
    policies: Vec<String>,
    /// Mixes by name: models, each with its promise in ms.
    mixes: Vec<Mix>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Mix {
    name: String,
    models: Vec<(String, u64)>,
}

/// Simulates D-STACK's mixes, or with `report` judges the recorded table again; whether every bar was met.
pub(crate) fn dstack(folder: &Path, parts: &[&str]) -> anyhow::Result<bool> {
    let settings = toml::from_str(&std::fs::read_to_string(folder.join("run.toml"))?)?;
    match parts {
        [] => mixes::run(folder, &settings),
        ["report"] => mixes::report(folder, &settings),
        ["live", out] => live::run(folder, Path::new(out), None),
        ["live", out, "--policies", only] => live::run(folder, Path::new(out), Some(only)),
        ["live-merge", out @ ..] if !out.is_empty() => live::merge(folder, out),
        ["live-again", out] => live::again(folder, Path::new(out)),
        ["live-report"] => live::report(folder),
        _ => anyhow::bail!(
            "dstack takes `report`, `live OUT [--policies A,B…]` on a machine with a GPU, `live-again OUT`, `live-merge OUT…`, \
             `live-report` or nothing"
        ),
    }
}

/// Simulates SGPRS's pivot, measures it on a GPU, or what changing partitions costs there; whether every bar was met.
pub(crate) fn sgprs(folder: &Path, parts: &[&str]) -> anyhow::Result<bool> {
    match parts {
        [] => pivot::run(folder, &toml::from_str(&std::fs::read_to_string(folder.join("run.toml"))?)?),
        ["live", out] => tasks::run(folder, Path::new(out)),
        ["live-report"] => tasks::report(folder),
        ["change", out] => change::run(Path::new(out)),
        ["probe", cache] => change::probe(Path::new(cache)),
        _ => anyhow::bail!(
            "sgprs takes `live OUT` or `change OUT` on a machine with a GPU, `live-report` or nothing"
        ),
    }
}

fn load(model: &str, arrivals: Arrivals) -> Load {
    Load {
        model: model.into(),
        class: 1,
        rows: 1,
        timeout_us: None,
        arrivals,
        copies: 1,
        start_ms: 0,
        end_ms: None,
    }
}

/// Simulates; a row for each model and one for all.
fn simulate(scenario: &Scenario, choice: &sched::node::policy::Choice) -> anyhow::Result<Vec<Summary>> {
    let faults = scenario.faults();
    anyhow::ensure!(faults.is_empty(), "the scenario has faults: {}", faults.join("; "));
    let outcome = Simulation::new(scenario, choice).run(|_, _, _| Ok(()))?;
    Ok(outcome.tally.summary(outcome.partitions))
}

/// Jain's index of fairness; 1 is equal.
fn jain(parts: &[f64]) -> f64 {
    let sum: f64 = parts.iter().sum();
    let squares: f64 = parts.iter().map(|part| part * part).sum();
    sum * sum / (parts.len() as f64 * squares).max(1e-12)
}

/// The middle of numbers; of an even count the lower one.
fn middle(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN)
}
