//! Scores a pipeline from scratch, by the default optimiser's model.

use super::flush::drained;
use super::layers::Layers;
use super::optimise::communication;
use super::{Discipline, Level, Pipeline, PipelineError, Stage, check_levels};
use crate::operators::OperatorGraph;
use std::collections::{BTreeMap, BTreeSet};
use thiserror::Error;

/// What one stage costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StageScore {
    /// Seconds that one replica computes for a minibatch, both passes.
    pub compute_seconds: f64,
    /// Seconds that its link is busy for a minibatch, on the innermost level.
    pub communication_seconds: f64,
    /// Minibatches in flight in one replica.
    pub in_flight: usize,
    /// What a device keeps.
    pub resident_bytes: f64,
}

/// What makes a pipeline impossible.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PipelineFault {
    /// A stage has no layer.
    #[error("stage {stage} is empty; leave it out")]
    Empty {
        /// The stage.
        stage: usize,
    },
    /// A layer is in several stages, or in none.
    #[error("operator {id} is in {times} stages, not in one")]
    Placed {
        /// The layer's forward operator.
        id: u64,
        /// In how many stages it is.
        times: usize,
    },
    /// A stage does not name its replicas and enclosing stages on every level.
    #[error("stage {stage} does not name a replica count and an enclosing stage for each of {levels} levels")]
    Levels {
        /// The stage.
        stage: usize,
        /// How many levels there are.
        levels: usize,
    },
    /// A later stage feeds an earlier one.
    #[error("operator {source_id} feeds {target_id} in an earlier stage")]
    Backwards {
        /// The feeding layer.
        source_id: u64,
        /// The fed layer.
        target_id: u64,
    },
    /// More members of a level are used than there are.
    #[error("{used} members of level {level} are used together, there are {available}")]
    Machines {
        /// The level, innermost first.
        level: usize,
        /// How many are used.
        used: usize,
        /// How many there are.
        available: usize,
    },
    /// A stage keeps more than a device has.
    #[error("stage {stage} keeps more than its devices have")]
    Memory {
        /// The stage.
        stage: usize,
    },
}

/// A pipeline's score.
#[derive(Clone, Debug, PartialEq)]
pub struct PipelineVerdict {
    /// Seconds from one minibatch to the next.
    pub seconds: f64,
    /// One score a stage.
    pub stages: Vec<StageScore>,
    /// What makes it impossible; empty when it is possible.
    pub faults: Vec<PipelineFault>,
}

/// Scores `pipeline`, whoever made it.
///
/// # Errors
///
/// Levels without machines, and graphs without layers, sizes or times.
pub fn judge_pipeline(
    graph: &OperatorGraph,
    levels: &[Level],
    memory_bytes: Option<u64>,
    discipline: Discipline,
    pipeline: &Pipeline,
) -> Result<PipelineVerdict, PipelineError> {
    check_levels(levels)?;
    let layers = Layers::all(graph)?;
    let mut faults = Vec::new();
    for (number, stage) in pipeline.stages.iter().enumerate() {
        let fits = stage.replicas.len() == levels.len() && stage.within.len() + 1 == levels.len();
        if !fits || stage.replicas.contains(&0) {
            faults.push(PipelineFault::Levels { stage: number, levels: levels.len() });
        }
        if stage.layers.is_empty() {
            faults.push(PipelineFault::Empty { stage: number });
        }
    }
    let place_of = place_of(&layers);
    let scoring = Scoring { graph, levels, discipline, layers: &layers, place_of };
    if !faults.is_empty() {
        return Ok(PipelineVerdict { seconds: f64::INFINITY, stages: Vec::new(), faults });
    }
    scoring.check_layers(&pipeline.stages, &mut faults);
    let all: Vec<&Stage> = pipeline.stages.iter().collect();
    let seconds = scoring.seconds(&all, levels.len(), &mut faults);
    let mut stages = Vec::with_capacity(all.len());
    for (number, stage) in all.iter().enumerate() {
        let score = scoring.stage(stage, all[number..].iter().map(|later| later.devices()).sum());
        if memory_bytes.is_some_and(|memory| score.resident_bytes > memory as f64) {
            faults.push(PipelineFault::Memory { stage: number });
        }
        stages.push(score);
    }
    let seconds = match discipline {
        Discipline::Flush { minibatches } if faults.is_empty() => {
            drained(graph, levels, pipeline, minibatches)?.max(seconds)
        }
        _ => seconds,
    };
    Ok(PipelineVerdict { seconds, stages, faults })
}

