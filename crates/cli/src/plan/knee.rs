//! `raddle plan knee`: where more units stop paying, and which batch and part to choose.

use crate::args::Format;
use crate::output;
use crate::plan::{input, knee_picture, pack, write};
use anyhow::bail;
use clap::Args;
use plan::packing::ModelTable;
use plan::spatial::{
    Cell, Demand, EPSILON, Fit, FitError, Knee, Optimum, Surface, Unfit, efficient, fit, knee, optimum,
};
use serde::Serialize;
use std::path::{Path, PathBuf};
use vocab::{BatchProfile, Profile, Span};

/// Slices of a whole GPU, the units of ParvaGPU's tables.
const SLICES: u32 = plan::packing::SLICES;

#[derive(Debug, Args)]
pub(crate) struct KneeArgs {
    /// Profiles that `raddle profile --spatial --output` wrote, or ParvaGPU's tables (NAME.csv; units are slices).
    #[arg(required = true)]
    pub(crate) profiles: Vec<PathBuf>,
    /// Latest answer after a request's arrival, ms: find the best batch and part.
    #[arg(long)]
    pub(crate) slo_ms: Option<f64>,
    /// Requests a second that it must serve.
    #[arg(long, requires = "slo_ms")]
    pub(crate) rate: Option<f64>,
    /// How much slower than the whole device a part may be that counts as sufficient.
    #[arg(long, default_value_t = EPSILON)]
    pub(crate) epsilon: f64,
    /// Draw latency over units here, with both knees and the fitted model, as SVG.
    #[arg(long)]
    pub(crate) svg: Option<PathBuf>,
}

/// What is known of one model on parts of a device.
pub(crate) struct Studied {
    pub(crate) name: String,
    pub(crate) device: String,
    pub(crate) surface: Surface,
    pub(crate) fit: Result<Fit, FitError>,
    pub(crate) knees: Vec<(u32, Knee)>,
    optimum: Option<Result<Optimum, Unfit>>,
}

#[derive(Serialize)]
struct ModelRow {
    model: String,
    device: String,
    units: u32,
    knees: Vec<KneeRow>,
    fit: Option<FitRow>,
    optimum: Option<OptimumRow>,
    unfit: Option<String>,
    corrections: Vec<String>,
}

#[derive(Clone, Serialize)]
struct KneeRow {
    model: String,
    batch: u32,
    efficient_units: u32,
    sufficient_units: u32,
    fitted_units: Option<u32>,
    efficient_ms: f64,
    sufficient_ms: f64,
    whole_ms: f64,
}

#[derive(Serialize)]
struct FitRow {
    parallelism: f64,
    parallel_ns: f64,
    serial_ns: f64,
    memory_ns: f64,
    fixed_ns: f64,
    error_median: f64,
    error_max: f64,
}

#[derive(Serialize)]
struct OptimumRow {
    batch: u32,
    units: u32,
    latency_ms: f64,
    assembly_ms: f64,
    rows_per_s: f64,
    efficacy: f64,
}

pub(crate) fn run(args: &KneeArgs, format: Format) -> anyhow::Result<()> {
    if !(args.epsilon.is_finite() && args.epsilon >= 0.0) {
        bail!("--epsilon {} is no part of a latency; give 0 or more", args.epsilon);
    }
    let demand = match args.slo_ms {
        Some(ms) if !(ms.is_finite() && ms > 0.0) => {
            bail!("--slo-ms {ms} is no promise; give a positive time")
        }
        Some(ms) => Some(Demand { slo: Span::from_secs_f64(ms / 1e3), rate: args.rate }),
        None => None,
    };
    let (mut studied, mut faults) = (Vec::new(), Vec::new());
    for path in &args.profiles {
        match read(path) {
            Ok((name, device, surface)) => studied.push(study(name, device, surface, args.epsilon, demand)),
            Err(why) => faults.push(format!("{}: {why:#}", path.display())),
        }
    }
    if let Some(path) = args.svg.as_ref().filter(|_| !studied.is_empty()) {
        write(path, &knee_picture::draw(&studied)?)?;
    }
    if !studied.is_empty() {
        show(&studied, format)?;
    }
    let unfit = |model: &Studied| match &model.optimum {
        Some(Err(why)) => Some(format!("{} cannot be served: {why}", model.name)),
        _ => None,
    };
    faults.extend(studied.iter().filter_map(unfit));
    if faults.is_empty() { Ok(()) } else { bail!("{}", faults.join("\n")) }
}

/// A model's name, its device and its surface.
fn read(path: &Path) -> anyhow::Result<(String, String, Surface)> {
    let text = input::text(path)?;
    if path.extension().is_some_and(|extension| extension == "csv") {
        let table = ModelTable::parse(&pack::name(path), &text)?;
        let surface = Surface::new(SLICES, slices(&table))?;
        return Ok((table.name, "MIG slices".to_owned(), surface));
    }
    let profile: Profile =
        serde_json::from_str(&text).map_err(|why| input::plain("this is no profile of raddle", &why))?;
    let surface = Surface::of(&profile)?;
    Ok((profile.model, profile.device, surface))
}

