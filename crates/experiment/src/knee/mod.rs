//! Knees: the public A100 tables of eleven models over slices, networks of the zoo over this machine's cores and over the
//! parts of a GPU, how well the execution-time model fits all of them, and how much networks on disjoint cores slow each
//! other down. Nothing here has a limit in an issue, so that there are notes and no bars.

mod live;

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
struct Settings {
    /// Folder of the public tables, from the root of the repository.
    tables: PathBuf,
    /// Networks of the zoo.
    models: Vec<String>,
    /// Batches that they are measured at.
    batches: Vec<u32>,
    /// Timed runs of each.
    repeats: u32,
    /// The promise that the best batch and part are sought for, ms.
    slo_ms: f64,
    /// Requests a second that they must serve.
    rate: f64,
}

/// Tables that are drawn: a knee within the GPU, and none.
const DRAWN: [&str; 4] = ["bert", "mobilenetv2", "resnet50", "vgg16"];

const PARTS: [&str; 2] = ["tables", "cores"];

/// Runs the parts named, or all; or with `live DIR` studies profiles that were measured on a GPU.
pub(crate) fn run(folder: &Path, parts: &[&str]) -> anyhow::Result<bool> {
    if let ["live", profiles] = parts {
        return live::run(folder, Path::new(profiles));
    }
    if let Some(unknown) = parts.iter().find(|part| !PARTS.contains(part)) {
        bail!("knee has no part {unknown:?}; there are {}, and `live DIR`", PARTS.join(", "));
    }
    let settings: Settings = toml::from_str(&std::fs::read_to_string(folder.join("run.toml"))?)?;
    let wanted = |part: &str| parts.is_empty() || parts.contains(&part);
    let mut bars = Bars::default();
    bars.note(&format!("machine: {}", host::describe()));
    if wanted("tables") {
        tables(folder, &settings, &mut bars)?;
    }
    if wanted("cores") {
        cores(folder, &settings, &mut bars)?;
    }
    // Only a whole run may replace the record.
    let record = if parts.is_empty() { folder.to_owned() } else { std::env::temp_dir() };
    bars.finish(&record)
}

fn tables(folder: &Path, settings: &Settings, bars: &mut Bars) -> anyhow::Result<()> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(&settings.tables)
        .with_context(|| format!("cannot read {}", settings.tables.display()))?
        .map(|entry| Ok(entry?.path()))
        .collect::<anyhow::Result<_>>()?;
    files.sort();
    let names: Vec<String> = files.iter().map(|file| file.to_string_lossy().into_owned()).collect();
    let said = knees(&names, &[])?;
    record(&folder.join("tables.csv"), &said, "A100 slices", bars)?;
    let drawn = |name: &&String| DRAWN.iter().any(|drawn| name.ends_with(&format!("/{drawn}.csv")));
    let drawn: Vec<String> = names.iter().filter(drawn).cloned().collect();
    knees(&drawn, &["--svg", &folder.join("tables.svg").to_string_lossy()])?;
    Ok(())
}

