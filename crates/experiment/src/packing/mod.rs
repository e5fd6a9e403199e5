//! Packing on MIG instances: the published deployments line for line, no more GPUs, and what is proved of the fewest.

use crate::bars::Bars;
use crate::{host, plot};
use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What is measured, as `run.toml` says.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// Folder of the public profiles, from the root of the repository.
    data: PathBuf,
    /// Runs of each packing; the median time counts.
    repeats: usize,
    /// GPUs of the published deployments, set by set.
    published_gpus: Vec<u32>,
    /// Fractional lower bounds, set by set.
    fractional_gpus: Vec<u32>,
    /// Time limit of each packing, seconds.
    time_limit_s: f64,
    /// Sets that are drawn.
    drawn: Vec<usize>,
    /// Every rate times this, to see how packing grows.
    growth: Vec<u32>,
}

/// How one mode packed one set.
struct Packed {
    said: Value,
    deployment: String,
    times_ms: Vec<f64>,
}

/// Runs everything; whether every bar was met.
pub(crate) fn run(folder: &Path) -> anyhow::Result<bool> {
    let settings: Settings = toml::from_str(&std::fs::read_to_string(folder.join("run.toml"))?)?;
    let mut bars = Bars::default();
    bars.note(&format!("machine: {}", host::describe()));
    let mut lines = Vec::new();
    let mut curves: [Vec<(f64, f64)>; 3] = Default::default();
    let known = settings.published_gpus.iter().zip(&settings.fractional_gpus);
    for (number, (published, fractional)) in (1..).zip(known) {
        let theirs = packed(&settings, number, "parvagpu", &settings.data.join("SLO/SLO_req_rate.csv"))?;
        let ours = packed(&settings, number, "best", &settings.data.join("SLO/SLO_req_rate.csv"))?;
        draw(folder, &settings, number)?;
        let row = judged(&settings, number, (&theirs, &ours), (*published, *fractional), &mut bars)?;
        let at = f64::from(u32::try_from(number)?);
        let values = [f64::from(*published), row.gpus, f64::from(*fractional)];
        curves.iter_mut().zip(values).for_each(|(curve, value)| curve.push((at, value)));
        lines.push(row.line);
    }
    let header = "set,published_gpus,parvagpu_gpus,parvagpu_slices,parvagpu_overlaps,parvagpu_ms,best_gpus,best_slices,\
                  fractional_gpus,priced_gpus,proved_lower_gpus,proved,least_slack,sums,best_ms,best_ms_min,best_ms_max";
    host::csv(&folder.join("packing.csv"), header, lines.into_iter())?;
    let names = ["published", "ours", "fractional lower bound"];
    let curves: Vec<plot::Curve> = names.into_iter().map(str::to_owned).zip(curves).collect();
    plot::lines(&folder.join("packing.svg"), "GPUs that six sets of tenants need", ("set", "GPUs"), &curves)?;
    grown(folder, &settings, &mut bars)?;
    bars.finish(folder)
}

struct Row {
    line: String,
    gpus: f64,
}

/// The bars of one set.
fn judged(
    settings: &Settings,
    number: usize,
    (theirs, ours): (&Packed, &Packed),
    (published, fractional): (u32, u32),
    bars: &mut Bars,
) -> anyhow::Result<Row> {
    let known = settings.data.join(format!("deployment/SLO{number}/SLO{number}_ParvaGPU_deploy.csv"));
    let known =
        std::fs::read_to_string(&known).with_context(|| format!("cannot read {}", known.display()))?;
    let same = theirs.deployment == known;
    let gpus = |packed: &Packed| number_of(&packed.said["gpus"], "gpus");
    let slices = |packed: &Packed| number_of(&packed.said["slices"], "slices");
    let bound = &ours.said["bound"];
    let (lower, priced) =
        (number_of(&bound["lower_gpus"], "bound")?, number_of(&bound["priced_gpus"], "prices")?);
    let found = number_of(&bound["fractional_gpus"], "fraction")?;
    let proved = bound["proved"].as_bool().context("proved or not")?;
    let faults = ours.said["faults"].as_array().context("faults")?;
    let overlaps = theirs.said["faults"].as_array().context("faults")?.len();
    let tenants = ours.said["tenants"].as_array().context("tenants")?;
    let slack = tenants.iter().filter_map(|tenant| tenant["slack"].as_f64()).fold(f64::INFINITY, f64::min);
    let wall = spread(&ours.times_ms);
    let (limit, least) = (f64::from(published), f64::from(fractional));
    bars.at_least(
        &format!("set {number}: the published deployment of {published} GPUs line for line"),
        f64::from(u8::from(same && gpus(theirs)? == limit)),
        1.0,
        "",
    );
    bars.at_most(
        &format!("set {number}: GPUs, the published deployment has {published}"),
        gpus(ours)?,
        limit,
        "",
    );
    bars.at_most(&format!("set {number}: faults that the judge finds in ours"), faults.len() as f64, 0.0, "");
    bars.at_least(
        &format!("set {number}: the fractional lower bound is {fractional}"),
        f64::from(u8::from(found == least)),
        1.0,
        "",
    );
    let proof = if proved { "proved to be the fewest" } else { "not proved" };
    bars.note(&format!(
        "set {number}: {} GPUs, {proof}; at least {lower} by search, {priced:.3} by prices; least slack {:.1} %; {:.1} ms ({:.1} \
         … {:.1}), ParvaGPU's {:.1} ms, {overlaps} of its instances begin in slots of others",
        gpus(ours)?,
        slack * 100.0,
        wall.0,
        wall.1,
        wall.2,
        spread(&theirs.times_ms).0
    ));
    let mut line = format!("{number},{published},{},{},{overlaps},", gpus(theirs)?, slices(theirs)?);
    let _ = write!(line, "{:.3},{},{},", spread(&theirs.times_ms).0, gpus(ours)?, slices(ours)?);
    let _ = write!(line, "{found},{priced:.4},{lower},{proved},{slack:.4},{},", bound["sums"]);
    let _ = write!(line, "{:.3},{:.3},{:.3}", wall.0, wall.1, wall.2);
    Ok(Row { line, gpus: gpus(ours)? })
}

