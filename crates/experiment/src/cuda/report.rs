//! Judges what was measured on a GPU: reads the tables in `experiments/pipeswitch`, writes `bars.txt` and the figures.
//! Needs no GPU, so that anyone can check the verdicts.

use crate::bars::Bars;
use anyhow::{Context as _, bail};
use plotters::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;

/// A network, a batch, a precision.
type Key = (String, u32, String);

const OURS: RGBColor = RGBColor(0, 114, 178);
const OTHER: RGBColor = RGBColor(230, 159, 0);

/// Rows of a table with a header, each as its fields by name.
fn rows(path: &Path) -> anyhow::Result<Vec<BTreeMap<String, String>>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next().context("a table without a header")?.split(',').collect();
    let row = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        if fields.len() != names.len() {
            bail!("{}: {line:?} has {} fields, the header {}", path.display(), fields.len(), names.len());
        }
        Ok(names.iter().zip(fields).map(|(name, field)| ((*name).to_owned(), field.to_owned())).collect())
    };
    lines.map(row).collect()
}

fn number(row: &BTreeMap<String, String>, name: &str) -> anyhow::Result<f64> {
    let text = row.get(name).with_context(|| format!("no column {name}"))?;
    text.parse().with_context(|| format!("{text:?} in column {name} is not a number"))
}

fn key(row: &BTreeMap<String, String>) -> anyhow::Result<Key> {
    let text = |name: &str| row.get(name).cloned().with_context(|| format!("no column {name}"));
    Ok((text("model")?, text("batch")?.parse()?, text("precision")?))
}

/// Reads the record in `folder`; whether every bar was met.
pub(crate) fn run(folder: &Path) -> anyhow::Result<bool> {
    let mut bars = Bars::default();
    let ratios = latency(folder, &mut bars)?;
    draw_ratios(&folder.join("latency.svg"), &ratios)?;
    let ways = switch(folder, &mut bars)?;
    draw_ways(&folder.join("switch.svg"), &ways)?;
    preempt(folder, &mut bars)?;
    for row in rows(&folder.join("cycles.csv"))? {
        let what = format!("inference in cycles of {} s, share of a ready model's", row["cycle_s"]);
        bars.at_least(&what, 100.0 * number(&row, "share_of_ready")?, 97.0, " %");
    }
    let churn = std::fs::read_to_string(folder.join("churn.txt"))?;
    bars.note(churn.trim());
    sanitizer(folder, &mut bars)?;
    check(folder, &mut bars)?;
    several(folder, &mut bars)?;
    bars.finish(folder)
}

/// What compute-sanitizer said of each program it watched.
fn sanitizer(folder: &Path, bars: &mut Bars) -> anyhow::Result<()> {
    let path = folder.join("sanitizer.txt");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let said = |line: &str| line.split_once("ERROR SUMMARY: ")?.1.split(' ').next()?.parse::<f64>().ok();
    let found: Vec<f64> = text.lines().filter_map(said).collect();
    anyhow::ensure!(!found.is_empty(), "{} has no summary of errors", path.display());
    let what = format!("errors that compute-sanitizer finds in {} programs", found.len());
    bars.at_most(&what, found.iter().sum(), 0.0, "");
    Ok(())
}

/// Precisions with the relative error they may have against single precision.
const ALLOWED: [(&str, f64); 4] = [("fp32", 1e-4), ("tf32", 3e-3), ("fp16", 2e-2), ("bf16", 2e-2)];

