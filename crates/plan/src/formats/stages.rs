//! Pipelines as this program writes and reads them: stages, the machines they are for, and what is known about them.

use super::{FormatError, check_faults, check_length};
use crate::operators::OperatorGraph;
use crate::pipeline::{Discipline, Level, Pipeline, PipelineReport, PipelineVerdict, Stage};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A pipeline with its report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PipelineDocument {
    /// The machines, innermost level first.
    pub levels: Vec<LevelDocument>,
    /// Memory of a device; missing when it was not limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// How minibatches follow each other.
    #[serde(default)]
    pub discipline: Discipline,
    /// Seconds from one minibatch to the next.
    pub seconds: f64,
    /// What is proved that no such pipeline is below.
    pub lower_seconds: f64,
    /// Whether the value is proved to be the least.
    pub proved: bool,
    /// What holds the value up, in words.
    pub binding: String,
    /// The stages in order.
    pub stages: Vec<StageDocument>,
}

/// Machines of one level.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LevelDocument {
    /// How many members.
    pub machines: usize,
    /// Bytes a second between two.
    pub bytes_per_second: f64,
}

/// One stage and its costs. Costs are for readers: the judge works them out anew.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StageDocument {
    /// Replicas on each level, innermost first.
    pub replicas: Vec<usize>,
    /// The stage that encloses it on each outer level.
    pub within: Vec<usize>,
    /// Computing of one replica for a minibatch, seconds.
    pub compute_seconds: f64,
    /// Communicating of one replica for a minibatch, seconds.
    pub communication_seconds: f64,
    /// Minibatches in flight in one replica.
    pub in_flight: usize,
    /// Bytes that a device keeps.
    pub resident_bytes: f64,
    /// Ids of its forward operators.
    pub layers: Vec<u64>,
}

impl PipelineDocument {
    /// The document of a pipeline, whose judge said `verdict`.
    #[must_use]
    pub fn new(
        graph: &OperatorGraph,
        levels: &[Level],
        (memory_bytes, discipline): (Option<u64>, Discipline),
        (pipeline, report): (&Pipeline, &PipelineReport),
        verdict: &PipelineVerdict,
    ) -> Self {
        let stages = pipeline.stages.iter().zip(&verdict.stages).map(|(stage, score)| StageDocument {
            replicas: stage.replicas.clone(),
            within: stage.within.clone(),
            compute_seconds: score.compute_seconds,
            communication_seconds: score.communication_seconds,
            in_flight: score.in_flight,
            resident_bytes: score.resident_bytes,
            layers: stage.layers.iter().map(|&place| graph.operators()[place].id).collect(),
        });
        let level = |level: &Level| LevelDocument {
            machines: level.machines,
            bytes_per_second: level.bytes_per_second,
        };
        Self {
            levels: levels.iter().map(level).collect(),
            memory_bytes,
            discipline,
            seconds: report.seconds,
            lower_seconds: report.lower_seconds,
            proved: report.proved,
            binding: held_up(pipeline, discipline, verdict),
            stages: stages.collect(),
        }
    }

    /// The machines it is for.
    #[must_use]
    pub fn levels(&self) -> Vec<Level> {
        let level = |level: &LevelDocument| Level {
            machines: level.machines,
            bytes_per_second: level.bytes_per_second,
        };
        self.levels.iter().map(level).collect()
    }

    /// The pipeline, of `graph`.
    ///
    /// # Errors
    ///
    /// Every id that the graph does not have. Whether the pipeline is possible is for the judge to say.
    pub fn pipeline(&self, graph: &OperatorGraph) -> Result<Pipeline, FormatError> {
        let places: BTreeMap<u64, usize> =
            graph.operators().iter().enumerate().map(|(place, operator)| (operator.id, place)).collect();
        let mut faults = Vec::new();
        let mut stages = Vec::with_capacity(self.stages.len());
        for stage in &self.stages {
            let mut layers = Vec::with_capacity(stage.layers.len());
            for id in &stage.layers {
                match places.get(id) {
                    Some(&place) => layers.push(place),
                    None => faults.push(format!("operator {id} is not in the graph")),
                }
            }
            layers.sort_unstable();
            stages.push(Stage { layers, replicas: stage.replicas.clone(), within: stage.within.clone() });
        }
        check_faults(faults)?;
        Ok(Pipeline { stages, seconds: self.seconds, cuts: 0 })
    }
}

/// The stage that takes longest, and what takes it so long.
fn held_up(pipeline: &Pipeline, discipline: Discipline, verdict: &PipelineVerdict) -> String {
    let share = |(stage, score): (&Stage, &crate::pipeline::StageScore)| {
        score.compute_seconds.max(score.communication_seconds) / stage.devices() as f64
    };
    let shares: Vec<f64> = pipeline.stages.iter().zip(&verdict.stages).map(share).collect();
    let worst = (0..shares.len()).max_by(|&a, &b| shares[a].total_cmp(&shares[b]).then(b.cmp(&a)));
    match worst.map(|worst| (worst, &verdict.stages[worst])) {
        None => "nothing".to_owned(),
        Some((worst, _)) if shares[worst] < verdict.seconds * (1.0 - 1e-9) => match discipline {
            Discipline::Flush { .. } => "filling and draining the pipeline".to_owned(),
            _ => "communication between machines".to_owned(),
        },
        Some((worst, score)) if score.communication_seconds > score.compute_seconds => {
            format!("communication of stage {worst}")
        }
        Some((worst, _)) => format!("computing of stage {worst}"),
    }
}

/// Reads a document: the whole file, or what a report holds under `pipeline`.
///
/// # Errors
///
/// A file that is too long or not of this shape.
pub fn read_pipeline(text: &str) -> Result<PipelineDocument, FormatError> {
    #[derive(Deserialize)]
    struct Wrapped {
        pipeline: PipelineDocument,
    }
    check_length(text)?;
    let value: serde_json::Value = serde_json::from_str(text)?;
    if value.get("pipeline").is_some() {
        return Ok(Wrapped::deserialize(value)?.pipeline);
    }
    Ok(PipelineDocument::deserialize(value)?)
}
