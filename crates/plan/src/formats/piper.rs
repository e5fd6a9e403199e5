//! Piper's JSON: layers with costs for every degree of tensor parallelism, with and without recomputing activations.
//!
//! One column is taken for all layers: a degree of tensor parallelism, with recomputing or without. A device of the plan is
//! then so many of the file's together; memory and parameters are those of one of them. What tensor parallelism makes a cut
//! edge exchange besides is added to its size. The format gives one time for both passes; a third of it is taken to be the
//! forward pass. An output whose edges differ in size is taken to be as large as the largest.

use super::twins::{Layer, Link, assemble};
use super::{Doubt, FormatError, check_faults, check_length, doubts, whole_bytes};
use crate::operators::OperatorGraph;
use serde::Deserialize;
use std::collections::BTreeMap;

/// The part of a layer's time that its forward pass takes.
const FORWARD_SHARE: f64 = 1.0 / 3.0;

/// How the format calls costs with activations kept, and recomputed.
const KEPT: &str = "vanilla";
const RECOMPUTED: &str = "activation recomp";

/// A sample that takes longer than this makes one doubt its unit.
const SECONDS_MAX: f64 = 30.0;

/// Which costs are taken, for all layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PiperColumn {
    /// Devices that share each layer, and so make one of the plan's.
    pub degree: usize,
    /// Whether activations are recomputed in the backward pass instead of kept.
    pub recompute: bool,
}

impl Default for PiperColumn {
    /// One device a layer, activations kept.
    fn default() -> Self {
        Self { degree: 1, recompute: false }
    }
}

