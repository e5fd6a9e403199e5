//! Planners: the published workloads' contiguous optima and the time they take, islands against the best known,
//! PipeDream's digits, schedules' bubbles, and a graph that is too large for its time limit.

mod islands;
mod limits;
mod optima;
mod pipelines;
mod schedules;

use crate::bars::Bars;
use crate::host;
use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What is measured, as `run.toml` says.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settings {
    /// Folder of the public planner data, from the root of the repository.
    data: PathBuf,
    /// Runs of each contiguous plan; the median counts.
    repeats: usize,
    /// Time limit of each placement with islands, seconds.
    islands_limit_s: u64,
    /// Workloads whose speed is compared with the published planner's.
    rivals: Vec<String>,
}

/// A published workload and what is known about it.
pub(crate) struct Workload {
    /// Its folder and name.
    name: String,
    /// The contiguous optimum, ms, as it is printed.
    optimum: String,
    /// The published planner's CPU seconds where its numbers were made, if it ended.
    rival_s: Option<f64>,
    /// The best value that anything reached, contiguous or not, ms, and its proved gap where there is one.
    best_ms: f64,
    gap: Option<f64>,
}

const PARTS: [&str; 5] = ["optima", "islands", "pipelines", "schedules", "limits"];

/// Runs the parts named, or all; whether every bar was met.
pub(crate) fn run(folder: &Path, parts: &[&str]) -> anyhow::Result<bool> {
    if let Some(unknown) = parts.iter().find(|part| !PARTS.contains(part)) {
        bail!("plan has no part {unknown:?}; there are {}", PARTS.join(", "));
    }
    let settings: Settings = toml::from_str(&std::fs::read_to_string(folder.join("run.toml"))?)?;
    let wanted = |part: &str| parts.is_empty() || parts.contains(&part);
    let mut bars = Bars::default();
    bars.note(&format!("machine: {}", host::describe()));
    let workloads = workloads(&settings)?;
    if wanted("optima") {
        optima::run(folder, &settings, &workloads, &mut bars)?;
    }
    if wanted("islands") {
        islands::run(folder, &settings, &workloads, &mut bars)?;
    }
    if wanted("pipelines") {
        pipelines::run(folder, &settings, &mut bars)?;
    }
    if wanted("schedules") {
        schedules::run(folder, &mut bars)?;
    }
    if wanted("limits") {
        limits::run(&mut bars)?;
    }
    // Only a whole run may replace the record.
    let record = if parts.is_empty() { folder.to_owned() } else { std::env::temp_dir() };
    bars.finish(&record)
}

impl Workload {
    /// Its file.
    fn file(&self, settings: &Settings) -> PathBuf {
        settings.data.join("dnn-partitioning/throughput-inputs").join(format!("{}.json", self.name))
    }
}

/// The workloads, from the table of reference results.
fn workloads(settings: &Settings) -> anyhow::Result<Vec<Workload>> {
    let path = settings.data.join("dnn-partitioning/reference-runs/reference-results.csv");
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("cannot read {}; put the public planner data there", path.display()))?;
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().context("the table is empty")?.split(',').collect();
    let mut workloads = Vec::new();
    for line in lines {
        let cells: Vec<&str> = line.split(',').collect();
        let cell = |name: &str| {
            let at = header.iter().position(|column| *column == name);
            at.and_then(|at| cells.get(at)).copied().filter(|cell| !cell.is_empty())
        };
        let number = |name: &str| cell(name).and_then(|cell| cell.parse::<f64>().ok());
        let reached = ["dp_prototype", "scotch_7_0_3", "local_search_10", "expert", "ip_noncontig_highs_obj"];
        let best_ms = reached.iter().filter_map(|name| number(name)).fold(f64::INFINITY, f64::min);
        let solved = number("ip_noncontig_highs_obj").zip(number("ip_noncontig_highs_bound"));
        workloads.push(Workload {
            name: cell("workload").context("a row without a name")?.to_owned(),
            optimum: cell("dp_prototype").context("a row without an optimum")?.to_owned(),
            rival_s: number("dp_reference_cpu_s"),
            best_ms,
            gap: solved.map(|(value, bound)| (value - bound) / value),
        });
    }
    Ok(workloads)
}

/// What `raddle plan …` prints as JSON.
fn raddle(arguments: &[&str]) -> anyhow::Result<Value> {
    let own = std::env::current_exe()?;
    let program = own.parent().context("a program lies in a folder")?.join("raddle");
    let output = Command::new(&program)
        .args(["--format", "json", "plan"])
        .args(arguments)
        .env("RADDLE_LOG", "error")
        .output()
        .with_context(|| format!("cannot start {}", program.display()))?;
    if !output.status.success() {
        bail!("raddle plan {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
    }
    serde_json::from_slice(&output.stdout).context("raddle prints JSON")
}

/// CPU seconds of this thread so far.
fn cpu_s() -> anyhow::Result<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let ns: f64 = text.split_whitespace().next().context("the system counts CPU time")?.parse()?;
    Ok(ns / 1e9)
}

/// CPU seconds of all children that were waited for; hundredths of a second.
fn children_s() -> anyhow::Result<f64> {
    let text = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> =
        text.rsplit_once(')').context("a name in brackets")?.1.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok());
    Ok(ticks(13).zip(ticks(14)).map(|(user, system)| user + system).context("times of children")? / 100.0)
}

/// The middle one, and the extremes.
fn spread(mut values: Vec<f64>) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    let last = values.len().saturating_sub(1);
    let at = |place: usize| values.get(place).copied().unwrap_or(f64::NAN);
    (at(last / 2), at(0), at(last))
}
