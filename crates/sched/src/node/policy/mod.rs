//! Policies for a node, one file each. A policy reads the world and returns decisions; the world does the bookkeeping.

mod batch;
mod edf;
mod fifo;
mod parts;
mod pipeswitch;
mod residency;
mod timeslice;
mod windows;

pub use edf::Edf;
pub use fifo::Fifo;
pub use pipeswitch::PipeSwitch;
pub use timeslice::TimeSlice;
pub use windows::Windows;

use super::NodeWorld;
use crate::Policy;
use serde::{Deserialize, Serialize};
use vocab::Span;

/// A policy and its parameters, as scenarios and journals name it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "lowercase", deny_unknown_fields)]
pub enum Choice {
    /// Oldest request first, whole batches, no preemption.
    Fifo,
    /// Earliest deadline first, no preemption.
    Edf,
    /// Round robin between models, each for a time slice.
    TimeSlice {
        /// How long a model may run while others wait.
        #[serde(default = "default_slice")]
        slice: Span,
    },
    /// Windows of admissible start, strict classes, preemption at segment edges.
    Windows {
        /// A request gains one class for each such span it has waited.
        #[serde(default = "default_ageing")]
        ageing: Span,
    },
    /// Strict classes, preemption at segment edges, and the next model's weights on their way while this one runs.
    PipeSwitch,
}

const fn default_slice() -> Span {
    Span::from_ms(10)
}

const fn default_ageing() -> Span {
    Span::from_ms(10_000)
}

impl Choice {
    /// Names that [`Choice::named`] knows.
    pub const NAMES: [&'static str; 5] = ["fifo", "edf", "timeslice", "windows", "pipeswitch"];

    /// The policy called `name` with its default parameters.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "fifo" => Some(Self::Fifo),
            "edf" => Some(Self::Edf),
            "timeslice" => Some(Self::TimeSlice { slice: default_slice() }),
            "windows" => Some(Self::Windows { ageing: default_ageing() }),
            "pipeswitch" => Some(Self::PipeSwitch),
            _ => None,
        }
    }

    /// A fresh policy.
    #[must_use]
    pub fn build(&self) -> Box<dyn Policy<NodeWorld>> {
        match self {
            Self::Fifo => Box::new(Fifo),
            Self::Edf => Box::new(Edf),
            Self::TimeSlice { slice } => Box::new(TimeSlice::new(*slice)),
            Self::Windows { ageing } => Box::new(Windows::new(*ageing)),
            Self::PipeSwitch => Box::new(PipeSwitch),
        }
    }
}