fn place_of(layers: &Layers) -> BTreeMap<usize, usize> {
    layers.layers.iter().enumerate().map(|(layer, content)| (content.place, layer)).collect()
}

struct Scoring<'a> {
    graph: &'a OperatorGraph,
    levels: &'a [Level],
    discipline: Discipline,
    layers: &'a Layers,
    /// The layer of each forward operator's place.
    place_of: BTreeMap<usize, usize>,
}

impl Scoring<'_> {
    fn check_layers(&self, stages: &[Stage], faults: &mut Vec<PipelineFault>) {
        let id = |layer: usize| self.graph.operators()[self.layers.layers[layer].place].id;
        let mut stage_of: Vec<Vec<usize>> = vec![Vec::new(); self.layers.layers.len()];
        for (number, stage) in stages.iter().enumerate() {
            for layer in stage.layers.iter().filter_map(|place| self.place_of.get(place)) {
                stage_of[*layer].push(number);
            }
        }
        for (layer, stages) in stage_of.iter().enumerate() {
            if stages.len() != 1 {
                faults.push(PipelineFault::Placed { id: id(layer), times: stages.len() });
            }
            for &next in &self.layers.followers[layer] {
                let [from, to] = [stages.last(), stage_of[next].first()];
                if to.is_some() && from > to {
                    faults.push(PipelineFault::Backwards { source_id: id(layer), target_id: id(next) });
                }
            }
        }
    }

    /// The time of consecutive stages that share the first `depth` levels, and the members they use.
    fn seconds(&self, stages: &[&Stage], depth: usize, faults: &mut Vec<PipelineFault>) -> f64 {
        let level = depth - 1;
        // Those that one stage of this level encloses stand together; on the innermost level each is its own.
        let mut groups: Vec<Vec<&Stage>> = Vec::new();
        for &stage in stages {
            match groups.last_mut() {
                Some(group) if level > 0 && group[0].within[level - 1] == stage.within[level - 1] => {
                    group.push(stage)
                }
                _ => groups.push(vec![stage]),
            }
        }
        let used: usize = groups.iter().map(|group| group[0].replicas[level]).sum();
        let available = self.levels[level].machines;
        if used > available {
            faults.push(PipelineFault::Machines { level, used, available });
        }
        let mut slowest = 0.0f64;
        for group in groups {
            let replicas = group[0].replicas[level];
            let members = self.members(&group);
            let computing = match level {
                0 => self.sum(&members, |layer| self.layers.layers[layer].milliseconds.iter().sum()) / 1e3,
                _ => self.seconds(&group, level, faults),
            };
            let parameters = self.sum(&members, |layer| self.layers.layers[layer].parameter_bytes);
            let communicating = communication(
                self.levels[level],
                replicas,
                self.crossing(&members),
                parameters,
                self.discipline.round(),
            );
            slowest = slowest.max(computing.max(communicating) / replicas as f64);
        }
        slowest
    }

    fn stage(&self, stage: &Stage, devices_from_here: usize) -> StageScore {
        let members = self.members(&[stage]);
        let parameters = self.sum(&members, |layer| self.layers.layers[layer].parameter_bytes);
        let activations = self.sum(&members, |layer| self.layers.layers[layer].output_bytes);
        let in_flight = devices_from_here.div_ceil(stage.devices());
        StageScore {
            compute_seconds: self.sum(&members, |layer| self.layers.layers[layer].milliseconds.iter().sum())
                / 1e3,
            communication_seconds: communication(
                self.levels[0],
                stage.replicas[0],
                self.crossing(&members),
                parameters,
                self.discipline.round(),
            ),
            in_flight,
            resident_bytes: self.discipline.resident(in_flight, parameters, activations),
        }
    }

    fn members(&self, stages: &[&Stage]) -> BTreeSet<usize> {
        let places = stages.iter().flat_map(|stage| &stage.layers);
        places.filter_map(|place| self.place_of.get(place).copied()).collect()
    }

    fn sum(&self, members: &BTreeSet<usize>, of: impl Fn(usize) -> f64) -> f64 {
        members.iter().map(|&layer| of(layer)).sum()
    }

    /// Bytes of outputs that enter or leave these layers, each once.
    fn crossing(&self, members: &BTreeSet<usize>) -> f64 {
        let crosses = |layer: &usize| {
            let inside = members.contains(layer);
            self.layers.followers[*layer].iter().any(|next| members.contains(next) != inside)
        };
        let crossing = (0..self.layers.layers.len()).filter(crosses);
        crossing.map(|layer| self.layers.layers[layer].output_bytes).sum()
    }
}
