//! What a pipeline's stages cost a schedule: passes, transfers and memory of one replica for one minibatch.

use super::layers::Layers;
use super::{Level, Pipeline, PipelineError, check_levels};
use crate::operators::OperatorGraph;
use crate::schedule::StageCost;
use std::collections::{BTreeMap, BTreeSet};
use vocab::{Bytes, Span};

/// The part of a backward pass that computes gradients of weights, where a profile has one time for both.
const WEIGHT_SHARE: f64 = 0.5;

/// The costs of each stage of `pipeline`. Gradients of weights take half of a backward pass; a device holds its parameters
/// and their gradients all the time, and outputs from forward to backward pass.
///
/// # Errors
///
/// Levels without machines, and graphs without layers, sizes or times.
pub fn stage_costs(
    graph: &OperatorGraph,
    levels: &[Level],
    pipeline: &Pipeline,
) -> Result<Vec<StageCost>, PipelineError> {
    check_levels(levels)?;
    let layers = Layers::all(graph)?;
    let place_of: BTreeMap<usize, usize> =
        layers.layers.iter().enumerate().map(|(layer, content)| (content.place, layer)).collect();
    let mut costs = Vec::with_capacity(pipeline.stages.len());
    for (number, stage) in pipeline.stages.iter().enumerate() {
        let members: BTreeSet<usize> =
            stage.layers.iter().filter_map(|place| place_of.get(place).copied()).collect();
        let sum = |of: &dyn Fn(usize) -> f64| members.iter().map(|&layer| of(layer)).sum::<f64>();
        let forward_ms = sum(&|layer| layers.layers[layer].milliseconds[0]);
        let backward_ms = sum(&|layer| layers.layers[layer].milliseconds[1]);
        let leaving = |layer: &&usize| layers.followers[**layer].iter().any(|next| !members.contains(next));
        let sent: f64 = members.iter().filter(leaving).map(|&layer| layers.layers[layer].output_bytes).sum();
        let next = pipeline.stages.get(number + 1);
        // The innermost level on which both stages are in one place.
        let level = next.map_or(0, |next| {
            let apart = stage.within.iter().zip(&next.within).rposition(|(own, next)| own != next);
            apart.map_or(0, |level| level + 1)
        });
        let speed = levels.get(level).map_or(f64::INFINITY, |level| level.bytes_per_second);
        let parameters = sum(&|layer| layers.layers[layer].parameter_bytes);
        costs.push(StageCost {
            forward: Span::from_secs_f64(forward_ms / 1e3),
            backward: Span::from_secs_f64(backward_ms * (1.0 - WEIGHT_SHARE) / 1e3),
            weight: Span::from_secs_f64(backward_ms * WEIGHT_SHARE / 1e3),
            transfer: if next.is_some() { Span::from_secs_f64(sent / speed) } else { Span::ZERO },
            activation_bytes: whole(sum(&|layer| layers.layers[layer].output_bytes)),
            weight_stash_bytes: whole(sum(&|layer| layers.layers[layer].output_bytes)),
            resident_bytes: whole(2.0 * parameters),
        });
    }
    Ok(costs)
}

fn whole(bytes: f64) -> Bytes {
    Bytes(crate::formats::whole_bytes(bytes).unwrap_or(u64::MAX))
}