/// Packs every set with larger rates, where nothing is published to compare with but ParvaGPU's scheduler.
fn grown(folder: &Path, settings: &Settings, bars: &mut Bars) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(settings.data.join("SLO/SLO_req_rate.csv"))?;
    let mut lines = Vec::new();
    for times in &settings.growth {
        let cell = |cell: &str| {
            cell.trim().parse::<u32>().map_or(cell.to_owned(), |rate| (rate * times).to_string())
        };
        let row = |line: &str| line.split(',').map(cell).collect::<Vec<_>>().join(",");
        let rates = std::env::temp_dir().join(format!("raddle-rates-{times}.csv"));
        std::fs::write(&rates, text.lines().map(row).collect::<Vec<_>>().join("\n"))?;
        for number in 1..=settings.published_gpus.len() {
            let theirs = packed(settings, number, "parvagpu", &rates)?;
            let ours = packed(settings, number, "best", &rates)?;
            let gpus = |packed: &Packed| number_of(&packed.said["gpus"], "gpus");
            let bound = &ours.said["bound"];
            let lower = number_of(&bound["lower_gpus"], "bound")?;
            let wall_ms = spread(&ours.times_ms).0;
            bars.note(&format!(
                "set {number} × {times}: {} GPUs, at least {lower}; ParvaGPU's scheduler {}; {wall_ms:.0} ms",
                gpus(&ours)?,
                gpus(&theirs)?
            ));
            lines.push(format!("{number},{times},{},{},{lower},{wall_ms:.1}", gpus(&theirs)?, gpus(&ours)?));
        }
    }
    let header = "set,times,parvagpu_gpus,best_gpus,proved_lower_gpus,best_ms";
    host::csv(&folder.join("growth.csv"), header, lines.into_iter())
}

fn number_of(value: &Value, what: &str) -> anyhow::Result<f64> {
    value.as_f64().with_context(|| format!("raddle says no {what}"))
}

/// The middle one, and the extremes.
fn spread(values: &[f64]) -> (f64, f64, f64) {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    let at = |place: usize| sorted.get(place).copied().unwrap_or(f64::NAN);
    (at(last / 2), at(0), at(last))
}

/// Packs one set as often as the settings say.
fn packed(settings: &Settings, number: usize, mode: &str, rates: &Path) -> anyhow::Result<Packed> {
    let file = std::env::temp_dir().join("raddle-packing.csv");
    let mut found = Packed { said: Value::Null, deployment: String::new(), times_ms: Vec::new() };
    for _ in 0..settings.repeats.max(1) {
        let said = raddle(settings, number, mode, rates, &["-o", &file.to_string_lossy()])?;
        found.said = said["sets"][0].clone();
        found.times_ms.push(number_of(&found.said["wall_s"], "time")? * 1e3);
    }
    found.deployment = std::fs::read_to_string(&file)?;
    Ok(found)
}

fn draw(folder: &Path, settings: &Settings, number: usize) -> anyhow::Result<()> {
    if settings.drawn.contains(&number) {
        for mode in ["best", "parvagpu"] {
            let file = folder.join(format!("set{number}-{mode}.svg"));
            let rates = settings.data.join("SLO/SLO_req_rate.csv");
            raddle(settings, number, mode, &rates, &["--svg", &file.to_string_lossy()])?;
        }
    }
    Ok(())
}

/// What `raddle plan pack …` prints as JSON.
fn raddle(
    settings: &Settings,
    number: usize,
    mode: &str,
    rates: &Path,
    more: &[&str],
) -> anyhow::Result<Value> {
    let own = std::env::current_exe()?;
    let program = own.parent().context("a program lies in a folder")?.join("raddle");
    let output = Command::new(&program)
        .args(["--format", "json", "plan", "pack", "--mode", mode, "--set", &number.to_string()])
        .arg("--profiles")
        .arg(settings.data.join("prof_data"))
        .arg("--slo")
        .arg(settings.data.join("SLO/SLO_latency.csv"))
        .arg("--rates")
        .arg(rates)
        .args(["--time-limit", &settings.time_limit_s.to_string()])
        .args(more)
        .env("RADDLE_LOG", "error")
        .output()
        .with_context(|| format!("cannot start {}", program.display()))?;
    if !output.status.success() {
        bail!("raddle plan pack, set {number}: {}", String::from_utf8_lossy(&output.stderr));
    }
    serde_json::from_slice(&output.stdout).context("raddle prints JSON")
}
