//! Placements in the JSON that the device-placement literature publishes: the nodes of every CPU and accelerator.

use super::{FormatError, check_faults, check_length};
use crate::operators::OperatorGraph;
use crate::place::{Part, Placement};
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// What the writer thinks of it; the judge decides.
    #[serde(rename = "maxLoad")]
    _value: Option<f64>,
    #[serde(default)]
    cpus: Vec<Device>,
    #[serde(default)]
    fpgas: Vec<Device>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Device {
    #[serde(rename = "load")]
    _load: Option<f64>,
    nodes: Vec<u64>,
}

/// Reads a placement of `graph` on the groups that [`Devices::uniform`](crate::Devices::uniform) makes. Devices without nodes are left out.
///
/// # Errors
///
/// A file that is too long, not of this shape, or names operators that the graph does not have. Whether the placement is
/// possible is for [`judge`](crate::place::judge) to say.
pub fn read_split(text: &str, graph: &OperatorGraph) -> Result<Placement, FormatError> {
    check_length(text)?;
    let file: File = serde_json::from_str(text)?;
    let places: BTreeMap<u64, usize> =
        graph.operators().iter().enumerate().map(|(place, operator)| (operator.id, place)).collect();
    // As `Devices::uniform` numbers them.
    let cpus = file.cpus.into_iter().map(|device| (1, device));
    let accelerators = file.fpgas.into_iter().map(|device| (0, device));
    let mut faults = Vec::new();
    let mut parts = Vec::new();
    for (group, device) in cpus.chain(accelerators) {
        let mut operators = Vec::with_capacity(device.nodes.len());
        for id in device.nodes {
            match places.get(&id) {
                Some(&place) => operators.push(place),
                None => faults.push(format!("node {id} is not in the graph")),
            }
        }
        operators.sort_unstable();
        if !operators.is_empty() {
            parts.push(Part { group, replicas: 1, operators });
        }
    }
    check_faults(faults)?;
    Ok(Placement { parts })
}
