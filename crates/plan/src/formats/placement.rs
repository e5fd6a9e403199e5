//! The JSON workloads of the device-placement literature: one object with devices, `nodes` and `edges`.
//!
//! Times are milliseconds and taken as they are. The format calls every accelerator an FPGA.

use super::doubts::links;
use super::{Doubt, FormatError, check_faults, check_length, doubts, whole_bytes};
use crate::operators::{Operator, OperatorGraph, TRANSFER_MS_TOLERANCE};
use crate::place::Devices;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::fmt;

/// A workload: the graph and the devices it is meant for.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacementFile {
    /// The operators.
    pub graph: OperatorGraph,
    /// The devices the file asks for.
    pub devices: Devices,
    /// What looks wrong.
    pub doubts: Vec<Doubt>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(rename = "maxSizePerFPGA")]
    memory_bytes: f64,
    #[serde(rename = "maxFPGAs")]
    accelerators: usize,
    #[serde(rename = "maxCPUs")]
    cpus: usize,
    nodes: Vec<Node>,
    edges: Vec<Edge>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Node {
    id: u64,
    #[serde(default)]
    name: String,
    #[serde(deserialize_with = "flag")]
    supported_on_fpga: bool,
    fpga_latency: f64,
    cpu_latency: f64,
    #[serde(deserialize_with = "flag")]
    is_backward_node: bool,
    color_class: Option<i64>,
    size: f64,
    /// Only a hint for readers.
    #[serde(rename = "layerId")]
    _layer: Option<i64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Edge {
    source_id: u64,
    dest_id: u64,
    cost: f64,
    /// Stale in published training files, so only used to doubt the costs of forward operators.
    size: Option<f64>,
}

/// Reads a workload.
///
/// # Errors
///
/// A file that is too long, not of this shape (unknown and missing fields included), or whose graph is faulty.
pub fn read_placement(text: &str) -> Result<PlacementFile, FormatError> {
    check_length(text)?;
    let file: File = serde_json::from_str(text)?;
    let mut faults = Vec::new();
    let memory_bytes = whole_bytes(file.memory_bytes);
    if memory_bytes.is_none() {
        faults.push(format!("maxSizePerFPGA is {}; memory is a number of bytes", file.memory_bytes));
    }
    let mut transfers: BTreeMap<u64, f64> = BTreeMap::new();
    for edge in &file.edges {
        let first = *transfers.entry(edge.source_id).or_insert(edge.cost);
        if (first - edge.cost).abs() > TRANSFER_MS_TOLERANCE {
            faults.push(format!(
                "edge {} -> {} costs {}, another edge of {} costs {first}; an output has one cost",
                edge.source_id, edge.dest_id, edge.cost, edge.source_id
            ));
        }
    }
    let mut operators = Vec::with_capacity(file.nodes.len());
    for node in file.nodes {
        let Some(resident_bytes) = whole_bytes(node.size) else {
            faults.push(format!("node {} has size {}; sizes are bytes, not negative", node.id, node.size));
            continue;
        };
        operators.push(Operator {
            id: node.id,
            name: node.name,
            accelerator_ms: node.supported_on_fpga.then_some(node.fpga_latency),
            cpu_ms: Some(node.cpu_latency),
            resident_bytes,
            parameter_bytes: None,
            output_bytes: None,
            transfer_ms: transfers.get(&node.id).copied().unwrap_or(0.0),
            color: node.color_class,
            backward: node.is_backward_node,
        });
    }
    check_faults(faults)?;
    let edges: Vec<(u64, u64)> = file.edges.iter().map(|edge| (edge.source_id, edge.dest_id)).collect();
    let devices = Devices::uniform(file.accelerators, file.cpus, memory_bytes.unwrap_or_default());
    let graph = OperatorGraph::new(operators, &edges)?;
    let backward: BTreeMap<u64, bool> =
        graph.operators().iter().map(|operator| (operator.id, operator.backward)).collect();
    let forward = file.edges.iter().filter(|edge| !backward[&edge.source_id]);
    let mut doubts = doubts(&graph);
    doubts.extend(links(forward.filter_map(|edge| Some((edge.size?, edge.cost)))));
    Ok(PlacementFile { graph, devices, doubts })
}

/// `true`, `false`, `1` or `0`.
fn flag<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    struct Flag;
    impl Visitor<'_> for Flag {
        type Value = bool;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("true, false, 0 or 1")
        }

        fn visit_bool<E: Error>(self, word: bool) -> Result<bool, E> {
            Ok(word)
        }

        fn visit_u64<E: Error>(self, number: u64) -> Result<bool, E> {
            match number {
                0 => Ok(false),
                1 => Ok(true),
                other => Err(E::custom(format!("{other} is neither true, false, 0 nor 1"))),
            }
        }
    }
    deserializer.deserialize_any(Flag)
}
