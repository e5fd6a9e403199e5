//! Operator graphs of ONNX files: times from a measured profile, or from the roofline of an accelerator.

use crate::plan::amounts;
use crate::plan::args::GraphArgs;
use crate::profile;
use anyhow::{Context as _, ensure};
use graph::{Batch, Cost, Graph, Sizes};
use plan::formats::Link;
use plan::{Operator, OperatorGraph};
use std::collections::BTreeMap;
use vocab::Profile;

/// How much longer a backward pass takes than a forward pass: it computes gradients of inputs and of weights.
const BACKWARD: f64 = 2.0;

/// One operator before it gets its twin.
struct Layer {
    name: String,
    time_ms: f64,
    weight_bytes: u64,
    output_bytes: u64,
}

/// Layers, and the edges between their places.
type Layers = (Vec<Layer>, Vec<(usize, usize)>);

pub(crate) fn read(args: &GraphArgs, link: Link) -> anyhow::Result<OperatorGraph> {
    ensure!(
        args.cpu_slowdown > 0.0,
        "a CPU cannot be {} times slower; give a positive number",
        args.cpu_slowdown
    );
    let (layers, edges) = match &args.profile {
        Some(path) => measured(
            args,
            &std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?,
        )?,
        None => estimated(args)?,
    };
    assemble(args, link, &layers, &edges)
}

/// Segments of a profile, one after the other.
fn measured(args: &GraphArgs, text: &str) -> anyhow::Result<Layers> {
    let profile: Profile =
        serde_json::from_str(text).context("the profile is not as `raddle profile` writes it")?;
    profile.check().map_err(|error| anyhow::anyhow!("{error}"))?;
    let rows = u32::try_from(args.batch)?;
    ensure!(rows <= profile.batch_max(), "the profile has no bucket for {rows} rows; measure one");
    let bucket = profile.bucket(rows);
    let layer = |(segment, time): (&vocab::SegmentProfile, &vocab::Span)| Layer {
        name: segment.name.clone(),
        time_ms: time.as_ms_f64(),
        weight_bytes: segment.weight_bytes.0,
        output_bytes: segment.activation_bytes.0.saturating_mul(u64::from(rows)),
    };
    let layers: Vec<Layer> = profile.segments.iter().zip(&bucket.segment_ns).map(layer).collect();
    let edges = (1..layers.len()).map(|next| (next - 1, next)).collect();
    Ok((layers, edges))
}

/// Layers of the graph; each takes the longer of computing at the peak and moving its bytes at the bandwidth.
fn estimated(args: &GraphArgs) -> anyhow::Result<Layers> {
    ensure!(args.peak_tflops > 0.0, "a peak of {} Tflop/s computes nothing", args.peak_tflops);
    let bandwidth = amounts::rate(&args.memory_bandwidth)?;
    let model = profile::import(&args.graph)?;
    let batch = match model.batch() {
        Batch::Baked { rows, .. } => *rows,
        _ => args.batch,
    };
    let graph = model.at(&Sizes { batch, free: profile::free_sizes(&args.free)? })?;
    let layer = |layer: &graph::Layer| {
        let cost = Cost::of(&graph, layer);
        let seconds = (cost.flops as f64 / (args.peak_tflops * 1e12)).max(cost.bytes().0 as f64 / bandwidth);
        Layer {
            name: layer.name.clone(),
            time_ms: seconds * 1e3,
            weight_bytes: cost.weights.0,
            output_bytes: cost.written.0,
        }
    };
    let layers = graph.layers.iter().map(layer).collect();
    Ok((layers, edges(&graph)))
}

fn edges(graph: &Graph) -> Vec<(usize, usize)> {
    let producers = graph.producers();
    let mut edges = Vec::new();
    for (target, layer) in graph.layers.iter().enumerate() {
        edges.extend(layer.inputs.iter().filter_map(|input| Some((producers[input.index()]?, target))));
    }
    edges.sort_unstable();
    edges.dedup();
    edges
}

fn assemble(
    args: &GraphArgs,
    link: Link,
    layers: &[Layer],
    edges: &[(usize, usize)],
) -> anyhow::Result<OperatorGraph> {
    let count = u64::try_from(layers.len())?;
    let mut operators = Vec::new();
    for (id, layer) in (0u64..).zip(layers) {
        let forward = Operator {
            id,
            name: layer.name.clone(),
            accelerator_ms: Some(layer.time_ms),
            cpu_ms: Some(layer.time_ms * args.cpu_slowdown),
            resident_bytes: layer.weight_bytes.saturating_add(layer.output_bytes),
            parameter_bytes: Some(layer.weight_bytes),
            output_bytes: Some(layer.output_bytes),
            transfer_ms: layer.output_bytes as f64 / link.bytes_per_second * 1e3,
            color: Some(i64::try_from(id)?),
            backward: false,
        };
        if args.training {
            operators.push(Operator {
                id: id + count,
                name: format!("{} backward", layer.name),
                accelerator_ms: Some(layer.time_ms * BACKWARD),
                cpu_ms: Some(layer.time_ms * BACKWARD * args.cpu_slowdown),
                resident_bytes: 0,
                parameter_bytes: None,
                output_bytes: None,
                backward: true,
                transfer_ms: 0.0,
                ..forward.clone()
            });
        }
        operators.push(forward);
    }
    let mut named: Vec<(u64, u64)> = Vec::new();
    // A backward operator's output is the gradient of what its layer was fed.
    let mut gradients: BTreeMap<u64, f64> = BTreeMap::new();
    for &(source, target) in edges {
        let (from, to) = (u64::try_from(source)?, u64::try_from(target)?);
        named.push((from, to));
        if args.training {
            named.push((to + count, from + count));
            let size = layers[source].output_bytes as f64;
            *gradients.entry(to + count).or_insert(0.0) += size / link.bytes_per_second * 1e3;
        }
    }
    for operator in operators.iter_mut().filter(|operator| operator.backward) {
        operator.transfer_ms = gradients.get(&operator.id).copied().unwrap_or(0.0);
    }
    Ok(OperatorGraph::new(operators, &named)?)
}
