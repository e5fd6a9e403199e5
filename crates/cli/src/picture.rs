//! Pictures of journals and profiles, as SVG.

use anyhow::{Context as _, bail};
use plotters::prelude::*;
use sched::World as _;
use sched::journal::Record;
use sched::node::{Act, Decision, Event, NodeWorld, Part};
use std::collections::BTreeMap;
use std::ops::Range;
use vocab::{ModelId, PartitionId, Profile, RunId, Span, Time};

const WIDTH: u32 = 1_200;

/// Colours told apart by people with the common forms of colour blindness (Okabe and Ito).
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(213, 94, 0),
    RGBColor(120, 120, 120),
];

/// A stretch of a run on a partition.
struct Slice {
    partition: PartitionId,
    model: ModelId,
    run: RunId,
    begin: Time,
    end: Time,
    segments: Vec<Span>,
    parked: bool,
}

/// An instant worth a mark.
struct Mark {
    at: Time,
    model: ModelId,
    symbol: &'static str,
}

#[derive(Default)]
struct Scene {
    slices: Vec<Slice>,
    marks: Vec<Mark>,
    models: BTreeMap<ModelId, String>,
    partitions: BTreeMap<PartitionId, String>,
    /// Where partitions lie on a device that is shared in parts, and its units.
    parts: BTreeMap<PartitionId, Part>,
    units: u32,
}

/// Height of a device that is shared in parts, in lanes.
const BAND: u32 = 6;

impl Scene {
    /// Whether runs are drawn over the units of one device instead of a lane a partition.
    fn is_band(&self) -> bool {
        self.units > 0
            && self.partitions.keys().all(|id| self.parts.get(id).is_some_and(|part| part.first.is_some()))
    }

    /// Lanes above those of models.
    fn lanes(&self) -> usize {
        if self.is_band() { BAND as usize } else { self.partitions.len() }
    }

    /// Top and bottom of a partition, in lanes from the top.
    fn place(&self, id: PartitionId) -> (f64, f64) {
        if let Some(Part { first: Some(first), units }) = self.parts.get(&id).filter(|_| self.is_band()) {
            let lane = |unit: u32| f64::from(BAND) * f64::from(unit) / f64::from(self.units);
            return (lane(*first) + 0.02, lane(first + units) - 0.02);
        }
        let lane = self.partitions.keys().position(|key| *key == id).unwrap_or(0) as f64;
        (lane + 0.15, lane + 0.85)
    }

    /// What stands on the left: the middle of each lane and its name; those of models come last.
    fn names(&self) -> Vec<(f64, String)> {
        let mut names = Vec::new();
        if self.is_band() {
            for step in 0..BAND {
                let (from, to) = (self.units * step / BAND, self.units * (step + 1) / BAND);
                if to > from {
                    names.push((f64::from(step) + 0.5, format!("units {from}-{}", to - 1)));
                }
            }
        } else {
            let lane = |(lane, name): (usize, &String)| (lane as f64 + 0.5, name.clone());
            names.extend(self.partitions.values().enumerate().map(lane));
        }
        let begin = self.lanes();
        let model = |(lane, name): (usize, &String)| ((begin + lane) as f64 + 0.5, name.clone());
        names.extend(self.models.values().enumerate().map(model));
        names
    }
}

/// Draws turns within `range`: one lane a partition with its runs and segments, one a model with its arrivals and ends.
pub(crate) fn timeline(records: &[Record<Event, Decision>], range: Range<Time>) -> anyhow::Result<String> {
    let scene = scene(records, &range);
    let begin =
        scene.slices.iter().map(|slice| slice.begin).chain(scene.marks.iter().map(|mark| mark.at)).min();
    let end = scene.slices.iter().map(|slice| slice.end).chain(scene.marks.iter().map(|mark| mark.at)).max();
    let (Some(begin), Some(end)) = (begin, end) else { bail!("nothing happened in that time") };
    draw(&scene, begin, end)
}

