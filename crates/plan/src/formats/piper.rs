//! Piper's JSON: layers with costs for every degree of tensor parallelism, with and without recomputing activations.
//!
//! Only the costs of one device without recomputing are taken: how a layer is spread over devices is the planner's choice
//! among replicas. The format gives one time for both passes; a third of it is taken to be the forward pass. An output
//! whose edges differ in size is taken to be as large as the largest.

use super::twins::{Layer, Link, assemble};
use super::{Doubt, FormatError, check_faults, check_length, doubts, whole_bytes};
use crate::operators::OperatorGraph;
use serde::Deserialize;
use std::collections::BTreeMap;

/// The part of a layer's time that its forward pass takes.
const FORWARD_SHARE: f64 = 1.0 / 3.0;

/// A sample that takes longer than this makes one doubt its unit.
const SECONDS_MAX: f64 = 30.0;

/// A workload: the graph and the devices it is meant for.
#[derive(Clone, Debug, PartialEq)]
pub struct PiperFile {
    /// The layers, as twins.
    pub graph: OperatorGraph,
    /// Devices that may be used.
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
    /// Only for tensor parallelism.
    #[serde(rename = "syncTimeFw")]
    _forward: BTreeMap<String, f64>,
    #[serde(rename = "syncTimeBw")]
    _backward: BTreeMap<String, f64>,
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
/// A file that is too long, not of this shape (unknown and missing fields included), or whose graph is faulty.
pub fn read_piper(text: &str, unit_ms: f64) -> Result<PiperFile, FormatError> {
    check_length(text)?;
    let file: File = serde_json::from_str(text)?;
    let mut faults = Vec::new();
    if file.bandwidth.is_nan() || file.bandwidth <= 0.0 {
        faults.push(format!("a bandwidth of {} moves nothing; give bytes a second", file.bandwidth));
    }
    let mut bytes = |value: f64, what: &dyn Fn() -> String| {
        whole_bytes(value).unwrap_or_else(|| {
            faults.push(format!("{} is {value}; it is a number of bytes", what()));
            0
        })
    };
    let memory_bytes = bytes(file.max_memory_per_device, &|| "maxMemoryPerDevice".to_owned());
    let mut outputs: BTreeMap<u64, u64> = BTreeMap::new();
    for edge in &file.edges {
        let size = bytes(edge.communication_cost, &|| {
            format!("communicationCost of {} -> {}", edge.source_id, edge.dest_id)
        });
        let largest = outputs.entry(edge.source_id).or_insert(0);
        *largest = size.max(*largest);
    }
    let mut layers = Vec::with_capacity(file.nodes.len());
    let mut missing = Vec::new();
    let mut sample_ms = 0.0;
    for node in file.nodes {
        let plain = |costs: &Vec<Cost>| costs.iter().position(|cost| cost.id == "vanilla");
        let cost = node.costs.get("1").and_then(|costs| Some(&costs[plain(costs)?]));
        let Some(cost) = cost else {
            missing.push(format!("node {} has no vanilla cost for one device", node.id));
            continue;
        };
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
    let (devices, microbatches) = (file.max_devices, file.mbs_in_batch);
    Ok(PiperFile { graph, devices, memory_bytes, link, microbatches, doubts })
}
