//! `raddle profile`: what a model costs on this machine, by batch and by segment, on parts of a device, and beside others.

mod parts;
mod spatial;

use crate::args::{Format, ProfileArgs};
use crate::plan::{knee, knee_picture};
use crate::{output, picture, serve};
use ::plan::spatial::{EPSILON, Surface};
use anyhow::{Context as _, bail};
use engine::{CpuDevice, Device, Program, Queue};
use graph::{Batch, ImportLimits, Model, Segment, Segmentation, Sizes};
use serde::Serialize;
use server::live::{Calibration, measure, measure_travel};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use vocab::{BatchProfile, Bytes, GroupProfile, Profile, SegmentProfile, Span, SwitchProfile};

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
    if let Some(other) = &args.against {
        return beside(args, other, format);
    }
    let profile = if args.spatial {
        spatial::profile(args)?
    } else {
        let device: Arc<dyn Device> = match &args.cores {
            Some(text) => Arc::new(CpuDevice::with_cores(vec![serve::cores(text)?])?),
            None => serve::open(&args.device, (None, None), Bytes(0))?,
        };
        measured(args, &import(&args.model)?, &*device)?
    };
    profile.check()?;
    if let Some(path) = &args.output {
        let text = serde_json::to_string_pretty(&profile)?;
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    if args.spatial {
        return show_parts(args, &profile, format);
    }
    if let Some(path) = &args.svg {
        std::fs::write(path, picture::profile(&profile)?)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    show(&profile, format)
}

/// Measures two models beside each other.
fn beside(args: &ProfileArgs, other: &Path, format: Format) -> anyhow::Result<()> {
    if args.output.is_some() || args.svg.is_some() || !args.parts.is_empty() {
        bail!("--against measures pairs, not a profile; leave out --output, --svg and --parts");
    }
    let (kind, found) = spatial::against(args, other)?;
    if let Some(path) = &args.interference {
        spatial::record(path, &kind, &found)?;
    }
    let columns = ["model", "beside", "batch", "units", "beside units", "alone ms", "beside ms", "slowdown"];
    output::rows(format, "pairs", &columns, &found, |row| {
        vec![
            row.model.clone(),
            row.beside.clone(),
            row.batch.to_string(),
            row.units.to_string(),
            row.beside_units.to_string(),
            format!("{:.3}", row.alone_ms),
            format!("{:.3}", row.beside_ms),
            format!("{:.3}", row.slowdown),
        ]
    })
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

/// A program at one batch, and the facts of its segments.
struct Prepared {
    batch: u32,
    program: Arc<dyn Program>,
    segments: Vec<SegmentProfile>,
}

/// The batches to measure: those asked for, or the one that the file fixes.
fn batches(args: &ProfileArgs, model: &Model) -> anyhow::Result<Vec<u32>> {
    Ok(match model.batch() {
        Batch::Symbolic => ascending(&args.batches)?,
        Batch::Baked { rows, why } => {
            tracing::info!("the file fixes the batch at {rows}: {why}");
            vec![u32::try_from(*rows)?]
        }
        Batch::None => vec![1],
    })
}

/// Prepares a model at each batch, one after the other.
fn prepare(
    args: &ProfileArgs,
    model: &Model,
    device: &dyn Device,
) -> anyhow::Result<impl ExactSizeIterator<Item = anyhow::Result<Prepared>>> {
    let free = free_sizes(&args.free)?;
    let options = serve::segment_options(args.segments_max);
    let mut cuts: Option<Segmentation> = None;
    let one = move |batch: u32| {
        let graph = model.at(&Sizes { batch: batch as usize, free: free.clone() })?;
        let cut = cuts.get_or_insert_with(|| Segmentation::of(&graph, &options)).apply(&graph)?;
        let segments = cut.iter().map(|segment| facts(segment, batch)).collect();
        Ok(Prepared { batch, program: device.prepare(&graph, &cut)?, segments })
    };
    Ok(batches(args, model)?.into_iter().map(one))
}

fn measured(args: &ProfileArgs, model: &Model, device: &dyn Device) -> anyhow::Result<Profile> {
    let mut queue = device.open(device.partitions()[0].id)?;
    let calibration = Calibration { repeats: args.repeats.max(1), patience: Span::MAX };
    let (mut segments, mut measured) = (Vec::new(), Vec::new());
    let prepared = prepare(args, model, device)?;
    let bar = output::progress(prepared.len() as u64, model.name());
    let mut largest = None;
    for prepared in prepared {
        let Prepared { batch, program, segments: own } = prepared?;
        if segments.is_empty() {
            segments = own;
        }
        let segment_ns = measure(device, &mut *queue, &program, calibration)?;
        largest = Some((program, segment_ns.clone()));
        measured.push(BatchProfile { batch, segment_ns });
        bar.inc(1);
    }
    bar.finish_and_clear();
    let switch = match largest {
        Some((program, times)) => switch(device, &mut *queue, &program, &times)?,
        None => None,
    };
    let (model, device) = (model.name().to_owned(), device.info().kind.clone());
    Ok(Profile { model, device, segments, batches: measured, switch, spatial: None })
}

/// What bringing the weights of a program costs, for its segments' times; none where they always lie beside programs.
fn switch(
    device: &dyn Device,
    queue: &mut dyn Queue,
    program: &Arc<dyn Program>,
    times: &[Span],
) -> anyhow::Result<Option<SwitchProfile>> {
    let Some(travel) = measure_travel(device, queue, program, times)? else { return Ok(None) };
    Ok(Some(SwitchProfile {
        transfer_latency_ns: travel.latency,
        transfer_bytes_per_s: travel.bytes_per_s,
        launch_gap_ns: travel.gap,
        weight_bytes: program.needs().last().copied().unwrap_or_default(),
        arena_bytes: program.run_memory(),
        groups: groups(&program.needs(), &travel.ends),
    }))
}

/// Groups that end at these bytes from the beginning, each with the first segment that needs it; `needs` are the bytes from
/// the beginning that each segment needs.
fn groups(needs: &[Bytes], ends: &[Bytes]) -> Vec<GroupProfile> {
    let begins = std::iter::once(&Bytes(0)).chain(ends);
    let group = |(begin, end): (&Bytes, &Bytes)| {
        let first = needs.iter().position(|need| need > begin)?;
        let bytes = Bytes(end.0.saturating_sub(begin.0));
        let first_segment = u32::try_from(first).ok()?;
        (bytes > Bytes(0)).then_some(GroupProfile { first_segment, bytes })
    };
    begins.zip(ends).filter_map(group).collect()
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
    })?;
    match (&profile.switch, format) {
        (Some(switch), Format::Table) => output::print(&format!("\n{}", travels(switch, rows.last()))),
        _ => Ok(()),
    }
}

