//! Layers that are profiled as a whole, as twins: a forward and a backward operator of one colour class.

use super::FormatError;
use crate::operators::{Operator, OperatorGraph};
use std::collections::BTreeMap;

/// What a profile does not know: how fast an accelerator and its host exchange data.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Bytes a second.
    pub bytes_per_second: f64,
}

/// One layer of a profile.
pub(super) struct Layer {
    pub id: u64,
    pub name: String,
    pub forward_ms: f64,
    pub backward_ms: f64,
    pub output_bytes: u64,
    pub parameter_bytes: u64,
    /// Everything it keeps on its device.
    pub resident_bytes: u64,
}

/// Forward and backward operators of `layers`, numbered on from the greatest id, with mirrored edges.
pub(super) fn assemble(
    layers: Vec<Layer>,
    mut edges: Vec<(u64, u64)>,
    link: Link,
) -> Result<OperatorGraph, FormatError> {
    let first = layers.iter().map(|layer| layer.id).max().unwrap_or(0).saturating_add(1);
    let mut operators = Vec::with_capacity(2 * layers.len());
    let mut twins: BTreeMap<u64, u64> = BTreeMap::new();
    for (number, layer) in (0u64..).zip(layers) {
        let transfer_ms = layer.output_bytes as f64 / link.bytes_per_second * 1e3;
        let forward = Operator {
            id: layer.id,
            name: layer.name,
            accelerator_ms: Some(layer.forward_ms),
            cpu_ms: None,
            resident_bytes: layer.resident_bytes,
            parameter_bytes: Some(layer.parameter_bytes),
            output_bytes: Some(layer.output_bytes),
            transfer_ms,
            color: i64::try_from(number).ok(),
            backward: false,
        };
        let backward = Operator {
            id: first.saturating_add(number),
            name: format!("{} backward", forward.name),
            accelerator_ms: Some(layer.backward_ms),
            resident_bytes: 0,
            parameter_bytes: None,
            output_bytes: None,
            transfer_ms: 0.0,
            backward: true,
            ..forward.clone()
        };
        twins.insert(forward.id, backward.id);
        operators.extend([forward, backward]);
    }
    // The gradient of a layer's output travels as the output did: it is paid by the backward operator that makes it.
    let outputs: BTreeMap<u64, f64> =
        operators.iter().map(|operator| (operator.id, operator.transfer_ms)).collect();
    let mut gradients: BTreeMap<u64, f64> = BTreeMap::new();
    let mut mirrored = Vec::with_capacity(edges.len());
    for (source, target) in &edges {
        if let (Some(&source_twin), Some(&target_twin)) = (twins.get(source), twins.get(target)) {
            mirrored.push((target_twin, source_twin));
            *gradients.entry(target_twin).or_insert(0.0) += outputs[source];
        }
    }
    for operator in &mut operators {
        if let Some(&gradient) = gradients.get(&operator.id) {
            operator.transfer_ms = gradient;
        }
    }
    edges.extend(mirrored);
    Ok(OperatorGraph::new(operators, &edges)?)
}
