//! PipeDream's profiles (`graph.txt`): a line an operator, and a line with a leading blank an edge.
//!
//! A profile times the forward and the backward pass of each layer for one minibatch; here each layer becomes two
//! operators of one colour class, with mirrored edges. Identifiers are the profile's node numbers, backward operators
//! numbered on from the greatest.

use super::twins::{Layer, Link, assemble};
use super::{FormatError, check_faults, check_length, whole_bytes};
use crate::operators::OperatorGraph;
use std::collections::BTreeMap;

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
    let id = read_id(id)?;
    let mut found: BTreeMap<&str, f64> = BTreeMap::new();
    for field in costs.trim().split(", ") {
        let (key, value) = field.split_once('=').ok_or_else(|| format!("{field:?} is not NAME=NUMBER"))?;
        found.insert(key, read_amount(value)?);
    }
    let mut take = |key: &str| found.remove(key).ok_or_else(|| format!("{key} is missing"));
    let forward_ms = take("forward_compute_time")?;
    let backward_ms = take("backward_compute_time")?;
    let output_bytes = bytes(take("activation_size")?)?;
    let parameter_bytes = bytes(take("parameter_size")?)?;
    let layer = Layer {
        id,
        name: name.to_owned(),
        forward_ms,
        backward_ms,
        output_bytes,
        parameter_bytes,
        resident_bytes: output_bytes.saturating_add(parameter_bytes),
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