/// Every network of the zoo at every batch and precision against onnxruntime; of the real files what is beyond its limit.
fn check(folder: &Path, bars: &mut Bars) -> anyhow::Result<()> {
    let rows = rows(&folder.join("check.csv"))?;
    let networks: Vec<&str> =
        graph::zoo::names().iter().copied().filter(|name| !name.starts_with("tiny_")).collect();
    let batches = ["1", "2", "7", "16"];
    let mut checked = 0;
    for (precision, allowed) in ALLOWED {
        let mut worst = 0f64;
        for row in &rows {
            let of_zoo =
                networks.contains(&row["model"].as_str()) && batches.contains(&row["batch"].as_str());
            if row["precision"] != precision || row["reference"] != "onnxruntime" {
                continue;
            }
            let error = number(row, "relative_error")?;
            if of_zoo {
                checked += 1;
                worst = worst.max(error);
            } else if error >= allowed {
                bars.note(&format!(
                    "{} at batch {} in {precision} is {error:.1e} off",
                    row["model"], row["batch"]
                ));
            }
        }
        let what = format!("largest error of the zoo in {precision}, of the {allowed:e} it may have");
        bars.at_most(&what, worst / allowed, 1.0, "");
    }
    let all = (networks.len() * batches.len() * ALLOWED.len()) as f64;
    bars.at_least(
        "networks of the zoo checked against onnxruntime, times batches and precisions",
        f64::from(checked),
        all,
        "",
    );
    Ok(())
}

/// What several GPUs of one machine give.
fn several(folder: &Path, bars: &mut Bars) -> anyhow::Result<()> {
    for row in rows(&folder.join("several.csv"))? {
        bars.note(&format!(
            "weights of {} to one of {} GPUs: {} ms from the host, {} ms from the other GPU",
            row["model"], row["gpus"], row["host_p50_ms"], row["device_p50_ms"]
        ));
    }
    for row in rows(&folder.join("several-served.csv"))? {
        bars.note(&format!(
            "one server on {} GPU(s): {} answers a second",
            row["devices"], row["answers_per_s"]
        ));
    }
    Ok(())
}

/// Ratios to PyTorch's best graph replay, one bar a network, batch and precision.
fn latency(folder: &Path, bars: &mut Bars) -> anyhow::Result<Vec<(Key, f64)>> {
    let mut best: BTreeMap<Key, f64> = BTreeMap::new();
    for row in rows(&folder.join("pytorch.csv"))? {
        let time = number(&row, "replay_p50_ms")?;
        let known = best.entry(key(&row)?).or_insert(time);
        *known = known.min(time);
    }
    let mut ratios = Vec::new();
    for row in rows(&folder.join("latency.csv"))? {
        let key = key(&row)?;
        let Some(other) = best.get(&key) else { continue };
        let ratio = number(&row, "p50_ms")? / other;
        let (model, batch, precision) = &key;
        bars.at_most(
            &format!("{model} b{batch} {precision}, latency over PyTorch's graph replay"),
            ratio,
            1.0,
            "",
        );
        ratios.push((key, ratio));
    }
    let within = ratios.iter().filter(|(_, ratio)| *ratio <= 0.8).count();
    bars.note(&format!("{within} of {} ratios reach the goal of 0.8", ratios.len()));
    bars.note("outputs leave in the precision they were computed in on both sides (--half-outputs in fp16)");
    Ok(ratios)
}

/// Cold starts: the bar that the device printed, and every way as a ratio to ready.
fn switch(folder: &Path, bars: &mut Bars) -> anyhow::Result<Vec<(String, String, f64)>> {
    let text = std::fs::read_to_string(folder.join("switch_bars.txt"))?;
    for line in text.lines().filter(|line| line.starts_with("bar ")) {
        // `bar WHAT: VALUE ms (limit ≤ LIMIT ms) VERDICT`
        let (what, rest) = line["bar ".len()..].split_once(": ").context("a bar without a value")?;
        let mut words = rest.split_whitespace();
        let value: f64 = words.next().context("a value")?.parse()?;
        let limit: f64 = words.nth(3).context("a limit")?.parse()?;
        let limit = (limit * 1e3).round() / 1e3;
        bars.at_most(what, value, limit, " ms");
    }
    bars.note(
        "PipeSwitch's released log (V100, batch 8), first result over a ready model's: ResNet-152 1.17, Inception-v3 1.00, \
         BERT-base 1.37; on an H200 the transfer takes longer than computing, so the ratio is bound by the link",
    );
    let mut ways = Vec::new();
    for row in rows(&folder.join("switch.csv"))? {
        ways.push((row["model"].clone(), row["way"].clone(), number(&row, "over_ready")?));
    }
    Ok(ways)
}

