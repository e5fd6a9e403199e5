//! Devices that the simulated experiments run on: an A100 from the public profiles of ParvaGPU, and an RTX 2080 Ti from
//! the few figures that SGPRS and DARIS publish.

use anyhow::{Context as _, ensure};
use sim::{BatchEntry, ModelEntry, ModelPart};
use std::collections::BTreeMap;
use std::path::Path;

/// Units of the A100 here: quarters of its seven compute slices.
pub(super) const A100_UNITS: u32 = 28;

/// Units of a MIG slice.
const SLICE: u32 = 4;

/// Rows of batches that are used.
const ROWS: [u32; 6] = [1, 2, 4, 8, 16, 32];

/// Streaming multiprocessors of an RTX 2080 Ti.
pub(super) const TURING_UNITS: u32 = 68;

/// Measured latency by slices and rows, one process, in µs.
pub(super) type Measured = BTreeMap<(u32, u32), f64>;

/// Reads one of the profiles.
pub(super) fn measured(path: &Path) -> anyhow::Result<Measured> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut found = Measured::new();
    for (number, line) in text.lines().enumerate().skip(1) {
        let fields: Vec<f64> = line.split(',').filter_map(|field| field.trim().parse().ok()).collect();
        ensure!(fields.len() == 5, "{}:{} has not five numbers", path.display(), number + 1);
        let whole = |field: f64| format!("{field:.0}").parse::<u32>();
        if fields[2] < 1.5 {
            // The latency column is rounded to ms; one process answers as many rows a second as the throughput says.
            let seconds = fields[1] / fields[3].max(1e-9);
            found.insert((whole(fields[0])?, whole(fields[1])?), seconds * 1e6);
        }
    }
    Ok(found)
}

/// The model of a profile, cut into segments of different parallelism.
pub(super) fn model(name: &str, measured: &Measured, slo_ms: u64) -> anyhow::Result<ModelEntry> {
    let mut sizes: Vec<u32> = measured.keys().map(|(slices, _)| slices * SLICE).collect();
    sizes.dedup();
    ensure!(sizes.last() == Some(&A100_UNITS), "{name} was not measured on the whole device");
    let mut curves: Vec<(u32, Vec<(u32, f64)>)> = Vec::new();
    for rows in ROWS {
        let at = |units: &u32| Some((*units, *measured.get(&(units / SLICE, rows))?));
        let curve: Vec<(u32, f64)> = sizes.iter().filter_map(at).collect();
        if curve.len() == sizes.len() {
            curves.push((rows, curve));
        }
    }
    ensure!(!curves.is_empty(), "{name} has no batch that was measured on every part");
    let parts: Vec<(u32, Vec<(u32, f64)>)> =
        curves.iter().map(|(rows, curve)| (*rows, widths(curve))).collect();
    let batches = |units: u32| -> Vec<BatchEntry> {
        let segment = |(width, work): &(u32, f64)| {
            // As fast as its width allows, all work on fewer units.
            let us = work * (f64::from(*width) / f64::from(units)).max(1.0);
            vocab::Span::from_secs_f64(us / 1e6).ns().div_ceil(1_000)
        };
        let batch = |(rows, widths): &(u32, Vec<(u32, f64)>)| BatchEntry {
            rows: *rows,
            segments_us: widths.iter().map(segment).collect(),
            ..BatchEntry::default()
        };
        parts.iter().map(batch).collect()
    };
    Ok(ModelEntry {
        name: name.into(),
        batches: batches(A100_UNITS),
        parts: (1..A100_UNITS).map(|units| ModelPart { units, batches: batches(units) }).collect(),
        deadline_us: Some(slo_ms * 1_000),
        ..ModelEntry::default()
    })
}

/// A curve of time over units as segments that use up to a width of units each: their times, one width after the other,
/// add up to the curve at every measured size, but where it is not convex in 1/units, which such segments cannot be.
fn widths(curve: &[(u32, f64)]) -> Vec<(u32, f64)> {
    // With x = 1/units a segment takes w·max(1, width·x): the slope of the sum grows by w·width where x passes 1/width.
    let point = |(units, us): &(u32, f64)| (1.0 / f64::from(*units), *us);
    let mut hull: Vec<(u32, (f64, f64))> = Vec::new();
    for entry in curve.iter().rev() {
        let new = point(entry);
        while let [.., (_, a), (_, b)] = hull.as_slice() {
            let bends = (b.1 - a.1) * (new.0 - a.0) <= (new.1 - a.1) * (b.0 - a.0);
            if bends {
                break;
            }
            hull.pop();
        }
        hull.push((entry.0, new));
    }
    let mut found: Vec<(u32, f64)> = Vec::new();
    let mut slope = 0.0;
    for pair in hull.windows(2) {
        let ((width, a), (_, b)) = (pair[0], pair[1]);
        let next = ((b.1 - a.1) / (b.0 - a.0)).max(slope);
        found.push((width, (next - slope) / f64::from(width)));
        slope = next;
    }
    // What is left at full size has at most the smallest measured width.
    let spent: f64 = found.iter().map(|(_, work)| work).sum();
    let (least, whole) = (curve[0].0, curve[curve.len() - 1].1);
    found.push((least, (whole - spent).max(0.0)));
    // Every batch has the same segments; those that a curve does not need take no time.
    let work = |width: u32| found.iter().filter(|(known, _)| *known == width).map(|(_, work)| work).sum();
    curve.iter().rev().map(|(width, _)| (*width, work(*width))).collect()
}

/// ResNet-18 at batch 1 on the RTX 2080 Ti: `serial + parallel/SMs`, from 684 inferences a second on the whole device
/// (DARIS's public results) and a speed-up of 23 from 2 to 68 SMs (SGPRS, from memory); six stages of equal time.
pub(super) fn resnet18_on_turing(period_us: u64) -> ModelEntry {
    let whole_us = 1e6 / 684.0;
    // (s + p/2) / (s + p/68) = 23 and s + p/68 = whole.
    let parallel = (23.0 - 1.0) * whole_us / (0.5 - 1.0 / f64::from(TURING_UNITS));
    let serial = whole_us - parallel / f64::from(TURING_UNITS);
    let batches = |units: u32| {
        let us = (serial + parallel / f64::from(units)) / 6.0;
        let stage = vocab::Span::from_secs_f64(us / 1e6).ns().div_ceil(1_000);
        vec![BatchEntry { rows: 1, segments_us: vec![stage; 6], ..BatchEntry::default() }]
    };
    ModelEntry {
        name: "resnet18".into(),
        batches: batches(TURING_UNITS),
        parts: (1..TURING_UNITS).map(|units| ModelPart { units, batches: batches(units) }).collect(),
        period_us: Some(period_us),
        deadline_us: Some(period_us),
        ..ModelEntry::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_add_up_to_a_convex_curve() {
        let curve = [(4, 100.0), (8, 55.0), (16, 35.0), (28, 30.0)];
        let found = widths(&curve);
        for (units, us) in curve {
            let sum: f64 = found
                .iter()
                .map(|(width, work)| work * (f64::from(*width) / f64::from(units)).max(1.0))
                .sum();
            assert!((sum - us).abs() < 0.05 * us, "{units}: {sum} is not {us}, {found:?}");
        }
    }
}