fn scene(records: &[Record<Event, Decision>], range: &Range<Time>) -> Scene {
    let mut scene = Scene::default();
    let mut world = NodeWorld::new();
    let mut began: BTreeMap<RunId, Time> = BTreeMap::new();
    for record in records {
        let now = record.now;
        for event in &record.events {
            note(&mut scene, &world, &mut began, now, event, range);
            world.apply(now, event);
        }
        let _ = world.forced(now);
        for decision in &record.decisions {
            if let Act::Reject { request } | Act::Expire { request } = decision.act
                && let Some(request) = world.request(request)
                && range.contains(&now)
            {
                scene.marks.push(Mark { at: now, model: request.model, symbol: "×" });
            }
            let _ = world.admit(now, decision);
        }
        world.settle();
    }
    scene
}

fn note(
    scene: &mut Scene,
    world: &NodeWorld,
    began: &mut BTreeMap<RunId, Time>,
    now: Time,
    event: &Event,
    range: &Range<Time>,
) {
    let mut slice = |id: &RunId, segments: &[Span], parked| {
        let (Some(begin), Some(run)) = (began.remove(id), world.run(*id)) else { return };
        if range.contains(&begin) || range.contains(&now) {
            let (partition, model, segments) = (run.partition, run.model, segments.to_vec());
            scene.slices.push(Slice { partition, model, run: *id, begin, end: now, segments, parked });
        }
    };
    match event {
        Event::RunParked { run, segments, .. } => slice(run, segments, true),
        Event::RunFinished { run, segments } => slice(run, segments, false),
        Event::RunAbandoned { run } | Event::RunFailed { run, .. } => slice(run, &[], false),
        Event::RunStarted { run } | Event::RunResumed { run } => drop(began.insert(*run, now)),
        Event::PartitionAdded { partition, name } => drop(scene.partitions.insert(*partition, name.clone())),
        Event::PartsShared { units, parts, .. } => {
            // A second device has no place in the band of the first.
            scene.units = if scene.units == 0 { *units } else { 0 };
            scene.parts.extend(parts.iter().copied());
        }
        Event::ModelAdded { spec } => drop(scene.models.insert(spec.id, spec.name.clone())),
        Event::RequestArrived { request } if range.contains(&now) => {
            scene.marks.push(Mark { at: request.arrival, model: request.model, symbol: "▾" });
        }
        _ => {}
    }
}

fn draw(scene: &Scene, begin: Time, end: Time) -> anyhow::Result<String> {
    let lanes = scene.lanes() + scene.models.len();
    let height = 120 + 70 * u32::try_from(lanes)?;
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        root.fill(&WHITE)?;
        let ms = |at: Time| at.since(begin).as_ms_f64();
        let length = ms(end).max(0.001);
        let what = if scene.is_band() { "units" } else { "partition" };
        let title = format!("runs by {what}, arrivals (▾) and refusals (×) by model");
        let mut chart = ChartBuilder::on(&root)
            .caption(title, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(36)
            .y_label_area_size(150)
            .build_cartesian_2d(0.0..length * 1.01, -(lanes as f64)..0.0)?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .disable_y_axis()
            .x_desc(format!("ms after {begin}"))
            .light_line_style(WHITE)
            .draw()?;
        let model_lane = |id: ModelId| scene.models.keys().position(|key| *key == id).unwrap_or(0);
        let colour = |id: ModelId| COLOURS[model_lane(id) % COLOURS.len()];
        for (middle, name) in scene.names() {
            let (x, y) = chart.backend_coord(&(0.0, -middle));
            root.draw(&Text::new(name, (8, y - 6), ("sans-serif", 13)))?;
            let line = [(x, y + 34), (i32::try_from(WIDTH)? - 12, y + 34)];
            root.draw(&PathElement::new(line, RGBColor(225, 225, 225)))?;
        }
        for slice in &scene.slices {
            let (top, bottom) = scene.place(slice.partition);
            let (top, bottom) = (-top, -bottom);
            let (from, to) = (ms(slice.begin), ms(slice.end));
            let fill = colour(slice.model).mix(0.75).filled();
            chart.draw_series(std::iter::once(Rectangle::new([(from, top), (to, bottom)], fill)))?;
            let mut at = slice.begin;
            for span in slice.segments.iter().take(slice.segments.len().saturating_sub(1)) {
                at += *span;
                let edge = [(ms(at), top), (ms(at), bottom)];
                chart.draw_series(std::iter::once(PathElement::new(edge, WHITE.mix(0.8))))?;
            }
            if slice.parked {
                let edge = [(to, top + 0.05), (to, bottom - 0.05)];
                chart.draw_series(std::iter::once(PathElement::new(edge, BLACK.stroke_width(2))))?;
            }
            let wide_enough = (to - from) / length > 0.04;
            if wide_enough {
                let text = format!("{}{}", slice.run, if slice.parked { " parked" } else { "" });
                let middle = (top + bottom) / 2.0 + 0.08;
                let label = Text::new(text, (from + length * 0.004, middle), ("sans-serif", 12));
                chart.draw_series(std::iter::once(label))?;
            }
        }
        for mark in &scene.marks {
            let lane = scene.lanes() + model_lane(mark.model);
            let place = (ms(mark.at), -(lane as f64) - 0.35);
            let style = ("sans-serif", 16).into_font().color(&colour(mark.model));
            chart.draw_series(std::iter::once(Text::new(mark.symbol, place, style)))?;
        }
        root.present().context("drawing failed")?;
    }
    Ok(svg)
}

