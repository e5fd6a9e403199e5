//! `raddle inspect`: what is in a model file and where it would be cut.

use crate::args::{Format, InspectArgs};
use crate::{output, profile, serve};
use graph::{Batch, Dim, Model, Port, Segment, Sizes, segment};
use serde::Serialize;

#[derive(Serialize)]
struct Report {
    model: String,
    parameters: u64,
    batch: String,
    inputs: Vec<String>,
    outputs: Vec<String>,
    layers: usize,
    segments: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    segment: usize,
    first_layer: String,
    layers: usize,
    mflops: f64,
    weight_bytes: u64,
    activation_bytes: u64,
}

pub(crate) fn run(args: &InspectArgs, format: Format) -> anyhow::Result<()> {
    let model = profile::import(&args.model)?;
    let rows = match model.batch() {
        Batch::Baked { rows, .. } => *rows,
        _ => args.batch,
    };
    let graph = model.at(&Sizes { batch: rows, free: profile::free_sizes(&args.free)? })?;
    let segments = segment(&graph, &serve::segment_options(args.segments_max));
    let report = Report {
        model: model.name().to_owned(),
        parameters: model.parameters(),
        batch: batch(&model),
        inputs: model.inputs().iter().map(port).collect(),
        outputs: model.outputs().iter().map(port).collect(),
        layers: graph.layers.len(),
        segments: segments.iter().enumerate().map(row).collect(),
    };
    match format {
        Format::Json => return output::print(&output::json("model", &report)?),
        Format::Csv => {}
        Format::Table => output::print(&format!(
            "{}: {} parameters, {} layers, batch {}\n  takes {}\n  gives {}\n",
            report.model,
            report.parameters,
            report.layers,
            report.batch,
            report.inputs.join(", "),
            report.outputs.join(", ")
        ))?,
    }
    let columns = ["segment", "first layer", "layers", "Mflop", "weight bytes", "alive bytes"];
    output::rows(format, "segments", &columns, &report.segments, |row| {
        vec![
            row.segment.to_string(),
            row.first_layer.clone(),
            row.layers.to_string(),
            format!("{:.1}", row.mflops),
            row.weight_bytes.to_string(),
            row.activation_bytes.to_string(),
        ]
    })
}

fn batch(model: &Model) -> String {
    match model.batch() {
        Batch::Symbolic => "of any size".into(),
        Batch::Baked { rows, why } => format!("fixed at {rows} by the file: {why}"),
        Batch::None => "none".into(),
    }
}

fn port(port: &Port) -> String {
    let size = |dim: &Dim| match dim {
        Dim::Batch => "batch".to_owned(),
        Dim::Fixed(size) => size.to_string(),
        Dim::Free(name) => name.clone(),
    };
    let shape: Vec<String> = port.shape.iter().map(size).collect();
    format!("{} {}[{}]", port.name, port.dtype, shape.join(","))
}

fn row((place, segment): (usize, &Segment)) -> Row {
    Row {
        segment: place,
        first_layer: segment.name.clone(),
        layers: segment.layers.len(),
        mflops: segment.flops as f64 / 1e6,
        weight_bytes: segment.weight_bytes.0,
        activation_bytes: segment.activation_bytes.0,
    }
}