/// What bringing the weights costs, as a sentence.
fn travels(switch: &SwitchProfile, largest: Option<&Row>) -> String {
    format!(
        "weights: {} in {} group(s), {:.1} GB/s, {} a transfer beside its bytes, {} between segments\nmemory for a run of \
         batch {}: {}",
        switch.weight_bytes,
        switch.groups.len(),
        switch.transfer_bytes_per_s / 1e9,
        switch.transfer_latency_ns,
        switch.launch_gap_ns,
        largest.map_or(1, |row| row.batch),
        switch.arena_bytes,
    )
}

/// Knees and fit, and every part at every batch.
fn show_parts(args: &ProfileArgs, profile: &Profile, format: Format) -> anyhow::Result<()> {
    #[derive(Serialize)]
    struct PartRow {
        units: u32,
        batch: u32,
        total_ms: f64,
        rows_per_s: f64,
    }
    let surface = Surface::of(profile)?;
    let points = surface.measured().to_vec();
    let studied = [knee::study(profile.model.clone(), profile.device.clone(), surface, EPSILON, None)];
    if let Some(path) = &args.svg {
        std::fs::write(path, knee_picture::draw(&studied)?)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    if format == Format::Json {
        return output::print(&output::json("profile", profile)?);
    }
    if format == Format::Table {
        knee::show(&studied, format)?;
        output::print("")?;
    }
    let row = |point: &::plan::spatial::Point| PartRow {
        units: point.units,
        batch: point.batch,
        total_ms: point.time.as_ms_f64(),
        rows_per_s: f64::from(point.batch) / point.time.as_secs_f64(),
    };
    let rows: Vec<PartRow> = points.iter().map(row).collect();
    output::rows(format, "parts", &["units", "batch", "ms", "rows/s"], &rows, |row| {
        vec![
            row.units.to_string(),
            row.batch.to_string(),
            format!("{:.3}", row.total_ms),
            format!("{:.1}", row.rows_per_s),
        ]
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn groups_begin_with_the_first_segment_that_needs_them() {
        let bytes = |all: &[u64]| all.iter().copied().map(Bytes).collect::<Vec<_>>();
        // The third segment has no weights of its own.
        let needs = bytes(&[512, 1024, 1024, 4096]);
        let shown = |ends: &[u64]| {
            let all = groups(&needs, &bytes(ends));
            all.iter()
                .map(|group| format!("{}:{}", group.first_segment, group.bytes.0))
                .collect::<Vec<_>>()
                .join(" ")
        };
        let lines = [
            shown(&[4096]),
            shown(&[512, 1024, 4096]),
            shown(&[1024, 4096]),
            shown(&[512, 512, 4096]),
            shown(&[]),
        ];
        expect![[r"
            0:4096
            0:512 1:512 3:3072
            0:1024 3:3072
            0:512 1:3584
        "]]
        .assert_eq(&lines.join("\n"));
    }

    #[test]
    fn what_weights_cost_is_said() {
        let switch = SwitchProfile {
            transfer_latency_ns: Span::from_us(8),
            transfer_bytes_per_s: 43.6e9,
            launch_gap_ns: Span::from_ns(2_900),
            weight_bytes: Bytes(240 << 20),
            arena_bytes: Bytes(600 << 20),
            groups: vec![GroupProfile { first_segment: 0, bytes: Bytes(240 << 20) }],
        };
        let row = Row { batch: 8, total_ms: 1.0, rows_per_s: 1.0, longest_segment_ms: 1.0, segments: 1 };
        expect![[r"
            weights: 240.0 MiB in 1 group(s), 43.6 GB/s, 8.00 µs a transfer beside its bytes, 2.90 µs between segments
            memory for a run of batch 8: 600.0 MiB"]]
        .assert_eq(&travels(&switch, Some(&row)));
    }
}
