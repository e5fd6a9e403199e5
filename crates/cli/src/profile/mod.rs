//! `raddle profile`: what a model costs on this processor, by batch and by segment.

use crate::args::{Format, ProfileArgs};
use crate::{output, picture, serve};
use anyhow::{Context as _, bail};
use engine::{CpuDevice, Device};
use graph::{Batch, ImportLimits, Model, Segment, Segmentation, Sizes};
use serde::Serialize;
use server::live::{Calibration, measure};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use vocab::{BatchProfile, Bytes, Profile, SegmentProfile, Span};

#[derive(Serialize)]
struct Row {
    batch: u32,
    total_ms: f64,
    rows_per_s: f64,
    longest_segment_ms: f64,
    segments: usize,
}

/// Reads a model file; its name is its folder's for NAME/1/model.onnx, else the file's.
pub(crate) fn import(path: &Path) -> anyhow::Result<Model> {
    let stem = path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
    let folder = path.parent().and_then(Path::parent).and_then(Path::file_name);
    let name = match folder {
        Some(folder) if stem == "model" => folder.to_string_lossy().into_owned(),
        _ => stem,
    };
    Ok(Model::import(&name, path, &ImportLimits::default())?)
}

/// Sizes from `name=size` arguments.
pub(crate) fn free_sizes(arguments: &[String]) -> anyhow::Result<BTreeMap<String, usize>> {
    let one = |argument: &String| {
        let (name, size) =
            argument.split_once('=').with_context(|| format!("{argument:?} is not name=size"))?;
        let size = size.parse().with_context(|| format!("{size:?} in {argument:?} is not a size"))?;
        Ok((name.to_owned(), size))
    };
    arguments.iter().map(one).collect()
}

pub(crate) fn run(args: &ProfileArgs, format: Format) -> anyhow::Result<()> {
    let model = import(&args.model)?;
    let free = free_sizes(&args.free)?;
    let batches = match model.batch() {
        Batch::Symbolic => ascending(&args.batches)?,
        Batch::Baked { rows, why } => {
            tracing::info!("the file fixes the batch at {rows}: {why}");
            vec![u32::try_from(*rows)?]
        }
        Batch::None => vec![1],
    };
    let device: Arc<dyn Device> = match &args.cores {
        Some(text) => Arc::new(CpuDevice::with_cores(vec![serve::cores(text)?])?),
        None => serve::open(&args.device, None, Bytes(0))?,
    };
    let profile = measured(args, &model, &*device, &batches, &free)?;
    profile.check()?;
    if let Some(path) = &args.output {
        let text = serde_json::to_string_pretty(&profile)?;
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    if let Some(path) = &args.svg {
        std::fs::write(path, picture::profile(&profile)?)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    show(&profile, format)
}

fn ascending(batches: &[u32]) -> anyhow::Result<Vec<u32>> {
    let mut sorted = batches.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    if sorted.is_empty() || sorted[0] == 0 {
        bail!("batches start from 1");
    }
    Ok(sorted)
}

fn measured(
    args: &ProfileArgs,
    model: &Model,
    device: &dyn Device,
    batches: &[u32],
    free: &BTreeMap<String, usize>,
) -> anyhow::Result<Profile> {
    let mut queue = device.open(device.partitions()[0].id)?;
    let calibration = Calibration { repeats: args.repeats.max(1), patience: Span::MAX };
    let options = serve::segment_options(args.segments_max);
    let mut cuts: Option<Segmentation> = None;
    let (mut segments, mut measured) = (Vec::new(), Vec::new());
    let bar = output::progress(batches.len() as u64, model.name());
    for batch in batches {
        let graph = model.at(&Sizes { batch: *batch as usize, free: free.clone() })?;
        let cuts = cuts.get_or_insert_with(|| Segmentation::of(&graph, &options));
        let cut = cuts.apply(&graph)?;
        if segments.is_empty() {
            segments = cut.iter().map(|segment| facts(segment, *batch)).collect();
        }
        let program = device.prepare(&graph, &cut)?;
        let segment_ns = measure(device, &mut *queue, &program, calibration)?;
        measured.push(BatchProfile { batch: *batch, segment_ns });
        bar.inc(1);
    }
    bar.finish_and_clear();
    let (model, device) = (model.name().to_owned(), device.info().kind.clone());
    Ok(Profile { model, device, segments, batches: measured, switch: None, spatial: None })
}

/// A segment's facts for one row, from the first batch measured.
fn facts(segment: &Segment, batch: u32) -> SegmentProfile {
    SegmentProfile {
        name: segment.name.clone(),
        flops: segment.flops / u64::from(batch),
        weight_bytes: segment.weight_bytes,
        activation_bytes: Bytes(segment.activation_bytes.0 / u64::from(batch)),
    }
}

fn show(profile: &Profile, format: Format) -> anyhow::Result<()> {
    if format == Format::Json {
        return output::print(&output::json("profile", profile)?);
    }
    let row = |bucket: &BatchProfile| Row {
        batch: bucket.batch,
        total_ms: bucket.total().as_ms_f64(),
        rows_per_s: f64::from(bucket.batch) / bucket.total().as_secs_f64(),
        longest_segment_ms: bucket.longest_segment().as_ms_f64(),
        segments: bucket.segment_ns.len(),
    };
    let rows: Vec<Row> = profile.batches.iter().map(row).collect();
    let columns = ["batch", "ms", "rows/s", "longest segment ms", "segments"];
    output::rows(format, "batches", &columns, &rows, |row| {
        vec![
            row.batch.to_string(),
            format!("{:.2}", row.total_ms),
            format!("{:.1}", row.rows_per_s),
            format!("{:.2}", row.longest_segment_ms),
            row.segments.to_string(),
        ]
    })
}
