//! Pipelines that are drained after every round of minibatches.
//!
//! How long a round takes is simulated: 1F1B with the stages' own times, transfers and replicas, and the exchange of
//! gradients behind it. Fewer machines can be better than all, for a shorter pipeline drains sooner; so the best steady
//! pipeline on each number of machines of the outermost level is tried. A round is never faster than a full pipeline, which
//! is the bound.

use super::costs::stage_costs;
use super::judge::judge_pipeline;
use super::layers::Layers;
use super::optimise::plan_steady;
use super::{Discipline, Level, Pipeline, PipelineError, PipelineReport};
use crate::operators::OperatorGraph;
use crate::schedule::{Kind, Settings, generate, simulate};
use std::collections::BTreeMap;

/// The pipeline whose drained rounds take least time a minibatch, of those that are tried.
pub(super) fn plan_flush(
    graph: &OperatorGraph,
    levels: &[Level],
    memory_bytes: Option<u64>,
    minibatches: usize,
    stop: &dyn Fn() -> bool,
) -> Result<(Pipeline, PipelineReport), PipelineError> {
    if minibatches == 0 {
        return Err(PipelineError::Round);
    }
    let discipline = Discipline::Flush { minibatches };
    let all = levels.last().map_or(0, |level| level.machines);
    let mut best: Option<(Pipeline, PipelineReport)> = None;
    let mut failed = None;
    let mut bound = None;
    for machines in (1..=all).rev() {
        let mut fewer = levels.to_vec();
        if let Some(level) = fewer.last_mut() {
            level.machines = machines;
        }
        if best.is_some() && stop() {
            break;
        }
        let (mut pipeline, steady) = match plan_steady(graph, &fewer, memory_bytes, discipline, stop) {
            Ok(found) => found,
            Err(error) => {
                failed.get_or_insert(error);
                continue;
            }
        };
        // All machines come first, and fewer are never faster while the pipeline is full.
        let lower_seconds = *bound.get_or_insert(steady.lower_seconds);
        let seconds = judge_pipeline(graph, levels, memory_bytes, discipline, &pipeline)?.seconds;
        pipeline.seconds = seconds;
        let report = PipelineReport { seconds, lower_seconds, proved: seconds <= lower_seconds };
        if best.as_ref().is_none_or(|(_, best)| seconds < best.seconds) {
            best = Some((pipeline, report));
        }
    }
    best.ok_or_else(|| failed.unwrap_or(PipelineError::Empty))
}

/// Seconds a minibatch when a round is drained.
pub(super) fn drained(
    graph: &OperatorGraph,
    levels: &[Level],
    pipeline: &Pipeline,
    minibatches: usize,
) -> Result<f64, PipelineError> {
    if minibatches == 0 {
        return Err(PipelineError::Round);
    }
    let costs = stage_costs(graph, levels, pipeline)?;
    let replicas = pipeline.stages.iter().map(super::Stage::devices).collect();
    let failed = |error: &dyn ToString| PipelineError::Schedule(error.to_string());
    let schedule =
        generate(&Kind::RoundRobin { replicas }, &costs, minibatches).map_err(|error| failed(&error))?;
    let run = simulate(&schedule, &costs, Settings::default()).map_err(|error| failed(&error))?;
    Ok((run.makespan.as_secs_f64() + exchange(graph, levels, pipeline)?) / minibatches as f64)
}

/// Seconds that the slowest stage takes to exchange gradients, level by level.
fn exchange(graph: &OperatorGraph, levels: &[Level], pipeline: &Pipeline) -> Result<f64, PipelineError> {
    let layers = Layers::all(graph)?;
    let bytes: BTreeMap<usize, f64> =
        layers.layers.iter().map(|layer| (layer.place, layer.parameter_bytes)).collect();
    let of = |stage: &super::Stage| {
        let parameters: f64 = stage.layers.iter().filter_map(|place| bytes.get(place)).sum();
        let rings = stage.replicas.iter().zip(levels).map(|(&replicas, level)| {
            2.0 * (replicas - 1) as f64 / replicas as f64 * parameters / level.bytes_per_second
        });
        rings.sum::<f64>()
    };
    Ok(pipeline.stages.iter().map(of).fold(0.0, f64::max))
}
