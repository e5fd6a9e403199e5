//! Pipelines: consecutive stages of a training graph, each replicated on some machines, nested as the machines are.

mod costs;
mod cuts;
mod flush;
mod judge;
mod layers;
mod optimise;
mod published;
mod walk;

pub use costs::stage_costs;
pub use judge::{PipelineFault, PipelineVerdict, StageScore, judge_pipeline};
pub use optimise::plan_pipeline;
pub use published::{Transfers, plan_published};

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Members of one level that are planned for.
const MACHINES_MAX: usize = 64;

/// Machines of one level of a hierarchy, and how fast they exchange data.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Level {
    /// Members: devices of a machine on the innermost level, then machines, and so on.
    pub machines: usize,
    /// Bytes a second between two members.
    pub bytes_per_second: f64,
}

/// How minibatches follow each other, and so what a device keeps and how often replicas exchange gradients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Discipline {
    /// Without a pause; a device keeps the parameters that each minibatch in flight began with, and replicas exchange
    /// gradients after each (PipeDream).
    #[default]
    Stashing,
    /// Without a pause; two versions of the parameters, and an exchange every so many minibatches (PipeDream-2BW).
    TwoVersions {
        /// Minibatches between two exchanges.
        minibatches: usize,
    },
    /// Drained after so many minibatches, which then change the parameters together (1F1B with a flush).
    Flush {
        /// Minibatches of a round.
        minibatches: usize,
    },
}

impl Discipline {
    /// Minibatches after which replicas exchange gradients.
    fn round(self) -> usize {
        match self {
            Self::Stashing => 1,
            Self::TwoVersions { minibatches } | Self::Flush { minibatches } => minibatches.max(1),
        }
    }

    /// Bytes that a device of a stage keeps while so many minibatches are in flight, with one set of gradients.
    fn resident(self, in_flight: usize, parameter_bytes: f64, activation_bytes: f64) -> f64 {
        let versions = match self {
            Self::Stashing => in_flight,
            Self::TwoVersions { .. } => 2,
            Self::Flush { .. } => 1,
        };
        let stashed =
            if let Self::Flush { minibatches } = self { in_flight.min(minibatches) } else { in_flight };
        (versions + 1) as f64 * parameter_bytes + stashed as f64 * activation_bytes
    }
}

/// One stage: consecutive layers on some devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage {
    /// Places of its forward operators in the graph, ascending.
    pub layers: Vec<usize>,
    /// How often the stage is replicated on each level, innermost first.
    pub replicas: Vec<usize>,
    /// The number of the stage that encloses it on each level but the innermost, from the second innermost outwards;
    /// stages are numbered from 0 inside the one that encloses them.
    pub within: Vec<usize>,
}

impl Stage {
    /// Devices the stage runs on.
    #[must_use]
    pub fn devices(&self) -> usize {
        self.replicas.iter().product()
    }
}

/// A pipeline and its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Pipeline {
    /// Stages in order.
    pub stages: Vec<Stage>,
    /// Seconds from one minibatch to the next, by the planner's own formulas.
    pub seconds: f64,
    /// Places where the planner could cut, the end included.
    pub cuts: usize,
}

/// What is known about a pipeline's value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PipelineReport {
    /// Seconds from one minibatch to the next, as the judge scores them.
    pub seconds: f64,
    /// No pipeline takes less: all computing, spread evenly.
    pub lower_seconds: f64,
    /// Whether no pipeline of the model takes less than `seconds`.
    pub proved: bool,
}

/// Why there is no pipeline.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PipelineError {
    /// There is no level, or one without machines or speed.
    #[error("level {level} has no machine or no speed; give both")]
    Level {
        /// The level, innermost first.
        level: usize,
    },
    /// A layer's bytes are not known.
    #[error("operator {id} does not tell parameters from activations; give a profile that does")]
    Sizes {
        /// The operator.
        id: u64,
    },
    /// A layer's time is not known.
    #[error("operator {id} has no time on an accelerator; give one")]
    Time {
        /// The operator.
        id: u64,
    },
    /// There is nothing to cut.
    #[error("the graph has no forward operator but inputs; give layers")]
    Empty,
    /// More layers than are planned for.
    #[error("the graph has {found} layers, at most {limit} are planned; group them first")]
    Layers {
        /// How many there are.
        found: usize,
        /// How many are planned.
        limit: usize,
    },
    /// A round of no minibatches.
    #[error("a round needs a minibatch; give at least 1")]
    Round,
    /// The schedule of a drained round cannot be run.
    #[error("the round cannot be run: {0}")]
    Schedule(String),
    /// No pipeline fits the memory of a device.
    #[error("no pipeline fits devices of {memory_bytes} bytes; use larger ones or more of them")]
    Memory {
        /// What a device has.
        memory_bytes: u64,
    },
    /// The tables would be too large.
    #[error("{devices} members on one level are too many, at most {limit} are planned")]
    Machines {
        /// How many there are.
        devices: usize,
        /// How many are planned.
        limit: usize,
    },
    /// More places to cut than are searched.
    #[error("the graph can be cut in more than {limit} places; contract branches first")]
    Cuts {
        /// How many are searched.
        limit: usize,
    },
}

fn check_levels(levels: &[Level]) -> Result<(), PipelineError> {
    let usable = |level: &Level| level.machines > 0 && level.bytes_per_second > 0.0;
    if let Some(level) = levels.iter().position(|level| !usable(level)) {
        return Err(PipelineError::Level { level });
    }
    match levels.iter().map(|level| level.machines).max() {
        None => Err(PipelineError::Level { level: 0 }),
        Some(devices) if devices > MACHINES_MAX => {
            Err(PipelineError::Machines { devices, limit: MACHINES_MAX })
        }
        Some(_) => Ok(()),
    }
}
