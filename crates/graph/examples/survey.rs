//! Prints what an ONNX file holds: its interface, its layers by kind, its fusions and its segments.
//!
//! `cargo run -p graph --example survey -- FILE [BATCH] [DIM=SIZE…]`

use anyhow::{Context, bail};
use graph::{Cost, ImportLimits, Model, SegmentOptions, Sizes, fusions, segment};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

#[expect(clippy::print_stdout, reason = "printing is what it is for")]
fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let path = PathBuf::from(arguments.next().context("name an ONNX file")?);
    let mut sizes = Sizes::batch(1);
    for argument in arguments {
        match argument.split_once('=') {
            Some((dim, size)) => drop(sizes.free.insert(dim.to_owned(), size.parse()?)),
            None => sizes.batch = argument.parse()?,
        }
    }
    let name = path.file_stem().context("the file has no name")?.to_string_lossy().into_owned();
    let started = Instant::now();
    let model = Model::import(&name, &path, &ImportLimits::default())?;
    println!(
        "{name}: imported in {:?}, {} parameters, batch {:?}",
        started.elapsed(),
        model.parameters(),
        model.batch()
    );
    for (side, ports) in [("in", model.inputs()), ("out", model.outputs())] {
        for port in ports {
            println!("  {side} {} {} {:?}", port.name, port.dtype, port.shape);
        }
    }
    let missing: Vec<&str> = model.free_dims().filter(|dim| !sizes.free.contains_key(*dim)).collect();
    if !missing.is_empty() {
        bail!("give sizes for {missing:?}");
    }
    let started = Instant::now();
    let unfolded = model.unfolded(&sizes)?;
    let graph = model.at(&sizes)?;
    println!(
        "sized in {:?}: {} layers, {} before folding",
        started.elapsed(),
        graph.layers.len(),
        unfolded.layers.len()
    );
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    for layer in &graph.layers {
        *kinds.entry(layer.op.kind()).or_default() += 1;
    }
    println!("layers: {}", listed(&kinds));
    let mut groups: BTreeMap<String, usize> = BTreeMap::new();
    for fusion in fusions(&graph) {
        *groups.entry(format!("{:?}", fusion.kind)).or_default() += 1;
    }
    println!("fusions: {}", listed(&groups));
    let cost = Cost::of_graph(&graph);
    println!("cost: {} flops, {} moved, {:.1} flops a byte", cost.flops, cost.bytes(), cost.intensity());
    let started = Instant::now();
    let segments = segment(&graph, &SegmentOptions::default());
    println!("{} segments in {:?}", segments.len(), started.elapsed());
    for segment in segments {
        println!(
            "  {:>4}..{:<4} {:>10.1} Mflop  weights {:>10}  alive {:>10}  reads {} writes {}  {}",
            segment.layers.start,
            segment.layers.end,
            segment.flops as f64 / 1e6,
            segment.weight_bytes,
            segment.activation_bytes,
            segment.reads.len(),
            segment.writes.len(),
            segment.name,
        );
    }
    Ok(())
}

fn listed(counts: &BTreeMap<String, usize>) -> String {
    counts.iter().map(|(kind, count)| format!("{kind} {count}")).collect::<Vec<_>>().join(", ")
}
