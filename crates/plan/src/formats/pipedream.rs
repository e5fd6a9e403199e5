//! PipeDream's profiles (`graph.txt`): a line an operator, and a line with a leading blank an edge.
//!
//! A profile times the forward and the backward pass of each layer for one minibatch; here each layer becomes two
//! operators of one colour class, with mirrored edges. Identifiers are the profile's node numbers, backward operators
//! numbered on from the greatest.

use super::{FormatError, check_faults, check_length, whole_bytes};
use crate::operators::{Operator, OperatorGraph};
use std::collections::BTreeMap;

/// What a profile does not know: how fast an accelerator and its host exchange data.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Bytes a second.
    pub bytes_per_second: f64,
}

/// One layer of a profile.
struct Layer {
    id: u64,
    name: String,
    forward_ms: f64,
    backward_ms: f64,
    activation_bytes: u64,
    parameter_bytes: u64,
}

/// Reads a profile. No CPU times are known, so no operator can run on a CPU.
///
/// # Errors
///
/// A file that is too long, every line that is neither an operator nor an edge, or a faulty graph.
pub fn read_pipedream(text: &str, link: Link) -> Result<OperatorGraph, FormatError> {
    check_length(text)?;
    let mut faults = Vec::new();
    if link.bytes_per_second.is_nan() || link.bytes_per_second <= 0.0 {
        faults.push(format!(
            "a link of {} bytes a second moves nothing; give its speed",
            link.bytes_per_second
        ));
    }
    let mut layers = Vec::new();
    let mut edges = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let outcome = match line {
            blank if blank.trim().is_empty() => Ok(()),
            edge if edge.starts_with([' ', '\t']) => read_edge(edge).map(|edge| edges.push(edge)),
            layer => read_layer(layer).map(|layer| layers.push(layer)),
        };
        if let Err(message) = outcome {
            faults.push(format!("line {}: {message}", number + 1));
        }
    }
    check_faults(faults)?;
    assemble(layers, edges, link)
}

fn assemble(
    layers: Vec<Layer>,
    mut edges: Vec<(u64, u64)>,
    link: Link,
) -> Result<OperatorGraph, FormatError> {
    let first = layers.iter().map(|layer| layer.id).max().unwrap_or(0).saturating_add(1);
    let mut operators = Vec::with_capacity(2 * layers.len());
    let mut twins: BTreeMap<u64, u64> = BTreeMap::new();
    for (number, layer) in (0u64..).zip(layers) {
        let transfer_ms = layer.activation_bytes as f64 / link.bytes_per_second * 1e3;
        let forward = Operator {
            id: layer.id,
            name: layer.name,
            accelerator_ms: Some(layer.forward_ms),
            cpu_ms: None,
            resident_bytes: layer.activation_bytes.saturating_add(layer.parameter_bytes),
            parameter_bytes: Some(layer.parameter_bytes),
            output_bytes: Some(layer.activation_bytes),
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

fn read_edge(line: &str) -> Result<(u64, u64), String> {
    let (source, target) = line.trim().split_once(" -- ").ok_or("an edge reads `node1 -- node2`")?;
    Ok((read_id(source)?, read_id(target)?))
}

/// The number of `node12` or `12`.
fn read_id(text: &str) -> Result<u64, String> {
    let text = text.trim();
    text.trim_start_matches("node")
        .parse()
        .map_err(|_| format!("{text:?} is not a node; write node and a number"))
}

fn read_layer(line: &str) -> Result<Layer, String> {
    let mut parts = line.split(" -- ");
    let (Some(id), Some(name), Some(costs)) = (parts.next(), parts.next(), parts.next()) else {
        return Err("a layer reads `node1 -- NAME -- forward_compute_time=…, …`".to_owned());
    };
    match parts.next() {
        None => {}
        Some(stage) if stage.trim().starts_with("stage_id=") => {}
        Some(other) => return Err(format!("{other:?} after the costs; only stage_id=N may stand there")),
    }
    let mut found: BTreeMap<&str, f64> = BTreeMap::new();
    for field in costs.trim().split(", ") {
        let (key, value) = field.split_once('=').ok_or_else(|| format!("{field:?} is not NAME=NUMBER"))?;
        found.insert(key, read_amount(value)?);
    }
    let mut take = |key: &str| found.remove(key).ok_or_else(|| format!("{key} is missing"));
    let layer = Layer {
        id: read_id(id)?,
        name: name.to_owned(),
        forward_ms: take("forward_compute_time")?,
        backward_ms: take("backward_compute_time")?,
        activation_bytes: bytes(take("activation_size")?)?,
        parameter_bytes: bytes(take("parameter_size")?)?,
    };
    match found.keys().next() {
        Some(other) => Err(format!("unknown field {other}")),
        None => Ok(layer),
    }
}

fn bytes(value: f64) -> Result<u64, String> {
    whole_bytes(value).ok_or_else(|| format!("{value} is not a number of bytes"))
}

/// A number, or the sum of `[1; 2; 3]`.
fn read_amount(text: &str) -> Result<f64, String> {
    let inner = text.trim().trim_start_matches('[').trim_end_matches(']');
    let mut sum = 0.0;
    for part in inner.split(';') {
        let part = part.trim();
        sum += part.parse::<f64>().map_err(|_| format!("{part:?} is not a number"))?;
    }
    Ok(sum)
}