fn cores(folder: &Path, settings: &Settings, bars: &mut Bars) -> anyhow::Result<()> {
    let zoo = std::env::temp_dir().join("raddle-knee");
    std::fs::create_dir_all(&zoo)?;
    let place = zoo.to_string_lossy().into_owned();
    let names: Vec<&str> = settings.models.iter().map(String::as_str).collect();
    raddle(&[&["zoo", "--output", &place], names.as_slice()].concat())?;
    let (batches, repeats) = (
        settings.batches.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
        settings.repeats.to_string(),
    );
    let file = |name: &str| zoo.join(name).join("1/model.onnx").to_string_lossy().into_owned();
    let spatial = ["--spatial", "--batches", &batches, "--repeats", &repeats];
    let mut profiles = Vec::new();
    for name in &names {
        let profile = folder.join(format!("{name}.json")).to_string_lossy().into_owned();
        raddle(&[&["profile", &file(name)], spatial.as_slice(), &["--output", &profile]].concat())?;
        profiles.push(profile);
    }
    let (slo_ms, rate) = (settings.slo_ms.to_string(), settings.rate.to_string());
    let picture = folder.join("cores.svg").to_string_lossy().into_owned();
    let said = knees(&profiles, &["--slo-ms", &slo_ms, "--rate", &rate, "--svg", &picture])?;
    record(&folder.join("cores.csv"), &said, "cores", bars)?;
    for model in said.as_array().context("models")? {
        let best = &model["optimum"];
        let name = model["model"].as_str().unwrap_or("?");
        bars.note(&match (best.is_null(), model["unfit"].as_str()) {
            (false, _) => format!(
                "{name}: best batch {} on {} cores for {slo_ms} ms and {rate}/s: {:.1} ms",
                best["batch"],
                best["units"],
                best["latency_ms"].as_f64().unwrap_or(f64::NAN)
            ),
            (true, why) => format!("{name} cannot be served: {}", why.unwrap_or("?")),
        });
    }
    let table = folder.join("interference.json").to_string_lossy().into_owned();
    let _ = std::fs::remove_file(&table);
    for (at, name) in names.iter().enumerate() {
        for other in &names[at..] {
            let against = ["--against", &file(other), "--interference", &table];
            let said = raddle(&[&["profile", &file(name)], spatial.as_slice(), &against].concat())?;
            for pair in said["pairs"].as_array().context("pairs")? {
                let text = |key: &str| pair[key].as_str().unwrap_or("?").to_owned();
                let slowdown = pair["slowdown"].as_f64().unwrap_or(f64::NAN);
                bars.note(&format!(
                    "{} beside {}: {slowdown:.2} times as long",
                    text("model"),
                    text("beside")
                ));
            }
        }
    }
    Ok(())
}

/// A line a model and batch, and notes on the fits.
fn record(path: &Path, said: &Value, what: &str, bars: &mut Bars) -> anyhow::Result<()> {
    let mut lines = Vec::new();
    let mut errors = Vec::new();
    for model in said.as_array().context("models")? {
        let name = model["model"].as_str().unwrap_or("?");
        let corrections = model["corrections"].as_array().map_or(0, Vec::len);
        let fit = &model["fit"];
        if let (Some(median), Some(most)) = (fit["error_median"].as_f64(), fit["error_max"].as_f64()) {
            errors.push(median);
            bars.note(&format!(
                "{name} over {what}: the execution-time model is off by {:.1} % (median), {:.1} % at most; {corrections} points \
                 corrected",
                median * 100.0,
                most * 100.0
            ));
        }
        for knee in model["knees"].as_array().context("knees")? {
            let cell = |key: &str| knee[key].to_string();
            let keys = [
                "batch",
                "efficient_units",
                "sufficient_units",
                "fitted_units",
                "efficient_ms",
                "sufficient_ms",
            ];
            let cells: Vec<String> = keys.into_iter().chain(["whole_ms"]).map(cell).collect();
            let fit = |key: &str| fit[key].to_string();
            lines.push(format!("{name},{},{},{}", cells.join(","), fit("error_median"), fit("error_max")));
        }
    }
    errors.sort_by(f64::total_cmp);
    if let Some(median) = errors.get(errors.len().saturating_sub(1) / 2) {
        bars.note(&format!(
            "over {what}: median error of {} models is {:.1} %",
            errors.len(),
            median * 100.0
        ));
    }
    let header = "model,batch,efficient_units,sufficient_units,fitted_units,efficient_ms,sufficient_ms,whole_ms,fit_error_median,\
                  fit_error_max";
    host::csv(path, header, lines.into_iter())
}

/// What `raddle plan knee …` says of models; one that cannot be served is no failure here.
fn knees(profiles: &[String], more: &[&str]) -> anyhow::Result<Value> {
    let profiles: Vec<&str> = profiles.iter().map(String::as_str).collect();
    Ok(raddle(&[&["plan", "knee"], profiles.as_slice(), more].concat())?["models"].clone())
}

/// What `raddle …` prints as JSON.
fn raddle(arguments: &[&str]) -> anyhow::Result<Value> {
    let own = std::env::current_exe()?;
    let program = own.parent().context("a program lies in a folder")?.join("raddle");
    let output = Command::new(&program)
        .args(["--format", "json"])
        .args(arguments)
        .env("RADDLE_LOG", "error")
        .output()
        .with_context(|| format!("cannot start {}", program.display()))?;
    if output.stdout.is_empty() && !output.status.success() {
        bail!("raddle {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
    }
    serde_json::from_slice(&output.stdout).context("raddle prints JSON")
}