/// The best way whose cost stays within its limit.
fn preempt(folder: &Path, bars: &mut Bars) -> anyhow::Result<()> {
    let mut found: Option<(f64, f64, String)> = None;
    for row in rows(&folder.join("preempt.csv"))? {
        let (p99, loss) = (number(&row, "first_p99_us")?, number(&row, "loss_percent")?);
        let name = format!("{}, segments of {} µs", row["way"], row["segment_us"]);
        bars.note(&format!(
            "preemption by {name}: p99 {:.3} ms to the first kernel, {loss:.2} % lost",
            p99 / 1e3
        ));
        if loss <= 3.0 && found.as_ref().is_none_or(|(known, _, _)| p99 < *known) {
            found = Some((p99, loss, name));
        }
    }
    let (p99, loss, name) = found.context("no way loses 3 % or less")?;
    bars.at_most(&format!("p99 from arrival to first kernel ({name})"), p99 / 1e3, 0.7, " ms");
    bars.at_most("throughput the low class loses to being preemptible", loss, 3.0, " %");
    Ok(())
}

/// One horizontal bar a ratio.
fn draw_ratios(path: &Path, ratios: &[(Key, f64)]) -> anyhow::Result<()> {
    let mut sorted = ratios.to_vec();
    sorted.sort_by(|a, b| b.0.cmp(&a.0));
    let named =
        |((model, batch, precision), ratio): &(Key, f64)| (format!("{model} b{batch} {precision}"), *ratio);
    let bars: Vec<(String, f64)> = sorted.iter().map(named).collect();
    draw(path, "latency over PyTorch's CUDA-graph replay (less is better)", &bars, 1.0)
}

/// Ablations as ratios to a ready model, those that are drawn out of proportion left to the table.
fn draw_ways(path: &Path, ways: &[(String, String, f64)]) -> anyhow::Result<()> {
    let shown = ways.iter().rev().filter(|(_, way, _)| way != "no standby");
    let bars: Vec<(String, f64)> =
        shown.map(|(model, way, ratio)| (format!("{model}: {way}"), *ratio)).collect();
    draw(
        path,
        "first result of a model whose weights are on the host, over a ready model's time (batch 8)",
        &bars,
        1.0,
    )
}

fn draw(path: &Path, title: &str, bars: &[(String, f64)], line: f64) -> anyhow::Result<()> {
    let most = bars.iter().map(|(_, value)| *value).fold(line, f64::max) * 1.08;
    let count = i32::try_from(bars.len())?;
    let root = SVGBackend::new(path, (900, 60 + u32::try_from(bars.len())? * 15)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 15))
        .margin(10)
        .x_label_area_size(24)
        .y_label_area_size(210)
        .build_cartesian_2d(0.0..most, 0..count)?;
    let label = |place: &i32| {
        usize::try_from(*place)
            .ok()
            .and_then(|place| bars.get(place))
            .map_or_else(String::new, |(name, _)| name.clone())
    };
    chart
        .configure_mesh()
        .disable_y_mesh()
        .y_labels(bars.len())
        .y_label_formatter(&label)
        .y_label_offset(-7)
        .label_style(("sans-serif", 11))
        .light_line_style(WHITE)
        .draw()?;
    chart.draw_series((0..count).zip(bars).map(|(place, (_, value))| {
        let colour = if *value <= line { OURS } else { OTHER };
        let mut bar = Rectangle::new([(0.0, place), (*value, place + 1)], colour.filled());
        bar.set_margin(2, 2, 0, 0);
        bar
    }))?;
    chart.draw_series(LineSeries::new([(line, 0), (line, count)], BLACK.stroke_width(1)))?;
    root.present()?;
    Ok(())
}
