//! Policies for a node, one file each. A policy reads the world and returns decisions; the world does the bookkeeping.

mod batch;
mod clipper;
mod daris;
mod dstack;
mod duty;
mod edf;
mod fifo;
mod gpulet;
mod greedy;
mod gslice;
mod ideal;
mod nexus;
mod parts;
mod pipeswitch;
mod residency;
mod sgprs;
mod starts;
mod temporal;
mod timeslice;
mod triton;
mod windows;

pub use clipper::Clipper;
pub use daris::Daris;
pub use dstack::DStack;
pub use edf::Edf;
pub use fifo::Fifo;
pub use gpulet::Gpulet;
pub use greedy::{MaxMin, MaxThroughput};
pub use gslice::Gslice;
pub use ideal::Ideal;
pub use nexus::Nexus;
pub use pipeswitch::PipeSwitch;
pub use sgprs::Sgprs;
pub use temporal::Temporal;
pub use timeslice::TimeSlice;
pub use triton::Triton;
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
    /// Every model at its knee in a timetable of parts and times, idle units to who was served least.
    DStack,
    /// The bound D-STACK is measured against: every segment at its own knee, parts change at no cost.
    Ideal,
    /// Stages with deadlines on a pool of contexts that may overlap.
    Sgprs {
        /// Stages of a run.
        #[serde(default = "default_stages")]
        stages: u32,
    },
    /// First class always, others while their context has time for them.
    Daris,
    /// One model after the other on the whole device, in whole batches.
    Temporal,
    /// Instances of each model on streams of the whole device, batches by size and delay.
    Triton {
        /// Instances of each model.
        #[serde(default = "default_instances")]
        instances: u32,
    },
    /// A container for each model on the whole device, batches grown and shrunk by what they achieve.
    Clipper,
    /// Planned batches in a duty cycle, hopeless heads dropped.
    Nexus,
    /// A part for each model that tunes itself.
    Gslice,
    /// One or two parts in a few sizes, each shared in turns.
    Gpulet,
    /// Idle units to whoever makes most rows of them.
    MaxThroughput,
    /// Idle units to whoever was served least.
    MaxMin,
}

/// A policy of a node whose state can be taken along: from one moment on it may go on in several worlds.
pub trait NodePolicy: Policy<NodeWorld> {
    /// The same policy in the same state.
    fn fork(&self) -> Box<dyn NodePolicy>;
}

impl<P: Policy<NodeWorld> + Clone + 'static> NodePolicy for P {
    fn fork(&self) -> Box<dyn NodePolicy> {
        Box::new(self.clone())
    }
}

const fn default_stages() -> u32 {
    6
}

const fn default_instances() -> u32 {
    1
}

const fn default_slice() -> Span {
    Span::from_ms(10)
}

const fn default_ageing() -> Span {
    Span::from_ms(10_000)
}

impl Choice {
    /// Names that [`Choice::named`] knows.
    pub const NAMES: [&'static str; 17] = [
        "fifo",
        "edf",
        "timeslice",
        "windows",
        "pipeswitch",
        "dstack",
        "ideal",
        "sgprs",
        "daris",
        "temporal",
        "triton",
        "clipper",
        "nexus",
        "gslice",
        "gpulet",
        "maxthroughput",
        "maxmin",
    ];

    /// The policy called `name` with its default parameters.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "fifo" => Some(Self::Fifo),
            "edf" => Some(Self::Edf),
            "timeslice" => Some(Self::TimeSlice { slice: default_slice() }),
            "windows" => Some(Self::Windows { ageing: default_ageing() }),
            "pipeswitch" => Some(Self::PipeSwitch),
            "dstack" => Some(Self::DStack),
            "ideal" => Some(Self::Ideal),
            "sgprs" => Some(Self::Sgprs { stages: default_stages() }),
            "daris" => Some(Self::Daris),
            "temporal" => Some(Self::Temporal),
            "triton" => Some(Self::Triton { instances: default_instances() }),
            "clipper" => Some(Self::Clipper),
            "nexus" => Some(Self::Nexus),
            "gslice" => Some(Self::Gslice),
            "gpulet" => Some(Self::Gpulet),
            "maxthroughput" => Some(Self::MaxThroughput),
            "maxmin" => Some(Self::MaxMin),
            _ => None,
        }
    }

    /// Whether its runs go on on other partitions than they began on.
    #[must_use]
    pub const fn moves(&self) -> bool {
        matches!(self, Self::Sgprs { .. } | Self::Daris)
    }

    /// Whether it stops runs at their edges: then edges must be near, while others gain from long segments.
    #[must_use]
    pub const fn stops(&self) -> bool {
        matches!(self, Self::TimeSlice { .. } | Self::Windows { .. } | Self::PipeSwitch) || self.moves()
    }

    /// A fresh policy.
    #[must_use]
    pub fn build(&self) -> Box<dyn NodePolicy> {
        match self {
            Self::Fifo => Box::new(Fifo),
            Self::Edf => Box::new(Edf),
            Self::TimeSlice { slice } => Box::new(TimeSlice::new(*slice)),
            Self::Windows { ageing } => Box::new(Windows::new(*ageing)),
            Self::PipeSwitch => Box::new(PipeSwitch),
            Self::DStack => Box::new(DStack::default()),
            Self::Ideal => Box::new(Ideal::default()),
            Self::Sgprs { stages } => Box::new(Sgprs::new(*stages)),
            Self::Daris => Box::new(Daris::default()),
            Self::Temporal => Box::new(Temporal::default()),
            Self::Triton { instances } => Box::new(Triton::new(*instances)),
            Self::Clipper => Box::new(Clipper::default()),
            Self::Nexus => Box::new(Nexus::default()),
            Self::Gslice => Box::new(Gslice::default()),
            Self::Gpulet => Box::new(Gpulet::default()),
            Self::MaxThroughput => Box::new(MaxThroughput),
            Self::MaxMin => Box::new(MaxMin::default()),
        }
    }
}