/// Draws a profile: latency by batch, and each segment's share of it.
pub(crate) fn profile(profile: &Profile) -> anyhow::Result<String> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, 460)).into_drawing_area();
        root.fill(&WHITE)?;
        let (left, right) = root.split_horizontally(WIDTH * 2 / 5);
        let totals: Vec<(f64, f64)> =
            profile.batches.iter().map(|b| (f64::from(b.batch), b.total().as_ms_f64())).collect();
        let (x_max, y_max) = totals.iter().fold((1.0f64, 0.0f64), |(x, y), (b, t)| (x.max(*b), y.max(*t)));
        let mut chart = ChartBuilder::on(&left)
            .caption(format!("{} on {}: latency by batch", profile.model, profile.device), ("sans-serif", 16))
            .margin(12)
            .x_label_area_size(36)
            .y_label_area_size(56)
            .build_cartesian_2d(0.0..x_max * 1.05, 0.0..y_max * 1.1)?;
        chart.configure_mesh().x_desc("rows").y_desc("ms").light_line_style(WHITE).draw()?;
        chart.draw_series(LineSeries::new(totals.iter().copied(), COLOURS[0].stroke_width(2)))?;
        chart.draw_series(totals.iter().map(|point| Circle::new(*point, 4, COLOURS[0].filled())))?;
        let first = profile.batches.first().context("a profile has a batch")?;
        let segments = first.segment_ns.len() as f64;
        let longest = profile.batches.iter().map(|b| b.longest_segment().as_ms_f64()).fold(0.0, f64::max);
        let mut chart = ChartBuilder::on(&right)
            .caption("time of each segment by batch", ("sans-serif", 16))
            .margin(12)
            .x_label_area_size(36)
            .y_label_area_size(56)
            .build_cartesian_2d(0.0..segments, 0.0..longest * 1.15)?;
        chart.configure_mesh().x_desc("segment").y_desc("ms").light_line_style(WHITE).draw()?;
        for (place, bucket) in profile.batches.iter().enumerate() {
            let colour = COLOURS[place % COLOURS.len()];
            let points: Vec<(f64, f64)> = bucket
                .segment_ns
                .iter()
                .enumerate()
                .flat_map(|(at, span)| [(at as f64, span.as_ms_f64()), (at as f64 + 1.0, span.as_ms_f64())])
                .collect();
            chart
                .draw_series(LineSeries::new(points, colour.stroke_width(2)))?
                .label(format!("batch {}", bucket.batch))
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2)));
        }
        chart
            .configure_series_labels()
            .border_style(BLACK.mix(0.3))
            .background_style(WHITE.mix(0.8))
            .draw()?;
        root.present().context("drawing failed")?;
    }
    Ok(svg)
}