/// The times of a table for one process.
fn slices(table: &ModelTable) -> Vec<Cell> {
    let alone = table.measured.iter().filter(|point| point.processes == 1);
    let cell = |point: &plan::packing::Measured| Cell {
        units: point.size.slices(),
        times: BatchProfile { batch: point.batch, segment_ns: vec![Span::from_secs_f64(point.latency_s)] },
    };
    alone.map(cell).collect()
}

/// Everything that can be said of a surface.
pub(crate) fn study(
    name: String,
    device: String,
    surface: Surface,
    epsilon: f64,
    demand: Option<Demand>,
) -> Studied {
    let fit = fit(surface.measured());
    let knees = surface.batches().iter().filter_map(|batch| Some((*batch, knee(&surface, *batch, epsilon)?)));
    let knees = knees.collect();
    let optimum = demand.map(|demand| optimum(&surface, demand));
    Studied { name, device, surface, fit, knees, optimum }
}

/// Prints what is known, with what is used otherwise than it was measured.
pub(crate) fn show(studied: &[Studied], format: Format) -> anyhow::Result<()> {
    let models: Vec<ModelRow> = studied.iter().map(row).collect();
    if format == Format::Json {
        return output::print(&output::json("models", &models)?);
    }
    if format == Format::Table {
        let headlines: Vec<String> = studied.iter().map(headline).collect();
        output::print(&headlines.join("\n"))?;
    } else {
        for (model, correction) in
            models.iter().flat_map(|model| model.corrections.iter().map(|line| (&model.model, line)))
        {
            tracing::warn!("{model}: {correction}");
        }
    }
    let rows: Vec<KneeRow> = models.iter().flat_map(|model| model.knees.clone()).collect();
    let columns = [
        "model",
        "batch",
        "knee 1/(L²·S)",
        "ms",
        "knee within ε",
        "ms",
        "knee of the fit",
        "whole device ms",
    ];
    output::rows(format, "knees", &columns, &rows, |row| {
        vec![
            row.model.clone(),
            row.batch.to_string(),
            row.efficient_units.to_string(),
            format!("{:.3}", row.efficient_ms),
            row.sufficient_units.to_string(),
            format!("{:.3}", row.sufficient_ms),
            row.fitted_units.map_or_else(|| "-".to_owned(), |units| units.to_string()),
            format!("{:.3}", row.whole_ms),
        ]
    })
}

fn headline(model: &Studied) -> String {
    let Studied { name, device, surface, fit, optimum, .. } = model;
    let mut text = format!("{name} on {device}: {} units\n", surface.whole());
    match fit {
        Ok(fit) => text.push_str(&format!(
            "  execution-time model: off by {:.1} % (median), {:.1} % at most (batch {} on {} units)\n",
            fit.error_median * 100.0,
            fit.error_max * 100.0,
            fit.worst.batch,
            fit.worst.units
        )),
        Err(why) => text.push_str(&format!("  execution-time model: {why}\n")),
    }
    match optimum {
        Some(Ok(best)) => text.push_str(&format!(
            "  best: batch {} on {} units: {:.3} ms after gathering {:.3} ms, {:.1} rows/s\n",
            best.point.batch,
            best.point.units,
            best.point.time.as_ms_f64(),
            best.assembly.as_ms_f64(),
            best.rows_per_s
        )),
        Some(Err(why)) => text.push_str(&format!("  cannot be served: {why}\n")),
        None => {}
    }
    for correction in surface.corrections() {
        text.push_str(&format!("  not as measured: {correction}\n"));
    }
    text
}

fn row(model: &Studied) -> ModelRow {
    let Studied { name, device, surface, fit, knees, optimum } = model;
    let ms = |units, batch| surface.latency(units, batch).map_or(f64::NAN, Span::as_ms_f64);
    let knee = |(batch, knee): &(u32, Knee)| KneeRow {
        model: name.clone(),
        batch: *batch,
        efficient_units: knee.efficient,
        sufficient_units: knee.sufficient,
        fitted_units: fit.as_ref().ok().and_then(|fit| efficient(&fit.model.curve(*batch, surface.whole()))),
        efficient_ms: ms(knee.efficient, *batch),
        sufficient_ms: ms(knee.sufficient, *batch),
        whole_ms: ms(surface.whole(), *batch),
    };
    let fitted = |fit: &Fit| FitRow {
        parallelism: fit.model.parallelism,
        parallel_ns: fit.model.parallel_ns,
        serial_ns: fit.model.serial_ns,
        memory_ns: fit.model.memory_ns,
        fixed_ns: fit.model.fixed_ns,
        error_median: fit.error_median,
        error_max: fit.error_max,
    };
    let best = |best: &Optimum| OptimumRow {
        batch: best.point.batch,
        units: best.point.units,
        latency_ms: best.point.time.as_ms_f64(),
        assembly_ms: best.assembly.as_ms_f64(),
        rows_per_s: best.rows_per_s,
        efficacy: best.efficacy,
    };
    ModelRow {
        model: name.clone(),
        device: device.clone(),
        units: surface.whole(),
        knees: knees.iter().map(knee).collect(),
        fit: fit.as_ref().ok().map(fitted),
        optimum: optimum.as_ref().and_then(|found| found.as_ref().ok().map(best)),
        unfit: optimum.as_ref().and_then(|found| found.as_ref().err().map(ToString::to_string)),
        corrections: surface.corrections().iter().map(ToString::to_string).collect(),
    }
}