/// A workload: the graph and the devices it is meant for.
#[derive(Clone, Debug, PartialEq)]
pub struct PiperFile {
    /// The layers, as twins.
    pub graph: OperatorGraph,
    /// Devices of the plan that may be used; each is as many of the file's as the degree says.
    pub devices: usize,
    /// Memory of one.
    pub memory_bytes: u64,
    /// How fast they exchange data.
    pub link: Link,
    /// Microbatches in a batch.
    pub microbatches: u64,
    /// What looks wrong.
    pub doubts: Vec<Doubt>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct File {
    max_devices: usize,
    max_memory_per_device: f64,
    bandwidth: f64,
    mbs_in_batch: u64,
    nodes: Vec<Node>,
    edges: Vec<Edge>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Node {
    id: u64,
    #[serde(default)]
    name: String,
    #[serde(rename = "TMPCs")]
    costs: BTreeMap<String, Vec<Cost>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Cost {
    id: String,
    time_per_sample: f64,
    parameter_size: f64,
    memory_usage_a: f64,
    memory_usage_b: f64,
    /// Bytes more that a cut edge exchanges, by the layer before.
    sync_time_fw: BTreeMap<String, f64>,
    /// The same, by the layer behind.
    sync_time_bw: BTreeMap<String, f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Edge {
    source_id: u64,
    dest_id: u64,
    communication_cost: f64,
}

/// Reads a workload whose times are in units of `unit_ms` milliseconds (the format says seconds, not all files do).
///
/// # Errors
///
/// A file that is too long, not of this shape (unknown and missing fields included), whose graph is faulty, or whose layers
/// have no costs for the column asked for.
pub fn read_piper(text: &str, unit_ms: f64, column: PiperColumn) -> Result<PiperFile, FormatError> {
    check_length(text)?;
    let file: File = serde_json::from_str(text)?;
    let mut faults = faults(&file, column);
    let mut bytes = |value: f64, what: &dyn Fn() -> String| {
        whole_bytes(value).unwrap_or_else(|| {
            faults.push(format!("{} is {value}; it is a number of bytes", what()));
            0
        })
    };
    let memory_bytes = bytes(file.max_memory_per_device, &|| "maxMemoryPerDevice".to_owned());
    let mut outputs: BTreeMap<u64, u64> = BTreeMap::new();
    let mut synced: BTreeMap<(u64, u64), f64> = BTreeMap::new();
    let mut missing = Vec::new();
    let mut chosen = Vec::with_capacity(file.nodes.len());
    for node in file.nodes {
        match choose(&node, column) {
            Ok(cost) => {
                sync(&mut synced, &node, cost);
                chosen.push(node);
            }
            Err(reason) => missing.push(reason),
        }
    }
    for edge in &file.edges {
        let ends = (edge.source_id, edge.dest_id);
        let size = edge.communication_cost + synced.get(&ends).copied().unwrap_or(0.0);
        let size = bytes(size, &|| format!("communicationCost of {} -> {}", ends.0, ends.1));
        let largest = outputs.entry(edge.source_id).or_insert(0);
        *largest = size.max(*largest);
    }
    let mut layers = Vec::with_capacity(chosen.len());
    let mut sample_ms = 0.0;
    for node in chosen {
        let Ok(cost) = choose(&node, column) else { continue };
        let size = |value: f64, what: &str| (value, format!("{what} of node {}", node.id));
        let [parameters, kept, fixed] = [
            size(cost.parameter_size, "parameterSize"),
            size(cost.memory_usage_a, "memoryUsageA"),
            size(cost.memory_usage_b, "memoryUsageB"),
        ]
        .map(|(value, what)| bytes(value, &|| what.clone()));
        let time_ms = cost.time_per_sample * unit_ms;
        sample_ms += time_ms;
        layers.push(Layer {
            id: node.id,
            name: node.name,
            forward_ms: time_ms * FORWARD_SHARE,
            backward_ms: time_ms * (1.0 - FORWARD_SHARE),
            output_bytes: outputs.get(&node.id).copied().unwrap_or(0),
            parameter_bytes: parameters,
            resident_bytes: kept.saturating_add(fixed),
        });
    }
    faults.extend(missing);
    check_faults(faults)?;
    let link = Link { bytes_per_second: file.bandwidth };
    let edges = file.edges.iter().map(|edge| (edge.source_id, edge.dest_id)).collect();
    let graph = assemble(layers, edges, link)?;
    let mut doubts = doubts(&graph);
    if sample_ms > SECONDS_MAX * 1e3 {
        doubts.push(Doubt::Slow { seconds: sample_ms / 1e3 });
    }
    let (devices, microbatches) = (file.max_devices / column.degree.max(1), file.mbs_in_batch);
    Ok(PiperFile { graph, devices, memory_bytes, link, microbatches, doubts })
}

/// What is wrong with the devices.
fn faults(file: &File, column: PiperColumn) -> Vec<String> {
    let mut faults = Vec::new();
    if column.degree == 0 || column.degree > file.max_devices.max(1) {
        let (degree, devices) = (column.degree, file.max_devices);
        faults.push(format!("{degree} devices cannot share a layer, the file has {devices}"));
    }
    if file.bandwidth.is_nan() || file.bandwidth <= 0.0 {
        faults.push(format!("a bandwidth of {} moves nothing; give bytes a second", file.bandwidth));
    }
    faults
}

/// A layer's costs in a column; otherwise what it has instead.
fn choose(node: &Node, column: PiperColumn) -> Result<&Cost, String> {
    let id = if column.recompute { RECOMPUTED } else { KEPT };
    let costs = node.costs.get(&column.degree.to_string());
    costs.and_then(|costs| costs.iter().find(|cost| cost.id == id)).ok_or_else(|| {
        let known = node
            .costs
            .iter()
            .flat_map(|(degree, costs)| costs.iter().map(move |cost| format!("{:?} for {degree}", cost.id)));
        let known: Vec<String> = known.collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        format!("node {} has no cost {id:?} for {} devices; it has {known}", node.id, column.degree)
    })
}

/// Notes what a layer's tensor parallelism makes cut edges exchange; of the two ends of an edge, the one that says more.
fn sync(synced: &mut BTreeMap<(u64, u64), f64>, node: &Node, cost: &Cost) {
    let named = |(name, size): (&String, &f64)| Some((name.parse::<u64>().ok()?, *size));
    let before = cost.sync_time_fw.iter().filter_map(named).map(|(other, size)| ((other, node.id), size));
    let behind = cost.sync_time_bw.iter().filter_map(named).map(|(other, size)| ((node.id, other), size));
    for (ends, size) in before.chain(behind) {
        let known = synced.entry(ends).or_insert(0.0);
        // What is not a number stays, and is reported with the edge.
        if size.is_nan() || size > *known {
            *known = size;
        }
    }
}
